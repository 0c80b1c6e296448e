"""The plan: a checked document made ready to run. Immutable; running it looks up nothing by text but node names."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from graphflow.bounds import DEFAULTS, Bounds
from graphflow.graph.core.channels import StateSchema
from graphflow.graph.definition.document import GraphDefinition, Retry
from graphflow.graph.definition.types import holds
from graphflow.graph.expressions.compiler import Expression
from graphflow.graph.expressions.templates import Template

if TYPE_CHECKING:
    from graphflow.graph.definition.json_schema import Checker
    from graphflow.graph.definition.kinds import NodeFunction


class CompiledRoute(msgspec.Struct, frozen=True):
    """One compiled route."""

    to: str
    when: Expression | None
    rounds_of: tuple[str, ...] = ()
    """Nodes whose visits the condition compares, if it names `limits.rounds`: not taking it when one of them has used
    the rounds up is why the run ends (spec 1.2)."""


class Question(msgspec.Struct, frozen=True):
    """A compiled `ask`."""

    message: Template
    show: Expression | None
    schema: dict[str, Any]
    owner: str | None
    role: str | None
    hold_ms: int | None
    expires_ms: int | None
    on_expire: str | None


class PlanBranch(msgspec.Struct, frozen=True):
    """One body of a `map` or `parallel`."""

    name: str
    """Of a parallel's branch; `""` in a map."""
    start: str
    """The node it begins at, in the plan it runs."""
    graph: str | None
    """Key of the subgraph that is its body; None when it runs nodes of the same graph."""
    given: Template | None = None
    """The subgraph's input."""
    before: frozenset[int] = frozenset()
    """Positions of the branches that have ended before it begins: those it names as `after`, and theirs."""
    rank: int = 0
    """Its place in the order in which writes are reduced."""


class FanOut(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled `map` or `parallel`: what its branches are, and when they are joined."""

    items: Expression | None
    """What a map goes through; None in a parallel."""
    binds: str
    at_once: int | None
    """Branches that may be open at a time; None is no limit."""
    branches: tuple[PlanBranch, ...]
    """Of a map the one body."""
    wait: str | int
    on_error: str
    keeps_out: bool
    """Whether anything reads the branches' outputs; otherwise they are not kept."""

    def body(self, index: int) -> PlanBranch:
        return self.branches[0 if self.items is not None else index]

    def rank(self, index: int) -> int:
        """The branch's place in the order in which writes are reduced."""
        return index if self.items is not None else self.branches[index].rank

    def label(self, index: int) -> str:
        """The branch's label in paths: its name in a parallel, its index in a map."""
        return f"[{self.body(index).name or index}]"

    def needed(self, total: int) -> int:
        """Branches that must have ended, and count, for the join."""
        return self.wait if isinstance(self.wait, int) else total if self.wait == "all" else min(1, total)


class PlanNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node, compiled."""

    name: str
    form: str
    """`use`, `ask`, `graph`, `map` or `parallel`."""
    kind: str
    """What drawings and events call it: `model`, `tools`, `node`, `ask`, `graph`, …"""
    opens: bool = False
    """A `graph`, `map` or `parallel`: frames below it run instead of the node itself."""
    fan: FanOut | None = None
    run: NodeFunction | None = None
    returns_updates: bool = False
    """A `node:` function returns its updates itself."""
    arguments: Template | None = None
    sets: tuple[tuple[str, Expression], ...] = ()
    routes: tuple[CompiledRoute, ...] = ()
    choose: tuple[str, ...] | None = None
    errors: tuple[tuple[frozenset[str], str], ...] = ()
    retry: Retry | None = None
    timeout_s: float | None = None
    effects: str = "none"
    idempotent: bool = False
    question: Question | None = None
    graph: str | None = None
    agent: bool = False
    """An `agent:` node: the frame that it opens has a budget of its own, and counts for the depth of agents."""
    counted: bool = False
    """Its visits are counted: it lies on a cycle, or an expression names them."""
    bare: bool = False
    """Nothing but its function with the state is called: no arguments, time limit or record."""
    plain: bool = False
    """Whatever it gives, its routes lead to a `use` node or the end, nothing is remembered of the way, and no property
    is kept: `fast_path` may take its ticks.
    """


class Monitor(Protocol):
    """What keeps the document's `invariants` while it runs; `work` is the tick's `UnitOfWork`."""

    def note_entered(self, work: Any, number: int, name: str) -> None: ...
    def note_finished(self, work: Any, number: int, node: PlanNode) -> None: ...
    def breach(self, work: Any, number: int) -> dict[str, Any] | None: ...


class Plan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One graph and, by key, the subgraphs below it."""

    key: str
    """`""` for the root; a subgraph's key in `graphs` otherwise."""
    digest: str
    document: GraphDefinition
    nodes: dict[str, PlanNode]
    start: str
    schema: StateSchema
    limits: dict[str, Any]
    on_exceeded: str | None
    """The node that wraps up once the budget is used up."""
    before: frozenset[str]
    after: frozenset[str]
    input_schema: dict[str, Any]
    result: Expression | None
    has_messages: bool
    run_keys: tuple[str, ...]
    """Keys marked `"x-scope": "run"`, set to their default by each input (E9)."""
    graphs: dict[str, Plan]
    bounds: Bounds = DEFAULTS
    """The same in all graphs of the table."""
    monitor: Monitor | None = None
    """The properties of `invariants` that are kept at run time; None costs nothing."""

    @cached_property
    def input_checker(self) -> Checker:
        """Of `input_schema`; compiled by the first new input, as resuming and answering need none (E20)."""
        from graphflow.graph.definition.json_schema import compile_schema

        return compile_schema(self.input_schema)

    @cached_property
    def takes_integers(self) -> bool:
        """Whether floats of the input may count as integers."""
        return holds(self.input_schema, "integer")


NUMBERS = re.compile(r"#\d+|\[[^\]]*\]")
"""Visits and branches in the path of a frame."""


def nodes_at(plan: Plan, place: str) -> list[str]:
    """The nodes that a path may end in below `place`; none when it leads nowhere.

    Args:
        place: all segments of the path but the last; `""` is the run's own graph.
    """
    plans = [plan]
    for segment in filter(None, NUMBERS.sub("", place).split("/")):
        below: list[Plan] = []
        for here in plans:
            node = here.nodes.get(segment)
            if node is None or not node.opens:
                continue
            keys = [node.graph] if node.fan is None else [branch.graph for branch in node.fan.branches]
            below += [here if key is None else plan.graphs[key] for key in keys]
        plans = below
    return list(dict.fromkeys(name for here in plans for name in here.nodes))


def is_known(plan: Plan, name: str) -> bool:
    """Whether a breakpoint of this name, path or `*` can ever stop a run of the plan."""
    place, slash, last = name.rpartition("/")
    if slash and "" in place.split("/"):
        return False
    nodes = nodes_at(plan, place)
    return last in nodes or (last == "*" and bool(nodes))
