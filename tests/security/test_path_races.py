"""Path races: whatever is swapped between two calls of the operating system, nothing outside is opened.

The swap is injected before every call that the port makes, one after the other: `SwappingSystem` is the port's own seam.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from graphflow.settings import Settings
from graphflow.tools.builtin.ls import list_files
from graphflow.tools.builtin.output import Output
from graphflow.tools.builtin.readers import read_files
from graphflow.tools.search.file_walk import Looked, files_below
from graphflow.tools.search.ignore_rules import IgnoreRules
from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace
from graphflow.tools.workspace.system import System
from tests.campaign import size
from tests.needs import need
from tests.patience import PATIENCE_S
from tests.security.workspace_folder import SECRET

CALLS = [name for name in vars(System) if not name.startswith("_") and name != "resolves_beneath"]


class SwappingSystem(System):
    """Swaps something before the call with this number, or before every call from it on."""

    def __init__(self, swap: Callable[[], None], at: int, *, every: bool, openat2: bool) -> None:
        super().__init__(openat2=openat2)
        self.calls, self._swap, self._at, self._every = 0, swap, at, every

    def tick(self) -> None:
        self.calls += 1
        if self.calls == self._at or (self._every and self.calls > self._at):
            self._swap()


def _swapping(name: str) -> Callable[..., Any]:
    def call(self: SwappingSystem, *given: Any, **options: Any) -> Any:
        self.tick()
        return getattr(System, name)(self, *given, **options)

    return call


for _name in CALLS:
    setattr(SwappingSystem, _name, _swapping(_name))


class Folder:
    """A workspace whose entries can be exchanged with what would be a leak."""

    def __init__(self, base: Path) -> None:
        self.base, self.root = base, base / "root"
        (self.root / "sub" / "deep").mkdir(parents=True)
        (self.root / "sub" / "b.txt").write_text("b\n", encoding="utf-8")
        (self.root / "sub" / "deep" / "c.txt").write_text("c\n", encoding="utf-8")
        (self.root / "in").symlink_to("sub")
        (self.root / ".env").write_text(SECRET, encoding="utf-8")
        self.out = base / "out"
        (self.out / "deep").mkdir(parents=True)
        for name in ("b.txt", "secret", "deep/c.txt", "c.txt"):
            (self.out / name).write_text(SECRET, encoding="utf-8")
        self.spare = base / "spare"

    def exchange(self, name: str, put: Callable[[Path], None]) -> Callable[[], None]:
        """A swap of `name` with what `put` makes; the next call swaps back."""
        put(self.spare)
        place = self.root / name

        def swap() -> None:
            if os.path.lexists(place):
                place.rename(self.base / "third")
                self.spare.rename(place)
                (self.base / "third").rename(self.spare)

        return swap

    def check(self, shown: bytes) -> None:
        """Nothing was read or written outside."""
        assert SECRET.encode() not in shown
        for file in (*self.out.rglob("*"), self.root / ".env"):
            assert file.is_dir() or file.read_text(encoding="utf-8") == SECRET, file
        names = {file.name for file in self.out.rglob("*")}
        assert names == {"b.txt", "secret", "deep", "c.txt"}


SWAPS: dict[str, Callable[[Folder], Callable[[], None]]] = {
    "file for a link out": lambda f: f.exchange("sub/b.txt", lambda p: p.symlink_to(f.out / "secret")),
    "file for a link to .env": lambda f: f.exchange("sub/b.txt", lambda p: p.symlink_to(f.root / ".env")),
    "file for a hard link of .env": lambda f: f.exchange("sub/b.txt", lambda p: os.link(f.root / ".env", p)),
    "file for a pipe": lambda f: f.exchange("sub/b.txt", os.mkfifo),
    "file for a folder": lambda f: f.exchange("sub/b.txt", Path.mkdir),
    "folder for a link out": lambda f: f.exchange("sub", lambda p: p.symlink_to(f.out)),
    "folder for a relative link out": lambda f: f.exchange("sub", lambda p: p.symlink_to("../out")),
    "inner folder for a link out": lambda f: f.exchange("sub/deep", lambda p: p.symlink_to(f.out / "deep")),
    "link inside for a link out": lambda f: f.exchange("in", lambda p: p.symlink_to(f.out)),
    "link inside for a loop": lambda f: f.exchange("in", lambda p: p.symlink_to("in")),
}


def cat(workspace: Workspace, *paths: str) -> bytes:
    out = Output(9_999, 60)
    read_files("cat", [], paths, workspace, out)
    return out.stdout.encode()


def ls(workspace: Workspace, *options: str) -> bytes:
    out = Output(9_999, 60)
    list_files(options, ["."], workspace, out)
    assert "secret" not in out.stdout
    return out.stdout.encode()


def wrote(workspace: Workspace, path: str) -> bytes:
    workspace.write(path, b"new")
    return b""


def made(workspace: Workspace, path: str) -> bytes:
    workspace.make_folder(path)
    return b""


def removed(workspace: Workspace, path: str) -> bytes:
    workspace.delete(path, recursive=True)
    return b""


def walked(workspace: Workspace, start: str = ".") -> bytes:
    """All that a search reads."""
    with workspace.walk(start, max_s=PATIENCE_S) as walk:
        paths = list(files_below(walk, IgnoreRules(walk.read), Looked(hidden=True)))
        assert "secret" not in " ".join(paths)
        return b"".join(walk.read(path, 99) or b"" for path in [*paths, "sub/b.txt", "in/b.txt", ".env"])


USES: dict[str, Callable[[Workspace], bytes]] = {
    "read": lambda w: w.read("sub/b.txt", 99),
    "read deep": lambda w: w.read("sub/deep/c.txt", 99),
    "read through a link": lambda w: w.read("in/b.txt", 99),
    "read up and down": lambda w: w.read("sub/deep/../b.txt", 99),
    "cat": lambda w: cat(w, "sub/b.txt", "in/deep/c.txt"),
    "ls -R": lambda w: ls(w, "-laR"),
    "entries": lambda w: " ".join(entry.name for entry in w.entries("sub")[0] if entry.name != "b.txt").encode(),
    "walk": walked,
    "walk through a link": lambda w: walked(w, "in"),
    "write": lambda w: wrote(w, "sub/b.txt"),
    "write new": lambda w: wrote(w, "sub/deep/new.txt"),
    "write through a link": lambda w: wrote(w, "in/b.txt"),
    "make a folder": lambda w: made(w, "sub/deep/x/y"),
    "delete": lambda w: removed(w, "sub/b.txt"),
    "delete a folder": lambda w: removed(w, "sub"),
    "delete through a link": lambda w: removed(w, "in/deep"),
}


@pytest.mark.parametrize("openat2", [True, False], ids=["kernel", "walk"])
@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("use", USES)
def test_a_swap_before_any_call_opens_nothing_outside(tmp_path: Path, use: str, swap: str, openat2: bool):
    if openat2:
        need(System().resolves_beneath(), "openat2")
    for every, most in ((False, 1_000), (True, size(1, long=60))):
        at = calls = 0
        while at <= min(calls, most):
            at += 1
            folder = Folder(tmp_path / f"{every}-{at}")
            system = SwappingSystem(SWAPS[swap](folder), at, every=every, openat2=openat2)
            workspace = Workspace(folder.root, protected=ProtectedFiles.of(Settings(folder=folder.base)), system=system)
            shown = b""
            try:
                shown = USES[use](workspace)
            except FileRefused:
                pass
            calls = system.calls
            folder.check(shown)
        assert calls > 2


@contextmanager
def swapping_all_the_time(*swaps: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            for swap in swaps:
                swap()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.campaign
@pytest.mark.parametrize("openat2", [True, False], ids=["kernel", "walk"])
@pytest.mark.parametrize("swap", ["file for a link out", "folder for a link out", "file for a hard link of .env"])
def test_a_thread_that_swaps_all_the_time_gets_nothing(tmp_path: Path, swap: str, openat2: bool):
    """With `resolve`, check and `open` one of some 4,000 calls leaked through a link, one of 100 through a folder."""
    if openat2:
        need(System().resolves_beneath(), "openat2")
    folder = Folder(tmp_path)
    workspace = Workspace(folder.root, system=System(openat2=openat2))
    right = 0
    with swapping_all_the_time(SWAPS[swap](folder)):
        for _ in range(size(300, long=170_000)):
            try:
                assert workspace.read("sub/b.txt", 99) == b"b\n"
                right += 1
            except FileRefused:
                pass
    assert right
    folder.check(b"")


@pytest.mark.campaign
@pytest.mark.parametrize("openat2", [True, False], ids=["kernel", "walk"])
@pytest.mark.parametrize("swap", ["file for a link out", "folder for a link out", "inner folder for a link out"])
def test_a_search_while_a_thread_swaps_all_the_time_shows_nothing(tmp_path: Path, swap: str, openat2: bool):
    if openat2:
        need(System().resolves_beneath(), "openat2")
    folder = Folder(tmp_path)
    workspace = Workspace(folder.root, system=System(openat2=openat2))
    shown = b""
    with swapping_all_the_time(SWAPS[swap](folder)):
        for _ in range(size(100, long=100_000)):
            shown = walked(workspace) or shown
    assert shown
    folder.check(shown)
