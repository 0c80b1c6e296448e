"""The checkpointer port: what a store of threads must do (spec 4.1, rules E2 to E4).

Everything in a store is append-only but the thread rows, the leases, the open interrupts and the queue.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast, runtime_checkable

from graphflow.checkpoints.rows import (
    Keep,
    Lineage,
    ListedRecord,
    Log,
    OpenInterrupt,
    Pruned,
    Queued,
    Record,
    Rewrite,
    Span,
    Spent,
    Stored,
    ThreadFacts,
    ThreadRow,
)
from graphflow.graph.engine.ports import Durable


@runtime_checkable
class Checkpointer(Protocol):
    """A store of threads. All methods but `commit` are async; every read sees all durable commits."""

    @property
    def owner(self) -> str:
        """`host/boot id/uuid` of this store object, for `take`: other processes can see whether it is alive."""

    async def setup(self, *, encrypted: bool = False) -> None:
        """Opens the store and runs the numbered migrations; called by the first user.

        Args:
            encrypted: the caller opens and encrypts the blobs itself (`EncryptedCheckpointer`).

        Raises:
            StoreError: `store_version_unsupported` when a newer version made it; `store_failed` when it can't be opened, or has a note
                `ENCRYPTION_NOTE` and the caller is not `encrypted`.
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

    async def describe(self, thread_id: str, about: str | None, *, instead_of: str | None, now: int) -> bool:
        """Keeps what is written about the thread (`ThreadFacts.about`) in the place of exactly this (None: of nothing).

        False, and nothing kept, when something else stands there. The thread counts as updated at `now`, unless a later
        change is on record.

        Raises:
            ThreadNotFound: no such thread.
        """

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

    async def list_checkpoints(
        self, thread_id: str, *, before: str | None = None, limit: int | None = None, all_lineages: bool = False
    ) -> list[ListedRecord]:
        """Checkpoints newest first: of the head's chain, or with `all_lineages` of the thread's whole tree.

        `before` is a checkpoint id; only older ones are returned. An unknown thread has none.

        Raises:
            CheckpointNotFound: `before` is not one of them.
        """

    async def read_records(self, thread_id: str, *, lineage: int, after: int, upto: int) -> list[Record]:
        """Records of every kind of one lineage, oldest first, ordinals in (after, upto], without items.

        Those that were pruned are left out. Empty for a lineage that the thread does not reach.
        """

    async def read_effects(self, thread_id: str, spans: Sequence[Span]) -> list[Record]:
        """The records with `effect` of these spans, in their order; costs what they are, however many lie between."""

    async def fork(
        self, checkpoint_id: str, source_id: str, thread_id: str, *, number: int, facts: ThreadFacts
    ) -> ThreadRow:
        """A new thread that shares the source's past up to the checkpoint; O(1) in the history's length.

        Its first lineage is `number`, its head the checkpoint.

        Raises:
            ThreadNotFound, CheckpointNotFound, ThreadExists: the last when there is a thread `thread_id`.
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

    async def compact(self) -> None:
        """Returns the disk space of removed rows to the operating system; a prune alone leaves it to later rows.

        The store is rewritten and its commits wait meanwhile, for longer than they may where it is large: call it while no
        run is at work. What an open transaction of somebody else may still read can't be removed: compacting waits for its
        end for as long as the store waits for anything.

        Raises:
            StoreError: the space could not be returned; the message says which transaction is open.
        """

    async def spent(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        agent_key: str | None = None,
        thread_id: str | None = None,
    ) -> list[Spent]:
        """The ledger by day, agent and model, in that order: everything that commits reported, on every branch.

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
    ) -> list[ThreadRow]:
        """Threads, most recently updated first; `cursor` is the last thread id of the page before.

        Raises:
            ThreadNotFound: the thread of `cursor` is gone.
        """

    async def thread_count(self, status: str) -> int:
        """How many threads have this status."""

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
    ) -> list[OpenInterrupt]:
        """What waits for people, oldest first; `cursor` is `OpenInterrupt.cursor` of the last of the page before."""

    async def find_run(self, run_id: str) -> str | None:
        """The thread that a run belongs to, from the journal's index of runs; None when unknown."""

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> list[tuple[str, ThreadRow]]:
        """Runs from the journal's index, each with its thread, by id, the last first: of ids that the server made, the newest.

        Args:
            cursor: the run id after which they begin, known or not.
        """

    async def due(self, before: int) -> list[OpenInterrupt]:
        """Open interrupts whose `due_at` is not later than `before` (epoch ms)."""

    async def put_document(self, digest: str, document: bytes) -> None:
        """Keeps a document under its hash; calling it again has no effect."""

    async def document(self, digest: str) -> bytes | None:
        """The document of this hash, or None."""

    async def put_note(self, name: str, note: bytes) -> None:
        """Keeps a small note about the store itself, in the place of an earlier one of that name."""

    async def swap_note(self, name: str, note: bytes, *, instead_of: bytes | None) -> bool:
        """Keeps a note in the place of exactly this one (None: of none); False, and nothing kept, when another stands there."""

    async def note(self, name: str) -> bytes | None:
        """The note of this name, or None."""

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
    ) -> list[Queued]:
        """What is queued, oldest first: on one thread, of one kind, on the threads that this owner drives."""

    async def queue_size(self, kind: str) -> int:
        """How many entries of one kind are queued, on all threads."""

    async def queues(self, now: int) -> list[str]:
        """Ids of threads with inputs or signals queued, and not parked, that no living owner drives at `now` (epoch ms)."""

    async def unparked(self, kind: str, *, limit: int = 1000) -> list[tuple[Queued, ThreadRow]]:
        """Entries of one kind that are not parked, each with its thread, oldest first."""

    async def still_queued(self, first: int, last: int) -> set[int]:
        """Positions from `first` to `last` at which inputs are queued, on any thread."""

    async def park(self, thread_id: str, fence: int, *, position: int | None = None) -> None:
        """`queues` leaves out the inputs that now wait on this thread until it is taken again or one of them is withdrawn.
        With `position` only this entry is parked, of whatever kind: `unparked` leaves it out as long.

        No effect when the fence is not the thread's any more, or its status is neither `waiting` nor `stopped`.
        """

    async def stopped(self, now: int, *, limit: int = 100) -> list[str]:
        """Ids of threads with status `running` that no living owner drives at `now` (epoch ms), at most so many."""

    def alone(self, name: str) -> AbstractAsyncContextManager[bool]:
        """Whether nobody else is in such a block of this name; who is in one leaves it, at the latest, with its process.

        Only spares work that others do as well: a process that was paused in the block may have lost it. Without other
        processes, or where they hinder each other anyway, a store may always say yes.
        """

    async def count_attempt(self, thread_id: str, checkpoint_id: str) -> int:
        """Counts an attempt to go on from this checkpoint, durably; how many there have been since another was attempted.

        Raises:
            ThreadNotFound: no such thread.
        """

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


