"""Node runs of one life: begun, called, and turned into ticks; their start and end are events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from graphflow.errors import NodeFailed, NodeTimeout, error_dict
from graphflow.events import NodeEnd, NodeError, NodeStart
from graphflow.graph.core.budget import add_usage, told_usage
from graphflow.graph.core.commands import Ended, Erred, Started
from graphflow.graph.core.immutable import freeze
from graphflow.graph.core.machine import Frame, Interrupt
from graphflow.graph.core.plan import PlanNode
from graphflow.graph.core.route_trace import passing_refs, seen
from graphflow.graph.core.scope import scope_of
from graphflow.graph.core.ticks import AnyTick, NodeErrored, NodeSucceeded
from graphflow.graph.engine.context import Context, Goto, OutcomeUnknown

if TYPE_CHECKING:
    from graphflow.graph.engine.executor import Executor

_ENDS_ITSELF = (NodeSucceeded, NodeErrored)


class _Unfinished(Mapping[int, dict[str, Any]]):
    """Frame → what its node run has used and no record has told, looked up when it is asked for: there may be thousands.

    Args:
        own: the frame whose node run ends by itself, which says itself what it has used.
    """

    __slots__ = ("_by_frame", "_own")

    def __init__(self, by_frame: Mapping[int, Context], own: int | None) -> None:
        self._by_frame, self._own = by_frame, own

    def __getitem__(self, number: int) -> dict[str, Any]:
        usage = None if number == self._own else self._by_frame[number].uncounted
        if not usage:
            raise KeyError(number)
        return usage

    def __iter__(self) -> Iterator[int]:
        return (number for number in self._by_frame if number in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class NodeRuns:
    """The node runs that are under way, one at most per frame."""

    def __init__(self, executor: Executor, life: int) -> None:
        self.executor, self._life = executor, life
        self._by_frame: dict[int, Context] = {}
        self._starts: dict[int, Started] = {}
        self._made = 0
        self.used: dict[str, Any] = {}
        """What the node runs under way have used and no record has told the machine."""
        self._refs: dict[int, tuple[tuple[str, ...], ...]] = {}
        """Node (by identity) → what its conditions read of its output."""

    # --- which there are

    def get(self, number: int) -> Context | None:
        return self._by_frame.get(number)

    def numbers(self) -> list[int]:
        """Frames with a node run under way."""
        return list(self._by_frame)

    def forget(self) -> None:
        """No node run is under way any more."""
        self._by_frame.clear()

    def partials(self, status: str) -> dict[int, Any]:
        """The messages that were being streamed, by frame (E15)."""
        return {n: ctx.partial(status) for n, ctx in self._by_frame.items() if ctx.partial is not None}

    def usage_with(self, counted: Mapping[str, Any]) -> dict[str, Any]:
        """Usage with that of all node runs under way: side by side they can't pass a limit together."""
        return add_usage(counted, self.used)

    def note_usage(self, figures: Mapping[str, Any]) -> None:
        """Counts what a node run has just used, or is about to."""
        self.used = add_usage(self.used, figures)

    def usages(self) -> dict[int, dict[str, Any]]:
        """What the node runs under way have used and no record has told the machine, by frame."""
        return {number: usage for number, ctx in self._by_frame.items() if (usage := ctx.uncounted)}

    def unfinished(self, tick: AnyTick) -> Mapping[int, dict[str, Any]] | None:
        """What the node runs have used that this tick may end before they have ended by themselves; None for none."""
        own = tick.frame if isinstance(tick, _ENDS_ITSELF) else None
        return None if own is not None and len(self._by_frame) < 2 else _Unfinished(self._by_frame, own)

    def _settle(self, ctx: Context) -> None:
        """The node run is over: what it used has been counted with its end, or is not counted."""
        if ctx.usage and (usage := ctx.uncounted):
            self.used = add_usage(self.used, {name: -value for name, value in usage.items()})

    def close_blocks(self) -> None:
        """Every block is closed before a pause or a terminal (spec 3.3)."""
        for ctx in self._by_frame.values():
            ctx.close_blocks()

    # --- beginning and ending

    def expect(self, started: Started) -> None:
        """The next start of this frame's node is a new node run."""
        self._starts[started.frame] = started

    def start(self, number: int) -> Context:
        """The node run of a frame: begun now, unless the frame's node is being gone on with."""
        executor = self.executor
        started = self._starts.pop(number, None)
        frame = executor.machine.frames[number]
        node = executor.plan.graphs[frame.graph].nodes[frame.node]
        ctx = self._by_frame.get(number)
        if started is None and ctx is not None and ctx.plan_node is node and ctx.alive:
            # Entered again after an answer: the same node run goes on.
            again = self._by_frame[number] = Context(executor, frame, node, ctx.node_run_id)
            again.continue_from(ctx)
            return again
        if started is not None and started.node_run_id:
            node_run_id = started.node_run_id
        else:
            self._made += 1
            node_run_id = f"{self._life}.{self._made}"
        ctx = self._by_frame[number] = Context(executor, frame, node, node_run_id)
        ctx.started = executor.clock.monotonic()
        if started is None:
            begun = executor.machine.begun
            started = Started(number, node.name, frame.visit, frame.attempt, begun, frame.path)
        self.announce(started, node_run_id)
        return ctx

    def announce(self, started: Started, node_run_id: str = "") -> None:
        """Says that a node begins; before it, what became of the run's plan where no record has told of it."""
        if (tasks := self.executor.events.tasks) is not None:
            tasks.tell()
        self.executor.emit(
            NodeStart(
                node=started.node,
                node_run_id=node_run_id or started.node_run_id,
                step=started.step,
                attempt=started.attempt,
                path=started.path or None,
            )
        )

    def adopt(self, interrupt: Interrupt) -> None:
        """A node run that asked in an earlier life goes on in this one: it has no second `node.start`."""
        executor, number = self.executor, interrupt.frame
        frame = executor.machine.frames.get(number)
        if not interrupt.node_run_id or number in self._by_frame or frame is None:
            return
        node = executor.plan.graphs[frame.graph].nodes.get(interrupt.node)
        if node is not None:
            ctx = self._by_frame[number] = Context(executor, frame, node, interrupt.node_run_id)
            ctx.started = executor.clock.monotonic()

    def adopt_opened(self) -> list[int]:
        """The open nodes of an earlier life go on in this one, under their own ids; their frames."""
        executor, taken = self.executor, list[int]()
        for number, frame in executor.machine.frames.items():
            if frame.opened is not None and number not in self._by_frame:
                node = executor.plan.graphs[frame.graph].nodes[frame.node]
                ctx = self._by_frame[number] = Context(executor, frame, node, frame.opened.node_run_id)
                ctx.started = executor.clock.monotonic()
                taken.append(number)
        return taken

    def end(self, command: Ended) -> None:
        ctx = self._by_frame.pop(command.frame, None)
        if ctx is None:
            return
        ctx.alive = False
        self._settle(ctx)
        duration = int((self.executor.clock.monotonic() - ctx.started) * 1000)
        self._say_over(command, ctx.node_run_id, duration, ctx.usage)

    def err(self, command: Erred) -> None:
        ctx = self.drop(command.frame)
        if ctx is not None:
            self._say_over(command, ctx.node_run_id)

    def pass_through(self, started: Started, over: Ended | Erred) -> None:
        """A node that was over as soon as it was opened (a `map` of nothing)."""
        self.announce(started)
        self._say_over(over, started.node_run_id)

    def _say_over(
        self, over: Ended | Erred, node_run_id: str, duration_ms: int = 0, used: Mapping[str, Any] | None = None
    ) -> None:
        event: NodeEnd | NodeError
        if isinstance(over, Ended):
            writes = list(over.writes) or None
            usage = told_usage(used) if used else None
            event = NodeEnd(
                node=over.node, node_run_id=node_run_id, duration_ms=duration_ms, writes=writes, usage=usage
            )
        else:
            event = NodeError(node=over.node, node_run_id=node_run_id, error=over.error, will_retry=over.will_retry)
        self.executor.emit(event)

    def cancel(self, number: int, *, tells: bool) -> None:
        """Ends a node run that is wanted no longer; `tells` says so to the run's readers."""
        ctx = self.drop(number)
        if ctx is not None and tells:
            failure = NodeFailed(f"node {ctx.node!r} was cancelled: what it would give is not needed", code="cancelled")
            error = failure.as_dict(ctx.node)
            self.executor.emit(NodeError(node=ctx.node, node_run_id=ctx.node_run_id, error=error, will_retry=False))

    def drop(self, number: int) -> Context | None:
        """Ends a node run without a word: its blocks are closed, and what it still does has no effect."""
        self._starts.pop(number, None)
        ctx = self._by_frame.pop(number, None)
        if ctx is not None:
            ctx.close_blocks()
            ctx.alive = False
            self._settle(ctx)
        return ctx

    # --- running

    async def call(self, ctx: Context, frame: Frame, node: PlanNode) -> Any:
        """What the node's function gives, within its time.

        Raises:
            NodeTimeout: it took longer; what it gives later counts for nothing.
        """
        assert node.run is not None
        lease = self.executor.lease
        if lease is not None and self.executor.machine.last_at > lease.until:
            await lease.confirm()  # this process stood still, and another may have taken the thread
        if node.returns_updates:
            given: Any = frame.state
        elif node.arguments is None:
            given = {}
        else:
            executor = self.executor
            given = node.arguments.evaluate(scope_of(executor.plan.graphs[frame.graph], executor.machine, frame))
        run = node.run if node.effects != "write" or node.kind in _RECORDING else partial(_write, node)
        if node.timeout_s is None:
            return await run(given, ctx)
        try:
            async with asyncio.timeout(node.timeout_s) as limit:
                ctx.limit = limit
                out = await run(given, ctx)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _timed_out(node) from None
        if limit.expired():  # the node swallowed the cancellation; its result comes too late all the same
            raise _timed_out(node)
        return out

    def succeeded(self, ctx: Context, node: PlanNode, out: Any) -> NodeSucceeded:
        """The tick of a node that gave `out`.

        Raises:
            NodeFailed: a `node:` function returned something that is no update.
        """
        updates, goto = None, None
        if node.returns_updates:
            if type(out) is Goto:
                goto, out = out.node, out.update
            if out is not None and type(out) is not dict and not isinstance(out, Mapping):
                raise NodeFailed(
                    f"node {node.name!r} returned {type(out).__name__}; return a mapping of state updates, nothing, or Goto"
                )
            updates, out = out, None
        executor = self.executor
        return NodeSucceeded(
            id=executor.ids.new_id() if executor.journal is not None else "",  # only a record needs one
            at=executor.clock.now_ms(),
            frame=ctx.frame,
            out=out,
            updates=updates,
            goto=goto,
            usage=None if ctx.usage is None else ctx.uncounted,
            finish=ctx.finish_reason,
            facts=self._facts(ctx, node, out),
        )

    def _facts(self, ctx: Context, node: PlanNode, out: Any) -> dict[str, Any] | None:
        """What the record keeps beside the state: of the node's operations, and of what its conditions see."""
        if not node.routes or node.routes[0].when is None:
            return ctx.facts
        refs = self._refs.get(id(node))
        if refs is None:
            refs = self._refs[id(node)] = passing_refs(node)
        if refs and (found := seen(refs, {"out": out})):
            ctx.keep_facts(seen=found)
        return ctx.facts

    def failed(self, ctx: Context, error: BaseException) -> NodeErrored:
        """The tick of a node that raised."""
        executor = self.executor
        status = "timeout" if isinstance(error, NodeTimeout) else "error"
        return NodeErrored(
            id=executor.ids.new_id(),
            at=executor.clock.now_ms(),
            frame=ctx.frame,
            error=error_dict(error, ctx.node),
            jitter=executor.ids.random(),
            partial=ctx.partial(status) if ctx.partial is not None else None,
            usage=ctx.uncounted,
            final=isinstance(error, OutcomeUnknown),
            facts={"model": ctx.facts["model"]} if ctx.facts and "model" in ctx.facts else None,
        )

    def failed_open(self, number: int, node: PlanNode) -> NodeErrored:
        """The tick of an open node that took too long."""
        executor = self.executor
        return NodeErrored(
            id=executor.ids.new_id(),
            at=executor.clock.now_ms(),
            frame=number,
            error=error_dict(_timed_out(node), node.name),
            jitter=executor.ids.random(),
        )

    def question(self, ctx: Context, frame: Frame, node: PlanNode) -> Interrupt:
        """What an `ask` node asks; its id and time come with the tick that opens it."""
        executor, question = self.executor, node.question
        assert question is not None
        scope = scope_of(executor.plan.graphs[frame.graph], executor.machine, frame)
        payload = {"message": question.message.evaluate(scope)}
        if question.show is not None:
            payload["show"] = question.show.evaluate(scope)
        expires = None if question.expires_ms is None else executor.clock.now_ms() + question.expires_ms
        return Interrupt(
            id="",
            kind="ask",
            run_id="",
            node=node.name,
            frame=frame.number,
            key="",
            schema=freeze(question.schema),
            payload=freeze(payload),
            path=frame.path,
            owner=question.owner,
            role=question.role,
            hold_ms=question.hold_ms,
            expires_at=expires,
            on_expire=question.on_expire,
            node_run_id=ctx.node_run_id,
        )


