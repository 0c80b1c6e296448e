"""What a server writes, only its own user may read: files are made 0600, folders 0700, whatever the umask is."""

from __future__ import annotations

import dataclasses
import io
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from graphflow.checkpoints.open_store import open_store
from graphflow.cli.terminal.lines_file import write_lines
from graphflow.memory.chat_files import ChatFiles
from graphflow.private_files import make_private_file, make_private_folder
from graphflow.service.application import Application
from graphflow.service.uploads import upload
from graphflow.settings import load_settings
from tests.server.conftest import serving
from tests.server.test_uploads import send
from tests.server.test_users import ANN, OPS, with_tokens
from tests.service.conftest import write_agents
from tests.tools.fakes import tool_context


@pytest.fixture(autouse=True, params=[0o000, 0o022], ids="{:03o}".format)
def open_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Every file and folder below, and its mode."""
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


def assert_private(folder: Path) -> None:
    found = modes(folder)
    assert found
    for name, mode in found.items():
        assert mode == (0o700 if (folder / name).is_dir() else 0o600), f"{name} has mode {mode:o}"


async def test_the_store_and_what_sqlite_puts_beside_it(tmp_path: Path):
    settings = load_settings(tmp_path, environ={})
    store = open_store(settings.store)
    await store.assign("thread", "ann", now=1)
    assert {"checkpoints/threads.db", "checkpoints/threads.db-wal", "checkpoints/threads.db-shm"} <= set(
        modes(tmp_path)
    )
    assert_private(tmp_path)
    await store.close()


async def test_the_memory_tables(tmp_path: Path):
    async with Application(load_settings(tmp_path, environ={})) as app:
        await app.long_term.put(("a",), "k", {"v": 1})
        assert "checkpoints/memory.db" in modes(tmp_path)
        assert_private(tmp_path / "checkpoints")


async def test_uploads(tmp_path: Path):
    async with Application(load_settings(tmp_path, environ={})) as app:
        await upload(app, io.BytesIO(b"data"), name="a.txt", chat_id="trip")
        assert len(modes(tmp_path / "checkpoints" / "uploads")) == 4
        assert_private(tmp_path / "checkpoints")


def test_chat_records(tmp_path: Path):
    files = ChatFiles(tmp_path / "chats", "UTF-8")
    for text in ("one", "two"):  # the second replaces the first
        files.write("trip", {"runId": "r", "messages": [{"role": "user", "content": text}]})
    assert "chats/trip.json" in modes(tmp_path)
    assert_private(tmp_path)


async def test_everything_that_a_server_writes_in_a_whole_run(tmp_path: Path):
    """A chat with an upload, a question, a workspace, a memory, a fork, a metric and an export, looked at while it runs."""
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    write_agents(folder)
    application = with_tokens(folder)
    before = set(modes(tmp_path))
    async with serving(application) as (client, _):
        await send(client, chatId="trip", headers=ANN)
        run = {"message": "hi", "chatId": "trip", "stream": False}
        for agent in ("plain", "ask"):
            assert (await client.post("/api/query", json={**run, "agentKey": agent}, headers=ANN)).status_code == 200
        put = await client.put("/api/memory/notes/k", json={"value": {"v": 1}}, headers=ANN)
        assert put.status_code == 200, put.text
        forked = await client.post("/api/threads/trip/fork", json={"threadId": "fork"}, headers=OPS)
        assert forked.status_code == 200
        bash = application.tools.get("bash")
        assert bash is not None
        await bash.call({"command": "pwd"}, dataclasses.replace(tool_context(), thread_id="trip"))
        await write_lines(tmp_path / "export.jsonl", application.store.export_thread("trip"))
        found = {name: mode for name, mode in modes(tmp_path).items() if name not in before}
    for part in (
        "threads.db",
        "threads.db-wal",
        "threads.db-shm",
        "memory.db",
        "chats/trip.json",
        "uploads/trip.files",
    ):
        assert f"server/checkpoints/{part}" in found
    assert {"server/workspaces/ann", "export.jsonl"} <= set(found)
    found |= {name: mode for name, mode in modes(tmp_path).items() if name not in before}
    wrong = {
        name: f"{mode:o}" for name, mode in found.items() if mode != (0o700 if (tmp_path / name).is_dir() else 0o600)
    }
    assert {name: mode for name, mode in wrong.items() if (tmp_path / name).exists()} == {}


async def test_an_export_replaces_no_link_and_follows_none(tmp_path: Path):
    (tmp_path / "target").write_text("old", encoding="utf-8")
    (tmp_path / "out").symlink_to("target")
    (tmp_path / ".out.part").symlink_to("target")
    (tmp_path / "target").chmod(0o644)

    async def lines() -> AsyncIterator[dict[str, str]]:
        yield {"said": "hi"}

    await write_lines(tmp_path / "out", lines())
    assert (tmp_path / "target").read_text(encoding="utf-8") == "old"
    assert stat.S_IMODE((tmp_path / "out").lstat().st_mode) == 0o600


def test_what_exists_keeps_its_mode_and_content(tmp_path: Path):
    (tmp_path / "there").mkdir(mode=0o750)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    make_private_folder(tmp_path / "there")
    make_private_file(tmp_path / "file")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x"
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o750
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]
