"""The `plan.*` and `task.*` events of a run, as a function of its machine (spec 3.3).

A state key of the root graph that is marked `"x-tasks": [NODE, …]` holds a plan:
`{planId, steps: [{taskId, title, description, goal, successCriteria, status}]}`; the nodes named work on its tasks. A
task is active while its status is `running` and the run is at one of these nodes. A task still `running` when the run
leaves these nodes has failed, or was cancelled with the run, whatever the state says.

The events are sent with the record of the change that they describe, so that a crash loses both or neither: a new epoch
compares with the machine that it loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.errors import NodeFailed
from graphflow.events import Event, PlanCreate, PlanUpdate, TaskCancel, TaskComplete, TaskFail, TaskStart
from graphflow.graph.core.immutable import thaw
from graphflow.graph.core.machine import ROOT, Machine
from graphflow.graph.core.plan import Plan
from graphflow.graph.definition.document import END


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as readers see it."""

    plan_id: str | None
    steps: tuple[dict[str, Any], ...]
    active: str | None = None
    """The task that is worked on."""
    error: dict[str, Any] | None = None
    """Why the task that was left has failed."""

    def step(self, task_id: str) -> Mapping[str, Any]:
        return next((step for step in self.steps if step["taskId"] == task_id), {})


class PlanEvents:
    """The plan events of one epoch.

    Args:
        key: the state key that holds it.
        nodes: those that work on its tasks.
    """

    def __init__(self, machine: Machine, thread_id: str, key: str, nodes: frozenset[str]) -> None:
        self._thread_id, self._key, self._nodes = thread_id, key, nodes
        self._seen = machine
        self._takes_up = _is_moved(machine)
        """Whether the plan comes from an earlier run and this run has sent nothing about it yet."""
        self._told = None if self._takes_up else self._shown(machine)

    @classmethod
    def of(cls, plan: Plan, machine: Machine, thread_id: str) -> PlanEvents | None:
        """None for a graph without a plan."""
        found = _marked(plan)
        return None if found is None else cls(machine, thread_id, *found)

    @property
    def active(self) -> str | None:
        """The task that leaf events belong to now."""
        return None if self._told is None else self._told.active

    def since(self, machine: Machine) -> list[Event]:
        """The events for what has changed in the plan since the last call."""
        seen = self._seen
        if machine is seen:
            return []
        self._seen = machine
        if seen.run_id not in ("", machine.run_id):
            self._takes_up, self._told = True, None
        takes_up = self._takes_up
        if takes_up and machine.status != "running":
            return []  # the run rests; once it goes on, `run.resume` comes first
        told, now = self._told, self._shown(machine)
        self._takes_up, self._told = False, now
        return _between(told, now, machine.run_id, self._thread_id, takes_up=takes_up)

    def failed(self, error: dict[str, Any]) -> list[Event]:
        """The events that fail the active task when the run ends with an error that no record can keep."""
        told = self._told
        if told is None or told.active is None:
            return []
        self._told = None
        return [TaskFail(task_id=told.active, error=error)]

    def _shown(self, machine: Machine) -> Shown | None:
        root = machine.frames.get(ROOT)
        plan = None if root is None else root.state.get(self._key)
        if root is None or not isinstance(plan, Mapping) or not _is_plan(plan):
            return None
        steps, plan_id = tuple(thaw(step) for step in plan["steps"]), plan.get("planId")
        running = next((step for step in steps if step["status"] == "running"), None)
        if not self._nodes or (root.join is not None and root.node not in self._nodes):
            return Shown(plan_id=plan_id, steps=steps)  # steps that run side by side: none of them is the active one
        if root.node in self._nodes and machine.status in _GOES_ON:
            return Shown(plan_id=plan_id, steps=steps, active=running and running["taskId"])
        if running is not None:
            stopped = machine.status == "stopped" or machine.finish_reason == "rejected"
            running["status"] = "canceled" if stopped else "failed"
        if root.node not in self._nodes or root.node == END:
            for step in steps:
                if step["status"] == "init":
                    step["status"] = "canceled"
        return Shown(plan_id=plan_id, steps=steps, error=machine.error or root.error)


_GOES_ON = ("running", "waiting")


def _is_moved(machine: Machine) -> bool:
    """Whether the run has only waited since the rewind, fork or edit that began it (E8)."""
    if machine.status != "waiting":
        return False
    # A move gives its run its own id, and the ids of the questions that it issues anew begin with that.
    return any(
        i.reissue_of is not None and i.id.rpartition(".")[0] == machine.run_id for i in machine.interrupts.values()
    )


def _marked(plan: Plan) -> tuple[str, frozenset[str]] | None:
    """The key that holds the plan, and the nodes that work on it."""
    found = ((key, channel.tasks) for key, channel in plan.schema.channels.items() if channel.tasks is not None)
    return next(((key, frozenset(nodes)) for key, nodes in found), None)


def _is_plan(value: Mapping[str, Any]) -> bool:
    """Whether the value has the shape of a plan; a state can be edited by hand, and then no events are sent."""
    steps = value.get("steps")
    if isinstance(steps, str) or not hasattr(steps, "__iter__"):
        return False
    return all(
        isinstance(step, Mapping) and isinstance(step.get("taskId"), str) and isinstance(step.get("status"), str)
        for step in steps or ()
    )


def _between(told: Shown | None, now: Shown | None, run_id: str, chat_id: str, *, takes_up: bool) -> list[Event]:
    """The events that lead from one view to the next: the end of a task, the plan, the start of a task.

    Args:
        takes_up: the plan was made in an earlier run.
    """
    out: list[Event] = []
    if told is not None and told.active is not None and (now is None or now.active != told.active):
        out.append(_task_end(told.active, now))
    if now is None:
        return out
    plan_id = now.plan_id or f"plan_{run_id}"
    if told is None and not takes_up:
        fresh = [{**step, "status": "init"} if step["status"] == "running" else step for step in now.steps]
        out.append(PlanCreate(plan_id=plan_id, chat_id=chat_id, plan={"steps": fresh}))
        changed = fresh != list(now.steps)
    else:
        changed = told is None or told.steps != now.steps
    if changed:
        out.append(PlanUpdate(plan_id=plan_id, chat_id=chat_id, plan={"steps": list(now.steps)}))
    if now.active is not None and (told is None or told.active != now.active):
        step = now.step(now.active)
        name, description = step.get("title"), step.get("description")
        out.append(TaskStart(task_id=now.active, run_id=run_id, task_name=name, description=description))
    return out


def _task_end(task_id: str, now: Shown | None) -> Event:
    status = None if now is None else now.step(task_id).get("status")
    if status == "completed":
        return TaskComplete(task_id=task_id)
    if now is not None and status == "failed":
        return TaskFail(task_id=task_id, error=now.error or NodeFailed(f"task {task_id!r} has failed").as_dict())
    return TaskCancel(task_id=task_id)
