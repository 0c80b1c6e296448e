"""The whole event stream of every mode, with no tool, one, several, a failing one, at a limit and cancelled (spec 1.2, 3.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.modes.conftest import EVERY_MODE, Stage, call, document_of, summary

ONE_TURN = ("PLAIN", "THINKING")
SUMMARY = ("THINKING", "THINKING_TOOLING")


def answer(mode: str, text: str = "A graph is a thing.") -> dict[str, Any]:
    spoken = summary("I know it.", text) if mode in SUMMARY else text
    return {"reasoning": "Hm.", "text": spoken, "piece": 9}


CASES: dict[str, Any] = {
    "no tool": lambda mode: [answer(mode)],
    "one tool": lambda mode: [{"text": "I look.", "tool_calls": [call()]}, answer(mode)],
    "several tools": lambda mode: [
        {"text": "I look.", "tool_calls": [call(number=1), call(number=2, word="node")], "piece": 8},
        answer(mode),
    ],
    "a tool that fails": lambda mode: [{"tool_calls": [call("broken")]}, answer(mode)],
    "a limit": lambda mode: [{"text": "I look.", "tool_calls": [call()]}, answer(mode), answer(mode)],
    "cancelled": lambda mode: [{**answer(mode, "A gr"), "hang": True}],
}


def fields_of(mode: str, case: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"tools": ["look_up", "broken"]}
    if mode in ONE_TURN:
        fields = {}
    if case == "a limit" and mode in ONE_TURN:
        fields["options"] = {"maxTokens": 2}
    elif case == "a limit":
        fields["budget"] = {"maxSteps": 1} if mode == "REACT" else {"maxModelCalls": 1}
    return fields


def told(events: list[dict[str, Any]]) -> list[str]:
    """One line an event, without its number and time."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    return [
        f"{event['type']} "
        + json.dumps({k: v for k, v in event.items() if k not in ("type", "seq", "timestamp")}, ensure_ascii=False)
        for event in events
    ]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_a_run_sends_these_events(mode: str, case: str, snapshot: Any) -> None:
    stage = Stage(document_of(mode, **fields_of(mode, case)), *CASES[case](mode))
    assert told(await stage.play()) == snapshot


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_a_run_with_a_second_pass_sends_these_events(mode: str, case: str, snapshot: Any) -> None:
    document = document_of(mode, verify="SECOND_PASS_FIX", **fields_of(mode, case))
    stage = Stage(document, *CASES[case](mode), {"text": answer(mode, "Checked.")["text"], "piece": 9}, answer(mode))
    assert told(await stage.play()) == snapshot
