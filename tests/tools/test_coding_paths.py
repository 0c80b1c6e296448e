"""Paths of the coding tools: nothing outside the workspace is read, changed or revealed, whatever the path is."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphflow.testing.tool_envelope_conformance import assert_envelope
from graphflow.tools.envelope import json_text, to_envelope
from graphflow.tools.workspace.system import FOLDER, System
from tests.tools.coding_folder import CodingFolder, code_of
from tests.tools.fakes import tool_context

TOOLS: dict[str, dict[str, Any]] = {
    "Read": {},
    "Write": {"content": "changed\n"},
    "Edit": {"old_string": "a", "new_string": "b"},
    "MultiEdit": {"edits": [{"old_string": "a", "new_string": "b"}]},
}


@pytest.fixture
def folder(tmp_path: Path) -> CodingFolder:
    folder = CodingFolder(tmp_path)
    folder.put("a/b/c.txt", "a\n")
    links = {
        "out": "../out/secret", "out-folder": "../out", "chain": "chain2", "chain2": "out", "loop": "loop",
        "absolute": str(folder.secret), "new-out": "../out/new", "root": "/",
    }  # fmt: skip
    for name, target in links.items():
        (folder.root / name).symlink_to(target)
    os.mkfifo(folder.root / "pipe")
    return folder


DENIED, MISSING, INVALID = {"ACCESS_DENIED"}, {"NOT_FOUND"}, {"INVALID_PARAM"}
PATHS: list[tuple[Any, set[str]]] = [
    ("../secret", DENIED), ("a/../../secret", DENIED), ("a/b/../../../x", DENIED), ("/etc/passwd", DENIED),
    ("../out/secret", DENIED), ("../out/missing", DENIED), ("out", DENIED), ("out-folder/secret", DENIED), ("chain", DENIED),
    ("absolute", DENIED), ("new-out", DENIED), ("root/etc/passwd", DENIED), ("/", DENIED), ("..", DENIED),
    ("loop", INVALID), ("a\0b", INVALID), ("ok.txt\0.png", INVALID), ("", INVALID), ("   ", INVALID), ("a\nb", INVALID),
    (".", {"IS_DIRECTORY"}), ("a", {"IS_DIRECTORY"}), ("pipe", INVALID), ("\ud800", INVALID), ("x" * 5000, INVALID), ("x" * 256, INVALID),
    (["a"], INVALID), (7, INVALID), (None, INVALID), (True, INVALID), ("a/b/c.txt/d", INVALID),
]  # fmt: skip
LITERAL = [
    "%2e%2e/x",
    "..%2fsecret",
    "．．/x",
    "‥/x",
    "..\\secret",
    "C:\\x",
    "\\\\host\\share",
    "file:///etc/passwd",
    "~/x",
    "$HOME",
]


async def called(folder: CodingFolder, name: str, path: Any) -> dict[str, Any]:
    tool = next(tool for tool in folder.tools if tool.name == name)
    envelope = to_envelope(await tool.call({**TOOLS[name], "path": path}, tool_context()))
    json_text(envelope) if path != "\ud800" else None
    assert_envelope(envelope, tool=name)
    return envelope


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize(("path", "codes"), PATHS, ids=[ascii(path)[:30] for path, _ in PATHS])
async def test_a_path_that_is_none_or_leads_out_is_refused_and_nothing_changes(
    folder: CodingFolder, name: str, path: Any, codes: set[str]
):
    before = folder.files()
    refused = await called(folder, name, path)
    assert code_of(refused) in codes
    assert folder.files() == before
    assert sorted(each.name for each in folder.out.iterdir()) == ["secret"]
    assert folder.secret.read_bytes() == b"what nobody may see\n"


@pytest.mark.parametrize("name", ["Read", "Edit", "MultiEdit"])
@pytest.mark.parametrize("path", LITERAL)
async def test_a_path_is_taken_literally(folder: CodingFolder, name: str, path: str):
    assert code_of(await called(folder, name, path)) == "NOT_FOUND"


@pytest.mark.parametrize("path", LITERAL)
async def test_a_literal_name_is_written_inside(folder: CodingFolder, path: str):
    before = set(folder.files())
    assert code_of(await called(folder, "Write", path)) == "success"
    assert len(set(folder.files()) - before) == 1
    assert sorted(each.name for each in folder.out.iterdir()) == ["secret"]


@pytest.mark.parametrize("name", TOOLS)
async def test_an_absolute_path_inside_works_and_is_shown_relative(folder: CodingFolder, name: str):
    path = str(folder.root / "a" / "b" / "c.txt")
    await folder.call("Read", {"path": "a/b/c.txt"})
    done = await folder.call(name, {**TOOLS[name], "path": path})
    assert (done["status"], done["context"]["path_resolved"]) == ("success", "a/b/c.txt")


@pytest.mark.parametrize("name", TOOLS)
async def test_what_exists_outside_and_what_does_not_are_refused_alike(folder: CodingFolder, name: str):
    texts = [(await called(folder, name, f"../out/{end}"))["text"].replace(end, "X") for end in ("secret", "nothing")]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", TOOLS)
async def test_a_root_that_is_given_by_a_link_works(tmp_path: Path, name: str):
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    folder = CodingFolder(tmp_path)
    folder.put("a.txt", "a\n")
    done = (await folder.calls(("Read", {"path": "a.txt"}), (name, {**TOOLS[name], "path": "a.txt"})))[1]
    assert (done["status"], done["context"]["path_resolved"]) == ("success", "a.txt")


async def test_a_name_in_another_unicode_form_is_another_file_and_hinted_at(folder: CodingFolder):
    folder.put("cafe\u0301.txt", "a\n")
    refused = await called(folder, "Read", "caf\u00e9.txt")
    assert (code_of(refused), "other characters" in refused["error"]["message"]) == ("NOT_FOUND", True)


async def test_a_socket_is_refused_at_once(folder: CodingFolder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder.root)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        assert {code_of(await called(folder, name, "s")) for name in TOOLS} == {"INVALID_PARAM"}


class Closed(System):
    """Refuses a file as the system does for anybody but the superuser, for whom tests may run."""

    def open(self, name: str, flags: int, folder: int, mode: int = 0o600) -> int:
        if name == "closed.txt":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return super().open(name, flags, folder, mode)

    def open_beneath(self, folder: int, path: str, flags: int = FOLDER) -> int:
        if path.endswith("closed.txt") and not flags & os.O_PATH:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().open_beneath(folder, path, flags)


@pytest.mark.parametrize("name", TOOLS)
async def test_what_may_not_be_opened_is_no_missing_file(tmp_path: Path, name: str):
    folder = CodingFolder(tmp_path, system=Closed())
    folder.put("closed.txt", "a\n").chmod(0)
    assert code_of(await called(folder, name, "closed.txt")) == "PERMISSION_DENIED"


async def test_two_new_files_of_one_name_are_one_success_and_one_conflict(folder: CodingFolder):
    made = await asyncio.gather(*(called(folder, "Write", "new.txt") for _ in range(8)))
    codes = sorted(map(code_of, made))
    assert codes.count("success") == 1
    assert set(codes) <= {"success", "CONFLICT", "INVALID_PARAM"}, "read first, or made by another meanwhile"


async def test_two_threads_share_neither_lock_nor_folder(tmp_path: Path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = CodingFolder(tmp_path / "one"), CodingFolder(tmp_path / "two")
    for folder in (one, two):
        folder.put("a.txt", "a\n")
    await one.call("Read", {"path": "a.txt"})
    assert code_of(await two.call("Write", {"path": "a.txt", "content": "b\n"})) == "INVALID_PARAM"
    assert (await one.call("Write", {"path": "a.txt", "content": "b\n"}))["status"] == "success"
    assert (one.files(), two.files()) == ({"a.txt": b"b\n"}, {"a.txt": b"a\n"})


class Swapping(System):
    """Exchanges a folder with a link to outside before one call, and back before the next."""

    def __init__(self, root: Path, at: int) -> None:
        super().__init__()
        self._root, self._left = root, at
        for name in (
            "open",
            "open_beneath",
            "facts",
            "facts_of",
            "link_target",
            "rename",
            "link",
            "sync",
            "may_write",
            "names",
        ):
            setattr(self, name, self._swapping(getattr(System, name).__get__(self)))

    def _swapping(self, real: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left in (0, -1):
                folder, spare, third = (self._root / name for name in ("sub", "spare", "third"))
                folder.rename(third)
                spare.rename(folder)
                third.rename(spare)
            return real(*given, **options)

        return call


@pytest.mark.parametrize("name", ["Read", "Write"])
async def test_a_folder_that_is_swapped_at_any_step_leaks_nothing(tmp_path: Path, name: str):
    """As often as the tool asks the operating system, each time before another question."""
    steps = 45
    for at in range(1, steps):
        base = tmp_path / str(at)
        base.mkdir()
        folder = CodingFolder(base)
        folder.put("sub/secret" if name == "Read" else "sub/own", "inside\n")
        (folder.root / "spare").symlink_to("../out")
        swapping = CodingFolder(base, system=Swapping(folder.root, at))
        path = "sub/secret" if name == "Read" else "sub/new"
        await called(swapping, name, path)
        assert [(each.name, each.read_bytes()) for each in folder.out.iterdir()] == [
            ("secret", b"what nobody may see\n")
        ]
        left = [each for each in folder.files() if each.endswith(".part")]
        assert left == [], f"step {at}"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["path", "content", "limit", "start_line", "old_string", "new_string", "edits", "dry_run", "todos", "summary"]
)


@given(
    name=st.sampled_from([*TOOLS, "TodoWrite"]),
    arguments=st.dictionaries(NAMES | st.text(max_size=5), VALUES, max_size=5),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_arguments_are_the_answer_is_an_envelope(
    tmp_path_factory: pytest.TempPathFactory, name: str, arguments: Any
):
    folder = CodingFolder(tmp_path_factory.mktemp("any"))
    tool = next(tool for tool in folder.tools if tool.name == name)
    assert_envelope(to_envelope(asyncio.run(tool.call(arguments, tool_context()))), tool=name)
    assert folder.secret.read_bytes() == b"what nobody may see\n"
