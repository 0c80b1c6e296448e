"""The sandbox of programs that tools start: bubblewrap, with masks over what is protected.

A program sees system folders read-only, an empty `/tmp`, its own processes, no network unless it is allowed, and the
workspace read-only if it needs it. A program in no sandbox could open any file of the server's user, so where users are kept
apart none is started without.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from graphflow.tools.workspace.files import Workspace
from graphflow.tools.workspace.protected import identity, protected_entries
from graphflow.tools.workspace.refusals import FileRefused
from graphflow.tools.workspace.resolving import real_root

SandboxPolicy = Literal["required", "preferred", "off"]
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
SYSTEM_FILES = (
    "/etc/ld.so.cache", "/etc/alternatives", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/localtime",
)  # fmt: skip
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/etc/ca-certificates")
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
    return path if path is not None and _works(path) else None


@lru_cache(maxsize=8)
def _works(path: str) -> bool:
    probe = [path, *_confinement(network=False), "--ro-bind", "/", "/", "true"]
    try:
        ended = subprocess.run(probe, capture_output=True, timeout=_PROBE_S, env={}, check=False)  # noqa: S603 - fixed words
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def sandboxed(
    argv: Sequence[str],
    policy: SandboxPolicy,
    *,
    setting: str,
    network: bool,
    workspace: Workspace | None = None,
    find: Callable[[], str | None] = find_bubblewrap,
) -> Sandboxed:
    """The command line that runs `argv` as the policy says. Blocks.

    Args:
        argv: a program's path and its arguments.
        setting: the name of the policy's setting, for the refusal.
        network: whether the program may use the network.
        workspace: what the program may read; None: only system folders.

    Raises:
        FileRefused: the policy is `required`, and this machine has no sandbox.
    """
    facts: dict[str, Any] = {"policy": policy}
    if policy == "off":
        return Sandboxed(argv=tuple(argv), applied={**facts, "applied": "none", "network": True})
    bubblewrap = find()
    if bubblewrap is not None:
        wrapped = (bubblewrap, *_confinement(network=network), *_mounts(workspace, network=network), "--", *argv)
        return Sandboxed(argv=wrapped, applied={**facts, "applied": "bubblewrap", "network": network})
    reason = "bubblewrap (bwrap) is missing here or may not make namespaces"
    if policy == "required":
        raise FileRefused(
            "PERMISSION_DENIED",
            f"setting {setting} is 'required', and {reason}: install it, or set {setting} to 'preferred' or 'off'",
        )
    return Sandboxed(argv=tuple(argv), applied={**facts, "applied": "none", "network": True, "reason": reason})


def _confinement(*, network: bool) -> tuple[str, ...]:
    return (
        "--unshare-all", *(("--share-net",) if network else ()), "--die-with-parent", "--new-session", "--cap-drop", "ALL",
    )  # fmt: skip


def _mounts(workspace: Workspace | None, *, network: bool) -> list[str]:
    out: list[str] = []
    for name in (*SYSTEM_FOLDERS, *SYSTEM_FILES, *(NETWORK_FILES if network else ())):
        # `/lib` may be a link to `/usr/lib`; the place keeps its name.
        out += ["--ro-bind-try", name, name]
    out += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - the one of the sandbox
    folders = [Path(name) for name in SYSTEM_FOLDERS]
    if workspace is not None:
        roots = [real_root(folder, workspace.protected) for folder in workspace.folders]
        if any(root.guard.covers_root() for root in roots):
            raise FileRefused("ACCESS_DENIED", "path not allowed: the workspace belongs to the server")
        real = [root.real for root in roots if root.real.is_dir()]
        for path in real:
            out += ["--ro-bind", str(path), str(path)]
        out += _masks(workspace, real)
        folders += real
        out += ["--chdir", str(real[0])] if real else []
    places = workspace.protected.hidden(folders) if workspace is not None else ()
    for path in places:
        out += _mask(path, is_folder=path.is_dir())
    return out


def _masks(workspace: Workspace, roots: Sequence[Path]) -> list[str]:
    """Covers every file of the workspace that is protected by its name, or has one more name that is."""
    known = set(workspace.protected.linked(roots))
    out: list[str] = []
    try:
        for root in roots:
            for entry, is_protected in protected_entries(root):
                facts = entry.stat(follow_symlinks=False)
                if is_protected or (facts.st_nlink > 1 and not entry.is_dir() and identity(facts) in known):
                    out += _mask(Path(entry.path), is_folder=entry.is_dir(follow_symlinks=False))
    except OverflowError as error:
        raise FileRefused("PERMISSION_DENIED", f"the workspace is too large for a sandbox: {error}") from None
    return out


def _mask(path: Path, *, is_folder: bool) -> list[str]:
    return ["--tmpfs", str(path)] if is_folder else ["--ro-bind", "/dev/null", str(path)]
