"""Starting a run with answers, or with the expiry of its questions (E12).

Whatever is refused is refused before anything has changed, and the thread is given back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import Loaded
from graphflow.errors import AnswerRefused
from graphflow.graph.engine.executor import Executor
from graphflow.runtime.runs.answer_checks import Answer, check_answers, questions_of
from graphflow.runtime.runs.concurrency import NOBODY, Audience
from graphflow.runtime.runs.live_runs import PreparedRun
from graphflow.runtime.runs.preconditions import overdue_in
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.taking import Taking, adopt_run, taken


async def answer(
    host: RunHost, thread_id: str, answers: Any, by: str | None = None, audience: Audience = NOBODY
) -> PreparedRun:
    """A run that begins with answers; all are checked before any is taken.

    What has expired is closed first, and an answer to it is stale (E12).
    """
    async with taken(host, host.need_runs(), thread_id, frees=True) as taking:
        loaded = await taking.runs.load_head(taking.row)
        overdue = overdue_in(loaded.machine, host.clock.now_ms())
        if overdue:
            return await after_expiry(taking, overdue, lambda: answer(host, thread_id, answers, by, audience))
        try:
            checked = check_answers(loaded.machine, answers)
        except AnswerRefused as refusal:
            raise await stale(taking.runs.store, thread_id, refusal) from None
        return await _answered(taking, loaded, checked, by, audience)


async def answer_with_text(taking: Taking, loaded: Loaded, given: Any, audience: Audience) -> PreparedRun:
    """`onWaiting: answer`: the text is the answer, when exactly one open `ask` takes it (spec 2.4)."""
    text = given.get("query") if isinstance(given, Mapping) else None
    kinds = [interrupt.kind for interrupt in questions_of(loaded.machine)]
    if kinds != ["ask"]:
        raise AnswerRefused(
            f"onWaiting: answer needs exactly one open `ask`; open are {', '.join(kinds)}", code="answer_ambiguous"
        )
    return await _answered(taking, loaded, check_answers(loaded.machine, text), None, audience)


async def _answered(
    taking: Taking, loaded: Loaded, checked: Sequence[Answer], by: str | None, audience: Audience
) -> PreparedRun:
    run = await taking.same_run(loaded, audience)
    executor = run.executor
    if any(answer.decision == "terminate" for answer in checked):
        await executor.events.calls.learn()  # those that earlier epochs have announced get a result too

    def before() -> None:
        adopt_run(taking.host, executor, loaded, audience.preamble)
        feed_answers(executor, checked, by)

    return PreparedRun(run, None, before)


def feed_answers(executor: Executor, checked: Sequence[Answer], by: str | None) -> None:
    """Feeds the answers of one call to the run that waits for them."""
    # Together, or the thread could be given back between two of them.
    executor.together = True
    for answer in checked:
        if answer.interrupt_id in executor.machine.interrupts:  # else another of these has closed it
            executor.answer(answer.interrupt_id, answer.value, answer.decision, by)
    executor.together = False


async def stale(store: Checkpointer, thread_id: str, refusal: AnswerRefused) -> AnswerRefused:
    """An id whose checkpoint the thread has was open once: `stale`, not `unmatched` (E8)."""
    asked = refusal.detail.get("interruptId", "")
    # An interrupt id is the id of the checkpoint that opened it, a dot and a number.
    if refusal.code != "interrupt_not_found" or "." not in asked:
        return refusal
    if await store.load(thread_id, asked.rpartition(".")[0]) is None:
        return refusal
    text = f"interrupt {asked!r} was answered, closed or issued anew; nothing has changed"
    return AnswerRefused(text, code="answer_stale", interruptId=asked)


# --- expiry


async def expire(
    host: RunHost, thread_id: str, interrupt_ids: Sequence[str], audience: Audience = NOBODY
) -> PreparedRun:
    """A run that begins with the expiry of open interrupts (E12).

    Raises:
        AnswerRefused: `answer_stale` when none of them is open any more.
    """
    async with taken(host, host.need_runs(), thread_id) as taking:
        loaded = await taking.runs.load_head(taking.row)
        due = [key for key in interrupt_ids if key in loaded.machine.interrupts]
        if not due:
            raise AnswerRefused(f"nothing of thread {thread_id!r} expires any more", code="answer_stale")
        run = await taking.same_run(loaded, audience)
    executor = run.executor

    def before() -> None:
        adopt_run(host, executor, loaded)
        executor.together = True
        for key in due:
            executor.expire(key)
        executor.together = False

    return PreparedRun(run, None, before)


async def after_expiry(taking: Taking, overdue: list[str], then: Callable[[], Awaitable[PreparedRun]]) -> PreparedRun:
    """What was due before a call came happens first, to its end (E12)."""
    # `expire` takes the thread itself, so the thread has to be free first.
    await taking.give_back()
    expired = await expire(taking.host, taking.row.thread_id, overdue)
    await taking.runs.drive(expired)
    return await then()
