"""What clients of a run learn once another process has taken it over: its result, and at once that it asks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.server import app as server_app
from graphflow.server.public_failures import public_failure
from graphflow.server.routes import _again
from graphflow.service.application import Application
from graphflow.service.runs import remote_runs
from graphflow.service.runs.input_queue import ServerRecovery
from graphflow.service.runs.sweep import look
from graphflow.service.runs.webhooks import Webhooks
from graphflow.testing.fakes import FakeClock
from tests.launching import crash
from tests.patience import PATIENCE_S
from tests.server.conftest import serving
from tests.server.test_webhooks import SETTINGS, Receiver, begin, receiver  # noqa: F401 - a fixture
from tests.service.conftest import make_application


class Cut:
    """An application whose run is cut off at the node `work`, and goes on when the test takes it over."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.inside, self.open = FakeClock(), asyncio.Event(), asyncio.Event()
        self.app: Application = make_application(
            folder, checkpointer=MemoryCheckpointer(), clock=self.clock, environ=SETTINGS
        )
        self.app.kinds.node("work", self.work)
        # The test itself is what looks for runs that lost their process, and for webhooks that are due.
        monkeypatch.setattr(server_app, "sweep", _idle)
        monkeypatch.setattr(Webhooks, "serve", _idle)

    async def work(self, state: Any, ctx: Any) -> dict[str, Any]:
        self.inside.set()
        await self.open.wait()
        return {"n": 1}

    async def lose_process(self) -> None:
        await self.inside.wait()
        await crash(self.app.runs.by_thread["c"])
        self.clock.advance(10 * self.app.settings.store.lease_ms / 1000)
        self.open.set()

    async def take_over(self) -> None:
        self.app.queue.serving = True
        await look(self.app, ServerRecovery(self.app))


async def _idle(*_: object) -> None:
    await asyncio.Event().wait()


async def test_a_retried_request_waits_for_the_result_of_the_process_that_takes_its_run_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, asked = Cut(folder, monkeypatch), asyncio.Event()
    real = remote_runs.result_elsewhere

    async def watched(*arguments: Any) -> Any:
        asked.set()
        return await real(*arguments)

    monkeypatch.setattr(_again, "result_elsewhere", watched)
    body = {"message": "Hi", "agentKey": "story", "chatId": "c", "requestId": "r", "stream": False}
    async with serving(cut.app) as (client, _), asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(client.post("/api/query", json=body))
        await cut.lose_process()
        retried = group.create_task(client.post("/api/query", json=body))
        await asked.wait()
        await asyncio.sleep(0)
        await cut.take_over()
        told = (await retried).json()["data"]
        assert (told["status"], told["chatId"], told["requestId"]) == ("completed", "c", "r")
        runs = (await client.get("/api/runs")).json()["data"]
        assert [run["runId"] for run in runs] == [told["runId"]]


ASKING = """{
  "graphflow": "1", "start": "work", "state": {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}},
  "nodes": {
    "work": {"use": "node:work", "next": "ask"},
    "ask": {"ask": {"message": "Go on?", "schema": {"type": "string"}}, "next": "end"}
  }
}"""


async def test_a_webhook_says_at_once_that_a_run_waits_which_was_taken_over(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    receiver: Receiver,  # noqa: F811
) -> None:
    """No time passes after the take-over: a run that nobody follows is not held open for an answer first."""
    (folder / "graphs" / "asking.json").write_text(ASKING, encoding="utf-8")
    cut = Cut(folder, monkeypatch)
    async with serving(cut.app) as (client, _), asyncio.timeout(PATIENCE_S):
        begun = await begin(client, agentKey="asking", chatId="c", webhook=receiver.url)
        await cut.lose_process()
        hooks, now = Webhooks(cut.app, public_failure), cut.clock.now_ms()
        await hooks.look()
        assert receiver.got == [], "a run that lost its process neither waits nor has ended"
        await cut.take_over()
        if (live := cut.app.runs.by_thread.get("c")) is not None:
            await live.over.wait()
        await hooks.look()
        (sent,) = await receiver.wait(1)
        assert (sent["runId"], sent["status"]) == (begun["runId"], "waiting")
        assert cut.clock.now_ms() == now
