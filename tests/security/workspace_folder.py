"""A workspace among neighbours that nobody may see through it, and the two ways that the port opens files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow.settings import Settings, load_settings
from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace
from graphflow.tools.workspace.system import System
from tests.needs import need

SECRET = "what nobody may see"


@pytest.fixture(params=["kernel", "walk"])
def system(request: pytest.FixtureRequest) -> System:
    """`openat2`, and what takes its place on older kernels and macOS: they pass the same cases."""
    if request.param == "kernel":
        need(System().resolves_beneath(), "openat2")
    return System(openat2=request.param == "kernel")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with links of every kind, beside a folder with a secret."""
    root = tmp_path / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "a.txt").write_text("a\n", encoding="utf-8")
    (root / "sub" / "b.txt").write_text("b\n", encoding="utf-8")
    (root / "sub" / "deep" / "c.txt").write_text("c\n", encoding="utf-8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret").write_text(SECRET, encoding="utf-8")
    (tmp_path / "root-sibling").mkdir()
    (tmp_path / "root-sibling" / "secret").write_text(SECRET, encoding="utf-8")
    for name, target in LINKS.items():
        (root / name).symlink_to(target.replace("{tmp}", str(tmp_path)))
    return root


LINKS = {
    "in": "a.txt",
    "in-absolute": "{tmp}/root/a.txt",
    "in-folder": "sub",
    "in-twice": "in-folder/../in",
    "in-up": "sub/deep/../../a.txt",
    "sub/up": "../a.txt",
    "sub/self": ".",
    "new": "sub/new.txt",
    "out": "{tmp}/out/secret",
    "out-folder": "{tmp}/out",
    "out-relative": "../out/secret",
    "out-missing": "{tmp}/out/nothing",
    "out-and-back": "../root/a.txt",
    "out-twice": "out-folder/secret",
    "out-sibling": "../root-sibling/secret",
    "out-root": "/",
    "magic": "/proc/self/root/etc/passwd",
    "magic-cwd": "/proc/self/cwd",
    "loop": "loop",
    "loop-a": "loop-b",
    "loop-b": "loop-a",
}


def code_of(step: Callable[..., object], *given: Any, **options: Any) -> str:
    """The code of the refusal of this call."""
    with pytest.raises(FileRefused) as caught:
        step(*given, **options)
    assert SECRET not in str(caught.value)
    return caught.value.code


def settings_in(folder: Path, **flags: object) -> Settings:
    return load_settings(folder, environ={}, flags={name.replace("__", "."): value for name, value in flags.items()})


def server_workspace(root: Path, settings: Settings, system: System | None = None) -> Workspace:
    """A workspace as a server with these settings makes it."""
    return Workspace(root, protected=ProtectedFiles.of(settings), system=system or System())
