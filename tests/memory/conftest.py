"""Applications over small agents with real files and a real store; models that play a script."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphflow.memory.postgres_tables import PostgresTables
from graphflow.messages import Message
from graphflow.models.deltas import Delta
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.service.application import Application
from graphflow.settings import load_settings
from graphflow.tools.port import tool
from tests.postgres import Schemas

MESSAGES = {"type": "array", "default": [], "x-reducer": "messages"}
AGENTS: dict[str, dict[str, Any]] = {
    "plain": {"mode": "PLAIN", "providerKey": "auto", "plain": {"systemPrompt": "Answer."}},
    "react": {
        "mode": "REACT",
        "providerKey": "auto",
        "tools": ["look_up", "send"],
        "approval": {"send": "REQUIRE_APPROVAL", "*": "AUTO"},
        "react": {"systemPrompt": "Work for ${nobody}."},
    },
    "quiet": {
        "graphflow": "1",
        "state": {"type": "object", "properties": {"messages": MESSAGES}},
        "start": "think",
        "nodes": {"think": {"use": "model", "with": {"stream": "hidden"}, "set": {"messages": "[out.message]"}}},
    },
    "mute": {
        "graphflow": "1",
        "state": {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}},
        "start": "work",
        "nodes": {"work": {"use": "node:work", "next": "end"}},
    },
    "ask": {
        "graphflow": "1",
        "state": {"type": "object", "properties": {"messages": MESSAGES, "name": {"type": "string", "default": ""}}},
        "start": "who",
        "nodes": {
            "who": {
                "ask": {"message": "Who are you?", "schema": {"type": "string"}},
                "set": {"name": "answer"},
                "next": "end",
            }
        },
    },
    "broken": {
        "graphflow": "1",
        "state": {"type": "object", "properties": {"messages": MESSAGES}},
        "start": "work",
        "nodes": {"work": {"use": "node:fail", "next": "end"}},
    },
}
AGENTS["flaky"] = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {"messages": MESSAGES}},
    "start": "work",
    "nodes": {
        "work": {"use": "node:flaky", "retry": {"max": 2, "on": ["node_error"], "backoffMs": 0}, "next": "speak"},
        "speak": {
            "use": "model",
            "with": {"messages": "${state.messages}", "prompt": "Say it."},
            "set": {"messages": "[out.message]"},
        },
    },
}
for _agent in AGENTS.values():
    for _node in _agent.get("nodes", {}).values():
        _node.setdefault("next", "end")

CALL = {"tool_calls": [{"id": "call_1", "name": "look_up", "arguments": {"word": "graph"}}]}
TWO_CALLS = {
    "reasoning": "Two at once.",
    "text": "I look.",
    "tool_calls": [
        {"id": "call_1", "name": "look_up", "arguments": {"word": "a"}},
        {"id": "call_2", "name": "look_up", "arguments": {"word": "b"}},
    ],
}
SEND = {"tool_calls": [{"id": "call_s", "name": "send", "arguments": {"text": "hello"}}]}


@tool(effects="read")
def look_up(word: str) -> str:
    """What a word means."""
    return f"{word}: a thing"


@tool
def send(text: str) -> str:
    """Sends a text."""
    return "sent"


async def work(state: Any, ctx: Any) -> dict[str, Any]:
    await ctx.reasoning("hm")
    await ctx.content("work")
    await ctx.content("ed")
    return {"n": state["n"] + 1}


async def fail(state: Any, ctx: Any) -> dict[str, Any]:
    raise ValueError("no")


async def flaky(state: Any, ctx: Any) -> None:
    """Streams, then fails at its first attempt."""
    await ctx.content(f"attempt {ctx.attempt}")
    if ctx.attempt == 1:
        raise ValueError("not yet")


class WatchedModel(ScriptedModel):
    """A scripted model that keeps what it was shown."""

    def __init__(self, script: Any, seen: list[list[Any]]) -> None:
        super().__init__(msgspec.convert(script, Script))
        self._seen = seen

    def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        self._seen.append(list(messages))
        return super().stream(messages, tools, options)


Opened = Callable[..., Awaitable[Application]]


def write_agents(folder: Path) -> None:
    (folder / "graphs").mkdir(exist_ok=True)
    for key, data in AGENTS.items():
        (folder / "graphs" / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")


@pytest.fixture
def seen() -> list[list[Any]]:
    """What each model call was shown."""
    return []


@pytest.fixture
async def open_application(tmp_path: Path, seen: list[list[Any]]) -> AsyncIterator[Opened]:
    """Opens applications over one folder; `turns` is the models' script, `environ` their settings."""
    write_agents(tmp_path)
    opened: list[Application] = []

    async def make(*turns: Any, environ: dict[str, str] | None = None, **options: Any) -> Application:
        script = {"turns": turns or ({"text": "Hello."},)}
        app = Application(
            load_settings(tmp_path, environ={"GRAPHFLOW_TOOLS_HOLD_MS": "0", **(environ or {})}),
            models=lambda provider, model: WatchedModel(script, seen),
            tools=(look_up, send),
            **options,
        )
        app.kinds.node("work", work)
        app.kinds.node("fail", fail)
        app.kinds.node("flaky", flaky)
        await app.__aenter__()
        opened.append(app)
        return app

    yield make
    for app in opened:
        await app.aclose()


def lines(app: Application, chat_id: str) -> list[dict[str, Any]]:
    """The chat's file, read without any of the code under test."""
    path = app.settings.memory.chat_dir / f"{chat_id}.json"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def role_and_text(message: dict[str, Any]) -> tuple[str, str]:
    """A message as (form, text), for comparing whole conversations at a glance."""
    if "tool_calls" in message:
        (call,) = message["tool_calls"]
        return "call", f"{call['function']['name']} {call['function']['arguments']}"
    if "reasoning_content" in message:
        return "reasoning", message["reasoning_content"][0]["text"]
    return message["role"], message["content"][0]["text"]


@pytest.fixture
def schema(schemas: Schemas) -> Iterator[str]:
    """A schema of one's own."""
    yield schemas.take()
    schemas.empty()


@pytest.fixture(scope="session")
def memory_schema(schemas: Schemas) -> str:
    """One schema with the memory tables, emptied between tests."""
    return "memory_of_tests"


@pytest.fixture
async def memory_tables(schemas: Schemas, memory_schema: str) -> AsyncIterator[PostgresTables]:
    tables = PostgresTables(schemas.url, schema=memory_schema)
    await tables.write(
        *((f"DELETE FROM {table}", ()) for table in ("conversations", "conversation_runs", "store_items"))
    )
    yield tables
    await tables.close()
