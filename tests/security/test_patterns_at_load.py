"""Patterns that stand in a document are read when it is loaded, not when a run gets to them."""

from __future__ import annotations

import pytest

from graphflow import CompiledGraph, load_graph
from graphflow.errors import DefinitionError
from graphflow.events import NodeStart


def nothing() -> dict[str, str]:
    return {}


def load(expression: str, text: str = "") -> CompiledGraph:
    state = {"type": "object", "properties": {"t": {"type": "string", "default": text}}}
    nodes = {
        "a": {"use": "fn:x", "next": [{"if": expression, "to": "b"}, {"to": "end"}]},
        "b": {"use": "fn:x", "next": "end"},
    }
    return load_graph({"graphflow": "1", "start": "a", "state": state, "nodes": nodes}, functions={"x": nothing})


@pytest.mark.parametrize(
    "expression",
    [
        "state.t.matches('(')", "matches(state.t, '(')", "state.t.matches('(' + '[')", "state.t.matches(('('))",
        'state.t.matches("a**")', "state.t.matches('''[''')", "state.t.matches('(?<!a)b')",
        "state.t.matches('a{2000}')", "state.t.matches('\\\\1')", "state.t == 'x' && !state.t.matches('*')",
        "state.t.matches('a') || state.t.matches(')')", "['a'].exists(x, x.matches('('))", "'a'.matches('(')",
        "[state.t.matches('(')][0]", "state.t.matches('(') ? true : false",
    ],
)  # fmt: skip
def test_a_pattern_that_cannot_be_read_is_refused_at_load_with_its_place(expression: str):
    with pytest.raises(DefinitionError) as refused:
        load(expression)
    (issue,) = refused.value.errors
    assert issue.pointer == "/nodes/a/next/0/if"
    assert "regular expression" in issue.message
    assert issue.hint is not None and "RE2" in issue.hint


@pytest.mark.parametrize(
    ("expression", "fitting", "other"),
    [("state.t.matches('^[a-z]+$')", "ab", "1"), ("state.t.matches(r'\\d')", "1", "a"), ("matches(state.t, 'a|b')", "b", "c"),
     ("state.t.matches(state.t)", "a", "a**b"), ("state.t.matches('(' + state.t)", "(a)|b)", "("), ("state.t.matches('a,(b)')", "a,b", "b")],
)  # fmt: skip
async def test_other_patterns_load_and_match(expression: str, fitting: str, other: str):
    for text, nodes in ((fitting, ["a", "b"]), (other, ["a"])):
        given = [event async for event in load(expression, text).stream()]
        assert [event.node for event in given if isinstance(event, NodeStart)] == nodes
