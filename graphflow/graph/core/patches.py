"""Patches: everything that one tick changed, and the one function that applies it.

`advance` changes the machine through `place`, and loading a record does too: what was stored is what ran.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from graphflow.graph.core.channels import Update, apply_update
from graphflow.graph.core.immutable import ListView, LogEntry, State, copied, freeze
from graphflow.graph.core.machine import (
    ENDED,
    BranchState,
    Frame,
    FramePatch,
    JoinState,
    Machine,
    Patch,
    changed_interrupts,
    changed_notes,
)


def apply_patch(machine: Machine, patch: Patch) -> Machine:
    """The machine after the patch; live and on loading alike."""
    changes = dict(patch.machine)
    if "kept" in changes:
        changes["kept"] = changed_notes(machine.kept, changes["kept"])
    frames = patch.frames
    if frames:
        table = copied(machine.frames)
        for number, change in frames.items():
            if change is None:
                table.pop(number, None)
            else:
                place(table, number, change)
        changes["frames"] = table
    if patch.interrupts:
        changes["interrupts"] = changed_interrupts(machine.interrupts, patch.interrupts)
    return msgspec.structs.replace(machine, **changes)


def place(table: MutableMapping[int, Frame], number: int, change: FramePatch, state: State | None = None) -> Frame:
    """Changes a frame of the table, or opens it; a branch that has ended moves to its parent's join.

    Args:
        state: the state after the patch's update when it is known already: append logs grow in place, so an
            update must not be applied twice.
    """
    frame = table.get(number)
    if frame is None:
        frame = _opened(table, number, change)
    frame = _patched(frame, change, state)
    put(table, frame)
    return frame


def moved(join: JoinState, **changes: Any) -> JoinState:
    """The join as a patch has it: with these changes, and without the branches that have ended, which `put` adds."""
    return msgspec.structs.replace(join, ended=_NONE, **changes)


def gave(branch: BranchState, out: Any) -> BranchState:
    """The branch as a patch has it: with its output, and without its writes, which the patch's update holds."""
    return msgspec.structs.replace(branch, out=freeze(out), own={})


_NONE = ListView([])


def put(table: MutableMapping[int, Frame], frame: Frame) -> None:
    """Puts a frame into the table, or when it is a branch that has ended, into its parent's join."""
    # Ended branches leave the table, which every tick copies: a map of thousands costs what is still open.
    if frame.branch is not None and frame.status in ENDED:
        table.pop(frame.number, None)
        parent = table[frame.parent]
        assert parent.join is not None
        join = msgspec.structs.replace(parent.join, ended=parent.join.ended.appended([frame]))
        table[frame.parent] = msgspec.structs.replace(parent, join=join)
    else:
        table[frame.number] = frame


def _opened(table: Mapping[int, Frame], number: int, change: FramePatch) -> Frame:
    """A frame at its beginning; a branch begins with what its parent's frame has."""
    fields = change.fields
    branch: BranchState | None = fields.get("branch")
    if branch is None:
        return Frame(number=number)
    return branch_of(
        table[fields["parent"]], Frame(number=number, branch=branch, graph=fields.get("graph", "")), change.inherited
    )


def branch_of(parent: Frame, frame: Frame, inherited: Update | None = None) -> Frame:
    """The frame with what a branch has of its parent: state, input, and the names around it.

    A branch whose body is a subgraph has none of them.
    """
    opened, branch = parent.opened, frame.branch
    assert opened is not None and branch is not None
    if frame.graph != parent.graph:
        return msgspec.structs.replace(frame, branch=msgspec.structs.replace(branch, own=None))
    scope = {**parent.scope, opened.binds: opened.items[branch.index]} if opened.binds else parent.scope
    state = parent.state if inherited is None else apply_update(parent.state, inherited)
    return msgspec.structs.replace(frame, input=parent.input, scope=scope, state=state)


def _patched(frame: Frame, change: FramePatch, state: State | None) -> Frame:
    fields = change.fields
    update = change.update
    if update is not None or change.operations or change.visits or state is not None:
        fields = dict(fields)
        if state is not None:
            fields["state"] = state
        elif update is not None:
            fields["state"] = apply_update(fields.get("state", frame.state), update)
        if change.operations:
            fields["operations"] = _merged(fields.get("operations", frame.operations), change.operations)
        if change.visits:
            fields["visits"] = _merged(fields.get("visits", frame.visits), change.visits)
    if frame.branch is not None and (update is not None or "branch" in fields):
        # A patched branch comes without its writes (`gave`): those of the frame stay.
        branch = msgspec.structs.replace(fields.get("branch", frame.branch), own=frame.branch.own)
        fields = {**fields, "branch": branch if update is None else wrote(branch, update, change.raw)}
    # `moved` leaves the ended branches out of a patch, so that a record does not store them again; they are put back
    # here. With `opened` the join is a new one and has none.
    if frame.join is not None and (join := fields.get("join")) is not None and "opened" not in fields:
        fields = {**fields, "join": msgspec.structs.replace(join, ended=frame.join.ended)}
    return msgspec.structs.replace(frame, **fields)


def wrote(branch: BranchState, update: Update, raw: Mapping[str, list[Any]] | None) -> BranchState:
    """The branch with the writes of one more update, if it keeps them."""
    if branch.own is None:
        return branch
    raw = raw or {}
    out = dict(branch.own)
    # For `sum`, `fn:` and the like the update holds the reduced value; the join reduces what was written, so `raw`
    # wins.
    for key, value in update.sets.items():
        out[key] = (*out.get(key, ()), *raw[key]) if key in raw else (value,)
    for key, entries in update.logs.items():
        out[key] = with_items(out.get(key), entries)
    for key, changed in update.merges.items():
        out[key] = (*out.get(key, ()), changed)
    return msgspec.structs.replace(branch, own=out)


def with_items(own: Sequence[Any] | None, entries: Sequence[LogEntry]) -> ListView:
    """The items that a branch brings to a log, with those of more entries."""
    view = own if isinstance(own, ListView) else ListView([])
    return view.appended(items_of(entries))


def items_of(entries: Sequence[LogEntry]) -> list[Any]:
    """The items that log entries bring, in order."""
    out: list[Any] = []
    for entry in entries:
        if entry[0] in ("+", "="):
            out.append(entry[-1])
        elif entry[0] == "*":
            out[:] = entry[1]
    return out


def _merged(old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    out = {**old, **changes}
    for key, value in changes.items():
        if value is None:
            del out[key]
    return out
