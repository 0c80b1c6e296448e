"""Whether a process drives a thread is said the same by Python, the command line and HTTP (spec 3.2)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx

from graphflow import Application, SqliteCheckpointer
from graphflow.server.app import create_app
from tests.forked import python
from tests.runtime.lone_process import alive_inside, app_over, graph


async def everywhere(file: Path, listed_as: str) -> set[tuple[str, bool]]:
    """What each face says of the thread: (status, driven), and that a list finds it under this status only."""
    return {*await _python(file, listed_as), *_cli(file, listed_as), *await _http(file, listed_as)}


async def _python(file: Path, listed_as: str) -> list[tuple[str, bool]]:
    async with app_over(file) as app:
        state, (listed,) = await app.thread("t").state(), await app.threads()
        (past, *_) = await app.thread("t").states()
        assert (await app.thread("t").result()).status == listed_as
        assert [line.thread_id for line in await app.threads(status=listed_as)] == ["t"]
        for other in {"idle", "running", "waiting", "failed", "stopped"} - {listed_as}:
            assert await app.threads(status=other) == []
        return [(seen.status, seen.driven) for seen in (state, listed, past)]


def _cli(file: Path, listed_as: str) -> list[tuple[str, bool]]:
    def said(*command: str) -> Any:
        env = {**os.environ, "GRAPHFLOW_STORE_PATH": str(file)}
        child = python("-m", "graphflow", "threads", *command, "--json", env=env, cwd=file.parent)
        out, _ = child.communicate()
        assert child.returncode == 0
        return json.loads(out)

    (listed,) = said("list", "--status", listed_as)
    assert not any(said("list", "--status", other) for other in {"running", "stopped"} - {listed_as})
    return [(seen["status"], seen["driven"]) for seen in (listed, said("show", "t"))]


async def _http(file: Path, listed_as: str) -> list[tuple[str, bool]]:
    application = Application(checkpointer=SqliteCheckpointer(file))
    for name, function in graph(file.parent).parts().nodes.items():
        application.kinds.node(name, function)
    transport = httpx.ASGITransport(app=create_app(application, watch=False))
    async with application, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

        async def get(path: str) -> Any:
            response = await client.get(f"/api{path}")
            assert response.status_code == 200, response.text
            return response.json()["data"]

        (listed,) = await get(f"/chats?status={listed_as}")
        assert [line for line in await get("/chats") if line["status"] != listed_as] == []
        said = [listed, await get("/threads/t"), await get("/threads/t/state")]
    return [(seen["status"], seen["driven"]) for seen in said]


async def test_a_thread_is_running_while_its_process_lives_and_stopped_when_that_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    with alive_inside(file, "drive"):
        assert await everywhere(file, "running") == {("running", True)}
    assert await everywhere(file, "stopped") == {("stopped", False)}
    async with app_over(file) as app:
        await app.recover()
        assert [(line.status, line.driven) for line in await app.threads()] == [("idle", False)]
