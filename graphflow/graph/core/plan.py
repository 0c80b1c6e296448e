"""The plan: a checked document made ready to run. Immutable; running it looks up nothing by text but node names.

`build_plan` trusts its document (E20): checking is `compiler.py`'s work, done once per content hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.errors import DefinitionError, Fault
from graphflow.graph.core.channels import StateSchema, channel_of
from graphflow.graph.definition.document import (
    DEFAULT_INPUT_SCHEMA,
    END,
    FAIL,
    Budget,
    Choose,
    GraphDefinition,
    GraphRef,
    Join,
    NodeDefinition,
    Retry,
    Route,
)
from graphflow.graph.definition.regions import bodies_of, body_name, branch_order, input_of, predecessors, routes_of
from graphflow.graph.expressions.api import Expression, Roots, Template, compile_expression, compile_template

if TYPE_CHECKING:
    from graphflow.graph.core.invariants import InvariantMonitor
    from graphflow.graph.definition.checked_document import CheckedDocument
    from graphflow.graph.ports import Kinds, NodeFunction


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
    """Whether anything looks at what the branches gave; else their outputs are not kept."""

    def body(self, index: int) -> PlanBranch:
        return self.branches[0 if self.items is not None else index]

    def rank(self, index: int) -> int:
        """The branch's place in the order in which writes are reduced."""
        return index if self.items is not None else self.branches[index].rank

    def label(self, index: int) -> str:
        """How paths tell the branch from its siblings."""
        return f"[{self.body(index).name or index}]"

    def needed(self, total: int) -> int:
        """Branches that must have ended, and count, for the join."""
        wanted = {"all": total, "any": 1}.get(self.wait, self.wait) if isinstance(self.wait, str) else self.wait
        return min(int(wanted), total)


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
    counted: bool = False
    """Its visits are counted: it lies on a cycle, or an expression names them."""
    bare: bool = False
    """Nothing but its function with the state is called: no arguments, time limit or record."""
    plain: bool = False
    """Whatever it gives, its routes lead to a `use` node or the end, nothing is remembered of the way, and no property is
    kept: `fast_path` may take its ticks.
    """


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One graph and, by key, the subgraphs below it."""

    key: str
    """`""` for the root; a subgraph's key in `graphs` otherwise."""
    digest: str
    document: GraphDefinition
    nodes: dict[str, PlanNode]
    start: str
    schema: StateSchema
    limits: dict[str, Any]
    then: str | None
    before: frozenset[str]
    after: frozenset[str]
    input_schema: dict[str, Any]
    result: Expression | None
    has_messages: bool
    run_keys: tuple[str, ...]
    """Keys marked `"x-life": "run"`, set to their default by each input (E9)."""
    graphs: dict[str, Plan]
    monitor: InvariantMonitor | None = None
    """The properties of `always` that are kept at run time; None costs nothing."""


LIMIT_NAMES = {
    "rounds": "max_rounds",
    "steps": "max_steps",
    "modelCalls": "max_model_calls",
    "toolCalls": "max_tool_calls",
    "tokens": "max_tokens",
    "costUsd": "max_cost_usd",
    "timeoutMs": "timeout_ms",
}
"""Name in expressions (`limits.rounds`) → field of the document's budget (E11)."""


def limits_of(budget: Budget) -> dict[str, Any]:
    """The budget's figures by their names in expressions; figures without a limit are left out."""
    return {name: value for name, field in LIMIT_NAMES.items() if (value := getattr(budget, field)) is not None}


def build_plan(checked: CheckedDocument, kinds: Kinds, *, key: str = "", graphs: dict[str, Plan] | None = None) -> Plan:
    """The runnable plan of a checked document, its subgraphs included.

    Raises:
        DefinitionError: a kind, function or tool that the document names is not registered here.
    """
    document = checked.document
    table: dict[str, Plan] = {} if graphs is None else graphs
    properties: Mapping[str, Any] = document.state.get("properties", {})
    schema = StateSchema(channel_of(name, prop, kinds.reducer) for name, prop in properties.items())
    roots = Roots.of(document)
    nodes = {
        name: _build_node(name, node, document, roots, kinds, checked, table, key)
        for name, node in document.nodes.items()
    }
    counted = _counted(nodes)
    nodes = {
        name: msgspec.structs.replace(
            node, counted=name in counted, plain=not document.always and _is_plain(node, nodes)
        )
        for name, node in nodes.items()
    }
    plan = Plan(
        key=key,
        digest=checked.digest,
        document=document,
        nodes=nodes,
        start=document.start,
        schema=schema,
        limits=limits_of(document.budget),
        then=document.budget.then,
        before=frozenset(document.interrupt_before),
        after=frozenset(document.interrupt_after),
        input_schema=document.input or DEFAULT_INPUT_SCHEMA,
        result=compile_expression(document.result, roots, check=False) if document.result else None,
        has_messages="messages" in schema.channels and schema.channels["messages"].reduce == "messages",
        run_keys=tuple(k for k, channel in schema.channels.items() if channel.life == "run"),
        graphs=table,
        monitor=_monitor(checked),
    )
    table[key] = plan
    return plan


