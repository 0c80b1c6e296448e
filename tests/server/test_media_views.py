"""What the server shows and writes of an image in a thread: its hash, type and size, and never its bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from pathlib import Path

from graphflow import ImagePart, tool
from tests.server.conftest import ask, serving
from tests.server.test_users import ANN, BOB, with_tokens
from tests.service.conftest import make_application

SHOT = random.Random(3).randbytes(200_000)
NAME = hashlib.sha256(SHOT).hexdigest()
SCRIPT = {"turns": [{"tool_calls": [{"name": "look", "arguments": {}}]}, {"text": "A cat."}]}
AGENT = {
    "key": "looks",
    "name": "looks",
    "description": "looks",
    "mode": "REACT",
    "tools": ["look"],
    "react": {"systemPrompt": "Look."},
}


@tool(name="look", description="Looks.", effects="read")
async def look() -> ImagePart:
    return ImagePart(data=SHOT, media_type="image/png", name="shot.png")


async def test_every_view_and_every_file_names_an_image_and_none_holds_it_but_the_store(folder: Path) -> None:
    (folder / "graphs" / "looks.json").write_text(json.dumps(AGENT))
    environ = {"LLM_INTERACTION_LOG_ENABLED": "true"}
    app = make_application(folder, script=SCRIPT, tools=[look], environ=environ)
    async with serving(app) as (client, _):
        seen = await ask(client, agentKey="looks", chatId="c")
        assert seen.events[-1]["type"] == "run.complete", seen.events[-1]
        urls = ["/api/chat?chatId=c&includeRawMessages=true", "/api/threads/c/state", "/api/threads/c/messages"]
        urls += [
            "/api/threads/c/history",
            "/api/threads/c",
            "/api/chats?q=cat",
            f"/api/runs/{seen.events[-1]['runId']}",
        ]
        answers = {url: await client.get(url) for url in urls}
        shown = {url: answer.text for url, answer in answers.items()}
        raw = answers[urls[0]].json()["data"]["rawMessages"]
    assert {url: answer.status_code for url, answer in answers.items() if answer.status_code not in (200, 404)} == {}
    assert max(map(len, shown.values())) < 30_000
    assert len(json.dumps(seen.events)) < 30_000
    (parts,) = [message["content"] for message in raw if message["role"] == "tool"]
    image = {"type": "image", "blob": NAME, "mediaType": "image/png", "name": "shot.png", "size": len(SHOT)}
    assert parts == [{"type": "text", "text": "[image: shot.png]"}, image]
    assert NAME in shown["/api/threads/c/state"]
    written = [path for path in folder.rglob("*") if path.is_file() and ".db" not in path.name]
    coded = base64.b64encode(SHOT)[60:120]
    assert [path.name for path in written if SHOT[60:120] in path.read_bytes() or coded in path.read_bytes()] == []
    assert any(NAME in path.read_text("utf-8", "replace") for path in written), "the chat's record"
    assert len(SHOT) < app.settings.store.path.stat().st_size < len(SHOT) + 300_000


async def test_the_bytes_are_read_by_their_hash_and_by_nobody_else(folder: Path) -> None:
    (folder / "graphs" / "looks.json").write_text(json.dumps(AGENT))
    with_tokens(folder)
    async with serving(make_application(folder, script=SCRIPT, tools=[look])) as (client, _):
        for chat_id, agent in (("c", "looks"), ("d", "plain")):
            body = {"message": "?", "agentKey": agent, "chatId": chat_id, "stream": False}
            assert (await client.post("/api/query", json=body, headers=ANN)).status_code == 200
        found = await client.get(f"/api/threads/c/bytes/{NAME}", headers=ANN)
        assert (found.status_code, found.content, found.headers["content-type"]) == (200, SHOT, "image/png")
        assert found.headers["x-content-type-options"] == "nosniff"
        for path, headers, code in (
            (f"c/bytes/{NAME}", BOB, "thread_not_found"),
            (f"d/bytes/{NAME}", ANN, "not_found"),
            (f"nobody/bytes/{NAME}", ANN, "thread_not_found"),
            ("c/bytes/" + "0" * 64, ANN, "not_found"),
            (f"c/bytes/{NAME}?checkpointId=none", ANN, "checkpoint_not_found"),
        ):
            refused = await client.get(f"/api/threads/{path}", headers=headers)
            assert (refused.status_code, refused.json()["data"]["error"]["code"]) == (404, code), path


async def test_a_file_that_a_browser_could_run_is_only_downloaded(folder: Path) -> None:
    page = b"<script>alert(1)</script>" * 500
    part = {"type": "file", "data": base64.b64encode(page).decode(), "mediaType": "text/html", "name": "a.html"}
    async with serving(make_application(folder)) as (client, _):
        await ask(client, agentKey="plain", chatId="c")
        values = {"messages": [{"role": "user", "content": [part]}]}
        assert (await client.patch("/api/threads/c/state", json={"values": values})).status_code == 200
        found = await client.get(f"/api/threads/c/bytes/{hashlib.sha256(page).hexdigest()}")
    assert (found.content, found.headers["content-type"]) == (page, "application/octet-stream")
    assert found.headers["content-disposition"] == "attachment"
