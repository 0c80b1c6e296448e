"""`map` and `parallel` are checked as a whole: their bodies, their borders, who writes what at once, and what their
expressions may name (spec 2.1 rules 4, 5, 7, 8; E10)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.errors import DefinitionError
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.document import GraphRef, Join, decode_document, document_schema
from graphflow.graph.definition.regions import branch_order, predecessors, regions, survey
from graphflow.graph.drawing.render import draw_svg
from graphflow.graph.validation.validate import check_document
from tests.graph.documents import FakeKinds, document, graph_key

MODEL: dict[str, Any] = {"use": "model", "with": {"prompt": "Hi"}}
CHILD = document(input={"type": "object", "required": ["part"], "properties": {"part": {"type": "string"}}})
STATE: dict[str, Any] = {
    "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False}, "default": []},
    "names": {"type": "array", "items": {"type": "string"}, "default": []},
    "results": {"type": "array", "x-reducer": "append", "default": []},
    "draft": {"type": ["string", "null"], "default": None},
    "count": {"type": "integer", "default": 0},
    "total": {"type": "integer", "x-reducer": "sum", "default": 0},
    "scratch": {"type": "string", "x-scope": "branch", "default": ""},
}  # fmt: skip


def model(**keys: Any) -> dict[str, Any]:
    return {**copy.deepcopy(MODEL), **keys}


def fan(**keys: Any) -> dict[str, Any]:
    return {"map": "state.parts", "as": "part", "do": "gather", **keys}


def build(nodes: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return document(nodes, state=STATE, **keys)


def check(source: dict[str, Any]) -> CheckedDocument:
    return check_document(source, FakeKinds({"child": CHILD, "sub": document()}))


def issues(source: dict[str, Any]) -> dict[str, Any]:
    try:
        check(source)
    except DefinitionError as caught:
        return {issue.pointer: issue for issue in caught.errors if issue.severity == "error"}
    return {}


def only_issue(source: dict[str, Any]) -> Any:
    found = issues(source)
    assert len(found) == 1, found
    return next(iter(found.values()))


NESTED = build(
    {
        "plan": model(next="fan"),
        "fan": fan(next="both", max=4, join={"wait": 2, "onError": "collect"}, set={"count": "size(out)"}),
        "gather": model(next=[{"if": "visits.gather < 3", "to": "gather"}, {"to": "inner"}], error=[{"to": "sorry"}]),
        "sorry": model(next="end"),
        "inner": {"map": "state.names", "as": "name", "do": "deep", "max": 2, "next": "last"},
        "deep": {"use": "model", "with": {"prompt": "${part.name} ${name}"}, "set": {"results": "[part.name + name]"}},
        "last": model(),
        "both": {"parallel": {"b": {"do": "second", "after": ["a"]}, "a": "first", "g": {"do": {"graph": "sub"}}}, "next": "end"},
        "first": model(set={"draft": "'one'"}),
        "second": model(set={"draft": "'two'"}, next="ask"),
        "ask": {"ask": {"message": "Well?", "expires": "P1D", "onExpire": "late"}, "next": "end"},
        "late": model(next="fail"),
    },
    budget={"maxSteps": 50},
)  # fmt: skip


# --- regions


def test_a_region_is_what_its_do_reaches_and_nested_fans_own_theirs():
    found = regions(decode_document(NESTED))
    assert {fan: {branch: (r.entry, set(r.nodes)) for branch, r in of.items()} for fan, of in found.items()} == {
        "fan": {"": ("gather", {"gather", "sorry", "inner", "last"})},
        "inner": {"": ("deep", {"deep"})},
        "both": {"b": ("second", {"second", "ask", "late"}), "a": ("first", {"first"}), "g": (None, set())},
    }
    assert found["both"]["b"].after == ("a",)
    assert (found["both"]["g"].graph, graph_key(found["both"]["g"])) == (GraphRef(graph="sub"), "sub")


def test_each_node_knows_the_regions_around_it():
    made = survey(decode_document(NESTED))
    assert made.main == {"plan", "fan", "both"}
    assert [region.fan for region in made.around("deep")] == ["inner", "fan"]
    assert list(made.around("plan")) == []
    assert made.crossings == []


def test_a_document_with_nested_fans_is_sound_and_keeps_its_hash_through_json():
    checked = check(NESTED)
    assert [w.message for w in checked.warnings if "never read" not in w.message and "neither" not in w.message] == []
    assert checked.data == NESTED
    assert check(checked.data).digest == checked.digest


def test_visits_of_a_node_that_the_frame_never_comes_to_are_a_warning():
    nodes = {
        "plan": model(next=[{"if": "visits.gather < 3 && visits.plan < 2", "to": "fan"}, {"to": "end"}]),
        "fan": fan(next="end"),
        "gather": model(next=[{"if": "visits.fan > 1 || visits.gather > 1", "to": "end"}, {"to": "inner"}]),
        "inner": {"map": "state.names", "as": "name", "do": "deep", "set": {"total": "visits.deep"}},
        "deep": {"use": "model", "with": {"prompt": "${string(visits.inner)}"}, "next": "end"},
    }
    warned = {w.pointer: w for w in check(build(nodes)).warnings if "visits." in w.message}
    assert list(warned) == [
        "/nodes/plan/next/0/if",
        "/nodes/gather/next/0/if",
        "/nodes/inner/set/total",
        "/nodes/deep/with",
    ]
    assert "visits.gather is always 0 here: it counts entries in the main flow, which never comes to 'gather'" in warned["/nodes/plan/next/0/if"].message  # fmt: skip
    assert "visits.fan is always 0 here: it counts entries in the body of 'fan'" in warned["/nodes/gather/next/0/if"].message  # fmt: skip
    assert warned["/nodes/deep/with"].hint == "count a node of the same body, or keep a count in the state"


def test_a_subgraph_body_is_known_by_its_key_or_by_its_fan_and_branch():
    nodes = {
        "fan": {"map": "state.names", "as": "part", "do": {"graph": CHILD}, "next": "both"},
        "both": {"parallel": {"x": {"do": {"graph": document()}}, "y": {"do": {"graph": "sub"}}}},
    }
    checked = check(build(nodes))
    assert set(checked.subgraphs) == {"fan", "both[x]", "sub"}
    found = regions(checked.document)
    assert [graph_key(region) for of in found.values() for region in of.values()] == ["fan", "both[x]", "sub"]


def test_the_order_of_branches_is_part_of_the_version_because_writes_are_reduced_in_it():
    one = build({"both": {"parallel": {"a": "x", "b": "y"}}, "x": model(), "y": model()})
    other = build({"both": {"parallel": {"b": "y", "a": "x"}}, "x": model(), "y": model()})
    assert check(one).digest != check(other).digest
    assert check(check(other).data).digest == check(other).digest


@given(
    st.integers(1, 7).flatmap(lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=3), min_size=n, max_size=n))
)
def test_a_branch_is_reduced_after_those_it_waits_for_and_else_where_it_stands(waits):
    # earlier numbers only, under shuffled names: acyclic, and not in the order of the document
    names = [f"b{(i * 5) % 7}" for i in range(len(waits))]
    after = {names[i]: [names[j] for j in found if j < i] for i, found in enumerate(waits)}
    shuffled = dict(sorted(after.items()))
    order, before = branch_order(shuffled), predecessors(shuffled)
    assert sorted(order) == sorted(names)
    assert all(order.index(other) < order.index(name) for name in order for other in before[name])
    assert branch_order({name: [] for name in shuffled}) == list(shuffled)


# --- borders

BORDERS = [
    ("leaves a map", {"fan": fan(next="after"), "gather": model(next="after"), "after": model()}, {},
     "/nodes/gather/next", "leaves the body of 'fan'", 'write "end"'),
    ("back to its own fan", {"fan": fan(), "gather": model(next="fan")}, {"budget": {"maxSteps": 9}},
     "/nodes/gather/next", "leaves the body of 'fan'", 'write "end"'),
    ("by an error route", {"fan": fan(next="after"), "gather": model(error=[{"to": "after"}]), "after": model()}, {},
     "/nodes/gather/error/0/to", "leaves the body of 'fan'", 'write "end"'),
    ("when a question expires", {"fan": fan(next="after"), "after": model(),
     "gather": {"ask": {"message": "?", "expires": "P1D", "onExpire": "after"}}}, {},
     "/nodes/gather/ask/onExpire", "leaves the body of 'fan'", 'write "end"'),
    ("a choice", {"fan": fan(next="after"), "after": model(), "gather": {"use": "node:worker", "next": {"choose": ["after", "end"]}}}, {},
     "/nodes/gather/next/choose/0", "leaves the body of 'fan'", 'write "end"'),
    ("into a sibling", {"both": {"parallel": {"a": "x", "b": "y"}}, "x": model(), "y": model(next="x")}, {},
     "/nodes/y/next", "leaves branch 'b' of 'both'", 'write "end"'),
    ("one body for two branches", {"both": {"parallel": {"a": "x", "b": "x"}}, "x": model()}, {},
     "/nodes/both/parallel/b", "belongs to branch 'a' of 'both'", "a node of its own"),
    ("a body in the main flow", {"plan": model(next=[{"if": "state.count > 1", "to": "gather"}, {"to": "fan"}]), "fan": fan(), "gather": model()}, {},
     "/nodes/fan/do", "belongs to the main flow", "a node of its own"),
    ("the start as a body", {"gather": model(next="fan"), "fan": fan()}, {},
     "/nodes/fan/do", "belongs to the main flow", "a node of its own"),
    ("itself", {"fan": fan(do="fan")}, {}, "/nodes/fan/do", "can't be its own body", "name another node"),
    ("out of an inner body", {"fan": fan(), "gather": {"map": "state.names", "as": "name", "do": "deep", "next": "last"},
     "deep": model(next="last"), "last": model()}, {}, "/nodes/deep/next", "leaves the body of 'gather'", 'write "end"'),
    ("wrapping up in a branch", {"fan": fan(), "gather": model()}, {"budget": {"maxSteps": 5, "onExceeded": "gather"}},
     "/budget/onExceeded", "is in the body of 'fan'", "the main flow"),
    ("from the wrapping up into a branch", {"fan": fan(), "gather": model(), "wrap": model(next="gather")}, {"budget": {"maxSteps": 5, "onExceeded": "wrap"}},
     "/nodes/wrap/next", "leads into the body of 'fan'", "route to 'fan'"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "keys", "pointer", "message", "hint"), [row[1:] for row in BORDERS], ids=[row[0] for row in BORDERS])  # fmt: skip
def test_no_way_crosses_the_border_of_a_region(nodes, keys, pointer, message, hint):
    issue = only_issue(build(nodes, **keys))
    assert (issue.pointer, issue.kind) == (pointer, "graph")
    assert message in issue.message
    assert hint in issue.hint


def test_a_fan_that_lies_in_its_own_body_is_told_with_the_cycle():
    nodes = {
        "plan": model(),
        "one": fan(do="two"),
        "two": {"map": "state.names", "as": "name", "do": "one"},
    }
    found = issues(build(nodes))
    assert "the body of 'one' contains 'one' itself: one → two → one" in found["/nodes/one"].message


# --- parts

PARTS = [
    ("no as", {"map": "state.parts", "do": "gather"}, "", "`as` is missing", "item"),
    ("no do", {"map": "state.parts", "as": "part"}, "", "`do` is missing", '"do": "NODE"'),
    ("as is a variable", fan(**{"as": "state"}), "/as", "expressions have a variable of that name", "'item'"),
    ("as is no name", fan(**{"as": "Part"}), "/as", "names match [a-z_]", "write 'part'"),
    ("as is a word of CEL", fan(**{"as": "in"}), "/as", "it is a reserved word", "another name"),
    ("do ends", fan(do="end"), "/do", "can't begin at 'end'", "first node"),
    ("do is nobody", fan(do="gathr"), "/do", "no node is named 'gathr'", "'gather'"),
    ("do is no graph", fan(do={"graph": "sbu"}), "/do/graph", "no graph is named 'sbu'", "file name"),
    ("max 0", fan(max=0), "/max", "above 0, not 0", "leave it out"),
    ("wait 0", fan(join={"wait": 0}), "/join/wait", "at least 1 branch, not 0", "any"),
    ("wait some", fan(join={"wait": "some"}), "/join/wait", "all, any or how many", "all, any"),
    ("wait text", fan(join={"wait": "2"}), "/join/wait", "all, any or how many", "without quotes"),
    ("onError", fan(join={"onError": "ignore"}), "/join/onError", "one of collect, fail, skip, not 'ignore'", ""),
    ("no list", fan(map="state.count"), "/map", "a map runs over a list, and 'state.count' gives a whole number", "array"),
    ("with", fan(**{"with": {"a": 1}}), "/with", "the input of bodies that are subgraphs", "at the nodes"),
]  # fmt: skip


@pytest.mark.parametrize(("node", "pointer", "message", "hint"), [row[1:] for row in PARTS], ids=[row[0] for row in PARTS])  # fmt: skip
def test_a_map_has_its_parts_and_no_others(node, pointer, message, hint):
    found = issues(build({"fan": node, "gather": model()}))
    issue = found[f"/nodes/fan{pointer}"]
    assert message in issue.message
    assert hint in (issue.hint or "")


def nested(depth: int) -> dict[str, Any]:
    nodes: dict[str, Any] = {
        f"f{n}": {"map": "[1]", "as": f"x{n}", "do": f"f{n + 1}", "set": {"count": "size(out)"}} for n in range(depth)
    }
    return document(
        {**nodes, f"f{depth}": MODEL}, state={"count": {"type": "integer", "x-reducer": "sum", "default": 0}}
    )


def test_branches_in_branches_are_checked_and_drawn_to_a_depth_that_is_told():
    drawn = draw_svg(check(nested(100)).document)
    assert drawn.count('class="group"') == 100
    issue = only_issue(nested(400))
    assert issue.message == "node 'f100' opens branches in more than 100 others"


def test_an_item_may_not_hide_the_item_of_a_map_around_it():
    issue = only_issue(build({"fan": fan(), "gather": fan(do="deep"), "deep": model()}))
    assert issue.pointer == "/nodes/gather/as"
    assert "the map 'fan' around this one" in issue.message


def test_two_maps_beside_each_other_may_name_their_items_alike():
    assert not issues(build({"fan": fan(next="other"), "gather": model(), "other": fan(do="deep"), "deep": model()}))


PARALLELS = [
    ("none", {}, {}, "", "at least one branch", "name at least one"),
    ("a branch's name", {"A": "x"}, {}, "/A", "names match", "write 'a'"),
    ("after nobody", {"a": "x", "b": {"do": "y", "after": ["c"]}}, {}, "/b/after/0", "no branch of 'both' is named 'c'", "a, b"),
    ("after itself", {"a": "x", "b": {"do": "y", "after": ["b"]}}, {}, "/b/after/0", "can't wait for itself", "remove it"),
    ("after each other", {"a": {"do": "x", "after": ["b"]}, "b": {"do": "y", "after": ["a"]}}, {}, "/a/after", "never open: a → b → a", "remove one"),
    ("too many", {"a": "x", "b": "y"}, {"join": {"wait": 3}}, "../join/wait", "waits for 3 branches, and there are 2", "all"),
    ("do ends", {"a": "fail", "b": "y"}, {}, "/a", "can't begin at 'fail'", "first node"),
    ("no subgraph", {"a": {"do": {"graph": "nobody"}}, "b": "y"}, {}, "/a/do/graph", "no graph is named 'nobody'", ""),
]  # fmt: skip


@pytest.mark.parametrize(("branches", "keys", "pointer", "message", "hint"), [row[1:] for row in PARALLELS], ids=[row[0] for row in PARALLELS])  # fmt: skip
def test_a_parallel_has_named_branches_that_can_all_open(branches, keys, pointer, message, hint):
    nodes = {"both": {"parallel": branches, **keys}, "x": model(), "y": model()}
    place = "/nodes/both" + (pointer.removeprefix("..") if pointer.startswith("..") else "/parallel" + pointer)
    issue = issues(build(nodes))[place]
    assert message in issue.message
    assert hint in (issue.hint or "")


@pytest.mark.parametrize("key", ["as", "do", "max"])
def test_the_parts_of_a_map_stand_at_no_other_form(key):
    value = {"as": "item", "do": "other", "max": 2}[key]
    found = issues(build({"both": {"parallel": {"a": "x"}, key: value}, "x": model(), "other": model(**{key: value})}))
    assert {f"/nodes/both/{key}", f"/nodes/other/{key}"} <= set(found)


# --- reach and cycles


def test_a_body_does_not_lead_its_fan_to_the_end():
    nodes = {"fan": fan(next="lost"), "gather": model(), "lost": model(next="lost")}
    found = issues(build(nodes, budget={"maxSteps": 5}))
    assert set(found) == {"/nodes/lost/next"}


def test_every_node_of_a_body_can_end_its_branch():
    nodes = {
        "fan": fan(),
        "gather": model(next=[{"if": "state.count > 1", "to": "stuck"}, {"to": "end"}]),
        "stuck": {"use": "node:worker", "next": {"choose": ["stuck", "again"]}},
        "again": model(next="stuck"),
    }
    found = issues(build(nodes, budget={"maxSteps": 5}))
    assert "no path from node 'stuck' reaches 'end'" in found["/nodes/stuck"].message


def test_a_node_that_only_a_wrong_body_names_is_unreachable():
    found = issues(build({"plan": model(), "gather": model()}))
    assert set(found) == {"/nodes/gather"}


def test_a_cycle_inside_a_body_needs_a_budget_and_a_condition():
    loop = [{"if": "visits.gather < 3", "to": "gather"}, {"to": "end"}]
    assert "no budget" in only_issue(build({"fan": fan(), "gather": model(next=loop)})).message
    assert (
        "never ends"
        in only_issue(build({"fan": fan(), "gather": model(next="gather")}, budget={"maxSteps": 5})).message
    )
    check(build({"fan": fan(), "gather": model(next=loop)}, budget={"maxSteps": 5}))


def test_a_cycle_through_a_fan_needs_a_condition_too():
    nodes = {"fan": fan(next="plan"), "gather": model(), "plan": model(next="fan")}
    assert "never ends" in only_issue(build(nodes, budget={"maxSteps": 5})).message


# --- writers


def test_every_branch_of_a_map_replacing_one_key_is_refused_with_both_places():
    issue = only_issue(build({"fan": fan(), "gather": model(set={"draft": "out.text"})}))
    assert issue.pointer == "/nodes/gather/set/draft"
    assert "/nodes/fan/map" in issue.message
    assert "/nodes/gather/set/draft" in issue.message
    assert "x-reducer" in issue.hint
    assert "x-scope" in issue.hint


@pytest.mark.parametrize("key", ["results", "total", "scratch"])
def test_reduced_keys_and_those_of_the_branch_alone_may_be_written_by_all(key):
    value = {"results": "['x']", "total": "1", "scratch": "'x'"}[key]
    written = model(set={key: value})
    assert not issues(build({"fan": fan(), "gather": written}))
    assert not issues(build({"both": {"parallel": {"a": "x", "b": "y"}}, "x": written, "y": written}))


def test_a_map_that_runs_one_branch_at_a_time_may_replace():
    assert not issues(build({"fan": fan(max=1), "gather": model(set={"draft": "out.text"})}))


def test_two_branches_replacing_one_key_are_refused_with_both_places():
    nodes = {
        "both": {"parallel": {"a": "x", "b": "y"}},
        "x": model(set={"draft": "out.text"}),
        "y": model(set={"draft": "out.text"}),
    }
    issue = only_issue(build(nodes))
    assert issue.pointer == "/nodes/y/set/draft"
    assert "'a' (/nodes/x/set/draft) and 'b' (/nodes/y/set/draft)" in issue.message
    assert '"after": ["a"]' in issue.hint


@pytest.mark.parametrize("after", [{"b": ["a"]}, {"a": ["b"]}, {"c": ["a"], "b": ["c"]}])
def test_branches_in_an_order_may_replace_what_the_other_replaced(after):
    branches: dict[str, Any] = {
        name: {"do": node, "after": after[name]} if name in after else node
        for name, node in {"a": "x", "b": "y", "c": "z"}.items()
    }
    written = model(set={"draft": "out.text"})
    assert not issues(build({"both": {"parallel": branches}, "x": written, "y": written, "z": model()}))


def test_a_rival_may_be_any_of_several_branches_before():
    branches = {"a": "x", "b": "y", "c": {"do": "z", "after": ["b"]}}
    written = model(set={"draft": "out.text"})
    nodes = {"both": {"parallel": branches}, "x": written, "y": model(), "z": written}
    assert "'a'" in only_issue(build(nodes)).message


def test_a_writer_deep_in_a_nested_body_is_found():
    nodes = {
        "both": {"parallel": {"a": "one", "b": "two"}},
        "one": {"map": "state.names", "as": "name", "do": "deep", "max": 1},
        "deep": model(set={"draft": "name"}),
        "two": model(set={"draft": "'x'"}),
    }
    issue = only_issue(build(nodes))
    assert issue.pointer == "/nodes/two/set/draft"
    assert "/nodes/deep/set/draft" in issue.message


def test_the_fan_itself_writes_after_its_join_and_is_no_rival():
    assert not issues(build({"fan": fan(set={"draft": "'done'"}), "gather": model()}))


# --- expressions


def test_an_item_is_only_seen_in_the_body_of_its_map():
    nodes = {
        "fan": fan(set={"draft": "part.name"}, next="after"),
        "gather": model(set={"results": "[part.name]"}),
        "after": {"use": "model", "with": {"prompt": "${part.name}"}},
    }
    found = issues(build(nodes))
    assert set(found) == {"/nodes/fan/set/draft", "/nodes/after/with/prompt"}
    assert "item of the map 'fan'" in found["/nodes/after/with/prompt"].hint


def test_an_item_is_not_seen_by_its_own_list_nor_by_the_result():
    nodes = {"fan": fan(map="part.parts"), "gather": model()}
    found = issues(build(nodes, result="part.name"))
    assert set(found) == {"/nodes/fan/map", "/result"}


def test_the_type_of_an_item_comes_from_the_schema_of_its_list():
    nodes = {"fan": fan(), "gather": model(set={"count": "part.name", "results": "[part.nme]"})}
    found = issues(build(nodes))
    assert "takes a whole number" in found["/nodes/gather/set/count"].message
    assert found["/nodes/gather/set/results"].hint == "did you mean 'name'?"


def test_an_item_of_a_list_of_items_is_known_too():
    state = {
        **STATE,
        "groups": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}, "default": []},
    }
    nodes = {
        "fan": {"map": "state.groups", "as": "group", "do": "inner"},
        "inner": {"map": "group", "as": "name", "do": "gather"},
        "gather": model(set={"total": "name"}),
    }
    issue = only_issue(document(nodes, state=state))
    assert issue.pointer == "/nodes/gather/set/total"


def test_an_item_of_any_list_may_be_anything():
    gather = model(set={"total": "part", "results": "[part.name]"})
    assert not issues(build({"fan": fan(map="[1, 'x', state.draft]"), "gather": gather}))


def test_set_and_next_of_a_map_see_a_list_of_outcomes():
    ok = fan(set={"count": "size(out)", "results": "out.map(o, o.status)"}, next=[{"if": "out.exists(o, o.status == 'failed')", "to": "end"}, {"to": "end"}])  # fmt: skip
    check(build({"fan": ok, "gather": model()}))
    found = issues(build({"fan": fan(set={"draft": "out", "results": "[out[0].state]"}), "gather": model()}))
    assert "gives a list" in found["/nodes/fan/set/draft"].message
    assert "has no 'state'" in found["/nodes/fan/set/results"].message


def test_set_of_a_parallel_sees_its_branches_by_name_and_what_ended_them():
    both = {"parallel": {"a": "x", "b": "y"}}
    bash = {"use": "tool:bash", "with": {"command": "ls"}}
    nodes = {"x": bash, "y": model()}
    check(build({"both": {**both, "set": {"draft": "out.a.out.text", "results": "[out.b.status]"}}, **nodes}))
    found = issues(build({"both": {**both, "set": {"draft": "out.c.status", "count": "out.a.out.text"}}, **nodes}))
    assert found["/nodes/both/set/draft"].hint == "one of a, b"
    assert "takes a whole number" in found["/nodes/both/set/count"].message


def test_the_input_of_a_subgraph_body_is_checked_against_its_schema():
    def body(do):
        return build({"fan": {"map": "state.names", "as": "name", "do": do}})

    assert "'part' is missing" in only_issue(body({"graph": "child"})).message
    check(body({"graph": "child", "with": {"part": "${name}"}}))
    wrong = only_issue(body({"graph": "child", "with": {"part": "${size(name)}"}}))
    assert wrong.pointer == "/nodes/fan/do/with/part"
    at_the_fan = {"fan": {"map": "state.names", "as": "name", "do": {"graph": "child"}, "with": {"part": "${name}"}}}
    check(build(at_the_fan))
    at_the_fan["fan"]["with"] = {"part": 1}
    assert only_issue(build(at_the_fan)).pointer == "/nodes/fan/with/part"
    named_like_the_input = {"fan": {"map": "state.names", "as": "part", "do": {"graph": "child"}}}
    check(build(named_like_the_input))


def test_the_input_of_a_subgraph_branch_sees_the_state_and_the_items_around():
    nodes: dict[str, Any] = {
        "fan": fan(),
        "gather": {"parallel": {"a": {"do": {"graph": "child", "with": {"part": "${part.name}"}}}}},
    }
    check(build(nodes))
    nodes["gather"] = {"parallel": {"a": {"do": {"graph": "child", "with": {"part": "${prat.name}"}}}}}
    assert only_issue(build(nodes)).hint.startswith("did you mean 'part'? variables are state,")


# --- the whole


def test_every_error_of_several_fans_is_told_at_once():
    nodes = {
        "fan": {"map": "state.parts", "do": "gather", "join": {"wait": 0}, "next": "both"},
        "gather": model(set={"draft": "'x'"}, next="both"),
        "both": {"parallel": {"a": "x", "b": {"do": "nobody", "after": ["z"]}}},
        "x": model(),
    }
    assert set(issues(build(nodes))) == {
        "/nodes/fan", "/nodes/fan/join/wait", "/nodes/gather/set/draft", "/nodes/gather/next",
        "/nodes/both/parallel/b/do", "/nodes/both/parallel/b/after/0",
    }  # fmt: skip


def test_the_example_of_the_format_is_sound_in_its_fan():
    nodes: dict[str, Any] = {
        "plan": {"use": "model", "with": {"prompt": "Plan: ${input.query}", "schema": {"type": "object", "required": ["steps"], "properties": {"steps": {"type": "array"}}}}, "set": {"steps": "out.steps"}, "next": "fan"},
        "fan": {"map": "state.steps", "as": "step", "max": 4, "do": "worker", "join": {"wait": "all", "onError": "collect"}, "next": "end"},
        "worker": {"use": "fn:summarise", "with": {"query": "${step.query}"}, "set": {"results": "[out.text]"}, "next": "end", "retry": {"max": 3, "on": ["timeout", "rate_limit"]}, "effects": "read"},
    }  # fmt: skip
    state = {
        "steps": {"type": "array", "default": []},
        "results": {"type": "array", "default": [], "x-reducer": "append"},
    }
    checked = check(document(nodes, state=state))
    assert checked.document.nodes["fan"].join == Join(wait="all", on_error="collect")
    written: dict[str, Any] = nodes["fan"]
    assert checked.data["nodes"]["fan"] == {**written, "join": {"onError": "collect"}}  # defaults left out


def test_the_published_schema_knows_the_parts_of_both_forms():
    definitions = document_schema()["$defs"]
    assert set(definitions["Branch"]["properties"]) == {"do", "after"}
    assert set(definitions["GraphRef"]["properties"]) == {"graph", "with"}
    assert set(definitions["Join"]["properties"]) == {"wait", "onError"}
    assert {"map", "as", "do", "max", "join", "parallel"} <= set(definitions["NodeDefinition"]["properties"])
