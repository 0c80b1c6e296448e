"""A suggestion is shown only if following it helps; the schema that a file names for editors is no part of it."""

from __future__ import annotations

import copy
import re
import time
from typing import Any

import pytest

from graphflow import load_graph
from graphflow.agents.draft import read_draft
from graphflow.errors import DefinitionError, Issue
from graphflow.graph.definition.json_pointer import unescape
from graphflow.graph.definition.suggestion_checks import _fixed
from graphflow.modes.definition import agent_schema
from graphflow.suggestions import Suggestion, nearest
from tests.campaign import size

BASE: dict[str, Any] = {
    "graphflow": "1",
    "start": "ask",
    "state": {
        "type": "object",
        "properties": {"count": {"type": "integer", "default": 0}, "notes": {"type": "array", "x-reducer": "append"}},
    },
    "nodes": {
        "ask": {"ask": {"message": "Go on?"}, "set": {"count": "state.count + 1"}, "next": [
            {"if": "state.count > 3 && visits.ask < 9", "to": "look"}, {"to": "end"}]},
        "look": {"use": "tool:time_now", "set": {"notes": "[out]"}, "retry": {"max": 2}, "next": "end"},
    },
}  # fmt: skip


def issues_of(document: Any) -> list[Issue]:
    try:
        load_graph(document)
    except DefinitionError as error:
        return list(error.errors)
    return []


def places(value: Any, pointer: str = "") -> list[tuple[str, str, bool]]:
    """Every key and every text of a document: pointer, word, whether it is the key."""
    out: list[tuple[str, str, bool]] = []
    if isinstance(value, dict):
        for key, item in value.items():
            out += [(f"{pointer}/{key}", key, True), *places(item, f"{pointer}/{key}")]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            out += places(item, f"{pointer}/{index}")
    elif isinstance(value, str):
        out += [(pointer, word, False) for word in re.findall(r"[A-Za-z_]{3,}", value)]
    return out


def misspelt(word: str) -> list[str]:
    return [word[:-1], word + "s", word[1] + word[0] + word[2:], word + "x", word[: len(word) // 2] + "q"]


@pytest.mark.campaign
def test_every_suggestion_validates_when_it_is_followed() -> None:
    """Every word of a document misspelt in five ways: where a word is suggested, the document with it is valid."""
    suggested = 0
    for pointer, word, is_key in places(BASE)[: size(40, long=10_000)]:
        for wrong in misspelt(word):
            document = put(pointer, word, wrong, is_key=is_key)
            issues = issues_of(document)
            for issue in issues:
                found = re.match(r"did you mean '([^']+)'", issue.hint or "")
                if found is None or len(issues) > 1:
                    continue
                suggested += 1
                steps = [unescape(token) for token in issue.pointer.split("/")[1:]]
                for said in {wrong, str(value_at(document, steps)), steps[-1]}:
                    fixed = _fixed(document, steps, Suggestion.of(said, found[1]))
                    if fixed is not None and not issues_of(fixed):
                        break
                else:
                    raise AssertionError(f"{issue.render()} suggests {found[1]!r}, which does not validate")
    assert suggested > 10


def put(pointer: str, word: str, wrong: str, *, is_key: bool) -> Any:
    document = copy.deepcopy(BASE)
    *above, last = pointer.split("/")[1:]
    here: Any = document
    for step in above:
        here = here[int(step)] if isinstance(here, list) else here[step]
    if is_key:
        items = [(wrong if key == last else key, value) for key, value in here.items()]
        here.clear()
        here.update(items)
    else:
        here[last] = re.sub(rf"\b{word}\b", wrong, here[last])
    return document


def value_at(document: Any, steps: list[str]) -> Any:
    for step in steps:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def test_a_tool_that_is_like_none_gets_the_list_alone() -> None:
    document = copy.deepcopy(BASE)
    document["nodes"]["look"]["use"] = "tool:nope"
    [issue] = issues_of(document)
    assert issue.hint is not None
    assert issue.hint.startswith("one of ")


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"x-reducer": "appnd"}, None),  # `append` takes an array
        ({"x-reducer": "summ"}, "did you mean 'sum'?"),
    ],
)
def test_a_word_that_leads_to_the_next_error_is_not_suggested(change: dict[str, str], hint: str | None) -> None:
    document = copy.deepcopy(BASE)
    document["state"]["properties"]["count"] |= change
    [issue] = issues_of(document)
    assert (issue.hint or "").startswith("did you mean") is (hint is not None), issue.hint


def test_a_misspelt_key_is_not_corrected_to_one_that_is_there() -> None:
    document = copy.deepcopy(BASE)
    document["nodes"]["look"]["usse"] = "tool:bash"
    [issue] = issues_of(document)
    assert issue.hint == "'use' is there already; remove 'usse'"


def test_a_file_may_name_its_schema() -> None:
    named = {"$schema": "../.graphflow.schema.json", **BASE}
    assert load_graph(named).version == load_graph(BASE).version
    agent = {"mode": "PLAIN", "plain": {"systemPrompt": "x"}}
    assert read_draft({"$schema": "x", **agent}).data == read_draft(agent).data
    assert all(
        "$schema" in agent_schema()["$defs"][name]["properties"] for name in ("AgentDefinition", "GraphDefinition")
    )


def test_a_schema_that_is_no_text_is_an_unknown_key() -> None:
    [issue] = issues_of({"$schema": 1, **BASE})
    assert issue.pointer == "/$schema"


def test_a_long_text_is_no_misspelt_name() -> None:
    begun = time.thread_time()
    assert nearest("few " * 1_000_000, ["few", "plain"]) is None
    assert time.thread_time() - begun < 0.5  # CPU time; compared, it takes seconds
