"""The sandbox of programs that tools start: bubblewrap, with masks over what is protected, else Landlock.

A program sees system folders read-only, an empty `/tmp`, its own processes, no network unless it is allowed, and the
workspace read-only if it needs it. Landlock can't hide a file inside a folder that is open, so it is used only where nothing
protected lies in what the program may read. A program in no sandbox could open any file of the server's user, so where users
are kept apart none is started without.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from graphflow.tools.workspace import program_launcher
from graphflow.tools.workspace.files import Workspace
from graphflow.tools.workspace.protected import ProtectedFiles, identity, protected_entries
from graphflow.tools.workspace.refusals import FileRefused
from graphflow.tools.workspace.resolving import real_root

SandboxPolicy = Literal["required", "preferred", "off"]
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
SYSTEM_FILES = (
    "/etc/ld.so.cache", "/etc/alternatives", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/localtime",
)  # fmt: skip
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/etc/ca-certificates")
_MACHINE_FILES = (
    "/proc/self", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/loadavg", "/proc/cpuinfo", "/proc/filesystems",
    "/dev/zero", "/dev/urandom",
)  # fmt: skip
"""What stands for the `/proc` and `/dev` of bubblewrap under Landlock: nothing of other processes."""
_PROBE_S = 10


@dataclass(frozen=True, kw_only=True)
class Sandboxed:
    """A command line, and what confines it."""

    argv: tuple[str, ...]
    applied: dict[str, Any]
    """`context.sandbox` of the result."""


IN_PROCESS: dict[str, Any] = {"applied": "in-process"}
"""`context.sandbox` of a command that starts no program: the file port is its boundary."""


def find_bubblewrap() -> str | None:
    """The path of a `bwrap` that works here; a container may have the program and forbid what it does."""
    path = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    return path if path is not None and _works(path, *_confinement(network=False), "--ro-bind", "/", "/") else None


def find_landlock() -> bool:
    """Whether this machine's Landlock can confine a program."""
    # The whole way once: a container may forbid a call that the kernel has.
    return program_launcher.landlock_abi() > 0 and _works(*_launched(SYSTEM_FOLDERS, network=False))


@lru_cache(maxsize=8)
def _works(*argv: str) -> bool:
    program = shutil.which("true", path="/usr/bin:/bin") or "/bin/true"
    try:
        ended = subprocess.run([*argv, program], capture_output=True, timeout=_PROBE_S, env={}, check=False)  # noqa: S603 - fixed words
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


@dataclass(frozen=True, kw_only=True)
class Sandboxes:
    """What a machine has; all of it blocks."""

    bubblewrap: Callable[[], str | None] = find_bubblewrap
    landlock: Callable[[], bool] = find_landlock

    def require(self, policy: SandboxPolicy, setting: str) -> None:
        """Refuses where the policy is `required` and there is none.

        Raises:
            FileRefused: it names the setting and what to install.
        """
        if policy == "required" and self.bubblewrap() is None and not self.landlock():
            raise _refused(setting, _NONE)


_NONE = "this machine has neither a bubblewrap (bwrap) that works nor Landlock of Linux 6.12"


def _refused(setting: str, reason: str) -> FileRefused:
    return FileRefused(
        "PERMISSION_DENIED",
        f"setting {setting} is 'required', and {reason}: install the package bubblewrap and let it make namespaces,"
        f" or set {setting} to 'preferred' or 'off'",
    )