@runtime_checkable
class OwnerLiveness(Protocol):
    """An ability that a store may have beyond the port: to see whether another process is alive."""

    def is_dead(self, owner: str) -> bool:
        """Whether this owner's process is surely gone; False when that can't be known."""


@runtime_checkable
class StoreClock(Protocol):
    """An ability that a store of several hosts may have beyond the port: a clock that is the same for all of them."""

    async def clock_ms(self) -> int | None:
        """Its time now, epoch ms; None: it has none after all."""


@runtime_checkable
class EagerCommits(Protocol):
    """An ability that a store may have beyond the port: to write in the caller's thread if nobody else has to wait."""

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
        awaited: bool = False,
    ) -> Durable:
        """See `Checkpointer.commit`.

        Args:
            awaited: the caller goes no further before this is durable: it calls `hurry` next, or yields to the loop.
        """

    def hurry(self) -> None:
        """Makes durable what was committed with `awaited`."""


def owner_liveness(store: Checkpointer) -> OwnerLiveness | None:
    """The store, if it has this ability."""
    # By class, whose answer `abc` caches: `isinstance` would look up every member anew.
    return cast("OwnerLiveness", store) if issubclass(type(store), OwnerLiveness) else None


def store_clock(store: Checkpointer) -> StoreClock | None:
    """The store, if it has this ability."""
    return cast("StoreClock", store) if issubclass(type(store), StoreClock) else None


def eager_commits(store: Checkpointer) -> EagerCommits | None:
    """The store, if it has this ability."""
    return cast("EagerCommits", store) if issubclass(type(store), EagerCommits) else None


def knows_document(store: Checkpointer | None, digest: str) -> bool:
    """Whether the store says at once that it holds a document, which was checked before it was stored.

    False for every store that can't say so without waiting for a server, or that begins empty (`SqliteCheckpointer` can, and
    one that encrypts it).
    """
    has_document = getattr(store, "has_document", None)
    return has_document is not None and bool(has_document(digest))
