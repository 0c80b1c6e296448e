"""The work of one tick: every change is applied at once and remembered in the patch that the journal stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from graphflow.graph.core.budget import add_usage
from graphflow.graph.core.channels import StateSchema, Update, apply_update
from graphflow.graph.core.commands import CancelNode, Command, Commit, Request, Resolve
from graphflow.graph.core.immutable import SMALL, State, copied, freeze
from graphflow.graph.core.machine import (
    ROOT,
    RUNS,
    Frame,
    FramePatch,
    Interrupt,
    Machine,
    Opened,
    Operation,
    Patch,
    changed_notes,
    copied_interrupts,
    of_frame,
)
from graphflow.graph.core.patches import place
from graphflow.graph.core.plan import Plan, PlanNode
from graphflow.graph.core.route_trace import PendingMove, moves_of
from graphflow.graph.core.scope import Scope, limits_in
from graphflow.graph.core.ticks import AnyTick, NodeErrored, NodeSucceeded

_ENDS_ITSELF = (NodeSucceeded, NodeErrored)


class Written(msgspec.Struct, frozen=True):
    """Values as a frame's state takes them."""

    update: Update
    state: State
    """After the update; append logs grow in place, so that it must not be applied twice."""
    raw: dict[str, list[Any]] | None = None
    """In a branch: written values that the update has reduced already; the join reduces them anew."""


def written(schema: StateSchema, frame: Frame, values: Mapping[str, Any], *, replace: Iterable[str] = ()) -> Written:
    """What these values do to a frame's state; keys in `replace` are set instead of reduced.

    Raises:
        StateError: a key outside the schema, or a value of another type.
    """
    if schema.plain is not None:
        values = schema.plain(values)
    update = schema.reduce(frame.state, values, replace=replace)
    raw = None if frame.branch is None else raw_writes(schema, update, values, replace=replace)
    return Written(update, apply_update(frame.state, update), raw)


def raw_writes(
    schema: StateSchema, update: Update, values: Mapping[str, Any], *, replace: Iterable[str] = ()
) -> dict[str, list[Any]] | None:
    """See `FramePatch.raw`."""
    reduced = [key for key in update.sets if key not in replace and schema.channels[key].reduce != "replace"]
    return {key: [freeze(values[key])] for key in reduced} or None


def followed(first: Written, second: Written) -> Written:
    """Both writes as one; `second` was made on the state after `first`."""
    patch = FramePatch({}, first.update, raw=first.raw)
    join(patch, FramePatch({}, second.update, raw=second.raw))
    assert patch.update is not None
    return Written(patch.update, second.state, patch.raw)


