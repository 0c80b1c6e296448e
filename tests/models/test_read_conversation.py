"""What a model is sent of a conversation that nodes change between its turns: each turn has the messages as they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
import pytest

from graphflow import MemoryCheckpointer, load_graph
from graphflow.messages import HumanMessage, Message
from graphflow.models.deltas import Delta
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script


class Recorder(ScriptedModel):
    def __init__(self, turns: int) -> None:
        super().__init__(msgspec.convert({"turns": [{"text": f"answer {n}"} for n in range(turns)]}, Script))
        self.seen: list[list[tuple[str, Any]]] = []

    def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        self.seen.append([(message.role, message.content) for message in messages])
        return super().stream(messages, tools, options)


def document(between: str) -> dict[str, Any]:
    turn = {"use": "model", "set": {"messages": "out.messages"}}
    return {
        "graphflow": "1",
        "state": {"properties": {"messages": {"type": "array", "x-reducer": "messages"}}},
        "start": "begin",
        "nodes": {
            "begin": {"use": "node:begin", "next": "one"},
            "one": {**turn, "next": "between"},
            "between": {"use": f"node:{between}", "next": "two"},
            "two": {**turn, "next": "end"},
        },
    }


async def begin(state: Any, ctx: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(id="first", content="hi")]}


async def replaced(state: Any, ctx: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(id="first", content="something else")]}


async def added(state: Any, ctx: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(content="and more")]}


async def referred(state: Any, ctx: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(content="see", references=({"name": "a.txt", "url": "https://example.com/a"},))]}


@pytest.mark.parametrize(
    ("between", "second"),
    [
        (replaced, [("user", "something else"), ("assistant", "answer 0")]),
        (added, [("user", "hi"), ("assistant", "answer 0"), ("user", "and more")]),
        (
            referred,
            [
                ("user", "hi"),
                ("assistant", "answer 0"),
                ("user", "see\n\nReferences:\n- a.txt, https://example.com/a"),
            ],
        ),
    ],
    ids=["an earlier message replaced", "one added", "a reference added"],
)
async def test_the_second_turn_is_sent_what_the_conversation_is_then(between: Any, second: list[Any]) -> None:
    model = Recorder(2)
    app = load_graph(
        document(between.__name__),
        model=model,
        nodes={"begin": begin, between.__name__: between},
        checkpointer=MemoryCheckpointer(),
    )
    await app.run({}, thread_id="t")
    assert model.seen == [[("user", "hi")], second]
