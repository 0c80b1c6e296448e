"""The queue of the memory store: inputs, signals and control messages that wait for their threads, in order of position."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from graphflow.checkpoints.export import QueuedEntry
from graphflow.checkpoints.rows import Place, Queued, Rewrite


class QueueRows:
    """Entries by position; a position is never given twice."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[str, QueuedEntry]] = {}
        self._last = 0
        self.parked: dict[str, tuple[int, int]] = {}
        """Thread → its fence, and the newest position, when its inputs were found to wait behind open questions."""
        self._parked_alone: dict[int, int] = {}
        """Position of an entry that was parked alone → its thread's fence then."""

    def push(self, thread_id: str, entry: QueuedEntry) -> int:
        """Its position."""
        self._last += 1
        self._entries[self._last] = (thread_id, entry)
        return self._last

    def holds(self, thread_id: str, position: int) -> bool:
        return self._entries.get(position, ("",))[0] == thread_id

    def drop(self, position: int) -> None:
        self.parked.pop(self._entries.pop(position)[0], None)
        self._parked_alone.pop(position, None)

    def drop_thread(self, thread_id: str) -> None:
        self._entries = {at: (name, entry) for at, (name, entry) in self._entries.items() if name != thread_id}

    def rows(self, thread_id: str | None = None, kind: str | None = None) -> Iterator[Queued]:
        """Entries in order, of one thread or all, of one kind or all."""
        for position, (name, entry) in self._entries.items():
            if thread_id in (None, name) and kind in (None, entry.kind):
                yield Queued(thread_id=name, position=position, kind=entry.kind, body=entry.body, at=entry.at)

    def park(self, thread_id: str, fence: int, position: int | None) -> None:
        if position is None:
            self.parked[thread_id] = fence, self._last
        elif self.holds(thread_id, position):
            self._parked_alone[position] = fence

    def is_parked_alone(self, position: int, fence: int) -> bool:
        return self._parked_alone.get(position) == fence

    def threads(self) -> dict[str, int]:
        """Threads that something waits for, the longest waiting first; each with the position of the newest."""
        found: dict[str, int] = {}
        for position, (name, entry) in self._entries.items():
            if entry.kind not in ("stop", "webhook"):
                # A signal is never parked.
                found[name] = max(found.get(name, 0), position if entry.kind == "input" else self._last + 1)
        return found

    def copies(self, thread_id: str) -> list[QueuedEntry]:
        """A thread's entries as an export has them."""
        return [entry for name, entry in self._entries.values() if name == thread_id and entry.kind != "webhook"]

    def rewrite(self, change: Rewrite) -> None:
        for position, (name, entry) in self._entries.items():
            body = change(Place("input", name), entry.body)
            self._entries[position] = (name, msgspec.structs.replace(entry, body=body))
