"""Changes of the PostgreSQL store that are no commits: taking, forking, deleting, importing, the queue.

What takes a `Pool` is one statement that may be sent again when its answer was lost with the connection; what takes a
`Transaction` is called again only when it left nothing (see `Pool.write`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphflow.checkpoints import errors as refusals
from graphflow.checkpoints import export
from graphflow.checkpoints.postgres.commits import (
    ADD_ITEM,
    ADD_RUN,
    BEGIN_LINEAGE,
    add_spent,
    interrupts_of,
    rows_of,
)
from graphflow.checkpoints.postgres.pipeline import (
    BYTEA,
    INTEGER,
    Call,
    PostgresError,
    Statement,
    array,
    bigint,
    integer,
)
from graphflow.checkpoints.postgres.pool import Pool, Transaction
from graphflow.checkpoints.postgres.reader import find_checkpoint, reach
from graphflow.checkpoints.postgres.rows import READ_THREAD, THREAD_COLUMNS, THREAD_TYPES, clean, thread_row
from graphflow.checkpoints.rows import SPENT_FIGURES, Rewrite, Spent, ThreadFacts, ThreadRow, spent_from

_MAY_TAKE = "(t.status IS NULL OR t.owner IS NULL OR t.lease_until <= $3 OR t.owner = $5 OR t.token = $6)"
_FENCE = "fence = CASE WHEN t.token = $6 AND t.owner = $2 THEN t.fence ELSE t.fence + 1 END"
_TAKE = Statement(
    f"UPDATE @.threads t SET owner = $2, lease_until = $4, token = $6, {_FENCE}"  # noqa: S608 – constants only
    f" WHERE id = $1 AND status IS NOT NULL AND {_MAY_TAKE} RETURNING {THREAD_COLUMNS}",
    "ttlltu",
    THREAD_TYPES,
)
_TAKE_OR_MAKE = Statement(
    "INSERT INTO @.threads AS t (id, status, updated_at, ordinal, fence, lease_until, owner, token, created_at)"  # noqa: S608 – constants only
    " VALUES ($1, 'idle', $3, 0, 1, $4, $2, $6, $3) ON CONFLICT (id) DO UPDATE SET owner = $2, lease_until = $4, token = $6,"
    f" {_FENCE}, updated_at = CASE WHEN t.status IS NULL THEN $3 ELSE t.updated_at END,"
    " created_at = CASE WHEN t.status IS NULL THEN $3 ELSE t.created_at END, status = coalesce(t.status, 'idle')"
    f" WHERE {_MAY_TAKE} RETURNING {THREAD_COLUMNS}",
    "ttlltu",
    THREAD_TYPES,
)
_RENEW = Statement("UPDATE @.threads SET lease_until = $2 WHERE owner = $1 AND lease_until < $2", "tl")
_RELEASE = Statement("UPDATE @.threads SET owner = NULL, lease_until = 0 WHERE id = $1 AND fence = $2", "tl")
LOCK_TREES = Statement("SELECT pg_advisory_xact_lock(hashtextextended('graphflow tree @', 0))")
_SHARE_TREES = Statement("SELECT pg_advisory_xact_lock_shared(hashtextextended('graphflow tree @', 0))")
LOCK_THREAD = Statement("SELECT owner FROM @.threads WHERE id = $1 AND status IS NOT NULL FOR UPDATE", "t", "t")
_ADD_THREAD = Statement(
    "INSERT INTO @.threads AS t (id, status, updated_at, head, lineage, ordinal, fence, run, document, agent_key, title,"  # noqa: S608 – constants only
    " created_at, user_name, owner, lease_until) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, NULL, 0)"
    " ON CONFLICT (id) DO UPDATE SET (status, updated_at, head, lineage, ordinal, fence, run, document, agent_key, title,"
    " created_at, user_name) = (excluded.status, excluded.updated_at, excluded.head, excluded.lineage, excluded.ordinal,"
    " greatest(t.fence, excluded.fence), excluded.run, excluded.document, excluded.agent_key, excluded.title,"
    f" excluded.created_at, excluded.user_name) WHERE t.status IS NULL RETURNING {THREAD_COLUMNS}",
    "ttltlilttttlt",
    THREAD_TYPES,
)
_DROP_THREAD = Statement("DELETE FROM @.threads WHERE id = $1 AND owner IS NULL", "t")
_BURY_THREAD = Statement(
    "UPDATE @.threads SET status = NULL, updated_at = 0, head = NULL, lineage = NULL, ordinal = 0, owner = NULL,"
    " lease_until = 0, token = NULL, run = NULL, document = NULL, agent_key = NULL, title = NULL, created_at = 0,"
    " user_name = NULL WHERE id = $1",
    "t",
)
_DROP_OWN = [
    Statement("DELETE FROM @.interrupts WHERE thread = $1", "t"),
    Statement("DELETE FROM @.runs WHERE thread = $1", "t"),
    Statement("DELETE FROM @.inputs WHERE thread = $1", "t"),
    Statement("UPDATE @.lineages SET thread = NULL WHERE thread = $1", "t"),
]
_LINEAGE = Statement(
    "SELECT l.thread IS NULL, coalesce((SELECT max(c.cut) FROM @.lineages c WHERE c.parent = l.number), -1)"
    " FROM @.lineages l WHERE l.number = $1",
    "l",
    "bi",
)
_DROP_BEHIND = [
    Statement("DELETE FROM @.records WHERE lineage = $1 AND ordinal > $2", "li"),
    Statement("DELETE FROM @.snapshots WHERE lineage = $1 AND ordinal > $2", "li"),
    Statement("DELETE FROM @.items WHERE lineage = $1 AND record > $2", "li"),
]
DROP_LINEAGE = Statement("DELETE FROM @.lineages WHERE number = $1", "l")
_PUT_DOCUMENT = Statement("INSERT INTO @.documents (digest, data) VALUES ($1, $2) ON CONFLICT DO NOTHING", "ty")
_PUT_NOTE = Statement(
    "INSERT INTO @.notes (name, data) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET data = excluded.data", "ty"
)
_FIRST_NOTE = Statement(
    "INSERT INTO @.notes (name, data) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING 1", "ty", "i"
)
_SWAP_NOTE = Statement("UPDATE @.notes SET data = $2 WHERE name = $1 AND data = $3 RETURNING 1", "tyy", "i")
_ENQUEUE = Statement(
    "INSERT INTO @.inputs (thread, at, kind, body) SELECT $1, $2, $3, $4 FROM @.threads"
    " WHERE id = $1 AND status IS NOT NULL RETURNING position",
    "tlty",
    "i",
)
_DEQUEUE = Statement(
    "DELETE FROM @.inputs WHERE position ="
    " (SELECT position FROM @.inputs WHERE thread = $1 AND kind = 'input' ORDER BY position LIMIT 1 FOR UPDATE)"
    " RETURNING body",
    "t",
    "y",
)
_WITHDRAW = Statement("DELETE FROM @.inputs WHERE position = $2 AND thread = $1 RETURNING position", "tl", "i")
_DROP_RUN = Statement("DELETE FROM @.runs WHERE run = $1", "t")
_ADD_LINEAGE = Statement(
    "INSERT INTO @.lineages (number, thread, parent, cut, pruned) VALUES ($1, $2, $3, $4, $5)", "ltlii"
)
_TAKEN_NUMBERS = Statement("SELECT number FROM @.lineages WHERE number = ANY($1)", "L", "i")
_ADD_ROWS = Statement(f"SELECT @.add_rows({', '.join(f'${n}' for n in range(1, 16))})")


async def take(
    pool: Pool,
    thread_id: str,
    owner: str,
    now: int,
    lease_until: int,
    *,
    create: bool,
    is_dead: Callable[[str], bool],
    token: bytes,
) -> ThreadRow:
    """The thread's row after the compare-and-swap of E2, which is one statement."""
    statement = _TAKE_OR_MAKE if create else _TAKE
    dead: str | None = None
    while True:
        taken, seen = await pool.do(
            statement(thread_id, owner, now, lease_until, dead, token), READ_THREAD(thread_id)
        )  # fmt: skip
        if taken:
            return thread_row(taken[0])
        if not seen:
            if create:  # deleted between the two statements
                continue
            raise refusals.unknown_thread(thread_id)
        row = thread_row(seen[0])
        if row.owner is None or row.lease_until <= now:  # given back between the two statements
            continue
        if row.owner == dead or not is_dead(row.owner):
            raise refusals.busy(thread_id, row.lease_until, now)
        dead = row.owner


