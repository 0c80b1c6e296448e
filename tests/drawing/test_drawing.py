"""Drawings: text, Mermaid and SVG from one layout, with a thread's path over them (spec 2.3, spec 10)."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from graphflow.graph.drawing.render import PathTaken, draw_mermaid, draw_svg, draw_text
from tests.drawing.documents import branches, document, react, review

PATH = PathTaken(nodes=("plan", "draft", "critic", "plan", "draft", "critic"), current=("approve",))
SVG = "{http://www.w3.org/2000/svg}"


def test_the_text_list_has_a_line_a_node_with_its_routes(snapshot):
    assert draw_text(review()) == snapshot


def test_the_text_list_marks_the_path_taken(snapshot):
    assert draw_text(review(), PATH) == snapshot


def test_the_text_list_says_it_in_the_form_of_the_command_line():
    """`critic  model  → approve [ok]  ↺ plan [score < 0.7]`"""
    line = draw_text(review()).splitlines()[2]
    assert line.startswith("critic   model           → approve [ok]  ↺ plan [score < 0.7]  ")


def test_columns_are_aligned_with_chinese_names_too():
    lines = draw_text(
        document("a", a={"use": "fn:评分", "next": "long_name"}, long_name={"use": "model", "next": "end"})
    ).splitlines()
    assert lines == ["a          fn:评分  → long_name", "long_name  model    → end"]


def test_mermaid_has_every_node_and_route(snapshot):
    assert draw_mermaid(review()) == snapshot


def test_mermaid_marks_the_path_taken(snapshot):
    assert draw_mermaid(react(), PathTaken(nodes=("reason", "tools"), current=("reason",))) == snapshot


def test_the_text_list_indents_what_branches_run_and_tells_how_they_are_joined(snapshot):
    assert draw_text(branches(), PathTaken(nodes=("plan", "fan", "work", "deep"), current=("deep",))) == snapshot


def test_mermaid_puts_each_body_into_a_subgraph(snapshot):
    drawn = draw_mermaid(branches())
    assert drawn.count("subgraph ") == len([line for line in drawn.splitlines() if line.strip() == "end"]) == 5
    assert drawn == snapshot


def test_the_svg_puts_each_body_into_a_box(snapshot):
    drawn = draw_svg(branches(), PathTaken(nodes=("plan", "fan", "work", "deep"), current=("deep",)))
    root = ET.fromstring(drawn)
    assert len(root.findall(f".//{SVG}rect[@class='group']")) == 5
    assert [text.text for text in root.findall(f".//{SVG}text[@class='title']")][:2] == [
        "each part, 4 at once",
        "b after a",
    ]
    assert drawn == snapshot


def test_mermaid_labels_cannot_break_out_of_their_quotes():
    nasty = document("a", a={"use": "model", "next": [{"if": "x == '\"]; `<b>#'", "to": "a"}, {"to": "end"}]})
    line = next(line for line in draw_mermaid(nasty).splitlines() if "|" in line)
    assert line == "  n0 -->|\"x == '#quot;]; #96;#lt;b#gt;#35;'\"| n0"


def test_the_svg_is_a_picture_a_person_looked_at(snapshot):
    assert draw_svg(review(), PATH) == snapshot


@pytest.mark.parametrize("make", [review, react])
def test_the_svg_is_well_formed_and_self_contained(make):
    text = draw_svg(make())
    root = ET.fromstring(text)
    assert root.tag == SVG + "svg"
    assert len(root.findall(f".//{SVG}text[@class='name']")) == len(make().nodes)
    for word in ("<script", "<image", "href", "@import", "url(http"):
        assert word not in text


def test_the_svg_escapes_what_people_wrote():
    nasty = document(
        "a",
        a={
            "use": "fn:<script>&\"'",
            "description": "one\u0000two </title><script>",
            "next": [{"if": "state.a < 1 && 'x' == \"<b>\"", "to": "a"}, {"to": "end"}],
        },
    )
    root = ET.fromstring(draw_svg(nasty))
    texts = [element.text for element in root.iter(SVG + "text")]
    assert "fn:<script>&\"'" in texts
    assert "a < 1 && 'x' == \"<b>\"" in texts
    assert root.findall(f".//{SVG}script") == []


def test_the_svg_keeps_the_whole_of_a_long_condition_as_its_title():
    condition = "state.score < 0.7 && state.topic == 'a very long topic that nobody would draw in full'"
    root = ET.fromstring(
        draw_svg(document("a", a={"use": "model", "next": [{"if": condition, "to": "a"}, {"to": "end"}]}))
    )
    assert condition in [element.text for element in root.iter(SVG + "title")]


def test_a_path_counts_visits_and_knows_its_steps():
    assert PATH.visits() == {"plan": 2, "draft": 2, "critic": 2, "approve": 1}
    assert ("critic", "plan") in PATH.steps()
    assert ("critic", "approve") in PATH.steps()
    assert PathTaken().steps() == set()


def test_an_empty_document_is_an_empty_drawing():
    assert draw_text(document("a")) == ""
    ET.fromstring(draw_svg(document("a")))
