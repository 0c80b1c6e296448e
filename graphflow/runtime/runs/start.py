"""Starting a run with new input (E1, E2, E9).

Whatever is refused is refused before anything has changed, and the thread is given back.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import msgspec

from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.rows import Lineage, ThreadFacts
from graphflow.errors import GraphflowError, StateError, ThreadBusy, check_size
from graphflow.events import ChatStart, RunStart
from graphflow.graph.core.immutable import freeze
from graphflow.graph.core.machine import Machine
from graphflow.graph.core.ticks import Cancel, Input
from graphflow.graph.engine.executor import Executor
from graphflow.id_rule import check_id, is_id, may_exist
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.answer import after_expiry, answer_with_text
from graphflow.runtime.runs.answer_checks import questions_of
from graphflow.runtime.runs.concurrency import NOBODY, Audience, CheckedInput, check_turn, in_turn, take
from graphflow.runtime.runs.live_runs import LiveRun, LiveRuns, PreparedRun, abandon
from graphflow.runtime.runs.per_request import chosen_by, with_variables
from graphflow.runtime.runs.preconditions import (
    budget_limits,
    check_breakpoints,
    check_outcomes,
    check_state,
    checked_input,
    overdue_in,
    waits_for_answers,
)
from graphflow.runtime.runs.resume import resume
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.taking import Taking, make_executor
from graphflow.value_size import size_of

log = logging.getLogger("graphflow.runtime")

LARGE_BYTES = 256 * 1024
"""Bytes of an input from which on the event loop does not store it itself."""


def check_request(
    host: RunHost,
    request: RunRequest,
    audience: Audience = NOBODY,
    consumes: int | None = None,
    supersedes: str | None = None,
) -> CheckedInput:
    """The input, ready to take its thread.

    Args:
        consumes: position of the queued input that this is; it leaves the queue with the run's first commit.
        supersedes: see `CheckedInput`.

    Raises:
        GraphflowError: `invalid_input`.
    """
    _check_words(request)
    given = request.input
    given = {} if given is None else {"query": given} if isinstance(given, str) else given
    plan = host.documents.newest()
    most = plan.bounds.value_bytes
    if (size := size_of(given, most)) > most:
        check_size(given, plan.bounds, "the input")
    given = checked_input(plan, given)
    for name, more in (("params", request.params), ("variables", request.variables)):
        if more:
            size += check_size(more, plan.bounds, f"what the run has as `{name}`")
    allowed = plan.document.per_request
    chosen = chosen_by(request, allowed) if request.model is not None or request.options else None
    if request.variables or allowed is not None:
        given = with_variables(given, request, allowed)
    limits: dict[str, Any] = {}
    if request.interrupt_before or request.interrupt_after:
        check_breakpoints(plan, request.interrupt_before, request.interrupt_after)
    if request.budget:
        limits = budget_limits(request.budget)
        host.documents.check_priced(plan, limits)
    thread_id = request.thread_id or host.ids.new_id()
    run_id = request.run_id or host.ids.new_id()
    try:
        tick = Input(
            id=host.ids.new_id(),
            at=host.clock.now_ms(),
            run_id=run_id,
            input=freeze(given),
            limits={**plan.limits, **limits},
            before=tuple(request.interrupt_before),
            after=tuple(request.interrupt_after),
            params=freeze(request.params),
            durability=request.durability,
            document=plan.digest,
            chosen=chosen,
            starter=request.starter,
            tools="" if (offered := host.services.get("offered")) is None else offered.digest,
            large=size > LARGE_BYTES,
        )
    except StateError as error:
        raise _too_deep(given, error) from None
    request = msgspec.structs.replace(request, thread_id=thread_id, run_id=tick.run_id, input=given)
    return CheckedInput(plan, request, tick, audience, consumes, supersedes)


async def start(host: RunHost, new: CheckedInput) -> PreparedRun:
    """The run of a new input; see `CompiledGraph.run`.

    Raises:
        ThreadBusy, ThreadWaiting
    """
    runs, thread_id = host.runs, new.request.thread_id
    # One that was stored under another id continues.
    if not is_id(thread_id) and not (runs and may_exist(thread_id) and await runs.store.thread(thread_id)):
        check_id(thread_id)
    if runs is None:
        executor = make_executor(
            host, new.plan, Machine(), None, thread_id=new.request.thread_id, audience=new.audience
        )
        live = LiveRun(executor, None, run_id=new.tick.run_id)
        return PreparedRun(None, live, new.tick, partial(_begin, host, executor, new))
    if new.request.on_busy == "enqueue" and new.consumes is None:
        # `holder` keeps other processes from beginning it: this caller drives the run itself.
        queued = msgspec.structs.replace(new.request, agent_key=host.agent_key, holder=runs.store.owner)
        return await in_turn(runs, partial(start_now, host, runs), new, queued, partial(_revive, host, runs, thread_id))
    return await start_now(host, runs, new)


async def _revive(host: RunHost, runs: LiveRuns, thread_id: str) -> str | None:
    """Drives the run that a crash has cut off, as `recover` would; its id if it can't go on, and is superseded.

    Raises:
        ThreadBusy: another process goes on with it.
    """
    row = await runs.store.thread(thread_id)
    if row is None:
        return None
    if row.facts.agent_key != host.agent_key:
        return row.facts.run_id
    try:
        # One that was handed over has lost no process.
        live = runs.start(
            await resume(host, thread_id, audience=Audience(log=True, hold_ms=0), counted=row.owner is not None)
        )
    except ThreadBusy:
        raise
    except GraphflowError as refusal:
        log.info("thread %s: the run that was cut off can't go on: %s", thread_id, refusal.message)
        return row.facts.run_id
    live.unasked = True
    try:
        await live.over.wait()
    except asyncio.CancelledError:
        await abandon([live])
        raise
    return None


async def start_now(host: RunHost, runs: LiveRuns, new: CheckedInput) -> PreparedRun:
    """The run of a new input, once the thread is this process's."""
    plan, tick, request = new.plan, new.tick, new.request
    async with Taking(host, runs, await take(runs, request.thread_id, create=True, new=new)) as taking:
        if new.consumes is not None or taking.row.queued:
            await check_turn(runs, new, taking.row)
        # Kept before the first commit names it: after a crash the thread must find its document.
        await host.documents.keep(plan)
        if (offered := host.services.get("offered")) is not None:
            await offered.keep(runs.store)
        loaded = await runs.load(taking.row)
        if loaded is not None and (loaded.machine.status == "waiting" or questions_of(loaded.machine)):
            if overdue := overdue_in(loaded.machine, host.clock.now_ms()):
                return await after_expiry(taking, overdue, lambda: start_now(host, runs, new))
            if request.on_waiting == "answer" and new.consumes is None:
                return await answer_with_text(taking, loaded, tick.input, request.by, new.audience)
            loaded = await _close_questions(taking, request.on_waiting, loaded)
        elif loaded is not None and request.on_waiting != "cancel":
            check_outcomes(request.thread_id, loaded.machine)
        tick.id = host.ids.new_id()  # ids grow along a thread, and this input may have waited
        machine = Machine()
        if loaded is not None:
            machine = loaded.machine
            check_state(plan, machine)
        row = taking.row
        facts = ThreadFacts(
            status="running",
            run_id=tick.run_id,
            document=plan.digest,
            agent_key=host.agent_key or row.facts.agent_key,
            title=row.facts.title or request.title,
        )
        begins = None if row.lineage is not None else Lineage(number=host.new_lineage(), thread_id=request.thread_id)
        journal = ThreadJournal(runs.store, row, facts, loaded=loaded, begins=begins)
        journal.consumes = new.consumes
        run = taking.new_run(plan, machine, journal, new.audience, run_id=tick.run_id)
        return PreparedRun(runs, run, tick, partial(_begin, host, run.executor, new))


