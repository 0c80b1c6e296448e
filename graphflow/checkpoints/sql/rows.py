"""How rows of threads, interrupts and the ledger are read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphflow.checkpoints.rows import SPENT_FIGURES, OpenInterrupt, Queued, Spent, ThreadFacts, ThreadRow
from graphflow.checkpoints.sql.statement import Query, SharedStatement

THREAD_COLUMNS = (
    "t.id, t.status, t.run, t.document, t.agent_key, t.title, t.updated_at, t.user_name, t.created_at, t.head, @number,"
    " t.ordinal, t.fence, t.owner, t.lease_until, t.about, EXISTS (SELECT 1 FROM @.inputs q WHERE q.thread = t.id AND q.kind = 'input')"
)
THREAD_TYPES = "dtdtttitidiiititb"
READ_THREAD = SharedStatement(
    f"SELECT {THREAD_COLUMNS} FROM @.threads t WHERE t.id = $1 AND t.status IS NOT NULL",  # noqa: S608 – constants only
    "d",
    THREAD_TYPES,
)


def thread_row(row: Sequence[Any]) -> ThreadRow:
    """A `ThreadRow` of the columns above."""
    (
        id_, status, run, document, agent_key, title, updated, user, created, head, lineage, ordinal, fence, owner, lease,
        about, queued,
    ) = row[:17]  # fmt: skip
    facts = ThreadFacts(
        status=status, run_id=run, document=document, agent_key=agent_key, title=title, updated_at=updated, user=user,
        about=about,
    )  # fmt: skip
    return ThreadRow(
        thread_id=id_, facts=facts, head=head, lineage=lineage, ordinal=ordinal, fence=fence, owner=owner,
        lease_until=lease, created_at=created, queued=queued,
    )  # fmt: skip


_ADDED = "status, updated_at, head, lineage, ordinal, run, document, agent_key, title, created_at, user_name, about"
_ADD_THREAD = SharedStatement(
    f"INSERT INTO @.threads AS t (id, {_ADDED}, fence, owner, lease_until)"  # noqa: S608 – constants only
    " VALUES ($1, $2, $3, $4, @key5, $6, $7, $8, $9, $10, $11, $12, $13, $14, NULL, 0) ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in _ADDED.split(", "))
    + ", fence = @greatest(t.fence, excluded.fence) WHERE t.status IS NULL",
    "dtldlidttclttl",
)


def add_thread(
    thread_id: str, facts: ThreadFacts, created_at: int, *, head: str | None = None, lineage: int | None = None,
    ordinal: int = 0, fence: int = 0,
) -> Query:  # fmt: skip
    """Makes the thread, if there is none; a namesake that was deleted while somebody drove it leaves its fence to it."""
    return _ADD_THREAD(
        thread_id, facts.status, facts.updated_at, head, lineage, ordinal, facts.run_id, facts.document, facts.agent_key,
        facts.title, created_at, facts.user, facts.about, fence,
    )  # fmt: skip


INTERRUPT_COLUMNS = "thread, id, run, kind, node, owner, role, agent_key, opened_at, due_at, data"
INTERRUPT_TYPES = "dddtttttiiy"
ADD_INTERRUPT = SharedStatement(
    f"INSERT INTO @.interrupts ({INTERRUPT_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"  # noqa: S608 – constants only
    " ON CONFLICT (thread, id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in INTERRUPT_COLUMNS.split(", ")[2:]),
    INTERRUPT_TYPES.replace("i", "l"),
)
ADD_RUN = SharedStatement("INSERT INTO @.runs (run, thread) VALUES ($1, $2) ON CONFLICT DO NOTHING", "dd")
_SPENT_COLUMNS = Spent.__struct_fields__
ADD_SPENT = SharedStatement(
    f"INSERT INTO @.spent AS s (thread, {', '.join(_SPENT_COLUMNS)})"  # noqa: S608 – constants only
    f" VALUES ({', '.join(f'${n}' for n in range(1, len(_SPENT_COLUMNS) + 2))})"
    " ON CONFLICT (day, agent_key, model, thread) DO UPDATE SET "
    + ", ".join(f"{figure} = s.{figure} + excluded.{figure}" for figure in SPENT_FIGURES),
    "ditt" + "l" * len(SPENT_FIGURES),
)


def interrupt_row(row: Sequence[Any]) -> OpenInterrupt:
    thread, id_, run, kind, node, owner, role, agent_key, opened_at, due_at, data = row
    return OpenInterrupt(
        interrupt_id=id_, thread_id=thread, run_id=run, kind=kind, node=node, owner=owner, role=role, agent_key=agent_key,
        opened_at=opened_at, due_at=due_at, data=data,
    )  # fmt: skip


def interrupt_values(interrupt: OpenInterrupt) -> tuple[Any, ...]:
    i = interrupt
    return (
        i.thread_id, i.interrupt_id, i.run_id, i.kind, i.node, i.owner, i.role, i.agent_key, i.opened_at, i.due_at, i.data,
    )  # fmt: skip


def queue_row(row: Sequence[Any]) -> Queued:
    thread, position, kind, body, at = row
    return Queued(thread_id=thread, position=position, kind=kind, body=body, at=at)
