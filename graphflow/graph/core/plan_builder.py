"""Builds the plan of a checked document: everything that a run would look up by text is looked up here, once.

`build_plan` trusts its document (E20): checking is `validation/validate.py`'s work, done once per content hash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.bounds import DEFAULTS, Bounds
from graphflow.errors import DefinitionError, Issue
from graphflow.graph.core.channels import StateSchema, channel_of, schema_rules
from graphflow.graph.core.immutable import State
from graphflow.graph.core.plan import CompiledRoute, FanOut, Plan, PlanBranch, PlanNode, Question
from graphflow.graph.definition.budget import limits_of
from graphflow.graph.definition.document import (
    DEFAULT_INPUT_SCHEMA,
    END,
    FAIL,
    Choose,
    GraphDefinition,
    GraphRef,
    Join,
    NodeDefinition,
    Route,
)
from graphflow.graph.definition.graph_queries import loops
from graphflow.graph.definition.kinds import DeclaresStates, NodeFunction
from graphflow.graph.definition.regions import (
    agent_of,
    bodies_of,
    body_name,
    branch_order,
    input_of,
    is_fan,
    predecessors,
    routes_of,
    survey,
)
from graphflow.graph.definition.types import state_properties
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.scopes import Places, ScopeMap, out_schema
from graphflow.graph.expressions.templates import compile_template

if TYPE_CHECKING:
    from graphflow.graph.core.invariants import InvariantMonitor
    from graphflow.graph.definition.checked_document import CheckedDocument
    from graphflow.graph.definition.kinds import Kind, Kinds


def build_plan(
    checked: CheckedDocument,
    kinds: Kinds,
    *,
    bounds: Bounds = DEFAULTS,
    key: str = "",
    graphs: dict[str, Plan] | None = None,
) -> Plan:
    """The runnable plan of a checked document, its subgraphs included.

    Raises:
        DefinitionError: a kind, function or tool that the document names is not registered here.
    """
    document = checked.document
    table: dict[str, Plan] = {} if graphs is None else graphs
    properties = state_properties(document.state)
    channels = {name: channel_of(name, prop, kinds.reducer) for name, prop in properties.items()}
    declared = kinds.state_class(key) if isinstance(kinds, DeclaresStates) else None
    rules: Any = schema_rules(properties) if declared is None else declared.rules(channels)
    schema = StateSchema(channels.values(), rules, bounds.value_bytes)
    view = rules.view if declared is not None and rules.shows else None
    environment = Environment.of(document, bounds)
    places = Places(document.nodes, survey(document), environment, kinds)
    scopes = ScopeMap(places)
    nodes = {
        name: _build_node(name, node, document, places, scopes, kinds, checked, table, key, view)
        for name, node in document.nodes.items()
    }
    # Visits are stored with the patch of every step: only nodes on a cycle, or named by an expression, are counted.
    counted = _counted(nodes)
    nodes = {
        name: msgspec.structs.replace(
            node, counted=name in counted, plain=not document.invariants and _is_plain(node, nodes)
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
        on_exceeded=document.budget.on_exceeded,
        before=frozenset(document.interrupt_before),
        after=frozenset(document.interrupt_after),
        input_schema=document.input or DEFAULT_INPUT_SCHEMA,
        result=compile_expression(document.result, environment, check=False) if document.result else None,
        has_messages="messages" in schema.channels and schema.channels["messages"].reduce == "messages",
        run_keys=tuple(k for k, channel in schema.channels.items() if channel.scope == "run"),
        graphs=table,
        bounds=bounds,
        monitor=_monitor(checked),
    )
    table[key] = plan
    _build_agents(checked, kinds, bounds, table)
    return plan


def _build_agents(checked: CheckedDocument, kinds: Kinds, bounds: Bounds, table: dict[str, Plan]) -> None:
    # After the rest, and each once: they may name each other in a cycle.
    for key, agent in checked.agents.items():
        if key not in table:
            build_plan(agent, kinds, bounds=bounds, key=key, graphs=table)


def _monitor(checked: CheckedDocument) -> InvariantMonitor | None:
    if not checked.document.invariants:
        return None
    from graphflow.graph.core.invariants import monitor_of

    return monitor_of(checked)


def _build_node(
    name: str,
    node: NodeDefinition,
    document: GraphDefinition,
    places: Places,
    scopes: ScopeMap,
    kinds: Kinds,
    checked: CheckedDocument,
    table: dict[str, Plan],
    key: str,
    view: Callable[[State], Any] | None,
) -> PlanNode:
    outside = scopes.at(name)
    environment = outside.having(out=out_schema(places, name, node), answer=node.ask and node.ask.schema)
    bodies = scopes.body_of(name) if is_fan(node) else outside
    form, kind, run, effects, graph = "use", "", None, "none", None
    if node.ask is not None:
        form = kind = "ask"
    elif node.map is not None or node.parallel is not None:
        form = kind = "parallel" if node.map is None else "map"
    elif node.graph is not None:
        form = kind = "graph"
        graph = _build_subgraph(node.graph, name, environment.bounds, kinds, checked, table, key)
    elif (graph := agent_of(node)) is not None:
        form, kind = "graph", "agent"
    else:
        found = _registered(name, node.use or "", kinds)
        kind, effects = found.name, found.effects
        run = found.build(name, node, document)
        if kind == "node" and view is not None:
            run = _with_view(run, view)
    return PlanNode(
        name=name,
        form=form,
        kind=kind,
        opens=form in ("graph", "map", "parallel"),
        fan=_build_fan(name, node, outside, bodies, kinds, checked, table, key)
        if form in ("map", "parallel")
        else None,
        run=run,
        returns_updates=kind == "node",
        arguments=None if node.with_ is None else compile_template(node.with_, environment, check=False),
        sets=tuple(
            (target, compile_expression(source, environment, check=False)) for target, source in node.set.items()
        ),
        routes=_compiled_routes(node, environment),
        choose=node.next.choose if isinstance(node.next, Choose) else None,
        errors=tuple((frozenset(route.on), route.to) for route in node.error),
        bare=kind == "node" and node.timeout_ms is None and (node.effects or effects) != "write",
        retry=node.retry,
        timeout_s=None if node.timeout_ms is None else node.timeout_ms / 1000,
        effects=node.effects or effects,
        idempotent=bool(node.idempotent),
        question=_question(node, environment),
        graph=graph,
        agent=kind == "agent",
    )


def _registered(name: str, use: str, kinds: Kinds) -> Kind:
    found = kinds.find(use)
    if found is None:
        hint = f"known: {', '.join(kinds.names())}"
        issue = Issue(
            pointer=f"/nodes/{name}/use", message=f"{use!r} is not registered here", hint=hint, kind="reference"
        )
        raise DefinitionError([issue])
    return found


def _with_view(run: NodeFunction, view: Callable[[State], Any]) -> NodeFunction:
    """The function with the state as its class; made here, so that a state without a class costs nothing."""

    async def shown(state: State, ctx: Any) -> Any:
        return await run(view(state), ctx)

    return shown


def _build_subgraph(
    ref: str | dict[str, Any],
    name: str,
    bounds: Bounds,
    kinds: Kinds,
    checked: CheckedDocument,
    table: dict[str, Plan],
    key: str,
) -> str:
    """The key in the table of a subgraph's plan, built unless it is there.

    Args:
        name: the node or body that contains an inline subgraph.
    """
    graph = ref if isinstance(ref, str) else f"{key}/{name}"
    if graph not in table:
        below = checked.subgraphs[ref if isinstance(ref, str) else name]
        build_plan(below, kinds, bounds=bounds, key=graph, graphs=table)
    return graph


def _build_fan(
    name: str,
    node: NodeDefinition,
    environment: Environment,
    inside: Environment,
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
            given = compile_template(input_of(node, body), inside, check=False)
            graph = _build_subgraph(
                body.do.graph, body_name(name, body.branch), environment.bounds, kinds, checked, table, key
            )
            start = table[graph].start
        assert isinstance(start, str)
        seen = frozenset(places[other] for other in before[body.branch])
        branches.append(PlanBranch(body.branch, start, graph, given, seen, order.index(body.branch)))
    join = node.join or Join()
    return FanOut(
        items=None if node.map is None else compile_expression(node.map, environment, check=False),
        binds=node.as_ or "",
        at_once=node.max,
        branches=tuple(branches),
        wait=join.wait,
        on_error=join.on_error,
        keeps_out=_looks_at_out(name, node, environment),
    )


def _looks_at_out(name: str, node: NodeDefinition, environment: Environment) -> bool:
    """Whether anything reads the fan's `out`: its own expressions, or the end of a branch around it."""
    if any(edge.to == END for edge in routes_of(name, node)):
        return True
    routes = node.next if isinstance(node.next, tuple) else ()
    sources = [*node.set.values(), *(route.when for route in routes if route.when is not None)]
    return any(ref[0] == "out" for s in sources for ref in compile_expression(s, environment, check=False).refs)


