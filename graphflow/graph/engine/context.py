"""What a node may use: recorded operations, questions, streams, and facts about where it runs."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.errors import GraphflowError, NodeFailed, NodeTimeout
from graphflow.events import NodeProgress
from graphflow.graph.core.budget import add_usage, check_budget, check_spending, usage_between
from graphflow.graph.core.immutable import State, freeze, thaw
from graphflow.graph.core.machine import Interrupt, Operation
from graphflow.graph.core.ticks import NodeAsked, OperationRecorded, timed
from graphflow.graph.engine.blocks import Blocks

if TYPE_CHECKING:
    from graphflow.graph.core.machine import Frame
    from graphflow.graph.core.plan import PlanNode
    from graphflow.graph.engine.executor import Executor


class Goto:
    """A `node:` function's choice among its declared routes, with its updates (E19)."""

    __slots__ = ("node", "update")

    def __init__(self, node: str, update: Mapping[str, Any] | None = None) -> None:
        self.node = node
        self.update = update


_A_TOOL_CALL = {"toolCalls": 1}


def _without_tool_calls(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    return {figure: value for figure, value in (usage or {}).items() if figure not in _A_TOOL_CALL}


class Suspended(BaseException):
    """The node waits for a person and the process shall not: it is entered again after the answer.

    Not an `Exception`, so that a node's own error handling does not swallow it.
    """


class NodeRunOver(asyncio.CancelledError):
    """The node run is over, cancelled say, and what is left of its code asks for an operation or an answer.

    Nothing has been done: an act that can't be recorded would be done again by the next run. A `CancelledError`, so that
    code that cleans up passes it on as it passes on the cancellation itself.
    """


class OutcomeUnknown(NodeFailed):
    """A write was cut off between doing and recording; it is never tried again by itself (E6)."""


def is_suspension(left: BaseException) -> bool:
    """Whether a node was left because it waits, also when its questions were asked in a task group."""
    return isinstance(left, Suspended) or (isinstance(left, BaseExceptionGroup) and left.split(Suspended)[1] is None)


ACTS_AROUND: ContextVar[frozenset[object]] = ContextVar("graphflow_acts_around", default=frozenset())
"""The operations inside which the present task runs."""


def is_cut_off(error: BaseException) -> bool:
    """Whether a write that ended so may have happened all the same (E6)."""
    if isinstance(error, GraphflowError) and error.code in ("timeout", "connection"):
        return True
    return isinstance(error, TimeoutError | NodeTimeout | ConnectionError) or not isinstance(error, Exception)


def digest_of(value: Any) -> str:
    """A short digest of JSON-like data, the same for equal data."""
    data = msgspec.json.encode(thaw(value), enc_hook=repr, order="deterministic")
    return hashlib.blake2b(data, digest_size=12).hexdigest()


_AT_ONCE = iter(())
"""An iterator that is at its end, for all who await what is done already."""


class MaybeReady:
    """The awaitable that streaming calls return: done already, unless the consumer is too far behind."""

    __slots__ = ("_room",)

    def __init__(self, room: Callable[[], Awaitable[None]] | None) -> None:
        self._room = room

    def __await__(self) -> Any:
        return _AT_ONCE if self._room is None else self._room().__await__()


DONE = MaybeReady(None)


class Context:
    """One node run's view of the engine.

    `content`, `reasoning` and `emit` send their event when called; awaiting what they return lets a slow
    consumer set the pace.
    """

    __slots__ = (
        "_blocks", "_calls", "_counts", "_executor", "_used", "acts", "alive", "attempt", "counted", "facts", "finish_reason", "frame", "limit",
        "node", "node_run_id", "partial", "plan_node", "started", "state", "usage", "visit",
    )  # fmt: skip

    def __init__(self, executor: Executor, frame: Frame, plan_node: PlanNode, node_run_id: str) -> None:
        self._executor = executor
        self._blocks: Blocks | None = None
        self._used: set[str] | None = None
        self._counts: dict[str, int] | None = None
        self.frame = frame.number
        self.plan_node = plan_node
        self.node: str = plan_node.name
        self.visit: int = frame.visit
        self.attempt: int = frame.attempt
        self.node_run_id: str = node_run_id
        self.state: State = frame.state
        self.alive = True
        self.acts: frozenset[object] = frozenset()
        """Operations that are under way."""
        self.started = 0.0
        self.limit: asyncio.Timeout | None = None
        self.usage: dict[str, Any] | None = None
        """What this node run used so far."""
        self.counted: dict[str, Any] | None = None
        """The part of it that records have brought to the run's usage; the rest follows when the node ends."""
        self._calls: tuple[str, ...] = ()
        """Keys of tool calls that were charged, and of which no record has told."""
        self.finish_reason: str | None = None
        self.facts: dict[str, Any] | None = None
        """What the node's record keeps of its operations: the `model` called, results of writes that end it (E5)."""
        self.partial: Callable[[str], Any] | None = None
        """Set by a node that streams a message: `(status) → the message as far as it came` (E15)."""

    # facts

    @property
    def thread_id(self) -> str:
        return self._executor.thread_id

    @property
    def run_id(self) -> str:
        return self._executor.machine.run_id

    @property
    def params(self) -> Any:
        """The `params` that came with the run's input."""
        return self._executor.machine.params

    @property
    def input(self) -> Any:
        return self._executor.machine.frames[self.frame].input

    @property
    def path(self) -> str:
        """Of the frame that the node runs in: `""` at the root, `fan#1[2]`, `sub#1`, …"""
        return self._executor.machine.frames[self.frame].path

    @property
    def speaks(self) -> bool:
        """Whether what a model says here goes to the reader unless the node says otherwise (E10): at the root, and in a
        subgraph whose node says `stream: "content"`.
        """
        frames, graphs = self._executor.machine.frames, self._executor.plan.graphs
        frame = frames[self.frame]
        while frame.path:
            above = frames[frame.parent]
            if frame.branch is not None or graphs[above.graph].document.nodes[above.node].stream != "content":
                return False
            frame = above
        return True

    @property
    def limits(self) -> Mapping[str, Any]:
        return self._executor.machine.limits

    @property
    def services(self) -> Mapping[str, Any]:
        """What the application gave the engine: models, tools, the long-term store."""
        return self._executor.services

    @property
    def open_model(self) -> Any:
        """The application's models: `ctx.open_model(provider_key, name)` opens one."""
        return self._service("model", "open_model")

    @property
    def tool(self) -> Any:
        """The application's tool runner."""
        return self._service("tool")

    @property
    def store(self) -> Any:
        """The long-term store across threads (spec 5.3)."""
        return self._service("store")

    def _service(self, name: str, attribute: str | None = None) -> Any:
        try:
            return self._executor.services[name]
        except KeyError:
            raise NodeFailed(f"node {self.node!r} uses ctx.{attribute or name}, but the application has none") from None

    def now(self) -> int:
        """Epoch milliseconds, from the injected clock."""
        return self._executor.clock.now_ms()

    now_ms = now

    @property
    def random(self) -> float:
        """A draw in [0, 1) from the injected source."""
        return self._executor.ids.random()

    def idempotency_key(self, key: str = "") -> str:
        """The same for this call on every retry and after a crash (E6)."""
        executor = self._executor
        path = executor.machine.frames[self.frame].path
        parts = (executor.machine.run_id, executor.lineage, path, self.node, self.visit, key)
        return digest_of(parts)

    # streams

    @property
    def blocks(self) -> Blocks:
        """The blocks of this node run, for kinds that stream calls."""
        if self._blocks is None:
            self._blocks = self._executor.events.blocks(self.run_id, self.node_run_id)
        return self._blocks

    def content(self, text: str) -> MaybeReady:
        """Streams text to the reader: one call, one event."""
        if self.alive:
            self.blocks.content(self._text(text))
        return self._room()

    def reasoning(self, text: str) -> MaybeReady:
        """Streams the model's reasoning: one call, one event."""
        if self.alive:
            self.blocks.reasoning(self._text(text))
        return self._room()

    def _text(self, text: str) -> str:
        if not isinstance(text, str):
            raise NodeFailed(f"node {self.node!r} streams {text!r:.80}, which is no text; give it as a str")
        return text

    def emit(self, data: Any) -> MaybeReady:
        """Sends `node.progress` with any JSON-like data."""
        if self.alive:
            self._executor.events.emit(NodeProgress(node_run_id=self.node_run_id, data=data))
        return self._room()

    def _room(self) -> MaybeReady:
        room = self._executor.room
        return DONE if room is None else room()

    async def tool_progress(self, call_id: str, data: Any) -> None:
        if self.alive:
            self.blocks.tool_progress(call_id, data)
        await self._room()

    async def tool_result(self, call_id: str, text: str, action: bool = False, param: Any = None) -> None:
        """The result of a call, whichever node run streamed the call itself; hidden with the call in a branch."""
        told = self._executor.events.calls
        await told.learn()
        if self.path and call_id not in told.started:
            return
        if self.alive and action:
            self.blocks.action_result(call_id, param, text)
        elif self.alive:
            self.blocks.tool_result(call_id, text)
        await self._room()

    async def told_result(self, call_id: str) -> Any:
        """The result of a call as readers were told it; None when they were told none yet."""
        told = self._executor.events.calls
        await told.learn()
        return told.answered.get(call_id)

    async def whole_call(self, call_id: str, name: str, arguments: str, *, action: bool = False, **facts: Any) -> None:
        """Streams a call that no model has streamed, unless readers know of it; `facts` are further fields of its start."""
        await self._executor.events.calls.learn()
        if self.alive:
            self.blocks.whole_call(call_id, name, arguments, action=action, **facts)

    def source(self, facts: dict[str, Any]) -> None:
        if self.alive:
            self.blocks.source(facts)

    def close_blocks(self) -> None:
        if self._blocks is not None:
            self._blocks.close()

    # budget

    def charge(self, figure: str, more: int = 1) -> None:
        """Counts `modelCalls` or `toolCalls` before the call; raises `BudgetExceeded` when none is left."""
        machine = self._executor.machine
        total = self._executor.runs.usage_with(machine.usage)
        if total.get(figure, 0) + more > machine.granted.get(figure, 0):
            check_budget(machine.limits, total, figure, more=more)
            if figure == "modelCalls":
                check_spending(machine.limits, total)
        self.add_usage(**{figure: more})

    def charge_tool_call(self, key: str | None = None, *, counted: bool = False) -> None:
        """Counts a tool call as `charge` does.

        Args:
            key: of the call's operation. A record that is none of this call's does not tell of it: were the process killed
                between the two, the call would be made, and counted, again.
            counted: a record has told of it; it is only told again with what the node run used.
        """
        if counted:
            self.usage = add_usage(self.usage or {}, _A_TOOL_CALL)
            self.counted = add_usage(self.counted or {}, _A_TOOL_CALL)
            return
        self.charge("toolCalls")
        if key is not None:
            self._calls = (*self._calls, key)

    def continue_from(self, left: Context) -> None:
        """Takes up what the node run used before it was left, but for the tool calls: it goes through them again."""
        self.started = left.started
        self.usage, self.counted = _without_tool_calls(left.usage) or None, _without_tool_calls(left.counted) or None
        if left._calls:
            self._executor.runs.note_usage({"toolCalls": -len(left._calls)})

    def add_usage(self, **figures: float) -> None:
        """Adds to what this node run used."""
        used = {name: value for name, value in figures.items() if value or name == "costUsd"}
        self.usage = add_usage(self.usage or {}, used)
        if self.alive:
            self._executor.runs.note_usage(used)

    @property
    def uncounted(self) -> dict[str, Any] | None:
        """What of its usage no record has brought to the run's."""
        if not self.counted:
            return self.usage
        return usage_between(self.counted, self.usage or {}) or None

    def to_be_counted(self, key: str | None) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """What a record of the operation or question `key` counts, and the fact of which model used it."""
        usage = self.uncounted
        if usage and (others := len(self._calls_beside(key))):
            beside = usage["toolCalls"] - others
            usage = {**_without_tool_calls(usage), **({"toolCalls": beside} if beside else {})} or None
        return usage, {"model": self.facts["model"]} if usage and self.facts and "model" in self.facts else None

    def note_counted(self, key: str | None, usage: Mapping[str, Any] | None) -> None:
        """The record for which `to_be_counted` gave this was fed."""
        self._calls = self._calls_beside(key)
        if usage:
            self.counted = add_usage(self.counted or {}, usage)
            self._executor.runs.note_usage({name: -value for name, value in usage.items()})

    def _calls_beside(self, key: str | None) -> tuple[str, ...]:
        """The tool calls of which no record has told, but for the one that `key` belongs to (`call_1`, `approval:call_1`)."""
        if key is None or not self._calls:
            return self._calls
        return tuple(call for call in self._calls if key != call and not key.endswith(f":{call}"))

    def record_usage(self) -> None:
        """Brings what the node run has used to the run's usage: the node is left, and entered again as another."""
        if self.alive and self.to_be_counted(None)[0]:
            self._feed_operation(None, None)

    # recorded operations (E5)

    def _refuse_when_over(self) -> None:
        """Before anything acts: no record of a node run that is over reaches the store."""
        if not self.alive or self._executor.closed:
            raise NodeRunOver(
                f"node {self.node!r} has ended, and its code still asks for an operation; "
                "what must be done after a cancellation belongs in a node of its own"
            )

    def _key(self, kind: str, name: str | None) -> str:
        if self._used is None:
            self._used, self._counts = set(), {}
        assert self._counts is not None
        if name is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            name = f"{kind}:{self._counts[kind]}"
        if name in self._used:
            raise NodeFailed(
                f"node {self.node!r} used the key {name!r} twice in one attempt; give each operation its own"
            )
        self._used.add(name)
        return name

    def _recorded(self, key: str, digest: str) -> Operation | None:
        operation = self._executor.machine.frames[self.frame].operations.get(key)
        if operation is not None and operation.digest != digest:
            raise NodeFailed(
                f"node {self.node!r} came back to the operation {key!r} with other arguments; what was recorded is kept. "
                "Make what leads to it deterministic, or rewind",
                code="node_not_deterministic",
                key=key,
            )
        return operation

    def recorded(self, key: str) -> bool:
        """Whether this node run has the operation `key` on record, or its question open: it was entered before."""
        machine = self._executor.machine
        if key in machine.frames[self.frame].operations:
            return True
        return bool(machine.interrupts) and self._executor.waiters.find(self.frame, key) is not None

    async def step(
        self,
        name: str | None,
        fn: Callable[[], Any],
        *,
        effects: str = "write",
        idempotent: bool = False,
        undo: str | None = None,
        arguments: Any = None,
        kind: str = "once",
        ends_node: bool = False,
        refers: bool = False,
    ) -> Any:
        """The result of `fn`, run at most once for this node run and key, also over retries and crashes.

        Args:
            name: the key; without one the ordinal of the call.
            fn: a function without arguments, async or not; its result must be encodable.
            effects: `write` records its intent durably before acting, so that a crash between doing and
                recording is found and asked about; `read` and `none` are just run again after a crash.
            idempotent: a cut-off write may be repeated under the same `idempotency_key`.
            undo: `tool:NAME` or `fn:NAME` that takes the write back; default: the node's own `undo`.
            arguments: what the call depends on; other arguments under the same key are an error.
            ends_node: nothing but the node's own end follows, whose commit is the record.
            refers: the state's messages hold the arguments, as those of the call `name`: they are not stored again.

        Raises:
            NodeFailed: `node_not_deterministic` when it was recorded with other arguments.
            NodeRunOver: the node run has ended; `fn` is not called.
        """
        self._refuse_when_over()
        key = self._key(kind, name)
        digest = digest_of(arguments) if arguments is not None else ""
        operation = self._recorded(key, digest)
        if operation is not None and operation.state == "done":
            return operation.result
        if operation is not None and not (idempotent or operation.idempotent):
            settled = await self._settle(key, operation)
            if settled is not None:
                return settled.result
        if (lease := self._executor.lease) is not None and self.now() > lease.until:
            await lease.confirm()  # this process stood still: what another life may do now is not done here
        if effects == "write":
            settles = None
            facts = self._effect_facts(undo, None if refers else arguments)
            if operation is None and self._executor.machine.reuse:
                settles, found = await self._recall(key, Operation(kind, digest, effects, "done", None, idempotent))
                if found is not None:
                    self._record(key, found, facts, settles)
                    return found.result
            self._refuse_when_over()  # a question about the past was waited for
            self._record(key, Operation(kind, digest, effects, "intent", None, idempotent), facts, settles)
        result = freeze(await self._act(key, fn, effects, idempotent))
        if not ends_node:
            self._record(key, Operation(kind, digest, effects, "done", result, idempotent))
        elif effects == "write":
            self.keep_facts(done={**((self.facts or {}).get("done") or {}), key: result})
        return result

    async def _act(self, key: str, fn: Callable[[], Any], effects: str, idempotent: bool) -> Any:
        """What `fn` gives. While it runs the node is not left for a question that it asks beside it."""
        act, around = object(), ACTS_AROUND.get()
        self.acts |= {act}
        token = ACTS_AROUND.set(around | {act})
        try:
            if effects == "write":
                try:
                    await self._executor.flush()
                except asyncio.CancelledError:  # nothing has been done yet
                    self.forget(key)
                    raise
            self._refuse_when_over()  # it may have ended while its intent was written
            result = fn()
            return await result if inspect.isawaitable(result) else result
        except BaseException as error:
            if effects == "write":
                self._failed(key, error, idempotent)
            raise
        finally:
            ACTS_AROUND.reset(token)
            self.acts -= {act}
            self._executor.waiters.acted(self.frame)

    def keep_facts(self, **facts: Any) -> None:
        """Facts for the record of the node's end; names are those that `checkpoints/record_encoder.py` stores."""
        self.facts = {**(self.facts or {}), **facts}

    def _effect_facts(self, undo: str | None, arguments: Any) -> dict[str, Any]:
        """What has to be known of a write once its node is gone: where it was, its arguments, what takes it back."""
        executor = self._executor
        frame = executor.machine.frames[self.frame]
        facts: dict[str, Any] = {"visit": self.visit}
        if frame.path:
            facts["path"] = frame.path
        if undo := executor.plan.graphs[frame.graph].document.nodes[self.node].undo or undo:
            facts["undo"] = undo
        if arguments is not None:
            facts["arguments"] = arguments
        return facts

    async def _recall(self, key: str, done: Operation) -> tuple[str | None, Operation | None]:
        """What the past that was left recorded of this write, or what a person says of it (E8, `effects: reuse`).

        The effect whose place it takes, and its record; no record means: do it.
        """
        executor = self._executor
        past = [executor.machine.frames[self.frame].path, self.node, self.visit, key]
        rows = executor.machine.reuse
        effect = next((name for name, row in rows.items() if row[:4] == past), None)
        left = [dict(zip(("path", "node", "visit", "key"), row, strict=False)) for row in rows.values() if len(row) > 4]
        if not left or (effect is not None and len(rows[effect]) == 4):  # it was chosen to be done again
            return effect, None
        recall = executor.services.get("recall")
        if effect is not None and recall is not None and rows[effect][4] == done.digest:
            found = await recall(rows[effect])
            if found is not None:
                return effect, msgspec.structs.replace(done, result=freeze(found.result))
        why = "was done with other arguments, or nobody knows its result" if effect else "is not among what was done"
        answer = await self.ask(
            f"Results of the past are reused, and the write {key!r} of node {self.node!r} {why}.",
            kind="outcome_unknown",
            key=f"reuse:{key}",
            schema=UNKNOWN_SCHEMA,
            payload={"operation": key, "idempotencyKey": self.idempotency_key(key), "unmatched": left},
            digest=done.digest,
        )
        if answer["decision"] == "retry":
            return effect, None
        return effect, msgspec.structs.replace(done, result=freeze(answer.get("result")))

    def _failed(self, key: str, error: BaseException, idempotent: bool) -> None:
        """A write that surely failed leaves nothing; one that was cut off keeps its intent (E6)."""
        if not is_cut_off(error) or is_suspension(error):
            self.forget(key)  # what asks inside is done from its beginning after the answer
        elif isinstance(error, Exception) and not idempotent:
            raise OutcomeUnknown(
                f"the write {key!r} of node {self.node!r} was cut off ({error}); whether it happened is unknown",
                code=getattr(error, "code", "timeout"),
                key=key,
            ) from error

    def forget(self, key: str) -> None:
        """A write that surely did nothing leaves nothing: the next attempt does it."""
        if self.alive and key in self._executor.machine.frames[self.frame].operations:
            self._feed_operation(key, None)

    async def _settle(self, key: str, operation: Operation) -> Operation | None:
        """Asks what became of a cut-off write; None means: do it again."""
        await self.ask(
            f"Whether the write {key!r} of node {self.node!r} happened before the crash is unknown.",
            kind="outcome_unknown",
            key=f"unknown:{key}",
            schema=UNKNOWN_SCHEMA,
            payload={"operation": key, "idempotencyKey": self.idempotency_key(key)},
            digest=operation.digest,
        )
        return self._executor.machine.frames[self.frame].operations.get(key)

    def _record(
        self, key: str, operation: Operation, facts: dict[str, Any] | None = None, settles: str | None = None
    ) -> None:
        if self.alive:
            self._feed_operation(key, operation, facts, settles)

    def _feed_operation(
        self,
        key: str | None,
        operation: Operation | None,
        facts: dict[str, Any] | None = None,
        settles: str | None = None,
    ) -> None:
        """Feeds the record, which also counts what the node run has used until now: a crash loses both or none."""
        usage, model = self.to_be_counted(key)
        self._executor.feed(
            self._tick(
                OperationRecorded,
                frame=self.frame,
                key=key,
                operation=operation,
                usage=usage,
                facts={**(facts or {}), **model} if model else facts,
                settles=settles,
            )
        )
        self.note_counted(key, usage)

    def _tick(self, cls: Any, **fields: Any) -> Any:
        return cls(id=self._executor.ids.new_id(), at=self._executor.clock.now_ms(), **fields)

    def wait(self, *, signal: str | None = None, until: int | None = None) -> dict[str, Any]:
        """What a node that waits for a signal or a time (epoch ms) ends with; it is the last thing that the node does.

        Raises:
            Suspended: it waits; what ends the waiting ends the node, with `{by, signal?, payload?, at}` as its `out`.
        """
        self._refuse_when_over()
        executor, now = self._executor, self.now()
        if signal is None and until is not None and until <= now:
            return timed(now)
        if executor.waiters.find(self.frame, "") is None:
            hold_ms = None if until is None else executor.waiters.long_enough(until - now)
            interrupt = Interrupt(
                id="",
                kind="timer" if signal is None else "signal",
                run_id="",
                node=self.node,
                frame=self.frame,
                key="",
                path=executor.machine.frames[self.frame].path,
                payload=freeze({} if signal is None else {"signal": signal}),
                hold_ms=hold_ms,
                expires_at=until,
                node_run_id=self.node_run_id,
            )
            executor.feed(self._tick(NodeAsked, frame=self.frame, interrupt=interrupt))
        raise Suspended

    async def ask(
        self,
        message: str,
        *,
        kind: str = "ask",
        key: str | None = None,
        schema: Mapping[str, Any] | None = None,
        payload: Any = None,
        tool_id: str | None = None,
        tool_name: str | None = None,
        arguments: Any = None,
        hold_ms: int | None = None,
        owner: str | None = None,
        role: str | None = None,
        expires: str | None = None,
        digest: str | None = None,
    ) -> Any:
        """The answer of a person, validated against `schema`.

        The question is durable before anybody sees it. While the process holds the run, the call waits; once
        nothing holds it any more the node is left and entered again after the answer, and this call then
        returns it at once.

        Raises:
            NodeRunOver: the node run has ended; nobody is asked.
        """
        self._refuse_when_over()
        asked = self._key("ask", key)
        if digest is None:
            digest = digest_of([message, thaw(payload), thaw(arguments), thaw(schema)])
        operation = self._recorded(asked, digest)
        if operation is not None:
            return operation.result
        expires_at = None
        if expires is not None:
            from graphflow.graph.definition.types import parse_duration_ms

            expires_at = self.now() + parse_duration_ms(expires)
        interrupt = Interrupt(
            id="",
            kind=kind,
            run_id="",
            node=self.node,
            frame=self.frame,
            key=asked,
            path=self._executor.machine.frames[self.frame].path,
            schema=freeze(dict(schema or {})),
            payload=freeze({"message": message} if payload is None else payload),
            tool_id=tool_id,
            tool_name=tool_name,
            arguments=freeze(arguments),
            digest=digest,
            owner=owner,
            role=role,
            hold_ms=hold_ms,
            expires_at=expires_at,
            node_run_id=self.node_run_id,
        )
        return await self._executor.wait_for_answer(interrupt)


UNKNOWN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["decision"],
    "properties": {"decision": {"enum": ["retry", "skip", "result"]}, "result": {}},
}
