"""`invariants`: properties are understood, proved over the control graph, or refused with a way that breaks them (spec 2.1 rule 10)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.errors import DefinitionError, Issue
from graphflow.graph.definition.document import decode_document
from graphflow.graph.invariants.model_checker import path_around, path_exceeding
from graphflow.graph.invariants.properties import entered_by
from graphflow.graph.validation.validate import check_document
from tests.graph.documents import FakeKinds, document

END = {"use": "model", "next": "end"}


def ask(**fields: Any) -> dict[str, Any]:
    return {
        "ask": {
            "message": "Send?",
            "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
            **fields.pop("ask", {}),
        },
        "next": [{"if": "answer.ok", "to": "send"}, {"to": "end"}],
        **fields,
    }


def issues_of(data: dict[str, Any], kinds: FakeKinds | None = None) -> tuple[Issue, ...]:
    try:
        return check_document(data, kinds or FakeKinds()).warnings
    except DefinitionError as error:
        return error.errors


def proved(nodes: dict[str, Any], *always: str, kinds: FakeKinds | None = None, **keys: Any) -> str | None:
    """None when every property holds; else the way that the first error shows."""
    issues = issues_of(document(nodes, invariants=list(always), **keys), kinds)
    assert all(issue.kind == "property" and issue.pointer.startswith("/invariants/") for issue in issues), issues
    assert all(issue.hint for issue in issues)
    return issues[0].message.rpartition(": ")[2] if issues else None


def test_what_is_always_visited_before_is_proved():
    nodes = {"plan": {"use": "model", "next": "approve"}, "approve": ask(), "send": END}
    assert proved(nodes, "before send visit approve", "end reachable") is None


def test_a_way_around_is_shown_from_the_start():
    nodes = {
        "plan": {"use": "model", "next": [{"if": "visits.plan > 3", "to": "send"}, {"to": "approve"}]},
        "approve": ask(),
        "send": END,
    }
    assert proved(nodes, "before send visit approve") == "plan → send"


@pytest.mark.parametrize(
    ("approve", "way"),
    [
        ({"ask": {"expires": "P1D", "onExpire": "send"}}, "approve (expired) → send"),
        ({"error": [{"on": ["any"], "to": "send"}]}, "approve (failed) → send"),
    ],
)
def test_a_node_that_is_left_by_expiry_or_error_has_not_finished(approve, way):
    assert proved({"approve": ask(**approve), "send": END}, "before send visit approve") == way


def test_the_budgets_way_out_is_a_way_from_every_node():
    nodes = {"work": {"use": "model", "next": "approve"}, "approve": ask(), "send": END}
    budget = {"maxSteps": 9, "onExceeded": "send"}
    assert proved(nodes, "before send visit approve", budget=budget) == "work (budget) → send"
    assert proved(nodes, "send at most 1", budget=budget) == "work → approve → send (budget) → send"


def test_a_use_means_every_node_that_uses_it():
    nodes = {
        "approve": ask(),
        "send": {"use": "tool:bash", "with": {"command": "ls"}, "next": "again"},
        "again": {"use": "tool:bash", "with": {"command": "ls"}, "next": "end"},
    }
    assert proved(nodes, "before tool:bash visit approve") is None
    assert proved(nodes, "tool:bash at most 2") is None
    assert proved(nodes, "tool:bash at most 1") == "approve → send → again"


def test_a_tools_node_may_run_any_tool_that_the_document_offers():
    nodes = {
        "think": {"use": "model", "next": "act"},
        "act": {"use": "tools", "next": "ask_first"},
        "ask_first": ask(),
        "send": {"use": "tool:bash", "with": {"command": "ls"}, "next": "end"},
    }
    assert proved(nodes, "before tool:bash visit ask_first", tools=["bash"]) == "think → act"
    assert proved(nodes, "tool:bash at most 7", tools=["bash"]) == "think → act"
    limited = {**nodes, "act": {"use": "tools", "with": {"max": 2}, "next": "ask_first"}}
    assert proved(limited, "tool:bash at most 3", tools=["bash"]) is None


@pytest.mark.parametrize(
    ("given", "keys", "may"),
    [
        ({"tools": ["bash"]}, {"tools": ["other"]}, True),
        ({"tools": ["other"]}, {"tools": ["bash"]}, False),
        ({"tools": ["other"]}, {}, False),
        ({"tools": "${state.names}"}, {"tools": ["other"]}, True),
        ({"tools": ["other", "${state.name}"]}, {}, True),
        ({"keywords": ["shell"]}, {"tools": ["other"]}, True),
        ({}, {"tools": ["other"], "keywords": ["shell"]}, True),
        ({"tools": ["other"]}, {"keywords": ["shell"]}, False),
        (None, {"tools": ["other"]}, False),
        (None, {}, True),
        ("${state.all}", {"tools": ["other"]}, True),
    ],
)
def test_a_tools_node_may_run_what_it_is_offered_itself(given, keys, may):
    node = {"use": "tools", "next": "end", **({} if given is None else {"with": given})}
    found = entered_by(decode_document(document({"act": node}, **keys)), {}, "tool:bash")
    assert bool(found) == may


def test_each_attempt_of_a_subgraph_or_a_fan_enters_what_is_inside_again():
    once = document({"a": {"use": "tool:bash", "with": {"command": "ls"}, "next": "end"}})
    kinds = FakeKinds({"once": once})
    retry = {"max": 3, "on": ["any"]}
    for node in ({"graph": "once"}, {"parallel": {"x": {"do": {"graph": "once"}}}}):
        assert proved({"sub": {**node, "retry": retry}}, "tool:bash at most 3", kinds=kinds) is None
        assert proved({"sub": {**node, "retry": retry}}, "tool:bash at most 2", kinds=kinds) == "sub"
    fan = {"fan": {"parallel": {"x": "work"}, "retry": retry}, "work": {"use": "node:worker"}}
    assert proved(fan, "work at most 3") is None
    assert proved(fan, "work at most 2") == "fan → work"
    (issue,) = issues_of(document(fan, invariants=["work at most 2"]))
    assert (
        issue.hint
        == "the branches that 'work' runs in are tried again, up to 3 times: lower `retry.max`, or raise the number"
    )
    assert proved({"sub": {"graph": document(fan), "next": "last"}, "last": END}, "node:worker at most 2") == "sub"
    assert proved({"work": {"use": "node:worker", "retry": retry}}, "work at most 1") is None


def test_a_subgraph_that_uses_it_counts_as_one_that_does():
    twice = document(
        {
            "a": {"use": "tool:bash", "with": {"command": "ls"}, "next": "b"},
            "b": {"use": "tool:bash", "with": {"command": "ls"}, "next": "end"},
        }
    )
    kinds = FakeKinds({"twice": twice})
    nodes = {
        "first": {"graph": "twice", "next": "approve"},
        "approve": ask(),
        "send": {"graph": "twice", "next": "end"},
    }
    assert proved(nodes, "tool:bash at most 4", kinds=kinds) is None
    assert proved(nodes, "tool:bash at most 3", kinds=kinds) == "first → approve → send"
    assert proved(nodes, "before tool:bash visit approve", kinds=kinds) == "first"


@pytest.mark.parametrize(
    ("condition", "most", "holds"),
    [
        ("visits.work < 3", 3, True),
        ("visits.work < 3", 2, False),
        ("state.n > 2 && visits.work <= 2", 3, True),
        ("state.n > 2 || visits.work <= 2", 3, False),
        ("3 > visits.work && (state.n > 1 || state.n < 0)", 3, True),
        ("!(visits.work >= 3)", 3, True),
        ("visits.work < limits.rounds", 4, True),
        ("visits.work < limits.rounds", 3, False),
        ("state.n > 2", 9, False),
        ("state.n > 2 ? visits.work < 2 : true", 9, False),
    ],
)
def test_a_condition_on_visits_bounds_a_cycle(condition, most, holds):
    nodes = {"work": {"use": "model", "next": [{"if": condition, "to": "work"}, {"to": "end"}]}}
    way = proved(
        nodes,
        f"work at most {most}",
        state={"n": {"type": "integer", "default": 0}},
        budget={"maxRounds": 4, "maxSteps": 50},
    )
    assert way == (None if holds else " → ".join(["work"] * (most + 1)))


def test_the_routes_after_one_that_surely_holds_are_never_taken():
    nodes = {"work": {"use": "model", "next": [{"if": "visits.work >= 2", "to": "end"}, {"to": "work"}]}}
    assert proved(nodes, "work at most 2", budget={"maxSteps": 9}) is None


def test_end_is_reachable_only_when_no_node_is_a_trap():
    nodes = {
        "a": {"use": "model", "next": [{"if": "visits.a > 1", "to": "b"}, {"to": "end"}]},
        "b": {"use": "model", "next": "fail"},
    }
    assert proved(nodes) is None
    assert proved(nodes, "end reachable") == "a → b"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("after send visit approve", "is not an invariant", "write 'before' for 'after'"),
        ("befor send visit answer", "is not an invariant", "write 'before' for 'befor'"),
        ("answer at most many", "'many' is not a whole number", "digits"),
        ("answer at most 1001", "'1001' is not a whole number from 0 to 1000", "digits"),
        ("answer at most " + "9" * 5_000, "is not a whole number", "digits"),
        ("answer at most -1", "'-1' is not a whole number", "digits"),
        ("", "'' is not an invariant", "as in"),
        ("answr at most 3", "'answr' is not a node", "did you mean 'answer'?"),
        ("before answer visit tool:mail", "'tool:mail' is not a node, and no node uses it", "one of answer, model"),
    ],
)
def test_what_states_no_property_or_names_nothing_is_refused_with_what_to_write(text, message, hint):
    (issue,) = issues_of(document(invariants=[text]))
    assert (issue.pointer, issue.kind, issue.severity) == ("/invariants/0", "property", "error")
    assert message in issue.message
    assert hint in (issue.hint or "")


def test_every_property_that_does_not_hold_is_reported_at_once():
    found = issues_of(document(invariants=["answer at most 0", "end reachable", "before answer visit answer"]))
    assert [issue.pointer for issue in found] == ["/invariants/0", "/invariants/2"]


def test_a_graph_with_other_errors_is_not_proved():
    nodes = {"a": {"use": "model", "next": "nowhere"}, "b": END}
    assert {issue.kind for issue in issues_of(document(nodes, invariants=["before b visit a"]))} <= {
        "reference",
        "graph",
    }


# --- branches --------------------------------------------------------------------------------------

WORK = {"use": "node:worker", "next": "end"}


def parallel(after: str = "send", **fields: Any) -> dict[str, Any]:
    return {"parallel": {"x": "approve", "y": "other"}, "next": after, **fields}


def around(nodes: dict[str, Any], node: str = "send", first: str = "approve", **keys: Any) -> str | None:
    data = decode_document(document(nodes, **keys))
    way = path_around(data, {node: 1}, frozenset((first,)))
    return None if way is None else " → ".join(way)


def test_a_branch_of_a_join_that_waits_for_all_has_surely_ended():
    nodes = {"fan": parallel(), "approve": WORK, "other": WORK, "send": WORK}
    assert around(nodes) is None
    assert around({**nodes, "fan": parallel(join={"wait": "any"})}) == "fan → send"
    assert around({**nodes, "fan": parallel(join={"wait": "all", "onError": "skip"})}) == "fan → send"
    assert around({**nodes, "fan": parallel(error=[{"to": "send"}])}) == "fan (failed) → send"


def test_a_branch_may_end_without_the_node():
    nodes = {
        "fan": parallel("send"),
        "approve": {"use": "node:worker", "next": {"choose": ["check", "end"]}},
        "check": WORK,
        "other": WORK,
        "send": WORK,
    }
    assert around(nodes, first="check") in ("fan → approve → send", "fan → other → send")


def test_a_branch_does_not_wait_for_its_sibling_unless_it_says_so():
    nodes = {"fan": {"parallel": {"x": "approve", "y": "send"}, "next": "end"}, "approve": WORK, "send": WORK}
    assert around(nodes) == "fan → send"
    after = {"x": "approve", "y": {"do": "send", "after": ["x"]}}
    assert around({**nodes, "fan": {"parallel": after, "next": "end"}}) is None
    collecting = {"parallel": after, "next": "end", "join": {"onError": "collect"}}
    assert around({**nodes, "fan": collecting}) == "fan → send"


def test_a_map_may_have_nothing_to_do():
    nodes = {"fan": {"map": "state.list", "as": "it", "do": "approve", "next": "send"}, "approve": WORK, "send": WORK}
    assert around(nodes) == "fan → send"
    each = {
        "fan": {"map": "state.list", "as": "it", "do": "approve", "next": "end"},
        "approve": {**WORK, "next": "send"},
        "send": WORK,
    }
    assert around(each) is None


def counted(nodes: dict[str, Any], node: str, count: int, **keys: Any) -> str | None:
    way = path_exceeding(decode_document(document(nodes, **keys)), {node: 1}, count)
    return None if way is None else " → ".join(way)


def test_a_maps_branch_is_entered_any_number_of_times_a_parallels_once():
    mapped = {"fan": {"map": "state.list", "as": "it", "do": "send", "next": "end"}, "send": WORK}
    assert counted(mapped, "send", 2) == "fan → send → send → send"
    twice = {"fan": {"parallel": {"x": "a", "y": "b"}, "next": "send"}, "a": WORK, "b": WORK, "send": WORK}
    assert counted(twice, "send", 1) is None
    assert counted(twice, "a", 1) is None


def test_each_branch_counts_its_visits_from_nothing():
    again = {"use": "node:worker", "next": [{"if": "visits.a < 2", "to": "a"}, {"to": "end"}]}
    nodes: dict[str, Any] = {"fan": {"parallel": {"x": "a"}, "next": {"choose": ["fan", "end"]}}, "a": again}
    assert counted({**nodes, "fan": {**nodes["fan"], "next": "end"}}, "a", 2) is None
    assert counted(nodes, "a", 3) == "fan → a → a → fan → a → a"


def test_what_fails_in_a_branch_may_take_the_fans_way_out():
    nodes = {
        "fan": {"map": "state.list", "as": "it", "do": "work", "next": "approve", "error": [{"to": "send"}]},
        "work": WORK,
        "approve": {**WORK, "next": "send"},
        "send": WORK,
    }
    assert around(nodes) == "fan (failed) → send"
