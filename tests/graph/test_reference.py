"""The reference interpreter and the random documents are themselves sound: what the engine is held against must be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

from graphflow.graph.validation.validate import check_document
from tests.campaign import size
from tests.graph.random_documents import REDUCERS, RandomDocument, RandomKinds, random_documents
from tests.graph.reference import Call, Failure, Gave, Outcome, interpret


def run(nodes: dict[str, Any], behaviour: Any, *, state: dict[str, Any] | None = None) -> Outcome:
    keys = state or {
        "log": {"type": "array", "x-reducer": "append", "default": []},
        "sum": {"type": "integer", "x-reducer": "sum", "default": 0},
        "one": {"type": ["string", "null"], "default": None},
        "own": {"type": "string", "x-scope": "branch", "default": "-"},
    }
    document = {"graphflow": "1", "start": next(iter(nodes)), "nodes": nodes, "budget": {"maxSteps": 99}, "state": {"type": "object", "properties": keys}}  # fmt: skip
    return interpret(check_document(document, RandomKinds()), behaviour, reducers=REDUCERS)


def name_and_state(call: Call) -> Gave:
    return Gave(out={"text": f"{call.path}/{call.node}", "sees": dict(call.state), "item": call.arguments.get("item")})


@given(random_documents(asks=True))
@pytest.mark.campaign
@settings(max_examples=size(40, long=3_000))
def test_the_compiler_accepts_every_random_document(made: RandomDocument):
    checked = check_document(made.document, made.kinds)
    assert check_document(checked.data, made.kinds).digest == checked.digest


@given(random_documents(asks=True))
@pytest.mark.campaign
@settings(max_examples=size(40, long=3_000))
def test_the_reference_ends_and_gives_the_same_each_time(made: RandomDocument):
    checked = check_document(made.document, made.kinds)
    first, second = (interpret(checked, reducers=REDUCERS) for _ in range(2))
    assert first == second
    assert (first.status == "error") == (first.error is not None)


def test_branches_see_the_state_of_the_opening_and_their_own_writes_and_are_reduced_in_order():
    nodes = {
        "fan": {"map": "[10, 20]", "as": "item", "do": "add", "next": "last"},
        "add": {"use": "work", "with": {"item": "${item}"}, "set": {"sum": "out.item", "log": "[out.text]"}, "next": "look"},
        "look": {"use": "work", "with": {"item": "${item}"}, "set": {"log": "[string(out.sees.sum)]"}},
        "last": {"use": "work", "set": {"log": "[string(state.sum)]"}},
    }  # fmt: skip
    outcome = run(nodes, name_and_state)
    assert outcome.state["log"] == ["fan#1[0]/add", "10", "fan#1[1]/add", "20", "30"]
    assert {path: [r.node for r in records] for path, records in outcome.records.items()} == {
        "": ["fan", "last"], "fan#1[0]": ["add", "look"], "fan#1[1]": ["add", "look"],
    }  # fmt: skip


def test_a_branch_after_another_sees_its_writes_and_is_reduced_after_it_wherever_it_stands():
    nodes = {
        "both": {"parallel": {"b": {"do": "second", "after": ["a"]}, "a": "first"}, "set": {"sum": "out.b.index + 10"}},
        "first": {"use": "work", "set": {"one": "'a'", "own": "'mine'", "sum": "1"}},
        "second": {"use": "work", "set": {"one": "out.sees.one + 'b' + out.sees.own", "sum": "out.sees.sum * 5"}},
    }
    outcome = run(nodes, name_and_state)
    assert outcome.state == {"log": [], "sum": 16, "one": "ab-", "own": "-"}


@pytest.mark.parametrize(
    ("on_error", "out", "log"),
    [
        ("collect", ["done", "failed", "done"], ["kept", "kept"]),
        ("skip", ["done", "done"], ["kept", "kept"]),
    ],
)
def test_a_failed_branch_writes_nothing_and_is_collected_or_skipped(on_error, out, log):
    def behave(call: Call) -> Gave:
        if call.arguments.get("item") == 2:
            raise Failure
        return Gave(out=1)

    nodes = {
        "fan": {"map": "[1, 2, 3]", "as": "item", "do": "keep", "join": {"onError": on_error}, "set": {"log": "out.map(o, o.status)"}},
        "keep": {"use": "work", "set": {"log": "['kept']"}, "next": "risk"},
        "risk": {"use": "work", "with": {"item": "${item}"}},
    }  # fmt: skip
    outcome = run(nodes, behave)
    assert outcome.state["log"] == [*log, *out]
    assert outcome.exact


def test_a_branch_that_fails_its_fan_leaves_no_writes_and_the_fan_may_route_on():
    def behave(call: Call) -> Gave:
        if call.node == "risk":
            raise Failure("tool_error")
        return Gave(out=1)

    nodes: dict[str, Any] = {
        "fan": {"map": "[1, 2]", "as": "item", "do": "keep", "error": [{"on": ["tool_error"], "to": "sorry"}, {"to": "fail"}]},
        "keep": {"use": "work", "set": {"log": "['kept']"}, "next": "risk"},
        "risk": {"use": "work"},
        "sorry": {"use": "work", "set": {"one": "error.code"}},
    }  # fmt: skip
    outcome = run(nodes, behave)
    assert (outcome.status, outcome.state["log"], outcome.state["one"]) == ("complete", [], "tool_error")
    assert not outcome.exact
    del nodes["fan"]["error"], nodes["sorry"]
    outcome = run(nodes, behave)
    assert (outcome.status, outcome.error, outcome.state["log"]) == ("error", {"code": "tool_error", "message": "tool_error"}, [])  # fmt: skip


def test_a_subgraph_body_has_its_own_state_and_gives_its_result():
    child = {
        "graphflow": "1", "start": "inner", "result": "state.n", "input": {"type": "object"},
        "state": {"type": "object", "properties": {"n": {"type": "integer", "default": 5}}},
        "nodes": {"inner": {"use": "work", "set": {"n": "state.n + input.item"}}},
    }  # fmt: skip
    nodes = {
        "fan": {"map": "[1, 2]", "as": "item", "do": {"graph": child}, "set": {"sum": "out[0].out * 10 + out[1].out"}}
    }
    outcome = run(nodes, name_and_state)
    assert outcome.state["sum"] == 67
    assert set(outcome.records) == {"", "fan#1[0]", "fan#1[1]"}


def test_random_documents_have_every_form_and_reach_every_ending():
    seen: Counter[str] = Counter()

    @given(random_documents(asks=True))
    @settings(max_examples=150, database=None, derandomize=True)
    def look(made: RandomDocument) -> None:
        checked = check_document(made.document, made.kinds)
        outcome = interpret(checked, reducers=REDUCERS)
        seen[outcome.status] += 1
        seen["inexact"] += not outcome.exact
        seen["deep"] += any(path.count("[") > 1 for path in outcome.records)
        for node in checked.document.nodes.values():
            for form in ("use", "map", "parallel", "graph", "ask"):
                seen[form] += getattr(node, form) is not None
            seen["after"] += any(not isinstance(b, str) and bool(b.after) for b in (node.parallel or {}).values())

    look()
    wanted = ("complete", "error", "inexact", "deep", "use", "map", "parallel", "graph", "ask", "after")
    assert {name for name in wanted if seen[name] < 3} == set(), seen