async def assign(pool: Pool, thread_id: str, user: str, now: int) -> str | None:
    facts = ThreadFacts(status="idle", updated_at=now, user=user)
    while True:
        made, seen = await pool.do(_thread(thread_id, facts, now, None, None, 0, 0), READ_THREAD(thread_id))
        if found := made or seen:  # neither: deleted between the two statements
            return thread_row(found[0]).facts.user


async def renew(pool: Pool, owner: str, lease_until: int) -> None:
    await pool.do(_RENEW(owner, lease_until))


async def release(pool: Pool, thread_id: str, fence: int) -> None:
    await pool.do(_RELEASE(thread_id, fence))


async def fork(
    db: Transaction, checkpoint_id: str, source_id: str, thread_id: str, number: int, facts: ThreadFacts
) -> ThreadRow:  # fmt: skip
    """One row for the thread and one for its lineage, however long the history is."""
    _, source, there = await db.run(_SHARE_TREES(), READ_THREAD(source_id), READ_THREAD(thread_id))
    if not source:
        raise refusals.unknown_thread(source_id)
    found = await find_checkpoint(db, source_id, checkpoint_id)
    if found is None:
        raise refusals.unknown_checkpoint(source_id, checkpoint_id)
    if there:
        raise refusals.exists(thread_id)
    try:
        rows = await db.run(
            BEGIN_LINEAGE(number, thread_id, found.number, found.cut),
            _thread(thread_id, facts, facts.updated_at, checkpoint_id, number, 0, 0),
        )
    except PostgresError as error:
        if error.constraint == "lineages_pkey":
            raise refusals.number_taken(number) from error
        raise
    if not rows[1]:
        raise refusals.exists(thread_id)
    return thread_row(rows[1][0])


