"""Answers to a run that another process drives, while other branches of it work (E12).

They go through the thread's queue to the process that drives it. If that process ends first, the caller takes the thread, or
whoever recovers it: an answer that was handed over is lost by nobody's end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any, Final

from graphflow.capabilities import By
from graphflow.checkpoints import errors
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import load_thread
from graphflow.checkpoints.record_decoder import decode_meta
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import AnswerRefused, ThreadBusy, ThreadNotFound
from graphflow.events import Event, RequestSubmit
from graphflow.runtime.history.stored_events import stored_log
from graphflow.runtime.queue_codec import HandedAnswer, decode_queued, encode_queued, kind_of
from graphflow.runtime.result import RunResult, result_from
from graphflow.runtime.runs.answer import answer
from graphflow.runtime.runs.answer_checks import answers_by_id, check_answers
from graphflow.runtime.runs.answer_delivery import refuse, stale
from graphflow.runtime.runs.concurrency import NOBODY, Audience
from graphflow.runtime.runs.live_runs import LiveRuns, PreparedRun
from graphflow.runtime.runs.preconditions import UNFINISHED
from graphflow.runtime.runs.run_host import RunHost

LOOK_S = 0.1
"""How often a caller looks what has become of its answer."""
REFUSAL_KEPT_MS: Final = 60_000
"""After this time nobody waits for a refusal any more."""
PAGE = 100


class RemoteRun:
    """A run of another process, which was given answers."""

    def __init__(self, host: RunHost, thread_id: str, run_id: str, seq: int) -> None:
        self._host, self._runs = host, host.need_runs()
        self.thread_id, self.run_id, self.seq = thread_id, run_id, seq
        """`seq`: number of the last event before the answers."""

    async def result(self) -> RunResult:
        """The outcome, once the run has ended or waits; `stopped` if its process ends before."""
        while not await self._is_at_rest():  # noqa: ASYNC110 - another process says nothing when it is
            await asyncio.sleep(LOOK_S)
        return await stored_result(self._host, self.thread_id, self.run_id)

    async def events(self) -> AsyncGenerator[Event, None]:
        """What the run sends from the answers on, as it becomes durable, until it has ended or waits."""
        after = self.seq
        while True:
            over = await self._is_at_rest()
            for event in await self._events(over=over):
                if event.seq > after:
                    after = event.seq
                    yield event
            if over:
                return
            await asyncio.sleep(LOOK_S)

    async def _events(self, *, over: bool) -> list[Event]:
        store = self._runs.store
        stored = await store.load(self.thread_id)
        if stored is None:
            return []
        log = await stored_log(store, self.thread_id, stored.chain, self.run_id, over=over)
        return [event for event, _ in log.events]

    async def _is_at_rest(self) -> bool:
        row = await self._runs.store.thread(self.thread_id)
        return row is None or is_at_rest(self._runs, row, self.run_id)


def is_at_rest(runs: LiveRuns, row: ThreadRow, run_id: str) -> bool:
    """Whether nothing more comes of the run as long as nobody goes on with it."""
    facts = row.facts
    return (
        facts.run_id != run_id or facts.status not in UNFINISHED or facts.status == "waiting" or not runs.is_driven(row)
    )


async def stored_result(host: RunHost, thread_id: str, run_id: str) -> RunResult:
    """The outcome of a run, as its newest checkpoint has it.

    Raises:
        ThreadNotFound: the run has left no record.
    """
    store, before = host.need_runs().store, None
    while rows := await store.list_checkpoints(thread_id, before=before, limit=PAGE, all_lineages=True):
        for listed in rows:
            # The newest checkpoint of the run has its outcome; later ones belong to other runs.
            if decode_meta(listed.meta, listed.id).run_id != run_id:
                continue
            loaded = await load_thread(store, thread_id, listed.id)
            if loaded is not None:
                plan = await host.documents.pinned(loaded.row.facts.document)
                return result_from(plan, loaded.machine, thread_id, listed.id)
        before = rows[-1].id
    raise ThreadNotFound(f"run {run_id!r} of thread {thread_id!r} has left no record")


async def hand_over(
    host: RunHost,
    thread_id: str,
    answers: Any,
    by: By = None,
    *,
    event: RequestSubmit | None = None,
    audience: Audience = NOBODY,
    within_s: float | None = None,
) -> PreparedRun | RemoteRun:
    """The run of another process, once it has taken the answers; or one that begins with them here, if that process ends first.

    Args:
        event: sent by the run just before it takes the answers.
        within_s: how long to wait for the other process.

    Raises:
        AnswerRefused: unknown, stale, ambiguous or ill-typed; nothing has changed.
        ThreadBusy: the other process did not respond in time. It takes the answers when it does.
    """
    runs, loaded = host.need_runs(), await host.load(thread_id)
    store = runs.store
    try:
        check_answers(loaded.machine, answers, by, host.documents.bounds)
    except AnswerRefused as refusal:
        raise await stale(store, thread_id, refusal) from None
    by_id = dict(answers_by_id(loaded.machine, answers))
    position = await _enqueued(runs, thread_id, HandedAnswer.of(by_id, by, event))
    until = None if within_s is None else time.monotonic() + within_s
    while await _is_queued(store, thread_id, position):
        row = await store.thread(thread_id)
        if row is None:
            raise errors.unknown_thread(thread_id)
        if not runs.is_driven(row):
            try:
                return await answer(host, thread_id, by_id, by, audience, consumes=position)
            except ThreadBusy:
                pass  # another one goes on with it
            except AnswerRefused:
                # The thread was this caller's for a moment, so nobody is about to take the answer any more.
                if await store.withdraw(thread_id, position):
                    raise
                break
        if until is not None and time.monotonic() > until:
            raise ThreadBusy(
                f"the answer was handed to the process that drives thread {thread_id!r}, which has not responded yet; it takes"
                " effect when it does: look at the thread before you answer again",
                threadId=thread_id,
                retryAfterMs=1000,
            )
        await runs.changed(thread_id, LOOK_S)
    await _raise_refusal(store, thread_id, position)
    return RemoteRun(host, thread_id, loaded.machine.run_id, loaded.seq)


async def _enqueued(runs: LiveRuns, thread_id: str, message: HandedAnswer) -> int:
    now = runs.time.now_ms()
    return await runs.store.enqueue(thread_id, encode_queued(message), now=now, kind=kind_of(message))


async def _is_queued(store: Checkpointer, thread_id: str, position: int) -> bool:
    return any(entry.position == position for entry in await store.queue(thread_id, kind="answer"))


async def _raise_refusal(store: Checkpointer, thread_id: str, position: int) -> None:
    for entry in await store.queue(thread_id, kind="refusal"):
        refused = decode_queued(entry)
        if refused.position == position:
            await store.withdraw(thread_id, entry.position)
            raise AnswerRefused(refused.message, code=refused.code, **refused.detail)


async def queued_answer(host: RunHost, runs: LiveRuns, thread_id: str, audience: Audience) -> PreparedRun | None:
    """A run that begins with the oldest answer in the queue of a thread that nobody drives; drops what is void."""
    for entry in await runs.store.queue(thread_id, kind="answer"):
        message: HandedAnswer = decode_queued(entry)
        given = Audience(
            audience.outbox, audience.log, () if message.event is None else (message.event,), audience.hold_ms
        )
        try:
            return await answer(host, thread_id, message.answers, message.person, given, consumes=entry.position)
        except AnswerRefused as refusal:
            await refuse(runs.store, entry, refusal)
    for entry in await runs.store.queue(thread_id, kind="refusal"):
        if runs.time.now_ms() - entry.at > REFUSAL_KEPT_MS:
            await runs.store.withdraw(thread_id, entry.position)
    return None
