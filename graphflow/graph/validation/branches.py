"""Checks of `map` and `parallel` nodes: their parts, their regions, and who writes what at the same time (spec 2.1
rules 4 and 5, E10).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphflow.graph.definition.document import RESERVED_NODES, Branch, GraphRef, Join, NodeDefinition
from graphflow.graph.definition.graph_queries import loops, one_cycle
from graphflow.graph.definition.json_pointer import pointer as at
from graphflow.graph.definition.regions import Crossing, Region, bodies_of, is_fan, predecessors
from graphflow.graph.definition.types import show
from graphflow.graph.expressions.environment import VARIABLES
from graphflow.graph.validation.context import ValidationContext
from graphflow.graph.validation.state import check_name
from graphflow.suggestions import choose

WAITS = ("all", "any")
MAX_NESTING = 100
"""Branches in branches."""


def check_regions(context: ValidationContext) -> None:
    """Every fan by itself, then borders, then writers."""
    for name, node in context.nodes.items():
        if node.map is not None:
            _check_map(context, name, node)
        if node.parallel is not None:
            _check_parallel(context, name, node)
        if is_fan(node):
            _check_bodies(context, name, node)
            _check_join(context, name, node)
    _check_nesting(context)
    for crossing in context.survey.crossings:
        _report_crossing(context, crossing)
    _check_writers(context)


# --- one fan


def _check_map(context: ValidationContext, name: str, node: NodeDefinition) -> None:
    pointer = at("nodes", name)
    if node.do is None and not context.is_lost(name, "do"):
        hint = 'add "do": "NODE", the first node of each branch, or "do": {"graph": "KEY"}'
        context.issue(pointer, "a map has no body: `do` is missing", hint, kind="shape")
    if node.as_ is None:
        if not context.is_lost(name, "as"):
            hint = 'add "as": "item": expressions in the body read the item by this name'
            context.issue(pointer, "a map has no name for its items: `as` is missing", hint, kind="shape")
        return
    if node.as_ in VARIABLES:
        message = f"`as` can't be {node.as_!r}: expressions have a variable of that name"
        context.issue(f"{pointer}/as", message, "choose another name, such as 'item'")
        return
    check_name(context, f"{pointer}/as", node.as_, "map's item")
    for region in context.survey.around(name):
        # A map in its own body is reported by `_check_nesting`.
        if context.nodes[region.fan].as_ == node.as_ and region.fan != name:
            message = f"`as` can't be {node.as_!r}: the map {region.fan!r} around this one has an item of that name"
            context.issue(f"{pointer}/as", message, "choose another name, so that the body can read both")
            return


def _check_parallel(context: ValidationContext, name: str, node: NodeDefinition) -> None:
    pointer = at("nodes", name, "parallel")
    branches = node.parallel or {}
    if not branches:
        hint = 'name at least one, as in {"search": "search_web"}'
        context.issue(pointer, "a parallel has at least one branch", hint, kind="shape")
    for branch, body in branches.items():
        check_name(context, pointer + at(branch), branch, "branch")
        if not isinstance(body, Branch):
            continue
        for index, other in enumerate(body.after):
            place = pointer + at(branch, "after", index)
            if other == branch:
                context.issue(place, f"branch {branch!r} can't wait for itself", "remove it", kind="graph")
            elif other not in branches:
                context.issue(place, f"no branch of {name!r} is named {other!r}", choose(other, branches))
    # Without a branch that waits for itself: it was reported above, and would be reported again as a cycle.
    after = {b: [o for o in body.after if o != b] if isinstance(body, Branch) else [] for b, body in branches.items()}
    for part in loops({b: [o for o in others if o in after] for b, others in after.items()}):
        cycle = one_cycle(after, part)
        shown = " → ".join([*cycle, cycle[0]])
        message = f"branches that wait for each other never open: {shown}"
        context.issue(pointer + at(cycle[0], "after"), message, "remove one of these `after` entries", kind="graph")


def _check_bodies(context: ValidationContext, name: str, node: NodeDefinition) -> None:
    graphs = [body for body in bodies_of(name, node) if isinstance(body.do, GraphRef)]
    if node.with_ is not None and not graphs and not context.is_lost(name, "do", "parallel"):
        message = "`with` is the input of bodies that are subgraphs, and this node has none"
        context.issue(at("nodes", name, "with"), message, "write it at the nodes of the body", kind="shape")
    for body in bodies_of(name, node):
        if body.do in RESERVED_NODES:
            hint = "name the first node of the branch; it ends at its own `end`"
            context.issue(body.pointer, f"a branch can't begin at {body.do!r}", hint, kind="graph")


def _check_join(context: ValidationContext, name: str, node: NodeDefinition) -> None:
    wait = (node.join or Join()).wait
    pointer = at("nodes", name, "join", "wait")
    if isinstance(wait, str):
        if wait not in WAITS:
            hint = choose(wait, WAITS) if wait.isalpha() else '"all", "any" or a number without quotes'
            context.issue(pointer, f"`wait` is all, any or how many branches must finish, not {show(wait)}", hint)
        return
    if wait < 1:
        hint = 'write "any" for the first, "all" for every branch'
        context.issue(pointer, f"a join waits for at least 1 branch, not {wait}", hint, kind="type")
    elif node.parallel and wait > len(node.parallel):
        message = f"the join waits for {wait} branches, and there are {len(node.parallel)}"
        context.issue(pointer, message, 'write "all", or a smaller number', kind="type")


# --- borders


def _in_words(region: Region | None) -> str:
    """A region as a message names it."""
    if region is None:
        return "the main flow"
    if region.branch:
        return f"branch {region.branch!r} of {region.fan!r}"
    return f"the body of {region.fan!r}"


def _check_nesting(context: ValidationContext) -> None:
    """A fan that lies, through whatever other fans, in its own body; one that lies too deep."""
    deep = next(
        (name for name in context.survey.regions if len(list(context.survey.around(name))) >= MAX_NESTING), None
    )
    if deep is not None:
        message = f"node {deep!r} opens branches in more than {MAX_NESTING} others"
        context.issue(at("nodes", deep), message, "put the inner ones into a subgraph", kind="graph")
    inside: dict[str, list[str]] = {name: [] for name in context.survey.regions}
    for name in inside:
        region = context.survey.home.get(name)
        if region is not None:
            inside[region.fan].append(name)
    for part in loops(inside):
        cycle = one_cycle(inside, part)
        shown = " → ".join([*cycle, cycle[0]])
        message = f"the body of {cycle[0]!r} contains {cycle[0]!r} itself: {shown}"
        hint = "a branch can't open itself; loop in front of the node, or use a subgraph"
        context.issue(at("nodes", cycle[0]), message, hint, kind="graph")


def _report_crossing(context: ValidationContext, crossing: Crossing) -> None:
    to, owner = crossing.to, _in_words(crossing.owner)
    if crossing.source is None:
        message = f"budget.onExceeded names {to!r}, which is in {owner}; it ends the whole run"
        hint = "name a node of the main flow, that no branch leads to"
    elif crossing.body and crossing.source == to:
        message = f"node {to!r} can't be its own body"
        hint = "name another node: the first of each branch"
    elif crossing.body:
        message = f"{to!r} can't begin {_in_words(crossing.inside)}: it belongs to {owner}"
        hint = "bodies share no node with each other or with the main flow; give this one a node of its own"
    elif crossing.inside is not None:
        message = f"the route from {crossing.source!r} to {to!r} leaves {_in_words(crossing.inside)}: {to!r} belongs to {owner}"
        hint = f'a branch ends at "end" and {crossing.inside.fan!r} goes on after the join; write "end", or "fail"'
    else:
        message = f"the route from {crossing.source!r} to {to!r} leads into {owner}"
        hint = f"only {_fan_of(crossing)!r} opens it; route to {_fan_of(crossing)!r}, or to a node outside"
    context.issue(crossing.pointer, message, hint, kind="graph")


def _fan_of(crossing: Crossing) -> str:
    return crossing.owner.fan if crossing.owner is not None else ""


# --- writers


def _check_writers(context: ValidationContext) -> None:
    """Rejects parallel branches that replace the same key: which value stays would be chance (rule 4)."""
    reported: set[str] = set()
    keys = {key for key in context.state if _is_replaced(context, key)}
    if not keys:
        return
    order = {name: place for place, name in enumerate(context.nodes)}
    for fan, branches in context.survey.regions.items():
        node = context.nodes[fan]
        writes = {branch: dict(_writes(context, region, keys, order)) for branch, region in branches.items()}
        if node.map is not None:
            # One at a time there is an order, and the last write counts.
            if node.max != 1:
                _report_body(context, fan, writes.get("", {}), reported)
        else:
            _report_branches(context, fan, branches, writes, reported)


def _is_replaced(context: ValidationContext, key: str) -> bool:
    schema = context.state[key]
    return schema.get("x-reducer", "replace") == "replace" and schema.get("x-scope") != "branch"


def _writes(
    context: ValidationContext, region: Region, keys: set[str], order: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Each key that the region writes and the first place that does, nested regions included."""
    seen: set[str] = set()
    opened, rest = {region.fan}, [region]
    while rest:
        here = rest.pop(0)
        for name in sorted(here.nodes, key=order.__getitem__):
            for key in context.nodes[name].set:
                if key in keys and key not in seen:
                    seen.add(key)
                    yield key, at("nodes", name, "set", key)
            # A fan that lies in its own body, an error of its own, would be walked for ever.
            if name in context.survey.regions and name not in opened:
                opened.add(name)
                rest += context.survey.regions[name].values()


