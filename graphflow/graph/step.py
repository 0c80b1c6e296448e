"""The work of one tick: every change is applied at once and remembered in the patch that the journal stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.graph.machine import (
    ROOT,
    AnyTick,
    CancelNode,
    Command,
    Commit,
    Frame,
    FramePatch,
    Interrupt,
    Machine,
    Operation,
    Patch,
    Request,
    Resolve,
    patched,
)
from graphflow.graph.plan import Plan, PlanNode
from graphflow.graph.scope import add_usage
from graphflow.graph.state import State, Update


class Step:
    """One tick's work: the machine so far, the patch that leads there, and the commands."""

    __slots__ = (
        "before",
        "begun",
        "checkpoint",
        "commands",
        "facts",
        "fields",
        "frame_no",
        "interrupts",
        "limits",
        "made",
        "node",
        "plan",
        "source",
        "steps",
        "stops_after",
        "stops_before",
        "table",
        "tick",
        "touched",
        "usage",
    )

    def __init__(self, plan: Plan, machine: Machine, tick: AnyTick) -> None:
        self.plan = plan
        self.before = machine
        self.tick = tick
        self.table = dict(machine.frames)
        self.touched: dict[int, FramePatch | None] = {}
        self.fields: dict[str, Any] = {}
        self.interrupts: dict[str, Interrupt | None] = {}
        self.commands: list[Command] = []
        self.source = ""
        self.checkpoint = True
        self.node = ""
        self.frame_no = ROOT
        self.facts: dict[str, Any] | None = None
        self.made = 0
        at = tick.at
        if machine.status == "running" and machine.last_at and at > machine.last_at:
            self.fields["active_ms"] = machine.active_ms + at - machine.last_at
        self.fields["last_at"] = at
        self.steps, self.begun = machine.steps, machine.begun
        self.limits, self.usage = machine.limits, machine.usage
        self.stops_before, self.stops_after = machine.before, machine.after

    # reading

    def get(self, field: str) -> Any:
        """A machine field as it stands now."""
        return self.fields[field] if field in self.fields else getattr(self.before, field)

    def plan_of(self, frame: Frame) -> Plan:
        return self.plan.graphs[frame.graph]

    def node_of(self, frame: Frame) -> PlanNode:
        return self.plan.graphs[frame.graph].nodes[frame.node]

    def open_interrupts(self) -> dict[str, Interrupt]:
        out = {**self.before.interrupts, **self.interrupts}
        return {key: value for key, value in out.items() if value is not None}

    def children(self, number: int) -> list[int]:
        """Frames below this one, innermost first."""
        direct = [n for n, frame in self.table.items() if frame.parent == number]
        return [m for n in direct for m in (*self.children(n), n)]

    # changing

    def change(
        self,
        number: int,
        fields: dict[str, Any],
        update: Update | None = None,
        operations: dict[str, Operation | None] | None = None,
        visits: dict[str, int] | None = None,
        written: tuple[Update, State] | None = None,
    ) -> Frame:
        """Changes a frame; `written` is an update whose result is known already (append logs grow in place, so it
        must not be applied twice).
        """
        patch = FramePatch(fields, update, operations, visits)
        if written is None:
            frame = patched(self.table.get(number), number, patch)
        else:
            frame = patched(self.table[number], number, FramePatch({**fields, "state": written[1]}, None, None, visits))
            patch.update = written[0]
        self.table[number] = frame
        self.remember(number, patch)
        return frame

    def write(self, number: int, update: Update, state: State) -> None:
        """Puts an update whose result is known already; append logs grow in place, so it must not be applied twice."""
        self.table[number] = msgspec.structs.replace(self.table[number], state=state)
        self.remember(number, FramePatch({}, update))

    def remember(self, number: int, patch: FramePatch) -> None:
        earlier = self.touched.get(number)
        if earlier is None:
            self.touched[number] = patch
        else:
            join(earlier, patch)

    def close(self, number: int) -> None:
        for child in (*self.children(number), number):
            frame = self.table.pop(child)
            if frame.status in ("ready", "waiting") and self.node_of(frame).form == "use":
                self.commands.append(CancelNode(child))
            self.touched[child] = None
            self.void(child, "cancelled")

    def void(self, number: int, decision: str) -> None:
        """Closes the open interrupts of a frame."""
        for interrupt in list(self.open_interrupts().values()):
            if interrupt.frame == number:
                self.interrupts[interrupt.id] = None
                self.commands.append(Resolve(interrupt, decision))

    def ask(self, interrupt: Interrupt) -> None:
        self.interrupts[interrupt.id] = interrupt
        self.change(interrupt.frame, {"status": "waiting"})
        self.commands.append(Request(interrupt))

    def new_interrupt_id(self) -> str:
        """Bears the checkpoint that opens it, so that an old answer is stale after a rewind (E8)."""
        self.made += 1
        return f"{self.tick.id}.{self.made}"

    def add_usage(self, more: Mapping[str, Any] | None) -> None:
        if more:
            self.usage = add_usage(self.usage, more)

    def done(self) -> tuple[Machine, list[Command]]:
        fields, before = self.fields, self.before
        if self.steps != before.steps:
            fields["steps"] = self.steps
        if self.begun != before.begun:
            fields["begun"] = self.begun
        if self.usage is not before.usage:
            fields["usage"] = self.usage
        if self.get("status") in ("running", "waiting"):
            waits = not any(f.status in ("ready", "backoff") for f in self.table.values())
            status = "waiting" if waits and self.open_interrupts() else "running"
            if status != self.before.status or "status" in fields:
                fields["status"] = status
        patch = Patch(dict(fields), self.touched, self.interrupts)
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
        )
        return machine, [commit, *self.commands]


def join(first: FramePatch, second: FramePatch) -> None:
    """Makes `first` the one patch for two that follow each other on a frame."""
    first.fields.update(second.fields)
    if second.update is not None:
        first.update = second.update if first.update is None else _joined_updates(first.update, second.update)
    if second.operations:
        first.operations = {**(first.operations or {}), **second.operations}
    if second.visits:
        first.visits = {**(first.visits or {}), **second.visits}


def _joined_updates(first: Update, second: Update) -> Update:
    logs = dict(first.logs)
    for key, entries in second.logs.items():
        logs[key] = [*logs.get(key, ()), *entries]
    merges = dict(first.merges)
    for key, changed in second.merges.items():
        merges[key] = {**merges.get(key, {}), **changed}
    return Update({**first.sets, **second.sets}, logs, merges)
