"""Processes of the command line for tests: on pipes, and on a terminal (a pty of the standard library)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import structlog
from typer.core import TyperGroup
from typer.main import get_group

from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.server import ScriptedServer
from tests.forked import ForkedProcess, python
from tests.patience import PATIENCE_S

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
    """Runs `graphflow …` on pipes: in this process, which is quick, or as one of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        self._started: list[ForkedProcess] = []

    def __call__(self, *arguments: str, input: str = "") -> Done:
        with contextlib.chdir(self.folder), _environment(self.environment), _own_logging():
            return in_process(*arguments, input=input)

    def process(self, *arguments: str, input: str = "") -> Done:
        """The same as a process, to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "graphflow", *arguments],
            cwd=self.folder,
            env=self.environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> ForkedProcess:
        """A process that runs on until the test ends, at the latest."""
        pipes = ("stdout", "stderr")
        process = python("-m", "graphflow", *arguments, cwd=self.folder, env=self.environment, pipes=pipes)
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def in_process(*arguments: str, input: str = "") -> Done:
    """What `graphflow …` prints, run in this process and in its folder."""
    from typer.testing import CliRunner

    with CliRunner().isolation(input=input) as (out, err, _):
        try:
            command_tree().main(args=arguments, prog_name="graphflow")
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
        sys.stderr.flush()
        return Done(int(code or 0), out.getvalue().decode(), err.getvalue().decode())


@cache
def command_tree() -> TyperGroup:
    """The commands of `graphflow`. Typer makes them anew for each call, which takes longer than most commands."""
    from graphflow.cli.app import app

    return get_group(app)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _own_logging() -> Iterator[None]:
    """A command sets logging up for its process; here it has to be put back."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    structlog.reset_defaults()  # whatever another test of this process has set up
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        structlog.reset_defaults()


class Terminal:
    """`graphflow …` with a person in front of it."""

    def __init__(self, folder: Path, environment: dict[str, str], *arguments: str, program: str = "graphflow") -> None:
        self._raw = b""
        self._read = 0
        self.code: int | None = None
        master, slave = pty.openpty()
        self._terminal = master
        self._process = python("-m", program, *arguments, cwd=folder, env=environment, terminal=slave)
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
        os.write(self._terminal, text.encode(errors="surrogateescape"))

    def enters(self, line: str) -> None:
        self.types(line + "\r")

    def presses_ctrl_c(self) -> None:
        self.types("\x03")

    def ends(self) -> int:
        """Waits for the end; the exit code."""
        while self._more():
            pass
        self.code = self._process.wait()
        return self.code

    def close(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._terminal)

    def _more(self) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], PATIENCE_S)
        if not ready:
            raise AssertionError(f"nothing more was shown for {PATIENCE_S:g} s:\n{self.text}")
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # the other end is closed: Linux says EIO
            return False
        self._raw += data
        return bool(data)


class HeldModel:
    """The scripted model behind HTTP, in a thread; it sends deltas up to a point, then waits for the test."""

    def __init__(self) -> None:
        self._server = ScriptedServer(ScriptedModel(), self._gate)
        self._hold: tuple[int, int] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._moved = asyncio.Event()

    def hold(self, *, request: int, delta: int = 0) -> None:
        """Waits in the `request`-th request (1 is the first) after `delta` deltas of it."""
        self._hold = (request, delta)
        self._sent_before = 0

    def release(self) -> None:
        """Waits nowhere any more."""
        self._hold = None
        self._loop.call_soon_threadsafe(self._moved.set)

    async def _gate(self, number: int) -> None:
        request = len(self._server.requests)
        if self._hold is not None and request < self._hold[0]:
            self._sent_before = number + 1
        while self._hold is not None and (request, number - self._sent_before) >= self._hold:
            self._moved.clear()
            await self._moved.wait()

    def start(self) -> str:
        """Its base URL."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(PATIENCE_S)
        return self._server.url

    def stop(self) -> None:
        self.release()
        asyncio.run_coroutine_threadsafe(self._server.aclose(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