def _thread(
    thread_id: str, facts: ThreadFacts, created_at: int, head: str | None, lineage: int | None, ordinal: int, fence: int
) -> Call:  # fmt: skip
    """A new row; a namesake that was deleted while somebody drove it leaves its fence to it."""
    return _ADD_THREAD(
        thread_id, facts.status, facts.updated_at, head, lineage, ordinal, fence, facts.run_id, facts.document,
        facts.agent_key, clean(facts.title), created_at, facts.user,
    )  # fmt: skip


async def delete_thread(db: Transaction, thread_id: str) -> None:
    """Removes the thread, the lineages that nobody else reaches, and of the others the rows behind the last cut."""
    _, row = await db.run(LOCK_TREES(), LOCK_THREAD(thread_id))
    if not row:
        return
    reached = await reach(db, thread_id)
    await _forget_spender(db, thread_id)
    drop = _DROP_THREAD if row[0][0] is None else _BURY_THREAD
    await db.run(drop(thread_id), *[statement(thread_id) for statement in _DROP_OWN])
    for step in reversed(reached):  # children before parents
        await _drop_unreached(db, step.number)


_SPENT = Statement(
    f"SELECT {', '.join(Spent.__struct_fields__)} FROM @.spent WHERE thread = $1 ORDER BY day, agent_key, model",  # noqa: S608 – constants only
    "t",
    "itt" + "i" * len(SPENT_FIGURES),
)
_DROP_SPENT = Statement("DELETE FROM @.spent WHERE thread = $1", "t")


async def _forget_spender(db: Transaction, thread_id: str) -> None:
    """What was used stays used; by which thread is not told any more. `LOCK_TREES` keeps others from doing it at once."""
    rows, _ = await db.run(_SPENT(thread_id), _DROP_SPENT(thread_id))
    if rows:
        await db.run(*[add_spent("", spent_from(row)) for row in rows])


