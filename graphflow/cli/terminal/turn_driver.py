"""Drives a turn to its end: events go to a view, questions to the answer policy, until nothing waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphflow.capabilities import person_of
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.answer_policy import ANSWERED_ELSEWHERE, Policy
from graphflow.cli.terminal.console import note, shown_live
from graphflow.cli.terminal.plain_view import JsonView, LinesView, TextView, TurnView
from graphflow.errors import AnswerRefused
from graphflow.events import CheckpointCreate, Event
from graphflow.faces import spoken
from graphflow.runtime.approvers import check_approver, rule_of

if TYPE_CHECKING:
    from graphflow.checkpoints.loading import Loaded
    from graphflow.graph.core.machine import Interrupt
    from graphflow.runtime.compiled_graph import CompiledGraph
    from graphflow.runtime.result import RunResult
    from graphflow.service.application import Application

LEFT_OPEN = "left open; `graphflow inbox list` shows open questions"
POLL_S = 0.3
"""Interval for polling a thread that another process drives."""


@dataclass(kw_only=True)
class TurnDriver:
    """One turn on a thread.

    Args:
        graph: what runs.
        thread_id: the thread.
        policy: answers questions, or leaves them open.
        view: shows what happens.
        presets: state values to set at the breakpoint before the first node, see `begin`.
        stopped: the message after Ctrl-C.
    """

    graph: CompiledGraph
    thread_id: str
    policy: Policy
    view: TurnView
    presets: Mapping[str, Any] = field(default_factory=dict)
    stopped: str = "thread {thread} is stopped; `graphflow threads resume {thread}` continues"
    _running: bool = False
    _last: str | None = None
    """This run's newest checkpoint: by the time that it is read, the thread's head may be another run's."""

    async def drive(self, events: AsyncIterator[Event] | None) -> RunResult:
        """Shows the events, answers what is asked, and goes on until the run ends or waits for somebody else.

        Args:
            events: None begins with the questions that the thread waits for already.
        """
        await self.view.begin(self.graph.thread(self.thread_id))
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
            # While a run is driven, Ctrl-C has stopped it; at a question it only leaves the question open.
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
            # Only once: a later breakpoint of the same run is the person's.
            values, self.presets = self.presets, {}
            return self.graph.stream_answer(
                self.thread_id,
                {i.id: {"decision": "continue", "update": values} for i in interrupts},
                by=self.policy.by,
            )
        while True:
            self.view.pause()
            answers = await self.policy.answers(await self._decidable(interrupts), self._still_open)
            if answers is None:
                return None
            if answers is ANSWERED_ELSEWHERE:
                note("answered by another process; waiting for its run")
                return await self._elsewhere()
            try:
                return await _begun(self.graph.stream_answer(self.thread_id, answers, by=self.policy.by))
            except AnswerRefused as refusal:
                if refusal.code == "answer_invalid" and self.policy.asks_again:
                    note(spoken(refusal.message, "cli"))
                    continue
                # Another process answered between the prompt and the commit: its run is the one to wait for.
                if refusal.code in ("answer_stale", "interrupt_not_found"):
                    return await self._elsewhere()
                raise

    async def _decidable(self, interrupts: tuple[Interrupt, ...]) -> tuple[Interrupt, ...]:
        """Those that this person may decide about; the others are said to need another one."""
        if not any(map(rule_of, interrupts)):
            return interrupts
        machine = (await _loaded(self.graph, self.thread_id)).machine
        found = []
        for interrupt in interrupts:
            try:
                check_approver(machine, interrupt, person_of(self.policy.by))
                found.append(interrupt)
            except AnswerRefused as refusal:
                if self.policy.asks_again:
                    note(refusal.message)
                # It was meant for a question that is not asked.
                self.policy.typed = None
        return tuple(found)

    async def _still_open(self, interrupts: tuple[Interrupt, ...]) -> bool:
        assert self.graph.host.store is not None
        rows = await self.graph.host.store.open_interrupts(thread_id=self.thread_id)
        return {interrupt.id for interrupt in interrupts} <= {row.interrupt_id for row in rows}

    async def _elsewhere(self) -> AsyncIterator[Event]:
        """Waits until the process that holds the thread releases it; shows nothing."""
        # The other process makes its own checkpoints: the result is the one at the head.
        self._last = None
        assert self.graph.host.store is not None
        store = self.graph.host.store
        while (row := await store.thread(self.thread_id)) and row.owner:  # noqa: ASYNC110 - another process sends no signal
            await asyncio.sleep(POLL_S)
        return no_events()