_REMEDY = 'give the key a reducer ("x-reducer": "append", "sum", …), or mark it "x-scope": "branch" if only the branch needs it'


def _report_body(context: ValidationContext, fan: str, writes: Mapping[str, str], reported: set[str]) -> None:
    for key, pointer in writes.items():
        # Every fan around the node sees the same write; one error is enough.
        if pointer not in reported:
            reported.add(pointer)
            message = (
                f"state key {key!r} takes one writer at a time, and every branch of {fan!r} ({at('nodes', fan, 'map')}) "
                f"writes it here ({pointer})"
            )
            context.issue(pointer, message, f'{_REMEDY}, or let {fan!r} run one at a time: "max": 1', kind="graph")


def _report_branches(
    context: ValidationContext,
    fan: str,
    branches: Mapping[str, Region],
    writes: Mapping[str, Mapping[str, str]],
    reported: set[str],
) -> None:
    before = predecessors({branch: region.after for branch, region in branches.items()})
    first: dict[str, list[tuple[str, str]]] = {}
    for branch, written in writes.items():
        for key, pointer in written.items():
            others = first.setdefault(key, [])
            # Branches that wait for each other never run at once, so the later one may overwrite.
            rival = next((o for o in others if o[0] not in before[branch] and branch not in before[o[0]]), None)
            others.append((branch, pointer))
            if rival is not None and pointer not in reported:
                reported.add(pointer)
                message = (
                    f"state key {key!r} takes one writer at a time, and branches {rival[0]!r} ({rival[1]}) and "
                    f"{branch!r} ({pointer}) of {fan!r} both write it"
                )
                hint = f'{_REMEDY}, or let one wait for the other: "after": [{rival[0]!r}]'.replace("'", '"')
                context.issue(pointer, message, hint, kind="graph")
