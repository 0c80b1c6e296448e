"""What is wrong with the block of a mode is told with its line and column (spec 1.1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphflow.agents.loader import load_agent
from graphflow.errors import DefinitionError, Issue
from graphflow.modes.definition import BLOCKS
from graphflow.nodes.kinds import NodeKinds
from graphflow.tools.registry import ToolRegistry
from tests.modes.conftest import EVERY_MODE

KINDS = NodeKinds(ToolRegistry())


def issues_of(text: str) -> tuple[Issue, ...]:
    with pytest.raises(DefinitionError) as refused:
        load_agent(text, kinds=KINDS, key="agent")
    return refused.value.errors


BROKEN: dict[str, tuple[str, str, tuple[int, int], str]] = {
    "no block": ("", "/mode", (2, 11), "needs its block"),
    "nothing in it": ('"BLOCK": {}', "/BLOCK", (3, 12), "'systemPrompt' is missing"),
    "a list for a block": ('"BLOCK": []', "/BLOCK", (3, 12), "expected an object"),
    "a misspelt field": ('"BLOCK": {\n    "systemPromt": "x"\n  }', "/BLOCK/systemPromt", (4, 5), "did you mean 'systemPrompt'"),
    "an unknown field": ('"BLOCK": {"systemPrompt": "x",\n    "temperature": 1}', "/BLOCK/temperature", (4, 5), "unknown key"),
    "a number for a prompt": ('"BLOCK": {\n    "systemPrompt": 5}', "/BLOCK/systemPrompt", (4, 21), "expected text, not 5"),
    "an empty prompt": ('"BLOCK": {\n    "systemPrompt": " \\n"}', "/BLOCK/systemPrompt", (4, 21), "is empty"),
    "a word for a flag": (
        '"BLOCK": {"systemPrompt": "x",\n    "exposeReasoningToUser": "yes"}',
        "/BLOCK/exposeReasoningToUser", (4, 30), "expected true or false, not 'yes'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("mode", EVERY_MODE)
def test_a_block_with_an_error_is_refused_at_its_place(mode: str, case: str) -> None:
    written, pointer, place, words = BROKEN[case]
    block = BLOCKS[mode]
    more = ",\n  " + written.replace("BLOCK", block) if written else ""
    pointer = pointer.replace("BLOCK", block)
    found = issues_of(f'{{\n  "mode": "{mode}"{more}\n}}')
    issue = next(issue for issue in found if issue.pointer == pointer)
    shift = len(block) - len("BLOCK") if place[0] == 3 else 0
    assert (issue.line, issue.column) == (place[0], place[1] + shift)
    assert words in issue.render()


@pytest.mark.parametrize("mode", EVERY_MODE[:-1])
def test_rounds_belong_to_the_block_of_a_mode_with_a_loop(mode: str) -> None:
    block = BLOCKS[mode]
    [issue] = issues_of(f'{{"mode": "{mode}", "{block}": {{"systemPrompt": "x", "maxSteps": 3}}}}')
    assert issue.pointer == f"/{block}/maxSteps" and "exposeReasoningToUser, systemPrompt" in issue.render()


@pytest.mark.parametrize("field", ["output", "toolPolicy", "verify", "compute"])
@pytest.mark.parametrize("mode", EVERY_MODE)
def test_a_policy_is_one_of_its_words(mode: str, field: str) -> None:
    text = f'{{\n  "mode": "{mode}",\n  "{field}": "MAYBE",\n  "{BLOCKS[mode]}": {{"systemPrompt": "x"}}\n}}'
    [issue] = issues_of(text)
    assert (issue.pointer, issue.line, issue.column) == (f"/{field}", 3, len(field) + 7)
    assert "expected one of" in issue.message


def test_all_errors_of_a_file_are_told_at_once() -> None:
    data: dict[str, Any] = {"mode": "THINKING", "thinking": {"systemPrompt": 5, "maxSteps": 1}, "verify": "TWICE"}
    assert {issue.pointer for issue in issues_of(json.dumps(data))} == {
        "/thinking/systemPrompt", "/thinking/maxSteps", "/verify",
    }  # fmt: skip
