"""Uploads: kept under their chat, told of once in its next run, referred to by id (spec 3.3)."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.content import media_of
from graphflow.errors import ModelError
from graphflow.models.chat_model import Capabilities, ChatOptions
from graphflow.models.pool import ModelPool
from graphflow.models.scripted.model import ScriptedModel
from graphflow.service.uploads import plain_name
from tests.patience import PATIENCE_S
from tests.server.conftest import ask, serving, take
from tests.server.test_users import ANN, BOB, with_tokens
from tests.service.conftest import Gate, make_application

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


async def send(
    client: httpx.AsyncClient, name: str = "cat.png", data: bytes = PNG, mime: str = "image/png", **fields: Any
) -> dict[str, Any]:
    headers = fields.pop("headers", {})
    response = await client.post("/api/upload", files={"file": (name, data, mime)}, data=fields, headers=headers)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["data"]
    return found


def kept(folder: Path) -> dict[str, bytes]:
    """Every file that is kept, by its path."""
    root = folder / "checkpoints" / "uploads"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def test_a_file_is_kept_told_of_in_the_next_run_and_listed_in_the_users_turn(
    client: httpx.AsyncClient, folder: Path
) -> None:
    made = await send(client, chatId="c", requestId="r-1")
    facts = {"type": "image", "name": "cat.png", "sizeBytes": len(PNG), "mimeType": "image/png"}
    facts["sha256"] = hashlib.sha256(PNG).hexdigest()
    upload_id = made["upload"]["id"]
    assert made == {"requestId": "r-1", "chatId": "c", "upload": {"id": upload_id, **facts}}
    assert kept(folder)[f"c.files/{upload_id}"] == PNG
    seen = await ask(client, agentKey="plain", chatId="c", references=[{"id": upload_id}, {"id": "other", "name": "b"}])
    assert [e["type"] for e in seen.events[:4]] == ["request.upload", "request.query", "chat.start", "run.start"]
    told = {k: v for k, v in seen.events[0].items() if k not in ("seq", "timestamp")}
    assert told == {"type": "request.upload", "requestId": "r-1", "chatId": "c", "upload": facts}
    assert seen.events[1]["references"] == [{"id": upload_id, **facts}, {"id": "other", "name": "b"}]
    state = (await client.get("/api/threads/c/state")).json()["data"]["values"]
    assert state["messages"][0]["references"][0]["name"] == "cat.png"
    again = await ask(client, agentKey="plain", chatId="c")
    assert "request.upload" not in [e["type"] for e in again.events]
    chat = (await client.get("/api/chat?chatId=c")).json()["data"]
    assert [e["type"] for e in chat["events"]].count("request.upload") == 1
    assert chat["references"][0] == {"id": upload_id, **facts}
    rejoined = await take(client, "GET", f"/api/runs/{seen.events[3]['runId']}/events")
    assert rejoined.events[0] == seen.events[0]


async def test_uploads_are_told_in_order_and_of_a_refused_query_in_the_run_after(
    client: httpx.AsyncClient, gate: Gate
) -> None:
    await ask(client, agentKey="plain", chatId="c")
    names = ["one.txt", "two.txt", "three.txt"]
    for name in names:
        await send(client, name, b"x", "text/plain", chatId="c")
    assert (await client.post("/api/query", json={"message": "x", "chatId": "c", "maxRounds": 0})).status_code == 400
    bad_budget = {"message": "x", "chatId": "c", "budget": {"nothing": 1}}
    assert (await client.post("/api/query", json=bad_budget)).status_code == 400
    seen = await ask(client, chatId="c")
    assert [e["upload"]["name"] for e in seen.events if e["type"] == "request.upload"] == names
    assert seen.events[3]["type"] == "request.query"


async def test_an_input_that_waited_for_its_turn_tells_of_them_too(client: httpx.AsyncClient, gate: Gate) -> None:
    gate.close()
    async with (
        asyncio.TaskGroup() as group,
        client.stream("POST", "/api/query", json={"message": "x", "chatId": "q", "agentKey": "plain"}) as first,
    ):
        await anext(first.aiter_bytes())
        await send(client, chatId="q")
        later = group.create_task(ask(client, chatId="q", onBusy="enqueue"))
        while not (await client.get("/api/threads/q/queue")).json()["data"]:
            await asyncio.sleep(0)
        gate.open()
    assert [e["type"] for e in later.result().events[:2]] == ["request.upload", "request.query"]


async def test_files_of_a_chat_that_never_began_can_be_deleted(client: httpx.AsyncClient, folder: Path) -> None:
    await send(client, chatId="never")
    assert (await client.delete("/api/threads/never")).status_code == 200
    assert kept(folder) == {}
    assert (await client.delete("/api/threads/never")).status_code == 404


async def test_the_run_that_begins_first_tells_of_them_although_another_input_waits(
    client: httpx.AsyncClient, gate: Gate
) -> None:
    gate.close()
    query = {"message": "x", "chatId": "q", "agentKey": "plain"}
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        async with client.stream("POST", "/api/query", json=query) as first:
            stream = first.aiter_bytes()
            await anext(stream)
            await send(client, chatId="q")
            later = group.create_task(ask(client, chatId="q", onBusy="enqueue"))
            while not (await client.get("/api/threads/q/queue")).json()["data"]:
                await asyncio.sleep(0)
            at_once = group.create_task(ask(client, chatId="q", onBusy="interrupt"))
            async for _ in stream:
                pass  # it is cancelled
        gate.open()
    told = [[event["type"] for event in task.result().events].count("request.upload") for task in (at_once, later)]
    assert told == [1, 0]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"), ("C:\\temp\\x.txt", "x.txt"), ("..", "file"),
                ("x" * 400, "x" * 255), ("日本.pdf", "日本.pdf"), (".hidden.", "hidden"),
    ],
)  # fmt: skip
async def test_a_name_never_leaves_its_folder(client: httpx.AsyncClient, folder: Path, name: str, shown: str) -> None:
    made = await send(client, name, b"x", "text/plain", chatId="c")
    assert made["upload"]["name"] == shown
    assert {path.partition(".")[0] for path in kept(folder)} == {"c"}
    assert {Path(path).stem for path in kept(folder)} == {made["upload"]["id"]}
    assert not list(folder.parent.rglob("*passwd*"))


def test_a_name_has_no_control_characters() -> None:
    assert plain_name("a\x00b\x1b\u202e.txt") == "ab.txt"


async def test_what_is_no_upload_is_refused_and_leaves_nothing(client: httpx.AsyncClient, folder: Path) -> None:
    file = {"file": ("a", b"x", "text/plain")}
    for request in (
        {"content": b""},
        {"json": {"file": "x"}},
        {"content": b"x", "headers": {"content-type": "multipart/form-data"}},
        {"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=b"}},
        {"content": b"--b\r\nnonsense", "headers": {"content-type": "multipart/form-data; boundary=b"}},
        {"data": {"file": "text"}, "files": {"chatId": ("a", b"x")}},
        {"files": {"other": ("a", b"x")}},
        {"files": [("file", ("a", b"x")), ("file", ("b", b"y"))]},
        {"files": file, "data": {"chatId": "../x"}},
        {"files": file, "data": {"type": "a b"}},
        {"files": file, "data": {"requestId": "x" * 300}},
        {"files": file, "data": {"colour": "red"}},
    ):
        response = await client.post("/api/upload", **request)
        assert response.status_code == 400, (request, response.text)
        assert response.json()["data"]["fields"], request
    assert kept(folder) == {}


JPEG = b"\xff\xd8\xff\xe0" + b"0" * 5_000


@pytest.mark.parametrize(
    ("data", "said", "mime", "kind"),
    [
        (JPEG, "image/png", "image/jpeg", "image"),
        (JPEG, "image/jpg", "image/jpeg", "image"),
        (JPEG, "text/plain", "image/jpeg", "image"),
        (JPEG, "application/octet-stream", "image/jpeg", "image"),
        (PNG, "application/pdf", "image/png", "image"),
        (b"junk\n%PDF-1.7\n", "application/pdf", "application/pdf", "file"),
        (b"OggS" + b"0" * 40, "audio/mpeg", "audio/ogg", "audio"),
        (b"\xff\xfb\x90\x64", "audio/mpeg", "audio/mpeg", "audio"),
        (b"ID3 tags, explained", "text/plain", "text/plain", "file"),
        (b"<svg/>", "image/svg+xml", "image/svg+xml", "image"),
    ],
)
async def test_the_bytes_of_a_file_say_its_type_where_they_show_one(
    client: httpx.AsyncClient, data: bytes, said: str, mime: str, kind: str
) -> None:
    upload = (await send(client, "a", data, said, chatId="c"))["upload"]
    assert (upload["mimeType"], upload["type"]) == (mime, kind)


@pytest.mark.parametrize(
    ("data", "said", "kind"),
    [
        (b"<html>not found</html>", "image/png", None),
        (b"<html>not found</html>", "application/pdf", None),
        (b"", "image/jpeg", None),
        (b"RIFF\0\0\0\0AVI LIST", "image/webp", None),
        (b"%PDF-1.7", "application/octet-stream", "image"),
    ],
)
async def test_a_file_that_is_not_what_it_says_is_refused_and_not_kept(
    client: httpx.AsyncClient, folder: Path, data: bytes, said: str, kind: str | None
) -> None:
    fields = {"chatId": "c"} | ({} if kind is None else {"type": kind})
    refused = await client.post("/api/upload", files={"file": ("a", data, said)}, data=fields)
    assert refused.status_code == 400, refused.text
    assert refused.json()["data"]["fields"].keys() == {"file" if kind is None else "type"}
    assert not (folder / "checkpoints" / "uploads").exists()


class Refusing(ScriptedModel):
    """A provider that refuses each request with an image."""

    def __init__(self) -> None:
        super().__init__({"turns": [{"text": "Hello."}]})

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(input=frozenset({"image"}))

    async def stream(self, messages: Any, tools: Any = (), options: Any = ChatOptions()) -> Any:
        if any(media_of(message.content) for message in messages):
            raise ModelError("provider 'openai' answered 400: invalid image", retryable=False, status=400)
        async for delta in super().stream(messages, tools, options):
            yield delta


async def test_a_refused_request_names_its_media_and_the_edit_that_leaves_them_out(folder: Path) -> None:
    app = make_application(folder)
    app.models = ModelPool(lambda provider, model: Refusing())
    async with serving(app) as (client, _):
        image = (await send(client, chatId="c"))["upload"]["id"]
        first = await ask(client, agentKey="plain", chatId="c", references=[{"id": image}])
        later = await ask(client, agentKey="plain", chatId="c")
        for failed in (first, later):
            said = failed.events[-1]["error"]["message"]
            assert "answered 400" in said and "'cat.png'" in said and "`references: []`" in said
        said = (await client.get("/api/threads/c/messages")).json()["data"]
        edit = f"/api/threads/c/messages/{said[-1]['messageId']}/edit"
        edited = await take(client, "POST", edit, json={"message": "hello", "references": []})
        assert edited.events[-1]["type"] == "run.complete"
        after = await ask(client, agentKey="plain", chatId="c")
        assert after.events[-1]["type"] == "run.complete"


async def test_uploads_have_limits_of_their_own(folder: Path) -> None:
    limits = {"MAX_BYTES": 1000, "MAX_CHAT_BYTES": 1500}
    (folder / ".env").write_text("\n".join(f"GRAPHFLOW_UPLOADS_{k}={v}" for k, v in limits.items()), encoding="utf-8")

    async def endless() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(200):
            yield b"x" * 1000

    async with serving(make_application(folder)) as (client, _):
        await send(client, "a", b"x" * 1000, "text/plain", chatId="c")
        for data, chat in ((b"x" * 1001, "d"), (b"x" * 501, "c")):
            files = {"file": ("a", data)}
            refused = await client.post("/api/upload", files=files, data={"chatId": chat})
            assert refused.status_code == 413 and refused.json()["data"]["error"]["code"] == "too_large"
        multipart = {"content-type": "multipart/form-data; boundary=b"}
        assert (await client.post("/api/upload", content=endless(), headers=multipart)).status_code == 413
        await send(client, "a", b"x" * 500, "text/plain", chatId="c")
    assert sorted(len(data) for path, data in kept(folder).items() if not Path(path).suffix.strip(".files")) == [
        500,
        1000,
    ]


async def test_another_users_uploads_can_be_neither_made_nor_read_and_go_with_the_thread(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        made = await send(client, chatId="hers", headers=ANN)
        refused = await client.post("/api/upload", files={"file": ("a", b"x")}, data={"chatId": "hers"}, headers=BOB)
        assert refused.status_code == 404
        body = {"message": "x", "agentKey": "plain", "chatId": "his", "references": [{"id": made["upload"]["id"]}]}
        his = await client.post("/api/query", json=body, headers=BOB)
        absent = await client.post(
            "/api/query", json={**body, "references": [{"id": "01a20509-3b03-7000-bdc6-99b4199b8e62"}]}, headers=BOB
        )
        assert (his.status_code, absent.status_code) == (400, 400)
        said = his.json()["msg"].replace(made["upload"]["id"], "01a20509-3b03-7000-bdc6-99b4199b8e62")
        assert said == absent.json()["msg"], "an id of another chat says nothing"
        await take(client, "POST", "/api/query", json={**body, "chatId": "hers"}, headers=ANN)
        assert len(kept(folder)) == 3
        assert (await client.delete("/api/threads/hers", headers=ANN)).status_code == 200
        assert kept(folder) == {}


async def test_a_reference_to_an_upload_that_this_server_does_not_have_is_refused(client: httpx.AsyncClient) -> None:
    body = {"message": "x", "chatId": "c", "references": [{"id": "0192f0c8-0000-7000-8000-000000000000"}]}
    refused = await client.post("/api/query", json=body)
    assert refused.status_code == 400 and "uploads.dir" in refused.json()["msg"]


@pytest.mark.parametrize("more", [{}, {"type": "image"}, {"type": "image", "sha256": "0" * 64, "sizeBytes": 1}])
@pytest.mark.parametrize("key", ["0192f0c8-0000-7000-8000-000000000000", "my-own", 7])
async def test_a_part_that_the_chat_does_not_have_is_refused_before_a_thread_is_made(
    client: httpx.AsyncClient, key: Any, more: dict[str, Any]
) -> None:
    body = {"message": "x", "chatId": "c", "references": [{"id": key, "as": "part", **more}]}
    refused = await client.post("/api/query", json=body)
    assert refused.status_code == 400 and "upload the file first" in refused.json()["msg"]
    assert (await client.get("/api/threads/c/state")).status_code == 404


@pytest.mark.parametrize("url", ["file:///etc/passwd", "FILE:/x", " https://x.test/a.png", "gs://b/a.png", "a.png"])
async def test_a_part_by_a_url_that_is_not_of_the_web_is_refused(client: httpx.AsyncClient, url: str) -> None:
    body = {"message": "x", "chatId": "c", "references": [{"url": url, "type": "image", "as": "part"}]}
    refused = await client.post("/api/query", json=body)
    assert refused.status_code == 400, refused.text
    assert (
        "references" in refused.json()["msg"] and "only https:, http: and data: URLs are sent" in refused.json()["msg"]
    )
    assert (await client.get("/api/threads/c/state")).status_code == 404


class Seeing(ScriptedModel):
    """A model that takes images, and keeps what it is asked."""

    def __init__(self, asked: list[Any]) -> None:
        super().__init__({"turns": [{"text": "A cat."}]})
        self._asked = asked

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(input=frozenset({"image"}))

    async def stream(self, messages: Any, tools: Any = (), options: Any = ChatOptions()) -> Any:
        self._asked.append(messages[-1].content)
        async for delta in super().stream(messages, tools, options):
            yield delta


async def test_an_uploaded_image_is_shown_to_a_model_that_takes_images_and_stored_once(folder: Path) -> None:
    """Its bytes are in the folder of uploads and in no message; of another file the model gets the name, and a warning is sent."""
    asked: list[Any] = []
    app = make_application(folder)
    app.models = ModelPool(lambda provider, model: Seeing(asked))
    async with serving(app) as (client, _):
        image = (await send(client, chatId="c"))["upload"]["id"]
        paper = (await send(client, "a.pdf", b"%PDF-1.7", "application/pdf", chatId="c"))["upload"]["id"]
        seen = await ask(client, agentKey="plain", chatId="c", references=[{"id": image}, {"id": paper}])
        state = (await client.get("/api/threads/c/state")).json()["data"]["values"]
        gone = {"id": image, "as": "part"}
        (folder / "checkpoints" / "uploads" / "c.files" / image).unlink()
        failed = await ask(client, agentKey="plain", chatId="c", references=[gone])
    text, part = asked[0]
    assert (part.data, part.media_type, part.name) == (PNG, "image/png", "cat.png")
    assert "cat.png" not in text.text and "a.pdf" in text.text
    (warned,) = [event["data"]["warning"] for event in seen.events if event["type"] == "node.progress"]
    assert (warned["code"], warned["name"]) == ("part_not_shown", "a.pdf")
    assert isinstance(state["messages"][0]["content"], str)
    assert failed.events[-1]["error"]["code"] == "validation"
    assert "its bytes are not on this server" in failed.events[-1]["error"]["message"]


@pytest.mark.parametrize("links", [True, False], ids=["links", "a disk without links"])
async def test_a_fork_has_the_uploads_of_its_chat_also_when_that_is_deleted(
    folder: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr("os.link", _no_links(os.link))
    asked: list[Any] = []
    app = make_application(folder)
    app.models = ModelPool(lambda provider, model: Seeing(asked))
    async with serving(app) as (client, _):
        image = (await send(client, chatId="c"))["upload"]["id"]
        await ask(client, agentKey="plain", chatId="c", references=[{"id": image}])
        later = (await send(client, "later.png", chatId="c"))["upload"]["id"]
        response = await client.post("/api/threads/c/fork", json={"threadId": "f"})
        assert response.status_code == 200, response.text
        assert (await client.delete("/api/threads/c")).status_code == 200
        asked.clear()
        await ask(client, agentKey="plain", chatId="f", references=[{"id": image}])
        assert not any(later in path for path in kept(folder))
        assert (await client.delete("/api/threads/f")).status_code == 200
    assert asked[0][1].data == PNG
    assert kept(folder) == {}


def _no_links(link: Any) -> Any:
    """For plain paths: how workspaces put a file in its place is not what is tried here."""

    def refuse(*paths: Any, **options: Any) -> None:
        if not options:
            raise OSError(1, "Operation not permitted")
        link(*paths, **options)

    return refuse
