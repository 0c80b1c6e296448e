"""Values that code hands to graphflow and that can't be what was meant: refused where they are given, and never in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow import Bounds, GraphflowError, HumanMessage, MemoryCheckpointer, load_graph
from graphflow.errors import ArgumentRefused
from graphflow.graph.core.immutable import digest_of
from graphflow.models.chat_model import complete
from graphflow.testing import ScriptedModel, collect

HALF = "half \ud83d"
CHAT = {"type": "array", "x-reducer": "messages", "default": []}
DOCUMENT: dict[str, Any] = {
    "graphflow": "1", "start": "work", "state": {"properties": {"messages": CHAT}},
    "nodes": {"work": {"use": "node:work", "next": "end"}},
}  # fmt: skip
Body = Callable[[Any], Awaitable[Any]]


async def idle(state: Any, ctx: Any) -> dict[str, Any]:
    return {}


async def failure_of(body: Body) -> dict[str, Any]:
    """Why a run whose only node has this body fails."""

    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        await body(ctx)
        return {}

    app = load_graph(
        DOCUMENT,
        nodes={"work": work},
        model=ScriptedModel([{"text": "well"}]),
        settings=False,
        checkpointer=MemoryCheckpointer(),
    )
    result = await app.run({"query": "go"}, "t")
    assert result.error is not None, "it was taken"
    return result.error


def test_bounds_that_are_a_mapping_are_refused_by_their_name() -> None:
    given: Any = {"value_bytes": 10}
    with pytest.raises(ArgumentRefused, match=r"bounds takes a Bounds or None: write graphflow\.Bounds\(NAME=NUMBER\)"):
        load_graph(DOCUMENT, nodes={"work": idle}, bounds=given)
    assert load_graph(DOCUMENT, nodes={"work": idle}, bounds=Bounds(value_bytes=10_000)).version


@pytest.mark.parametrize(
    ("place", "body"),
    [
        ("ctx.call_model with messages[0]", lambda ctx: ctx.call_model(HALF)),
        (
            "ctx.call_model with messages[1]",
            lambda ctx: ctx.call_model([{"role": "user", "content": "hi"}, {"role": "user", "content": HALF}]),
        ),
        ("ctx.call_model with model=", lambda ctx: ctx.call_model("hi", model=HALF)),
        ("ctx.call_model with provider_key=", lambda ctx: ctx.call_model("hi", provider_key=HALF)),
        ("ctx.call_model with options=", lambda ctx: ctx.call_model("hi", options={"stop": [HALF]})),
        (
            "ctx.call_model with schema=",
            lambda ctx: ctx.call_model("hi", schema={"type": "object", "description": HALF}),
        ),
        ("model.stream with messages[0]", lambda ctx: complete(ctx.open_model(), [HumanMessage(content=HALF)])),
    ],
)
async def test_half_of_a_character_for_a_model_is_refused_at_its_place(place: str, body: Body) -> None:
    error = await failure_of(body)
    assert error["code"] == "validation" and place in error["message"]
    assert "has half of a character, '\\ud83d': leave it out, or write text.encode(" in error["message"]


async def test_half_of_a_character_in_a_question_or_an_argument_is_shown_and_kept() -> None:
    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        await ctx.step("act", lambda: None, arguments={"text": HALF})
        assert await ctx.ask(HALF) == HALF
        return {}

    app = load_graph(DOCUMENT, nodes={"work": work}, settings=False, checkpointer=MemoryCheckpointer())
    waiting = await app.run({"query": "go"}, "t")
    assert waiting.interrupts[0].payload == {"message": HALF}
    assert (await app.answer("t", {waiting.interrupts[0].id: HALF})).status == "completed"
    assert digest_of({"b": 1, "a": HALF}) == digest_of({"a": HALF, "b": 1}) != digest_of({"a": HALF, "b": 2})


class Custom:
    """What JSON has no form for."""


@pytest.mark.parametrize("data", [Custom(), {"deep": [Custom()]}, Exception("no"), Path("x")])
async def test_progress_that_json_has_no_form_for_is_refused(data: Any) -> None:
    async def emit(ctx: Any) -> None:
        await ctx.emit(data)

    error = await failure_of(emit)
    assert error["code"] == "validation" and "node 'work' calls ctx.emit, and " in error["message"]
    assert "give plain data: text, numbers" in error["message"]


@pytest.mark.parametrize("data", [None, "text", HALF, 1 << 80, float("inf"), {"a": (1, {2})}, [b"bytes"]])
async def test_progress_that_json_has_a_form_for_is_sent(data: Any) -> None:
    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        await ctx.emit(data)
        await ctx.emit({"state": state["messages"]})
        return {}

    app = load_graph(DOCUMENT, nodes={"work": work}, settings=False)
    sent = [event for event in await collect(app.stream({"query": "go"})) if event.type == "node.progress"]
    assert len(sent) == 2


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("step", lambda ctx: ctx.step("act", lambda: None)),
        ("ask", lambda ctx: ctx.ask("Well?")),
        ("call_model", lambda ctx: ctx.call_model("hi")),
    ],
)
@pytest.mark.parametrize("many", [1, 40])
async def test_a_call_that_is_not_awaited_fails_its_node_and_names_the_call(
    name: str, begin: Callable[[Any], Any], many: int
) -> None:
    kept: list[Any] = []

    async def forget(ctx: Any) -> None:
        for number in range(many):
            await ctx.step(f"before {number}", lambda: None)
        kept.append(begin(ctx))

    error = await failure_of(forget)
    assert error["code"] == "validation"
    assert f"calls ctx.{name}(…) without `await`, so it does nothing; write `await ctx.{name}(…)`" in error["message"]


async def test_a_call_that_was_cancelled_before_it_began_is_none_that_was_forgotten() -> None:
    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("act", lambda: None)).cancel()
        await asyncio.gather(*(ctx.step(f"act {number}", lambda: None) for number in range(40)))
        return {}

    app = load_graph(DOCUMENT, nodes={"work": work}, settings=False)
    assert (await app.run({"query": "go"})).status == "completed"


@pytest.mark.parametrize(
    ("references", "said"),
    [
        ("x", "a list of files and pages, as in"),
        ({"url": "https://example.org"}, "a list of files and pages, as in"),
        ([{"url": 3}], "references[0].url is 3; it is text"),
        ([{"id": "a"}, {"id": True}], "references[1].id is true; it is text or a whole number"),
        ([{"id": "a", "sizeBytes": "3"}], "references[0].sizeBytes is '3'; it is a whole number"),
        ([3], "references[0] is 3; it is text or an object"),
        ([{"name": "a"}], "needs an `id` or a `url`"),
    ],
)
async def test_references_that_are_none_are_refused_before_anything_runs(references: Any, said: str) -> None:
    app = load_graph(DOCUMENT, nodes={"work": idle}, settings=False, checkpointer=MemoryCheckpointer())
    with pytest.raises(GraphflowError) as refused:
        await app.run({"query": "go", "references": references}, "t")
    assert refused.value.code == "invalid_input" and said in refused.value.message
    assert await app.threads() == []


async def test_a_document_says_itself_what_its_references_are() -> None:
    schema = {"type": "object", "properties": {"query": {"type": "string"}, "references": {"type": "string"}}}
    app = load_graph({**DOCUMENT, "input": schema}, nodes={"work": idle}, settings=False)
    result = await app.run({"query": "go", "references": "see the book"})
    assert result.state["messages"][0].references == ()
