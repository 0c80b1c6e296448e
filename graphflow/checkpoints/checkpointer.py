"""The checkpointer port: what a store of threads must do (spec 4.1, rules E2 to E4).

A store keeps rows and knows nothing of graphs: the bytes in `meta`, `data`, `items` and `snapshot`
are made and read by `journal.py`. Everything is append-only but the thread row, the leases, the
open interrupts and the queue.

A thread's history is a chain of *lineages*: a lineage begins at the thread's start, at a fork, a
rewind or an edit, and names its parent and the cut (the last ordinal of the parent that it shares).
Reading a thread walks that chain; nothing is copied (E4).
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from graphflow.errors import StoreError
from graphflow.graph.ports import Durable

__all__ = [
    "Checkpointer",
    "Durable",
    "Item",
    "Keep",
    "Lineage",
    "ListedRecord",
    "OpenInterrupt",
    "Place",
    "Pruned",
    "Queued",
    "Record",
    "Span",
    "Spent",
    "Stored",
    "ThreadFacts",
    "ThreadRow",
]


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """One branch of history; `number` is drawn by whoever begins it and unique in the store."""

    number: int
    thread_id: str
    """The thread that began it."""
    parent: int | None = None
    cut: int = 0
    """Records of the parent up to this ordinal belong to this lineage too."""


class Item(msgspec.Struct, frozen=True, gc=False):
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
    """`(opened_at, interrupt id)` of an `OpenInterrupt.cursor`."""
    at, colon, interrupt_id = cursor.partition(":")
    if not colon or not at.isascii() or not at.isdigit() or len(at) > 18:  # more digits are no 64-bit integer
        raise StoreError(f"{cursor!r:.80} is no cursor of open interrupts: pass `OpenInterrupt.cursor`")
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
    """Model calls whose tokens nobody told."""
    unpriced: int = 0
    """Model calls whose cost is not known."""


SPENT_KEY = ("day", "agent_key", "model")
SPENT_FIGURES = tuple(name for name in Spent.__struct_fields__ if name not in SPENT_KEY)


def summed(rows: Iterable[Spent]) -> builtins.list[Spent]:
    """One line per day, agent and model, in that order."""
    out: dict[tuple[Any, ...], builtins.list[int]] = {}
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
    """Small: what `list` and `tree` need (source, step, nodes, run, time). Never a value of the state."""
    data: bytes
    """The patch, the events sent since the record before, and what no rule derives."""
    items: tuple[Item, ...] = ()
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
    """`input` (its turn comes when the run is over), `signal` (for whoever drives the thread), or `stop` (asks the owner
    of a life to cancel its run)."""
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

    What has to stay whatever is named here is told at `Checkpointer.prune`.
    """

    newest: int | None = None
    """So many of the newest, of all branches together."""
    since: int | None = None
    """Those made at this moment or later, epoch ms, by the time that their ids bear (UUIDv7); an id that bears none is kept."""
    records: tuple[tuple[int, int], ...] = ()
    """(lineage, ordinal) of records that stay although no checkpoint needs them: those whose results the head may take up
    again. They alone are no condition."""


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
    """Where a blob stands; what `sealing` binds it to, so that rows can't be swapped."""

    kind: Literal["record", "snapshot", "item", "interrupt", "document", "input", "title"]
    name: str = ""
    """Id of the record; thread and interrupt of an `interrupt`, with a space between; digest of a document; thread of
    an input or title."""
    lineage: int = 0
    ordinal: int = 0
    """Of records, snapshots and items."""
    frame: int = 0
    channel: str = ""
    record: int = 0
    """Of an item: ordinal of the record that wrote it."""


Rewrite = Callable[[Place, bytes], bytes]

SEAL = "seal"
"""Name of the note by which a store says how its blobs are sealed (`sealed.py`)."""


