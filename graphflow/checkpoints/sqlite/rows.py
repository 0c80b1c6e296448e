"""How the SQLite store writes ids, keys and thread rows down."""

from __future__ import annotations

import sqlite3
from typing import Any

from graphflow.checkpoints.ids import long_id, short_id
from graphflow.checkpoints.rows import OpenInterrupt, Queued, ThreadFacts, ThreadRow

ORDINALS = 1 << 32
"""Ordinals have the lower 32 bits of a key; lineage or log has the bits above."""

pack, unpack = short_id, long_id


def key(lineage: int, ordinal: int) -> int:
    """The key of a record or an item. Raises OverflowError beyond the four billionth of a lineage."""
    if not 0 <= ordinal < ORDINALS:
        raise OverflowError(f"ordinal {ordinal} is outside 0 to {ORDINALS - 1}")
    return lineage * ORDINALS + ordinal


def clean(text: str | None) -> str | None:
    """A text for people without lone surrogates, which SQLite's texts can't have."""
    return text and text.encode("utf-8", "replace").decode()


THREAD_COLUMNS = (
    "t.id, t.status, t.run, t.document, t.agent_key, t.title, t.updated_at, t.user_name, t.created_at, t.head, l.number,"
    " t.ordinal, t.fence, t.owner, t.lease_until, EXISTS (SELECT 1 FROM inputs q WHERE q.thread = t.id AND q.kind = 'input')"
)
THREAD_WIDTH = 16
THREAD_TABLES = "threads t LEFT JOIN lineages l ON l.lineage = t.lineage"


def thread_row(row: tuple[Any, ...]) -> ThreadRow:
    """A `ThreadRow` of the columns above."""
    (
        id_,
        status,
        run,
        document,
        agent_key,
        title,
        updated,
        user,
        created,
        head,
        lineage,
        ordinal,
        fence,
        owner,
        lease,
        queued,
    ) = row[:THREAD_WIDTH]
    return ThreadRow(
        thread_id=unpack(id_),
        facts=ThreadFacts(
            status=status,
            run_id=unpack(run),
            document=document,
            agent_key=agent_key,
            title=title,
            updated_at=updated,
            user=user,
        ),
        head=unpack(head),
        lineage=lineage,
        ordinal=ordinal,
        fence=fence,
        owner=owner,
        lease_until=lease,
        created_at=created,
        queued=bool(queued),
    )


QUEUE_COLUMNS = "q.thread, q.position, q.kind, q.body, q.at"


def queue_row(row: Any) -> Queued:
    thread, position, kind, body, at = row
    return Queued(thread_id=unpack(thread), position=position, kind=kind, body=bytes(body), at=at)


def read_thread(db: sqlite3.Connection, thread_id: str) -> ThreadRow | None:
    sql = f"SELECT {THREAD_COLUMNS} FROM {THREAD_TABLES} WHERE t.id = ? AND t.status IS NOT NULL"  # noqa: S608 – constants only
    row = db.execute(sql, (pack(thread_id),)).fetchone()
    return None if row is None else thread_row(row)


INTERRUPT_COLUMNS = "thread, id, run, kind, node, owner, role, agent_key, opened_at, due_at, data"


def interrupt_values(interrupt: OpenInterrupt) -> tuple[Any, ...]:
    return (
        pack(interrupt.thread_id),
        pack(interrupt.interrupt_id),
        pack(interrupt.run_id),
        interrupt.kind,
        interrupt.node,
        interrupt.owner,
        interrupt.role,
        interrupt.agent_key,
        interrupt.opened_at,
        interrupt.due_at,
        interrupt.data,
    )


def interrupt_row(row: Any) -> OpenInterrupt:
    thread, id_, run, kind, node, owner, role, agent_key, opened_at, due_at, data = row
    return OpenInterrupt(
        interrupt_id=unpack(id_),
        thread_id=unpack(thread),
        run_id=unpack(run),
        kind=kind,
        node=node,
        owner=owner,
        role=role,
        agent_key=agent_key,
        opened_at=opened_at,
        due_at=due_at,
        data=data,
    )
