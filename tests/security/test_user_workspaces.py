"""Where tools work: each user of a server in a workspace of his own, one person in the folder that the settings name."""

from __future__ import annotations

import dataclasses
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.service.application import Application
from graphflow.service.catalog.builtin_tools import names_users
from graphflow.settings import load_settings
from graphflow.tools.result import ToolResult
from graphflow.tools.workspace.homes import NOBODY, home_name
from tests.security.workspace_folder import SECRET
from tests.tools.fakes import tool_context

TOKENS = ["ann@ann:*:ann-secret-1", "bob@bob:*:bob-secret-1", "ops:*:ops-secret-1"]


@asynccontextmanager
async def application(folder: Path, **flags: object) -> AsyncIterator[Application]:
    # The file port is what keeps users apart here; machines without a sandbox run these tests too.
    named = {"bash.sandbox": "preferred", **{name.replace("__", "."): value for name, value in flags.items()}}
    async with Application(load_settings(folder, environ={}, flags=named)) as app:
        yield app


async def bash(app: Application, command: str, user: str | None = None) -> ToolResult:
    """The result of a command in a thread of this user."""
    thread = f"thread-of-{user}"
    if user is not None:
        await app.store.assign(thread, user, now=1)
    tool = app.tools.get("bash")
    assert tool is not None
    return await tool.call({"command": command}, dataclasses.replace(tool_context(), thread_id=thread))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "open.txt").write_text("open\n", encoding="utf-8")
    (tmp_path / ".env").write_text(f"TOKEN={SECRET}\n", encoding="utf-8")
    for user in ("ann", "bob"):
        (tmp_path / "workspaces" / user).mkdir(parents=True)
        (tmp_path / "workspaces" / user / "notes.txt").write_text(f"notes of {user}\n", encoding="utf-8")
    return tmp_path


async def test_each_user_has_a_workspace_of_his_own(folder: Path):
    async with application(folder, server__tokens=TOKENS) as app:
        for user in ("ann", "bob"):
            assert (await bash(app, "cat notes.txt", user)).data["stdout"] == f"notes of {user}\n"
            assert (await bash(app, "pwd", user)).data["stdout"] == f"{folder / 'workspaces' / user}\n"


@pytest.mark.parametrize(
    "command",
    [
        "cat ../bob/notes.txt", "ls ..", "ls ../bob", "cat ../../open.txt", "cat {folder}/workspaces/bob/notes.txt",
        "cat {folder}/open.txt", "cat ../../.env", "ls /", "ls {folder}/workspaces", "cat link", "ls folder", "cat folder/notes.txt",
        "df ../bob", "cat ../_local/x", "cat {folder}/checkpoints/threads.db",
    ],
)  # fmt: skip
async def test_nobody_reaches_the_files_of_another_user_or_of_the_server(folder: Path, command: str):
    (folder / "workspaces" / "ann" / "link").symlink_to("../bob/notes.txt")
    (folder / "workspaces" / "ann" / "folder").symlink_to(folder / "workspaces" / "bob")
    async with application(folder, server__tokens=TOKENS) as app:
        result = await bash(app, command.replace("{folder}", str(folder)), "ann")
        assert result.error is not None
        assert result.error.code == "ACCESS_DENIED"
        assert "notes of bob" not in str(result.data)


async def test_runs_without_a_user_have_a_workspace_too(folder: Path):
    async with application(folder, server__tokens=TOKENS) as app:
        assert (await bash(app, "pwd")).data["stdout"] == f"{folder / 'workspaces' / NOBODY}\n"
        assert (await bash(app, "cat ../ann/notes.txt")).error is not None


async def test_without_users_tools_work_in_the_folder_of_the_settings(folder: Path):
    async with application(folder) as app:
        assert (await bash(app, "cat open.txt")).data["stdout"] == "open\n"
        # Workspaces of an earlier server with users stay closed.
        assert (await bash(app, "cat workspaces/ann/notes.txt")).error is not None
        assert (await bash(app, "cat .env")).error is not None
    (folder / "mine").mkdir()
    async with application(folder, bash__working_directory="mine") as app:
        assert (await bash(app, "pwd")).data["stdout"] == f"{folder / 'mine'}\n"


async def test_a_thread_with_a_user_has_a_workspace_whatever_the_tokens_say(folder: Path):
    """The tokens may come from elsewhere than the settings, or be other ones since the thread began."""
    async with application(folder) as app:
        assert (await bash(app, "cat notes.txt", "ann")).data["stdout"] == "notes of ann\n"
        assert (await bash(app, "cat ../../open.txt", "ann")).error is not None


async def test_settings_say_where_workspaces_are_and_what_else_is_open(folder: Path):
    (folder / "shared").mkdir()
    (folder / "shared" / "s.txt").write_text("shared\n", encoding="utf-8")
    options = {"workspaces__dir": "homes", "bash__allowed_paths": ["shared"]}
    async with application(folder, server__tokens=TOKENS, **options) as app:
        assert (await bash(app, "pwd", "ann")).data["stdout"] == f"{folder / 'homes' / 'ann'}\n"
        assert (await bash(app, f"cat {folder}/shared/s.txt", "ann")).data["stdout"] == "shared\n"
        assert stat.S_IMODE((folder / "homes").stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "homes" / "ann").stat().st_mode) == 0o700


async def test_an_open_folder_above_the_workspaces_opens_none_of_them(folder: Path):
    async with application(folder, server__tokens=TOKENS, bash__allowed_paths=["."]) as app:
        assert (await bash(app, f"cat {folder}/open.txt", "ann")).data["stdout"] == "open\n"
        for path in ("workspaces/bob/notes.txt", "workspaces", ".env", "checkpoints/threads.db"):
            result = await bash(app, f"cat {folder}/{path}", "ann")
            assert result.error is not None, path
        assert "workspaces" not in (await bash(app, f"ls -a {folder}", "ann")).data["stdout"]


@pytest.mark.parametrize(
    ("tokens", "named"),
    [
        ([], False),
        (["secret"], False),
        (["a:*:s"], False),
        (["p@ss"], False),
        (["a:*:s@x"], False),
        (["a@u:*:s"], True),
    ],
)
def test_users_are_what_tokens_name(tokens: list[str], named: bool):
    assert names_users(tokens) is named


@pytest.mark.parametrize(
    "user", ["..", ".", "a/b", "../x", "_local", "A", "Ä", "a b", "-f", ".env", "x" * 500, "con", "a.", "\n"]
)
def test_a_folder_name_is_a_plain_one(user: str):
    name = home_name(user)
    assert "/" not in name
    assert name not in (".", "..", NOBODY)
    assert not name.startswith((".", "-", "_"))
    assert len(name) < 200


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_two_users_never_share_a_folder_even_where_case_does_not_count(one: str, other: str):
    assert one == other or home_name(one).casefold() != home_name(other).casefold()