@runtime_checkable
class Checkpointer(Protocol):
    """A store of threads. All methods but `commit` are async; every read sees all durable commits."""

    @property
    def owner(self) -> str:
        """`host/boot id/uuid` of this store object, for `take`: while it lives, other processes see that it does."""

    async def setup(self, *, sealed: bool = False) -> None:
        """Opens the store and runs the numbered migrations; called by whoever uses it first.

        Args:
            sealed: the caller opens and seals the blobs itself (`SealedCheckpointer`).

        Raises:
            StoreError: `store_newer` when a newer version made it; `store_failed` when it can't be opened, or has a note
                `SEAL` and the caller is not `sealed`.
        """

    async def close(self) -> None:
        """Makes all queued commits durable, then releases files, locks and threads."""

    async def take(self, thread_id: str, *, owner: str, now: int, lease_ms: int, create: bool = True) -> ThreadRow:
        """Takes the thread by one compare-and-swap: the row with `owner` set and `fence` one higher (E2).

        A lease that has expired, or whose owner is surely dead, is taken over at once.

        Raises:
            ThreadBusy: somebody else holds a living lease; `detail.retryAfterMs` says how long.
            ThreadNotFound: no such thread, and `create` is false.
        """

    async def assign(self, thread_id: str, user: str, *, now: int) -> str | None:
        """Makes the thread for this user if there is none; whose it is then, in one step."""

    async def renew(self, owner: str, *, lease_until: int) -> None:
        """Extends every lease of this owner."""

    async def release(self, thread_id: str, fence: int) -> None:
        """Gives the thread back; no effect when the fence is not the thread's."""

    def commit(
        self,
        thread_id: str,
        fence: int,
        expected_head: str | None,
        records: Sequence[Record],
        *,
        facts: ThreadFacts,
        begins: Lineage | None = None,
        release: bool = False,
        consumes: int | None = None,
    ) -> Durable:
        """Queues records as one atomic commit that moves the head to the last of them (E3).

        A plain call that never blocks; commits of one thread become durable in the order of their calls.
        `begins` inserts a new lineage first. `release` gives the thread back in the same transaction; no commit
        of that fence passes after it. `consumes` removes the queued input at this position with the commit that
        records it, so that a crash neither loses nor repeats it. `records` may be empty (facts and release only).
        The promise fails with `Fenced` when fence or expected head are not the thread's, and with
        `StoreError` when the store can't be written; nothing of a failed commit is kept, and every later
        commit of the same fence fails as well.
        """

    async def flush(self) -> None:
        """Returns when everything queued before is durable (or has failed)."""

    async def thread(self, thread_id: str) -> ThreadRow | None:
        """The thread's row, or None."""

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Stored | None:
        """The thread at its head or at a checkpoint of its chains; None for an unknown thread or checkpoint."""

    async def read_items(
        self, chain: Sequence[tuple[int, int]], frame: int, channel: str, count: int, *, start: int = 0
    ) -> list[bytes]:
        """Entries `start` to `count - 1` of one append channel's log along a chain, in order of ordinal.

        Raises:
            StoreError: an entry is missing.
        """

    async def read_logs(self, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]:
        """The same for several logs at once, which costs one visit to the store."""

    async def list(
        self, thread_id: str, *, before: str | None = None, limit: int | None = None, all_lineages: bool = False
    ) -> list[ListedRecord]:
        """Checkpoints newest first: of the head's chain, or with `all_lineages` of the thread's whole tree.

        `before` is a checkpoint id; only older ones are returned. An unknown thread has none.

        Raises:
            CheckpointNotFound: `before` is no checkpoint of them.
        """

    async def read_records(self, thread_id: str, *, lineage: int, after: int, upto: int) -> builtins.list[Record]:
        """Records of every kind of one lineage, oldest first, ordinals in (after, upto], without items.

        Those that were pruned are left out. Empty for a lineage that the thread does not reach.
        """

    async def read_effects(self, thread_id: str, spans: Sequence[Span]) -> builtins.list[Record]:
        """The records with `effect` of these spans, in their order; costs what they are, however many lie between."""

    async def fork(
        self, checkpoint_id: str, source_id: str, thread_id: str, *, number: int, facts: ThreadFacts
    ) -> ThreadRow:
        """A new thread that shares the source's past up to the checkpoint; O(1) in the history's length.

        Its first lineage is `number`, its head the checkpoint.

        Raises:
            ThreadNotFound, CheckpointNotFound, ThreadBusy: (the last when `thread_id` already exists).
        """

    async def delete_thread(self, thread_id: str) -> None:
        """Removes the thread and every lineage that no other thread reaches; no effect on an unknown id."""

    async def delete_checkpoint(self, thread_id: str, checkpoint_id: str) -> None:
        """Takes one checkpoint out of the history; those after it are re-based first: they lose nothing.

        It goes for every thread that shares it. Deleting the last one removes the thread.

        Raises:
            ThreadNotFound, CheckpointNotFound: nothing to delete.
            GraphflowError: `invalid_input` when a thread stands on it, an open interrupt belongs to it, or it is the
                past of a fork that another living thread began.
        """

    async def prune(self, thread_id: str, keep: Keep, *, dry_run: bool = False) -> Pruned:
        """Takes old checkpoints out of the history and removes every row that nothing left builds on.

        Whatever `keep` names, these stay and can be loaded: the head, the checkpoints that open interrupts belong to,
        and the fork points of other living threads. Records of `write` effects after a checkpoint that is left stay too.
        Rows that another living thread began are not touched. A run whose records went has no log any more, or only
        its end. Safe while a run drives the thread. With `dry_run` nothing is changed.

        Raises:
            ThreadNotFound: no such thread.
            GraphflowError: `invalid_input` when `keep` names no condition, or a negative number.
        """

    async def spent(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        agent_key: str | None = None,
        thread_id: str | None = None,
    ) -> builtins.list[Spent]:
        """The ledger by day, agent and model, in that order: everything that commits told, on every branch.

        It outlives the threads: what a deleted or pruned one has used stays in it, without the thread's id.

        Args:
            since, until: days since 1970-01-01 (UTC), both included.
        """

    async def threads(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        status: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
    ) -> builtins.list[ThreadRow]:
        """Threads, most recently updated first; `cursor` is the last thread id of the page before.

        Raises:
            ThreadNotFound: the thread of `cursor` is gone.
        """

    async def open_interrupts(
        self,
        *,
        thread_id: str | None = None,
        owner: str | None = None,
        role: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> builtins.list[OpenInterrupt]:
        """What waits for people, oldest first; `cursor` is `OpenInterrupt.cursor` of the last of the page before."""

    async def find_run(self, run_id: str) -> str | None:
        """The thread that a run belongs to, from the journal's index of runs; None when unknown."""

    async def due(self, before: int) -> builtins.list[OpenInterrupt]:
        """Open interrupts whose `due_at` is not later than `before` (epoch ms)."""

    async def put_document(self, digest: str, document: bytes) -> None:
        """Keeps a document under its hash; the second time is no effect."""

    async def document(self, digest: str) -> bytes | None: ...

    async def put_note(self, name: str, note: bytes) -> None:
        """Keeps a small note about the store itself, in the place of an earlier one of that name."""

    async def swap_note(self, name: str, note: bytes, *, instead_of: bytes | None) -> bool:
        """Keeps a note in the place of exactly this one (None: of none); False, and nothing kept, when another stands there."""

    async def note(self, name: str) -> bytes | None: ...

    async def rewrite(self, change: Rewrite, *, after: str | None = None, limit: int = 1000) -> str | None:
        """Replaces blobs in place by what `change` gives for them, about `limit` at a time, each time in one transaction.

        Titles pass as UTF-8. `change` must be pure: it may be called again for a blob. A blob that it returns
        unchanged is not written.

        Args:
            after: what the call before returned; None begins.

        Returns:
            Where to go on; None when all are done.
        """

    async def enqueue(
        self, thread_id: str, body: bytes, *, now: int, kind: str = "input", run_id: str | None = None
    ) -> int:
        """Appends to the thread's queue, durably; its position (grows, never used twice).

        With `run_id` that run is found by `find_run` from now on, although it has not begun.

        Raises:
            ThreadNotFound: no such thread.
        """

    async def queue(
        self, thread_id: str | None = None, *, kind: str | None = None, owner: str | None = None, limit: int = 100
    ) -> builtins.list[Queued]:
        """What is queued, oldest first: on one thread, of one kind, on the threads that this owner drives."""

    async def queues(self, now: int) -> builtins.list[str]:
        """Ids of threads with something queued that no living owner drives at `now` (epoch ms)."""

    async def withdraw(self, thread_id: str, position: int, *, run_id: str | None = None) -> bool:
        """Takes one entry out of the queue, and `run_id` off the index of runs; False when it is not there (any more)."""

    async def queued(self, thread_id: str) -> tuple[int, bytes] | None:
        """Position and body of the oldest queued `input`, which stays there (see `commit(consumes=)`), or None."""

    async def dequeue(self, thread_id: str) -> bytes | None:
        """Takes the oldest queued input away, or None; a crash right after loses it, `commit(consumes=)` does not."""

    def export_thread(self, thread_id: str) -> AsyncIterator[Mapping[str, Any]]:
        """The thread as JSON-able lines: loss-free, whatever the back end (bytes as base64)."""

    async def import_thread(
        self,
        lines: AsyncIterator[Mapping[str, Any]],
        *,
        thread_id: str | None = None,
        change: Rewrite | None = None,
    ) -> str:
        """Stores an exported thread, under another id if asked; the id. Refuses an id that exists.

        `change` is applied to every blob in the place that it gets here (`export.placed` does it).
        """
