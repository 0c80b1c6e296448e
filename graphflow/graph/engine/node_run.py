"""Recorded operations and questions of a node run: done once, over retries, cancellations and crashes (E5, E6, E8).

A write is three things in this order: a durable record of the intent, the act, a record of the result. A crash before
the act finds no intent or one whose act it may repeat; a crash after it finds the intent without a result, and a person
is asked. Nothing acts before its intent is durable, and nothing at all once the node run is over.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.errors import CodecError, NodeFailed
from graphflow.graph.core.immutable import State, digest_of, freeze, thaw
from graphflow.graph.core.machine import Frame, Interrupt, Operation
from graphflow.graph.core.plan import PlanNode
from graphflow.graph.core.ticks import NodeAsked, timed
from graphflow.graph.definition.document import GraphDefinition
from graphflow.graph.engine import outcomes
from graphflow.graph.engine.answer_waiters import AnswerWaiters
from graphflow.graph.engine.blocks import Blocks
from graphflow.graph.engine.context import Context
from graphflow.graph.engine.operation_keys import OperationKeys, must_await
from graphflow.graph.engine.outcomes import Deciders
from graphflow.graph.engine.ports import OperationRecovery
from graphflow.graph.engine.run import Run
from graphflow.graph.engine.suspension import ACTS_AROUND, NodeRunOver, Suspended, is_cut_off, is_suspension
from graphflow.graph.engine.usage_meter import UsageMeter
from graphflow.messages import Message

EFFECTS = ("write", "read", "none")


class NodeRun(UsageMeter):
    """One run of one node: what its `Context` shows to its code, and what else the engine and the built-in kinds need.

    Once it is over (`over`), whatever it is asked for raises `NodeRunOver` before anything acts: what acted is on
    record, and no record of a node run that is over reaches the store.
    """

    __slots__ = (
        "_waiters", "acts", "finish_reason", "left", "limit", "node_run_id", "operation_keys", "partial", "plan_node", "started",
        "state",
    )  # fmt: skip

    def __init__(self, run: Run, waiters: AnswerWaiters, frame: Frame, plan_node: PlanNode, node_run_id: str) -> None:
        self._run, self._waiters, self.memory = run, waiters, run.memory
        self._blocks: Blocks | None = None
        self.operation_keys: OperationKeys | None = None
        self.frame, self._begun, self.plan_node = frame.number, frame, plan_node
        self.node: str = plan_node.name
        self.visit: int = frame.visit
        self.attempt: int = frame.attempt
        self.node_run_id: str = node_run_id
        self.state: State = frame.state
        self.alive, self.left = True, False
        self.acts: frozenset[object] = frozenset()
        """Operations that are under way."""
        self.started = 0.0
        self.limit: asyncio.Timeout | None = None
        self.usage = self.counted = self.facts = self.offered = None
        self._charged = {}
        self.finish_reason: str | None = None
        self.partial: Callable[[str], Any] | None = None
        """Set by a node that streams a message: `(status) → the message as far as it came` (E15)."""

    # facts

    @property
    def limits(self) -> Mapping[str, Any]:
        return self._run.machine.limits

    @property
    def services(self) -> Mapping[str, Any]:
        """What the application gave the engine: models, tools, the long-term store."""
        return self._run.services

    now_ms = Context.now

    @property
    def document(self) -> GraphDefinition:
        """The document that this node is part of."""
        return self._run.plan.graphs[self._run.machine.frames[self.frame].graph].document

    def uncounted_model(self, provider_key: str | None, model: str | None) -> Any:
        """A model of the application for a kind that counts its calls itself."""
        return self._service("model", "open_model")(provider_key, model)

    @property
    def speaks(self) -> bool:
        """Whether what a model says here goes to the reader unless the node says otherwise (E10): at the root, and in a
        subgraph whose node says `stream: "content"`.
        """
        frames, graphs = self._run.machine.frames, self._run.plan.graphs
        frame = frames[self.frame]
        while frame.path:
            above = frames[frame.parent]
            if frame.branch is not None or graphs[above.graph].document.nodes[above.node].stream != "content":
                return False
            frame = above
        return True

    # streams

    @property
    def blocks(self) -> Blocks:
        """The blocks of this node run, for kinds that stream calls."""
        return self._open_blocks()

    async def tool_progress(self, call_id: str, data: Any) -> None:
        if self.alive:
            self.blocks.tool_progress(call_id, data)
        await self._room()

    async def tool_result(self, call_id: str, text: str, action: bool = False, param: Any = None) -> None:
        """The result of a call, whichever node run streamed the call itself; hidden with the call in a branch."""
        told = self._run.events.calls
        await told.learn()
        if self.path and call_id not in told.started:
            return
        if self.alive and action:
            self.blocks.action_result(call_id, param, text)
        elif self.alive:
            self.blocks.tool_result(call_id, text)
        await self._room()

    async def announced_result(self, call_id: str) -> Any:
        """The result of a call as it was sent to readers; None if none was sent yet."""
        told = self._run.events.calls
        await told.learn()
        return told.answered.get(call_id)

    async def whole_call(self, call_id: str, name: str, arguments: str, *, action: bool = False, **facts: Any) -> None:
        """Streams a call that no model has streamed, unless readers have it; `facts` are further fields of its start."""
        await self._run.events.calls.learn()
        if self.alive:
            self.blocks.whole_call(call_id, name, arguments, action=action, **facts)

    async def calls_beside(self, messages: Sequence[Message]) -> Callable[[str], bool]:
        """Whether an id is taken: by the conversation, or by a call that has a result, waits, or was whole in this epoch."""
        told, own = self._run.events.calls, self.keys.calls
        await told.learn(messages)
        asked = {interrupt.tool_id for interrupt in self._run.machine.interrupts.values() if interrupt.tool_id}
        return lambda call_id: call_id in told.given or call_id in own or call_id in told.answered or call_id in asked

    def note_calls(self, call_ids: Iterable[str]) -> None:
        """A turn of a model is whole, and these are its calls."""
        noted = set(call_ids)
        self.keys.calls.update(noted)
        self._run.events.calls.given.update(noted)

    def source(self, facts: dict[str, Any]) -> None:
        if self.alive:
            self.blocks.source(facts)

    def close_blocks(self) -> None:
        if self._blocks is not None:
            self._blocks.close()

    # recorded operations (E5)

    @property
    def over(self) -> bool:
        """Whether nothing that its code still asks for is done: it has ended, or its time limit has cancelled it."""
        return not self.alive or self._run.closed or (self.limit is not None and self.limit.expired())

    def refuse_when_over(self) -> None:
        """Before anything acts: no record of a node run that is over reaches the store."""
        if self.over:
            raise NodeRunOver(
                f"node {self.node!r} is over, and its code still asks for something; "
                "what must be done after a cancellation belongs in a node of its own"
            )

    @property
    def keys(self) -> OperationKeys:
        """The keys of this attempt; most nodes record nothing and have none."""
        if self.operation_keys is None:
            self.operation_keys = OperationKeys()
        return self.operation_keys

    def call_key(self, call_id: str) -> str:
        return self.keys.of_call(call_id)

    def _recorded(self, key: str, digest: str) -> Operation | None:
        operation = self._run.machine.frames[self.frame].operations.get(key)
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
        machine = self._run.machine
        if key in machine.frames[self.frame].operations:
            return True
        return bool(machine.interrupts) and self._waiters.find(self.frame, key) is not None

    @must_await(shows=Context.step)
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
        deciders: Deciders = None,
        recovery: OperationRecovery | None = None,
    ) -> Any:
        """As `Context.step`.

        Args:
            ends_node: only the node's own end follows; its commit is the record.
            refers: the state's messages hold the arguments under the call `name`, so they are not stored again.
            deciders: who is asked about a cut-off write, see `outcomes.outcome_question`.
            recovery: of a write: what is kept with its intent, and what that says after a crash.
        """
        self.refuse_when_over()
        if effects not in EFFECTS:
            raise NodeFailed(f"node {self.node!r} gives a step effects={effects!r}; use one of none, read, write")
        key = self.keys.use(self.node, kind, name)
        digest = digest_of(arguments) if arguments is not None else ""
        operation = self._recorded(key, digest)
        if operation is not None and operation.state == "done":
            return outcomes.bounded(operation, self.node, key, self._run.plan.bounds)
        # An intent without a result: the process died in between, and only a person can find out whether the write
        # happened.
        if operation is not None and not (idempotent or operation.idempotent):
            settled = await self._settle(key, operation, arguments, deciders, recovery)
            if settled is not None:
                return outcomes.result_of(settled)
        if (lease := self._run.lease) is not None and lease.is_over(self.now()):
            await lease.confirm()  # this process stood still: what another epoch may do now is not done here
            self.refuse_when_over()
        if effects == "write":
            settles = None
            facts = self._effect_facts(undo, None if refers else arguments)
            if operation is None and self._run.machine.reuse:
                done = Operation(kind, digest, effects, "done", None, idempotent)
                settles, found = await self._recall(key, done, arguments, deciders)
                if found is not None:
                    self._record(key, found, facts, settles)
                    return outcomes.result_of(found)
            self.refuse_when_over()  # a question about the past was waited for
            try:
                kept = None if recovery is None else freeze(await recovery.before())
                self._record(key, Operation(kind, digest, effects, "intent", kept, idempotent), facts, settles)
            except CodecError as error:
                raise outcomes.unstorable_step(error, key, self.node, done=False) from error
        result = freeze(await self._act(key, fn, effects, idempotent))
        # An act that swallows its cancellation may have been cut off all the same: its outcome stays unknown.
        self.refuse_when_over()
        return self._finish(key, Operation(kind, digest, effects, "done", result, idempotent), ends_node=ends_node)

    def _finish(self, key: str, done: Operation, *, ends_node: bool) -> Any:
        """The result, on record. What was read is refused before, if it is too large; a write that was done after."""
        write, most = done.effects == "write", self._run.plan.bounds
        result = done.result if write else outcomes.bounded(done, self.node, key, most)
        if not ends_node:
            self._record(key, done)
        elif write:
            self.keep_facts(done={**((self.facts or {}).get("done") or {}), key: result})
        return outcomes.bounded(done, self.node, key, most) if write else result

    async def _act(self, key: str, fn: Callable[[], Any], effects: str, idempotent: bool) -> Any:
        """The result of `fn`. While it runs, the node is not left for a question that it asks in parallel."""
        act, around = object(), ACTS_AROUND.get()
        self.acts |= {act}
        token = ACTS_AROUND.set(around | {act})
        try:
            if effects == "write":
                try:  # the intent is durable before the act: a crash in between finds it and asks (E6)
                    await self._run.flush()
                except asyncio.CancelledError:  # nothing has been done yet
                    self.forget(key)
                    raise
            self.refuse_when_over()  # it may have ended while its intent was written
            result = fn()
            return await result if inspect.isawaitable(result) else result
        except BaseException as error:
            if effects == "write":
                self._failed(key, error, idempotent)
            raise
        finally:
            ACTS_AROUND.reset(token)
            self.acts -= {act}
            self._waiters.acted(self)

    def _effect_facts(self, undo: str | None, arguments: Any) -> dict[str, Any]:
        frame = self._begun
        own = self._run.plan.graphs[frame.graph].document.nodes[self.node].undo
        return outcomes.effect_facts(self.visit, frame.path, own or undo, arguments, self._run.machine.origin)

    async def _recall(
        self, key: str, done: Operation, arguments: Any, deciders: Deciders
    ) -> tuple[str | None, Operation | None]:
        """The record of this write from the abandoned past, or a person's decision about it (E8, `effects: reuse`).

        Returns the effect that it replaces, and its record; without a record the write is done.
        """
        run = self._run
        past = [self.path, self.node, self.visit, key]
        rows = run.machine.reuse
        effect, left = outcomes.effect_at(past, rows)
        if not left or (effect is not None and len(rows[effect]) == 4):  # it was chosen to be done again
            return effect, None
        recall = run.services.get("recall")
        if effect is not None and recall is not None and rows[effect][4] == done.digest:
            found = await recall(rows[effect])
            if found is not None:
                return effect, msgspec.structs.replace(done, result=freeze(found.result))
        message = outcomes.reuse_message(self.node, key, found=effect is not None)
        answer = await self._ask_outcome(f"reuse:{key}", message, key, done, arguments, deciders, unmatched=left)
        if answer["decision"] == "retry":
            return effect, None
        return effect, msgspec.structs.replace(done, result=freeze(answer.get("result")))

    def _failed(self, key: str, error: BaseException, idempotent: bool) -> None:
        """Drops the intent of a write that certainly failed; one that was cut off keeps it (E6)."""
        if not is_cut_off(error) or is_suspension(error):
            self.forget(key)  # what asks inside is done from its beginning after the answer
        elif isinstance(error, Exception) and not idempotent:
            raise outcomes.cut_off(error, self.node, key) from error

    def forget(self, key: str) -> None:
        """Drops the intent of a write that certainly did nothing, so that the next attempt does it."""
        if self.alive and key in self._run.machine.frames[self.frame].operations:
            self._feed_operation(key, None)

    async def _settle(
        self, key: str, operation: Operation, arguments: Any, deciders: Deciders, recovery: OperationRecovery | None
    ) -> Operation | None:
        """Finds out, else asks a person, whether a cut-off write happened; None means: do it again."""
        known = None if recovery is None else await recovery.outcome(operation.result)
        if known is outcomes.AGAIN:
            return None
        if known is not None:
            done = msgspec.structs.replace(operation, state="done", result=freeze(known))
            self._record(key, done)
            return done
        tool = arguments["tool"] if operation.kind == "tool" else None
        message = f"Whether {outcomes.write_of(self.node, key, tool)} happened before it was cut off is unknown."
        await self._ask_outcome(f"unknown:{key}", message, key, operation, arguments, deciders)
        self.refuse_when_over()
        return self._run.machine.frames[self.frame].operations.get(key)

    async def _ask_outcome(
        self, asked: str, message: str, key: str, operation: Operation, arguments: Any, deciders: Deciders, **facts: Any
    ) -> Any:
        """A person's decision about the write `key`, who is shown what it is, as with an approval."""
        said = {"message": message, "idempotencyKey": self.idempotency_key(key), **facts}
        return await self.ask(
            message, key=asked, **outcomes.outcome_question(operation, key, arguments, deciders, said)
        )

    def _record(
        self, key: str, operation: Operation, facts: dict[str, Any] | None = None, settles: str | None = None
    ) -> None:
        if not self.alive:
            return
        try:
            self._feed_operation(key, operation, facts, settles)
        except CodecError as error:
            done = operation.state == "done"
            failure = outcomes.unstorable_step(error, key, self.node, done=done)
            if not done or operation.effects != "write" or operation.idempotent:
                self.forget(key)
                raise failure from error
            # The write was done, and is not done again: its record says why it has no result.
            lost = msgspec.structs.replace(operation, result=freeze(outcomes.lost_result(failure)))
            self._feed_operation(key, lost, facts, settles)
            outcomes.result_of(lost)

    def wait(self, *, signal: str | None = None, until: int | None = None) -> dict[str, Any]:
        """What a node that waits for a signal or a time (epoch ms) ends with; it is the last thing that the node does.

        Raises:
            Suspended: it waits; what ends the waiting ends the node, with `{by, signal?, payload?, at}` as its `out`.
        """
        self.refuse_when_over()
        run, now = self._run, self.now()
        if signal is None and until is not None and until <= now:
            return timed(now)
        if self._waiters.find(self.frame, "") is None:
            hold_ms = None if until is None else self._waiters.long_enough(until - now)
            interrupt = Interrupt(
                id="",
                kind="timer" if signal is None else "signal",
                run_id="",
                node=self.node,
                frame=self.frame,
                key="",
                path=self.path,
                payload=freeze({} if signal is None else {"signal": signal}),
                hold_ms=hold_ms,
                expires_at=until,
                node_run_id=self.node_run_id,
            )
            run.feed(self._tick(NodeAsked, frame=self.frame, interrupt=interrupt))
        raise Suspended

    @must_await(shows=Context.ask)
    async def ask(
        self,
        message: str,
        *,
        kind: str = "ask",
        key: str | None = None,
        schema: Any = None,
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
        """As `Context.ask`; `digest` is what the answer is bound to, by default all that is shown."""
        self.refuse_when_over()
        made: Callable[[Any], Any] = outcomes.as_it_is
        if kind == "ask" and schema is not None:
            from graphflow.graph.typed_state.answers import answer_form

            schema, made = answer_form(schema, self.node, "ask")
        asked = self.keys.use(self.node, "ask", key)
        if digest is None:
            # An answer holds only for what the person saw: another question under this key is an error (E5).
            digest = digest_of([message, thaw(payload), thaw(arguments), thaw(schema)])
        operation = self._recorded(asked, digest)
        if operation is not None:
            return made(operation.result)
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
            path=self.path,
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
        try:
            return made(await self._waiters.wait(interrupt, self))
        except CodecError as error:
            raise outcomes.unstorable(error, f"the payload of question {asked!r} of node {self.node!r}") from error
