"""`bash`: a few commands that look around, in allowed folders only. No shell is involved.

Between the check of a path and its use by the command another process could swap a folder for a link; the tool
itself can't, as none of its commands writes.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphflow.tools.builtin.command_line import CommandRefused, split_words
from graphflow.tools.builtin.commands import COMMANDS, CommandLine, read_command
from graphflow.tools.builtin.paths import PathRefused, Roots
from graphflow.tools.builtin.process import ProcessResult, run_program
from graphflow.tools.port import Tool, tool
from graphflow.tools.result import ToolFailure, ToolResult, failed

# Fixed: a PATH from the environment could name a folder that the model can write to.
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_HINT = "Use one command with plain paths below the working directory."


@dataclass(frozen=True, kw_only=True)
class BashPolicy:
    """Where `bash` may look."""

    working_directory: Path | str = "."
    """Where commands run (`AGENT_BASH_WORKING_DIRECTORY`)."""
    allowed_paths: tuple[Path | str, ...] = ()
    """Further folders that paths may lie in (`AGENT_BASH_ALLOWED_PATHS`)."""
    timeout_s: float = 5.0
    max_chars: int = 2_000
    """Of stdout and of stderr each."""

    def roots(self) -> Roots:
        """The folders as they are now, links resolved."""
        working = Path(self.working_directory).expanduser().resolve()
        return Roots(working, tuple((working / Path(path).expanduser()).resolve() for path in self.allowed_paths))


def bash_tool(policy: BashPolicy) -> Tool:
    """The tool `bash` under this policy."""

    @tool(
        name="bash",
        description=f"Runs one of the commands {', '.join(COMMANDS)} in the working directory and returns its output. "
        "No pipes, chaining, redirection or variables; wildcards in file names only.",
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
    async def bash(command: str) -> ToolResult:
        return await run_command(command, policy)

    return bash


async def run_command(command: str, policy: BashPolicy) -> ToolResult:
    """The result of one command line; a refusal names what is allowed."""
    # Resolved for each call: a link may have been changed since the last one.
    roots = policy.roots()
    try:
        parts = _parts(command)
        argv = [*parts.options, *_operands(parts, roots)]
    except CommandRefused as refused:
        return failed(refused.code, str(refused), _HINT)
    except PathRefused as refused:
        return failed(refused.code, str(refused), f"Allowed are {', '.join(map(str, roots.all))}.")
    if not roots.working.is_dir():
        return failed(
            "NOT_FOUND", f"the working directory {roots.working} does not exist", "Tell the person who set it."
        )
    program = shutil.which(parts.name, path=_PATH)
    if program is None:
        return failed("NOT_FOUND", f"this machine has no {parts.name!r}", "Use another command.")
    ended = await run_program(
        [program, *argv],
        cwd=roots.working,
        env=_environment(roots),
        timeout_s=policy.timeout_s,
        max_chars=policy.max_chars,
    )
    return _result(command, shlex.join([parts.name, *argv]), roots, ended, policy)


def _parts(command: str) -> CommandLine:
    words = split_words(command)
    if not words:
        raise CommandRefused("missing argument: the command is empty")
    return read_command(words)


def _operands(parts: CommandLine, roots: Roots) -> list[str]:
    names = [name for word in parts.operands for name in roots.expand(word)]
    return ["--", *names] if names else []  # a file may be called -f


def _environment(roots: Roots) -> Mapping[str, str]:
    """The whole environment of a command: nothing of this process's own, so no secret."""
    return {
        "PATH": _PATH,
        "HOME": str(roots.working),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "COLUMNS": "120",
    }


def _result(command: str, normalized: str, roots: Roots, ended: ProcessResult, policy: BashPolicy) -> ToolResult:
    data: dict[str, Any] = {
        "tool": "bash",
        "command": command,
        "allowedCommands": list(COMMANDS),
        "normalizedCommand": normalized,
        "workingDirectory": str(roots.working),
        "allowedRoots": [str(root) for root in roots.all],
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
