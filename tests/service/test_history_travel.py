"""History after going back: every run has an end, the chat has its beginning, and time follows the numbers (spec 3.3)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import StateError
from graphflow.runtime.clock_and_ids import SystemClock
from graphflow.service import threads
from graphflow.service.application import Application
from graphflow.service.chats.chats import chat
from tests.campaign import size
from tests.launching import resume
from tests.service.clients import begin, check_grammar, query_of
from tests.service.conftest import Gate, make_application, write_agents
from tests.service.test_rejoin import followed

STREAM_ENDS = {"run.complete", "run.cancel", "run.error", "run.waiting"}


class SteppingClock(SystemClock):
    """A clock that now and then steps back, as one does that is set by the network."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._now = chance, 1_764_000_000_000

    def now_ms(self) -> int:
        self._now += self._chance.choice([0, 1, 5, 20, -30])
        return self._now


def check_history(told: list[dict[str, Any]], chat_id: str, *, rests: bool) -> None:
    if not told:  # it went back to before its first run
        return
    kinds = [event["type"] for event in told]
    assert kinds.count("chat.start") == 1 and kinds.index("chat.start") < kinds.index("run.start")
    assert {event["chatId"] for event in told if "chatId" in event} == {chat_id}
    runs: dict[str, list[dict[str, Any]]] = {}
    run: list[dict[str, Any]] = []
    for event in told:
        if event["seq"] == 1:
            run = []
        run.append(event)
        if event["type"] == "run.start":
            runs[event["runId"]] = run
    for number, (run_id, events) in enumerate(runs.items(), 1):
        assert [e["seq"] for e in events] == sorted({e["seq"] for e in events}), run_id
        assert [e["timestamp"] for e in events] == sorted(e["timestamp"] for e in events), run_id
        if rests or number < len(runs):
            assert events[-1]["type"] in STREAM_ENDS, (run_id, events[-1])


async def check_pages(app: Application, chat_id: str, whole: list[dict[str, Any]], limit: int) -> None:
    """Pages put in front of each other are the whole history."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await chat(app, chat_id, limit=limit, cursor=cursor)
        found = page["events"] + found
        if (cursor := page.get("cursor")) is None:
            break
        assert len(page["events"]) == limit
    assert found == whole


class Walk:
    """Random steps on a thread and its forks."""

    def __init__(self, app: Application, gate: Gate, chance: random.Random) -> None:
        self.app, self.gate, self.chance = app, gate, chance
        self.chats = ["t"]

    async def say(self, chat_id: str) -> None:
        begun = await begin(self.app, query_of("go", chat_id=chat_id, agent_key="story"))
        check_grammar((await followed(begun)).events)
        await begun.run.over.wait()

    async def roll_back(self, chat_id: str) -> None:
        """A run is replaced by another one while its model speaks."""
        self.gate.open(self.chance.randrange(3))
        replaced = (await begin(self.app, query_of("go", chat_id=chat_id, agent_key="story"))).run
        while self.gate.left and not replaced.over.is_set():
            await asyncio.sleep(0)
        replacing = query_of("instead", chat_id=chat_id, agent_key="story", on_busy="rollback")
        begun = await begin(self.app, replacing)
        self.gate.open()
        await begun.run.over.wait()

    async def go_back(self, chat_id: str) -> None:
        found, _ = await threads.checkpoints(self.app, chat_id)
        place = self.chance.choice(found)
        match self.chance.choice(["rewind", "fork", "edit"]):
            case "rewind":
                await threads.rewind(self.app, chat_id, place.id)
            case "fork":
                chat_id = f"fork{len(self.chats)}"
                self.chats.append(chat_id)
                await threads.fork(self.app, self.chats[0], (await self._head(self.chats[0])), chat_id)
            case "edit":
                try:
                    await threads.edit(self.app, chat_id, {"n": 7}, checkpoint_id=place.id)
                except StateError as refused:  # where a rollback has left the time before the first input
                    assert "before its first input" in refused.message and place.source in ("rewind", "fork")  # noqa: PT017
        state = await threads.state(self.app, chat_id)
        check_history((await chat(self.app, chat_id))["events"], chat_id, rests=True)
        if state["next"] and self.chance.random() < 0.7:
            begun = await resume(self.app, chat_id)
            check_grammar((await followed(begun)).events)
            await begun.run.over.wait()

    async def _head(self, chat_id: str) -> str:
        found, _ = await threads.checkpoints(self.app, chat_id)
        return self.chance.choice(found).id


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(size(5, long=300)))
async def test_however_a_thread_goes_back_its_history_is_whole(tmp_path: Path, seed: int) -> None:
    chance, gate = random.Random(seed), Gate()
    write_agents(tmp_path)
    async with make_application(tmp_path, gate=gate, clock=SteppingClock(chance)) as app:
        walk = Walk(app, gate, chance)
        await chance.choice([walk.say, walk.roll_back])("t")
        for _ in range(8):
            chat_id = chance.choice(walk.chats)
            await chance.choice([walk.say, walk.go_back, walk.go_back, walk.roll_back])(chat_id)
            for each in walk.chats:
                whole = (await chat(app, each))["events"]
                check_history(whole, each, rests=True)
                await check_pages(app, each, whole, chance.choice([1, 3, len(whole) or 1]))
