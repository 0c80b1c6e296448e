"""Agents that call each other, in a folder, played by one model that tells them apart by their prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from graphflow import CompiledGraph, MemoryCheckpointer, load_graph
from graphflow.events import event_dict
from graphflow.messages import Message, SystemMessage
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.scripted.model import Performance, ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.testing.fakes import FakeClock, FakeIds
from graphflow.testing.stream_grammar import StreamRules

Events = list[dict[str, Any]]


class Cast(ScriptedModel):
    """Plays the turns of the agent whose system prompt begins with the agent's key."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        super().__init__()
        self.parts = {key: list(turns) for key, turns in parts.items()}
        self.asked: list[tuple[str, list[Message], list[ToolSpec]]] = []

    def perform(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions | None = None
    ) -> Performance:
        prompt = next(m.text for m in messages if isinstance(m, SystemMessage))
        key = prompt.split()[0]
        self.asked.append((key, list(messages), list(tools)))
        self._script = msgspec.convert({"turns": [self.parts[key].pop(0)] * 20}, Script)
        return super().perform(messages, tools, options)


def agent(key: str, *tools: str, mode: str = "REACT", **fields: Any) -> dict[str, Any]:
    """An agent file; its prompt begins with its key."""
    block = {"REACT": "react", "PLAIN_TOOLING": "plainTooling"}[mode]
    return {"mode": mode, "tools": list(tools), block: {"systemPrompt": f"{key} does its work."}, **fields}


def asks(*calls: tuple[str, str], text: str = "") -> dict[str, Any]:
    """A turn that calls agents, or tools with one argument `word`: `(name, query)`."""
    rows = [
        {
            "name": f"agent__{name}" if name.islower() and "_" not in name else name,
            "arguments": {"query": query} if name.islower() and "_" not in name else {"word": query},
            "id": f"call_{query}",
        }
        for name, query in calls
    ]
    return {"text": text, "tool_calls": rows}


class Company:
    """The agents of a folder, one of them at work on a thread."""

    def __init__(
        self,
        folder: Path,
        first: str,
        agents: Mapping[str, Any],
        parts: Mapping[str, Any],
        *,
        tools: Any = (),
        **options: Any,
    ) -> None:
        for key, data in agents.items():
            (folder / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")
        self.model = Cast(parts)
        self.folder = folder
        self.graph: CompiledGraph = load_graph(
            folder / f"{first}.json",
            checkpointer=options.pop("store", None) or MemoryCheckpointer(),
            tools=tools,
            model=self.model,
            clock=FakeClock(),
            ids=FakeIds(),
            **options,
        )
        self.events: Events = []

    async def play(self, query: str = "Question?", **options: Any) -> Events:
        """All events of one run, held against the grammar of streams."""
        rules, self.events = StreamRules(), []
        async for event in self.graph.stream({"query": query}, "t", **options):
            rules.take(event)
            self.events.append(event_dict(event))
        return self.events

    def of(self, kind: str) -> Events:
        """The events of one type."""
        return [event for event in self.events if event["type"] == kind]

    async def state(self) -> Any:
        return (await self.graph.thread("t").state()).values

    async def usage(self) -> Any:
        """What the thread's run has used."""
        return (await self.graph.thread("t").state()).usage
