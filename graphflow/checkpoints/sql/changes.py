"""Changes that are no commits: making, forking and deleting threads, leases, documents, notes, the queue."""

from __future__ import annotations

import functools

from graphflow.checkpoints import errors
from graphflow.checkpoints.rows import SPENT_FIGURES, Lineage, Spent, ThreadFacts, ThreadRow
from graphflow.checkpoints.sql.rows import ADD_RUN, ADD_SPENT, READ_THREAD, add_thread, thread_row
from graphflow.checkpoints.sql.statement import Ask, Dialect, Query, SharedStatement, Work, one
from graphflow.checkpoints.sql.trees import CHILDREN, reach

_RENEW = SharedStatement("UPDATE @.threads SET lease_until = $2 WHERE owner = $1 AND lease_until < $2", "tl")
_LAPSE = SharedStatement("UPDATE @.threads SET lease_until = 0 WHERE owner = $1", "t")
_RELEASE = SharedStatement("UPDATE @.threads SET owner = NULL, lease_until = 0 WHERE id = $1 AND fence = $2", "dl")
LOCK_THREAD = SharedStatement("SELECT owner FROM @.threads WHERE id = $1 AND status IS NOT NULL @lock", "d", "t")
_DROP_THREAD = SharedStatement("DELETE FROM @.threads WHERE id = $1 AND owner IS NULL", "d")
_BURY_THREAD = SharedStatement(
    "UPDATE @.threads SET status = NULL, updated_at = 0, head = NULL, lineage = NULL, ordinal = 0, owner = NULL,"
    " lease_until = 0@token, run = NULL, document = NULL, agent_key = NULL, title = NULL, created_at = 0, user_name = NULL, about = NULL"
    " WHERE id = $1 AND owner IS NOT NULL",
    "d",
)
_DROP_OWN = [
    _DROP_THREAD,
    _BURY_THREAD,
    *(SharedStatement(f"DELETE FROM @.{table} WHERE thread = $1", "d") for table in ("interrupts", "runs", "inputs")),  # noqa: S608 – constants only
    SharedStatement("UPDATE @.lineages SET thread = NULL WHERE thread = $1", "d"),
]
_SPENT = SharedStatement(
    f"SELECT {', '.join(Spent.__struct_fields__)} FROM @.spent WHERE thread = $1 ORDER BY day, agent_key, model",  # noqa: S608 – constants only
    "d",
    "itt" + "i" * len(SPENT_FIGURES),
)
_DROP_SPENT = SharedStatement("DELETE FROM @.spent WHERE thread = $1", "d")
NUMBER = SharedStatement("SELECT 1 FROM @.lineages WHERE number = $1", "l", "i")
_ADD_LINEAGE = SharedStatement(
    "INSERT INTO @.lineages (number, thread, parent, cut, pruned) VALUES ($1, $2, @key3, $4, $5)", "ldlii"
)
PUT_DOCUMENT = SharedStatement("INSERT INTO @.documents (digest, data) VALUES ($1, $2) ON CONFLICT DO NOTHING", "ty")
_PUT_NOTE = SharedStatement(
    "INSERT INTO @notes (@note, data) VALUES ($1, $2) ON CONFLICT (@note) DO UPDATE SET data = excluded.data", "ny"
)
_FIRST_NOTE = SharedStatement("INSERT INTO @notes (@note, data) VALUES ($1, $2) ON CONFLICT DO NOTHING", "ny")
_SWAP_NOTE = SharedStatement("UPDATE @notes SET data = $2 WHERE @note = $1 AND data = $3", "nyy")
_DESCRIBE = SharedStatement(
    "UPDATE @.threads SET about = $2, updated_at = @greatest(updated_at, $4)"
    " WHERE id = $1 AND status IS NOT NULL AND coalesce(about, '') = coalesce($3, '')",
    "dttl",
)
_LOCK_RESTING = SharedStatement(
    "SELECT fence FROM @.threads WHERE id = $1 AND fence = $2 AND status IN ('waiting', 'stopped') @lock", "dl", "i"
)
_PARK = SharedStatement("UPDATE @.inputs SET parked = true WHERE thread = $1 AND kind = 'input' AND NOT parked", "d")
_PARK_ONE = SharedStatement("UPDATE @.inputs SET parked = true WHERE thread = $1 AND position = $2", "dl")
_UNPARK = SharedStatement("UPDATE @.inputs SET parked = false WHERE thread = $1 AND parked AND kind = 'input'", "d")
_ATTEMPT = SharedStatement(
    "UPDATE @.threads SET attempts = CASE WHEN attempted = $2 THEN attempts + 1 ELSE 1 END, attempted = $2"
    " WHERE id = $1 RETURNING attempts",
    "dd",
    "i",
)
_WITHDRAW = SharedStatement("DELETE FROM @.inputs WHERE position = $2 AND thread = $1", "dl")
_DROP_RUN = SharedStatement("DELETE FROM @.runs WHERE run = $1", "d")


