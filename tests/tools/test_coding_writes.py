"""`Write`, `Edit`, `MultiEdit`: what they write, what they keep as it was, and what they refuse."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.tools.context import ThreadNotes
from tests.needs import need
from tests.tools.coding_folder import CodingFolder, code_of
from tests.tools.fakes import tool_context


@pytest.fixture
def folder(tmp_path: Path) -> CodingFolder:
    return CodingFolder(tmp_path)


def edit(old: str, new: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "Edit", {"path": "a.txt", "old_string": old, "new_string": new, **more}


def multi(*edits: tuple[str, str], **more: Any) -> tuple[str, dict[str, Any]]:
    return "MultiEdit", {"path": "a.txt", "edits": [{"old_string": o, "new_string": n} for o, n in edits], **more}


def write(content: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "Write", {"path": "a.txt", "content": content, **more}


READ = ("Read", {"path": "a.txt"})
CHANGES = [write("new\n"), edit("one", "two"), multi(("one", "two"))]


async def test_a_new_file_is_written_with_its_folders(folder: CodingFolder):
    made = await folder.call("Write", {"path": "src/deep/a.py", "content": "x = 1\n"})
    assert (made["status"], made["data"]["applied"], made["data"]["operation"]) == ("success", True, "create")
    assert made["context"]["path_resolved"] == "src/deep/a.py"
    assert folder.files() == {"src/deep/a.py": b"x = 1\n"}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_file_that_the_thread_has_not_read_is_not_changed(folder: CodingFolder, change: tuple[str, Any]):
    folder.put("a.txt", "one\n")
    await folder.call(*READ, thread="another")
    refused = await folder.call(*change)
    assert (code_of(refused), "Read the file before" in refused["error"]["message"]) == ("INVALID_PARAM", True)
    assert folder.files() == {"a.txt": b"one\n"}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_file_that_was_read_is_changed_and_may_be_changed_again_without_another_read(
    folder: CodingFolder, change: tuple[str, Any]
):
    folder.put("a.txt", "one\n")
    read, first, second = await folder.calls(READ, change, write("last\n"))
    assert [each["status"] for each in (read, first, second)] == ["success"] * 3
    assert folder.files() == {"a.txt": b"last\n"}


@pytest.mark.parametrize("change", CHANGES)
async def test_the_lock_is_the_thread_s_also_after_a_restart(tmp_path: Path, change: tuple[str, Any]):
    path = tmp_path / "threads.db"
    before = CodingFolder(tmp_path, SqliteCheckpointer(path))
    before.put("a.txt", "one\n")
    await before.call("Read", {"path": "a.txt", "limit": 1})
    await before.store.close()
    after = CodingFolder(tmp_path, SqliteCheckpointer(path))
    assert (await after.call(*change))["status"] == "success"
    assert (await after.call(*write("again\n")))["status"] == "success"
    await after.store.close()


def restored(path: Path, data: bytes) -> None:
    facts = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("data", [b"one, and more\n", b"0ne\n"])
async def test_a_file_that_others_changed_is_a_conflict_whatever_its_size_and_time(
    folder: CodingFolder, change: tuple[str, Any], data: bytes
):
    path = folder.put("a.txt", "one\n")
    await folder.call(*READ)
    restored(path, data)
    assert code_of(await folder.call(*change)) == "CONFLICT"
    assert folder.files() == {"a.txt": data}
    again = await folder.call(*READ)
    assert again["data"]["modified_externally"] is True


@pytest.mark.parametrize("change", CHANGES)
async def test_the_same_content_in_another_file_with_another_time_is_no_conflict(
    folder: CodingFolder, change: tuple[str, Any]
):
    path = folder.put("a.txt", "one\n")
    await folder.call(*READ)
    path.rename(folder.root / "old")
    folder.put("a.txt", "one\n")
    os.utime(folder.root / "a.txt", ns=(1, 1))
    assert (await folder.call(*change))["status"] == "success"


@pytest.mark.parametrize("change", CHANGES)
async def test_what_took_the_place_of_a_file_is_not_changed(folder: CodingFolder, change: tuple[str, Any]):
    path = folder.put("a.txt", "one\n")
    await folder.call(*READ)
    path.unlink()
    assert code_of(await folder.call(*change)) == ("CONFLICT" if change[0] == "Write" else "NOT_FOUND")
    path.mkdir()
    assert code_of(await folder.call(*change)) == "IS_DIRECTORY"
    path.rmdir()
    path.symlink_to(folder.secret)
    assert code_of(await folder.call(*change)) == "ACCESS_DENIED"
    assert folder.secret.read_bytes() == b"what nobody may see\n"
    path.unlink()
    assert code_of(await folder.call(*READ)) == "NOT_FOUND"
    assert (await folder.call(*write("anew\n")))["data"]["operation"] == "create"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["expected_mtime_ms", "expected_size_bytes"])
async def test_expected_facts_only_tighten_the_lock(folder: CodingFolder, change: tuple[str, Any], name: str):
    folder.put("a.txt", "one\n")
    facts = (await folder.call(*READ))["stats"]
    right = facts["file_mtime_ms" if name == "expected_mtime_ms" else "file_size_bytes"]
    tool, arguments = change
    assert code_of(await folder.call(tool, {**arguments, name: right + 1})) == "CONFLICT"
    assert folder.files() == {"a.txt": b"one\n"}
    assert (await folder.call(tool, {**arguments, name: right}))["status"] == "success"
    assert code_of(await folder.call(tool, {**arguments, name: right}, thread="other")) == "INVALID_PARAM"


@pytest.mark.parametrize("change", CHANGES)
async def test_a_dry_run_changes_nothing_and_shows_what_would(folder: CodingFolder, change: tuple[str, Any]):
    path = folder.put("a.txt", "one\n")
    await folder.call(*READ)
    before = path.stat()
    tool, arguments = change
    dry = await folder.call(tool, {**arguments, "dry_run": True})
    assert (dry["status"], dry["data"]["applied"], "-one" in dry["data"]["diff_preview"]) == ("partial", False, True)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert (await folder.call(*change))["data"]["applied"] is True


BYTES = [
    ("crlf", b"a\r\nb\r\nc\r\n", ("b", "x\ny"), b"a\r\nx\r\ny\r\nc\r\n"),
    ("crlf anchor in lf", b"a\r\nb\r\nc", ("a\nb", "a\nb\nb2"), b"a\r\nb\r\nb2\r\nc"),
    ("mixed", b"a\r\nb\nc\r\nd\n", ("b\nc", "b\nnew\nc"), b"a\r\nb\nnew\r\nc\r\nd\n"),
    ("lone cr", b"a\rb\nc\n", ("c", "d"), b"a\rb\nd\n"),
    ("no final newline", b"a\nb", ("b", "c"), b"a\nc"),
    ("utf-8 bom", b"\xef\xbb\xbfone\n", ("one", "two"), b"\xef\xbb\xbftwo\n"),
    ("utf-16", "one\n".encode("utf-16"), ("one", "zwölf"), "zwölf\n".encode("utf-16")),
    ("utf-16-be", b"\xfe\xff" + "one\r\n".encode("utf-16-be"), ("one", "1\n2"), b"\xfe\xff" + "1\r\n2\r\n".encode("utf-16-be")),
    ("literal", b"one\n", ("one", r"\1 $& \g<0> \\"), b"\\1 $& \\g<0> \\\\\n"),
    ("separators", "a\u2028b\x0cc\x85\n".encode(), ("b", "B"), "a\u2028B\x0cc\x85\n".encode()),
    ("deletion", b"one\ntwo\n", ("one\n", ""), b"two\n"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "change", "after"), [row[1:] for row in BYTES], ids=[row[0] for row in BYTES])
@pytest.mark.parametrize("tool", [edit, multi])
async def test_every_byte_beside_an_edit_stays(
    folder: CodingFolder, tool: Any, data: bytes, change: tuple[str, str], after: bytes
):
    folder.put("a.txt", data)
    done = (await folder.calls(READ, tool(*change) if tool is edit else tool(change)))[1]
    assert (done["status"], done["data"]["replacements"], folder.files()) == ("success", 1, {"a.txt": after})


@pytest.mark.parametrize(
    ("data", "after"),
    [
        (b"\xef\xbb\xbfone\r\n", b"\xef\xbb\xbfn\xc3\xa4w\n"),
        ("one\n".encode("utf-16"), "näw\n".encode("utf-16")),
        (b"\xd6\xd0\n", b"n\xc3\xa4w\n"),
        (b"", b"n\xc3\xa4w\n"),
    ],
)
async def test_write_keeps_encoding_and_mark_and_nothing_else_of_the_content(
    folder: CodingFolder, data: bytes, after: bytes
):
    folder.put("a.txt", data)
    assert (await folder.calls(READ, write("näw\n")))[1]["status"] == "success"
    assert folder.files() == {"a.txt": after}


REFUSED = [
    ("absent", edit("three", "x"), "occurs 0 times"),
    ("twice", edit("o", "x"), "occurs 3 times"),
    ("empty", edit("", "x"), "is empty"),
    ("equal", edit("one", "one"), "nothing would change"),
    ("nul", edit("one", "a\0b"), "NUL"),
    ("nul in content", write("a\0b"), "NUL"),
    ("near: tabs", edit("\tone   two", "x"), "   1 | one two"),
    ("near: quotes", edit("say \u201chi\u201d", "x"), '   2 | say "hi" o'),
    ("unknown parameter", edit("one", "two", regex=True), "regex"),
    ("missing parameter", ("Edit", {"path": "a.txt", "old_string": "one"}), "new_string"),
    ("wrong type", write("x", dry_run="yes"), "dry_run"),
    ("second edit", multi(("one", "1"), ("three", "3")), "edits[1]: old_string occurs 0 times"),
    ("overlap", multi(("one two", "x"), ("two\nsay", "y")), "overlaps"),
    ("on a new text", multi(("one", "three"), ("three", "x")), "edits[1]"),
    ("no edits", multi(), "edits"),
    ("too many edits", multi(*[("a", "b")] * 10_000), "edits"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_an_edit_that_does_not_fit_changes_nothing_and_says_why(
    folder: CodingFolder, change: tuple[str, Any], said: str
):
    path = folder.put("a.txt", 'one two\nsay "hi" o\n')
    path.chmod(0o640)
    refused = (await folder.calls(READ, change))[1]
    assert (code_of(refused), folder.files()) == ("INVALID_PARAM", {"a.txt": b'one two\nsay "hi" o\n'})
    assert said in refused["error"]["message"]
    assert path.stat().st_mode & 0o7777 == 0o640


@pytest.mark.parametrize("change", [edit("one", "\ud800"), write("\ud800"), multi(("one", "\udfff"))])
async def test_half_a_character_is_refused_where_python_gives_it(folder: CodingFolder, change: tuple[str, Any]):
    """No JSON text can hold it, so no model's call has it."""
    folder.put("a.txt", "one\n")
    context = dataclasses.replace(tool_context(), notes=ThreadNotes())
    tools = {tool.name: tool for tool in folder.tools}
    await tools["Read"].call({"path": "a.txt"}, context)
    refused = await tools[change[0]].call(change[1], context)
    assert refused.error is not None and refused.error.code == "INVALID_PARAM"
    assert folder.files() == {"a.txt": b"one\n"}


