"""Random disconnects by the hundred: whoever leaves a live stream anywhere and joins again has each event once (spec 3.4)."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import msgspec
import pytest

from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.campaign import size
from tests.patience import PATIENCE_S
from tests.server.conftest import frames, serving, take
from tests.service.clients import Client, fold

CLIENTS, REJOINS = 50, size(3, long=20)
SCRIPT = msgspec.convert(
    {"turns": [{"text": "Once there was a stream that many left and joined again. " * 60, "piece": 3}]}, Script
)


class Pace:
    """The model says as many pieces as clients have asked for, and all of them at the end."""

    def __init__(self) -> None:
        self._pieces = asyncio.Semaphore(0)
        self._free = False
        self.staying = 0

    def allow(self, pieces: int) -> None:
        for _ in range(pieces):
            self._pieces.release()

    def free(self) -> None:
        self._free = True
        self._pieces.release()

    async def __call__(self, _: float) -> None:
        await asyncio.sleep(0)
        await self._pieces.acquire()
        if self._free:
            self._pieces.release()


async def leave_and_join(client: httpx.AsyncClient, run_id: str, pace: Pace, chance: random.Random) -> Client:
    """Reads a few frames, leaves, comes back with the last id; many times, and then stays to the end."""
    seen = Client()
    for wanted in chance.choices((0, 1, 1, 2, 3), k=REJOINS):
        pace.allow(wanted)
        async with joined(client, run_id, seen) as response:
            if wanted:
                await read(response, seen, wanted)
    async with joined(client, run_id, seen) as response:
        pace.staying += 1
        if pace.staying == CLIENTS:
            pace.free()
        await read(response, seen)
    return seen


def joined(client: httpx.AsyncClient, run_id: str, seen: Client) -> AbstractAsyncContextManager[httpx.Response]:
    headers = {"Last-Event-ID": seen.last_id} if seen.last_id else {}
    return client.stream("GET", f"/api/runs/{run_id}/events", headers=headers)


async def read(response: httpx.Response, seen: Client, wanted: int | None = None) -> None:
    """So many frames, or all."""
    left = wanted
    async for sse_id, event in frames(response):
        seen.take(sse_id, event)
        if left is not None:
            left -= 1
            if not left:
                return


@pytest.mark.campaign
async def test_hundreds_of_disconnects_and_rejoins_lose_and_double_nothing(folder: Path) -> None:
    pace = Pace()
    model = ScriptedModel(SCRIPT, delay_s=1.0, sleep=pace)
    async with (
        asyncio.timeout(PATIENCE_S * 5),
        serving(Application(load_settings(folder), models=lambda *_: model)) as (client, _),
    ):
        body = {"message": "go", "agentKey": "plain", "chatId": "swarm"}
        async with client.stream("POST", "/api/query", json=body) as first:
            events = frames(first)
            while (event := (await anext(events))[1])["type"] != "run.start":
                pass
        run_id = event["runId"]
        limits = httpx.Limits(max_connections=CLIENTS)
        async with httpx.AsyncClient(base_url=client.base_url, timeout=PATIENCE_S, limits=limits) as many:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(leave_and_join(many, run_id, pace, random.Random(seed)))
                    for seed in range(CLIENTS)
                ]
            seen = [task.result() for task in tasks]
            whole = (await take(many, "GET", f"/api/runs/{run_id}/events")).events
    assert whole[-1]["type"] == "run.complete"
    assert all(fold(one.events) == whole for one in seen)
    for one in seen:
        assert not one.resets, "the ring had all that anybody missed"
        assert [event["seq"] for event in one.events] == list(range(1, whole[-1]["seq"] + 1))
