"""`cat`, `head` and `tail` of `bash`, in this process: they read from what the file port has opened."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from graphflow.tools.builtin.output import Output
from graphflow.tools.workspace import FileRefused, Workspace
from graphflow.tools.workspace.refusals import of_error

BLOCK = 1 << 16
_UNITS = {"": 1, "b": 512, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_UNITS |= {"kB": 1_000, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000, "bB": 512, "B": 1}
_COUNT = re.compile(r"([+-]?)(\d+)([a-zA-Z]*)", re.ASCII)


def read_files(name: str, options: Sequence[str], paths: Sequence[str], workspace: Workspace, out: Output) -> None:
    """Runs one of the three commands."""
    letters, counts = _split(options)
    copy = _cat(letters) if name == "cat" else _part(name, letters, counts)
    # Standard input is empty here, as it was for a program.
    several = len(paths) > 1
    headed = name != "cat" and "q" not in letters and (several or "v" in letters)
    first = True
    for path in paths:
        if path == "-":
            continue
        try:
            file = workspace.open(path)
        except FileRefused as refused:
            # A missing file leaves the others readable, as with a program; what no command may open ends the call.
            if refused.code in ("ACCESS_DENIED", "INVALID_PARAM"):
                raise
            out.complain(f"{name}: {refused}")
            continue
        with file:
            if headed:
                out.write(f"{'' if first else chr(10)}==> {path} <==\n")
            first = False
            try:
                copy(file, out)
            except OSError as error:  # a damaged disk, a file of the kernel
                out.complain(f"{name}: {of_error(path, error)}")


_LONG = {
    "number": "n", "number-nonblank": "b", "show-all": "A", "show-ends": "E", "show-nonprinting": "v", "show-tabs": "T",
    "squeeze-blank": "s", "quiet": "q", "silent": "q", "verbose": "v", "zero-terminated": "z",
}  # fmt: skip


def _split(options: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Letters without a value, and the counts by their letter (`n`, `c`)."""
    letters, counts = "", {}
    rest = list(options)
    while rest:
        option = rest.pop(0)
        word, equals, count = option.removeprefix("--").partition("=")
        if option.startswith("--") and equals:
            counts[{"lines": "n", "bytes": "c"}[word]] = count
        elif option.startswith("--"):
            letters += _LONG[word]
        elif option[-1] in "nc" and rest and _COUNT.fullmatch(rest[0]):
            letters += option[1:-1]
            counts[option[-1]] = rest.pop(0)
        else:
            letters += option[1:]
    return letters, counts


# --- cat


def _cat(letters: str) -> Callable[[BinaryIO, Output], None]:
    if "A" in letters:
        letters += "vET"
    if "e" in letters:
        letters += "vE"
    if "t" in letters:
        letters += "vT"
    number = 0
    blank_before = False

    def copy(file: BinaryIO, out: Output) -> None:
        nonlocal number, blank_before
        if not set(letters) & set("nbsvET"):
            for block in _blocks(file):
                out.write(block)
            return
        fresh = True
        while line := file.readline(BLOCK):
            blank = fresh and line == b"\n"
            if "s" in letters and blank and blank_before:
                continue
            blank_before = blank
            if fresh and (("b" in letters and not blank) or ("n" in letters and "b" not in letters)):
                number += 1
                out.write(f"{number:6}\t")
            fresh = line.endswith(b"\n")
            out.write(_shown(line, letters))

    return copy


def _shown(line: bytes, letters: str) -> bytes:
    body, end = (line[:-1], b"\n") if line.endswith(b"\n") else (line, b"")
    if "v" in letters:
        body = b"".join(_visible(byte) for byte in body)
    if "T" in letters:
        body = body.replace(b"\t", b"^I")
    return body + (b"$" if "E" in letters and end else b"") + end


def _visible(byte: int) -> bytes:
    """As `cat -v` writes it: `^X` for control characters, `M-` before the upper half."""
    if byte >= 128:
        return b"M-" + (_visible(byte - 128) if byte - 128 not in (9, 10) else b"^" + bytes([byte - 128 + 64]))
    if byte == 127:
        return b"^?"
    return bytes([byte]) if byte >= 32 or byte == 9 else b"^" + bytes([byte + 64])


# --- head and tail


def _part(name: str, letters: str, counts: dict[str, str]) -> Callable[[BinaryIO, Output], None]:
    by_bytes = "c" in counts
    sign, count = _number(counts.get("c") or counts.get("n") or "10")
    end = b"\0" if "z" in letters else b"\n"

    def copy(file: BinaryIO, out: Output) -> None:
        if name == "head":
            if sign == "-":
                size = os.fstat(file.fileno()).st_size
                stop = max(0, size - count) if by_bytes else _start_of_last(file, count, end, out)
                _copy(file, 0, stop, out)
            elif by_bytes:
                _copy(file, 0, count, out)
            else:
                _first(file, count, end, out)
        elif sign == "+":
            # `+1` is from the beginning on.
            start = max(0, count - 1) if by_bytes else _after(file, max(0, count - 1), end, out)
            _copy(file, start, None, out)
        else:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - count) if by_bytes else _start_of_last(file, count, end, out)
            _copy(file, start, None, out)

    return copy


def _number(text: str) -> tuple[str, int]:
    match = _COUNT.fullmatch(text)
    assert match is not None  # `commands` has checked it
    return match[1], int(match[2]) * _UNITS.get(match[3], 1)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block


def _copy(file: BinaryIO, start: int, stop: int | None, out: Output) -> None:
    file.seek(start)
    left = stop - start if stop is not None else None
    while left is None or left > 0:
        block = file.read(BLOCK if left is None else min(BLOCK, left))
        if not block:
            return
        out.write(block)
        left = None if left is None else left - len(block)


def _first(file: BinaryIO, lines: int, end: bytes, out: Output) -> None:
    """The first lines: up to where the next one begins."""
    for block in _blocks(file):
        if not lines:
            return
        if (found := block.count(end)) < lines:
            lines -= found
            out.write(block)
            continue
        at = -1
        for _ in range(lines):
            at = block.index(end, at + 1)
        out.write(block[: at + 1])
        return


def _after(file: BinaryIO, lines: int, end: bytes, out: Output) -> int:
    """The place after so many lines; the end of a shorter file."""
    place = 0
    for block in _blocks(file):
        if not lines:
            break
        out.check()
        if (found := block.count(end)) < lines:
            lines -= found
            place += len(block)
            continue
        at = -1
        for _ in range(lines):
            at = block.index(end, at + 1)
        return place + at + 1
    return place


def _start_of_last(file: BinaryIO, lines: int, end: bytes, out: Output) -> int:
    """Where the last lines begin, found from the end: a long file is not read."""
    place = size = os.fstat(file.fileno()).st_size
    if not lines:
        return size
    while place > 0:
        out.check()
        begin = max(0, place - BLOCK)
        file.seek(begin)
        block = file.read(place - begin)
        # The end of the file's last line begins no further one.
        search = len(block) - 1 if place == size and block.endswith(end) else len(block)
        if (found := block.count(end, 0, search)) < lines:
            lines -= found
            place = begin
            continue
        at = search
        for _ in range(lines):
            at = block.rindex(end, 0, at)
        return begin + at + 1
    return 0
