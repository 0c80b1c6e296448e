"""`SavedStates`: keeps states of threads without a graph: save, load, load_latest, list, delete (spec 4.1).

A thin view on any store. What it saves are checkpoints like any other, so histories, forks, prunes and exports know them; a
thread that a graph has made can be read with it, and a value saved to it is an edit of that thread's state.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping
from typing import Any

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.loading import Loaded, load_thread
from graphflow.checkpoints.rows import Lineage
from graphflow.errors import ThreadWaiting
from graphflow.graph.core.channels import Update
from graphflow.graph.core.commands import Commit
from graphflow.graph.core.immutable import State, freeze, thaw
from graphflow.graph.core.machine import ROOT, FramePatch, Machine, Patch
from graphflow.graph.core.patches import apply_patch
from graphflow.graph.definition.document import END
from graphflow.graph.engine.ports import Clock, Ids
from graphflow.runtime.clock_and_ids import SystemClock, Uuid7Ids
from graphflow.runtime.history.diff import differ
from graphflow.runtime.runs.lease_keeper import LEASE_MS


class SavedStates:
    """States of threads in a store.

    Args:
        store: any checkpointer; the caller closes it.
    """

    def __init__(self, store: Checkpointer, *, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self.store = store
        self._clock = clock or SystemClock()
        self._ids = ids or Uuid7Ids()

    async def save(self, thread_id: str, state: Mapping[str, Any]) -> str:
        """Keeps the state as the thread's newest checkpoint, durably; its id.

        Only keys whose values changed are stored. A key that is left out keeps its value.

        Raises:
            CodecError: a value can't be stored; nothing has changed.
            ThreadBusy: somebody else writes to the thread.
            ThreadWaiting: a graph's run on the thread waits for a person.
        """
        now = self._clock.now_ms()
        row = await self.store.take(thread_id, owner=self.store.owner, now=now, lease_ms=LEASE_MS)
        try:
            loaded = await load_thread(self.store, thread_id)
            known = loaded is not None and loaded.row.head is not None
            machine = loaded.machine if loaded is not None else Machine()
            if machine.interrupts:
                raise ThreadWaiting(f"thread {thread_id!r} waits for a person; answer or cancel that first")
            begins = None if known else Lineage(number=int.from_bytes(os.urandom(7), "big"), thread_id=thread_id)
            journal = ThreadJournal(self.store, row, row.facts, loaded=loaded if known else None, begins=begins)
            commit = self._commit(machine, loaded, state, now)
            prepared = journal.prepare(commit)
            if prepared.media:
                given, taken = journal.without_bytes(dict(state), machine)
                commit = self._commit(machine, loaded, given, now)
                prepared = journal.prepare(commit, taken)
            await journal.write(prepared, [], loaded.seq if loaded is not None else 0, 0, True)
        except BaseException:
            # A successful write gives the thread back with its commit.
            await self.store.release(thread_id, row.fence)
            raise
        return commit.id

    def _commit(self, machine: Machine, loaded: Loaded | None, state: Mapping[str, Any], at: int) -> Commit:
        root = machine.frames.get(ROOT)
        old = root.state if root is not None else State()
        given = {k: freeze(v) for k, v in state.items()}
        # Not `!=`: to Python 1 equals True, and what was saved as one of them is to be loaded as it.
        changed = {k: v for k, v in given.items() if k not in old or differ(old[k], v)}
        logs = {k for number, k in (loaded.counts if loaded is not None else {}) if number == ROOT}
        update = Update(
            {k: v for k, v in changed.items() if k not in logs},
            # A growing list has no value to replace: it gets a row that sets the whole list anew (E4).
            {k: [("*", v)] for k, v in changed.items() if k in logs},
            {},
        )
        # A thread without a graph has nothing left to run: it looks like one whose run has finished.
        fields: dict[str, Any] = {} if root is not None else {"node": END, "status": "done"}
        patch = Patch({"last_at": at}, {ROOT: FramePatch(fields, update)}, {})
        return Commit(self._ids.new_id(), at, "edit", True, patch, before=machine, machine=apply_patch(machine, patch))

    async def load(self, thread_id: str, checkpoint_id: str) -> dict[str, Any]:
        """The state at a checkpoint; empty for an unknown thread or checkpoint."""
        return _values(await load_thread(self.store, thread_id, checkpoint_id))

    async def load_latest(self, thread_id: str) -> dict[str, Any]:
        """The newest state; empty for an unknown thread."""
        return _values(await load_thread(self.store, thread_id))

    async def list(self, thread_id: str) -> builtins.list[str]:
        """Ids of the thread's checkpoints, newest first."""
        return [line.id for line in await self.store.list_checkpoints(thread_id)]

    async def delete(self, thread_id: str, checkpoint_id: str) -> None:
        """Takes one checkpoint out; the last one takes the thread along.

        Raises:
            ThreadNotFound, CheckpointNotFound: nothing to delete.
            GraphflowError: `invalid_input` for the newest of several: the thread stands on it.
        """
        await self.store.delete_checkpoint(thread_id, checkpoint_id)


def _values(loaded: Loaded | None) -> dict[str, Any]:
    root = None if loaded is None else loaded.machine.frames.get(ROOT)
    return {} if root is None else {key: thaw(value) for key, value in root.state.items()}
