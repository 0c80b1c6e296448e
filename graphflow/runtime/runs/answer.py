"""Starting a run with answers, or with the expiry of its questions (E12).

Whatever is refused is refused before anything has changed, and the thread is given back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from graphflow.capabilities import By
from graphflow.checkpoints.loading import Loaded
from graphflow.errors import AnswerRefused
from graphflow.runtime.runs.answer_checks import Answer, check_answers, questions_of
from graphflow.runtime.runs.answer_delivery import as_one_commit, feed_answers, stale
from graphflow.runtime.runs.concurrency import NOBODY, Audience, take
from graphflow.runtime.runs.live_runs import PreparedRun
from graphflow.runtime.runs.preconditions import overdue_in
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.taking import Taking, adopt_run


async def answer(
    host: RunHost,
    thread_id: str,
    answers: Any,
    by: By = None,
    audience: Audience = NOBODY,
    *,
    consumes: int | None = None,
) -> PreparedRun:
    """A run that begins with answers; all are checked before any is taken.

    What has expired is closed first, and an answer to it is stale (E12).

    Args:
        consumes: position of the answers in the thread's queue, when they come from there.
    """
    runs = host.need_runs()
    async with Taking(host, runs, await take(runs, thread_id, frees=True)) as taking:
        loaded = await taking.runs.load_head(taking.row)
        overdue = overdue_in(loaded.machine, host.clock.now_ms())
        if overdue:
            return await after_expiry(
                taking, overdue, lambda: answer(host, thread_id, answers, by, audience, consumes=consumes)
            )
        try:
            checked = check_answers(loaded.machine, answers, by, host.documents.bounds)
        except AnswerRefused as refusal:
            raise await stale(taking.runs.store, thread_id, refusal) from None
        return await _answered(taking, loaded, checked, by, audience, consumes)


async def answer_with_text(taking: Taking, loaded: Loaded, given: Any, by: By, audience: Audience) -> PreparedRun:
    """`on_waiting='answer'`: the text is the answer, when exactly one open `ask` takes it (spec 2.4)."""
    text = given.get("query") if isinstance(given, Mapping) else None
    kinds = [interrupt.kind for interrupt in questions_of(loaded.machine)]
    if kinds != ["ask"]:
        raise AnswerRefused(
            f"on_waiting='answer' needs exactly one open `ask`; open are {', '.join(kinds)}", code="answer_ambiguous"
        )
    checked = check_answers(loaded.machine, text, by, taking.host.documents.bounds)
    return await _answered(taking, loaded, checked, by, audience)


async def _answered(
    taking: Taking,
    loaded: Loaded,
    checked: Sequence[Answer],
    by: By,
    audience: Audience,
    consumes: int | None = None,
) -> PreparedRun:
    run = await taking.same_run(loaded, audience)
    executor, journal = run.executor, run.journal
    if any(answer.decision == "terminate" for answer in checked):
        await executor.events.calls.learn()  # those that earlier epochs have announced get a result too

    def consume() -> None:
        assert journal is not None
        journal.consumes = consumes

    def before() -> None:
        adopt_run(taking.host, executor, loaded, audience.preamble)
        feed_answers(executor, checked, by, consume)

    return PreparedRun(taking.runs, run, None, before)


# --- expiry


async def expire(
    host: RunHost, thread_id: str, interrupt_ids: Sequence[str], audience: Audience = NOBODY
) -> PreparedRun:
    """A run that begins with the expiry of open interrupts (E12).

    Raises:
        AnswerRefused: `answer_stale` when none of them is open any more.
    """
    runs = host.need_runs()
    async with Taking(host, runs, await take(runs, thread_id)) as taking:
        loaded = await taking.runs.load_head(taking.row)
        due = [key for key in interrupt_ids if key in loaded.machine.interrupts]
        if not due:
            raise AnswerRefused(f"nothing of thread {thread_id!r} expires any more", code="answer_stale")
        run = await taking.same_run(loaded, audience)
    executor = run.executor

    def before() -> None:
        adopt_run(host, executor, loaded)
        with as_one_commit(executor):
            for key in due:
                executor.expire(key)

    return PreparedRun(taking.runs, run, None, before)


async def after_expiry(taking: Taking, overdue: list[str], then: Callable[[], Awaitable[PreparedRun]]) -> PreparedRun:
    """What was due before a call came happens first, to its end (E12)."""
    # `expire` takes the thread itself, so the thread has to be free first.
    await taking.give_back()
    expired = await expire(taking.host, taking.row.thread_id, overdue)
    await taking.runs.drive(expired)
    return await then()
