"""The short way of a tick gives what the long way gives, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow.graph.core.fast_path import fast_path
from graphflow.graph.core.machine import ROOT, Machine
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.plan_builder import build_plan
from graphflow.graph.core.ticks import Input, NodeSucceeded
from graphflow.graph.core.transition import advance, full_path
from graphflow.graph.validation.validate import check_document
from graphflow.nodes.kinds import NodeKinds
from tests.campaign import size

PROPERTIES = {
    "n": {"type": "integer", "default": 0},
    "text": {"type": "string"},
    "log": {"type": "array", "x-reducer": "append", "default": []},
    "map": {"type": "object", "x-reducer": "merge", "default": {}},
    "sum": {"type": "integer", "x-reducer": "sum", "default": 0},
}
ROUTED = {
    "a": {"use": "node:work", "next": [{"if": "state.n > 2", "to": "b"}, {"if": "visits.a < 3", "to": "a"}, {"to": "end"}]},
    "b": {"use": "fn:give", "set": {"log": "[out.x]", "n": "state.n + 1"}, "next": [{"if": "out.x == 1", "to": "c"}, {"to": "a"}]},
    "c": {"use": "node:work", "next": "d"},
    "d": {"ask": {"message": "sure?"}, "next": "end"},
}  # fmt: skip


def plan_of(nodes: dict[str, Any], **fields: Any) -> Plan:
    kinds = NodeKinds()
    kinds.node("work", lambda state: None)
    kinds.function("give", lambda: None)
    state = {"type": "object", "properties": PROPERTIES}
    document = {"graphflow": "1", "start": "a", "state": state, "nodes": nodes, "budget": {"maxSteps": 9}, **fields}
    return build_plan(check_document(document, kinds), kinds)


def begun(plan: Plan, **fields: Any) -> Machine:
    given = {"run_id": "run", "input": {}, "limits": dict(plan.limits), **fields}
    return advance(plan, Machine(), Input(id="in", at=5, **given))[0]


def succeeded(at: int = 6, **fields: Any) -> NodeSucceeded:
    return NodeSucceeded(id=f"tick-{at}", at=at, frame=ROOT, **fields)


PLAN = plan_of(ROUTED)
values = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(0, 4),
        "text": st.text(max_size=2) | st.integers(),
        "log": st.lists(st.integers(), max_size=2),
        "map": st.dictionaries(st.text(max_size=1), st.integers(), max_size=2),
        "sum": st.integers(-1, 1),
        "unknown": st.none(),
    },
)
ticks = st.fixed_dictionaries(
    {"out": st.fixed_dictionaries({"x": st.integers(0, 2)}) | st.none()},
    optional={
        "updates": values | values | values | st.none(),
        "usage": st.just({"toolCalls": 1}),
        "finish": st.just("stop"),
        "goto": st.sampled_from(("b", "c")),
        "facts": st.just({"k": 1}),
    },
)


@pytest.mark.campaign
@settings(max_examples=size(150, long=7_500))
@given(st.lists(st.tuples(ticks, st.integers(-1, 3)), max_size=12))
def test_every_tick_gives_the_same_by_both_ways(path: list[tuple[dict[str, Any], int]]) -> None:
    machine, at = begun(PLAN), 5
    for fields, later in path:
        if machine.status != "running":
            break
        at += later
        tick = succeeded(at, **fields)
        expected = full_path(PLAN, machine, tick)
        short = fast_path(PLAN, machine, tick)
        assert short is None or short == expected
        machine = expected[0]


def test_the_usual_tick_goes_the_short_way() -> None:
    machine = begun(PLAN)
    done = fast_path(PLAN, machine, succeeded(updates={"n": 3, "text": "x", "log": [1]}))
    assert done is not None
    machine = done[0]
    assert (machine.root.node, machine.steps, list(machine.root.state.log)) == ("b", 1, [1])
    assert fast_path(PLAN, machine, succeeded(7, out={"x": 0})) is not None


@pytest.mark.parametrize(
    "fields",
    [{"updates": {"n": "x"}}, {"updates": {"unknown": 1}}, {"usage": {"toolCalls": 1}}, {"finish": "stop"}, {"goto": "b"}],
    ids=str,
)  # fmt: skip
def test_what_is_more_goes_the_long_way(fields: dict[str, Any]) -> None:
    assert fast_path(PLAN, begun(PLAN), succeeded(**fields)) is None


FANNED = {
    "a": {"map": "[1, 2, 3]", "as": "x", "do": "b", "set": {"n": "size(out)"}, "next": "end"},
    "b": {"use": "fn:give", "set": {"log": "[out.x]", "sum": "1"}, "next": "c"},
    "c": {"use": "node:work", "next": "end"},
}


def test_in_branches_the_usual_ticks_go_the_short_way_and_joins_the_long_one() -> None:
    plan = plan_of(FANNED)
    machine = begun(plan)
    for number in (2, 1, 3):
        for fields in ({"out": {"x": number}}, {"updates": {"log": [9]}}):
            tick = NodeSucceeded(id="tick", at=6, frame=number, **fields)
            expected = full_path(plan, machine, tick)
            short = fast_path(plan, machine, tick)
            last = number == 3 and "updates" in fields
            assert (short is None) is last
            assert short is None or short == expected
            machine = expected[0]
    assert (machine.root.state["log"], machine.root.state["sum"]) == ([1, 9, 2, 9, 3, 9], 3)


def test_breakpoints_and_a_used_up_budget_go_the_long_way() -> None:
    assert fast_path(PLAN, begun(PLAN, before=("b",)), succeeded()) is None
    assert fast_path(PLAN, begun(PLAN, limits={"steps": 1}), succeeded()) is None
    stopping = plan_of(ROUTED, interruptAfter=["a"])
    assert fast_path(stopping, begun(stopping), succeeded()) is None
