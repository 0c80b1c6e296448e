"""Paths of tools: whatever a model writes, it opens a file beneath the root or nothing."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphflow.tools.workspace import FileRefused, Workspace
from graphflow.tools.workspace.system import System
from tests.campaign import size
from tests.security.workspace_folder import LINKS, SECRET, code_of, root, system

__all__ = ["root", "system"]

INSIDE = {
    "a.txt": "a\n",
    "./a.txt": "a\n",
    "sub/../a.txt": "a\n",
    "sub//b.txt": "b\n",
    "sub/deep/../b.txt": "b\n",
    "in": "a\n",
    "in-absolute": "a\n",
    "in-folder/b.txt": "b\n",
    "in-folder/deep/c.txt": "c\n",
    "in-twice": "a\n",
    "in-up": "a\n",
    "sub/up": "a\n",
    "sub/self/self/b.txt": "b\n",
    "in-folder/../a.txt": "a\n",
    "{tmp}/root/a.txt": "a\n",
    "{tmp}/out/../root/a.txt": "a\n",
    "{tmp}/alias/a.txt": "a\n",
}
REFUSED = {
    "ACCESS_DENIED": [
        "..", "../", "../secret", "../out/secret", "../out/nothing", "sub/../../out/secret", "sub/deep/../../../out/secret",
        "/", "/etc/passwd", "//etc/passwd", "/nothing/at/all", "{tmp}/out/secret", "{tmp}/root-sibling/secret", "{tmp}",
        "{tmp}/root/../out/secret", "out", "out/", "out-folder", "out-folder/secret", "out-folder/nothing", "out-relative",
        "out-missing", "out-and-back", "out-twice", "out-sibling", "out-root", "out-root/etc/passwd", "magic", "magic-cwd",
        "magic-cwd/a.txt", "in-folder/../../out/secret", "sub/self/../../out/secret", "../root/a.txt",
    ],
    "NOT_FOUND": [
        "nothing", "sub/nothing", "nothing/at/all", "%2e%2e/out/secret", "..%2fsecret", "．．/secret", "‥/secret",
        "..\\secret", "C:\\x", "\\\\host\\share", "file:///etc/passwd", "~", "~root", "$HOME/x", "...", " ", "new",
        "nothing/../a.txt",
    ],
    "INVALID_PARAM": [
        "", "a\0b", "a.txt\0.png", "\ud800", "x" * 256, "sub/" + "x" * 256, "x/" * 2_100, "loop", "loop-a", "loop/x",
        "a.txt/x", "a.txt/..", "a.txt/", "fifo", "socket",
    ],
    "IS_DIRECTORY": [".", "sub", "sub/", "in-folder", "sub/deep/..", "./"],
}  # fmt: skip
CASES = [(code, path) for code, paths in REFUSED.items() for path in paths]


@pytest.fixture
def workspace(root: Path, system: System) -> Workspace:
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        os.chdir(root)
        bound.bind("socket")
    (root.parent / "alias").symlink_to(root)
    return Workspace(root.parent / "alias", system=system)


@pytest.fixture(autouse=True)
def cwd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("path", "text"), INSIDE.items())
def test_paths_and_links_inside_work(workspace: Workspace, path: str, text: str):
    """A root that is itself a link works; absolute paths may name it either way."""
    full = path.replace("{tmp}", str(workspace.root.parent))
    assert workspace.read(full, 100) == text.encode()
    assert workspace.stat(full).facts.st_size == len(text)


@pytest.mark.parametrize(("code", "path"), CASES)
def test_every_other_path_is_refused_at_once(workspace: Workspace, code: str, path: str):
    full = path.replace("{tmp}", str(workspace.root.parent))
    assert code_of(workspace.read, full, 100) == code


@pytest.mark.parametrize("path", REFUSED["ACCESS_DENIED"])
def test_nothing_is_written_listed_or_removed_outside(workspace: Workspace, path: str):
    full = path.replace("{tmp}", str(workspace.root.parent))
    # A link itself is inside, wherever it leads: it may be removed, and its target stays.
    steps = [lambda: workspace.write(full, b"x"), lambda: workspace.entries(full), lambda: workspace.stat(full)]
    assert {code_of(step) for step in steps} == {"ACCESS_DENIED"}
    if path.rstrip("/") not in LINKS:
        assert code_of(workspace.delete, full, recursive=True) == "ACCESS_DENIED"
    assert (workspace.root.parent / "out" / "secret").read_text(encoding="utf-8") == SECRET
    assert [file.name for file in (workspace.root.parent / "out").iterdir()] == ["secret"]


@pytest.mark.parametrize("path", [None, True, 3, ["a.txt"], b"a.txt", {}])
def test_a_path_is_a_text(workspace: Workspace, path: object):
    assert code_of(workspace.read, path, 1) == "INVALID_PARAM"


@pytest.mark.parametrize(
    ("there", "absent"),
    [
        ("../out/secret", "../out/nothing"),
        ("{tmp}/out/secret", "{tmp}/out/nothing"),
        ("out-folder/secret", "out-folder/nothing"),
        ("out", "out-missing"),
        ("/etc/passwd", "/etc/nothing"),
    ],
)
def test_a_refusal_does_not_tell_whether_the_file_exists(workspace: Workspace, there: str, absent: str):
    texts = []
    for path in (there, absent):
        full = path.replace("{tmp}", str(workspace.root.parent))
        with pytest.raises(FileRefused) as caught:
            workspace.read(full, 1)
        texts.append((caught.value.code, str(caught.value).replace(repr(full), "PATH")))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("path", ["a.txt", "in", "in-absolute", "sub/up"])
def test_writing_replaces_the_file_and_keeps_links_and_mode(workspace: Workspace, path: str):
    file = workspace.root / "a.txt"
    file.chmod(0o751)
    assert workspace.write(path, b"new") is False
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", 0o751)
    assert (workspace.root / "in").is_symlink()
    assert not list(workspace.root.glob("*.part"))


def test_a_new_file_may_be_made_through_a_link_inside(workspace: Workspace):
    assert workspace.write("new", b"x", mode=0o600) is True
    assert (workspace.root / "sub" / "new.txt").read_bytes() == b"x"
    assert stat.S_IMODE((workspace.root / "sub" / "new.txt").stat().st_mode) == 0o600


def test_an_exclusive_write_never_replaces(workspace: Workspace):
    assert code_of(workspace.write, "a.txt", b"x", replace=False) == "CONFLICT"
    assert workspace.write("fresh", b"x", replace=False) is True
    assert not list(workspace.root.glob(".*"))


def test_a_write_that_fails_leaves_everything_as_it_was(workspace: Workspace):
    def blocks() -> object:
        yield b"half"
        raise KeyError("the client is gone")

    with pytest.raises(KeyError):
        workspace.write("a.txt", blocks())  # type: ignore[arg-type]
    assert workspace.read("a.txt", 10) == b"a\n"
    assert not list(workspace.root.glob("*.part"))


def test_folders_are_made_and_removed_inside_only(workspace: Workspace):
    workspace.make_folder("x/y/z")
    workspace.make_folder("x/y")
    workspace.make_folder(f"{workspace.root}/x/w")
    assert workspace.stat("x/w").is_folder
    assert code_of(workspace.make_folder, "out-folder/made") == "ACCESS_DENIED"
    assert code_of(workspace.make_folder, "../made") == "ACCESS_DENIED"
    assert code_of(workspace.make_folder, "a.txt") == "CONFLICT"
    assert code_of(workspace.delete, "x") == "CONFLICT"
    (workspace.root / "x" / "link").symlink_to(workspace.root.parent / "out")
    workspace.delete("x", recursive=True)
    assert code_of(workspace.stat, "x") == "NOT_FOUND"
    assert code_of(workspace.delete, ".", recursive=True) == "PERMISSION_DENIED"
    assert (workspace.root.parent / "out" / "secret").exists()


def test_removing_a_link_keeps_what_it_leads_to(workspace: Workspace):
    workspace.delete("in")
    workspace.delete("out-folder", recursive=True)
    assert (workspace.root / "a.txt").exists()
    assert (workspace.root.parent / "out" / "secret").exists()


def test_listing_shows_links_as_links(workspace: Workspace):
    entries, more = workspace.entries(".")
    assert not more
    assert {entry.name: entry.target for entry in entries if entry.target}["out-relative"] == "../out/secret"
    assert not any(entry.is_folder for entry in entries if entry.target)
    assert workspace.entries(".", limit=3)[1]


def test_a_device_is_refused_before_it_is_opened(system: System):
    if not Path("/dev/null").exists():
        return
    assert code_of(Workspace(Path("/dev"), system=system).read, "null", 1) == "INVALID_PARAM"


def test_windows_is_refused_with_one_clear_error(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(FileRefused, match="Windows"):
        Workspace(root)


@pytest.mark.campaign
def test_no_random_path_leads_out(root: Path, system: System):
    """Every path is read as its real file is, or refused."""
    workspace = Workspace(root, system=system)
    names = st.sampled_from(["..", ".", "", "a.txt", "sub", "deep", "b.txt", "x", *[n for n in LINKS if "/" not in n]])

    @settings(
        max_examples=size(150, long=50_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(st.lists(names, min_size=1, max_size=8).map("/".join))
    def check(path: str) -> None:
        try:
            text = workspace.read(path, 100)
        except FileRefused:
            return
        real = (root / path).resolve()
        assert real.is_relative_to(root.resolve())
        assert text == real.read_bytes()

    check()
