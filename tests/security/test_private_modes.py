"""What a server writes, only its own user may read: files are made 0600, folders 0700, whatever the umask is."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphflow.checkpoints.open_store import open_store
from graphflow.memory.chat_files import ChatFiles
from graphflow.private_files import make_private_file, make_private_folder
from graphflow.service.application import Application
from graphflow.service.uploads import upload
from graphflow.settings import load_settings


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
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


def test_what_exists_keeps_its_mode_and_content(tmp_path: Path):
    (tmp_path / "there").mkdir(mode=0o750)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    make_private_folder(tmp_path / "there")
    make_private_file(tmp_path / "file")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x"
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o750
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]
