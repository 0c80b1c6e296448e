"""One client reads what another's run has left, while the others go on: every GET route, asked of a run over thousands of branches."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.server.app import create_app
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.campaign import size
from tests.patience import PATIENCE_S
from tests.security.loop_thread import measured
from tests.security.test_one_against_the_others import MOST_S, STATE, document, fan, run, turn_of

BRANCHES = size(2_000, long=20_000)
MOST = MOST_S * size(1, long=2) / 2
"""What several reads of so many branches went beyond when they were done on the loop."""
WORK = {"use": "tool:math_eval", "with": {"expression": "1 + 1"}, "set": {"log": "[1]", "sum": "1"}, "next": "end"}
WIDE = document({"fan": fan(), "work": WORK})
WIDE["state"] = {
    **STATE,
    "properties": {**STATE["properties"], "items": {"type": "array", "default": list(range(BRANCHES))}},
}
MORE: dict[str, tuple[dict[str, str], ...]] = {
    "/api/chat": ({"limit": "1"}, {"includeRawMessages": "true"}),
    "/api/chats": ({"q": "go"}, {"metadata.a": "b"}),
    "/api/runs": ({"threadId": "c-wide"}, {"status": "failed"}),
    "/api/runs/{run_id}/events": ({"lastEventId": "1-2000"},),
    "/api/threads": ({"metadata.a": "b"},),
    "/api/threads/{thread_id}/blame": ({"key": "state.sum"}, {"key": "state.log[7]"}),
    "/api/threads/{thread_id}/state": ({"checkpointId": "FIRST"},),
    "/api/threads/{thread_id}/why": ({"checkpointId": "FIRST"},),
    "/api/inbox": ({"threadId": "c-wide"},),
}
"""Path of the registry → parameters with which it is asked besides those that it requires."""


def asked(api: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    for path, methods in api["paths"].items():
        if "get" not in methods:
            continue
        parameters = methods["get"].get("parameters", ())
        unknown = {p["name"] for p in parameters if p["in"] == "path"} - known.keys()
        assert not unknown, f"{path}: say in the test what {unknown} is of a wide run"
        needed = {p["name"]: known.get(p["name"], "x") for p in parameters if p["in"] == "query" and p.get("required")}
        for more in ({}, *MORE.get(path, ())):
            yield path.format(**known), {**needed, **{name: known.get(value, value) for name, value in more.items()}}
    assert MORE.keys() <= api["paths"].keys()


@pytest.mark.campaign
async def test_no_read_of_a_wide_run_keeps_the_loop(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "wide.json").write_text(json.dumps(WIDE), encoding="utf-8")
    application = Application(load_settings(tmp_path, environ={"GRAPHFLOW_TELEMETRY_LOG_LEVEL": "critical"}))
    async with measured(application) as (server, client):
        await run(client, "wide")
        told = (await client.get("/api/threads/c-wide/checkpoints?limit=500")).json()["data"]
        begun = (await client.get("/api/runs?threadId=c-wide")).json()["data"][0]["runId"]
        known = {
            "thread_id": "c-wide",
            "chatId": "c-wide",
            "run_id": begun,
            "rule_id": "x",
            "message_id": "m",
            "from": told[-1]["id"],
            "to": told[0]["id"],
            "key": "state.log",
            "sha256": "0" * 64,
            "FIRST": told[-1]["id"],
            "agentKey": "wide",
            "name": "time_now",
        }
        for path, given in asked(create_app(application).openapi(), known):
            longest = await turn_of(server, client, functools.partial(read, client, path, given), MOST)
            assert longest < MOST, f"GET {path} {given} kept the loop for {longest:.3f} s"


async def read(client: httpx.AsyncClient, path: str, given: Mapping[str, str]) -> None:
    async with asyncio.timeout(PATIENCE_S * 10):
        answer = await client.get(path, params=given)
    assert answer.status_code < 500, f"GET {path} {given}: {answer.text}"
