"""Processes of the command line for tests: on pipes, and on a terminal (a pty of the standard library)."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

LIMIT_S = 30.0
"""When a process that says nothing more is given up."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


@dataclass(frozen=True)
class Done:
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    @property
    def lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


class Command:
    """Runs `graphflow …` on pipes."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment

    def __call__(self, *arguments: str, input: str = "") -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "graphflow", *arguments],
            cwd=self.folder,
            env=self.environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A process that runs on; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-m", "graphflow", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


class Terminal:
    """`graphflow …` with a person in front of it."""

    def __init__(self, folder: Path, environment: dict[str, str], *arguments: str) -> None:
        self._raw = b""
        self._read = 0
        self.code: int | None = None
        master, slave = pty.openpty()
        self._terminal = master
        self._process = subprocess.Popen(
            [sys.executable, "-m", "graphflow", *arguments],
            cwd=folder,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            close_fds=True,
            preexec_fn=_own_terminal,
        )
        os.close(slave)

    @property
    def text(self) -> str:
        """All that was shown, without colours and cursor movements."""
        return _ESCAPES.sub("", self._raw.decode(errors="replace"))

    def sees(self, pattern: str) -> str:
        """Waits until the pattern is shown after what was seen before; all of the text so far."""
        while not (found := re.search(pattern, self.text[self._read :])):
            if not self._more():
                raise AssertionError(f"{pattern!r} was never shown:\n{self.text}")
        self._read += found.end()
        return self.text

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def enters(self, line: str) -> None:
        self.types(line + "\r")

    def presses_ctrl_c(self) -> None:
        self.types("\x03")

    def ends(self) -> int:
        """Waits for the end; the exit code."""
        while self._more():
            pass
        self.code = self._process.wait(LIMIT_S)
        return self.code

    def close(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._terminal)

    def _more(self) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], LIMIT_S)
        if not ready:
            raise AssertionError(f"nothing more was shown for {LIMIT_S:g} s:\n{self.text}")
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # the other end is closed: Linux says EIO
            return False
        self._raw += data
        return bool(data)


def _own_terminal() -> None:
    """Makes stdin the controlling terminal, so that Ctrl-C is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
