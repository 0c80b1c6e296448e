"""Processes of Python that have graphflow imported when they begin: forks of one process that has done nothing else.

A Python that starts and imports the server takes most of a second of a processor; a fork of one that did takes some
milliseconds. For tests that need a process of its own, to be killed, stopped or asked, and do not test how it starts.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "graphflow.server.run", "graphflow.service.application", "graphflow.settings", "graphflow.checkpoints.sqlite.checkpointer",
    "graphflow.checkpoints.postgres.checkpointer", "typer.main", "rich.console", "rich.table", "prompt_toolkit",
)  # fmt: skip
STREAMS = ("stdin", "stdout", "stderr")
_NUMBER = struct.Struct("<i")
_STOPPED = 1 << 16
"""Stands for no exit code, but for a process that stands still."""


class ForkedProcess:
    """What `subprocess.Popen` shows of a process on pipes, as far as tests ask."""

    def __init__(self, pid: int, status: int, streams: Mapping[str, TextIO]) -> None:
        self.pid, self.returncode, self._status = pid, None, status
        self.stdin, self.stdout, self.stderr = (streams.get(name) for name in STREAMS)

    returncode: int | None
    """The negative number of the signal that ended it; None until `wait` has seen its end."""

    def send_signal(self, how: int) -> None:
        if self.returncode is None:  # until then nobody else gets its number
            os.kill(self.pid, how)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        while self.returncode is None:
            self._hear()
        return self.returncode

    def wait_until_stopped(self) -> None:
        """Until then it sends and writes, although SIGSTOP was sent."""
        while self.returncode is None and not self._hear():
            pass

    def communicate(self) -> tuple[str, str]:
        """All that it still writes, at its end."""
        if self.stdin is not None:
            self.stdin.close()
        said = {"stdout": "", "stderr": ""}
        files = {"stdout": self.stdout, "stderr": self.stderr}

        def read(name: str, file: TextIO) -> None:
            with file:
                said[name] = file.read()

        readers = [
            threading.Thread(target=read, args=(name, file)) for name, file in files.items() if file and not file.closed
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.wait()
        return said["stdout"], said["stderr"]

    def _hear(self) -> bool:
        """Waits for a change; whether it stands still."""
        said = os.read(self._status, _NUMBER.size)
        number = int(_NUMBER.unpack(said)[0]) if said else -signal.SIGKILL  # with the process that forks
        if number == _STOPPED:
            return True
        self.returncode = number
        os.close(self._status)
        _say({"forget": self.pid})
        return False


def python(
    *arguments: str | os.PathLike[str],
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    pipes: Sequence[str] = ("stdout",),
    session: bool = False,
    terminal: int | None = None,
) -> ForkedProcess:
    """A process that runs what `python3 ARGUMENTS…` would: `-c CODE …`, `-m MODULE …` or `FILE …`.

    Args:
        env: instead of this process's own.
        pipes: those of `STREAMS` that the test reads and writes; its input is empty otherwise, and its output nowhere.
        session: it leads one.
        terminal: instead of pipes; it leads the terminal's session, so that Ctrl-C is a signal.
    """
    pipes = () if terminal is not None else pipes
    ours, theirs = os.pipe()
    ends: dict[str, tuple[int, int]] = {name: os.pipe() for name in pipes}
    request = {
        "arguments": [os.fspath(each) for each in arguments], "cwd": os.fspath(cwd or Path.cwd()),
        "env": dict(os.environ if env is None else env), "session": session,
        "streams": pipes if terminal is None else STREAMS, "terminal": terminal is not None,
    }  # fmt: skip
    given = [theirs, *(ends[name][name != "stdin"] for name in pipes)]
    pid = _say(request, given if terminal is None else [theirs, terminal, terminal, terminal])
    for end in given:
        os.close(end)
    return ForkedProcess(pid, ours, {name: _opened(name, *ends[name]) for name in pipes})


def _opened(name: str, reading: int, writing: int) -> TextIO:
    return os.fdopen(writing, "w") if name == "stdin" else os.fdopen(reading, "r")


def _say(request: Mapping[str, Any], given: Sequence[int] = ()) -> int:
    """Sends a request with descriptors; the number of the process that it begins."""
    text = json.dumps(request).encode()
    with _saying:
        origin = _origin()
        socket.send_fds(origin, [_NUMBER.pack(len(text))], given)
        origin.sendall(text)
        return int(_NUMBER.unpack(origin.recv(_NUMBER.size))[0])


_saying = threading.Lock()


@cache
def _origin() -> socket.socket:
    """The line to the process that forks; it ends when the line does."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
            cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# --- the process that forks ----------------------------------------------------------------------


class _Origin:
    """It has no threads, no loop and no open store: nothing that a fork would break."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._children: dict[int, int] = {}
        """Where the end of each is told."""

    def serve(self) -> dict[str, Any] | None:
        """Forks until the line ends; returns in each child what it shall do."""
        signal.signal(signal.SIGCHLD, self._reap)
        while True:
            length, given, *_ = socket.recv_fds(self._line, _NUMBER.size, 1 + len(STREAMS))
            if not length:
                return None
            wanted: dict[str, Any] = json.loads(self._read(_NUMBER.unpack(length)[0]))
            if "forget" in wanted:
                with suppress(ChildProcessError):
                    os.waitpid(wanted["forget"], 0)
                self._line.sendall(_NUMBER.pack(0))
                continue
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            pid = os.fork()
            if pid == 0:
                self._become(given, wanted)
                return wanted
            self._children[pid] = given[0]
            for each in given[1:]:
                os.close(each)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            self._line.sendall(_NUMBER.pack(pid))

    def _read(self, length: int) -> bytes:
        text = b""
        while len(text) < length:
            text += self._line.recv(length - len(text))
        return text

    def _become(self, given: list[int], wanted: dict[str, Any]) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # A shell starts what runs in its background with this one ignored, and a child inherits that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        self._line.close()
        for status in self._children.values():
            os.close(status)
        for each, name in zip(given[1:], wanted["streams"], strict=True):
            os.dup2(each, STREAMS.index(name))
            os.close(each)
        os.close(given[0])
        if wanted["session"] or wanted["terminal"]:
            os.setsid()
        if wanted["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.chdir(wanted["cwd"])
        os.environ.clear()
        os.environ.update(wanted["env"])

    def _reap(self, *_: Any) -> None:
        """Tells how they end or stop. Who has ended keeps its number until that was heard: a signal must not hit another."""
        for pid, status in list(self._children.items()):
            seen = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
            if seen is None:
                continue
            if stands := seen.si_code == os.CLD_STOPPED:
                os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG)
            told = _STOPPED if stands else seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
            with suppress(BrokenPipeError):
                os.write(status, _NUMBER.pack(told))
            if not stands:
                os.close(self._children.pop(pid))


def _run(wanted: dict[str, Any]) -> None:
    buffering = 1 if os.isatty(1) or "PYTHONUNBUFFERED" in wanted["env"] else -1
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", buffering, closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)  # type: ignore[misc]
    first, *rest = wanted["arguments"]
    sys.path[:1] = [{"-c": "", "-m": wanted["cwd"]}.get(first, str(Path(first).parent))]
    sys.path[1:1] = filter(None, wanted["env"].get("PYTHONPATH", "").split(os.pathsep))
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(rest[0], main.__dict__)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as line:
        wanted = _Origin(line).serve()
    if wanted is not None:
        _run(wanted)
