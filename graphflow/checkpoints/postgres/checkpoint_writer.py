"""Queued commits as statements for PostgreSQL: what an epoch is known to be, and several commits of one epoch as one call."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from graphflow.checkpoints import errors
from graphflow.checkpoints.blobs import stored_size
from graphflow.checkpoints.commit_queue import Promise
from graphflow.checkpoints.ids import clean_title
from graphflow.checkpoints.postgres.driver import native
from graphflow.checkpoints.postgres.pipeline import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    INTEGER,
    TEXT,
    Call,
    PostgresError,
    Statement,
    array,
    bigint,
    boolean,
    integer,
    text,
)
from graphflow.checkpoints.rows import Record, ThreadFacts
from graphflow.checkpoints.sql.rows import ADD_INTERRUPT, ADD_RUN, ADD_SPENT, interrupt_values
from graphflow.errors import StoreError

_NOT_MOVED, INPUT_GONE, PRUNED = "GF001", "GF002", "GF003"
"""What the functions of the migrations raise."""

_COMMIT_RUN = Statement(f"SELECT @.commit_run({', '.join(f'${n}' for n in range(1, 25))})")
FEW_ROWS = 6
"""So many rows are quicker one by one than as arrays, which PostgreSQL unfolds through a buffer."""

_MOVE_HEAD = Statement(
    "UPDATE @.threads SET lineage = $5, ordinal = $6, head = $4, status = $7, updated_at = $8, run = $9, document = $10,"
    " agent_key = $11, title = $12, owner = CASE WHEN $13 THEN NULL ELSE owner END,"
    " lease_until = CASE WHEN $13 THEN 0 ELSE lease_until END"
    " WHERE id = $1 AND fence = $2 AND head IS NOT DISTINCT FROM $3 AND owner IS NOT NULL",
    "tlttlitltttt" + "b",
)
_ADD_RECORD = Statement(
    "INSERT INTO @.records (lineage, ordinal, size, checkpoint, effect, id, meta, data) VALUES"
    " ((SELECT lineage FROM @.threads WHERE id = $1 AND fence = $2 AND head = $3), $4, $5, $6, $7, $8, $9, $10)",
    "tltiibbtyy",
)
"""Without a head that has moved it has no lineage and fails, and with it the transaction."""
ADD_ITEM = Statement(
    "INSERT INTO @.items (lineage, frame, channel, ordinal, record, data) VALUES ($1, $2, $3, $4, $5, $6)", "lltiiy"
)
BEGIN_LINEAGE = Statement("SELECT @.begin_lineage($1, $2, $3, $4)", "ltli")
_ADD_SNAPSHOT = Statement("INSERT INTO @.snapshots (lineage, ordinal, data) VALUES ($1, $2, $3)", "liy")
_CLOSE_INTERRUPTS = Statement("DELETE FROM @.interrupts WHERE thread = $1 AND id = ANY($2)", "tT")
_CONSUME = Statement("SELECT @.consume($1, $2)", "lt")


class PostgresEpoch:
    """What the store remembers of a thread that it drives, so that a commit reads nothing."""

    __slots__ = ("fence", "head", "lineage", "ordinal", "released", "run_id")

    def __init__(self, fence: int, head: str | None, lineage: int | None, ordinal: int) -> None:
        self.fence = fence
        self.head = head
        self.lineage = lineage
        self.ordinal = ordinal
        self.run_id: str | None = None
        """The last that the index of runs was told of."""
        self.released = False


_ADD_INTERRUPT, _ADD_RUN, _ADD_SPENT = native(ADD_INTERRUPT), native(ADD_RUN), native(ADD_SPENT)


class RecordRun:
    """Consecutive commits of one epoch, of which only the first may begin a lineage."""

    __slots__ = ("before", "promises")

    def __init__(self, before: str | None) -> None:
        self.before = before
        """The head that the first of them expects."""
        self.promises: list[Promise] = []


def accept(epoch: PostgresEpoch, promise: Promise) -> StoreError | None:
    """Moves the epoch along the commit, or says why it does not follow."""
    thread_id = promise.thread_id
    if epoch.released:
        return errors.fenced_released(thread_id, promise.fence)
    if epoch.head != promise.expected_head:
        return errors.fenced_head(thread_id, promise.expected_head, epoch.head)
    lineage, ordinal = epoch.lineage, epoch.ordinal
    if promise.begins is not None:
        lineage, ordinal = promise.begins.number, 0
    for record in promise.records:
        ordinal += 1
        if record.lineage != lineage:
            return errors.wrong_lineage(thread_id, record.lineage, lineage)
        if record.ordinal != ordinal:
            return errors.wrong_ordinal(thread_id, record.ordinal, ordinal)
    epoch.lineage, epoch.ordinal = lineage, ordinal
    if promise.records:
        epoch.head = promise.records[-1].id
    epoch.released = promise.release
    return None


def calls_of(run: RecordRun, epoch: PostgresEpoch) -> list[Call]:
    """The statements of a run whose commits were all accepted by the epoch, in the order in which they have to come."""
    first, last = run.promises[0], run.promises[-1]
    records = [record for promise in run.promises for record in promise.records]
    lineage = records[-1].lineage if records else epoch.lineage
    calls: list[Call] = []
    if first.begins is not None:
        begins = first.begins
        lineage = begins.number
        calls.append(BEGIN_LINEAGE(begins.number, begins.thread_id, begins.parent, begins.cut))
    head = records[-1].id if records else run.before
    ordinal = records[-1].ordinal if records else (0 if first.begins is not None else epoch.ordinal)
    facts = last.facts
    guard = (first.thread_id, first.fence)
    moved = _MOVE_HEAD(
        *guard, run.before, head, lineage, ordinal, facts.status, facts.updated_at, facts.run_id, facts.document,
        facts.agent_key, clean_title(facts.title), last.release,
    )  # fmt: skip
    # The head moves first: the rows after it name the fence again and fail with it, in the same round trip.
    if 0 < sum(1 + len(record.items) for record in records) <= FEW_ROWS:
        calls.append(moved)
        for record in records:
            calls.append(
                _ADD_RECORD(
                    *guard, head, record.ordinal, stored_size(record), record.checkpoint, record.effect, record.id,
                    record.meta, record.data,
                )
            )  # fmt: skip
            calls += [
                ADD_ITEM(record.lineage, item.frame, item.channel, item.ordinal, record.ordinal, item.data)
                for item in record.items
            ]
    else:
        calls.append(Call(_COMMIT_RUN, [*moved.parameters, *rows_of(records)]))
    # Rare rows come after the frequent ones, each as a statement that stays prepared.
    for record in records:
        if record.snapshot is not None:
            calls.append(_ADD_SNAPSHOT(record.lineage, record.ordinal, record.snapshot))
        if record.closed:
            calls.append(_CLOSE_INTERRUPTS(first.thread_id, record.closed))
        calls += [_ADD_INTERRUPT(*interrupt_values(interrupt)) for interrupt in record.opened]
        if record.spent is not None:
            calls.append(_ADD_SPENT(first.thread_id, *msgspec.structs.astuple(record.spent)))
    for promise in run.promises:
        run_id = promise.facts.run_id
        if run_id is not None and run_id != epoch.run_id:
            calls.append(_ADD_RUN(run_id, first.thread_id))
            epoch.run_id = run_id
        if promise.consumes is not None:
            calls.append(_CONSUME(promise.consumes, first.thread_id))
    return calls


def facts_kept(facts: ThreadFacts, before: ThreadFacts) -> ThreadFacts:
    """What the thread's row says after a commit of these facts, which leaves some of those before as they are."""
    return msgspec.structs.replace(facts, title=clean_title(facts.title), user=before.user, about=before.about)