def assign(thread_id: str, user: str, *, now: int) -> Work[str | None]:
    facts = ThreadFacts(status="idle", updated_at=now, user=user)
    while True:
        # If two callers insert at once one of them wins; the read says which.
        _, rows = yield [add_thread(thread_id, facts, now), READ_THREAD(thread_id)]
        if rows:  # else deleted between the two statements
            return thread_row(rows[0]).facts.user


def describe(thread_id: str, about: str | None, *, instead_of: str | None, now: int) -> Work[bool]:
    changed, there = yield [_DESCRIBE(thread_id, about, instead_of, now), READ_THREAD(thread_id)]
    if not there:
        raise errors.unknown_thread(thread_id)
    return bool(changed)


def renew(owner: str, lease_until: int) -> Work[None]:
    yield [_RENEW(owner, lease_until)]


def release(thread_id: str, fence: int) -> Work[None]:
    yield [_RELEASE(thread_id, fence)]


def lapse(owner: str) -> Work[None]:
    """Ends the leases of an owner that is dead."""
    yield [_LAPSE(owner)]


def park(thread_id: str, fence: int, *, position: int | None = None) -> Work[None]:
    # The lock makes whoever takes the thread meanwhile come after this, or this find another fence: `unpark` misses nothing.
    if (yield from one(_LOCK_RESTING(thread_id, fence))):
        yield [_PARK(thread_id) if position is None else _PARK_ONE(thread_id, position)]


def count_attempt(thread_id: str, checkpoint_id: str) -> Work[int]:
    rows = yield from one(_ATTEMPT(thread_id, checkpoint_id))
    if not rows:
        raise errors.unknown_thread(thread_id)
    return int(rows[0][0])


def add_lineage(lineage: Lineage, pruned: int = 0) -> Query:
    return _ADD_LINEAGE(lineage.number, lineage.thread_id, lineage.parent, lineage.cut, pruned)


def fork(
    db: Dialect, checkpoint_id: str, source_id: str, thread_id: str, number: int, facts: ThreadFacts
) -> Work[ThreadRow]:
    """One row for the thread and one for its lineage, however long the history is."""
    asked = [READ_THREAD(source_id), READ_THREAD(thread_id), NUMBER(number)]
    *_, source, there, taken = yield [*db.share_trees, *asked]
    if not source:
        raise errors.unknown_thread(source_id)
    found = yield from one(db.find_checkpoint(source_id, checkpoint_id))
    if not found:
        raise errors.unknown_checkpoint(source_id, checkpoint_id)
    if there:
        raise errors.exists(thread_id)
    if taken:
        raise errors.number_taken(number)
    parent, cut = found[0]
    _, added, rows = yield [
        add_lineage(Lineage(number=number, thread_id=thread_id, parent=parent, cut=cut)),
        add_thread(thread_id, facts, facts.updated_at, head=checkpoint_id, lineage=number),
        READ_THREAD(thread_id),
    ]
    # Another transaction may have made the thread since the check above.
    if not added:
        raise errors.exists(thread_id)
    return thread_row(rows[0])


