"""A thread as people see it: at one checkpoint, and the line of one checkpoint in its history (spec 2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.checkpoints.record_decoder import decode_meta
from graphflow.checkpoints.rows import ListedRecord
from graphflow.graph.core.budget import known_usage
from graphflow.graph.core.immutable import ListView, State
from graphflow.graph.core.machine import ROOT, Frame, Interrupt, Machine, all_frames, next_nodes


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One checkpoint of a history: metadata only."""

    id: str
    parent: str | None
    step: int
    """Nodes finished since the input."""
    node: str
    next: list[str]
    source: str
    """`input, node, ask, answer, signal, timer, cancel, edit, rewind, fork, migrate` (spec 3.2)."""
    created_at: int
    """Epoch ms."""
    size: int
    """Stored bytes."""
    run_id: str | None
    lineage: int
    error: str | None = None
    """Code of the failure that it ended in."""


class ThreadState(msgspec.Struct, frozen=True, kw_only=True):
    """A thread at one checkpoint."""

    checkpoint_id: str | None
    status: str
    """`idle`, `running`, `waiting`, `failed` or `stopped`; `running` only while a live process drives the thread."""
    driven: bool
    """A live process owns the thread; a waiting thread too, while a process holds it for the answer."""
    values: State
    """The root's values."""
    next: list[str]
    interrupts: tuple[Interrupt, ...]
    usage: dict[str, Any]
    run_id: str
    frames: dict[str, State]
    """Values of open subgraphs and branches by path."""
    own_frames: dict[str, Mapping[str, Any]]
    """As `frames`, of a branch only the keys that it wrote, and of a list only the items: what it shares with the frame
    around it would make a listing of thousands of branches grow with their square."""


def checkpoint_info(row: ListedRecord) -> CheckpointInfo:
    """The line of a listed checkpoint."""
    meta = decode_meta(row.meta, row.id)
    return CheckpointInfo(
        id=row.id,
        parent=row.parent,
        step=meta.step,
        node=meta.node,
        next=meta.next,
        source=meta.source,
        created_at=meta.at,
        size=row.size,
        run_id=meta.run_id,
        lineage=row.lineage,
        error=meta.error,
    )


def state_at(machine: Machine, checkpoint_id: str | None, *, driven: bool) -> ThreadState:
    """The thread as people see it at one checkpoint.

    Args:
        driven: whether a live process owns the thread.
    """
    below = [frame for frame in all_frames(machine) if frame.number != ROOT]
    return ThreadState(
        checkpoint_id=checkpoint_id,
        # A run whose process died stays `running` in its records (spec 3.2).
        status="stopped" if machine.status == "running" and not driven else machine.status,
        driven=driven,
        values=machine.root.state if machine.frames else State(),
        next=next_nodes(machine),
        interrupts=tuple(machine.interrupts.values()),
        usage=known_usage(machine.usage),
        run_id=machine.run_id,
        frames={frame.path: frame.state for frame in below},
        own_frames={frame.path: _own(frame) for frame in below},
    )


def _own(frame: Frame) -> Mapping[str, Any]:
    """What the frame does not share with the one around it."""
    state, branch = frame.state, frame.branch
    if branch is None or branch.own is None:
        return state
    return {key: items if isinstance(state[key], ListView) else state[key] for key, items in branch.own.items()}
