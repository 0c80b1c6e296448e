"""Landlock, where bubblewrap is missing: what it closes, and that it is not used where it could not close enough."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace
from graphflow.tools.workspace.program_launcher import landlock_abi
from graphflow.tools.workspace.sandbox import Sandboxes, SandboxPolicy, find_landlock, sandboxed
from tests.needs import need
from tests.patience import PATIENCE_S
from tests.security.test_sandbox import ONLY_LANDLOCK, bash, run
from tests.security.workspace_folder import SECRET, server_workspace, settings_in

needs_landlock = pytest.mark.web
"""`make test-web` runs what needs something of the system, and fails without it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace without protected files, beside a folder with a secret."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "open.txt").write_text("open\n", encoding="utf-8")
    (tmp_path / "secret").write_text(SECRET, encoding="utf-8")
    (root / "link").symlink_to("../secret")
    return root


@needs_landlock
@pytest.mark.parametrize("command", ["free -m", "df -h", "df ."])
async def test_programs_run_in_it(folder: Path, command: str):
    need(find_landlock(), "Landlock of Linux 6.12")
    result = await bash(folder, command, sandbox="required", sandboxes=ONLY_LANDLOCK)
    assert (result.data["exitCode"], result.data["stderr"]) == (0, "")
    assert result.context["sandbox"] == {"policy": "required", "applied": "landlock", "network": False}


ATTEMPTS = {
    "read outside": "cat {tmp}/secret",
    "read through a link": "cat {root}/link",
    "list outside": "ls {tmp}",
    "list all": "ls /; ls /etc; ls /root",
    "write": "echo x > {root}/open.txt; echo x > {root}/new; echo x > /tmp/graphflow-new; : > {tmp}/secret",
    "remove": "rm -f {root}/open.txt; rmdir {root}; mv {root}/open.txt {root}/x; ln {root}/open.txt {root}/x",
    "change modes": "chmod 777 {root}/open.txt {tmp}/secret; chown 1 {tmp}/secret; touch -d 2001-01-01 {root}/open.txt",
    "other processes": "cat /proc/{parent}/environ /proc/{parent}/cmdline; ls /proc /proc/{parent}/fd; cat /proc/{parent}/root{tmp}/secret",
    "signals": "kill -0 {parent} && echo reached",
    "mounts": "mount -t tmpfs none {root} && echo mounted",
}


@needs_landlock
@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_a_program_in_it_reaches_nothing_else(folder: Path, attempt: str):
    tmp = folder.parent
    before = {path: path.lstat() for path in (folder, folder / "open.txt", tmp / "secret")}
    script = ATTEMPTS[attempt].format(tmp=tmp, root=folder, parent=os.getpid())
    ended = await run(Workspace(folder, protected=ProtectedFiles()), script, machine=ONLY_LANDLOCK)
    assert (ended.stdout, ended.exit_code != 0) == ("", True)
    for path, facts in before.items():
        found = path.lstat()
        assert (found.st_mode, found.st_uid, found.st_mtime_ns) == (facts.st_mode, facts.st_uid, facts.st_mtime_ns)
    assert (folder / "open.txt").read_text(encoding="utf-8") == "open\n"


@needs_landlock
async def test_a_program_in_it_reads_the_workspace_without_any_privilege(folder: Path):
    script = f"cat {folder}/open.txt; echo gone > /dev/null; exec cat /proc/self/status"
    shown = (await run(Workspace(folder, protected=ProtectedFiles()), script, machine=ONLY_LANDLOCK)).stdout
    assert shown.startswith("open\n")
    for line in ("NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"):
        assert line in shown


KINDS = {
    "TCP": "socket.socket()",
    "UDP": "socket.socket(type=socket.SOCK_DGRAM)",
    "IPv6": "socket.socket(socket.AF_INET6)",
    "Unix": "socket.socket(socket.AF_UNIX)",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
}


@needs_landlock
@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_sockets_are_closed_but_those_of_the_internet_where_the_settings_allow_them(
    folder: Path, kind: str, network: bool
):
    need(Path("/usr/bin/python3").exists(), "/usr/bin/python3")
    code = f"import socket; {KINDS[kind]}; print('made')"
    ended = await run(
        Workspace(folder, protected=ProtectedFiles()),
        f'/usr/bin/python3 -I -c "{code}"',
        network=network,
        machine=ONLY_LANDLOCK,
    )
    may = network and kind in ("TCP", "UDP", "IPv6")
    assert (ended.stdout.strip(), "PermissionError" in ended.stderr) == (("made", False) if may else ("", True))


PROTECTED = {
    "by its name": lambda root: (root / ".env").write_text(SECRET, encoding="utf-8"),
    "deep inside": lambda root: (
        (root / "a").mkdir(),
        (root / "a" / "graphflow.toml").write_text("", encoding="utf-8"),
    ),
    "by its place": lambda root: ((root / "checkpoints").mkdir(), (root / "checkpoints/threads.db").touch()),
    "by a hard link": lambda root: os.link(root.parent / ".env", root / "notes.txt"),
}


@pytest.mark.parametrize("kind", PROTECTED)
def test_it_is_not_used_where_the_program_could_read_a_protected_file(tmp_path: Path, kind: str):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / ".env").write_text(SECRET, encoding="utf-8")
    PROTECTED[kind](root)
    home = root if kind == "by its place" else tmp_path
    workspace = server_workspace(root, settings_in(home))

    def applied_by(policy: SandboxPolicy) -> dict[str, Any]:
        return sandboxed(
            ["/bin/true"],
            policy,
            setting="bash.sandbox",
            network=False,
            protected=workspace.protected,
            workspace=workspace,
            machine=ONLY_LANDLOCK,
        ).applied

    with pytest.raises(FileRefused, match="setting bash.sandbox is 'required', and Landlock can't hide"):
        applied_by("required")
    applied = applied_by("preferred")
    assert applied["applied"] == "none"
    assert "protected files" in applied["reason"]


def test_bubblewrap_is_taken_before_it():
    machine = Sandboxes(bubblewrap=lambda: "/usr/bin/bwrap", landlock=lambda: pytest.fail("looked for"))
    box = sandboxed(["/bin/true"], "required", setting="x", network=False, protected=ProtectedFiles(), machine=machine)
    assert (box.argv[0], box.applied["applied"]) == ("/usr/bin/bwrap", "bubblewrap")


def test_a_program_that_can_not_be_confined_is_not_started(tmp_path: Path):
    """The launcher without a kernel that confines: a plan that it can't carry out ends it."""
    need(sys.platform == "linux", "Linux")
    box = sandboxed(
        ["/bin/sh", "-c", "echo started"],
        "required",
        setting="x",
        network=False,
        protected=ProtectedFiles(),
        machine=ONLY_LANDLOCK,
    )
    words = [word.replace('"readable": ["/usr"', '"readable": ["/usr\\u0000"') for word in box.argv]
    assert words != list(box.argv)
    ended = subprocess.run(words, capture_output=True, check=False, env={}, timeout=PATIENCE_S)
    assert (ended.returncode != 0, ended.stdout) == (True, b"")


def test_the_probe_agrees_with_the_kernel():
    assert landlock_abi() == 0 or landlock_abi() >= 6
    assert not find_landlock() or landlock_abi()
