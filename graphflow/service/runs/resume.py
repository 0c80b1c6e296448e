"""Going on with a thread that rests, waits or was cut off: with answers, from a checkpoint, by a signal (spec 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.capabilities import By
from graphflow.errors import AnswerRefused
from graphflow.runtime.history.effects import Choices
from graphflow.runtime.launch import launch_answer_anywhere, launch_resume
from graphflow.runtime.queue_codec import Signal
from graphflow.runtime.runs.answer_checks import check_answers
from graphflow.runtime.runs.answer_delivery import feed_answers
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.runtime.runs.remote_answer import RemoteRun
from graphflow.runtime.runs.signals import deliver
from graphflow.service.context import ServiceContext
from graphflow.service.runs.input_queue import StartedRun
from graphflow.service.runs.sweep import expire_overdue


async def resume(
    context: ServiceContext,
    thread_id: str,
    *,
    answers: Mapping[str, Any] | None = None,
    checkpoint_id: str | None = None,
    effects: Choices = None,
    budget: Mapping[str, Any] | None = None,
    hold_ms: int | None = None,
    run_id: str | None = None,
    by: By = None,
) -> StartedRun | RemoteRun:
    """Goes on: with answers to what is open, from the head, or from a checkpoint after a rewind to it.

    Args:
        run_id: of the run, if it is a new one.
        by: who answers, or asks for it.

    Raises:
        AnswerRefused: an answer that does not fit; nothing has changed.
        GraphflowError: `nothing_to_resume`, `thread_busy`, `thread_waiting`, `effects_need_choice`.
    """
    context.refuse_when_stopping()
    if answers and checkpoint_id is not None:
        await _must_stand_at(context, thread_id, checkpoint_id)
    hold = context.settings.tools.hold_ms if hold_ms is None else hold_ms
    async with context.thread_lock(thread_id):
        await expire_overdue(context, thread_id)
        live = await context.runs.settled(thread_id)
        if live is not None and answers and live.executor.machine.interrupts:
            executor = live.executor
            # All answers are checked before the first is given: a refused call changes nothing (E13).
            checked = check_answers(executor.machine, answers, by, executor.plan.bounds)
            after = executor.seq
            feed_answers(executor, checked, by)
            return StartedRun(run=live, run_id=live.run_id, chat_id=thread_id, after=after)
        # A client that comes back after a crash may come later than the sweep: it follows the run that it asks for.
        if live is not None and live.unasked and not (answers or checkpoint_id or effects or budget):
            return started(live)
        graph = await context.graph_of_thread(thread_id)
        if answers:
            given = await launch_answer_anywhere(graph.host, thread_id, dict(answers), by=by, hold_ms=hold)
            if isinstance(given, RemoteRun):
                return given
            run = given
        else:
            run = await launch_resume(
                graph.host,
                thread_id,
                checkpoint_id,
                effects=effects,
                budget=budget,
                hold_ms=hold,
                run_id=run_id,
                by=by,
            )
    return started(run)


def started(run: LiveRun) -> StartedRun:
    """The run, for a requester that gets all that this epoch sends."""
    return StartedRun(
        run=run, run_id=run.run_id, chat_id=run.thread_id, after=run.log.mark if run.log is not None else 0
    )


async def _must_stand_at(context: ServiceContext, thread_id: str, checkpoint_id: str) -> None:
    """Answers belong to what is open at the head; naming the head with them does not rewind."""
    await context.runs.ready()
    row = await context.store.thread(thread_id)
    if row is not None and row.head != checkpoint_id:
        raise AnswerRefused(
            f"answers belong to what is open at the head, which is not {checkpoint_id!r}; rewind first, then answer",
            code="answer_ambiguous",
        )


async def signal(context: ServiceContext, thread_id: str, name: str, payload: Any = None) -> bool:
    """Hands a signal over; whether a `wait` node goes on by it in this process.

    Raises:
        GraphflowError: `nothing_to_resume` when the thread has no unfinished run.
    """
    context.refuse_when_stopping()
    async with context.thread_lock(thread_id):
        await expire_overdue(context, thread_id)
        # A run that is just ending takes no signal; after it, the thread is free or waits.
        await context.runs.settled(thread_id)
        graph = await context.graph_of_thread(thread_id)
        hold = context.settings.tools.hold_ms
        return await deliver(graph.host, thread_id, Signal(name=name, payload=payload), hold_ms=hold) is not None
