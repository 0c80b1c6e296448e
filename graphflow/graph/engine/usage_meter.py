"""What one node run uses: counted against the run's limits at once, stored with its records (spec 1.3, E11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphflow.errors import BudgetExceeded
from graphflow.events import PlanCreate, PlanUpdate
from graphflow.graph.core.budget import SPENT, add_usage, agents_above, check_spending, exceeded, usage_between
from graphflow.graph.core.immutable import freeze
from graphflow.graph.core.machine import Frame, Machine, Operation
from graphflow.graph.core.ticks import OperationRecorded
from graphflow.graph.definition.document import GraphDefinition
from graphflow.graph.engine.context import Context
from graphflow.graph.engine.run import Run

_A_TOOL_CALL = {"toolCalls": 1}


def _counted(figures: Mapping[str, float]) -> dict[str, float]:
    """The figures without those that are nothing; a cost of nothing says that the price is known."""
    return {figure: value for figure, value in figures.items() if value or figure == "costUsd"}


def _without_tool_calls(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    return {figure: value for figure, value in (usage or {}).items() if figure not in _A_TOOL_CALL}


def _without(usage: Mapping[str, Any], less: Mapping[str, Any]) -> dict[str, Any]:
    """A usage less a part of it; figures that come to nothing are left out."""
    left = add_usage(usage, {figure: -value for figure, value in less.items()})
    return {figure: value for figure, value in left.items() if value or figure not in less}


class UsageMeter(Context):
    """A context that counts.

    Usage belongs to the node run until a record holds it, and to the run from then on: a crash loses both the work and
    its usage, or neither.
    """

    __slots__ = ("_begun", "_charged", "alive", "counted", "facts", "frame", "memory", "offered", "usage")

    usage: dict[str, Any] | None
    """What this node run used so far."""
    counted: dict[str, Any] | None
    """The part of it that records have brought to the run's usage; the rest follows when the node ends."""
    facts: dict[str, Any] | None
    """What the node's record keeps of its operations: the `model` called, results of writes that end it (E5)."""
    memory: dict[Any, Any]
    """What built-in nodes remember from one node run to the next; gone with the epoch, so that only speed depends on it."""
    offered: frozenset[str] | None
    """Names of the tools that its own calls of models offered; None: it has made none."""
    _charged: dict[str, dict[str, Any]]
    """Key of a tool or model call that no record holds yet → its usage so far. Never changed in place."""

    @property
    def chosen(self) -> Mapping[str, Any]:
        """`model` and `options` that the run's request chose; where the document allows them, its model calls use them."""
        return self._run.machine.chosen or {}

    @property
    def machine(self) -> Machine:
        """The thread as it is: for those who must know whose run this is."""
        return self._run.machine

    @property
    def agent_key(self) -> str | None:
        """The agent whose node this is: the innermost one that was called, else that of the run."""
        if self.frame:
            frames = self._run.machine.frames
            for inner in agents_above(frames, frames[self.frame]):
                return inner.graph
        key: str | None = self._run.services.get("agent_key")
        return key

    def agent(self, key: str) -> GraphDefinition | None:
        """The document of an agent that can be reached from here, in the version of this run; None of any other."""
        plan = self._run.plan.graphs.get(key)
        return None if plan is None else plan.document

    def keep_facts(self, **facts: Any) -> None:
        """Facts for the record of the node's end; names are those that `checkpoints/record_encoder.py` stores."""
        self.facts = {**(self.facts or {}), **facts}

    def charge(self, figure: str, more: int = 1) -> None:
        """Counts `modelCalls` or `toolCalls` before the call; raises `BudgetExceeded` when none is left."""
        self._afford(figure, more)
        self.add_usage(**{figure: more})

    def _afford(self, figure: str, more: int) -> None:
        machine, used = self._run.machine, self._run.used
        total = machine.usage.get(figure, 0) + used.get(figure, 0)
        # The wrap-up node has one model call in reserve, which no limit may take away (E11).
        if total + more > machine.granted.get(figure, 0):
            limit = machine.limits.get(figure)
            if limit is not None and total + more > limit:
                raise exceeded(figure, limit, total)
            if figure == "modelCalls" and not SPENT.isdisjoint(machine.limits):
                check_spending(machine.limits, machine.usage, used)
        if self.frame:  # not the root: agents are below it
            _check_agents(self._run, self.frame, figure, more)

    def charge_model_call(self, until_end: Mapping[str, Any], key: str | None = None) -> None:
        """Counts a model call as `charge` does, plus the usage that it has if it is cut off.

        Args:
            until_end: that usage; `end_model_call` takes it back.
            key: of the call's operation. Records of other operations leave the call out until `forget_charge`.
        """
        self._afford("modelCalls", 1)
        self.add_usage(modelCalls=1, **until_end)
        if key is not None:
            self._charged = {**self._charged, key: {"modelCalls": 1, **until_end}}

    def end_model_call(self, until_end: Mapping[str, Any], used: Mapping[str, Any], key: str | None = None) -> None:
        """Counts what a model call has used in place of the usage of one that was cut off."""
        changed = add_usage(_counted(used), {figure: -value for figure, value in until_end.items()})
        usage = add_usage(self.usage or {}, changed)
        for figure in until_end:
            if not usage[figure]:
                del usage[figure]
        self.usage = usage
        if self.alive:
            self._run.note_used(changed)
            self._run.set_usage(self.frame, self.uncounted)
        if key in self._charged:
            self._charged = {**self._charged, key: {"modelCalls": 1, **used}}

    def forget_charge(self, key: str) -> None:
        """The call `key` gets no record of its own: its usage counts with the next record."""
        self._charged = {other: used for other, used in self._charged.items() if other != key}

    def charge_tool_call(self, key: str | None = None, *, counted: bool = False) -> None:
        """Counts a tool call as `charge` does.

        Args:
            key: the key of the call's operation. Records of other operations leave the call out: if the process died
                after one of them, the call would be made, and counted, again.
            counted: a record holds the call already; it only appears in what the node run used.
        """
        if counted:
            self.usage = add_usage(self.usage or {}, _A_TOOL_CALL)
            self.counted = add_usage(self.counted or {}, _A_TOOL_CALL)
            return
        self.charge("toolCalls")
        if key is not None:
            self._charged = {**self._charged, key: _A_TOOL_CALL}

    def continue_from(self, left: UsageMeter) -> None:
        """Takes over what the node run used before it was left, except tool calls: it charges them again."""
        self.usage, self.counted = _without_tool_calls(left.usage) or None, _without_tool_calls(left.counted) or None
        if calls := sum(used.get("toolCalls", 0) for used in left._charged.values()):
            self._run.note_used({"toolCalls": -calls})
        self._run.set_usage(self.frame, self.uncounted)

    def add_usage(self, **figures: float) -> None:
        """Adds to what this node run used."""
        used = _counted(figures)
        self.usage = add_usage(self.usage or {}, used)
        if self.alive:
            run = self._run
            run.used = add_usage(run.used, used)
            run.set_usage(self.frame, self.uncounted if self.counted else self.usage)

    @property
    def uncounted(self) -> dict[str, Any] | None:
        """The part of its usage that no record holds yet."""
        if not self.counted:
            return self.usage
        return usage_between(self.counted, self.usage or {}) or None

    def to_be_counted(self, key: str | None) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """The usage that a record of the operation or question `key` stores, and the fact that names its model."""
        usage = self.uncounted
        if usage and (others := self._charged_beside(key)):
            for charged in others.values():
                usage = _without(usage, charged)
            usage = usage or None
        return usage, {"model": self.facts["model"]} if usage and self.facts and "model" in self.facts else None

    def note_counted(self, key: str | None, usage: Mapping[str, Any] | None) -> None:
        """Marks what `to_be_counted` returned as stored, after its record was fed."""
        self._charged = self._charged_beside(key)
        if usage:
            self.counted = add_usage(self.counted or {}, usage)
            self._run.note_used({name: -value for name, value in usage.items()})
            self._run.set_usage(self.frame, self.uncounted)

    def _charged_beside(self, key: str | None) -> dict[str, dict[str, Any]]:
        """Unrecorded calls other than the one that `key` belongs to (`call_1`, `approval:call_1`)."""
        if key is None or not self._charged:
            return self._charged
        return {call: used for call, used in self._charged.items() if key != call and not key.endswith(f":{call}")}

    # records

    def name_model(self, provider: str, model: str) -> None:
        """Names the model in the records that follow; what another model of this node run has used is recorded first."""
        name = [provider, model]
        if (self.facts or {}).get("model", name) != name:
            self.record_usage()
        self.keep_facts(model=name)

    def record_usage(self) -> None:
        """Records what the node run has used so far: the node is left now and entered again as another node run."""
        if self.alive and self.to_be_counted(None)[0]:
            self._feed_operation(None, None)

    def _feed_operation(
        self,
        key: str | None,
        operation: Operation | None,
        facts: dict[str, Any] | None = None,
        settles: str | None = None,
    ) -> None:
        """Feeds the record, which also counts what the node run has used until now: a crash loses both or none."""
        usage, model = self.to_be_counted(key)
        self._run.feed(
            self._tick(
                OperationRecorded,
                frame=self.frame,
                key=key,
                operation=operation,
                usage=usage,
                facts={**(facts or {}), **model} if model else facts,
                settles=settles,
            )
        )
        self.note_counted(key, usage)

    def _tick(self, cls: Any, **fields: Any) -> Any:
        return cls(id=self._run.ids.new_id(), at=self._run.clock.now_ms(), **fields)

    @property
    def kept(self) -> Mapping[str, Any]:
        """What tools have noted about the thread."""
        return self._run.machine.kept

    def show_plan(self, steps: Sequence[dict[str, Any]], *, new: bool) -> None:
        """Sends the plan that a tool keeps, as `plan.create` or `plan.update`; a graph that has a plan shows only that."""
        run = self._run
        if self.alive and run.events.plan is None:
            event = PlanCreate if new else PlanUpdate
            plan_id = f"plan_{run.thread_id[:12]}"
            run.events.emit(event(plan_id=plan_id, chat_id=run.thread_id, plan={"steps": list(steps)}))

    def keep(self, notes: Mapping[str, Any]) -> None:
        """Records notes of a tool for its later calls on this thread; None drops one."""
        if self.alive:
            kept = {key: freeze(note) for key, note in notes.items()}
            self._run.feed(self._tick(OperationRecorded, frame=self.frame, key=None, operation=None, kept=kept))