async def test_multi_edit_names_the_edit_that_failed_in_its_data(folder: CodingFolder):
    folder.put("a.txt", "one two\n")
    refused = (await folder.calls(READ, multi(("one", "1"), ("three", "3"))))[1]
    assert refused["data"] == {"failed_index": 1}


@pytest.mark.parametrize("data", [b"\xd6\xd0\xce\xc4|\n", b"good\n" * 999 + b"\xff\n"])
async def test_bytes_that_are_no_text_are_never_edited(folder: CodingFolder, data: bytes):
    folder.put("a.txt", data)
    refused = (await folder.calls(READ, edit("|", "x")))[1]
    assert (code_of(refused), folder.files()) == ("INVALID_PARAM", {"a.txt": data})


async def test_replace_all_replaces_each_once_from_left_to_right(folder: CodingFolder):
    folder.put("a.txt", "aaaaa\r\n" * 200_000)
    done = (await folder.calls(READ, edit("aa", "b", replace_all=True)))[1]
    assert (done["status"], done["data"]["replacements"]) == ("partial", 400_000)
    assert done["data"]["diff_truncated"] is True
    assert folder.files() == {"a.txt": b"bba\r\n" * 200_000}


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o2755, 0o4711])
@pytest.mark.parametrize("change", CHANGES)
async def test_the_mode_of_a_file_stays(folder: CodingFolder, mode: int, change: tuple[str, Any]):
    path = folder.put("a.txt", "one\n")
    path.chmod(mode)
    assert (await folder.calls(READ, change))[1]["status"] == "success"
    assert path.stat().st_mode & 0o7777 == mode


