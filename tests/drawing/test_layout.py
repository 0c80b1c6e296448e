"""The one layout: layers, order, places, routes (spec 2.3, "Drawing")."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow.graph.layering import Rows, crossings, order_rows
from graphflow.graph.layout import Box, Layout, layout, shorten, units
from tests.drawing.documents import chain, document, fan, react, review


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
    assert [(e.source, e.target, e.label) for e in plan.edges] == [
        ("fan", "worker", "each step"), ("fan", "sum", None), ("sum", "end", None),
    ]  # fmt: skip


def test_the_same_document_gives_the_same_layout():
    assert layout(review()) == layout(review())


def test_the_layout_is_plain_json_data_for_the_studio():
    data = json.loads(json.dumps(layout(review()).as_dict()))
    assert data["start"] == "plan"
    assert data["nodes"][0] | {"x": 0, "y": 0} == {
        "name": "plan", "kind": "model", "form": "use", "layer": 0, "order": 0, "x": 0, "y": 0, "w": 96.0, "h": 44.0,
        "description": None,
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
    rows = Rows([[], []], nodes=4)
    left, right = rows.add(0, 10), rows.add(0, 10)
    below_right, below_left = rows.add(1, 10), rows.add(1, 10)
    rows.join(left, below_left)
    rows.join(right, below_right)
    assert crossings(rows) == 1
    order_rows(rows)
    assert crossings(rows) == 0


@settings(max_examples=60, deadline=None)
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


@pytest.mark.parametrize("make", [lambda: chain(3000), lambda: fan(3000), lambda: chain(1500, error=[{"to": "fail"}])])
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
