"""What a caller can't help by changing the request is refused first: what there is not, then what is busy, then choices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.service.application import Application
from tests.server.conftest import ask, serving
from tests.server.test_travel import MAILER, Post
from tests.service.conftest import make_application


class Doors:
    """Lets the node `work` through, but for the runs after the first."""

    def __init__(self) -> None:
        self.inside, self.open = asyncio.Event(), asyncio.Event()
        self.runs = 0

    async def work(self, state: Any, ctx: Any) -> dict[str, Any]:
        self.runs += 1
        if self.runs > 1:
            self.inside.set()
            await self.open.wait()
        return {"n": state["n"] + 1}


@asynccontextmanager
async def busy_server(folder: Path, driver: str) -> AsyncIterator[tuple[httpx.AsyncClient, Application]]:
    """A server whose thread `t` has done a write, and is driven by a run of its own or of another process."""
    (folder / "graphs" / "mailer.json").write_text(json.dumps(MAILER), encoding="utf-8")
    app, doors = make_application(folder, tools=Post().tools()), Doors()
    app.kinds.node("work", doors.work)
    async with serving(app) as (client, _):
        await ask(client, agentKey="mailer", chatId="t", message="go")
        if driver == "this server":
            begun = asyncio.ensure_future(ask(client, agentKey="mailer", chatId="t", message="more"))  # noqa: TID251 - awaited below
            await doors.inside.wait()
            yield client, app
            doors.open.set()
            await begun
        else:
            now = app.clock.now_ms()
            row = await app.store.take("t", owner="another", now=now, lease_ms=600_000, create=False)
            yield client, app
            await app.store.release("t", row.fence)


@pytest.mark.parametrize("driver", ["this server", "another process"])
async def test_a_busy_thread_is_refused_before_a_choice_or_a_correction_is_asked_for(folder: Path, driver: str) -> None:
    async with busy_server(folder, driver) as (client, _):
        tree = (await client.get("/api/threads/t/checkpoints")).json()["data"]
        start = [point["id"] for point in tree if point["source"] == "input"][-1]
        asked = (await client.get("/api/threads/t/messages")).json()["data"][-1]["messageId"]
        edit = {"message": "x", "references": [{"id": "nobody"}]}
        moves: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", f"messages/{asked}/regenerate", {}),
            ("POST", f"messages/{asked}/edit", edit),
            ("POST", "rewind", {"checkpointId": start}),
            ("POST", "resume", {"checkpointId": start}),
            ("PATCH", "state", {"values": {"n": "no number"}, "checkpointId": start}),
            ("PATCH", "state", {"values": {"nobody": 1}}),
        ]
        for method, move, body in moves:
            refused = await client.request(method, f"/api/threads/t/{move}", json=body)
            error = refused.json()["data"]["error"]
            assert (refused.status_code, error["code"]) == (409, "thread_busy"), (move, refused.text)
            assert error["detail"]["retryAfterMs"] > 0
        nobody: tuple[tuple[str, str, dict[str, Any], str], ...] = (
            ("POST", "messages/nobody/regenerate", {}, "message_not_found"),
            ("POST", "messages/nobody/edit", edit, "message_not_found"),
            ("POST", "rewind", {"checkpointId": "nobody"}, "checkpoint_not_found"),
            ("POST", "resume", {"checkpointId": "nobody"}, "checkpoint_not_found"),
            ("PATCH", "state", {"values": {"n": 1}, "checkpointId": "nobody"}, "checkpoint_not_found"),
        )
        for method, move, body, code in nobody:
            refused = await client.request(method, f"/api/threads/t/{move}", json=body)
            assert (refused.status_code, refused.json()["data"]["error"]["code"]) == (404, code), (move, refused.text)


async def test_whoever_cancels_what_drives_the_thread_is_asked_for_the_choice_and_the_run_goes_on(folder: Path) -> None:
    async with busy_server(folder, "this server") as (client, app):
        live = app.runs.by_thread["t"]
        asked = (await client.get("/api/threads/t/messages")).json()["data"][-1]["messageId"]
        refused = await client.post(f"/api/threads/t/messages/{asked}/regenerate", json={"cancel": True})
        assert refused.json()["data"]["error"]["code"] == "effects_need_choice"
        assert app.runs.by_thread["t"] is live