def keeps_attributes(path: Path) -> bool:
    try:
        os.setxattr(path, "user.try", b"")
        os.removexattr(path, "user.try")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("change", CHANGES)
async def test_attributes_and_owner_of_a_file_stay(folder: CodingFolder, change: tuple[str, Any]):
    path = folder.put("a.txt", "one\n")
    need(keeps_attributes(path), "a file system that keeps attributes")
    os.setxattr(path, "user.note", b"kept")
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    before = path.stat()
    assert (await folder.calls(READ, change))[1]["status"] == "success"
    after = path.stat()
    assert (os.getxattr(path, "user.note"), after.st_uid, after.st_gid) == (b"kept", before.st_uid, before.st_gid)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_file_with_a_second_name_or_that_is_read_only_is_not_written(
    folder: CodingFolder, change: tuple[str, Any]
):
    path = folder.put("a.txt", "one\n")
    await folder.call(*READ)
    os.link(path, folder.out / "same")
    assert code_of(await folder.call(*change)) == "ACCESS_DENIED"
    (folder.out / "same").unlink()
    path.chmod(0o444)
    assert code_of(await folder.call(*change)) == "PERMISSION_DENIED"
    assert folder.files() == {"a.txt": b"one\n"}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_link_inside_stays_a_link_and_its_target_is_changed(folder: CodingFolder, change: tuple[str, Any]):
    target = folder.put("real.txt", "one\n")
    (folder.root / "a.txt").symlink_to("real.txt")
    assert (await folder.calls(READ, change))[1]["context"]["path_resolved"] == "real.txt"
    assert (folder.root / "a.txt").is_symlink()
    assert target.read_bytes() != b"one\n"


