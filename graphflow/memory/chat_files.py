"""The files of the chat record: `{chatId}.json`, one JSON line for each run (spec 5.1).

Everything here blocks: call it in a thread. A line is whole and on the disk when `write` returns. What a crash has
left half-written stays where it is, and neither the lines before nor those after it suffer.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from graphflow.errors import GraphflowError
from graphflow.json_data import decode_json, encode_json, plain, whole_characters
from graphflow.private_files import FILE_MODE, make_private_folder

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: one process writes a chat at a time, as the thread's lease has it
    fcntl = None

log = logging.getLogger("graphflow.memory")
KNOWN_CHATS = 256
"""Number of chats whose file's end is cached, so that the next line costs no reading."""
LONGEST_NAME = 200
"""Longest file name in bytes; file systems allow 255, and suffixes are added."""
NO_LINE = (UnicodeError, msgspec.MsgspecError, RecursionError)
"""Errors of reading a damaged line; the last one for a line that is nested too deeply."""
# Windows reads a colon in a file name as an alternate data stream.
_ODD = re.compile(rb"[^A-Za-z0-9._:-]" if os.name == "posix" else rb"[^A-Za-z0-9._-]")


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A line that can't be read."""

    line: int
    """1.. in the file."""
    offset: int
    """Bytes before it."""
    reason: str


