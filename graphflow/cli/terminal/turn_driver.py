"""Driving a turn to its end: events to a view, questions to whoever answers them, and on until nothing waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.answer_policy import ANSWERED_ELSEWHERE, Policy
from graphflow.cli.terminal.console import note
from graphflow.errors import AnswerRefused
from graphflow.events import CheckpointCreate, Event

if TYPE_CHECKING:
    from graphflow.graph.core.machine import Interrupt
    from graphflow.runtime.compiled_graph import CompiledGraph
    from graphflow.runtime.result import RunResult

LEFT_OPEN = "left open; `graphflow inbox list` shows what waits"
POLL_S = 0.3
"""How often a thread that another process drives is looked at."""


class RunView(Protocol):
    """What shows a run."""

    def show(self, event: Event) -> None:
        """One event, as it comes."""

    def pause(self) -> None:
        """Leaves the terminal to a question; the next event takes it back."""

    def finish(self, result: RunResult) -> None:
        """The run has ended or waits."""

    def close(self) -> None:
        """Gives the terminal back, whatever happened."""


@dataclass(kw_only=True)
class TurnDriver:
    """One turn on a thread.

    Args:
        graph: what runs.
        thread_id: the thread.
        policy: answers questions, or leaves them open.
        view: shows what happens.
        presets: state to set at the breakpoint before the first node, see `begin`.
        stopped: what is said after Ctrl-C.
    """

    graph: CompiledGraph
    thread_id: str
    policy: Policy
    view: RunView
    presets: Mapping[str, Any] = field(default_factory=dict)
    stopped: str = "thread {thread} is stopped; `graphflow threads resume {thread}` goes on"
    _running: bool = False
    _last: str | None = None
    """This run's newest checkpoint: by the time that it is read, the thread's head may be another run's."""

    async def drive(self, events: AsyncIterator[Event] | None) -> RunResult:
        """Shows the events, answers what is asked, and goes on until the run ends or waits for somebody else.

        Args:
            events: None begins with the questions that the thread waits for already.
        """
        try:
            while True:
                if events is not None:
                    await self._show(events)
                result = await outcome(self.graph, self.thread_id, self._last)
                if result.status != "waiting" or (events := await self._answered(result.interrupts)) is None:
                    break
            self.view.finish(result)
            return result
        except asyncio.CancelledError:  # Ctrl-C
            self.view.close()
            note(self.stopped.format(thread=self.thread_id) if self._running else LEFT_OPEN)
            raise
        finally:
            self.view.close()

    async def _show(self, events: AsyncIterator[Event]) -> None:
        self._running = True
        async with aclosing(events) as stream:  # type: ignore[type-var]  # every stream here is a generator
            async for event in stream:
                if isinstance(event, CheckpointCreate):
                    self._last = event.checkpoint_id
                self.view.show(event)
        self._running = False

    async def _answered(self, interrupts: tuple[Interrupt, ...]) -> AsyncIterator[Event] | None:
        """The events after the answers; None when the thread is left waiting."""
        if self.presets and all(interrupt.kind == "breakpoint" for interrupt in interrupts):
            values, self.presets = self.presets, {}
            return self.graph.stream_answer(
                self.thread_id, {i.id: {"decision": "continue", "update": values} for i in interrupts}
            )
        while True:
            self.view.pause()
            answers = await self.policy.answers(interrupts, self._still_open)
            if answers is None:
                return None
            if answers is ANSWERED_ELSEWHERE:
                note("answered in another place; waiting for that run")
                return await self._elsewhere()
            try:
                return await _begun(self.graph.stream_answer(self.thread_id, answers, by="local"))
            except AnswerRefused as refusal:
                if refusal.code == "answer_invalid" and self.policy.asks_again:
                    note(refusal.message)
                    continue
                if refusal.code in ("answer_stale", "interrupt_not_found"):
                    return await self._elsewhere()
                raise

    async def _still_open(self, interrupts: tuple[Interrupt, ...]) -> bool:
        assert self.graph.checkpointer is not None
        rows = await self.graph.checkpointer.open_interrupts(thread_id=self.thread_id)
        return {interrupt.id for interrupt in interrupts} <= {row.interrupt_id for row in rows}

    async def _elsewhere(self) -> AsyncIterator[Event]:
        """Waits until the process that took the thread gives it back; shows nothing."""
        self._last = None
        assert self.graph.checkpointer is not None
        store = self.graph.checkpointer
        while (row := await store.thread(self.thread_id)) and row.owner:  # noqa: ASYNC110 - another process tells nobody
            await asyncio.sleep(POLL_S)
        return _nothing()


async def _begun(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """The same events; a refusal is raised here, before anything is shown."""
    first = await anext(events, None)

    async def all_of_them() -> AsyncIterator[Event]:
        async with aclosing(events) as rest:  # type: ignore[type-var]  # every stream here is a generator
            if first is not None:
                yield first
            async for event in rest:
                yield event

    return all_of_them()


async def _nothing() -> AsyncIterator[Event]:
    none: tuple[Event, ...] = ()
    for event in none:
        yield event


async def outcome(graph: CompiledGraph, thread_id: str, checkpoint_id: str | None = None) -> RunResult:
    """What a run has come to, read from the store: at its last checkpoint, or at the thread's head."""
    from graphflow.checkpoints.loading import load_thread
    from graphflow.errors import ThreadNotFound
    from graphflow.runtime.result import result_from

    assert graph.checkpointer is not None
    loaded = await load_thread(graph.checkpointer, thread_id, checkpoint_id)
    if loaded is None:
        raise ThreadNotFound(f"no thread {thread_id!r}", threadId=thread_id)
    plan = await graph.documents.pinned(loaded.row.facts.document)
    return result_from(plan, loaded.machine, thread_id, loaded.checkpoint_id)


def begin(
    graph: CompiledGraph, given: Any, thread_id: str, presets: Mapping[str, Any], **options: Any
) -> AsyncIterator[Event]:
    """The events of a new run. With `presets` it stops before its first node, where the turn sets them.

    Raises:
        StateError: the state can't hold the presets; no run has begun then.
    """
    if presets:
        schema = graph.documents.newest().schema
        schema.reduce(schema.initial(), presets)
        options["interrupt_before"] = (graph.documents.checked().document.start,)
    return graph.stream(given, thread_id, **options)


def code_of(result: RunResult, policy: Policy) -> int:
    """The exit code that a result stands for (spec 10)."""
    match result.status:
        case "waiting":
            return exits.WAITING
        case "failed":
            error = result.error or {}
            return exits.exit_code(error.get("code", "internal"), bool(error.get("retryable")))
        case "cancelled":
            return exits.INTERRUPTED
    denied = policy.denied or result.finish_reason == "rejected"
    return exits.WAITING if denied else exits.OK