async def test_a_file_takes_the_place_of_a_folder_nowhere(folder: CodingFolder):
    folder.put("file", "x\n")
    (folder.root / "dir").mkdir()
    assert code_of(await folder.call("Write", {"path": "file/a.txt", "content": "x"})) == "INVALID_PARAM"
    assert code_of(await folder.call("Write", {"path": "dir", "content": "x"})) == "IS_DIRECTORY"
    assert code_of(await folder.call("Write", {"path": "dir/", "content": "x"})) == "IS_DIRECTORY"
    assert folder.files() == {"file": b"x\n"}


@pytest.mark.parametrize("path", ["graphs/evil.json", "graphs/tools/evil.backend", ".env", "graphflow.toml"])
async def test_what_says_what_agents_may_do_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str):
    from graphflow.settings import load_settings
    from graphflow.tools.coding import coding_tools
    from graphflow.tools.workspace import ProtectedFiles
    from graphflow.tools.workspace.homes import Workspaces

    folder = CodingFolder(tmp_path)
    settings = load_settings(folder.root, environ={})
    folder.tools = coding_tools(Workspaces(folder.root, protected=ProtectedFiles.of(settings)))
    (folder.root / "graphs" / "tools").mkdir(parents=True)
    assert code_of(await folder.call("Write", {"path": path, "content": "{}"})) == "ACCESS_DENIED"
    assert folder.files() == {}


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".GIT/config", "sub/.git/config"])
async def test_what_git_runs_is_not_written(folder: CodingFolder, path: str):
    (folder.root / ".git" / "hooks").mkdir(parents=True)
    assert code_of(await folder.call("Write", {"path": path, "content": "#!/bin/sh\n"})) == "ACCESS_DENIED"
    assert folder.files() == {}


async def test_a_note_of_omission_is_written_as_it_is_and_warned_of(folder: CodingFolder):
    made = await folder.call("Write", {"path": "a.py", "content": "x = 1\n# ... rest of file unchanged\n"})
    assert "Warning" in made["text"]
    assert folder.files() == {"a.py": b"x = 1\n# ... rest of file unchanged\n"}


async def test_long_arguments_are_shortened_in_what_the_model_reads(folder: CodingFolder):
    made = await folder.call(*write("x" * 100_000))
    assert made["status"] == "success" or made["data"]["truncated"]
    assert len(json.dumps(made)) < 20_000
    assert folder.files() == {"a.txt": b"x" * 100_000}


async def test_what_a_dead_writer_left_is_removed_by_the_next_write_in_the_folder(folder: CodingFolder):
    folder.put("sub/.graphflow-0123456789abcdef.part", "half")
    folder.put(".graphflow-mine.part", "a file of the project")
    await folder.call("Write", {"path": "sub/a.txt", "content": "a\n"})
    await folder.call("Write", {"path": "b.txt", "content": "b\n"})
    assert set(folder.files()) == {"sub/a.txt", "b.txt", ".graphflow-mine.part"}
