"""Runs one program to its end or its time limit, without a shell, and keeps the beginning of what it wrote."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ProcessResult:
    """The outcome of a program."""

    exit_code: int | None
    """None when it was killed at the time limit."""
    stdout: str
    stderr: str
    cut: bool
    """Whether either was longer than what is kept."""

    @property
    def timed_out(self) -> bool:
        return self.exit_code is None


async def run_program(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float, max_chars: int
) -> ProcessResult:
    """Runs `argv` in a process group of its own, which is killed as a whole at its end, at the limit or when cancelled.

    Args:
        argv: the program's path and its arguments.
        cwd: where it runs.
        env: its whole environment.
        timeout_s: seconds.
        max_chars: of stdout and of stderr each; the rest is read and dropped.

    Raises:
        OSError: the program can't be started.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env=dict(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Its own process group, so that children which the program leaves behind are killed with it.
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    kept = _CutOutput(max_chars), _CutOutput(max_chars)
    exit_code: int | None = None
    try:
        async with asyncio.timeout(timeout_s):
            # Both pipes at once: a program that fills the one nobody reads would block.
            await asyncio.gather(kept[0].read(process.stdout), kept[1].read(process.stderr))
            exit_code = await process.wait()
    except TimeoutError:
        pass  # `exit_code` stays None, which says so
    finally:
        # Also on cancellation, and when the program has ended and left a child behind: no path may leave one running. The
        # number of a group is not given to another process while anything is left in it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            await process.wait()
    return ProcessResult(exit_code=exit_code, stdout=kept[0].text, stderr=kept[1].text, cut=kept[0].cut or kept[1].cut)


class _CutOutput:
    """The first `max_chars` characters of a stream."""

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._data = bytearray()
        self._dropped = False

    async def read(self, stream: asyncio.StreamReader) -> None:
        room = self._max_chars * 4  # bytes: the most that UTF-8 takes for them
        # Read to the end even when full: a program that can't write would block until its time limit.
        while chunk := await stream.read(1 << 16):
            self._dropped = self._dropped or len(chunk) > room - len(self._data)
            self._data += chunk[: room - len(self._data)]

    @property
    def _whole(self) -> str:
        return self._data.decode("utf-8", errors="replace")

    @property
    def text(self) -> str:
        return self._whole[: self._max_chars]

    @property
    def cut(self) -> bool:
        return self._dropped or len(self._whole) > self._max_chars
