"""A model whose deltas come without a pause leaves the event loop to others while it speaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from graphflow import Context, HumanMessage, load_graph
from graphflow.models.deltas import Delta, Finish, TextDelta, ThinkingDelta, ToolCallDelta
from graphflow.models.scripted.model import ScriptedModel
from graphflow.nodes.turn import AT_ONCE

SLICES = 20
PIECES: dict[str, Delta] = {
    "text": TextDelta("a"),
    "reasoning": ThinkingDelta("a"),
    "arguments": ToolCallDelta(0, None, None, "1"),
}


class Hasty(ScriptedModel):
    """Gives all deltas of a long turn at once, as one in this process does, or one large chunk of a provider."""

    def __init__(self, piece: Delta) -> None:
        super().__init__()
        self._piece = piece

    async def stream(self, messages: Any, tools: Any = (), options: Any = None) -> AsyncGenerator[Delta, None]:
        if is_call := isinstance(self._piece, ToolCallDelta):
            yield ToolCallDelta(0, "c", "none", "")
        for _ in range(SLICES * AT_ONCE):
            yield self._piece
        yield Finish("tool_calls" if is_call else "stop", "stop")


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("use", ["model", "call_model", "open_model"])
async def test_others_have_their_turn_while_a_long_answer_comes(use: str, piece: str) -> None:
    async def work(state: Any, ctx: Context) -> None:
        if use == "call_model":
            await ctx.call_model("hi")
        else:
            async for _ in ctx.open_model().stream([HumanMessage(content="hi")]):
                pass

    node: dict[str, Any] = {"use": "model", "with": {"prompt": "hi"}} if use == "model" else {"use": "node:work"}
    document = {"graphflow": "1", "start": "a", "nodes": {"a": {**node, "next": "end"}}}
    app = load_graph(document, nodes={"work": work}, model=Hasty(PIECES[piece]))
    turns, over = 0, asyncio.Event()

    async def others() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(others())
        result = await app.run({})
        over.set()
    assert result.status == "completed"
    assert turns >= SLICES