def _compiled_routes(node: NodeDefinition, environment: Environment) -> tuple[CompiledRoute, ...]:
    if isinstance(node.next, Choose):
        return ()
    if node.next is None or isinstance(node.next, str):
        return (CompiledRoute(node.next or END, None),)
    return tuple(_compiled_route(route, environment) for route in node.next)


def _compiled_route(route: Route, environment: Environment) -> CompiledRoute:
    if route.when is None:
        return CompiledRoute(route.to, None)
    when = compile_expression(route.when, environment, check=False)
    counts = tuple(ref[1] for ref in when.refs if ref[0] == "visits" and len(ref) > 1)
    return CompiledRoute(route.to, when, counts if ("limits", "rounds") in when.refs else ())


def _question(node: NodeDefinition, environment: Environment) -> Question | None:
    ask = node.ask
    if ask is None:
        return None
    from graphflow.graph.definition.types import parse_duration_ms

    return Question(
        message=compile_template(ask.message, environment, check=False),
        show=compile_expression(ask.show, environment, check=False) if ask.show else None,
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
    """Nodes on a cycle, and nodes whose visits an expression names."""
    named = {ref[1] for node in nodes.values() for ref in _refs(node) if ref[0] == "visits" and len(ref) > 1}
    edges = {name: _targets(node) & nodes.keys() for name, node in nodes.items()}
    return named.union(*loops(edges))


def _is_plain(node: PlanNode, nodes: Mapping[str, PlanNode]) -> bool:
    # What `fast_path` can do: it sets no finish reason, and opens or asks nothing.
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