def sandboxed(
    argv: Sequence[str],
    policy: SandboxPolicy,
    *,
    setting: str,
    network: bool,
    protected: ProtectedFiles,
    workspace: Workspace | None = None,
    machine: Sandboxes = Sandboxes(),
) -> Sandboxed:
    """The command line that runs `argv` as the policy says, and ends with this process. Blocks.

    Args:
        argv: a program's path and its arguments.
        setting: the name of the policy's setting, for the refusal.
        network: whether the program may use the network.
        protected: what no program sees.
        workspace: what the program may read; None: only system folders.
        machine: what can confine it.

    Raises:
        FileRefused: the policy is `required`, and no sandbox here does what it takes.
    """
    facts: dict[str, Any] = {"policy": policy}
    without = (*_launched(None, network=True), *argv)
    if policy == "off":
        return Sandboxed(argv=without, applied={**facts, "applied": "none", "network": True})
    bubblewrap = machine.bubblewrap()
    roots = _roots(workspace)
    if bubblewrap is not None:
        mounts = _mounts(roots, _masks(workspace, roots, protected), network=network)
        wrapped = (bubblewrap, *_confinement(network=network), *mounts, "--", *argv)
        return Sandboxed(argv=wrapped, applied={**facts, "applied": "bubblewrap", "network": network})
    reason = _NONE
    if machine.landlock():
        if not _masks(workspace, roots, protected):
            readable = [*_system(network=network), *_MACHINE_FILES, *map(str, roots)]
            wrapped = (*_launched(readable, network=network), *argv)
            return Sandboxed(argv=wrapped, applied={**facts, "applied": "landlock", "network": network})
        reason = "Landlock can't hide the protected files in what the program may read, and bubblewrap (bwrap) is missing here"
    if policy == "required":
        raise _refused(setting, reason)
    return Sandboxed(argv=without, applied={**facts, "applied": "none", "network": True, "reason": reason})


def _launched(readable: Sequence[str] | None, *, network: bool) -> tuple[str, ...]:
    """The words before a program that is started without bubblewrap."""
    if sys.platform != "linux" or not sys.executable:
        return ()
    plan = {"parent": os.getpid(), "readable": readable, "network": network}
    return (sys.executable, "-I", "-S", program_launcher.__file__, json.dumps(plan))


def _confinement(*, network: bool) -> tuple[str, ...]:
    return (
        "--unshare-all", *(("--share-net",) if network else ()), "--die-with-parent", "--new-session", "--cap-drop", "ALL",
    )  # fmt: skip


def _system(*, network: bool) -> tuple[str, ...]:
    return (*SYSTEM_FOLDERS, *SYSTEM_FILES, *(NETWORK_FILES if network else ()))


def _mounts(roots: Sequence[Path], masks: Sequence[Path], *, network: bool) -> list[str]:
    out: list[str] = []
    for name in _system(network=network):
        # `/lib` may be a link to `/usr/lib`; the place keeps its name.
        out += ["--ro-bind-try", name, name]
    out += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - the one of the sandbox
    for path in roots:
        out += ["--ro-bind", str(path), str(path)]
    for path in masks:
        is_folder = path.is_dir() and not path.is_symlink()
        out += ["--tmpfs", str(path)] if is_folder else ["--ro-bind", "/dev/null", str(path)]
    return [*out, "--chdir", str(roots[0])] if roots else out


def _roots(workspace: Workspace | None) -> list[Path]:
    """The real folders of a workspace that exist.

    Raises:
        FileRefused: one of them is protected.
    """
    if workspace is None:
        return []
    roots = [real_root(folder, workspace.protected) for folder in workspace.folders]
    if any(root.guard.covers_root() for root in roots):
        raise FileRefused("ACCESS_DENIED", "path not allowed: the workspace belongs to the server")
    return [root.real for root in roots if root.real.is_dir()]


def _masks(workspace: Workspace | None, roots: Sequence[Path], protected: ProtectedFiles) -> list[Path]:
    """Everything that a program would see and that is protected: by its name, its place, or one more name that is."""
    out: list[Path] = []
    known = set(protected.linked(roots)) if workspace is not None else set()
    try:
        for root in roots:
            for entry, is_protected in protected_entries(root):
                facts = entry.stat(follow_symlinks=False)
                if is_protected or (facts.st_nlink > 1 and not entry.is_dir() and identity(facts) in known):
                    out.append(Path(entry.path))
    except OverflowError as error:
        raise FileRefused("PERMISSION_DENIED", f"the workspace is too large for a sandbox: {error}") from None
    return [*out, *protected.hidden([*map(Path, SYSTEM_FOLDERS), *roots])]


def reading_only(
    argv: Sequence[str], readable: Sequence[str], machine: Sandboxes = Sandboxes()
) -> tuple[tuple[str, ...], bool]:
    """The command line of a program that needs no more than to read these paths, and whether it is confined to them. Blocks.

    Args:
        argv: a program's path and its arguments.
        readable: what it may read and execute; relative paths are those of the folder that it is started in.
        machine: what can confine it; without Landlock the program is not confined.
    """
    if not machine.landlock():
        return (*_launched(None, network=False), *argv), False
    return (*_launched(readable, network=False), *argv), True