def _monitor(checked: CheckedDocument) -> InvariantMonitor | None:
    if not checked.document.always:
        return None
    from graphflow.graph.core.invariants import monitor_of

    return monitor_of(checked)


def _build_node(
    name: str,
    node: NodeDefinition,
    document: GraphDefinition,
    roots: Roots,
    kinds: Kinds,
    checked: CheckedDocument,
    table: dict[str, Plan],
    key: str,
) -> PlanNode:
    form, kind, run, effects, graph = "use", "", None, "none", None
    if node.ask is not None:
        form = kind = "ask"
    elif node.map is not None or node.parallel is not None:
        form = kind = "parallel" if node.map is None else "map"
    elif node.graph is not None:
        form = kind = "graph"
        graph = _build_subgraph(node.graph, name, kinds, checked, table, key)
    else:
        use = node.use or ""
        found = kinds.find(use)
        if found is None:
            raise DefinitionError(
                [
                    Fault(
                        pointer=f"/nodes/{name}/use",
                        message=f"{use!r} is not registered here",
                        hint=f"known: {', '.join(kinds.names())}",
                        kind="reference",
                    )
                ]
            )
        kind, effects = found.name, found.effects
        run = found.build(name, node, document)
    return PlanNode(
        name=name,
        form=form,
        kind=kind,
        opens=form in ("graph", "map", "parallel"),
        fan=_build_fan(name, node, roots, kinds, checked, table, key) if form in ("map", "parallel") else None,
        run=run,
        returns_updates=kind == "node",
        arguments=None if node.with_ is None else compile_template(node.with_, roots, check=False),
        sets=tuple((target, compile_expression(source, roots, check=False)) for target, source in node.set.items()),
        routes=_compiled_routes(node, roots),
        choose=node.next.choose if isinstance(node.next, Choose) else None,
        errors=tuple((frozenset(route.on), route.to) for route in node.error),
        bare=kind == "node" and node.timeout_ms is None and (node.effects or effects) != "write",
        retry=node.retry,
        timeout_s=None if node.timeout_ms is None else node.timeout_ms / 1000,
        effects=node.effects or effects,
        idempotent=bool(node.idempotent),
        question=_question(node, roots),
        graph=graph,
    )


def _build_subgraph(
    ref: str | dict[str, Any],
    name: str,
    kinds: Kinds,
    checked: CheckedDocument,
    table: dict[str, Plan],
    key: str,
) -> str:
    """The key in the table of a subgraph's plan, built unless it is there.

    Args:
        name: of the node or body that holds the subgraph in place.
    """
    graph = ref if isinstance(ref, str) else f"{key}/{name}"
    if graph not in table:
        build_plan(checked.subgraphs[ref if isinstance(ref, str) else name], kinds, key=graph, graphs=table)
    return graph


def _build_fan(
    name: str,
    node: NodeDefinition,
    roots: Roots,
    kinds: Kinds,
    checked: CheckedDocument,
    table: dict[str, Plan],
    key: str,
) -> FanOut:
    found = list(bodies_of(name, node))
    places = {body.branch: place for place, body in enumerate(found)}
    after = {body.branch: body.after for body in found}
    before, order = predecessors(after), branch_order(after)
    branches: list[PlanBranch] = []
    for body in found:
        graph, start, given = None, body.do, None
        if isinstance(body.do, GraphRef):
            given = compile_template(input_of(node, body), roots, check=False)
            graph = _build_subgraph(body.do.graph, body_name(name, body.branch), kinds, checked, table, key)
            start = table[graph].start
        assert isinstance(start, str)
        seen = frozenset(places[other] for other in before[body.branch])
        branches.append(PlanBranch(body.branch, start, graph, given, seen, order.index(body.branch)))
    join = node.join or Join()
    return FanOut(
        items=None if node.map is None else compile_expression(node.map, roots, check=False),
        binds=node.as_ or "",
        at_once=node.max,
        branches=tuple(branches),
        wait=join.wait,
        on_error=join.on_error,
        keeps_out=_looks_at_out(name, node, roots),
    )


