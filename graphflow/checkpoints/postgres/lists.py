"""The PostgreSQL store's questions that stand alone: lists of threads, the inbox, the queue."""

from __future__ import annotations

from graphflow.checkpoints.postgres.pipeline import Statement
from graphflow.checkpoints.postgres.rows import INTERRUPT_COLUMNS, INTERRUPT_TYPES, THREAD_COLUMNS, THREAD_TYPES

THREADS = Statement(
    f"SELECT {THREAD_COLUMNS} FROM @.threads t WHERE t.status IS NOT NULL AND ($1::text IS NULL OR t.status = $1)"  # noqa: S608 – constants only
    " AND ($2::text IS NULL OR t.agent_key = $2)"
    " AND ($3::text IS NULL OR (t.updated_at, t.id) < (SELECT updated_at, id FROM @.threads WHERE id = $3 AND status IS NOT"
    " NULL)) AND ($5::text IS NULL OR t.user_name = $5) ORDER BY t.updated_at DESC, t.id DESC LIMIT $4",
    "tttlt",
    THREAD_TYPES,
)
_FILTER = (
    " AND ($2::text IS NULL OR owner = $2) AND ($3::text IS NULL OR role = $3) AND ($4::text IS NULL OR agent_key = $4)"
    " AND ($5::bigint IS NULL OR (opened_at, id) > ($5, $6))"
    " AND ($8::text IS NULL OR thread IN (SELECT id FROM @.threads WHERE user_name = $8)) ORDER BY opened_at, id LIMIT $7"
)
OPEN = Statement(
    f"SELECT {INTERRUPT_COLUMNS} FROM @.interrupts WHERE $1::text IS NULL{_FILTER}",  # noqa: S608 – constants only
    "ttttltlt",
    INTERRUPT_TYPES,
)
OPEN_OF_THREAD = Statement(
    f"SELECT {INTERRUPT_COLUMNS} FROM @.interrupts WHERE thread = $1{_FILTER}",  # noqa: S608 – constants only
    "ttttltlt",
    INTERRUPT_TYPES,
)
DUE = Statement(
    f"SELECT {INTERRUPT_COLUMNS} FROM @.interrupts WHERE due_at <= $1 ORDER BY due_at, id",  # noqa: S608 – constants only
    "l",
    INTERRUPT_TYPES,
)
RUN = Statement("SELECT thread FROM @.runs WHERE run = $1", "t", "t")
DOCUMENT = Statement("SELECT data FROM @.documents WHERE digest = $1", "t", "y")
QUEUE = Statement(
    "SELECT q.thread, q.position, q.kind, q.body, q.at FROM @.inputs q JOIN @.threads t ON t.id = q.thread"
    " WHERE ($1::text IS NULL OR q.thread = $1) AND ($2::text IS NULL OR q.kind = $2) AND ($3::text IS NULL OR t.owner = $3)"
    " ORDER BY q.position LIMIT $4",
    "tttl",
    "tityi",
)
QUEUES = Statement(
    "SELECT t.id, t.owner, t.lease_until FROM @.threads t JOIN (SELECT thread, min(position) AS first FROM @.inputs"
    " GROUP BY thread) q ON t.id = q.thread ORDER BY q.first",
    "",
    "tti",
)
