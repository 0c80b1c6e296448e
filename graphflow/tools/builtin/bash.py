"""`bash`: a few commands that look around, in the workspace of the thread only. No shell is involved.

`ls`, `pwd`, `cat`, `head` and `tail` run in this process, on what the file port has opened: no program resolves a path
of theirs again. `top`, `free` and `df` are programs, in a sandbox where the machine has one. If a sandbox is required and the
machine has none, every command is refused.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from graphflow.settings import Settings
from graphflow.tools.builtin.command_line import CommandRefused, split_words
from graphflow.tools.builtin.commands import COMMANDS, CommandLine, read_command
from graphflow.tools.builtin.ls import list_files
from graphflow.tools.builtin.output import Output, OutputEnded
from graphflow.tools.builtin.paths import expand
from graphflow.tools.builtin.process import ProcessResult, run_program
from graphflow.tools.builtin.readers import read_files
from graphflow.tools.context import ToolContext
from graphflow.tools.port import Tool, tool
from graphflow.tools.result import ToolFailure, ToolResult, failed
from graphflow.tools.run_in_thread import owner_of, run_in_thread
from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace
from graphflow.tools.workspace.homes import Workspaces
from graphflow.tools.workspace.sandbox import IN_PROCESS, Sandboxes, SandboxPolicy, sandboxed

# Fixed: a PATH from the environment could name a folder that the model can write to.
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_HINT = "Use one command with plain paths below the working directory."
_PROGRAMS = frozenset({"top", "free", "df"})


@dataclass(frozen=True, kw_only=True)
class BashPolicy:
    """Where `bash` may look."""

    working_directory: Path | str = "."
    """Where commands run (`AGENT_BASH_WORKING_DIRECTORY`), unless the thread has a user's workspace."""
    allowed_paths: tuple[Path | str, ...] = ()
    """Further folders that paths may lie in (`AGENT_BASH_ALLOWED_PATHS`)."""
    timeout_s: float = 5.0
    max_chars: int = 2_000
    """Of stdout and of stderr each."""
    protected: ProtectedFiles = field(default_factory=lambda: ProtectedFiles.of(Settings()))
    """Files of the server that no command opens; default: those of a server in the process's working directory."""
    sandbox: SandboxPolicy | None = None
    """Of programs (`bash.sandbox`); None: `required` where users have workspaces of their own, else `preferred`."""
    allow_network: bool = False
    """Whether programs in the sandbox may use the network (`bash.allow_network`)."""
    sandboxes: Sandboxes = Sandboxes()
    """What this machine has."""

    def workspaces(self, **options: Any) -> Workspaces:
        """The workspaces of this policy; `options` are those of `Workspaces`."""
        further = tuple(Path(path) for path in self.allowed_paths)
        return Workspaces(Path(self.working_directory), further=further, protected=self.protected, **options)


def bash_tool(policy: BashPolicy, workspaces: Workspaces | None = None) -> Tool:
    """The tool `bash` under this policy.

    Args:
        workspaces: the workspace of each thread; default: the policy's folder for all.
    """
    places = workspaces or policy.workspaces()

    @tool(
        name="bash",
        description=f"Runs one of the commands {', '.join(COMMANDS)} in the working directory and returns its output. "
        "No pipes, chaining, redirection or variables; wildcards in file names only.",
        capabilities=("shell",),
        effects="write",  # E6 names the built-ins that only look; this one is not among them
        parameters={
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "For example: ls -l docs, or head -n 20 README.md"}
            },
            "required": ["command"],
            "additionalProperties": False,
        },
    )
    async def bash(command: str, ctx: ToolContext) -> ToolResult:
        try:
            place = await places.of(ctx.thread_id)
        except FileRefused as refused:
            return failed(refused.code, str(refused))
        owner = owner_of(ctx.starter, ctx.thread_id)
        return await run_command(command, policy, place.workspace, apart=place.shared_server, owner=owner)

    return bash


MAX_COMMAND = 10_000
"""Characters of a command; they are read on the event loop in a few milliseconds."""
MAX_PATHS = 1_000
"""Paths of a command, what its patterns match included."""


async def run_command(
    command: str, policy: BashPolicy, workspace: Workspace | None = None, *, apart: bool = False, owner: str = ""
) -> ToolResult:
    """The result of one command line; a refusal names what is allowed.

    Args:
        workspace: where it runs; default: the policy's folder.
        apart: whether the server has users that must not see each other's files.
        owner: whose share of the threads it takes (`run_in_thread`).
    """
    sandbox = policy.sandbox or ("required" if apart else "preferred")
    try:
        # Every command, also one that starts no program: `required` means that nothing runs on a machine without a sandbox.
        await asyncio.to_thread(policy.sandboxes.require, sandbox, "bash.sandbox")
        if workspace is None:
            workspace = (await policy.workspaces().of("")).workspace
        call = _CommandCall(
            command=command, parts=_parts(command), policy=policy, workspace=workspace, sandbox=sandbox, owner=owner
        )
        result = await call.run()
    except CommandRefused as refused:
        return _with_sandbox(failed(refused.code, str(refused), _HINT), IN_PROCESS)
    except FileRefused as refused:
        allowed = "" if workspace is None else f"Allowed are {', '.join(map(str, workspace.folders))}."
        return _with_sandbox(failed(refused.code, str(refused), allowed), {"policy": sandbox, "applied": "refused"})
    return result


def _with_sandbox(result: ToolResult, applied: Mapping[str, Any]) -> ToolResult:
    return msgspec.structs.replace(result, context={**result.context, "sandbox": dict(applied)})


