"""Node runs of one life: begun, called, and turned into ticks; their start and end are events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphflow.errors import NodeFailed, NodeTimeout, error_dict
from graphflow.events import NodeEnd, NodeError, NodeStart
from graphflow.graph.context import Context, Goto, OutcomeUnknown
from graphflow.graph.machine import Ended, Erred, Frame, Interrupt, NodeSucceeded, Started
from graphflow.graph.machine import NodeFailed as NodeFailedTick
from graphflow.graph.plan import PlanNode
from graphflow.graph.scope import scope_of
from graphflow.graph.state import freeze

if TYPE_CHECKING:
    from graphflow.graph.executor import Executor


class NodeRuns:
    """The node runs that are under way, one at most per frame."""

    def __init__(self, executor: Executor, life: int) -> None:
        self._executor, self._life = executor, life
        self._by_frame: dict[int, Context] = {}
        self._starts: dict[int, Started] = {}
        self._made = 0

    # --- which there are

    def get(self, number: int) -> Context | None:
        return self._by_frame.get(number)

    def numbers(self) -> list[int]:
        """Frames with a node run under way."""
        return list(self._by_frame)

    def partials(self, status: str) -> dict[int, Any]:
        """The messages that were being streamed, by frame (E15)."""
        return {n: ctx.partial(status) for n, ctx in self._by_frame.items() if ctx.partial is not None}

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
        executor = self._executor
        started = self._starts.pop(number, None)
        frame = executor.machine.frames[number]
        node = executor.plan.graphs[frame.graph].nodes[frame.node]
        ctx = self._by_frame.get(number)
        if started is None and ctx is not None and ctx.plan_node is node and ctx.alive:
            # Entered again after an answer: the same node run goes on.
            again = self._by_frame[number] = Context(executor, frame, node, ctx.node_run_id)
            again.started = ctx.started
            return again
        self._made += 1
        ctx = self._by_frame[number] = Context(executor, frame, node, f"{self._life}.{self._made}")
        ctx.started = executor.clock.monotonic()
        executor.emit(
            NodeStart(
                node=node.name,
                node_run_id=ctx.node_run_id,
                step=started.step if started is not None else executor.machine.begun,
                attempt=frame.attempt,
                path=frame.path or None,
            )
        )
        return ctx

    def take_up(self, interrupt: Interrupt) -> None:
        """A node run that asked in an earlier life goes on in this one: it has no second `node.start`."""
        executor, number = self._executor, interrupt.frame
        frame = executor.machine.frames.get(number)
        if not interrupt.node_run_id or number in self._by_frame or frame is None:
            return
        node = executor.plan.graphs[frame.graph].nodes.get(interrupt.node)
        if node is not None:
            ctx = self._by_frame[number] = Context(executor, frame, node, interrupt.node_run_id)
            ctx.started = executor.clock.monotonic()

    def end(self, command: Ended) -> None:
        ctx = self._by_frame.pop(command.frame, None)
        if ctx is None:
            return
        ctx.alive = False
        executor = self._executor
        executor.emit(
            NodeEnd(
                node=command.node,
                node_run_id=ctx.node_run_id,
                duration_ms=int((executor.clock.monotonic() - ctx.started) * 1000),
                writes=list(command.writes) or None,
                usage=command.usage,
            )
        )

    def err(self, command: Erred) -> None:
        ctx = self.drop(command.frame)
        if ctx is not None:
            self._executor.emit(
                NodeError(
                    node=command.node, node_run_id=ctx.node_run_id, error=command.error, will_retry=command.will_retry
                )
            )

    def drop(self, number: int) -> Context | None:
        """Ends a node run without a word: its blocks are closed, and what it still does has no effect."""
        self._starts.pop(number, None)
        ctx = self._by_frame.pop(number, None)
        if ctx is not None:
            ctx.close_blocks()
            ctx.alive = False
        return ctx

    # --- running

    async def call(self, ctx: Context, frame: Frame, node: PlanNode) -> Any:
        """What the node's function gives, within its time.

        Raises:
            NodeTimeout: it took longer; what it gives later counts for nothing.
        """
        assert node.run is not None
        if node.returns_updates:
            given: Any = frame.state
        elif node.arguments is None:
            given = {}
        else:
            executor = self._executor
            given = node.arguments.evaluate(scope_of(executor.plan.graphs[frame.graph], executor.machine, frame))
        if node.timeout_s is None:
            return await node.run(given, ctx)
        try:
            async with asyncio.timeout(node.timeout_s) as limit:
                ctx.limit = limit
                out = await node.run(given, ctx)
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
            if out is not None and not isinstance(out, Mapping):
                raise NodeFailed(
                    f"node {node.name!r} returned {type(out).__name__}; return a mapping of state updates, nothing, or Goto"
                )
            updates, out = out, None
        executor = self._executor
        return NodeSucceeded(
            id=executor.ids.new_id() if executor.journal is not None else "",  # only a record needs one
            at=executor.clock.now_ms(),
            frame=ctx.frame,
            out=out,
            updates=updates,
            goto=goto,
            usage=ctx.usage,
            finish=ctx.finish_reason,
        )

    def failed(self, ctx: Context, error: BaseException) -> NodeFailedTick:
        """The tick of a node that raised."""
        executor = self._executor
        status = "timeout" if isinstance(error, NodeTimeout) else "error"
        return NodeFailedTick(
            id=executor.ids.new_id(),
            at=executor.clock.now_ms(),
            frame=ctx.frame,
            error=error_dict(error, ctx.node),
            jitter=executor.ids.random(),
            partial=ctx.partial(status) if ctx.partial is not None else None,
            usage=ctx.usage,
            final=isinstance(error, OutcomeUnknown),
        )

    def question(self, ctx: Context, frame: Frame, node: PlanNode) -> Interrupt:
        """What an `ask` node asks; its id and time come with the tick that opens it."""
        executor, question = self._executor, node.question
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


def _timed_out(node: PlanNode) -> NodeTimeout:
    return NodeTimeout(
        f"node {node.name!r} took longer than its timeoutMs of {int((node.timeout_s or 0) * 1000)}; raise it, or route "
        'the error: {"on": ["timeout"], "to": …}'
    )