class ChatLines(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a chat's file."""

    runs: list[dict[str, Any]]
    damaged: list[Damage]


class _Line(msgspec.Struct, frozen=True):
    """The parts of a line that are needed to write further lines."""

    run_id: str = msgspec.field(name="runId")
    # Raw: the messages are only checked for their shape; decoding them would cost most of the time.
    messages: list[dict[str, msgspec.Raw]]
    status: str | None = msgspec.field(name="_status", default=None)
    system: Any = None


class _End(msgspec.Struct):
    """Cached facts of a file, valid as long as it is the same file of the same size."""

    inode: int
    size: int
    torn: bool
    """Whether a crash has cut the last line."""
    system: Any
    """The newest `system` in the file."""
    waiting: set[str]
    """Runs whose lines say `waiting` and will be replaced."""
    runs: set[str]
    """All runs with a line; writing one again replaces its line."""


class ChatFiles:
    """The chat files of one folder.

    Several processes may write to it: a file is locked while it is written.

    Args:
        folder: made when the first line is written.
        charset: an encoding with one byte for each ASCII character, so that line breaks can be found.

    Raises:
        GraphflowError: `invalid_input` for another charset.
    """

    def __init__(self, folder: Path, charset: str = "UTF-8") -> None:
        self.folder, self.charset = folder, _checked_charset(charset)
        self._ends: OrderedDict[str, _End] = OrderedDict()
        self._mutex = threading.RLock()
        """Guards `_ends`; without file locks, the files too."""

    def path(self, chat_id: str) -> Path:
        """The chat's file, always in the folder itself."""
        return self.folder / f"{file_stem(chat_id)}.json"

    # --- reading

    def read(self, chat_id: str) -> ChatLines:
        """The readable lines and the damaged ones, which are also logged; none for a chat without a file."""
        try:
            data = self.path(chat_id).read_bytes()
        except FileNotFoundError:
            return ChatLines(runs=[], damaged=[])
        runs: list[dict[str, Any]] = []
        damaged: list[Damage] = []
        for number, (offset, raw) in enumerate(_split(data), 1):
            try:
                text = raw.decode(self.charset)
                found = msgspec.json.decode(text, type=dict[str, Any])
                if "_type" in found:  # lines of later forms of the record
                    continue
                msgspec.json.decode(text, type=_Line)
                runs.append(found)
            except NO_LINE as error:
                if raw.strip():
                    damaged.append(Damage(line=number, offset=offset, reason=str(error)))
        if damaged:
            self._warn(chat_id, damaged)
        return ChatLines(runs=runs, damaged=damaged)

    def settled(self, chat_id: str) -> set[str]:
        """The runs whose lines are final, i.e. not waiting."""
        path = self.path(chat_id)
        # Locking would create the file.
        if not path.exists():
            return set()
        with self._locked(chat_id) as (path, file):
            end = self._end_of(path, file)
            self._remember(path, end)
            return end.runs - end.waiting

    def _warn(self, chat_id: str, damaged: list[Damage]) -> None:
        for damage in damaged:
            facts = {"file": str(self.path(chat_id)), "line": damage.line, "reason": damage.reason}
            log.warning("a damaged line of the chat record was skipped", extra={"facts": facts})

    # --- writing

    def write(self, chat_id: str, record: Mapping[str, Any], system: Any = None) -> None:
        """Writes the run's line durably: at the end of the chat's file, or in place of its earlier line.

        Args:
            system: written with the chat's first run, and when it differs from what was written before.

        Raises:
            OSError: nothing is left half-written then.
        """
        # Everything below holds the file's lock: another process may append between two looks at its end.
        with self._locked(chat_id) as (path, file):
            end = self._end_of(path, file)
            run_id, waits = record["runId"], record.get("_status") == "waiting"
            if run_id in end.runs:
                self._replace(path, record, system)
                return
            system = _plain(system)
            changed = system is not None and system != end.system
            # The prompt is long and seldom changes, so it is written only when it differs from the last one.
            line = self._encoded(record, system if changed else None)
            # A crash may have left half a line at the end; a line break keeps it from spoiling this one.
            size = _append(file, b"\n" + line if end.torn else line)
            # A new file's name is durable only once its folder is synced.
            if end.size == 0:
                _sync_folder(self.folder)
            waiting = end.waiting | {run_id} if waits else end.waiting
            known = system if changed else end.system
            end.runs.add(run_id)
            self._remember(path, _End(end.inode, size, False, known, waiting, end.runs))

    def rewrite(self, chat_id: str, lines: Iterable[tuple[Mapping[str, Any], Any]]) -> None:
        """Replaces the whole file by these records, each with its `system`, atomically."""
        with self._locked(chat_id) as (path, _):
            before = None
            out = []
            for record, given in lines:
                system = _plain(given)
                out.append(self._encoded(record, system if system is not None and system != before else None))
                before = before if system is None else system
            self._put(path, b"".join(out))

    def delete(self, chat_id: str) -> None:
        """Removes the chat's file; no effect when there is none."""
        if self.path(chat_id).exists():
            with self._locked(chat_id) as (path, _):
                path.unlink(missing_ok=True)

    def _replace(self, path: Path, record: Mapping[str, Any], system: Any) -> None:
        """Replaces the run's line in its place; the other lines stay the same, byte for byte."""
        system, before = _plain(system), None
        out = []
        changed = False
        for _, raw in _split(path.read_bytes()):
            line = self._decoded(raw)
            if line is not None and line.run_id == record["runId"]:
                # A line keeps the `system` that later lines rely on.
                wanted = line.system if system is None else system
                new = self._encoded(record, wanted if wanted is not None and wanted != before else None)
                changed = changed or new != raw + b"\n"
                out.append(new)
            else:
                out.append(raw + b"\n")
            if line is not None and line.system is not None:
                before = line.system
        # Healing writes lines again that may be there already; an unchanged file is not replaced.
        if changed:
            self._put(path, b"".join(out))

    def _put(self, path: Path, data: bytes) -> None:
        """Replaces the whole file atomically: a reader, or a crash, sees the old or the new one."""
        # Written beside the file and renamed over it: rename is atomic, and the new bytes are synced before it.
        new = path.with_name(f"{path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
        with os.fdopen(os.open(new, flags, FILE_MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        _sync_folder(self.folder)

    # --- parts

    def _encoded(self, record: Mapping[str, Any], system: Any) -> bytes:
        data = {key: value for key, value in record.items() if key not in ("messages", "system")}
        if system is not None:
            data["system"] = system
        data["messages"] = record["messages"]
        try:
            line = msgspec.json.encode(data, enc_hook=plain)
        except UnicodeEncodeError:  # half a character: no reader of the file would take its escape
            line = msgspec.json.encode(whole_characters(data), enc_hook=plain)
        text = line.decode()
        try:
            return text.encode(self.charset) + b"\n"
        except UnicodeEncodeError:  # what the charset lacks is escaped
            # msgspec can't escape non-ASCII characters; the standard library does by default.
            return json.dumps(json.loads(text), separators=(",", ":")).encode("ascii") + b"\n"

    def _decoded(self, raw: bytes) -> _Line | None:
        try:
            return msgspec.json.decode(raw.decode(self.charset), type=_Line)
        except NO_LINE:
            return None

    @contextmanager
    def _locked(self, chat_id: str) -> Iterator[tuple[Path, int]]:
        """The chat's file, open and locked; created if missing."""
        path = self.path(chat_id)
        make_private_folder(self.folder)
        if fcntl is None:
            self._mutex.acquire()
        file = _opened(path)
        try:
            yield path, file
        finally:
            os.close(file)
            if fcntl is None:
                self._mutex.release()

    def _end_of(self, path: Path, file: int) -> _End:
        facts = os.fstat(file)
        with self._mutex:
            known = self._ends.get(path.name)
        # Lines are only appended or the file is replaced, so the same inode and size mean the same end.
        if known is not None and (known.inode, known.size) == (facts.st_ino, facts.st_size):
            return known
        end = _End(facts.st_ino, facts.st_size, False, None, set(), set())
        data = path.read_bytes() if facts.st_size else b""
        end.torn = bool(data) and not data.endswith(b"\n")
        for _, raw in _split(data):
            if (line := self._decoded(raw)) is None:
                continue
            end.system = end.system if line.system is None else line.system
            end.runs.add(line.run_id)
            (end.waiting.add if line.status == "waiting" else end.waiting.discard)(line.run_id)
        return end

    def _remember(self, path: Path, end: _End) -> None:
        with self._mutex:
            self._ends[path.name] = end
            self._ends.move_to_end(path.name)
            while len(self._ends) > KNOWN_CHATS:
                self._ends.popitem(last=False)


def file_stem(chat_id: str) -> str:
    """The name of a chat's file without its suffix: the id itself if possible.

    Other characters are written as `%` and their bytes in hex; a long id is cut, with a hash of the
    whole. Two ids never share a name, and a name never leaves its folder.
    """
    name = _ODD.sub(lambda m: b"%%%02X" % m[0][0], chat_id.encode("utf-8", "surrogatepass")) or b"%"
    if len(name) > LONGEST_NAME:
        # `%-` can't come from the escaping, so a cut name never equals an uncut one.
        digest = hashlib.sha256(name).hexdigest()[:16].encode()
        name = name[: LONGEST_NAME - 20] + b"%-" + digest
    return name.decode("ascii")


def _plain(system: Any) -> Any:
    """The value as it is read back from a file, so that both can be compared."""
    return None if system is None else decode_json(encode_json(system))


def _checked_charset(charset: str) -> str:
    probe = '{"a": 1}\n'
    try:
        if probe.encode(charset) == probe.encode("ascii"):
            return charset
        issue = "does not write ASCII as one byte a character, so lines could not be told apart"
    except LookupError:
        issue = "is not an encoding that Python knows"
    raise GraphflowError(f"memory.chat_charset is {charset!r}, which {issue}; use UTF-8", code="invalid_input")


def _opened(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), FILE_MODE)
        try:
            if fcntl is None:
                return file
            fcntl.flock(file, fcntl.LOCK_EX)
            # The file may have been replaced while this process waited for the lock: then the lock is on a dead inode.
            with suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(file).st_ino:
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # replaced while we waited for it


def _append(file: int, data: bytes) -> int:
    """Appends durably and returns the new size; a failed write is taken back."""
    before = os.fstat(file).st_size
    rest = memoryview(data)
    try:
        while rest:
            # `os.write` may write less than it was given.
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    except OSError:
        # A full disk must not leave half a line that the next writer would continue.
        with suppress(OSError):
            os.ftruncate(file, before)
        raise
    return before + len(data)


def _sync_folder(folder: Path) -> None:
    """Makes a new or renamed file's name durable, where folders can be synced."""
    # Windows can't open a folder to sync it.
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, line) of every line, the last also without its end."""
    offset = 0
    for raw in data.split(b"\n"):
        # The empty rest after the last line break is not a line.
        if raw or offset + len(raw) < len(data):
            yield offset, raw
        offset += len(raw) + 1
