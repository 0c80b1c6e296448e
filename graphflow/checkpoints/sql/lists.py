"""Questions that one statement answers: lists of threads, the inbox, the queue, the ledger, documents and notes."""

from __future__ import annotations

from graphflow.checkpoints import errors
from graphflow.checkpoints.rows import (
    SPENT_FIGURES,
    SPENT_KEY,
    OpenInterrupt,
    Queued,
    Spent,
    ThreadRow,
    parse_cursor,
    spent_from,
)
from graphflow.checkpoints.sql.rows import (
    INTERRUPT_COLUMNS,
    INTERRUPT_TYPES,
    READ_THREAD,
    THREAD_COLUMNS,
    THREAD_TYPES,
    interrupt_row,
    queue_row,
    thread_row,
)
from graphflow.checkpoints.sql.statement import Query, SharedStatement, Work, one

_LISTED = (
    f"SELECT {THREAD_COLUMNS} FROM @.threads t WHERE t.status IS NOT NULL AND ($1 IS NULL OR t.status = $1)"  # noqa: S608 – constants only
    " AND ($2 IS NULL OR t.agent_key = $2)"
    " AND ($3 IS NULL OR (t.updated_at, t.id) < (SELECT updated_at, id FROM @.threads WHERE id = $3 AND status IS NOT NULL))"
)
_THREADS = SharedStatement(f"{_LISTED} ORDER BY t.updated_at DESC, t.id DESC LIMIT $4", "ttdl", THREAD_TYPES)
# A statement of its own: one with `$5 IS NULL OR` would look at the threads of everybody.
_THREADS_OF_USER = SharedStatement(
    f"{_LISTED} AND t.user_name = $5 ORDER BY t.updated_at DESC, t.id DESC LIMIT $4", "ttdlt", THREAD_TYPES
)
_FILTER = (
    " AND ($2 IS NULL OR owner = $2) AND ($3 IS NULL OR role = $3) AND ($4 IS NULL OR agent_key = $4)"
    " AND ($5 IS NULL OR (opened_at, id) > ($5, $6))"
)
_USERS = "thread IN (SELECT id FROM @.threads WHERE user_name = $8)"
_OLDEST = " ORDER BY opened_at, id LIMIT $7"
# Three statements, for one with `$1 IS NULL OR thread = $1` would find no thread by its key, and look at those of every user.
_OPEN = SharedStatement(
    f"SELECT {INTERRUPT_COLUMNS} FROM @.interrupts WHERE $1 IS NULL AND $8 IS NULL{_FILTER}{_OLDEST}",  # noqa: S608 – constants only
    "dtttldlt",
    INTERRUPT_TYPES,
)
_OPEN_OF_THREAD = SharedStatement(
    f"SELECT {INTERRUPT_COLUMNS} FROM @.interrupts WHERE thread = $1{_FILTER} AND ($8 IS NULL OR {_USERS}){_OLDEST}",  # noqa: S608 – constants only
    "dtttldlt",
    INTERRUPT_TYPES,
)
_OPEN_OF_USER = SharedStatement(
    f"SELECT {INTERRUPT_COLUMNS} FROM @.interrupts WHERE $1 IS NULL AND {_USERS}{_FILTER}{_OLDEST}",  # noqa: S608 – constants only
    "dtttldlt",
    INTERRUPT_TYPES,
)
_DUE = SharedStatement(
    f"SELECT {INTERRUPT_COLUMNS} FROM @.interrupts WHERE due_at <= $1 ORDER BY due_at, id",  # noqa: S608 – constants only
    "l",
    INTERRUPT_TYPES,
)
_RUN = SharedStatement("SELECT thread FROM @.runs WHERE run = $1", "d", "d")
_LISTED_RUN = " AND t.status IS NOT NULL AND ($1 IS NULL OR r.run < $1) AND ($2 IS NULL OR t.agent_key = $2)"
_RUNS = (
    f"SELECT r.run, {THREAD_COLUMNS} FROM @.runs r JOIN @.threads t ON t.id = r.thread{_LISTED_RUN}"  # noqa: S608 – constants only
    " WHERE ($3 IS NULL OR t.user_name = $3)"
)
_RUNS_OF_ALL = SharedStatement(f"{_RUNS} ORDER BY r.run DESC LIMIT $4", "dttl", "d" + THREAD_TYPES)
# A statement of its own, as with interrupts.
_RUNS_OF_THREAD = SharedStatement(
    f"{_RUNS} AND r.thread = $5 ORDER BY r.run DESC LIMIT $4", "dttld", "d" + THREAD_TYPES
)
# CROSS JOIN keeps SQLite at this order: the threads of the user, then the runs of each.
_RUNS_OF_USER = SharedStatement(
    f"SELECT r.run, {THREAD_COLUMNS} FROM @.threads t CROSS JOIN @.runs r WHERE r.thread = t.id{_LISTED_RUN}"  # noqa: S608 – constants only
    " AND t.user_name = $3 ORDER BY r.run DESC LIMIT $4",
    "dttl",
    "d" + THREAD_TYPES,
)
READ_DOCUMENT = SharedStatement("SELECT data FROM @.documents WHERE digest = $1", "t", "y")
READ_NOTE = SharedStatement("SELECT data FROM @notes WHERE @note = $1", "n", "y")
_QUEUE = SharedStatement(
    "SELECT q.thread, q.position, q.kind, q.body, q.at FROM @.inputs q JOIN @.threads t ON t.id = q.thread"
    " WHERE ($1 IS NULL OR q.thread = $1) AND ($2 IS NULL OR q.kind = $2) AND ($3 IS NULL OR t.owner = $3)"
    " ORDER BY q.position LIMIT $4",
    "dttl",
    "dityi",
)
_UNPARKED = SharedStatement(
    f"SELECT q.thread, q.position, q.kind, q.body, q.at, {THREAD_COLUMNS} FROM @.inputs q JOIN @.threads t ON t.id = q.thread"  # noqa: S608 – constants only
    " WHERE q.kind = $1 AND NOT q.parked AND q.kind <> 'stop' ORDER BY q.position LIMIT $2",
    "tl",
    "dityi" + THREAD_TYPES,
)
_THREAD_COUNT = SharedStatement("SELECT count(*) FROM @.threads WHERE status = $1", "t", "i")
_QUEUE_SIZE = SharedStatement("SELECT count(*) FROM @.inputs WHERE kind = $1", "t", "i")
_OWNERS = SharedStatement("SELECT DISTINCT owner FROM @.threads WHERE owner IS NOT NULL AND lease_until > $1", "l", "t")
_QUEUES = SharedStatement(
    "SELECT t.id FROM @.threads t JOIN (SELECT thread, min(position) AS first FROM @.inputs"
    " WHERE NOT parked AND kind <> 'stop' AND kind <> 'webhook' GROUP BY thread) q ON t.id = q.thread"
    " WHERE t.owner IS NULL OR t.lease_until <= $1 ORDER BY q.first",
    "l",
    "d",
)
# Two halves, for each has an index of its own.
_STOPPED = SharedStatement(
    "SELECT id FROM @.threads WHERE owner IS NULL AND status = 'running'"
    " UNION ALL SELECT id FROM @.threads WHERE owner IS NOT NULL AND lease_until <= $1 AND status = 'running' LIMIT $2",
    "ll",
    "d",
)
_STILL_QUEUED = SharedStatement(
    "SELECT position FROM @.inputs WHERE position >= $1 AND position <= $2 AND kind = 'input'", "ll", "i"
)
_KEY = ", ".join(SPENT_KEY)
_SPENT = SharedStatement(
    f"SELECT {_KEY}, {', '.join(f'CAST(sum({figure}) AS bigint)' for figure in SPENT_FIGURES)} FROM @.spent"  # noqa: S608 – constants only
    " WHERE day >= coalesce($1, day) AND day <= coalesce($2, day) AND agent_key = coalesce($3, agent_key)"
    f" AND thread = coalesce($4, thread) GROUP BY {_KEY} ORDER BY {_KEY}",
    "lltd",
    "itt" + "i" * len(SPENT_FIGURES),
)


