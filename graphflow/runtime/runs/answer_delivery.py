"""Checked answers on their way into a run: fed directly, or through the thread's queue from a process that does not drive it.

An answer in the queue leaves it with the commit that records the answer, or when whoever has the thread refuses it: then a
refusal takes its place, for the caller who waits. So an entry that is gone without a refusal was accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from graphflow.capabilities import By, name_of
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.rows import Queued
from graphflow.errors import AnswerRefused
from graphflow.graph.engine.executor import Executor
from graphflow.runtime.queue_codec import HandedAnswer, Refusal, decode_queued, encode_queued, kind_of
from graphflow.runtime.runs.answer_checks import Answer, check_answers
from graphflow.runtime.runs.preconditions import overdue_in


@contextmanager
def as_one_commit(executor: Executor) -> Iterator[None]:
    """What is fed inside is one commit, and the thread is not given back between two ticks of it."""
    journal = executor.run.journal
    executor.together = True
    try:
        with nullcontext() if journal is None else journal.together():
            yield
    finally:
        executor.together = False


def feed_answers(
    executor: Executor, checked: Sequence[Answer], by: By, consume: Callable[[], None] | None = None
) -> None:
    """Feeds the answers of one call to the run that waits for them: a commit keeps all of them or none.

    Args:
        consume: called before the last of them, whose commit takes them out of the queue.
    """
    with as_one_commit(executor):
        for number, answer in enumerate(checked, 1):
            if consume is not None and number == len(checked):
                consume()
            if answer.interrupt_id in executor.machine.interrupts:  # else another of these has closed it
                executor.answer(answer.interrupt_id, answer.value, answer.decision, name_of(by))


async def stale(store: Checkpointer, thread_id: str, refusal: AnswerRefused) -> AnswerRefused:
    """An id whose checkpoint the thread has was open once: `stale`, not `unmatched` (E8)."""
    asked = refusal.detail.get("interruptId", "")
    # An interrupt id is the id of the checkpoint that opened it, a dot and a number.
    if refusal.code != "interrupt_not_found" or "." not in asked:
        return refusal
    if await store.load(thread_id, asked.rpartition(".")[0]) is None:
        return refusal
    text = f"interrupt {asked!r} was answered, closed or issued again; nothing has changed"
    return AnswerRefused(text, code="answer_stale", interruptId=asked)


async def take_from_queue(store: Checkpointer, executor: Executor, journal: ThreadJournal, entry: Queued) -> None:
    """Gives the run of this process an answer that another process was given."""
    message: HandedAnswer = decode_queued(entry)
    # What is due happens first; an answer to it is then stale (E12).
    for interrupt_id in overdue_in(executor.machine, executor.run.clock.now_ms()):
        executor.expire(interrupt_id)
    if executor.ending:
        return  # whoever has the thread next takes it
    try:
        checked = check_answers(executor.machine, message.answers, message.person, executor.plan.bounds)
    except AnswerRefused as refusal:
        await refuse(store, entry, refusal)
        return
    if message.event is not None:
        executor.emit(message.event)

    def consume() -> None:
        journal.consumes = entry.position

    feed_answers(executor, checked, message.person, consume)


async def refuse(store: Checkpointer, entry: Queued, refusal: AnswerRefused) -> None:
    """Takes an answer out of the queue that can never be accepted; only for who has, or just had, the thread."""
    found = await stale(store, entry.thread_id, refusal)
    body = Refusal(position=entry.position, code=found.code, message=found.message, detail=dict(found.detail))
    await store.enqueue(entry.thread_id, encode_queued(body), now=entry.at, kind=kind_of(body))
    await store.withdraw(entry.thread_id, entry.position)
