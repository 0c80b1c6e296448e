"""Time travel inside branches over HTTP and on the command line's texts (spec 3.2, E8)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import ask, serving
from tests.service.conftest import make_application

ASKING: dict[str, Any] = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {"results": {"type": "array", "x-reducer": "append", "default": []}}},
    "start": "fan",
    "nodes": {
        "fan": {"map": "['a', 'b']", "as": "item", "do": "well", "next": "end"},
        "well": {"ask": {"message": "${item}?", "schema": {"type": "string"}, "holdMs": 0}, "set": {"results": "[item + answer]"}, "next": "end"},
    },
}  # fmt: skip


@pytest.fixture
async def client(folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    (folder / "graphs" / "asking.json").write_text(json.dumps(ASKING), encoding="utf-8")
    async with serving(make_application(folder)) as (made, _):
        yield made


async def test_branches_are_edited_blamed_and_refused_by_their_path(client: httpx.AsyncClient) -> None:
    await ask(client, agentKey="asking", chatId="t")
    refused = await client.patch("/api/threads/t/state", json={"values": {"results": ["x"]}})
    assert refused.status_code == 400, refused.text
    assert "edit one of them by its path" in refused.text and "fan#1[1]" in refused.text
    refused = await client.patch("/api/threads/t/state", json={"values": {"results": ["x"]}, "asNode": "well"})
    assert refused.status_code == 400 and "needs the path of its frame" in refused.text
    edited = await client.patch(
        "/api/threads/t/state", json={"values": {"results": ["ended"]}, "asNode": "well", "path": "fan#1[0]"}
    )
    assert edited.status_code == 200, edited.text
    state = (await client.get("/api/threads/t/state")).json()["data"]
    assert state["frames"]["fan#1[0]"]["results"] == ["ended"]
    edited = await client.patch(
        "/api/threads/t/state", json={"values": {"results": ["too"]}, "asNode": "well", "path": "fan#1[1]"}
    )
    assert edited.status_code == 200, edited.text
    told = (await client.get("/api/threads/t/blame", params={"key": "state.results[1]"})).json()["data"]
    assert (told["node"], told["branches"][0]["path"], told["branches"][0]["source"]) == ("fan", "fan#1[1]", "edit")
    why = (await client.get("/api/threads/t/why")).json()["data"]
    assert [(d.get("path", ""), d["node"], d["to"]) for d in why["decisions"]] == [("fan#1[1]", "well", "end"), ("", "fan", "end")]  # fmt: skip


async def test_a_listing_of_open_branches_grows_with_what_they_wrote_and_not_with_all_that_they_see(
    folder: Path,
) -> None:
    asking = json.loads(json.dumps(ASKING))
    items = {"type": "array", "default": list(range(60))}
    asking["state"]["properties"] |= {"items": items, "long": {"type": "string", "default": "x" * 1_000}}
    asking["nodes"]["fan"]["map"] = "state.items"
    asking["nodes"]["fan"]["do"] = "note"
    asking["nodes"]["note"] = {"use": "tool:time_now", "with": {}, "set": {"results": "['noted']"}, "next": "well"}
    (folder / "graphs" / "asking.json").write_text(json.dumps(asking), encoding="utf-8")
    async with serving(make_application(folder)) as (client, _):
        await ask(client, agentKey="asking", chatId="t")
        state = (await client.get("/api/threads/t/state")).json()["data"]
    assert state["values"]["long"] == "x" * 1_000 and state["values"]["results"] == []
    assert state["frames"] == {f"fan#1[{n}]": {"results": ["noted"]} for n in range(60)}
