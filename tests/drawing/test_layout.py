"""The one layout: layers, order, places, routes (spec 2.3, "Drawing")."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow.graph.definition.document import decode_document
from graphflow.graph.drawing.layout import Box, Group, JoinMark, Layout, layout, shorten
from graphflow.graph.drawing.sugiyama import LayeredRows, crossings, order_rows
from graphflow.text_width import units
from tests.campaign import size
from tests.drawing.documents import branches, chain, document, fan, react, review
from tests.graph.random_documents import RandomDocument, random_documents


def boxes(plan: Layout) -> dict[str, Box]:
    return {box.name: box for box in plan.nodes}


def edge(plan: Layout, source: str, target: str):
    return next(e for e in plan.edges if (e.source, e.target) == (source, target))


def test_each_node_lies_below_its_lowest_predecessor():
    plan = layout(review())
    assert [(b.name, b.layer) for b in plan.nodes if b.form not in ("end", "fail")] == [
        ("plan", 0), ("draft", 1), ("critic", 2), ("approve", 3), ("send", 4),
    ]  # fmt: skip


def test_kinds_of_edges_tell_a_way_on_a_way_back_a_condition_and_a_failure():
    plan = layout(review())
    assert edge(plan, "plan", "draft").kind == "normal"
    assert edge(plan, "critic", "approve").kind == "conditional"
    assert edge(plan, "critic", "plan").kind == "back"
    assert edge(plan, "critic", "critic").kind == "back"
    assert edge(plan, "critic", "draft").kind == "error"
    assert edge(plan, "critic", "draft").label == "timeout, rate_limit"
    assert edge(plan, "approve", "fail").label == "expired"


def test_end_and_fail_are_drawn_only_where_a_route_leads_there_and_close_the_picture():
    assert "fail" not in boxes(layout(react()))
    found = boxes(layout(review()))
    assert found["end"].layer == found["fail"].layer == 5


def test_cycles_are_broken_depth_first_from_the_start_whatever_the_order_of_the_file():
    plan = layout(
        document(
            "b", a={"use": "model", "next": "b"}, b={"use": "model", "next": [{"if": "x", "to": "a"}, {"to": "end"}]}
        )
    )
    assert edge(plan, "a", "b").kind == "back"
    assert boxes(plan)["b"].layer == 0


def test_a_broken_document_can_be_drawn_too():
    """A name that leads nowhere, a start that is missing, a node that nothing reaches."""
    plan = layout(document("nowhere", a={"use": "model", "next": "typo"}, lost={"use": "model", "next": "end"}))
    assert boxes(plan)["typo"].form == "unknown"
    assert {"a", "lost", "typo", "end"} == set(boxes(plan))
    assert layout(document("a")).nodes == ()


def test_a_branch_ends_at_its_join_not_at_the_end_of_the_run():
    plan = layout(
        document(
            "fan",
            fan={"map": "state.steps", "as": "step", "do": "worker", "next": "sum"},
            worker={"use": "model", "next": "end"},
            sum={"use": "model", "next": "end"},
        )
    )
    assert [(e.source, e.target, e.kind, e.ends) for e in plan.edges] == [
        ("fan", "worker", "branch", ("fan", "fan[]")), ("fan", "fan", "join", ("fan[]", "fan/join")),
        ("fan", "sum", "normal", ("fan/join", "sum")), ("sum", "end", "normal", ("sum", "end")),
    ]  # fmt: skip


def test_each_body_is_a_group_below_its_fan_and_above_the_join():
    plan = layout(branches())
    found = boxes(plan)
    groups = {group.id: group for group in plan.groups}
    joins = {join.fan: join for join in plan.joins}
    assert {(group.id, group.title, group.depth) for group in plan.groups} == {
        ("fan[]", "each part, 4 at once", 0), ("inner[]", "each name", 1),
        ("both[a]", "a", 0), ("both[b]", "b after a", 0), ("both[g]", "g", 0),
    }  # fmt: skip
    assert {join.title for join in plan.joins} == {"join 2, collect failures", "join all"}
    for group in plan.groups:
        assert found[group.fan].y + found[group.fan].h < group.y
        assert group.y + group.h < joins[group.fan].y
    assert groups["both[a]"].y + groups["both[a]"].h < groups["both[b]"].y  # it waits
    assert {box.name for box in plan.nodes if box.group == "fan[]"} == {"work", "sorry", "inner", "last", "end", "fail"}
    assert found["both[g]"].kind == "graph:review"


def test_a_branch_that_ends_under_a_condition_shows_where():
    plan = layout(branches())
    assert edge(plan, "work", "end").ends == ("work", "fan[]/end")
    assert edge(plan, "both", "end").ends == ("both/join", "end")
    assert edge(plan, "both", "fail").ends == ("both", "fail")  # a failed fan has no join


def areas_of(plan: Layout) -> Iterator[tuple[str, str | None, Box | Group | JoinMark]]:
    """Everything that has a place, and the group that it must lie in."""
    group_of = {box.name: box.group for box in plan.nodes if box.id == box.name}
    for box in plan.nodes:
        yield box.id, box.group, box
    marks: list[Group | JoinMark] = [*plan.groups, *plan.joins]
    for mark in marks:
        yield mark.id, group_of[mark.fan], mark


def apart(a: Box | Group | JoinMark, b: Box | Group | JoinMark) -> bool:
    return a.x + a.w <= b.x or b.x + b.w <= a.x or a.y + a.h <= b.y or b.y + b.h <= a.y


def check_places(plan: Layout) -> None:
    found = list(areas_of(plan))
    assert len({name for name, _, _ in found}) == len(found)
    groups = {group.id: group for group in plan.groups}
    for place, (_, group, area) in enumerate(found):
        outer = groups.get(group or "")
        left, top, right, bottom = (0, 0, plan.width, plan.height) if outer is None else (outer.x, outer.y, outer.x + outer.w, outer.y + outer.h)  # fmt: skip
        assert left <= area.x
        assert top <= area.y
        assert area.x + area.w <= right + 0.1
        assert area.y + area.h <= bottom + 0.1
        assert all(apart(area, other) for _, beside, other in found[place + 1 :] if beside == group)
    by_id = {name: area for name, _, area in found}
    for e in plan.edges:
        for end, (x, y) in zip(e.ends, (e.points[0], e.points[-1]), strict=True):
            area = by_id[end]
            assert area.x - 0.2 <= x <= area.x + area.w + 0.2
            assert area.y - 0.2 <= y <= area.y + area.h + 0.2


def test_groups_hold_their_boxes_and_nothing_overlaps():
    check_places(layout(branches()))


@pytest.mark.campaign
@settings(max_examples=size(40, long=2_000), deadline=None)
@given(random_documents(asks=True))
def test_any_nesting_of_bodies_is_laid_out_without_overlap(made: RandomDocument):
    definition = decode_document(made.document)
    plan = layout(definition)
    check_places(plan)
    assert set(definition.nodes) <= {box.name for box in plan.nodes}


def test_bodies_with_errors_are_drawn_too():
    """Fans in each other's bodies, a body that is nobody, routes over a border."""
    plan = layout(
        document(
            "start",
            start={"use": "model", "next": "fan"},
            fan={"map": "state.x", "as": "x", "do": "work", "next": "end"},
            work={"use": "model", "next": "start"},
            one={"map": "state.x", "as": "x", "do": "two"},
            two={"map": "state.x", "as": "y", "do": "one", "next": "one"},
            bad={"map": "state.x", "as": "x", "do": "nobody"},
            none={"parallel": {"a": "work", "b": "end"}},
        )
    )
    check_places(plan)
    assert {"start", "fan", "work", "one", "two", "bad", "none"} <= {
        box.name for box in plan.nodes if box.id == box.name
    }
    assert next(box for box in plan.nodes if box.name == "nobody").form == "unknown"


