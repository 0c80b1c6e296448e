"""Applications over a folder of small agents, with models that the tests gate."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.service.application import Application
from graphflow.settings import load_settings

MESSAGES = {"type": "array", "default": [], "x-reducer": "messages"}
SPEAK = {"use": "model", "set": {"messages": "[out.message]"}}
AGENTS: dict[str, dict[str, Any]] = {
    "plain": {"mode": "PLAIN", "providerKey": "auto", "plain": {"systemPrompt": "Answer."}},
    "react": {
        "mode": "REACT",
        "providerKey": "auto",
        "tools": ["city_datetime", "bash"],
        "approval": {"bash": "REQUIRE_APPROVAL", "*": "AUTO"},
        "react": {"systemPrompt": "Work."},
    },
    "story": {
        "graphflow": "1",
        "state": {"type": "object", "properties": {"messages": MESSAGES, "n": {"type": "integer", "default": 0}}},
        "start": "one",
        "nodes": {
            "one": {**SPEAK, "next": "work"},
            "work": {"use": "node:work", "next": "two"},
            "two": {**SPEAK, "next": "end"},
        },
    },
    "ask": {
        "graphflow": "1",
        "state": {
            "type": "object",
            "properties": {"messages": MESSAGES, "name": {"type": "string", "default": ""}},
        },
        "result": "state.name",
        "start": "who",
        "nodes": {
            "who": {
                "ask": {"message": "Who are you?", "schema": {"type": "string"}},
                "set": {"name": "answer"},
                "next": "end",
            }
        },
    },
    "hurry": {
        "graphflow": "1",
        "state": {"type": "object", "properties": {"late": {"type": "boolean", "default": False}}},
        "start": "ask",
        "nodes": {
            "ask": {
                "ask": {"message": "Quick!", "schema": {"type": "string"}, "expires": "PT1S", "onExpire": "late"},
                "next": "end",
            },
            "late": {"use": "node:late", "next": "end"},
        },
    },
}
TURNS = (
    {"reasoning": "Let me think.", "text": "Once upon a time there was a graph.", "piece": 5},
    {"text": "And it went on happily.", "piece": 5},
    {"text": "The end, again.", "piece": 5},
)


async def work(state: Any, ctx: Any) -> dict[str, Any]:
    """Opens a block, records an operation inside it, tells of progress, and goes on in it."""
    await ctx.content("working ")
    await ctx.step("first", lambda: 1, effects="none")
    await ctx.emit({"half": True})
    await ctx.content("hard")
    await ctx.reasoning("was it?")
    await ctx.step("second", lambda: 2, effects="none")
    await ctx.content("yes")
    return {"n": state["n"] + 1}


async def late(state: Any, ctx: Any) -> dict[str, Any]:
    return {"late": True}


class Gate:
    """Lets the model's deltas through as a test opens it; open at first."""

    def __init__(self) -> None:
        self.left: int | None = None
        self._moved = asyncio.Event()

    def close(self) -> None:
        self.left = 0

    def open(self, deltas: int | None = None) -> None:
        self.left = deltas
        self._moved.set()

    async def __call__(self, _: float) -> None:
        await asyncio.sleep(0)
        while self.left == 0:
            self._moved.clear()
            await self._moved.wait()
        if self.left is not None:
            self.left -= 1


def write_agents(folder: Path) -> None:
    (folder / "graphs").mkdir(exist_ok=True)
    for key, data in AGENTS.items():
        (folder / "graphs" / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")


def make_application(
    folder: Path,
    gate: Gate | None = None,
    script: Any = None,
    durability: str = "async",
    environ: dict[str, str] | None = None,
    **options: Any,
) -> Application:
    """An application over `folder`; its models play `script` (default: three turns of a story)."""
    import msgspec

    played = msgspec.convert(script or {"turns": TURNS}, Script)
    wait = gate or Gate()

    def open_model(provider: str | None, model: str | None) -> ScriptedModel:
        return ScriptedModel(played, delay_s=1.0, sleep=wait)

    app = Application(
        load_settings(folder, environ={"GRAPHFLOW_STORE_DURABILITY": durability, **(environ or {})}),
        models=open_model,
        **options,
    )
    app.kinds.node("work", work)
    app.kinds.node("late", late)
    return app


Opened = Callable[..., Awaitable[Application]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_agents(tmp_path)
    return tmp_path


@pytest.fixture
async def open_application(folder: Path) -> AsyncIterator[Opened]:
    """Opens applications; closes them at the end, without a grace time."""
    opened: list[Application] = []

    async def make(where: Path | None = None, **options: Any) -> Application:
        app = make_application(where or folder, **options)
        await app.__aenter__()
        opened.append(app)
        return app

    yield make
    for app in opened:
        await app.aclose()


def copy_store(app: Application, to: Path) -> None:
    """The files of the store as a `kill -9` at this moment would leave them."""
    write_agents(to)
    source = app.settings.store.path
    (to / "checkpoints").mkdir(exist_ok=True)
    for suffix in ("", "-wal"):
        part = source.with_name(source.name + suffix)
        if part.exists():
            shutil.copy(part, to / "checkpoints" / part.name)


def at_event(live: LiveRun, number: int, act: Callable[[], None]) -> None:
    """Calls `act` when the life sends its event with this number; to be set up before the life is driven."""
    executor = live.executor
    send = executor.events.sink
    assert send is not None

    def sink(event: Any) -> None:
        send(event)
        if event.seq == number:
            act()

    executor.events.sink = sink
