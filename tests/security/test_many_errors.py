"""A document with thousands of like errors: the text lists a few of each kind and counts the rest; the data has them all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from graphflow.agents.loader import load_agent
from graphflow.errors import MAX_ALIKE, DefinitionError, Issue, summed_up
from graphflow.nodes.kinds import NodeKinds
from graphflow.suggestions import nearest
from graphflow.tools.registry import ToolRegistry

NODES: dict[str, Callable[[int], dict[str, Any]]] = {
    "no node is named": lambda n: {"use": "model", "next": f"m{n}"},
    "expected a value": lambda n: {"use": "model", "next": [{"if": f"state.x{n} >", "to": "end"}, {"to": "end"}]},
    "is not a state key": lambda n: {"use": "model", "next": [{"if": f"state.x{n} > 1", "to": "end"}, {"to": "end"}]},
    "no kind of node": lambda n: {"use": f"nosuch{n}", "next": "end"},
    "no route leads to": lambda n: {"use": "model", "next": "end"},
}


@pytest.mark.parametrize("rule", NODES)
def test_thousands_of_like_errors_are_a_few_lines(rule: str):
    count = 300
    nodes = {f"n{n}": NODES[rule](n) for n in range(count)}
    with pytest.raises(DefinitionError) as refused:
        load_agent({"graphflow": "1", "start": "n0", "nodes": nodes}, kinds=NodeKinds(ToolRegistry()))
    lines = str(refused.value).splitlines()
    assert len(refused.value.errors) >= count - 1
    assert len(lines) <= 2 * (MAX_ALIKE + 1)
    assert sum(rule in line for line in lines) == MAX_ALIKE + 1, "each states the rule, the last one too"
    (last,) = [line for line in lines if "more like these" in line and rule in line]
    assert f"up to /nodes/n{count - 1}" in last


def test_what_differs_in_more_than_names_is_not_summed_up():
    issues = [Issue(pointer=f"/{n}", message=f"rule {'x' * n} is broken") for n in range(100)]
    assert summed_up(issues) == issues
    same = [Issue(pointer=f"/{n}", message=f"'a{n}' is wrong") for n in range(MAX_ALIKE + 1)]
    assert summed_up(same) == same, "one more is no longer than its summary"
    more = [*same, Issue(pointer="/z", message="'b' is wrong"), Issue(pointer="", message="other")]
    assert [issue.message for issue in summed_up(more)][MAX_ALIKE:] == [
        "2 more like these, up to /z: … is wrong",
        "other",
    ]


def test_a_search_among_many_words_sorts_them_once():
    """By the work of all searches, in CPU time: sorting for each of them took a minute."""
    words = [f"word{n}" for n in range(20_000)]
    nearest("wort1", words)
    begun = time.process_time()
    for n in range(20):
        assert nearest(f"wrd{n}", words)
    assert time.process_time() - begun < 2
