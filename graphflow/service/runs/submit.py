"""Answers from outside: to the live run when there is one, else to the thread as the store has it (spec 3.1, E13)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from graphflow.checkpoints import codec
from graphflow.checkpoints.record_decoder import decode_interrupt
from graphflow.errors import AnswerRefused, ThreadNotFound
from graphflow.events import InterruptRequest, RequestSubmit
from graphflow.graph.core.machine import Interrupt, Machine
from graphflow.runtime.approvers import known_ids
from graphflow.runtime.launch import launch_answer_anywhere
from graphflow.runtime.runs.answer_checks import check_answer
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.service.access import LOCAL, Caller, check_thread
from graphflow.service.context import ServiceContext
from graphflow.service.requests import SubmitRequest, bad_argument
from graphflow.service.run_log import log_of_run
from graphflow.service.runs.sweep import expire_overdue

SubmitStatus = Literal["accepted", "unmatched", "stale", "invalid"]
_STATUS: dict[str, SubmitStatus] = {
    "interrupt_not_found": "unmatched",
    "answer_stale": "stale",
    "answer_invalid": "invalid",
    "answer_forbidden": "invalid",
    "answer_ambiguous": "invalid",
    "limit_exceeded": "invalid",
}


class Submitted(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The outcome of an answer."""

    request_id: str
    accepted: bool
    status: SubmitStatus
    run_id: str
    tool_id: str
    """As the request named it."""
    detail: str | None = None
    """Why it was not accepted."""
    code: str | None = None
    """The error code of that: `interrupt_not_found` and `thread_not_found` with `unmatched`, `answer_stale` with `stale`; with `invalid`
    `answer_invalid`, `answer_forbidden`, `answer_ambiguous` or `limit_exceeded`."""


async def submit(context: ServiceContext, request: SubmitRequest, *, caller: Caller = LOCAL) -> Submitted:
    """Accepts an answer or reports why not; a refused answer changes nothing.

    Args:
        caller: recorded as who answered; a thread of another user is unmatched.

    Raises:
        ThreadBusy: another process drives the run, and does not respond; the answer takes effect when it does.
    """
    context.refuse_when_stopping()
    await context.runs.ready()
    request_id = request.request_id or context.ids.new_id()
    status: SubmitStatus = "accepted"
    detail: str | None = None
    code: str | None = None
    try:
        # One request at a time: of two answers to one question the second sees the first.
        async with context.thread_lock(request.chat_id):
            await check_thread(context, caller, request.chat_id)
            # What is due happens first; an answer to it is then stale (E12).
            await expire_overdue(context, request.chat_id)
            await _take(context, request, request_id, caller)
    except AnswerRefused as refusal:
        status, detail, code = _STATUS[refusal.code], refusal.message, refusal.code
    except ThreadNotFound as unknown:
        if unknown.code == "invalid_input":
            raise
        status, detail, code = "unmatched", unknown.message, unknown.code
    return Submitted(
        request_id=request_id,
        accepted=status == "accepted",
        status=status,
        run_id=request.run_id,
        tool_id=request.tool_id or request.asked,
        detail=detail,
        code=code,
    )


def accepted_before(request: SubmitRequest) -> Submitted:
    """The outcome of an answer that was accepted when it came first."""
    return Submitted(
        request_id=request.request_id or "",
        accepted=True,
        status="accepted",
        run_id=request.run_id,
        tool_id=request.tool_id or request.asked,
    )


async def _take(context: ServiceContext, request: SubmitRequest, request_id: str, by: Caller) -> None:
    event = RequestSubmit(
        request_id=request_id,
        chat_id=request.chat_id,
        run_id=request.run_id,
        tool_id=request.tool_id or request.asked,
        payload=request.payload,
        view_id=request.view_id,
    )
    live = await context.runs.settled(request.chat_id)
    # The live machine decides where there is one: the store may be behind it.
    if live is not None:
        machine = live.executor.machine
        interrupt_id = find_interrupt(machine, request.run_id, request.asked)
        if interrupt_id is None:
            # The machine knows open interrupts only; the log tells a stale answer from one that nobody asked for.
            raise await _unknown(context, request, machine.run_id)
        _check_same(request, machine.interrupts[interrupt_id])
        answer_live(live, interrupt_id, request.payload, event, by)
        return
    graph = await context.graph_of_thread(request.chat_id)
    rows = await context.store.open_interrupts(thread_id=request.chat_id)
    asked = {row.interrupt_id: decode_interrupt(codec.decode(row.data)) for row in rows}
    known = {key: (*known_ids(interrupt), interrupt.tool_id) for key, interrupt in asked.items()}
    found = next((row for row in rows if request.asked in known[row.interrupt_id]), None)
    if found is None or found.run_id != request.run_id:
        raise await _unknown(context, request, rows[0].run_id if rows else request.run_id)
    _check_same(request, asked[found.interrupt_id])
    await launch_answer_anywhere(
        graph.host,
        request.chat_id,
        {found.interrupt_id: request.payload},
        by=by,
        submit=event,
        hold_ms=context.settings.tools.hold_ms,
    )


def answer_live(live: LiveRun, interrupt_id: str, payload: Any, event: RequestSubmit | None, by: Caller) -> None:
    """Checks an answer, then feeds it to the run that waits for it; one step for the event loop, so never twice."""
    executor = live.executor
    checked = check_answer(executor.machine, interrupt_id, payload, by, executor.plan.bounds)
    if event is not None:
        executor.emit(event)
    executor.answer(checked.interrupt_id, checked.value, checked.decision, by.name)


def find_interrupt(machine: Machine, run_id: str, tool_id: str) -> str | None:
    """The open interrupt that a client means by its own id or by the id of its tool call."""
    if machine.run_id != run_id:
        return None
    open_ = machine.interrupts.items()
    by_id = (key for key, interrupt in open_ if tool_id in known_ids(interrupt))
    return next(by_id, next((key for key, interrupt in open_ if interrupt.tool_id == tool_id), None))


def _check_same(request: SubmitRequest, interrupt: Interrupt) -> None:
    """Raises `invalid_input` when the request names two questions."""
    if request.tool_id is not None and request.tool_id not in (*known_ids(interrupt), interrupt.tool_id):
        rule = f"{request.tool_id!r} is not the tool call of interrupt {interrupt.id!r}; give one of the two"
        raise bad_argument("toolId", rule)


async def _unknown(context: ServiceContext, request: SubmitRequest, current_run: str) -> AnswerRefused:
    """`stale` for a question of the run that is no longer open, else `unmatched`."""
    for event in await _asked(context, request):
        if request.asked in (event.interrupt_id, event.tool_id):
            return AnswerRefused(
                f"{request.asked!r} was answered, closed or issued again; nothing has changed", code="answer_stale"
            )
    hint = "" if current_run == request.run_id else f"; its current run is {current_run!r}"
    return AnswerRefused(
        f"run {request.run_id!r} of chat {request.chat_id!r} does not wait for {request.asked!r}{hint}",
        code="interrupt_not_found",
    )


async def _asked(context: ServiceContext, request: SubmitRequest) -> list[InterruptRequest]:
    # A run id of another chat must not show what was asked there.
    if await context.store.find_run(request.run_id) != request.chat_id:
        return []
    log = await log_of_run(context, request.chat_id, request.run_id)
    return [event for event, _ in log if isinstance(event, InterruptRequest)]
