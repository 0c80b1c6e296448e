"""Node runs of one epoch: begun, called, and turned into ticks; their start and end are events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from graphflow.errors import NodeFailed, NodeTimeout, error_dict
from graphflow.events import NodeEnd, NodeError, NodeStart
from graphflow.graph.core.budget import shown_usage
from graphflow.graph.core.commands import Ended, Erred, Started
from graphflow.graph.core.immutable import freeze
from graphflow.graph.core.machine import Frame, Interrupt
from graphflow.graph.core.plan import PlanNode
from graphflow.graph.core.route_trace import passing_refs, seen
from graphflow.graph.core.scope import scope_of
from graphflow.graph.core.ticks import NodeErrored, NodeSucceeded
from graphflow.graph.engine.answer_waiters import AnswerWaiters
from graphflow.graph.engine.context import Goto
from graphflow.graph.engine.node_run import NodeRun
from graphflow.graph.engine.run import Run
from graphflow.graph.engine.suspension import OutcomeUnknown, is_suspension


class NodeRuns:
    """The node runs that are under way, one at most per frame."""

    def __init__(self, run: Run, waiters: AnswerWaiters) -> None:
        self._run, self._waiters = run, waiters
        self._by_frame: dict[int, NodeRun] = {}
        self._starts: dict[int, Started] = {}
        self._made = 0
        self._refs: dict[int, tuple[tuple[str, ...], ...]] = {}
        """Id of a plan node → what its conditions read of its output; found once per node."""

    # --- which there are

    def get(self, number: int) -> NodeRun | None:
        return self._by_frame.get(number)

    def numbers(self) -> list[int]:
        """Frames with a node run under way."""
        return list(self._by_frame)

    def forget(self) -> None:
        """No node run is under way any more."""
        for ctx in self._by_frame.values():
            ctx.alive = False
        self._by_frame.clear()

    def partials(self, status: str) -> dict[int, Any]:
        """The messages that were being streamed, by frame (E15)."""
        return {n: ctx.partial(status) for n, ctx in self._by_frame.items() if ctx.partial is not None}

    def _settle(self, ctx: NodeRun) -> None:
        """Takes an ended node run off the uncounted usage: the tick that ended it has counted what counts."""
        if ctx.usage and (usage := ctx.uncounted):
            self._run.note_used({name: -value for name, value in usage.items()})
            self._run.set_usage(ctx.frame, None)

    def close_blocks(self) -> None:
        """Every block is closed before a pause or a terminal (spec 3.3)."""
        for ctx in self._by_frame.values():
            ctx.close_blocks()

    # --- beginning and ending

    def expect(self, started: Started) -> None:
        """The next start of this frame's node is a new node run."""
        self._starts[started.frame] = started

    def start(self, number: int) -> NodeRun:
        """The node run of a frame: a new one, or the one that goes on after an answer."""
        run = self._run
        started = self._starts.pop(number, None)
        frame = run.machine.frames[number]
        node = run.plan.graphs[frame.graph].nodes[frame.node]
        ctx = self._by_frame.get(number)
        if started is None and ctx is not None and ctx.plan_node is node and ctx.alive:
            # Entered again after an answer: the same node run goes on.
            again = self._by_frame[number] = NodeRun(run, self._waiters, frame, node, ctx.node_run_id)
            again.started = ctx.started
            # The code runs from its beginning, so keys and counts start again; only what was used is kept.
            again.continue_from(ctx)
            ctx.alive = False  # what the code left behind would do the same work a second time
            return again
        if started is not None and started.node_run_id:
            node_run_id = started.node_run_id
        else:
            self._made += 1
            # The epoch makes it unique: the count starts again after a crash (E1).
            node_run_id = f"{run.epoch}.{self._made}"
        ctx = self._by_frame[number] = NodeRun(run, self._waiters, frame, node, node_run_id)
        ctx.started = run.clock.monotonic()
        if started is None:
            begun = run.machine.begun
            started = Started(number, node.name, frame.visit, frame.attempt, begun, frame.path)
        self.announce(started, node_run_id)
        return ctx

    def announce(self, started: Started, node_run_id: str = "") -> None:
        """Sends `node.start`; before it, changes of the run's plan that no record has sent yet."""
        events = self._run.events
        if events.plan is not None:
            events.emit_plan(self._run.machine)
        events.emit(
            NodeStart(
                node=started.node,
                node_run_id=node_run_id or started.node_run_id,
                step=started.step,
                attempt=started.attempt,
                path=started.path or None,
            )
        )

    def adopt(self, interrupt: Interrupt) -> None:
        """Takes over a node run that asked in an earlier epoch; it gets no second `node.start`."""
        run, number = self._run, interrupt.frame
        frame = run.machine.frames.get(number)
        if not interrupt.node_run_id or number in self._by_frame or frame is None:
            return
        node = run.plan.graphs[frame.graph].nodes.get(interrupt.node)
        if node is not None:
            ctx = self._by_frame[number] = NodeRun(run, self._waiters, frame, node, interrupt.node_run_id)
            ctx.started = run.clock.monotonic()

    def adopt_opened(self) -> list[int]:
        """Takes over the open nodes of an earlier epoch under their own ids; returns their frames."""
        run, taken = self._run, list[int]()
        for number, frame in run.machine.frames.items():
            if frame.opened is not None and number not in self._by_frame:
                node = run.plan.graphs[frame.graph].nodes[frame.node]
                ctx = self._by_frame[number] = NodeRun(run, self._waiters, frame, node, frame.opened.node_run_id)
                ctx.started = run.clock.monotonic()
                taken.append(number)
        return taken

    def end(self, command: Ended) -> None:
        ctx = self._by_frame.pop(command.frame, None)
        if ctx is None:
            return
        ctx.alive = False  # tasks that the node has left behind get `NodeRunOver` from now on
        self._settle(ctx)
        duration = int((self._run.clock.monotonic() - ctx.started) * 1000)
        self._say_over(command, ctx.node_run_id, duration, ctx.usage)

    def err(self, command: Erred) -> None:
        ctx = self.drop(command.frame)
        if ctx is not None:
            self._say_over(command, ctx.node_run_id)

    def pass_through(self, started: Started, over: Ended | Erred) -> None:
        """Sends start and end of a node that ended as soon as it was opened (a `map` over an empty list)."""
        self.announce(started)
        self._say_over(over, started.node_run_id)

    def _say_over(
        self, over: Ended | Erred, node_run_id: str, duration_ms: int = 0, used: Mapping[str, Any] | None = None
    ) -> None:
        event: NodeEnd | NodeError
        if isinstance(over, Ended):
            writes = list(over.writes) or None
            usage = shown_usage(used) if used else None
            event = NodeEnd(
                node=over.node, node_run_id=node_run_id, duration_ms=duration_ms, writes=writes, usage=usage
            )
        else:
            event = NodeError(node=over.node, node_run_id=node_run_id, error=over.error, will_retry=over.will_retry)
        self._run.events.emit(event)

    def cancel(self, number: int, *, tells: bool) -> None:
        """Ends a node run that is no longer needed; `tells` also sends its `node.error`."""
        ctx = self.drop(number)
        if ctx is not None and tells:
            failure = NodeFailed(f"node {ctx.node!r} was cancelled: what it would give is not needed", code="cancelled")
            error = failure.as_dict(ctx.node)
            self._run.events.emit(NodeError(node=ctx.node, node_run_id=ctx.node_run_id, error=error, will_retry=False))

    def drop(self, number: int) -> NodeRun | None:
        """Ends a node run without an end event: its blocks are closed, and what it still does has no effect."""
        self._starts.pop(number, None)
        ctx = self._by_frame.pop(number, None)
        if ctx is not None:
            ctx.close_blocks()
            ctx.alive = False
            self._settle(ctx)
        return ctx

    # --- running

    async def call(self, ctx: NodeRun, frame: Frame, node: PlanNode) -> Any:
        """The result of the node's function, within its time limit.

        Raises:
            NodeTimeout: it took longer; a later result is ignored.
        """
        assert node.run is not None
        lease = self._run.lease
        # A process that stood still may have lost the thread: two epochs must not run one node at the same time (E2).
        if lease is not None and lease.is_over(self._run.machine.last_at):
            await lease.confirm()  # the process may have been suspended, and another may have taken the thread
        if node.returns_updates:
            given: Any = frame.state
        elif node.arguments is None:
            given = {}
        else:
            given = node.arguments.evaluate(scope_of(self._run.plan.graphs[frame.graph], self._run.machine, frame))
        run = node.run if node.effects != "write" or node.kind in _RECORDING else partial(_write, node)
        if node.timeout_s is None:
            return await run(given, ctx)
        limit = ctx.limit = asyncio.timeout(node.timeout_s)
        try:
            async with limit:
                out = await run(given, ctx)
        except (Exception, asyncio.CancelledError, BaseExceptionGroup) as error:
            # A `TimeoutError` of the node's own is an ordinary failure; whatever it raises once its time is up is not.
            if not limit.expired() or is_suspension(error):
                raise
            raise _timed_out(node) from None
        if limit.expired():  # the node swallowed the cancellation; its result is still too late
            raise _timed_out(node)
        return out

    def succeeded(self, ctx: NodeRun, node: PlanNode, out: Any) -> NodeSucceeded:
        """The tick of a node that gave `out`.

        Raises:
            NodeFailed: a `node:` function returned something that is not an update, or did not await what it called.
        """
        if (keys := ctx.operation_keys) is not None:
            keys.refuse_unawaited(node.name)
        updates, goto = None, None
        if node.returns_updates:
            if type(out) is Goto:
                goto, out = out.node, out.update
            if out is not None and type(out) is not dict and not isinstance(out, Mapping):
                raise NodeFailed(
                    f"node {node.name!r} returned {type(out).__name__}; return a mapping of state updates, nothing, or Goto"
                )
            updates, out = out, None
        run = self._run
        return NodeSucceeded(
            id=run.ids.new_id() if run.journal is not None else "",  # only a record needs one
            at=run.clock.now_ms(),
            frame=ctx.frame,
            out=out,
            updates=updates,
            goto=goto,
            usage=None if ctx.usage is None else ctx.uncounted,
            finish=ctx.finish_reason,
            facts=self._facts(ctx, node, out),
        )

    def _facts(self, ctx: NodeRun, node: PlanNode, out: Any) -> dict[str, Any] | None:
        """The facts for the record: of the node's operations, and the values that its conditions read."""
        if not node.routes or node.routes[0].when is None:
            return ctx.facts
        refs = self._refs.get(id(node))
        if refs is None:
            refs = self._refs[id(node)] = passing_refs(node)
        if refs and (found := seen(refs, {"out": out})):
            ctx.keep_facts(seen=found)
        return ctx.facts

    def failed(self, ctx: NodeRun, error: BaseException) -> NodeErrored:
        """The tick of a node that raised, with its trace if it was Python code of a user; that is logged too."""
        run = self._run
        facts = {"model": ctx.facts["model"]} if ctx.facts and "model" in ctx.facts else {}
        # Loaded when something has failed: most runs need none of it.
        from graphflow.graph.engine.failure_trace import log_failure, trace_of

        if ctx.alive and (trace := trace_of(error)):
            facts["trace"] = trace
            log_failure(error, ctx.node, run.thread_id, run.machine.run_id)
        status = "timeout" if isinstance(error, NodeTimeout) else "error"
        return NodeErrored(
            id=run.ids.new_id(),
            at=run.clock.now_ms(),
            frame=ctx.frame,
            error=error_dict(error, ctx.node),
            jitter=run.ids.random(),
            partial=ctx.partial(status) if ctx.partial is not None else None,
            usage=ctx.uncounted,
            final=isinstance(error, OutcomeUnknown),
            facts=facts or None,
        )

    def failed_open(self, number: int, node: PlanNode) -> NodeErrored:
        """The tick of an open node that took too long."""
        run = self._run
        return NodeErrored(
            id=run.ids.new_id(),
            at=run.clock.now_ms(),
            frame=number,
            error=error_dict(_timed_out(node), node.name),
            jitter=run.ids.random(),
        )

    def question(self, ctx: NodeRun, frame: Frame, node: PlanNode) -> Interrupt:
        """What an `ask` node asks; its id and time come with the tick that opens it."""
        run, question = self._run, node.question
        assert question is not None
        scope = scope_of(run.plan.graphs[frame.graph], run.machine, frame)
        payload = {"message": question.message.evaluate(scope)}
        if question.show is not None:
            payload["show"] = question.show.evaluate(scope)
        expires = None if question.expires_ms is None else run.clock.now_ms() + question.expires_ms
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
"""Kinds that record their own operations; wrapping them in one would record the work twice."""


async def _write(node: PlanNode, given: Any, ctx: NodeRun) -> Any:
    """Runs a node with `effects: write` as one recorded operation; the node's own commit is its record (E6).

    After a crash during the write a person is asked; `result` is then the node's output, or its updates.
    """
    assert node.run is not None
    run, came = node.run, list[Any]()

    async def act() -> Any:
        out = await run(given, ctx)
        came.append(out)
        # The result is recorded, and `Goto` is not encodable: it travels as a mapping.
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
        # The node ran in this process: its own object, not the frozen record of it.
        return came[0]
    return Goto(out[GOTO], out["update"]) if isinstance(out, Mapping) and GOTO in out else out


NODE_KEY = ""
"""Key of the operation that stands for a whole node; `ctx.idempotency_key()` without a key refers to it."""
GOTO = "@goto"


def _timed_out(node: PlanNode) -> NodeTimeout:
    return NodeTimeout(
        f"node {node.name!r} took longer than its timeoutMs of {int((node.timeout_s or 0) * 1000)}; raise it, or route "
        'the error: {"on": ["timeout"], "to": …}'
    )
