"""The server's own files: no tool lists, reads or writes them, wherever its root is and wherever settings put them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphflow.settings import Settings
from graphflow.tools.builtin import BashPolicy
from graphflow.tools.builtin.bash import run_command
from graphflow.tools.envelope import to_envelope
from graphflow.tools.workspace import ProtectedFiles, Workspace
from graphflow.tools.workspace.protected import is_protected_name
from graphflow.tools.workspace.system import System
from tests.security.workspace_folder import SECRET, code_of, server_workspace, settings_in, system

__all__ = ["system"]

PROTECTED_NAMES = [
    ".env", ".env.local", ".env.production", ".envrc", ".env-old", ".env.example.bak", ".ENV", ".Env.Local", ".env.",
    "graphflow.toml", "graphflow.local.toml", "graphflow-prod.toml", "GraphFlow.toml", "graphflow.toml.",
]  # fmt: skip
OPEN_NAMES = [
    ".env.example",
    ".env.sample",
    ".env.template",
    "env",
    "a.env",
    "graphflow.md",
    "my-graphflow.toml",
    ".git",
]
PLACES = [
    "checkpoints/threads.db", "checkpoints/threads.db-wal", "checkpoints/threads.db-shm", "checkpoints/threads.db-journal",
    "checkpoints/threads.db.owners/one", "checkpoints/memory.db", "checkpoints/memory.db-wal", "checkpoints/.chat_history",
    "checkpoints/chats/trip.json", "checkpoints/uploads/trip.files/1", "checkpoints/traces/t.json", "workspaces/ann/notes.txt",
]  # fmt: skip


@pytest.mark.parametrize("name", PROTECTED_NAMES)
def test_a_name_is_protected(name: str):
    assert is_protected_name(name)


@pytest.mark.parametrize("name", OPEN_NAMES)
def test_a_name_is_open(name: str):
    assert not is_protected_name(name)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """The folder of a server with every kind of file that it writes."""
    for name in (*PROTECTED_NAMES, *PLACES, "deep/er/.env", "deep/graphflow.toml", ".env.d/key"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SECRET, encoding="utf-8")
    for name in PROTECTED_NAMES:
        (tmp_path / name).unlink()
    for name in (".env", ".env.local", "graphflow.local.toml"):
        (tmp_path / name).write_text(f"# {SECRET}", encoding="utf-8")
    (tmp_path / "graphflow.toml").write_text(f"# {SECRET}\n", encoding="utf-8")
    (tmp_path / "open.txt").write_text("open\n", encoding="utf-8")
    (tmp_path / ".env.example").write_text("KEY=\n", encoding="utf-8")
    return tmp_path


CLOSED = [".env", ".env.local", "graphflow.toml", "graphflow.local.toml", *PLACES, "deep/er/.env", "deep/graphflow.toml", ".env.d/key", ".env.d"]  # fmt: skip


@pytest.mark.parametrize(
    "path", [*CLOSED, ".env.not-there", "checkpoints/threads.db-new", "checkpoints/chats/new.json"]
)
def test_no_protected_file_is_read_written_listed_or_removed(server: Path, system: System, path: str):
    """Neither by its name, nor through a link, a linked folder or a hard link."""
    workspace = server_workspace(server, settings_in(server), system)
    (server / "link").symlink_to(path)
    (server / "notes").symlink_to(server / path)
    (server / "here").symlink_to(".")
    names = [path, f"./{path}", f"deep/../{path}", str(server / path), "link", "notes", f"here/{path}"]
    if (server / path).is_file():
        os.link(server / path, server / "hard.txt")
        names.append("hard.txt")
    for name in names:
        assert code_of(workspace.read, name, 100) == "ACCESS_DENIED", name
        assert code_of(workspace.write, name, b"x") == "ACCESS_DENIED", name
        for step in (workspace.entries, workspace.stat, workspace.open):
            assert code_of(step, name) == "ACCESS_DENIED", name
    for name in (path, str(server / path), f"here/{path}"):
        assert code_of(workspace.delete, name, recursive=True) == "ACCESS_DENIED"
    if (server / path).is_file():
        assert SECRET in (server / path).read_text(encoding="utf-8")


def test_open_files_beside_them_work(server: Path, system: System):
    workspace = server_workspace(server, settings_in(server), system)
    assert workspace.read("open.txt", 10) == b"open\n"
    assert workspace.read(".env.example", 10) == b"KEY=\n"
    os.link(server / "open.txt", server / "other.txt")
    assert workspace.read("other.txt", 10) == b"open\n"


def test_listings_leave_them_out(server: Path, system: System):
    workspace = server_workspace(server, settings_in(server), system)
    assert [entry.name for entry in workspace.entries(".")[0]] == [".env.example", "checkpoints", "deep", "open.txt"]
    assert workspace.entries("checkpoints")[0] == []
    assert [entry.name for entry in workspace.entries("deep")[0]] == ["er"]


def test_a_folder_that_holds_one_is_not_removed(server: Path):
    workspace = server_workspace(server, settings_in(server))
    for name in ("deep", "checkpoints"):
        assert code_of(workspace.delete, name, recursive=True) == "ACCESS_DENIED"
    assert all((server / path).exists() for path in CLOSED)


@pytest.mark.parametrize(
    "root", ["checkpoints/chats", "checkpoints/uploads", "checkpoints/traces", "workspaces", ".env.d"]
)
def test_a_root_that_is_protected_opens_nothing(server: Path, system: System, root: str):
    workspace = server_workspace(server / root, settings_in(server), system)
    for step in (lambda: workspace.entries("."), lambda: workspace.write("new", b""), lambda: workspace.stat(".")):
        assert code_of(step) == "ACCESS_DENIED"


def test_a_root_below_or_above_changes_nothing(server: Path, system: System):
    inside = server_workspace(server / "checkpoints", settings_in(server), system)
    assert inside.entries(".")[0] == []
    assert code_of(inside.read, "threads.db", 9) == "ACCESS_DENIED"
    above = server_workspace(server.parent, settings_in(server), system)
    assert code_of(above.read, f"{server.name}/checkpoints/chats/trip.json", 9) == "ACCESS_DENIED"
    further = Workspace(server / "deep", [server], protected=ProtectedFiles.of(settings_in(server)), system=system)
    assert code_of(further.read, "../.env", 9) == "ACCESS_DENIED"
    assert further.read("../open.txt", 9) == b"open\n"
    (server / "linked-root").symlink_to(server / "checkpoints" / "chats")
    linked = server_workspace(server / "linked-root", settings_in(server), system)
    assert code_of(linked.read, "trip.json", 9) == "ACCESS_DENIED"


MOVED: dict[str, tuple[str, str]] = {
    "store": ("store__path", "elsewhere/mine.sqlite"),
    "chats": ("memory__chat_dir", "elsewhere/talk"),
    "uploads": ("uploads__dir", "elsewhere/files"),
    "traces": ("trace__dir", "elsewhere/spans"),
    "workspaces": ("workspaces__dir", "elsewhere/homes"),
}


@pytest.mark.parametrize("kind", MOVED)
def test_settings_may_put_them_anywhere(tmp_path: Path, system: System, kind: str):
    flag, place = MOVED[kind]
    settings = settings_in(tmp_path, **{flag: place})
    paths = (
        [f"{place}{end}" for end in ("", "-wal", "-shm", "-journal", ".owners/x")]
        if kind == "store"
        else [f"{place}/x"]
    )
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(SECRET, encoding="utf-8")
        assert code_of(server_workspace(tmp_path, settings, system).read, path, 9) == "ACCESS_DENIED"
    assert server_workspace(tmp_path, settings, system).entries("elsewhere")[0] == []


def test_a_folder_that_is_renamed_while_the_server_runs_stays_closed(server: Path, system: System):
    """By device and inode: settings name the place through a link, and the folder behind it is reached by another name."""
    (server / "store").mkdir()
    (server / "store" / "x.json").write_text(SECRET, encoding="utf-8")
    (server / "chats").symlink_to("store")
    settings = settings_in(server, memory__chat_dir="chats")
    workspace = server_workspace(server, settings, system)
    assert code_of(workspace.read, "store/x.json", 9) == "ACCESS_DENIED"
    assert code_of(workspace.read, "chats/x.json", 9) == "ACCESS_DENIED"


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    handler = logging.FileHandler(tmp_path / "server.log", encoding="utf-8")
    logging.getLogger("graphflow").addHandler(handler)
    yield tmp_path / "server.log"
    logging.getLogger("graphflow").removeHandler(handler)
    handler.close()


def test_log_files_of_the_process_are_closed(log_file: Path, system: System):
    workspace = server_workspace(log_file.parent, Settings(), system)
    (log_file.parent / "server.log.1").write_text(SECRET, encoding="utf-8")
    (log_file.parent / "link").symlink_to("server.log")
    for name in ("server.log", "server.log.1", "link"):
        assert code_of(workspace.read, name, 9) == "ACCESS_DENIED"


COMMANDS = [
    "cat .env", "cat ./.env", "cat .e*", "cat *", "cat .*", "head -c 99 .env.local", "tail graphflow.toml", "ls .env", "ls -la",
    "ls -laR", "ls -R checkpoints", "ls -a checkpoints", "ls -d .e* .g* g*", "cat checkpoints/threads.db", "cat link", "cat hard.txt",
    "ls -l link", "cat here/.env", "cat checkpoints/chats/*", "cat checkpoints/uploads/trip.files/1", "ls checkpoints/chats",
    "ls workspaces", "cat workspaces/ann/notes.txt", "df .env", "cat deep/er/.env", "ls -la deep/er", "cat {root}/.env",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
async def test_bash_shows_none_of_them(server: Path, command: str):
    (server / "link").symlink_to(".env")
    (server / "here").symlink_to(".")
    os.link(server / ".env", server / "hard.txt")
    policy = BashPolicy(working_directory=server, protected=ProtectedFiles.of(settings_in(server)), max_chars=9_999)
    result = to_envelope(await run_command(command.replace("{root}", str(server)), policy))
    shown = f"{result['data'].get('stdout')} {result['data'].get('stderr')}"
    assert SECRET not in str(result)
    for name in (".env\n", ".env.local", "graphflow.toml", "threads.db", "trip", "ann", ".chat_history"):
        assert name not in shown or result["status"] == "error"
