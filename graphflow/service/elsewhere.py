"""A run that another process drives, as far as its records tell: for those who wait here for an input of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from graphflow.checkpoints.journal import decode_meta, load_thread
from graphflow.checkpoints.port import ThreadRow
from graphflow.errors import ThreadNotFound
from graphflow.runtime.result import RunResult, result_from
from graphflow.runtime.stored_log import branch_of_run, stored_log
from graphflow.service.application import Application
from graphflow.service.rejoin import ENDS, Frame
from graphflow.service.submit import refuse_when_stopping

LOOK_S = 0.25
"""How often the store is asked for what is new."""
PAGE = 100


async def follow_stored(app: Application, thread_id: str, run_id: str) -> AsyncIterator[list[Frame]]:
    """The run's events as they become durable, blocks as snapshots, until the run ends or waits."""
    seq, head = 0, None
    while True:
        row = await app.store.thread(thread_id)
        over = row is None or _rests(app, row, run_id)
        if row is not None and (over or row.head != head):
            head = row.head
            loaded = await load_thread(app.store, thread_id)
            chain = await branch_of_run(app.store, thread_id, loaded.chain if loaded is not None else (), run_id)
            stored = await stored_log(app.store, thread_id, chain, run_id, over=over)
            frames: list[Frame] = [(f"{row.fence}-{event.seq}", event) for event, _ in stored.events if event.seq > seq]
            if frames:
                seq = frames[-1][1].seq
                yield frames
            if frames and isinstance(frames[-1][1], ENDS):
                return
        if over or app.stopping:
            return
        await asyncio.sleep(LOOK_S)


def _rests(app: Application, row: ThreadRow, run_id: str) -> bool:
    return row.facts.run_id != run_id or not app.runs.is_driven(row)


async def result_elsewhere(app: Application, thread_id: str, run_id: str) -> RunResult:
    """What the run has come to, once nobody drives it any more.

    Raises:
        ThreadNotFound: the run has left no record.
        GraphflowError: `stopping`.
    """
    while (row := await app.store.thread(thread_id)) and not _rests(app, row, run_id):
        refuse_when_stopping(app)
        await asyncio.sleep(LOOK_S)
    before: str | None = None
    while rows := await app.store.list(thread_id, before=before, limit=PAGE, all_lineages=True):
        for listed in rows:
            if decode_meta(listed.meta, listed.id).run_id != run_id:
                continue
            loaded = await load_thread(app.store, thread_id, listed.id)
            if loaded is not None:
                plan = await (await app.graph_of_thread(thread_id)).documents.pinned(loaded.row.facts.document)
                return result_from(plan, loaded.machine, thread_id, listed.id)
        before = rows[-1].id
    raise ThreadNotFound(f"run {run_id!r} of thread {thread_id!r} has left no record")
