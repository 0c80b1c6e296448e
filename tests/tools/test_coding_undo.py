"""A write of the coding tools is taken back, and after a crash it is known what it did."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from graphflow import GraphflowError
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.testing.tool_envelope_conformance import assert_envelope
from tests.tools.coding_folder import CodingFolder, code_of

READ = ("Read", {"path": "a.txt"})
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("Write", {"path": "a.txt", "content": "new\n"}),
    ("Edit", {"path": "a.txt", "old_string": "one", "new_string": "two"}),
    ("MultiEdit", {"path": "a.txt", "edits": [{"old_string": "one", "new_string": "two"}]}),
]
SECRET = "the content from before"


@pytest.fixture
def folder(tmp_path: Path) -> CodingFolder:
    return CodingFolder(tmp_path)


async def taken_back(folder: CodingFolder, start: str) -> None:
    await folder.graph().thread("t").rewind(start, effects="undo")


async def start_of(folder: CodingFolder) -> str:
    """The checkpoint before what follows."""
    history = await folder.graph().thread("t").history()
    return history[0].id


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("size", [10, 50_000])
async def test_a_change_is_taken_back_to_the_byte(folder: CodingFolder, change: tuple[str, Any], size: int):
    before = b"one\r\n\xe4\xb8\xad" + b"x" * size
    path = folder.put("a.txt", before)
    path.chmod(0o750)
    await folder.call(*READ)
    start = await start_of(folder)
    await folder.call(*change)
    assert folder.files() != {"a.txt": before}
    await taken_back(folder, start)
    assert (folder.files(), path.stat().st_mode & 0o777) == ({"a.txt": before}, 0o750)
    assert (await folder.call(*change))["data"]["applied"], "the lock is that of then, and the file too"


async def test_changes_are_taken_back_one_after_the_other_and_a_new_file_is_removed(folder: CodingFolder):
    await folder.call("Write", {"path": "keep.txt", "content": "kept\n"})
    start = await start_of(folder)
    await folder.calls(
        ("Write", {"path": "src/a.txt", "content": "one\n"}),
        ("Edit", {"path": "src/a.txt", "old_string": "one", "new_string": "two"}),
        ("Write", {"path": "keep.txt", "content": "kept no more\n"}),
        ("Write", {"path": "keep.txt", "content": "dry", "dry_run": True}),
        ("Edit", {"path": "keep.txt", "old_string": "absent", "new_string": "x"}),
    )
    await taken_back(folder, start)
    assert folder.files() == {"keep.txt": b"kept\n"}


async def test_a_file_that_is_not_what_was_written_is_left_alone(folder: CodingFolder):
    path = folder.put("a.txt", "one\n")
    await folder.call(*READ)
    start = await start_of(folder)
    await folder.call(*CHANGES[0])
    path.write_bytes(b"by hand\n")
    with pytest.raises(GraphflowError, match="is not what was written") as caught:
        await taken_back(folder, start)
    assert (caught.value.code, "CONFLICT" in repr(caught.value.as_dict())) == ("undo_failed", True)
    assert folder.files() == {"a.txt": b"by hand\n"}


async def test_what_is_too_large_to_be_kept_is_said_to_be_lasting(folder: CodingFolder):
    folder.put("a.txt", b"one\n" + b"x" * 10_000_000)
    await folder.call(*READ)
    start = await start_of(folder)
    done = await folder.call(*CHANGES[0])
    assert (done["data"]["undoable"], "can't be undone" in done["text"]) == (False, True)
    with pytest.raises(GraphflowError, match="more than the"):
        await taken_back(folder, start)
    assert folder.files() == {"a.txt": b"new\n"}


async def test_a_model_that_calls_the_undoing_tool_changes_nothing(folder: CodingFolder):
    folder.put("a.txt", "one\n")
    assert code_of(await folder.call("restore_file", {})) == "INVALID_PARAM"
    assert code_of(await folder.call("restore_file", {"path": "a.txt"})) == "INVALID_PARAM"


@pytest.mark.parametrize("size", [0, 9_000_000])
async def test_what_is_kept_is_stored_once_and_shown_to_nobody(tmp_path: Path, size: int):
    """The content before is in the store for an undo; no event, message, state or effect has it."""
    store = SqliteCheckpointer(tmp_path / "threads.db")
    folder = CodingFolder(tmp_path, store)
    path = folder.put("a.txt", SECRET.encode() + b"x" * size)
    graph = folder.graph()
    seen: list[Any] = []
    change = {"path": "a.txt", "content": "new\n"}
    for _ in range(4):
        path.write_bytes(SECRET.encode() + b"x" * size)
        calls = [{"name": "Read", "arguments": {"path": "a.txt", "limit": 1}}, {"name": "Write", "arguments": change}]
        async for event in graph.stream({"calls": calls}, "t"):
            seen.append(event)
    thread = graph.thread("t")
    history = await thread.history()
    effects = [effect.as_dict() for effect in await thread.effects(history[-1].id)]
    assert len(effects) == 4
    assert SECRET not in repr(effects)
    # The model reads what it asked for, and the line that the diff shows, no more.
    assert not any("x" * 20_000 in repr(event) for event in seen)
    await store.close()
    stored = sum(file.stat().st_size for file in tmp_path.glob("threads.db*"))
    assert stored < 2 * size + 2_000_000


POINTS = [
    ("open", 1, "after"),
    ("sync", 1, "before"),
    ("rename", 1, "before"),
    ("rename", 1, "after"),
    ("sync", 2, "after"),
]


async def killed(base: Path, point: tuple[str, int, str], change: tuple[str, Any]) -> None:
    """Runs a writer until it kills itself."""
    command = [sys.executable, "-m", "tests.tools.killed_writer", str(base), *map(str, point), json.dumps(change)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()


async def resumed(folder: CodingFolder) -> dict[str, Any]:
    """The envelope of the write that was cut off, after the run has gone on by itself."""
    result = await folder.graph().resume("t")
    assert result.status == "completed", result
    envelope: dict[str, Any] = json.loads(result.state["messages"][-1].text)
    assert_envelope(envelope)
    return envelope


KILLS = [*((point, CHANGES[1]) for point in POINTS), (POINTS[2], CHANGES[0]), (POINTS[3], CHANGES[2])]


@pytest.mark.parametrize(("point", "change"), KILLS)
async def test_a_killed_write_leaves_the_old_or_the_new_file_and_ends_as_a_success(
    tmp_path: Path, point: tuple[str, int, str], change: tuple[str, Any]
):
    before = CodingFolder(tmp_path)
    before.put("a.txt", "one\n")
    after = b"new\n" if change[0] == "Write" else b"two\n"
    await killed(tmp_path, point, change)
    assert (before.root / "a.txt").read_bytes() in (b"one\n", after)
    folder = CodingFolder(tmp_path, SqliteCheckpointer(tmp_path / "threads.db"))
    assert (await resumed(folder))["data"]["applied"] is True
    again = await folder.call("Write", {"path": "a.txt", "content": "later\n"})
    assert (again["status"], folder.files()) == ("success", {"a.txt": b"later\n"})
    await folder.store.close()


async def test_a_killed_write_whose_file_somebody_changed_since_is_asked_about(tmp_path: Path):
    CodingFolder(tmp_path).put("a.txt", "one\n")
    await killed(tmp_path, ("rename", 1, "after"), CHANGES[0])
    folder = CodingFolder(tmp_path, SqliteCheckpointer(tmp_path / "threads.db"))
    folder.put("a.txt", "by hand\n")
    result = await folder.graph().resume("t")
    [asked] = result.interrupts
    assert (result.status, asked.kind) == ("waiting", "outcome_unknown")
    assert folder.files() == {"a.txt": b"by hand\n"}
    await folder.store.close()