class UnitOfWork:
    """One tick's work: the machine so far, the patch that leads there, and the commands."""

    __slots__ = (
        "_open",
        "before",
        "beginning",
        "begun",
        "checkpoint",
        "commands",
        "facts",
        "fields",
        "frame_no",
        "interrupts",
        "limits",
        "made",
        "moves",
        "node",
        "opening",
        "plan",
        "resting",
        "source",
        "spent",
        "steps",
        "stops_after",
        "stops_before",
        "table",
        "tick",
        "touched",
        "unfinished",
        "usage",
    )

    def __init__(self, plan: Plan, machine: Machine, tick: AnyTick) -> None:
        self.plan = plan
        self.before = machine
        self.tick = tick
        self.table = copied(machine.frames)
        self.touched: dict[int, FramePatch | None] = {}
        self.fields: dict[str, Any] = {}
        self.interrupts: dict[str, Interrupt | None] = {}
        """What the patch says of interrupts; set by `put_interrupt`."""
        self._open: MutableMapping[str, Interrupt] | None = None
        self.commands: list[Command] = []
        self.source = ""
        self.checkpoint = True
        self.node = ""
        self.frame_no = ROOT
        self.facts: dict[str, Any] | None = None
        self.made = 0
        self.moves: list[PendingMove] = []
        """The moves from node to node that this tick made, in order."""
        self.opening: list[Opened] = []
        """The nodes whose branches are being opened right now."""
        self.beginning: dict[int, bool] = {}
        """Frame whose node is being begun → whether that node ended at once and the next one was entered."""
        self.resting = False
        """No node is started: an edit only moves the cursors of the frames."""
        at = tick.at
        # Only the time between ticks of a running machine is active time. Clocks can step back, which must not take
        # time away.
        if machine.status == "running" and machine.last_at and at > machine.last_at:
            self.fields["active_ms"] = machine.active_ms + at - machine.last_at
        self.fields["last_at"] = at
        self.steps, self.begun = machine.steps, machine.begun
        self.limits, self.usage = machine.limits, machine.usage
        self.spent: dict[str, Any] | None = None
        """What the tick adds to the usage."""
        # A node that ends by itself brings its usage with the tick: the table has it too, and it would count twice.
        self.unfinished: set[int] = {tick.frame} if isinstance(tick, _ENDS_ITSELF) else set()
        """Frames whose share of the tick's `usages` has been counted."""
        self.stops_before, self.stops_after = machine.before, machine.after

    # reading

    def get(self, field: str) -> Any:
        """A machine field as it stands now."""
        return self.fields[field] if field in self.fields else getattr(self.before, field)

    def plan_of(self, frame: Frame) -> Plan:
        return self.plan.graphs[frame.graph]

    def node_of(self, frame: Frame) -> PlanNode:
        return self.plan.graphs[frame.graph].nodes[frame.node]

    def open_interrupts(self) -> MutableMapping[str, Interrupt]:
        """The open interrupts as they stand now; `put_interrupt` changes them."""
        return self.before.interrupts if self._open is None else self._open

    def put_interrupt(self, key: str, interrupt: Interrupt | None) -> None:
        """Opens an interrupt, or closes it with None."""
        if self._open is None:
            self._open = copied_interrupts(self.before.interrupts)
        self.interrupts[key] = interrupt
        if interrupt is None:
            self._open.pop(key, None)
        else:
            self._open[key] = interrupt

    def below(self, number: int) -> list[int]:
        """Frames below this one, innermost first."""
        if not _has_below(self.table[number]):
            return []
        # One pass over the table: asking each frame for its children would be quadratic in a wide fan.
        children: dict[int, list[int]] = {}
        for frame in self.table.values():
            children.setdefault(frame.parent, []).append(frame.number)
        out: list[int] = []
        rest = [number]
        while rest:
            found = children.get(rest.pop(), [])
            out += found
            rest += found
        return out[::-1]

    def affords_step(self, own: int = 0) -> bool:
        """Whether the budget has a step for one more node besides those that have begun and not finished.

        Args:
            own: frames of the table that stand for the one more node itself.
        """
        left = self.steps_left()
        return left is None or left + own > 0

    def steps_left(self) -> int | None:
        """Steps that the budget has left after reserving one for each frame of the table; None is no limit."""
        limit = self.most_steps()
        return None if limit is None else limit - self.steps - len(self.table)

    def most_steps(self) -> int | None:
        """The steps that the run may reach; None is no limit."""
        # `granted` lets the wrap-up node run past a spent limit; a larger limit given on resume still counts.
        limit: int | None = self.limits.get("steps")
        granted: int | None = self.get("granted").get("steps")
        return limit if granted is None else max(limit or 0, granted)

    def scope_at(self, frame: Frame, **given: Any) -> Scope:
        """The scope of expressions in a frame, as the step has it now."""
        return Scope(frame, limits_in(self.plan_of(frame), frame, self.limits), self.usage, given)

    # changing

    def change(
        self,
        number: int,
        fields: dict[str, Any],
        written: Written | None = None,
        *,
        operations: dict[str, Operation | None] | None = None,
        visits: dict[str, int] | None = None,
        inherited: Update | None = None,
    ) -> Frame:
        """Changes a frame, or opens it."""
        if written is None:
            patch, state = FramePatch(fields, None, operations, visits, None, inherited), None
        else:
            patch = FramePatch(fields, written.update, operations, visits, written.raw, inherited)
            state = written.state
        self.remember(number, patch)
        return place(self.table, number, patch, state)

    def write(self, number: int, values: Mapping[str, Any], *, replace: Iterable[str] = ()) -> Frame:
        """Writes values to a frame's state, through its reducers.

        Raises:
            StateError: a key outside the schema, or a value of another type; nothing is written then.
        """
        frame = self.table[number]
        return self.change(number, {}, written(self.plan_of(frame).schema, frame, values, replace=replace))

    def remember(self, number: int, patch: FramePatch) -> None:
        earlier = self.touched.get(number)
        if earlier is None:
            self.touched[number] = patch
        else:
            join(earlier, patch)

    def close_children(self, number: int) -> None:
        """Ends every frame below this one; the frame itself is no longer open."""
        self._close(self.below(number))
        frame = self.table[number]
        self._forget_ended(frame)
        if frame.opened is not None:
            self.change(number, {"status": "ready", "opened": None, "join": None})

    def _close(self, numbers: Sequence[int]) -> None:
        """Ends these frames; only node runs that are under way are notified."""
        for number in numbers:
            frame = self.table.pop(number)
            self.count_unfinished(number, frame.parent)
            self._forget_ended(frame)
            # None in the patch closes the frame on loading too, also one that this tick opened.
            self.touched[number] = None
            self.commands.append(CancelNode(number))
        if numbers:
            self._cancel_all(self._asked_by(set(numbers)), "cancelled")

    def _forget_ended(self, frame: Frame) -> None:
        """Drops the ended branches that the frame's join keeps."""
        if frame.join is not None:
            self.touched |= dict.fromkeys(branch.number for branch in frame.join.ended)

    def cancel_interrupts(self, number: int, decision: str) -> None:
        """Closes the open interrupts of a frame."""
        if open_ := self.open_interrupts():
            self._cancel_all(of_frame(open_, number), decision)

    def _asked_by(self, numbers: set[int]) -> list[Interrupt]:
        """The open interrupts of these frames."""
        open_ = self.open_interrupts()
        if len(open_) <= max(SMALL, len(numbers)):
            return [interrupt for interrupt in open_.values() if interrupt.frame in numbers]
        return [interrupt for number in numbers for interrupt in of_frame(open_, number)]

    def _cancel_all(self, interrupts: Iterable[Interrupt], decision: str) -> None:
        for interrupt in interrupts:
            self.put_interrupt(interrupt.id, None)
            self.commands.append(Resolve(interrupt, decision))

    def ask(self, interrupt: Interrupt) -> None:
        self.put_interrupt(interrupt.id, interrupt)
        self.change(interrupt.frame, {"status": "waiting"})
        self.commands.append(Request(interrupt))

    def new_frame(self) -> int:
        """A number that no frame of the lineage has had."""
        return self.new_frames(1)

    def new_frames(self, count: int) -> int:
        """The first of so many numbers in a row that no frame of the lineage has had."""
        number: int = self.get("frames_made")
        self.fields["frames_made"] = number + count
        return number

    def go_on_as(self, run_id: str) -> None:
        """Another run goes on here: its nodes repeat writes of the run before under their keys (E6)."""
        if run_id != self.before.run_id:
            self.fields |= {"run_id": run_id, "origin": self.before.input_run_id}

    def new_node_run_id(self) -> str:
        """An id for a node that stays open while frames below it run; unlike those of all other node runs."""
        self.made += 1
        tick_id = self.tick.id or f"open{self.get('begun')}"  # without a store few ticks have one
        return f"{tick_id}.{self.made}"

    def new_interrupt_id(self) -> str:
        """An id with the checkpoint that opens the interrupt in it: after a rewind an old answer is stale (E8)."""
        self.made += 1
        return f"{self.tick.id}.{self.made}"

    def add_usage(self, more: Mapping[str, Any] | None, number: int = ROOT) -> None:
        """Counts what was used in a frame: in the run, and in each agent that the frame is in."""
        if more:
            self.usage = add_usage(self.usage, more)
            self.spent = add_usage(self.spent, more) if self.spent else dict(more)
            while number > ROOT:
                frame = self.table[number]
                if frame.spent is not None:
                    self.change(number, {"spent": add_usage(frame.spent, more)})
                number = frame.parent

    def count_unfinished(self, number: int, below: int | None = None) -> None:
        """Counts what the frame's node run has used; this tick ends it before it ends by itself.

        Args:
            below: the frame above, for a frame that has left the table.
        """
        usages = self.tick.usages
        if usages is not None and number not in self.unfinished:
            self.unfinished.add(number)
            self.add_usage(usages.get(number), number if below is None else below)

    def _count_time(self) -> None:
        """Adds the active time since the run last rested; only runs that called a model or a tool count it."""
        active_ms = self.get("active_ms") - self.usage.get("activeMs", 0)
        if active_ms:
            self.add_usage({"activeMs": active_ms})

    def _runs(self) -> bool:
        """Whether any frame has something to run."""
        table = self.table
        # What this tick began is found at once: a look at the whole table would cost each of many questions as much as all.
        if any((frame := table.get(number)) is not None and frame.status in RUNS for number in self.touched):
            return True
        root = table.get(ROOT)
        if root is not None and root.join is not None and root.opened is not None and root.opened.at_once is not None:
            return root.join.working > 0
        return any(frame.status in RUNS for frame in table.values())

    def done(self) -> tuple[Machine, list[Command]]:
        fields, before = self.fields, self.before
        if self.steps != before.steps:
            fields["steps"] = self.steps
        if self.begun != before.begun:
            fields["begun"] = self.begun
        if self.get("status") in ("running", "waiting"):
            # Derived from the frames at the end, so that no handler has to keep the status right while it moves them.
            status = "waiting" if self.open_interrupts() and not self._runs() else "running"
            if status != self.before.status or "status" in fields:
                fields["status"] = status
        # `activeMs` is updated when the run rests: otherwise each record would store one more number for nothing.
        if before.status == "running" and self.usage and fields.get("status", "running") != "running":
            self._count_time()
        if self.usage is not before.usage:
            fields["usage"] = self.usage
        # One move can be derived from the patch. With several, frames that ended in between are gone from it.
        if len(self.moves) > 1:
            self.facts = {**(self.facts or {}), "moves": moves_of(self.moves)}
        patch = Patch(dict(fields), self.touched, self.interrupts)
        if "kept" in fields:
            fields["kept"] = changed_notes(before.kept, fields["kept"])
        if self.touched:
            fields["frames"] = self.table
        if self.interrupts:
            fields["interrupts"] = self.open_interrupts()
        machine = msgspec.structs.replace(self.before, **fields)
        tick = self.tick
        commit = Commit(
            tick.id,
            tick.at,
            self.source,
            self.checkpoint,
            patch,
            self.node,
            self.frame_no,
            self.facts,
            self.before,
            machine,
            spent=self.spent,
        )
        return machine, [commit, *self.commands]


def _has_below(frame: Frame) -> bool:
    """Whether the table may have frames below this one."""
    return frame.opened is not None and (frame.join is None or frame.join.running > 0)


def join(first: FramePatch, second: FramePatch) -> None:
    """Makes `first` the one patch for two that follow each other on a frame."""
    first.fields.update(second.fields)
    if second.update is not None:
        first.update = second.update if first.update is None else _joined_updates(first.update, second.update)
    if second.operations:
        first.operations = {**(first.operations or {}), **second.operations}
    if second.visits:
        first.visits = {**(first.visits or {}), **second.visits}
    if second.raw:
        raw = dict(first.raw or {})
        for key, values in second.raw.items():
            raw[key] = [*raw.get(key, ()), *values]
        first.raw = raw


def _joined_updates(first: Update, second: Update) -> Update:
    logs = dict(first.logs)
    for key, entries in second.logs.items():
        # Log entries and merged keys of both updates count; of two plain writes the later one wins.
        logs[key] = [*logs.get(key, ()), *entries]
    merges = dict(first.merges)
    for key, changed in second.merges.items():
        merges[key] = {**merges.get(key, {}), **changed}
    return Update({**first.sets, **second.sets}, logs, merges, first.size + second.size)