async def _close_questions(taking: Taking, on_waiting: str, loaded: Loaded) -> Loaded:
    """New input never silently drops a question: it is refused, or the questions are closed on record."""
    row, machine = taking.row, loaded.machine
    if on_waiting != "cancel":
        raise waits_for_answers(row.thread_id, ((i.id, i.kind, i.node) for i in machine.interrupts.values()))
    plan = await taking.pinned()
    journal = ThreadJournal(taking.runs.store, row, row.facts, loaded=loaded, keep=True)
    executor = make_executor(taking.host, plan, machine, journal, seq=loaded.seq)
    executor.restore_log(list(loaded.pending))
    await executor.drive(taking.host.tick(Cancel))
    # The cancelled run ends like any other, so its listeners are called.
    await taking.runs.notify(LiveRun(executor, journal))
    fresh = journal.as_loaded(executor.machine, executor.seq, executor.sent)
    taking.row = fresh.row
    return fresh


def _begin(host: RunHost, executor: Executor, new: CheckedInput) -> None:
    """Sends what comes before the input's tick, and gives the tick its time."""
    tick, preamble = new.tick, new.audience.preamble
    # Decided here, where the thread is this run's: a rollback of the first run leaves the beginning to this one.
    if executor.run.machine.document:
        preamble = tuple(event for event in preamble if not isinstance(event, ChatStart))
    began = RunStart(run_id=tick.run_id, chat_id=new.request.thread_id)
    # The commit is not older than what was sent before it.
    tick.at = executor.events.emit_start(*preamble, began)


def _check_words(request: RunRequest) -> None:
    _one_of("durability", request.durability, ("async", "sync"))
    _one_of("on_waiting", request.on_waiting, ("reject", "cancel", "answer"))
    _one_of("on_busy", request.on_busy, ("reject", "enqueue", "interrupt", "rollback"))


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise GraphflowError(f"{name} is {value!r}; it is one of {', '.join(allowed)}", code="invalid_input")


def _too_deep(given: Any, error: StateError) -> GraphflowError:
    """The error of an input or `params` that can't be looked through, by which of them it is."""
    place = "`params`"
    try:
        freeze(given)
    except StateError:
        place = "the input"
    return GraphflowError(f"{place}: {error.message}", code="invalid_input")