@dataclass(frozen=True, kw_only=True)
class _CommandCall:
    """One command line in one workspace."""

    command: str
    parts: CommandLine
    policy: BashPolicy
    workspace: Workspace
    sandbox: SandboxPolicy
    owner: str

    async def run(self) -> ToolResult:
        stopped = threading.Event()
        try:
            names, paths, ended = await run_in_thread(self.owner, self._look, stopped)
        finally:
            # A thread can't be cancelled; it ends with the next path that it looks up or line that it writes.
            stopped.set()
        shown = shlex.join([self.parts.name, *self.parts.options, *(["--", *names] if names else [])])
        applied: Mapping[str, Any] = IN_PROCESS
        if ended is None:
            ended, applied = await self._program(paths)
        return _with_sandbox(_result(self.command, shown, self.workspace, ended, self.policy), applied)

    def _look(self, stopped: threading.Event) -> tuple[list[str], list[str], ProcessResult | None]:
        """The names of the paths, the paths for a program, and of a command without one how it ended; blocks."""
        out = Output(self.policy.max_chars, self.policy.timeout_s, stopped)
        names, paths = self._names(out), []
        with suppress(OutputEnded):
            if self.parts.name in _PROGRAMS:
                for name in names:
                    out.check()
                    # `df` gets what the port found, not the name: another one could have taken its place.
                    paths += [] if name == "-" else [str(self.workspace.find(name).path)]
                return names, paths, None
            self._in_process(names, out)
        code = None if out.timed_out else int(out.failed)
        return names, paths, ProcessResult(exit_code=code, stdout=out.stdout, stderr=out.stderr, cut=out.cut)

    def _names(self, out: Output) -> list[str]:
        self.workspace.find(".")
        names: list[str] = []
        for word in self.parts.operands:
            names += expand(word, self.workspace)
            if len(names) > MAX_PATHS:
                raise CommandRefused(f"the command names more than {MAX_PATHS} paths")
            # The time of the command is over: it shows what it has found so far.
            if out.is_over():
                break
        return names

    def _in_process(self, names: list[str], out: Output) -> None:
        name, options = self.parts.name, self.parts.options
        if name == "pwd":
            out.write(f"{os.path.realpath(self.workspace.root)}\n")
        elif name == "ls":
            list_files(options, names, self.workspace, out)
        else:
            read_files(name, options, names, self.workspace, out)

    async def _program(self, paths: list[str]) -> tuple[ProcessResult, dict[str, Any]]:
        name = self.parts.name
        program = shutil.which(name, path=_PATH)
        if program is None:
            raise FileRefused("NOT_FOUND", f"this machine has no {name!r}; use another command")
        argv = [program, *self.parts.options, *(["--", *paths] if paths else [])]
        box = await asyncio.to_thread(
            sandboxed,
            argv,
            self.sandbox,
            setting="bash.sandbox",
            network=self.policy.allow_network,
            protected=self.workspace.protected,
            workspace=self.workspace if paths else None,
            machine=self.policy.sandboxes,
        )
        ended = await run_program(
            box.argv, cwd=Path("/"), env=_ENVIRONMENT, timeout_s=self.policy.timeout_s, max_chars=self.policy.max_chars
        )
        return ended, box.applied


def _parts(command: str) -> CommandLine:
    if len(command) > MAX_COMMAND:
        raise CommandRefused(f"the command has {len(command)} characters; the limit is {MAX_COMMAND}")
    words = split_words(command)
    if not words:
        raise CommandRefused("missing argument: the command is empty")
    return read_command(words)


_ENVIRONMENT: Mapping[str, str] = {
    "PATH": _PATH, "HOME": "/", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "dumb", "COLUMNS": "120",
}  # fmt: skip
"""The whole environment of a program: nothing of this process's own, so no secret."""


def _result(
    command: str, normalized: str, workspace: Workspace, ended: ProcessResult, policy: BashPolicy
) -> ToolResult:
    data: dict[str, Any] = {
        "tool": "bash",
        "command": command,
        "allowedCommands": list(COMMANDS),
        "normalizedCommand": normalized,
        "workingDirectory": str(workspace.root),
        "allowedRoots": [str(folder) for folder in workspace.folders],
        "ok": ended.exit_code == 0,
        "timedOut": ended.timed_out,
        "exitCode": -1 if ended.exit_code is None else ended.exit_code,
        "stdout": ended.stdout,
        "stderr": ended.stderr,
        **({"truncated": True} if ended.cut else {}),
    }
    issues = _issues(ended, policy)
    if not issues:
        return ToolResult(data=data, text=ended.stdout.strip() or "OK (no output)")
    text = f"{ended.stdout}{ended.stderr}".strip() + f"\n[{'; '.join(issues)}]"
    # With some output a timeout is a partial result: what was printed is still of use.
    if ended.timed_out and not ended.stdout:
        failure = ToolFailure(code="TIMEOUT", message=issues[0])
        return ToolResult(status="error", data=data, text=f"{issues[0]}. Look at less.", error=failure)
    return ToolResult(status="partial", data=data, text=text.strip())


def _issues(ended: ProcessResult, policy: BashPolicy) -> list[str]:
    issues = []
    if ended.timed_out:
        issues.append(f"stopped after {policy.timeout_s:g} s")
    elif ended.exit_code:
        issues.append(f"exit code {ended.exit_code}")
    if ended.cut:
        issues.append(f"cut after {policy.max_chars} characters; look at a part, with head -n or tail -n")
    return issues