def _looks_at_out(name: str, node: NodeDefinition, roots: Roots) -> bool:
    """Whether a fan's own expressions name `out`, or it may be the last node of a branch around it."""
    if any(edge.to == END for edge in routes_of(name, node)):
        return True
    routes = node.next if isinstance(node.next, tuple) else ()
    sources = [*node.set.values(), *(route.when for route in routes if route.when is not None)]
    return any(ref[0] == "out" for s in sources for ref in compile_expression(s, roots, check=False).refs)


def _compiled_routes(node: NodeDefinition, roots: Roots) -> tuple[CompiledRoute, ...]:
    if isinstance(node.next, Choose):
        return ()
    if node.next is None or isinstance(node.next, str):
        return (CompiledRoute(node.next or END, None),)
    return tuple(_compiled_route(route, roots) for route in node.next)


def _compiled_route(route: Route, roots: Roots) -> CompiledRoute:
    if route.when is None:
        return CompiledRoute(route.to, None)
    when = compile_expression(route.when, roots, check=False)
    counts = tuple(ref[1] for ref in when.refs if ref[0] == "visits" and len(ref) > 1)
    return CompiledRoute(route.to, when, counts if ("limits", "rounds") in when.refs else ())


def _question(node: NodeDefinition, roots: Roots) -> Question | None:
    ask = node.ask
    if ask is None:
        return None
    from graphflow.graph.definition.types import parse_duration_ms

    return Question(
        message=compile_template(ask.message, roots, check=False),
        show=compile_expression(ask.show, roots, check=False) if ask.show else None,
        schema=ask.schema,
        owner=ask.owner,
        role=ask.role,
        hold_ms=ask.hold_ms,
        expires_ms=parse_duration_ms(ask.expires) if ask.expires else None,
        on_expire=ask.on_expire,
    )


def _targets(node: PlanNode) -> set[str]:
    to = {route.to for route in node.routes} | set(node.choose or ()) | {target for _, target in node.errors}
    if node.question is not None and node.question.on_expire:
        to.add(node.question.on_expire)
    return to - {END, FAIL}


def _counted(nodes: Mapping[str, PlanNode]) -> set[str]:
    """Nodes on a cycle (Tarjan, without recursion) and nodes whose visits an expression names."""
    named = {ref[1] for node in nodes.values() for ref in _refs(node) if ref[0] == "visits" and len(ref) > 1}
    return named | _on_cycles({name: sorted(_targets(node) & nodes.keys()) for name, node in nodes.items()})


def _is_plain(node: PlanNode, nodes: Mapping[str, PlanNode]) -> bool:
    leads_on = all(
        not route.rounds_of and (route.to == END or (route.to in nodes and nodes[route.to].form == "use"))
        for route in node.routes
    )
    return leads_on and bool(node.routes) and node.choose is None


def _refs(node: PlanNode) -> list[tuple[str, ...]]:
    refs = [ref for _, expression in node.sets for ref in expression.refs]
    refs += [ref for route in node.routes if route.when is not None for ref in route.when.refs]
    if node.arguments is not None:
        refs += node.arguments.refs
    if node.question is not None:
        refs += node.question.message.refs
        if node.question.show is not None:
            refs += node.question.show.refs
    return refs


def _on_cycles(edges: Mapping[str, list[str]]) -> set[str]:
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    cyclic: set[str] = set()
    for first in edges:
        if first in index:
            continue
        work = [(first, iter(edges[first]))]
        index[first] = low[first] = len(index)
        stack.append(first)
        on_stack.add(first)
        while work:
            name, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in on_stack:
                    low[name] = min(low[name], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    component: list[str] = []
                    while not component or component[-1] != name:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    if len(component) > 1 or name in edges[name]:
                        cyclic.update(component)
    return cyclic