async def _begun(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """The same events; a refused answer raises here, before anything is shown."""
    # A stream starts when it is first read, so a refusal would otherwise show up after the view has taken the
    # terminal.
    first = await anext(events, None)

    async def all_of_them() -> AsyncIterator[Event]:
        async with aclosing(events) as rest:  # type: ignore[type-var]  # every stream here is a generator
            if first is not None:
                yield first
            async for event in rest:
                yield event

    return all_of_them()


async def no_events() -> AsyncIterator[Event]:
    """A turn in which nothing runs: it begins with what the thread asks."""
    none: tuple[Event, ...] = ()
    for event in none:
        yield event


async def outcome(graph: CompiledGraph, thread_id: str, checkpoint_id: str | None = None) -> RunResult:
    """A run's result, read from the store at its last checkpoint or at the thread's head."""
    from graphflow.runtime.result import result_from

    loaded = await _loaded(graph, thread_id, checkpoint_id)
    plan = await graph.host.documents.pinned(loaded.row.facts.document)
    return result_from(plan, loaded.machine, thread_id, loaded.checkpoint_id)


async def _loaded(graph: CompiledGraph, thread_id: str, checkpoint_id: str | None = None) -> Loaded:
    from graphflow.checkpoints.errors import unknown_thread
    from graphflow.checkpoints.loading import load_thread

    assert graph.host.store is not None
    loaded = await load_thread(graph.host.store, thread_id, checkpoint_id)
    if loaded is None:
        raise unknown_thread(thread_id)
    return loaded


def begin(
    graph: CompiledGraph, given: Any, thread_id: str, presets: Mapping[str, Any], **options: Any
) -> AsyncIterator[Event]:
    """The events of a new run. With `presets` it stops before its first node, where the turn sets them.

    Raises:
        StateError: the presets do not fit the state; no run has started then.
    """
    if presets:
        schema = graph.host.documents.newest().schema
        # Checked before the run: at the breakpoint a wrong value would leave a thread that waits for nobody.
        schema.reduce(schema.initial(), presets)
        options["interrupt_before"] = (graph.host.documents.checked().document.start,)
    return graph.stream(given, thread_id, **options)


def view_of(*, as_json: bool = False, as_lines: bool = False, title: str = "") -> TurnView:
    """The view that the flags and the terminal ask for."""
    if as_lines:
        return LinesView()
    if as_json:
        return JsonView()
    if shown_live():
        from graphflow.cli.terminal.live_view import TerminalView

        return TerminalView(title)
    return TextView()


async def drive_turn(
    graph: CompiledGraph,
    thread_id: str,
    events: AsyncIterator[Event] | None,
    policy: Policy,
    *,
    as_json: bool,
    as_lines: bool,
    presets: Mapping[str, Any] | None = None,
) -> int:
    """Shows one turn in the view of the flags; the command's exit code."""
    view = view_of(as_json=as_json, as_lines=as_lines, title=f"{graph.host.agent_key} · thread {thread_id}")
    turn = TurnDriver(graph=graph, thread_id=thread_id, policy=policy, view=view, presets=presets or {})
    return code_of(await turn.drive(events), policy)


async def continue_thread(
    app: Application,
    thread_id: str,
    policy: Policy,
    *,
    limits: dict[str, Any],
    as_json: bool,
    as_lines: bool,
    text: str | None = None,
    model: str | None = None,
) -> int:
    """Drives a thread with new input, with its open questions, or from where it stands.

    Args:
        model: asked instead of the agent's own.
    """
    graph = await app.graph_of_thread(thread_id)
    if model is not None:
        graph = graph.over(graph.host.with_services(model=lambda provider, _: app.models(provider, model)))
    if text is not None:
        events = graph.stream({"query": text}, thread_id, budget=limits, by=policy.by)
    elif await _asks(graph, thread_id):
        events = None
    else:
        events = graph.stream_resume(thread_id, budget=limits, by=policy.by)
    return await drive_turn(graph, thread_id, events, policy, as_json=as_json, as_lines=as_lines)


async def _asks(graph: CompiledGraph, thread_id: str) -> bool:
    """Whether the thread waits and none of its interrupts is due."""
    state, now = await graph.thread(thread_id).state(), graph.host.clock.now_ms()
    # What is due is decided by resuming, not by asking.
    due = any(i.expires_at is not None and i.expires_at <= now for i in state.interrupts)
    return state.status == "waiting" and not due


def code_of(result: RunResult, policy: Policy) -> int:
    """The exit code of a result (spec 10)."""
    match result.status:
        case "waiting":
            return exits.WAITING
        case "failed":
            error = result.error or {}
            return exits.exit_code(error.get("code", "internal"), bool(error.get("retryable")))
        case "cancelled" | "stopped":
            return exits.INTERRUPTED
    denied = policy.denied or result.finish_reason == "rejected"
    return exits.WAITING if denied else exits.OK
