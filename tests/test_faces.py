"""Errors speak the words of the face that their caller uses: Python, HTTP or the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from graphflow import Context, Graph, GraphflowError, MemoryCheckpointer
from graphflow.errors import EffectsNeedChoice
from graphflow.faces import CALLS, spoken, spoken_fields
from graphflow.graph.definition.json_schema import compile_schema
from graphflow.runtime.runs.preconditions import MOST, budget_limits
from graphflow.server.routes.threads import router

ROOT = Path(__file__).parents[1] / "graphflow"


@pytest.mark.parametrize(
    ("message", "http", "cli"),
    [
        ("answer first, or pass on_waiting='cancel'", 'answer first, or pass "onWaiting": "cancel"', "answer first, or pass --on-waiting cancel"),
        ("cancel it, or pass on_busy", "cancel it, or pass onBusy", "cancel it, or pass --on-busy"),
        ("on_busy is 'wait'; it is one of reject", "onBusy is 'wait'; it is one of reject", "--on-busy is 'wait'; it is one of reject"),
        ("no thread has the id 'on_busy'; `app.threads()` lists those that exist", "no thread has the id 'on_busy'; `GET /api/threads` lists those that exist", "no thread has the id 'on_busy'; `graphflow threads list` lists those that exist"),
        ("rewind it with effects='rerun'; choose effects", 'rewind it with "effects": "rerun"; choose effects', "rewind it with --effects rerun; choose effects"),
        ("it is a number, or None for no limit", "it is a number, or null for no limit", "it is a number, or left out for no limit"),
        ("state key my_thread_id is text", "state key my_thread_id is text", "state key my_thread_id is text"),
    ],
)  # fmt: skip
def test_a_message_is_said_in_the_words_of_each_face(message: str, http: str, cli: str) -> None:
    assert (spoken(message, "http"), spoken(message, "cli")) == (http, cli)


def test_fields_of_an_error_have_the_names_of_the_body() -> None:
    assert spoken_fields({"interrupt_before": "no node", "budget": "no limit"}) == {
        "interruptBefore": "no node",
        "budget": "no limit",
    }


def test_no_message_below_the_edges_is_in_the_words_of_http() -> None:
    found = []
    for folder in ("runtime", "graph", "checkpoints", "service"):
        for file in (ROOT / folder).rglob("*.py"):
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                for text in re.findall(r'f?"([^"]* [^"]*)"', line):
                    if re.search(r"\b(onWaiting|onBusy|interruptBefore|interruptAfter)\b", text):
                        found.append(f"{file.relative_to(ROOT)}:{number}: {text}")
    assert found == []


def test_what_messages_name_for_http_exists() -> None:
    paths = {re.sub(r"{\w+}", "ID", route.path) for route in router.routes if isinstance(route, APIRoute)}
    for http, _ in CALLS.values():
        if http.startswith("GET "):
            assert http.removeprefix("GET ") in paths


# --- no face hears of another one's calls, or of a library


async def test_a_replay_speaks_of_itself() -> None:
    graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}})

    @graph.node(next="end")
    async def pay(state: Any, ctx: Context) -> dict[str, int]:
        return {"n": await ctx.step("pay", lambda: 1)}

    app = graph.compile(checkpointer=MemoryCheckpointer())
    await app.run({}, "t")
    with pytest.raises(EffectsNeedChoice, match="by this replay"):
        await app.replay("t")


@pytest.mark.parametrize(
    ("budget", "rule"),
    [
        ({"maxSteps": "5"}, "maxSteps is '5'; it is a whole number, or None for no limit"),
        ({"maxSteps": 1.5}, "maxSteps is 1.5; it is a whole number, or None for no limit"),
        ({"maxSteps": True}, "maxSteps is true; it is a whole number, or None for no limit"),
        ({"maxCostUsd": "1"}, "maxCostUsd is '1'; it is a number, or None for no limit"),
        *(
            ({name: value}, f"{name} is {text}; a limit is a number from 0 to {MOST:,}; leave it out for none")
            for name, value, text in [
                ("maxSteps", -1, "-1"),
                ("maxTokens", 1e300, "1e+300"),
                ("maxCostUsd", 1 << 64, str(1 << 64)),
                ("timeoutMs", 1 << 63, str(1 << 63)),
            ]
        ),
    ],
)
def test_a_wrong_limit_is_named_in_our_own_words(budget: dict[str, Any], rule: str) -> None:
    with pytest.raises(GraphflowError) as refused:
        budget_limits(budget)
    assert str(refused.value) == f"budget: {rule}"


def test_a_whole_number_with_a_point_is_a_limit() -> None:
    found = budget_limits({"maxSteps": 3.0, "maxTokens": 1e3, "timeoutMs": 2.0, "maxCostUsd": 1})
    assert (found["steps"], found["tokens"], found["timeoutMs"], found["costUsd"]) == (3, 1000, 2, 1)
    assert {type(found[name]) for name in ("steps", "tokens", "timeoutMs")} == {int}


@pytest.mark.parametrize(
    ("schema", "answer", "text"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", "fits none of the allowed forms: expected integer, not 'x' or expected null"),
        ({"type": "string", "pattern": "^a"}, "b", "must match the pattern ^a, not 'b'"),
        ({"type": "array", "uniqueItems": True}, [1, 1], "holds an item more than once"),
        ({"type": "integer", "multipleOf": 2}, 3, "must be a multiple of 2, not 3"),
        ({"not": {"type": "integer"}}, 3, "3 is of the kind that is excluded here"),
        ({"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "minProperties": 2}, {"x": "a"}, "at least 2 keys, not 1"),
    ],
)  # fmt: skip
def test_an_answer_beyond_flat_schemas_is_refused_in_the_words_of_flat_ones(
    schema: Any, answer: Any, text: str
) -> None:
    assert any(text in issue.message for issue in compile_schema(schema).errors(answer))
