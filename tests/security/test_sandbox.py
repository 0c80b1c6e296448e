"""The sandbox of programs: what a policy means on a machine with bubblewrap, on one with Landlock, and on one without."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from graphflow.tools.builtin import BashPolicy
from graphflow.tools.builtin.bash import run_command
from graphflow.tools.builtin.process import ProcessResult, run_program
from graphflow.tools.result import ToolResult
from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace
from graphflow.tools.workspace.sandbox import Sandboxes, find_landlock, sandboxed
from graphflow.tools.workspace.system import System
from tests.needs import need
from tests.security.test_protected_files import PLACES
from tests.security.workspace_folder import SECRET, server_workspace, settings_in

needs_bubblewrap = pytest.mark.web
"""`make test-web` runs what needs a tool of the system, and fails without it."""
BUBBLEWRAP = shutil.which("bwrap")


NOTHING = Sandboxes(bubblewrap=lambda: None, landlock=lambda: False)
"""A machine without any sandbox."""
ONLY_BUBBLEWRAP = Sandboxes(bubblewrap=lambda: BUBBLEWRAP, landlock=lambda: False)
ONLY_LANDLOCK = Sandboxes(bubblewrap=lambda: None, landlock=lambda: True)


async def bash(folder: Path, command: str, **policy: object) -> ToolResult:
    made = BashPolicy(working_directory=folder, protected=ProtectedFiles(), **policy)  # type: ignore[arg-type]
    return await run_command(command, made)


EVERY = ["top", "free", "df", "df .", "ls", "pwd", "cat a.txt", "head a.txt", "tail a.txt"]


@pytest.mark.parametrize("command", EVERY)
async def test_required_refuses_every_command_without_one_and_says_what_to_install(tmp_path: Path, command: str):
    """Also those that start no program: on a machine without a sandbox nothing runs for a model."""
    (tmp_path / "a.txt").write_text("a\n", encoding="utf-8")
    result = await bash(tmp_path, command, sandbox="required", sandboxes=NOTHING)
    assert result.error is not None
    assert result.error.code == "PERMISSION_DENIED"
    assert "setting bash.sandbox is 'required'" in result.error.message
    assert "install the package bubblewrap" in result.error.message
    assert result.context["sandbox"] == {"policy": "required", "applied": "refused"}
    assert not result.data


async def test_preferred_says_that_there_was_none(tmp_path: Path):
    need(shutil.which("df"), "df")
    result = await bash(tmp_path, "df .", sandboxes=NOTHING)
    facts = result.context["sandbox"]
    assert (result.data["ok"], facts["policy"], facts["applied"], facts["network"]) == (True, "preferred", "none", True)
    assert "bubblewrap" in facts["reason"]


async def test_off_looks_for_none(tmp_path: Path):
    need(shutil.which("df"), "df")
    looked = Sandboxes(bubblewrap=lambda: pytest.fail("looked for"), landlock=lambda: pytest.fail("looked for"))
    result = await bash(tmp_path, "df", sandbox="off", sandboxes=looked)
    assert result.context["sandbox"] == {"policy": "off", "applied": "none", "network": True}


@pytest.mark.parametrize("policy", ["preferred", "off"])
@pytest.mark.parametrize("command", ["ls", "pwd", "cat a.txt", "head a.txt", "tail a.txt"])
async def test_commands_that_start_no_program_say_so(tmp_path: Path, command: str, policy: str):
    (tmp_path / "a.txt").write_text("a\n", encoding="utf-8")
    result = await bash(tmp_path, command, sandbox=policy, sandboxes=NOTHING)
    assert (result.data["ok"], result.context["sandbox"]) == (True, {"applied": "in-process"})


@pytest.mark.parametrize("command", ["free", "ls"])
async def test_users_that_are_kept_apart_require_it(tmp_path: Path, command: str):
    workspace = Workspace(tmp_path)
    policy = BashPolicy(sandboxes=NOTHING)
    assert (await run_command(command, policy, workspace, apart=True)).error is not None
    # What the settings say counts more.
    result = await run_command(command, BashPolicy(sandboxes=NOTHING, sandbox="preferred"), workspace, apart=True)
    assert result.error is None


@needs_bubblewrap
@pytest.mark.parametrize("command", ["top", "free -m", "df -h", "df .", "df -h sub"])
async def test_programs_run_in_it(tmp_path: Path, command: str):
    need(BUBBLEWRAP, "bubblewrap")
    need(shutil.which(command.partition(" ")[0]), command)
    (tmp_path / "sub").mkdir()
    result = await bash(tmp_path, command, sandbox="required", sandboxes=ONLY_BUBBLEWRAP)
    assert (result.data["exitCode"], result.data["stderr"]) == (0, "")
    assert result.context["sandbox"] == {"policy": "required", "applied": "bubblewrap", "network": False}


async def run(
    workspace: Workspace, script: str, *, network: bool = False, machine: Sandboxes = ONLY_BUBBLEWRAP
) -> ProcessResult:
    """A shell in the sandbox: the worst program that could be started."""
    if machine is ONLY_BUBBLEWRAP:
        need(BUBBLEWRAP, "bubblewrap")
    else:
        need(find_landlock(), "Landlock of Linux 6.12")
    box = sandboxed(
        ["/bin/sh", "-c", script],
        "required",
        setting="x",
        network=network,
        protected=workspace.protected,
        workspace=workspace,
        machine=machine,
    )
    return await run_program(box.argv, cwd=Path("/"), env={"PATH": "/usr/bin:/bin"}, timeout_s=20, max_chars=9_999)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    names = [".env", "sub/.env.local", "graphflow.toml", ".env.d/key", *PLACES]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#{SECRET}", encoding="utf-8")
    os.link(tmp_path / ".env", tmp_path / "hard.txt")
    os.link(tmp_path / "checkpoints/chats/trip.json", tmp_path / "sub/chat.txt")
    (tmp_path / "link").symlink_to(".env")
    (tmp_path / "open.txt").write_text("open\n", encoding="utf-8")
    return tmp_path


@needs_bubblewrap
async def test_a_program_in_it_reads_open_files_and_no_protected_one(server: Path):
    workspace = server_workspace(server, settings_in(server))
    ended = await run(
        workspace, "cat open.txt; grep -r nobody . 2>/dev/null; cat link hard.txt .env sub/chat.txt; ls -R checkpoints"
    )
    assert ended.stdout.startswith("open\n")
    assert SECRET not in ended.stdout


@needs_bubblewrap
async def test_a_program_in_it_writes_nothing_and_sees_no_other_folder(server: Path):
    root = server / "sub"
    ended = await run(
        server_workspace(root, settings_in(server)),
        f"touch new; touch /usr/x; ln .env.local x; mv .env.local y; cat {server}/open.txt; cat {server}/.env; cat /etc/shadow; ls {server}",
    )
    assert sorted(path.name for path in root.iterdir()) == [".env.local", "chat.txt"]
    assert "open" not in ended.stdout
    assert SECRET not in ended.stdout
    assert ended.stdout.split() == ["sub"]


@needs_bubblewrap
async def test_a_program_in_it_has_no_capability_no_network_and_no_other_process(tmp_path: Path):
    script = "grep -E 'NoNewPrivs|CapEff' /proc/self/status; ls /proc | grep -c '^[0-9]'; cat /proc/net/dev; cat /proc/1/environ"
    shown = (await run(Workspace(tmp_path), script)).stdout
    assert "NoNewPrivs:\t1" in shown
    assert "CapEff:\t0000000000000000" in shown
    assert "eth0" not in shown
    assert "PYTEST" not in shown


@needs_bubblewrap
async def test_a_workspace_that_is_protected_is_not_mounted(server: Path):
    need(BUBBLEWRAP, "bubblewrap")
    workspace = server_workspace(server / "checkpoints" / "chats", settings_in(server), System())
    with pytest.raises(FileRefused, match="belongs to the server"):
        sandboxed(
            ["true"],
            "required",
            setting="x",
            network=False,
            protected=workspace.protected,
            workspace=workspace,
            machine=ONLY_BUBBLEWRAP,
        )


LINKS = [
    "ln {bob}/notes.txt {ann}/mine", "cp -l {bob}/notes.txt {ann}/mine", "cd {ann} && ln ../bob/notes.txt mine",
    "ln /proc/self/root{bob}/notes.txt {ann}/mine", "mv {bob}/notes.txt {ann}/mine", "ln {ann}/own.txt {ann}/mine",
    "ln {ann}/own.txt {bob}/mine", "ln -s {bob}/notes.txt {ann}/mine",
]  # fmt: skip
"""A link from a user's workspace to another's file, or one more name for a file: nothing that a program asks for makes one."""


@needs_bubblewrap
@pytest.mark.parametrize("machine", [ONLY_BUBBLEWRAP, ONLY_LANDLOCK], ids=["bubblewrap", "landlock"])
@pytest.mark.parametrize("attempt", LINKS)
async def test_no_program_links_a_file_of_another_user_into_its_workspace(
    tmp_path: Path, attempt: str, machine: Sandboxes
):
    ann, bob = tmp_path / "ann", tmp_path / "bob"
    for folder, name in ((ann, "own.txt"), (bob, "notes.txt")):
        folder.mkdir()
        (folder / name).write_text("text\n", encoding="utf-8")
    ended = await run(Workspace(ann, protected=ProtectedFiles()), attempt.format(ann=ann, bob=bob), machine=machine)
    assert ended.exit_code != 0 and ended.stderr
    assert ([path.name for path in ann.iterdir()], [path.name for path in bob.iterdir()]) == (
        ["own.txt"],
        ["notes.txt"],
    )
    assert (ann / "own.txt").stat().st_nlink == (bob / "notes.txt").stat().st_nlink == 1
