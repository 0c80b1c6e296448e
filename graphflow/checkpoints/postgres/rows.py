"""How the PostgreSQL store's rows of threads and interrupts become values of the port."""

from __future__ import annotations

from typing import Any

from graphflow.checkpoints.postgres.pipeline import Statement
from graphflow.checkpoints.rows import OpenInterrupt, Record, ThreadFacts, ThreadRow

THREAD_COLUMNS = (
    "t.id, t.status, t.run, t.document, t.agent_key, t.title, t.updated_at, t.user_name, t.created_at, t.head, t.lineage,"
    " t.ordinal, t.fence, t.owner, t.lease_until, EXISTS (SELECT 1 FROM @.inputs q WHERE q.thread = t.id AND q.kind = 'input')"
)
THREAD_TYPES = "ttttttititiiitib"

READ_THREAD = Statement(
    f"SELECT {THREAD_COLUMNS} FROM @.threads t WHERE t.id = $1 AND t.status IS NOT NULL",  # noqa: S608 – constants only
    "t",
    THREAD_TYPES,
)
READ_NOTE = Statement("SELECT data FROM @.notes WHERE name = $1", "t", "y")

INTERRUPT_COLUMNS = "thread, id, run, kind, node, owner, role, agent_key, opened_at, due_at, data"
INTERRUPT_TYPES = "ttttttttiiy"


def thread_row(row: tuple[Any, ...]) -> ThreadRow:
    """A `ThreadRow` of the columns above."""
    (
        id_, status, run, document, agent_key, title, updated, user, created, head, lineage, ordinal, fence, owner, lease,
        queued,
    ) = row  # fmt: skip
    return ThreadRow(
        thread_id=id_,
        facts=ThreadFacts(
            status=status,
            run_id=run,
            document=document,
            agent_key=agent_key,
            title=title,
            updated_at=updated,
            user=user,
        ),
        head=head,
        lineage=lineage,
        ordinal=ordinal,
        fence=fence,
        owner=owner,
        lease_until=lease,
        created_at=created,
        queued=queued,
    )


def interrupt_row(row: tuple[Any, ...]) -> OpenInterrupt:
    thread, id_, run, kind, node, owner, role, agent_key, opened_at, due_at, data = row
    return OpenInterrupt(
        interrupt_id=id_,
        thread_id=thread,
        run_id=run,
        kind=kind,
        node=node,
        owner=owner,
        role=role,
        agent_key=agent_key,
        opened_at=opened_at,
        due_at=due_at,
        data=data,
    )


def interrupt_values(interrupt: OpenInterrupt) -> tuple[Any, ...]:
    return (
        interrupt.thread_id,
        interrupt.interrupt_id,
        interrupt.run_id,
        interrupt.kind,
        interrupt.node,
        interrupt.owner,
        interrupt.role,
        interrupt.agent_key,
        interrupt.opened_at,
        interrupt.due_at,
        interrupt.data,
    )


def size_of(record: Record) -> int:
    """Stored bytes of the record, its items and its snapshot."""
    size = len(record.meta) + len(record.data)
    for item in record.items:
        size += len(item.data)
    return size if record.snapshot is None else size + len(record.snapshot)


def clean(text: str | None) -> str | None:
    """A text for people without what PostgreSQL's texts can't have: lone surrogates and NUL."""
    return text and text.encode("utf-8", "replace").decode().replace("\x00", "")
