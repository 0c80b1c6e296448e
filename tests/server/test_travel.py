"""Effects, blame, why and cost over HTTP (spec 3.2)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow import tool
from tests.server.conftest import ask, serving, take
from tests.service.conftest import make_application

MAILER = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {"n": {"type": "integer", "default": 0}, "texts": {"type": "array", "x-reducer": "append", "default": []}}},
    "start": "work",
    "nodes": {
        "work": {"use": "node:work", "next": [{"if": "state.n > 5", "to": "end"}, {"to": "mail"}]},
        "mail": {"use": "tool:send_mail", "with": {"text": "mail ${state.n}"}, "set": {"texts": "[out.text]"}, "next": "end"},
    },
}  # fmt: skip


class Post:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.recalled: list[Any] = []
        self.closed = False

    def tools(self) -> list[Any]:
        @tool(undo="tool:recall_mail")
        async def send_mail(text: str) -> str:
            if self.closed:
                raise RuntimeError("closed")
            self.sent.append(text)
            return f"sent {text}"

        @tool
        async def recall_mail(arguments: dict[str, Any]) -> str:
            self.recalled.append(arguments)
            return "recalled"

        return [send_mail, recall_mail]


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
async def client(folder: Path, post: Post) -> AsyncIterator[httpx.AsyncClient]:
    (folder / "graphs" / "mailer.json").write_text(json.dumps(MAILER), encoding="utf-8")
    async with serving(make_application(folder, tools=post.tools())) as (made, _):
        yield made


async def start_of(client: httpx.AsyncClient) -> str:
    await ask(client, agentKey="mailer", chatId="t")
    tree = (await client.get("/api/threads/t/checkpoints")).json()["data"]
    return str(next(c["id"] for c in tree if c["source"] == "input"))


async def test_effects_need_a_choice_and_409_lists_them(client: httpx.AsyncClient, post: Post) -> None:
    start = await start_of(client)
    refused = await client.post("/api/threads/t/rewind", json={"checkpointId": start})
    error = refused.json()["data"]["error"]
    assert (refused.status_code, error["code"]) == (409, "effects_need_choice")
    (effect,) = error["detail"]["effects"]
    assert (effect["node"], effect["key"], effect["outcome"], effect["undo"]) == (
        "mail", "call", "done", "tool:recall_mail",
    )  # fmt: skip
    for wrong in ("redo", {effect["id"]: "redo"}, {"nobody": "undo", "*": "rerun"}, 7):
        body = {"checkpointId": start, "effects": wrong}
        assert (await client.post("/api/threads/t/rewind", json=body)).status_code == 400
    resumed = await take(client, "POST", "/api/threads/t/resume", json={"checkpointId": start, "effects": "reuse"})
    assert [event["seq"] for event in resumed.events] == list(range(1, len(resumed.events) + 1))
    assert [resumed.events[n]["type"] for n in (0, 1, -1)] == ["run.start", "run.resume", "run.complete"]
    assert post.sent == ["mail 1"]
    body = {"checkpointId": start, "effects": {effect["id"]: "undo"}}
    again = await client.post("/api/threads/t/rewind", json=body)
    assert again.status_code == 400, "the reused effect is another record by now"
    undone = await client.post("/api/threads/t/rewind", json={"checkpointId": start, "effects": "undo"})
    assert undone.status_code == 200
    assert post.recalled == [{"text": "mail 1"}]
    forked = await client.post("/api/threads/t/fork", json={"effects": "undo"})
    assert forked.status_code == 400


async def test_the_stream_of_a_resume_begins_with_the_first_event_of_the_resumed_run(
    client: httpx.AsyncClient, post: Post
) -> None:
    post.closed = True
    failed = await ask(client, agentKey="mailer", chatId="t")
    assert failed.events[-1]["type"] == "run.error"
    post.closed = False
    resumed = await take(client, "POST", "/api/threads/t/resume")
    assert [event["seq"] for event in resumed.events] == list(range(1, len(resumed.events) + 1))
    assert [resumed.events[n]["type"] for n in (0, 1, -1)] == ["run.start", "run.resume", "run.complete"]
    joined = await take(client, "GET", f"/api/runs/{resumed.events[0]['runId']}/events")
    assert joined.events[0]["seq"] == 1 and joined.events[-1] == resumed.events[-1]


async def test_blame_why_and_cost_over_http(client: httpx.AsyncClient) -> None:
    start = await start_of(client)
    tree = (await client.get("/api/threads/t/checkpoints")).json()["data"]
    blame = (await client.get("/api/threads/t/blame", params={"key": "state.texts[0]"})).json()["data"]
    assert (blame["node"], blame["value"], blame["checkpointId"]) == ("mail", "sent mail 1", tree[0]["id"])
    earlier = await client.get("/api/threads/t/blame", params={"key": "n", "checkpointId": start})
    assert earlier.json()["data"]["source"] == "input"
    why = (await client.get("/api/threads/t/why", params={"checkpointId": tree[1]["id"]})).json()["data"]
    first, other = why["decisions"][0]["conditions"]
    assert (first["if"], first["held"], first["values"]) == ("state.n > 5", False, {"state.n": 1})
    assert (other["to"], other["held"]) == ("mail", True)
    cost = (await client.get("/api/threads/t/cost")).json()["data"]
    assert (cost["total"]["toolCalls"], list(cost["nodes"])) == (1, ["mail"])
    for url in ("blame?key=state.nothing", "blame?key=", "blame?key=n&path=sub%231", "why?checkpointId=nope"):
        assert (await client.get(f"/api/threads/t/{url}")).status_code in (400, 404)


async def test_an_edit_below_the_root_names_its_frame(client: httpx.AsyncClient) -> None:
    await start_of(client)
    refused = await client.patch("/api/threads/t/state", json={"values": {"n": 1}, "path": "sub#1"})
    assert refused.status_code == 400
    edited = await client.patch("/api/threads/t/state", json={"values": {"n": 9}, "path": ""})
    assert edited.status_code == 200


async def test_answers_beside_the_head_s_id_are_answers(client: httpx.AsyncClient) -> None:
    await client.post("/api/query", json={"message": "hi", "agentKey": "ask", "chatId": "w", "stream": False})
    waiting = (await client.get("/api/threads/w")).json()["data"]
    answers = {waiting["interrupts"][0]["interruptId"]: "Ada"}
    tree = (await client.get("/api/threads/w/checkpoints")).json()["data"]
    older = await client.post("/api/threads/w/resume", json={"answers": answers, "checkpointId": tree[1]["id"]})
    assert older.status_code == 422
    done = await take(
        client, "POST", "/api/threads/w/resume", json={"answers": answers, "checkpointId": waiting["checkpointId"]}
    )
    assert done.events[-1]["type"] == "run.complete"


async def test_a_question_that_a_resume_went_back_behind_leaves_the_inbox(client: httpx.AsyncClient) -> None:
    await client.post("/api/query", json={"message": "hi", "agentKey": "ask", "chatId": "w", "stream": False})
    first = (await client.get("/api/threads/w/checkpoints")).json()["data"][-1]["id"]
    await client.post("/api/threads/w/resume", json={"checkpointId": first, "stream": False})
    asked = [i["interruptId"] for i in (await client.get("/api/threads/w")).json()["data"]["interrupts"]]
    inbox = (await client.get("/api/inbox?threadId=w")).json()["data"]
    assert [i["interruptId"] for i in inbox] == asked and len(asked) == 1
    await take(client, "POST", "/api/threads/w/resume", json={"answers": {asked[0]: "Ada"}})
    assert (await client.get("/api/inbox?threadId=w")).json()["data"] == []