# --- the budgets of the agents around a node run


def _check_agents(run: Run, number: int, figure: str, more: int) -> None:
    """Raises `BudgetExceeded` if an agent around the frame has no `more` of this figure left.

    Args:
        figure: `modelCalls` or `toolCalls`.
    """
    frames = run.machine.frames
    for agent in agents_above(frames, frames[number]):
        plan = run.plan.graphs[agent.graph]
        limits = plan.limits
        limit = limits.get(figure)
        if limit is None and SPENT.isdisjoint(limits):
            continue
        used = _used_in(run, agent)
        total = used.get(figure, 0)
        # The node that wraps up has one model call in reserve.
        if figure == "modelCalls" and agent.granted is not None and total + more <= agent.granted:
            continue
        if limit is not None and total + more > limit:
            raise BudgetExceeded(
                f"agent {plan.key!r} has used up the {figure} of its budget: {total} of {limit}",
                figure=figure,
                limit=limit,
                used=total,
                agent=agent.path,
            )
        if figure == "modelCalls":
            _check_spending(plan.key, agent, limits, used)


def _check_spending(key: str, agent: Frame, limits: Mapping[str, Any], used: Mapping[str, Any]) -> None:
    try:
        check_spending(limits, used, {})
    except BudgetExceeded as error:
        facts = {**error.detail, "agent": agent.path}
        raise BudgetExceeded(f"agent {key!r}: {error.message}", **facts) from None


def _used_in(run: Run, agent: Frame) -> dict[str, Any]:
    """What was used in the agent's frame and below, what no record holds yet included."""
    used, frames = dict(agent.spent or {}), run.machine.frames
    for number, more in run.usage.items():
        if number in frames and any(above.number == agent.number for above in agents_above(frames, frames[number])):
            used = add_usage(used, more)
    return used
