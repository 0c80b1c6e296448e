"""Everything that a memory store holds. To read or change it, hold the store's lock."""

from __future__ import annotations

import msgspec

from graphflow.checkpoints import errors
from graphflow.checkpoints.memory.queue_rows import QueueRows
from graphflow.checkpoints.memory.rows import HeldThread, LineageRows
from graphflow.checkpoints.rows import Lineage, OpenInterrupt, Spent, ThreadFacts, ThreadRow


class Tables:
    """The rows of all threads, by what they are found by."""

    def __init__(self) -> None:
        self.threads: dict[str, HeldThread] = {}
        self.lineages: dict[int, LineageRows] = {}
        """By the port's number."""
        self.interrupts: dict[tuple[str, str], OpenInterrupt] = {}
        """(thread, id) → the open interrupt."""
        self.runs: dict[str, str] = {}
        """Run → thread."""
        self.spent: list[tuple[str, Spent]] = []
        """(thread, line of the ledger); the thread is empty once it was deleted."""
        self.documents: dict[str, bytes] = {}
        self.notes: dict[str, bytes] = {}
        self.queue = QueueRows()
        self._fences: dict[str, int] = {}
        """Fences of threads that were deleted while somebody drove them: a namesake goes on from there."""
        self._begun = 0

    def known(self, thread_id: str) -> HeldThread:
        """The thread.

        Raises:
            ThreadNotFound: there is none of this id.
        """
        thread = self.threads.get(thread_id)
        if thread is None:
            raise errors.unknown_thread(thread_id)
        return thread

    def row(self, thread: HeldThread) -> ThreadRow:
        row = thread.row()
        waits = any(self.queue.rows(row.thread_id, "input"))
        return msgspec.structs.replace(row, queued=True) if waits else row

    def add_thread(self, thread_id: str, facts: ThreadFacts, created_at: int) -> HeldThread:
        thread = HeldThread(thread_id, facts, self._fences.pop(thread_id, 0), created_at)
        self.threads[thread_id] = thread
        return thread

    def drop_thread(self, thread: HeldThread) -> None:
        """Forgets the thread, but not its lineages; its usage stays in the ledger without its id."""
        del self.threads[thread.id]
        # Its driver may still try to commit: a namesake has to begin with a higher fence.
        if thread.owner is not None:
            self._fences[thread.id] = thread.fence
        for key in [key for key in self.interrupts if key[0] == thread.id]:
            del self.interrupts[key]
        self.queue.drop_thread(thread.id)
        for run_id in [run for run, owner in self.runs.items() if owner == thread.id]:
            del self.runs[run_id]
        # What was used stays in the ledger, without the thread's id.
        self.spent = [("" if owner == thread.id else owner, row) for owner, row in self.spent]

    def interrupts_of(self, thread_id: str) -> list[OpenInterrupt]:
        return [row for (owner, _), row in self.interrupts.items() if owner == thread_id]

    def lineage(self, number: int, thread_id: str, parent: LineageRows | None, cut: int) -> LineageRows:
        """A new lineage, not yet known to anybody."""
        self._begun += 1
        return LineageRows(number, self._begun, thread_id, parent, cut)

    def begin(self, thread: HeldThread, begins: Lineage) -> LineageRows:
        """The lineage that a commit or an import begins, not yet known to anybody.

        Raises:
            StoreError: its number is taken, or its parent is not there.
        """
        if begins.number in self.lineages:
            raise errors.number_taken(begins.number)
        parent = None if begins.parent is None else self.lineages.get(begins.parent)
        if begins.parent is not None and parent is None:
            raise errors.unknown_parent(begins.number, begins.parent)
        return self.lineage(begins.number, thread.id, parent, begins.cut)

    def keep(self, thread: HeldThread, lineage: LineageRows) -> None:
        """Makes a lineage known, as the thread's newest."""
        self.lineages[lineage.number] = lineage
        thread.lineages.append(lineage)