def test_the_same_document_gives_the_same_layout():
    assert layout(review()) == layout(review())


def test_the_layout_is_plain_json_data_for_the_studio():
    data = json.loads(json.dumps(layout(review()).as_dict()))
    assert data["start"] == "plan"
    assert data["nodes"][0] | {"x": 0, "y": 0} == {
        "name": "plan", "kind": "model", "form": "use", "layer": 0, "order": 0, "x": 0, "y": 0, "w": 96.0, "h": 44.0,
        "description": None, "group": None, "id": "plan",
    }  # fmt: skip


@pytest.mark.parametrize("make", [review, react, lambda: fan(9), lambda: chain(20, error=[{"to": "fail"}])])
def test_no_boxes_and_no_labels_overlap_and_all_lie_inside(make):
    plan = layout(make())
    areas = [(b.x, b.y, b.x + b.w, b.y + b.h) for b in plan.nodes]
    for e in plan.edges:
        if e.label and e.label_at:
            half = units(e.label) * 3.2
            areas.append((e.label_at[0] - half, e.label_at[1] - 8, e.label_at[0] + half, e.label_at[1] + 8))
    for i, (ax, ay, bx, by) in enumerate(areas):
        assert ax >= 0
        assert ay >= 0
        assert bx <= plan.width
        assert by <= plan.height
        for cx, cy, dx, dy in areas[i + 1 :]:
            assert bx <= cx or dx <= ax or by <= cy or dy <= ay


