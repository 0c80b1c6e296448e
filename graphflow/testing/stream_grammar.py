"""The grammar of a run's stream, as one small state machine (spec 3.3): which event may follow which.

`StreamRules.take` gets every event in the order of sending and refuses the first one that breaks a rule:

- `request.*`, `chat.start` and `run.start` come first; exactly one terminal comes last, and after `run.waiting` only what
  leads on from it.
- A block starts with its first piece. Reasoning and content of a node run close each other, input of a call closes both;
  several calls may be open at once. An id is never opened again. Snapshots close nothing.
- A result needs a known call whose input is closed, and a call has one result. `run.complete` leaves no call without one.
- Nothing is open at the end of its node run, at the end of a task, at `run.waiting` or at a terminal.
- `plan.*` and `task.*`: see `PlanRules`.

`Blocks` and `EventEmitter` make streams that keep these rules; this module only knows events, so it can check any
stream: live, rebuilt, or received over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from graphflow import events as ev
from graphflow.errors import StreamBroken
from graphflow.runtime.runs.event_ring import block_id

AFTER_WAITING = (ev.RequestSubmit, ev.InterruptResolve, ev.RunResume, ev.RunCancel, ev.RunError)
"""What may follow `run.waiting`, until the run goes on (spec 3.3)."""
_BEFORE_START = (ev.RequestQuery, ev.RequestUpload, ev.ChatStart, ev.RunStart)


class _Block(msgspec.Struct):
    kind: str
    """`content`, `reasoning`, `tool` or `action`."""
    node_run_id: str | None
    state: str = "open"
    """Of text: `open`, `ended`; of a call also `param` and `answered`."""
    pieces: int = 0

    @property
    def is_call(self) -> bool:
        return self.kind in ("tool", "action")


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
        # A run that goes on from another's checkpoint has the plan already, so an update may come first.
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


class StreamRules:
    """Where one run's stream stands.

    Args:
        whole: the stream is as it was sent live, all families, from its first event: numbers have no gap, node runs are
            known, pieces of arguments are counted. Else it is rebuilt or filtered, and numbers only increase.
    """

    def __init__(self, *, whole: bool = True) -> None:
        self._whole = whole
        self._seq = 0
        self._at = 0
        self._phase = "new"
        self._said: set[type[ev.Event]] = set()
        self.plans = PlanRules("", "")
        self._blocks: dict[str, _Block] = {}
        self._node_runs: dict[str, bool] = {}
        """Id → whether it is under way."""
        self._interrupts: set[str] = set()
        """Open ones."""
        self._answered = False
        """Whether something of what the run waits for was resolved."""
        self._inherits = False
        """The run goes on from another's checkpoint: node runs and calls may have begun there."""
        self._fresh: str | None = None
        """A text block that has started and whose first piece must come next."""

    @property
    def ended(self) -> bool:
        """Whether the terminal has come."""
        return self._phase == "over"

    @property
    def open_blocks(self) -> list[str]:
        """Ids of blocks that have no end yet, in the order of their opening."""
        return [key for key, block in self._blocks.items() if block.state == "open"]

    def take(self, event: ev.Event) -> None:
        """The next event of the stream.

        Raises:
            StreamBroken: a rule forbids it here; the message names the event and the rule.
        """
        try:
            self._check_place(event)
            rule = _RULES.get(type(event))
            if rule is not None:
                rule(self, event)
        except StreamBroken as broken:
            # The rules raise without a place; whoever reads the error needs it.
            raise StreamBroken(f"event {event.seq} {event.type}: {broken.message}", seq=event.seq) from None

    def pass_over(self, event: ev.Event) -> None:
        """An event that moved the thread while no run was driven (an edit, say), or that is sent again."""
        self._seq, self._at = max(self._seq, event.seq), max(self._at, event.timestamp)
        if isinstance(event, ev.InterruptRequest):
            self._interrupts.add(event.interrupt_id)
        elif isinstance(event, ev.InterruptResolve):
            self._interrupt_resolve(event)
        elif isinstance(event, ev.RunWaiting):
            self._phase = "waiting"

    def begin_epoch(self) -> None:
        """Another process continues the run: blocks that the epoch before left open are void, their ids stay used."""
        for block in self._blocks.values():
            # The process died with the block open; its end will never be sent.
            if block.state == "open":
                block.state = "void"
        self._fresh = None

    # --- where an event may stand

    def _check_place(self, event: ev.Event) -> None:
        kind = type(event)
        _demand(kind is not ev.StreamReset, "it is not part of a run's log")
        _demand(self._phase != "over", "nothing comes after a terminal")
        # A filtered stream leaves numbers out; a rebuilt one has no deltas.
        gap = event.seq != self._seq + 1 if self._whole else event.seq <= self._seq
        _demand(not gap, f"its number follows {self._seq}")
        _demand(event.timestamp >= self._at, f"its time falls behind that of the event before, {self._at}")
        if self._phase == "new":
            _demand(isinstance(event, _BEFORE_START), "run.start has not come")
        elif isinstance(event, _BEFORE_START):
            raise StreamBroken("the run has started already")
        if self._phase == "waiting" and not (
            self._answered and (event.family == "graph" or kind is ev.InterruptRequest)
        ):
            again = self._answered and kind is ev.RunWaiting
            _demand(again or kind in AFTER_WAITING, "the run waits: only what leads on from it may come")
        if self._fresh is not None:
            _demand(block_id(event) == self._fresh, f"the first piece of block {self._fresh!r} must follow its start")
            self._fresh = None
        self._seq = event.seq
        self._at = event.timestamp

    def _once(self, event: ev.Event) -> None:
        _demand(type(event) not in self._said, "it comes once")
        self._said.add(type(event))

    # --- the run

    def _run_start(self, event: ev.RunStart) -> None:
        self._phase = "running"
        self.plans = PlanRules(event.run_id, event.chat_id)

    def _of_run(self, event: Any) -> None:
        _demand(event.run_id == self.plans.run_id, f"it names run {event.run_id!r}, and this is {self.plans.run_id!r}")

    def _run_resume(self, event: ev.RunResume) -> None:
        self._of_run(event)
        _demand(event.chat_id == self.plans.chat_id, f"it names chat {event.chat_id!r}, not {self.plans.chat_id!r}")
        # A resume before any node of this run means that the run began at another run's checkpoint.
        self._inherits = self._inherits or not self._node_runs
        self._phase = "running"

    def _run_waiting(self, event: ev.RunWaiting) -> None:
        self._of_run(event)
        self._nothing_open("run.waiting")
        listed = {str(each.get("interruptId")) for each in event.interrupts}
        # A filtered stream may lack the requests, so the list can only be compared in a whole one.
        if self._whole:
            _demand(listed == self._interrupts, f"it lists {sorted(listed)}, and open are {sorted(self._interrupts)}")
        self._phase, self._answered = "waiting", False

    def _run_end(self, event: Any) -> None:
        self._of_run(event)
        self._nothing_open("a terminal")
        _demand(self.plans.task_id is None, f"task {self.plans.task_id!r} is still active")
        # A run that failed or was cancelled may leave calls without a result; a completed one has answered all.
        if isinstance(event, ev.RunComplete):
            waiting = [
                key for key, block in self._blocks.items() if block.is_call and block.state in ("ended", "param")
            ]
            _demand(not waiting, f"calls without a result: {waiting}")
        self._phase = "over"

    def _nothing_open(self, where: str, node_run_id: str | None = None) -> None:
        left = [key for key in self.open_blocks if node_run_id in (None, self._blocks[key].node_run_id)]
        _demand(not left, f"blocks are open at {where}: {left}")

    # --- tasks

    def _task_end(self, event: Any) -> None:
        self._nothing_open("the end of a task")
        self.plans.end(event.task_id)

    def _of_task(self, task_id: str | None) -> None:
        active = self.plans.task_of(task_id)
        _demand(task_id == active, f"it must bear the active task {active!r}")

    # --- blocks

    def _open(self, key: str, event: Any) -> None:
        self._of_task(event.task_id)
        _demand(key not in self._blocks, f"the id {key!r} was used already: an id is never opened again")
        if event.node_run_id is not None:
            self._under_way(event.node_run_id)
        kind = event.type.partition(".")[0]
        if event.type.endswith(".snapshot"):
            self._blocks[key] = _Block(kind, event.node_run_id, "ended")
            return
        self._of_run(event)
        self._no_text(event.node_run_id)
        self._blocks[key] = _Block(kind, event.node_run_id)
        if kind in ("content", "reasoning"):
            self._fresh = key

    def _no_text(self, node_run_id: str | None) -> None:
        """What begins, or goes on, closes the text blocks of its node run first."""
        left = [
            k for k in self.open_blocks if self._blocks[k].node_run_id == node_run_id and not self._blocks[k].is_call
        ]
        _demand(not left, f"text blocks of the same node run are open: {left}")

    def _start(self, event: Any) -> None:
        self._open(block_id(event), event)

    def _piece(self, event: Any) -> None:
        block = self._known(event, ("open",), "it is not open")
        _demand(event.delta != "", "an empty piece says nothing")
        if block.is_call:
            self._no_text(block.node_run_id)
        if self._whole and isinstance(event, ev.ToolArgs):
            _demand(event.chunk_index == block.pieces, f"chunkIndex must be {block.pieces}, not {event.chunk_index}")
        block.pieces += 1

    def _end(self, event: Any) -> None:
        block = self._known(event, ("open",), "it is not open")
        _demand(block.is_call or block.pieces > 0, "a text block without a piece is never started")
        block.state = "ended"

    def _snapshot(self, event: Any) -> None:
        """Closes nothing; of a block that the stream does not show it stands for the whole of it."""
        key = block_id(event)
        # A live stream has the block itself as well; a rebuilt one has only the snapshot.
        if key in self._blocks:
            self._of_task(event.task_id)
        else:
            self._open(key, event)

    def _result(self, event: Any) -> None:
        # The call may have begun in the run that this one goes on from.
        if self._inherits and block_id(event) not in self._blocks:
            self._blocks[block_id(event)] = _Block(event.type.partition(".")[0], None, "ended")
        self._known(event, ("ended", "param"), "its input must be closed, and it has one result").state = "answered"

    def _param(self, event: ev.ActionParam) -> None:
        if self._inherits and event.action_id not in self._blocks:
            self._blocks[event.action_id] = _Block("action", None, "ended")
        self._known(event, ("ended",), "it comes once, between action.end and action.result").state = "param"

    def _known(self, event: Any, states: Iterable[str], rule: str) -> _Block:
        key = block_id(event)
        block = self._blocks.get(key)
        if block is None or block.kind != event.type.partition(".")[0]:
            raise StreamBroken(f"no {event.type.partition('.')[0]} has the id {key!r}")
        _demand(block.state in states, f"{key!r} is {block.state}: {rule}")
        return block

    # --- the graph family

    def _node_start(self, event: ev.NodeStart) -> None:
        _demand(event.node_run_id not in self._node_runs, f"node run {event.node_run_id!r} was begun already")
        self._node_runs[event.node_run_id] = True

    def _node_end(self, event: Any) -> None:
        self._under_way(event.node_run_id)
        self._nothing_open("the end of their node run", event.node_run_id)
        self._node_runs[event.node_run_id] = False

    def _under_way(self, node_run_id: str) -> None:
        known = self._node_runs.get(node_run_id, self._inherits)
        _demand(known or not self._whole, f"node run {node_run_id!r} is not under way")

    def _interrupt_request(self, event: ev.InterruptRequest) -> None:
        self._of_run(event)
        self._interrupts.add(event.interrupt_id)

    def _interrupt_resolve(self, event: ev.InterruptResolve) -> None:
        self._interrupts.discard(event.interrupt_id)
        self._answered = True