_RECORDING = frozenset({"tool", "tools", "model"})
"""Kinds that record what they do themselves."""


async def _write(node: PlanNode, given: Any, ctx: Context) -> Any:
    """Runs a node that says itself that it writes: as one recorded operation, whose record is the node's own (E6).

    After a crash in its midst a person is asked; `result` is then its output, or its updates.
    """
    assert node.run is not None
    run, came = node.run, list[Any]()

    async def act() -> Any:
        out = await run(given, ctx)
        came.append(out)
        return {GOTO: out.node, "update": out.update} if type(out) is Goto else out

    out = await ctx.step(
        NODE_KEY,
        act,
        idempotent=node.idempotent,
        arguments=None if node.returns_updates else given,
        kind="node",
        ends_node=True,
    )
    if came:
        return came[0]
    return Goto(out[GOTO], out["update"]) if isinstance(out, Mapping) and GOTO in out else out


NODE_KEY = ""
"""Key of the operation that a whole node is; `ctx.idempotency_key()` is its."""
GOTO = "@goto"


def _timed_out(node: PlanNode) -> NodeTimeout:
    return NodeTimeout(
        f"node {node.name!r} took longer than its timeoutMs of {int((node.timeout_s or 0) * 1000)}; raise it, or route "
        'the error: {"on": ["timeout"], "to": …}'
    )