_NO_ITEMS = [array(BIGINT, ()), array(TEXT, ()), array(INTEGER, ()), array(INTEGER, ()), array(BYTEA, ())]


def rows_of(records: Sequence[Record]) -> list[bytes]:
    """Records and their items as arrays, one per column."""
    items = [(record.ordinal, item) for record in records for item in record.items]
    return [
        array(TEXT, [text(record.id) for record in records]),
        array(BOOLEAN, [boolean(record.checkpoint) for record in records]),
        array(BOOLEAN, [boolean(record.effect) for record in records]),
        array(INTEGER, [integer(stored_size(record)) for record in records]),
        array(BYTEA, [record.meta for record in records]),
        array(BYTEA, [record.data for record in records]),
        *(_NO_ITEMS if not items else [
            array(BIGINT, [_frame(item.frame) for _, item in items]),
            array(TEXT, [text(item.channel) for _, item in items]),
            array(INTEGER, [integer(item.ordinal) for _, item in items]),
            array(INTEGER, [integer(ordinal) for ordinal, _ in items]),
            array(BYTEA, [item.data for _, item in items]),
        ]),
    ]  # fmt: skip


def _frame(number: int) -> bytes:
    frame = bigint(number)
    assert frame is not None
    return frame


def weight(promise: Promise) -> int:
    """Roughly the bytes that a commit sends."""
    total = 256
    for record in promise.records:
        total += 256 + len(record.data) + len(record.snapshot or b"")
        for item in record.items:
            total += len(item.data)
    return total


def is_not_moved(error: PostgresError) -> bool:
    """Whether the thread is not where its epoch left it."""
    return error.state == _NOT_MOVED or (error.state == "23502" and error.column == "lineage")


def refusal(error: PostgresError, promise: Promise) -> StoreError | None:
    """What the server's refusal means in the port's words; None when it says nothing of the commit itself."""
    if error.state == INPUT_GONE:
        return errors.queue_gone(promise.thread_id, promise.consumes or 0)
    begins = promise.begins
    if begins is not None and error.state == PRUNED:
        return errors.pruned_parent(begins.number, begins.parent or 0, begins.cut)
    if begins is not None and error.constraint == "lineages_parent":
        return errors.unknown_parent(begins.number, begins.parent or 0)
    if begins is not None and error.constraint == "lineages_pkey":
        return errors.number_taken(begins.number)
    return None


OUTCOME = Statement("SELECT id FROM @.records WHERE lineage = $1 AND ordinal = $2", "li", "t")
"""The id that a record got: whether a commit whose answer was lost is there."""
