"""The prover against brute force: every walk of small random graphs, enumerated by itself, and the core that walks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphflow.errors import DefinitionError
from graphflow.graph.core.machine import Machine
from graphflow.graph.core.plan_builder import build_plan
from graphflow.graph.core.ticks import Input, NodeErrored, NodeSucceeded
from graphflow.graph.core.transition import advance
from graphflow.graph.definition.document import decode_document
from graphflow.graph.invariants.model_checker import path_around, path_exceeding, path_to_trap
from graphflow.graph.validation.validate import check_document
from tests.campaign import size
from tests.graph.documents import FakeKinds, document

NAMES = ("a", "b", "c", "d")
LONGEST = 9
"""Longer ways are not enumerated: one that is found is not compared."""


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """A document of Python nodes that choose their routes; some route their failures, the budget may wrap up."""
    names = NAMES[: draw(st.integers(2, 4))]
    target = st.sampled_from([*names, "end", "fail"])
    nodes: dict[str, Any] = {}
    for name in names:
        node: dict[str, Any] = {
            "use": "node:worker",
            "next": {"choose": draw(st.lists(target, min_size=1, max_size=2, unique=True))},
        }
        if draw(st.booleans()):
            node["error"] = [{"on": ["any"], "to": draw(target)}]
        nodes[name] = node
    budget: dict[str, Any] = {"maxSteps": 50}
    if draw(st.integers(0, 3)) == 0:
        budget["onExceeded"] = draw(st.sampled_from(names))
    return document(nodes, start="a", budget=budget)


Step = tuple[str, bool]
"""A node that was entered, and whether the one before it had finished."""


def walks(data: dict[str, Any]) -> Iterator[list[Step]]:
    """Every walk from the start, up to `LONGEST` entries; also the beginnings of longer ones."""
    nodes, then = data["nodes"], data["budget"].get("onExceeded")

    def on(walk: list[Step], wrapped: bool) -> Iterator[list[Step]]:
        yield walk
        name = walk[-1][0]
        if name not in nodes or len(walk) > LONGEST:
            return
        for to in nodes[name]["next"]["choose"]:
            yield from on([*walk, (to, True)], wrapped)
        for route in nodes[name].get("error", ()):
            yield from on([*walk, (route["to"], False)], wrapped)
        if then is not None and not wrapped:
            yield from on([*walk, (then, False)], wrapped=True)

    yield from on([("a", True)], wrapped=False)


def breaks_before(walk: list[Step], node: str, first: str) -> bool:
    finished = False
    for at, (name, _) in enumerate(walk):
        if name == node and not finished:
            return True
        if name == first and at + 1 < len(walk) and walk[at + 1][1]:
            finished = True
    return False


@pytest.mark.campaign
@settings(max_examples=size(150, long=7_500), suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_a_way_around_is_found_exactly_when_some_walk_is_one(data, node, first):
    found = path_around(decode_document(data), {node: 1}, frozenset((first,)))
    shortest = min((len(walk) for walk in walks(data) if breaks_before(walk, node, first)), default=None)
    assert (None if found is None else len(found)) == shortest


@pytest.mark.campaign
@settings(max_examples=size(150, long=7_500), suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.sampled_from(NAMES), st.integers(0, 2))
def test_too_many_entries_are_found_exactly_when_some_walk_has_them(data, node, count):
    found = path_exceeding(decode_document(data), {node: 1}, count)
    shortest = min((len(walk) for walk in walks(data) if [name for name, _ in walk].count(node) > count), default=None)
    assert (None if found is None or len(found) > LONGEST + 1 else len(found)) == shortest


@pytest.mark.campaign
@settings(max_examples=size(100, long=5_000), suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_a_trap_is_found_exactly_when_some_walk_enters_one(data):
    def routes_lead_to_end(name: str) -> bool:
        seen, rest = {name}, [name]
        while rest:
            node = data["nodes"].get(rest.pop())
            for to in () if node is None else (*node["next"]["choose"], *(e["to"] for e in node.get("error", ()))):
                if to not in seen:
                    seen.add(to)
                    rest.append(to)
        return "end" in seen

    trapped = [
        len(walk) for walk in walks(data) if walk[-1][0] in data["nodes"] and not routes_lead_to_end(walk[-1][0])
    ]
    found = path_to_trap(decode_document(data))
    assert (None if found is None else len(found)) == min(trapped, default=None)


@pytest.mark.campaign
@settings(max_examples=size(150, long=7_500), suppress_health_check=[HealthCheck.too_slow])
@given(
    graphs(),
    st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=12),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
)
def test_the_core_never_stops_a_run_of_a_document_that_was_proved(data, choices, node, first):
    """And what it lets run keeps the property."""
    data = {**data, "invariants": [f"before {node} visit {first}", f"{node} at most 2"]}
    try:
        plan = build_plan(check_document(data, FakeKinds()), FakeKinds())
    except DefinitionError:
        return
    entered, finished = list[str](), set[str]()
    machine, _ = advance(plan, Machine(), Input(id="0", at=0, run_id="r", input={}, limits={}))
    for number, (choice, fails) in enumerate(choices):
        if machine.status != "running":
            break
        at = machine.root.node
        entered.append(at)
        assert at != node or first in finished
        routes = data["nodes"][at]["next"]["choose"]
        tick: Any = NodeSucceeded(id=f"{number}", at=0, frame=0, goto=routes[choice % len(routes)])
        if fails:
            tick = NodeErrored(
                id=f"{number}", at=0, frame=0, error={"code": "node_error", "message": "", "retryable": False}
            )
        else:
            finished.add(at)
        machine, _ = advance(plan, machine, tick)
    assert entered.count(node) <= 2
    assert (machine.error or {}).get("code") != "property_violated"