def test_lines_start_at_the_source_and_end_at_the_target():
    plan = layout(review())
    found = boxes(plan)
    for e in plan.edges:
        for name, (x, y) in ((e.source, e.points[0]), (e.target, e.points[-1])):
            box = found[name]
            assert box.x <= x <= box.x + box.w
            assert box.y - 0.1 <= y <= box.y + box.h + 0.1


def test_crossings_that_need_not_be_are_undone():
    rows = LayeredRows([[], []], nodes=4)
    left, right = rows.add(0, 10), rows.add(0, 10)
    below_right, below_left = rows.add(1, 10), rows.add(1, 10)
    rows.join(left, below_left)
    rows.join(right, below_right)
    assert crossings(rows) == 1
    order_rows(rows)
    assert crossings(rows) == 0


@pytest.mark.campaign
@settings(max_examples=size(60, long=3_000), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=24))
def test_any_graph_is_laid_out_with_every_way_on_leading_down(pairs):
    nodes = {f"n{i}": {"use": "model", "next": [{"to": f"n{b}"} for a, b in pairs if a == i]} for i in range(9)}
    plan = layout(document("n0", **nodes))
    found = boxes(plan)
    assert len(plan.edges) == len(pairs)
    for e in plan.edges:
        if e.kind != "back":
            assert found[e.source].layer < found[e.target].layer
    for a, b in pairwise(plan.nodes):
        assert (a.layer, a.order) < (b.layer, b.order)


def many_fans(count: int):
    nodes = {}
    for i in range(count):
        following = f"fan{i + 1}" if i + 1 < count else "end"
        nodes[f"fan{i}"] = {"map": "state.x", "as": "x", "do": f"work{i}", "next": following}
        nodes[f"work{i}"] = {"use": "model"}
    return document("fan0", **nodes)


@pytest.mark.parametrize(
    "make",
    [lambda: chain(3000), lambda: fan(3000), lambda: many_fans(1000), lambda: chain(1500, error=[{"to": "fail"}])],
)
def test_thousands_of_nodes_are_laid_out_without_recursion_or_a_square_of_pieces(make):
    plan = layout(make())
    assert len(plan.nodes) > 1500
    assert sum(len(e.points) for e in plan.edges) < 60 * len(plan.nodes)


def test_chinese_letters_count_two_units_and_long_conditions_are_cut():
    assert units("ab北京") == 6
    assert shorten("state.score < 0.7") == "score < 0.7"
    assert shorten("a  ==\n 1") == "a == 1"
    cut = shorten("state.topic == '北京和上海明天的天气怎么样呢，后天呢'")
    assert cut is not None
    assert cut.endswith("…")
    assert units(cut) <= 34