def _demand(kept: bool, rule: str) -> None:
    if not kept:
        raise StreamBroken(rule)


_Rule = Callable[[StreamRules, Any], None]
_RULES: dict[type[ev.Event], _Rule] = {
    **dict.fromkeys((ev.RequestQuery, ev.ChatStart), StreamRules._once),
    ev.RunStart: StreamRules._run_start,
    ev.RunResume: StreamRules._run_resume,
    ev.RunWaiting: StreamRules._run_waiting,
    ev.RequestSubmit: StreamRules._of_run,
    **dict.fromkeys(ev.TERMINAL, StreamRules._run_end),
    ev.PlanCreate: lambda rules, event: rules.plans.create(event.plan_id, event.chat_id),
    ev.PlanUpdate: lambda rules, event: rules.plans.update(event.plan_id, event.chat_id),
    ev.TaskStart: lambda rules, event: rules.plans.start(event.task_id, event.run_id),
    **dict.fromkeys((ev.TaskComplete, ev.TaskCancel, ev.TaskFail), StreamRules._task_end),
    **dict.fromkeys((ev.ContentStart, ev.ReasoningStart, ev.ToolStart, ev.ActionStart), StreamRules._start),
    **dict.fromkeys((ev.ContentDelta, ev.ReasoningDelta, ev.ToolArgs, ev.ActionArgs), StreamRules._piece),
    **dict.fromkeys((ev.ContentEnd, ev.ReasoningEnd, ev.ToolEnd, ev.ActionEnd), StreamRules._end),
    **dict.fromkeys(
        (ev.ContentSnapshot, ev.ReasoningSnapshot, ev.ToolSnapshot, ev.ActionSnapshot), StreamRules._snapshot
    ),
    **dict.fromkeys((ev.ToolResultEvent, ev.ActionResult), StreamRules._result),
    ev.ActionParam: StreamRules._param,
    ev.SourceSnapshot: lambda rules, event: rules._of_task(event.task_id),
    ev.NodeStart: StreamRules._node_start,
    **dict.fromkeys((ev.NodeEnd, ev.NodeError), StreamRules._node_end),
    ev.NodeProgress: lambda rules, event: rules._under_way(event.node_run_id),
    ev.InterruptRequest: StreamRules._interrupt_request,
    ev.InterruptResolve: StreamRules._interrupt_resolve,
}


def _named(task_id: str) -> str:
    if not task_id.strip():
        raise StreamBroken(f"a task's id is {task_id!r}; it must not be blank")
    return task_id
