"""Which plan a run follows and which of its tasks is active: what `plan.*` and `task.*` events may say next (spec 3.3).

Pure: whoever sends these events asks first, and the events that follow are held against the same rules (`stream_rules`).
"""

from __future__ import annotations

from graphflow.errors import StreamBroken


class PlanRules:
    """The plan and the active task of one run.

    Args:
        run_id: the run's.
        chat_id: the chat's; a plan of another chat is refused.
    """

    __slots__ = ("chat_id", "plan_id", "run_id", "task_id")

    def __init__(self, run_id: str, chat_id: str) -> None:
        self.run_id, self.chat_id = run_id, chat_id
        self.plan_id: str | None = None
        self.task_id: str | None = None
        """The task that is active; leaf events that name none belong to it."""

    def create(self, plan_id: str, chat_id: str) -> None:
        """A plan becomes the active one.

        Raises:
            StreamBroken: another chat's, or a task of the plan before is active.
        """
        self._check_chat(plan_id, chat_id)
        if self.task_id is not None:
            raise StreamBroken(
                f"plan {plan_id!r} can't begin while task {self.task_id!r} is active; end the task first"
            )
        self.plan_id = plan_id

    def update(self, plan_id: str, chat_id: str) -> None:
        """What becomes of the active plan; the first update without one makes its plan the active one.

        Raises:
            StreamBroken: another chat's, or not the active plan.
        """
        self._check_chat(plan_id, chat_id)
        if self.plan_id is None:
            self.plan_id = plan_id
        elif plan_id != self.plan_id:
            raise StreamBroken(f"plan {plan_id!r} is not the active one, {self.plan_id!r}")

    def start(self, task_id: str, run_id: str) -> None:
        """A task becomes active.

        Raises:
            StreamBroken: there is no plan, the run is another, or a task is active already.
        """
        if self.plan_id is None:
            raise StreamBroken(
                f"task {task_id!r} can't start: the run has no plan; send plan.create or plan.update first"
            )
        if run_id != self.run_id:
            raise StreamBroken(f"task {task_id!r} names run {run_id!r}, and this is run {self.run_id!r}")
        if self.task_id is not None:
            raise StreamBroken(f"task {task_id!r} can't start while task {self.task_id!r} is active")
        self.task_id = _named(task_id)

    def end(self, task_id: str) -> None:
        """The active task is over, whatever became of it.

        Raises:
            StreamBroken: the task is not the active one.
        """
        if self.task_id is None or task_id != self.task_id:
            active = "none is active" if self.task_id is None else f"{self.task_id!r} is"
            raise StreamBroken(f"task {task_id!r} can't end: {active}")
        self.task_id = None

    def task_of(self, task_id: str | None) -> str | None:
        """The task that a leaf event belongs to: the one it names, else the active one.

        Raises:
            StreamBroken: it names another than the active one, or a blank one.
        """
        if task_id is not None and _named(task_id) != self.task_id:
            active = "no task" if self.task_id is None else f"task {self.task_id!r}"
            raise StreamBroken(f"an event names task {task_id!r} while {active} is active; leave taskId out")
        return self.task_id

    def _check_chat(self, plan_id: str, chat_id: str) -> None:
        if chat_id != self.chat_id:
            raise StreamBroken(f"plan {plan_id!r} names chat {chat_id!r}, and the run is of chat {self.chat_id!r}")


def _named(task_id: str) -> str:
    if not task_id.strip():
        raise StreamBroken(f"a task's id is {task_id!r}; it must not be blank")
    return task_id
