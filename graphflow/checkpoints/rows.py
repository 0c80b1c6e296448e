"""The rows of a store: what the `Checkpointer` port takes and gives (E3, E4).

A store keeps rows and knows nothing of graphs: the bytes in `meta`, `data`, `items` and `snapshot` are written by
`record_encoder.py` and read by `record_decoder.py`.

A thread's history is a chain of *lineages*: a lineage begins at the thread's start, at a fork, a rewind or an edit, and
names its parent and the cut (the last ordinal of the parent that it shares). Reading a thread walks that chain; nothing is
copied (E4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from graphflow.checkpoints.ids import check_text
from graphflow.errors import StoreError
from graphflow.excerpts import excerpt_of


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """One branch of history; `number` is drawn at random by its creator and unique in the store."""

    number: int
    thread_id: str
    """The thread that began it."""
    parent: int | None = None
    cut: int = 0
    """Records of the parent up to this ordinal belong to this lineage too."""


class LogItem(msgspec.Struct, frozen=True, gc=False):
    """One entry of an append channel's log, keyed (lineage, frame, channel, ordinal) (E4)."""

    frame: int
    channel: str
    ordinal: int
    """0.. within (frame, channel), never reused in a chain of lineages."""
    data: bytes


class OpenInterrupt(msgspec.Struct, frozen=True, kw_only=True):
    """What the inbox and the sweep need to know of an open interrupt."""

    interrupt_id: str
    thread_id: str
    run_id: str
    kind: str
    node: str
    owner: str | None = None
    role: str | None = None
    agent_key: str | None = None
    opened_at: int = 0
    """Epoch ms."""
    due_at: int | None = None
    """Epoch ms of its expiry or timer; None waits for ever."""
    data: bytes = b""
    """The interrupt in full, encoded by the codec."""

    @property
    def cursor(self) -> str:
        """Where the page after this one begins; it stays valid when the interrupt is answered meanwhile."""
        return f"{self.opened_at}:{self.interrupt_id}"


def parse_cursor(cursor: str) -> tuple[int, str]:
    """`(opened_at, interrupt id)` of an `OpenInterrupt.cursor`.

    Raises:
        StoreError: `invalid_input` when it is not one.
    """
    at, colon, interrupt_id = cursor.partition(":")
    if not colon or not at.isascii() or not at.isdigit() or len(at) > 18:  # more digits are no 64-bit integer
        raise StoreError(
            f"{excerpt_of(cursor)} is not a cursor of open interrupts: pass `OpenInterrupt.cursor`",
            code="invalid_input",
        )
    check_text(interrupt_id)
    return int(at), interrupt_id


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What was used on one day (UTC), by one agent, of one model: a line of the store's ledger."""

    day: int
    """Days since 1970-01-01."""
    agent_key: str = ""
    model: str = ""
    """`provider/model`; empty for what belongs to no model (tool calls, time)."""
    model_calls: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    active_ms: int = 0
    cost: int = 0
    """Of the calls whose price is known, in 10⁻¹² USD."""
    uncounted: int = 0
    """Model calls whose tokens nobody reported."""
    unpriced: int = 0
    """Model calls whose cost is not known."""


SPENT_KEY = ("day", "agent_key", "model")

SPENT_FIGURES = tuple(name for name in Spent.__struct_fields__ if name not in SPENT_KEY)


def summed(rows: Iterable[Spent]) -> list[Spent]:
    """One line per day, agent and model, in that order."""
    out: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        values = msgspec.structs.astuple(row)
        key, figures = values[: len(SPENT_KEY)], values[len(SPENT_KEY) :]
        old = out.get(key)
        out[key] = list(figures) if old is None else [a + b for a, b in zip(old, figures, strict=True)]
    return [spent_from((*key, *figures)) for key, figures in sorted(out.items())]


def spent_from(values: Iterable[Any]) -> Spent:
    """The line whose fields have these values, in their order."""
    return Spent(**dict(zip(Spent.__struct_fields__, values, strict=True)))


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of the journal: what one tick changed (E3)."""

    id: str
    """UUIDv7; of a checkpoint it is the checkpoint id."""
    lineage: int
    ordinal: int
    """1.. within the lineage, without gaps."""
    checkpoint: bool
    """False for records that history does not show (operation recorded, retry, recovered, …)."""
    meta: bytes
    """Small: what `list_checkpoints` and `tree` need (source, step, nodes, run, time). Never a value of the state."""
    data: bytes
    """The patch, the events sent since the record before, and what no rule derives."""
    items: tuple[LogItem, ...] = ()
    snapshot: bytes | None = None
    """The whole Machine but its append channels, after this record (E4)."""
    opened: tuple[OpenInterrupt, ...] = ()
    closed: tuple[str, ...] = ()
    """Ids of interrupts that this record answers, expires or voids."""
    effect: bool = False
    """It tells of a `write` effect: `read_effects` finds it without looking at the others, and a prune leaves it while a
    checkpoint before it is left, so that a rewind to there can still offer its choices (E8). Other reads leave it False."""
    spent: Spent | None = None
    """What its tick has used; the store's ledger gets it with the same commit. Reads leave it None."""


class ThreadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a thread's row that each commit carries along."""

    status: str
    """`idle`, `running`, `waiting`, `failed` or `stopped` (spec 3.2)."""
    run_id: str | None = None
    document: str | None = None
    """Hash of the document that the thread is pinned to (E23)."""
    agent_key: str | None = None
    title: str | None = None
    updated_at: int = 0
    user: str | None = None
    """Whose it is; None is nobody's in particular. Set when the thread is made (`assign`, a fork); commits leave it as it is."""
    about: str | None = None
    """What people have written about it (`thread_about.py`). Set by `describe` and a fork; commits leave it as it is."""


class ThreadRow(msgspec.Struct, frozen=True, kw_only=True):
    """A thread as the store has it."""

    thread_id: str
    facts: ThreadFacts
    head: str | None
    """Id of the newest record of any kind; None before the first."""
    lineage: int | None
    ordinal: int
    fence: int
    owner: str | None
    """`host/boot id/uuid` of the process that drives it; None when nobody does."""
    lease_until: int
    """Epoch ms; a lease that is past may be taken."""
    created_at: int
    queued: bool = False
    """Inputs wait for their turn on this thread."""


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a thread, in the order in which it came."""

    thread_id: str
    position: int
    """Grows in the order of arrival on one thread, never used twice."""
    kind: str
    """`input` (its turn comes when the run is over), `signal` (for the thread's driver), or `stop` (asks the owner
    of an epoch to cancel its run)."""
    body: bytes
    at: int
    """Epoch ms."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What `load` found: the thread, its chain of lineages, and the records since the last snapshot."""

    thread: ThreadRow
    chain: tuple[tuple[int, int], ...]
    """(lineage, cut) from the oldest lineage to the target's; the last cut is the target's ordinal.

    At the head the last entry is `(thread.lineage, thread.ordinal)`, also when that lineage is still empty.
    """
    snapshot: bytes | None
    records: tuple[Record, ...]
    """After the snapshot, oldest first, up to the target; `items` empty (see `read_items`)."""
    target: Record | None = None
    """The record that was loaded at, without items, also when its snapshot spares `records`; None before the first."""


class Log(msgspec.Struct, frozen=True):
    """Which entries of an append channel's log to read: ordinals `start` to `count - 1`."""

    frame: int
    channel: str
    count: int
    start: int = 0
    """Where the newest compaction row lies, if there is one."""


class Span(msgspec.Struct, frozen=True):
    """Records of one lineage with ordinals in (after, upto]."""

    lineage: int
    after: int
    upto: int


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """Which checkpoints a prune leaves in a thread's history: those that any of the conditions names.

    What has to stay whatever is named here is described at `Checkpointer.prune`.
    """

    newest: int | None = None
    """So many of the newest, of all branches together."""
    since: int | None = None
    """Those made at this moment or later, epoch ms, by the time in their ids (UUIDv7); an id without one is kept."""
    records: tuple[tuple[int, int], ...] = ()
    """(lineage, ordinal) of records that stay although no checkpoint needs them: those whose results the head
    may reuse. They alone are no condition."""


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What a prune took away."""

    checkpoints: int
    """Gone from the history."""
    records: int
    """Rows removed; fewer or more than `checkpoints`, since a row stays while a kept checkpoint builds on it."""
    size: int
    """Bytes of these rows and their snapshots."""
    kept: int
    """Checkpoints that may be pruned and were left."""


class ListedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of history: metadata only, no state is decoded."""

    id: str
    parent: str | None
    """The checkpoint before it in its lineage, or where the lineage was cut."""
    lineage: int
    ordinal: int
    meta: bytes
    size: int
    """Stored bytes of the record, its items and its snapshot."""


class Place(msgspec.Struct, frozen=True):
    """Where a blob stands; what `encryption` binds it to, so that rows can't be swapped."""

    kind: Literal["record", "snapshot", "item", "interrupt", "document", "input", "title", "about"]
    name: str = ""
    """Id of the record; thread and interrupt of an `interrupt`, with a space between; digest of a document; thread of
    an input, a title or what is written about it."""
    lineage: int = 0
    ordinal: int = 0
    """Of records, snapshots and items."""
    frame: int = 0
    channel: str = ""
    record: int = 0
    """Of an item: ordinal of the record that wrote it."""


Rewrite = Callable[[Place, bytes], bytes]

ENCRYPTION_NOTE = "seal"
"""Name of the note by which a store says how its blobs are encrypted (`encryption/note.py`)."""


class LooseItem(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of an append channel's log whose record was pruned; later states still have it."""

    lineage: int
    record: int
    """Ordinal of the record that wrote it."""
    frame: int
    channel: str
    ordinal: int
    data: bytes