def thread(thread_id: str) -> Work[ThreadRow | None]:
    rows = yield from one(READ_THREAD(thread_id))
    return thread_row(rows[0]) if rows else None


def threads(
    *,
    cursor: str | None = None,
    limit: int = 50,
    status: str | None = None,
    agent_key: str | None = None,
    user: str | None = None,
) -> Work[list[ThreadRow]]:
    given = (status, agent_key, cursor, limit)
    rows = yield from one(_THREADS(*given) if user is None else _THREADS_OF_USER(*given, user))
    # A page after the last thread is empty too; only the thread of the cursor tells the two apart.
    if not rows and cursor is not None and (yield from thread(cursor)) is None:
        raise errors.unknown_thread(cursor)
    return [thread_row(row) for row in rows]


def thread_count(status: str) -> Work[int]:
    rows = yield from one(_THREAD_COUNT(status))
    return int(rows[0][0])


def open_interrupts(
    *,
    thread_id: str | None = None,
    owner: str | None = None,
    role: str | None = None,
    agent_key: str | None = None,
    user: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Work[list[OpenInterrupt]]:
    at, interrupt_id = (None, None) if cursor is None else parse_cursor(cursor)
    statement = _OPEN_OF_THREAD if thread_id is not None else _OPEN if user is None else _OPEN_OF_USER
    rows = yield from one(statement(thread_id, owner, role, agent_key, at, interrupt_id, limit, user))
    return [interrupt_row(row) for row in rows]


def due(before: int) -> Work[list[OpenInterrupt]]:
    return [interrupt_row(row) for row in (yield from one(_DUE(before)))]


def find_run(run_id: str) -> Work[str | None]:
    rows = yield from one(_RUN(run_id))
    return rows[0][0] if rows else None


def runs(
    *,
    thread_id: str | None = None,
    agent_key: str | None = None,
    user: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Work[list[tuple[str, ThreadRow]]]:
    given = (cursor, agent_key, user, limit)
    if thread_id is not None:
        query = _RUNS_OF_THREAD(*given, thread_id)
    else:
        query = _RUNS_OF_ALL(*given) if user is None else _RUNS_OF_USER(*given)
    return [(row[0], thread_row(row[1:])) for row in (yield from one(query))]


def document(digest: str) -> Work[bytes | None]:
    rows = yield from one(READ_DOCUMENT(digest))
    return rows[0][0] if rows else None


def note(name: str) -> Work[bytes | None]:
    rows = yield from one(READ_NOTE(name))
    return rows[0][0] if rows else None


def queue(
    thread_id: str | None = None, *, kind: str | None = None, owner: str | None = None, limit: int = 100
) -> Work[list[Queued]]:
    return [queue_row(row) for row in (yield from one(_QUEUE(thread_id, kind, owner, limit)))]


def unparked(kind: str, *, limit: int = 1000) -> Work[list[tuple[Queued, ThreadRow]]]:
    return [(queue_row(row[:5]), thread_row(row[5:])) for row in (yield from one(_UNPARKED(kind, limit)))]


def queue_size(kind: str) -> Work[int]:
    rows = yield from one(_QUEUE_SIZE(kind))
    return int(rows[0][0])


def still_queued(first: int, last: int) -> Work[set[int]]:
    return {position for (position,) in (yield from one(_STILL_QUEUED(first, last)))}


def queues(now: int) -> Work[tuple[list[str], list[str]]]:
    """Threads with a queue whose lease has lapsed or that nobody has, and the owners of leases that last."""
    return (yield from _beside_owners(now, _QUEUES(now)))


def stopped(now: int, limit: int) -> Work[tuple[list[str], list[str]]]:
    """Threads whose run lost its process, and the owners of leases that last."""
    return (yield from _beside_owners(now, _STOPPED(now, limit)))


def _beside_owners(now: int, query: Query) -> Work[tuple[list[str], list[str]]]:
    owners, rows = yield [_OWNERS(now), query]
    return [name for (name,) in rows], [owner for (owner,) in owners]


def spent(
    *,
    since: int | None = None,
    until: int | None = None,
    agent_key: str | None = None,
    thread_id: str | None = None,
) -> Work[list[Spent]]:
    return [spent_from(row) for row in (yield from one(_SPENT(since, until, agent_key, thread_id)))]