async def _drop_unreached(db: Transaction, lineage: int) -> None:
    """Deletes a lineage without owner and children; one with children keeps what the longest of them shares."""
    row = await db.row(_LINEAGE(lineage))
    if row is None or not row[0]:
        return
    keep = row[1]
    calls = [statement(lineage, keep) for statement in _DROP_BEHIND]
    await db.run(*calls, *([DROP_LINEAGE(lineage)] if keep < 0 else []))


async def put_document(pool: Pool, digest: str, document: bytes) -> None:
    await pool.do(_PUT_DOCUMENT(digest, document))


async def put_note(pool: Pool, name: str, note: bytes) -> None:
    await pool.do(_PUT_NOTE(name, note))


async def swap_note(db: Transaction, name: str, note: bytes, instead_of: bytes | None) -> bool:
    swap = _FIRST_NOTE(name, note) if instead_of is None else _SWAP_NOTE(name, note, instead_of)
    return bool(await db.rows(swap))


async def enqueue(
    db: Transaction, thread_id: str, body: bytes, now: int, kind: str = "input", run_id: str | None = None
) -> int:
    row = await db.row(_ENQUEUE(thread_id, now, kind, body))
    if row is None:
        raise refusals.unknown_thread(thread_id)
    if run_id is not None:
        await db.run(ADD_RUN(run_id, thread_id))
    return int(row[0])


async def withdraw(db: Transaction, thread_id: str, position: int, run_id: str | None) -> bool:
    if await db.row(_WITHDRAW(thread_id, position)) is None:
        return False
    if run_id is not None:
        await db.run(_DROP_RUN(run_id))
    return True


async def dequeue(db: Transaction, thread_id: str) -> bytes | None:
    row = await db.row(_DEQUEUE(thread_id))
    return None if row is None else bytes(row[0])


async def import_thread(
    db: Transaction, exported: export.ThreadCopy, thread_id: str | None, change: Rewrite | None = None
) -> str:  # fmt: skip
    numbers = [lineage.number for lineage in exported.lineages]
    name = thread_id or exported.thread.thread_id
    _, taken, there = await db.run(_SHARE_TREES(), _TAKEN_NUMBERS(numbers), READ_THREAD(name))
    if there:
        raise refusals.exists(name)
    # A fresh number is 62 random bits, so only those that the export brings along can collide.
    copy = export.placed(exported, thread_id, {number for (number,) in taken}.__contains__, change)
    row = copy.thread
    pruned = export.last_gaps(copy)
    for lineage in copy.lineages:
        number = lineage.number
        await db.run(_ADD_LINEAGE(number, name, lineage.parent, lineage.cut, pruned.get(number, 0)))
        for part in _parts([record for record in copy.records if record.lineage == number]):
            await db.run(_rows(number, part))
    for part in _parts(copy.items):
        await db.run(*[ADD_ITEM(i.lineage, i.frame, i.channel, i.ordinal, i.record, i.data) for i in part])
    rows = await db.run(
        _thread(name, row.facts, row.created_at, row.head, row.lineage, row.ordinal, row.fence),
        *interrupts_of(copy.interrupts),
        *[ADD_RUN(run, name) for run in copy.runs],
    )
    if not rows[0]:
        raise refusals.exists(name)
    for part in _parts(copy.queue):
        await db.run(*[_ENQUEUE(name, queued.at, queued.kind, queued.body) for queued in part])
    for document in copy.documents:
        await db.run(_PUT_DOCUMENT(document.digest, document.data))
    return name


def _parts(records: Sequence[Any], size: int = 500) -> list[Sequence[Any]]:
    return [records[at : at + size] for at in range(0, len(records), size)]


def _rows(lineage: int, records: Sequence[Any]) -> Call:
    snapshots = [record for record in records if record.snapshot is not None]
    return Call(
        _ADD_ROWS,
        [
            bigint(lineage), array(INTEGER, [integer(record.ordinal) for record in records]), *rows_of(records),
            array(INTEGER, [integer(record.ordinal) for record in snapshots]),
            array(BYTEA, [record.snapshot for record in snapshots]),
        ],
    )  # fmt: skip
