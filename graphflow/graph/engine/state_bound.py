"""Keeps the state of a thread within its bound, by the sizes of what each tick writes: the whole is measured only when they
may have reached it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphflow.errors import LimitExceeded
from graphflow.graph.core.commands import Commit
from graphflow.graph.core.machine import FramePatch, Machine, all_frames
from graphflow.graph.core.ticks import AnyTick, NodeSucceeded, OperationRecorded
from graphflow.value_size import size_of

MUCH_BYTES = 1024 * 1024
"""What a node writes of this size takes milliseconds: to be encoded, and where it is media also to be hashed."""


class MuchToStore(Exception):
    """A node gave more than the event loop should encode. Nothing has happened: the tick belongs beside the loop."""


class StateBound:
    """The bound of one thread, in one epoch."""

    __slots__ = ("_known", "_most")

    def __init__(self, state_bytes: int) -> None:
        self._most = state_bytes
        self._known: int | None = None
        """The state has at most so many bytes; None: not measured yet."""

    def forget(self) -> None:
        """What was admitted last has no effect."""
        self._known = None

    def admit(self, tick: AnyTick, commit: Commit) -> int:
        """Counts what a tick wrote, in bytes.

        Raises:
            LimitExceeded: the state would grow beyond the bound; the tick must have no effect.
        """
        written = 0
        for change in commit.patch.frames.values():
            if change is not None:
                if (update := change.update) is not None:
                    written += update.size
                # The usual step changes two fields, and they are small.
                if len(change.fields) > 2 or change.operations:
                    written += self._more(change)
        known = self._known
        if known is not None and (not written or known + written <= self._most):
            self._known = known + written
            return written
        assert commit.before is not None and commit.machine is not None
        if self._known is None:
            self._known = machine_size(commit.before, self._most) if commit.before.frames else 0
        known = self._known + written
        if known > self._most:
            known = machine_size(commit.machine, self._most)
            if known > self._most and _may_fail(tick) and not self._shrinks(commit.before, commit.machine):
                raise LimitExceeded(
                    "state_bytes",
                    self._most,
                    f"with what it gives the state of the thread has more than {self._most:,} bytes",
                    "keep less in the state, or raise it, then resume the thread",
                )
        self._known = known
        return written

    def _more(self, change: FramePatch) -> int:
        """What else the patch of a frame holds of nodes: results of operations, a branch's output, what a map goes through."""
        fields, most = change.fields, self._most
        total = 0
        if (branch := fields.get("branch")) is not None and branch.out is not None:
            total += size_of(branch.out, most)
        if (opened := fields.get("opened")) is not None and opened.items is not None:
            total += size_of(opened.items, most)
        if given := fields.get("input"):
            total += size_of(given, most)
        for operation in (change.operations or {}).values():
            if operation is not None and operation.result is not None:
                total += size_of(operation.result, most)
        return total

    def _shrinks(self, before: Machine, after: Machine) -> bool:
        """Whether a state that is too large already has become smaller: its bound has been lowered."""
        size = machine_size(before, 1 << 62)
        return size > self._most and machine_size(after, size) <= size


def _may_fail(tick: AnyTick) -> bool:
    """Whether the node that made the tick fails in its place. A failure is recorded in any case, and so is a write that was done."""
    if isinstance(tick, OperationRecorded):
        return tick.operation is not None and tick.operation.effects != "write"
    return isinstance(tick, NodeSucceeded)


def machine_size(machine: Machine, limit: int) -> int:
    """About the bytes of all that the frames hold; counting ends once they are more than `limit`."""
    total = 0
    for value in _values(machine):
        total += size_of(value, limit)
        if total > limit:
            break
    return total


def _values(machine: Machine) -> Iterator[Any]:
    for frame in all_frames(machine):
        branch = frame.branch
        # A branch on the same graph shares its parent's state: only its own writes are more.
        if branch is None or branch.own is None:
            yield from frame.state.values()
        else:
            yield from branch.own.values()
        if branch is not None:
            yield branch.out
        if frame.opened is not None:
            yield frame.opened.items
        # A branch has its parent's input.
        if branch is None:
            yield frame.input
        for operation in frame.operations.values():
            yield operation.result