def delete_thread(db: Dialect, thread_id: str) -> Work[None]:
    """Removes the thread, the lineages that nobody else reaches, and of the others the rows behind the last cut."""
    *_, row = yield [*db.lock_trees, LOCK_THREAD(thread_id)]
    if not row:
        return
    # The tree is read before the thread lets go of its lineages, by which it is found.
    reached = yield from reach(thread_id)
    # What was used stays used; by which thread is not told any more.
    cuts, spent, _ = yield [CHILDREN(thread_id), _SPENT(thread_id), _DROP_SPENT(thread_id)]
    children: dict[int, dict[int, int]] = {}
    for parent, child, cut in cuts:
        children.setdefault(parent, {})[child] = cut
    asks: list[Ask] = [ADD_SPENT("", *row) for row in spent]
    asks += [statement(thread_id) for statement in _DROP_OWN]
    for step in reversed(reached):  # children before parents
        if step.free:
            # A child shares its parent up to the cut, so the longest cut among the children says what has to stay.
            keep = max(children.get(step.number, {}).values(), default=-1)
            asks += drop_rows(db, step.number, keep + 1)
            if keep < 0:
                asks += drop_lineage(db, step.number)
                children.get(step.parent or 0, {}).pop(step.number, None)
    yield asks


def drop_rows(db: Dialect, lineage: int, first: int) -> list[Ask]:
    """Takes away the records from this ordinal on, and the log entries that they wrote."""
    asks: list[Ask] = [statement(lineage, first, LAST) for statement in record_drops(db)]
    return [*asks, db.drop_items(lineage, first - 1)]


LAST = (1 << 32) - 1
"""Beyond every ordinal."""


def record_drops(db: Dialect) -> list[SharedStatement]:
    """Statements that take away what is kept of the records of a lineage with ordinals in a range."""
    return [_drop_span(table) for table in db.record_tables]


@functools.cache
def _drop_span(table: str) -> SharedStatement:
    return SharedStatement(f"DELETE FROM @.{table} WHERE @span", "lll")  # noqa: S608 – constants only


def drop_lineage(db: Dialect, lineage: int) -> list[Ask]:
    return [statement(lineage) for statement in db.drop_lineage]


def put_document(digest: str, document: bytes) -> Work[None]:
    yield [PUT_DOCUMENT(digest, document)]


def put_note(name: str, note: bytes) -> Work[None]:
    yield [_PUT_NOTE(name, note)]


def swap_note(name: str, note: bytes, *, instead_of: bytes | None) -> Work[bool]:
    return bool((yield from one(_FIRST_NOTE(name, note) if instead_of is None else _SWAP_NOTE(name, note, instead_of))))


def enqueue(db: Dialect, thread_id: str, body: bytes, now: int, kind: str, run_id: str | None) -> Work[int]:
    rows = yield from one(db.enqueue(thread_id, now, kind, body))
    if not rows:
        raise errors.unknown_thread(thread_id)
    if run_id is not None:
        yield [ADD_RUN(run_id, thread_id)]
    return int(rows[0][0])


def withdraw(thread_id: str, position: int, *, run_id: str | None = None) -> Work[bool]:
    if not (yield from one(_WITHDRAW(thread_id, position))):
        return False
    # What comes first now may be one that does not wait for answers.
    yield [_UNPARK(thread_id)]
    if run_id is not None:
        yield [_DROP_RUN(run_id)]
    return True


def dequeue(db: Dialect, thread_id: str) -> Work[bytes | None]:
    rows = yield from one(db.dequeue(thread_id))
    return rows[0][0] if rows else None
