"""Agents of every mode, played by recorded turns: their events, their messages, and what their models were shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from graphflow import CompiledGraph, MemoryCheckpointer, load_graph, tool
from graphflow.events import event_dict
from graphflow.messages import AIMessage, Message
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.scripted.model import Performance, ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.modes.definition import BLOCKS, decode_definition
from graphflow.modes.registry import compile_agent
from graphflow.testing.fakes import FakeClock, FakeIds

EVERY_MODE = ("PLAIN", "THINKING", "PLAIN_TOOLING", "THINKING_TOOLING", "REACT")
Events = list[dict[str, Any]]


@tool(effects="read")
def look_up(word: str) -> str:
    """What a word means."""
    return f"{word}: a thing"


@tool(effects="read")
def broken(word: str) -> str:
    """Fails."""
    raise ValueError("the book is closed")


class Watched(ScriptedModel):
    """Plays one recorded turn for each call, and keeps what it was asked."""

    def __init__(self, turns: Sequence[Any]) -> None:
        super().__init__()
        self.turns = list(turns)
        self.asked: list[tuple[list[Message], list[str], ChatOptions]] = []
        self.on_hang: Callable[[], None] = lambda: None
        """Called when all deltas of a turn that hangs were sent."""

    def perform(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions | None = None
    ) -> Performance:
        turn = self.turns[len(self.asked)]
        self.asked.append((list(messages), [tool.name for tool in tools], options or ChatOptions()))
        self._script = msgspec.convert({"turns": [turn] * 20}, Script)
        return super().perform(messages, tools, options)

    async def _hang(self, options: ChatOptions) -> None:
        asyncio.get_running_loop().call_soon(self.on_hang)  # from outside of the node, as any cancelling is
        await super()._hang(options)


def summary(reasoning: str, text: str) -> str:
    """An answer in the form that `output: REASONING_SUMMARY` asks for."""
    return json.dumps({"reasoningSummary": reasoning, "finalText": text}, ensure_ascii=False)


def call(name: str = "look_up", number: int = 1, **arguments: Any) -> dict[str, Any]:
    """A recorded tool call."""
    return {"name": name, "arguments": arguments or {"word": "graph"}, "id": f"call_{number}"}


def document_of(mode: str, *, block: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The compiled document of an agent."""
    data = {"mode": mode, BLOCKS[mode]: {"systemPrompt": "Help.", **(block or {})}, **fields}
    return compile_agent(decode_definition(data), data).data


class Stage:
    """One agent on one thread."""

    def __init__(self, document: dict[str, Any], *turns: Any) -> None:
        self.model = Watched(turns)
        self.model.on_hang = self._cancel
        self.clock = FakeClock()
        self.graph: CompiledGraph = load_graph(
            document,
            checkpointer=MemoryCheckpointer(),
            tools=[look_up, broken],
            model=self.model,
            clock=self.clock,
            ids=FakeIds(),
        )
        self.events: Events = []

    async def play(self, query: str = "Question?", **options: Any) -> Events:
        """All events of one run; a turn that hangs is where the run is cancelled."""
        self.events = []
        async for event in self.graph.stream(query, "t", **options):
            self.events.append(event_dict(event))
        return self.events

    def _cancel(self) -> None:
        live = self.graph.host.live("t")
        assert live is not None
        live.executor.cancel()

    def texts(self, kind: str) -> str:
        """What was streamed of `content` or `reasoning`."""
        return "".join(e["delta"] for e in self.events if e["type"] == f"{kind}.delta")

    async def state(self) -> Any:
        return (await self.graph.thread("t").state()).values

    async def said(self) -> list[AIMessage]:
        """The model's turns as the state has them."""
        return [message for message in (await self.state()).messages if isinstance(message, AIMessage)]

    @property
    def finish_reason(self) -> str | None:
        return self.events[-1].get("finishReason")

    @property
    def types(self) -> list[str]:
        return [e["type"] for e in self.events]
