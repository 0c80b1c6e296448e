"""`ls` of `bash`, in this process: it lists what the file port lists, so no link and no protected file is in it."""

from __future__ import annotations

import re
import stat
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from graphflow.tools.builtin.output import Output
from graphflow.tools.workspace import FileEntry, FileRefused, Workspace

WIDTH = 120
_HALF_YEAR_S = 15_778_476
_LONG = {
    "all": "a", "almost-all": "A", "author": "", "classify": "F", "directory": "d", "full-time": "l", "human-readable": "h",
    "inode": "i", "no-group": "G", "numeric-uid-gid": "n", "recursive": "R", "reverse": "r", "size": "s",
    "si": "\x01", "group-directories-first": "\x02",
}  # fmt: skip
_SI, _FOLDERS_FIRST, _FULL_TIME = "\x01", "\x02", "\x03"


def list_files(options: Sequence[str], paths: Sequence[str], workspace: Workspace, out: Output) -> None:
    """Runs `ls`: files first, then folders, each with its name when there are several."""
    letters = _letters(options)
    files: list[tuple[str, FileEntry]] = []
    folders: list[str] = []
    for path in paths or ["."]:
        try:
            entry = workspace.stat(path)
        except FileRefused as refused:
            if refused.code == "ACCESS_DENIED":
                raise
            out.complain(f"ls: {refused}")
            continue
        if entry.is_folder and "d" not in letters:
            folders.append(path)
        else:
            files.append((path, entry))
    if files:
        named = [FileEntry(name=path, facts=entry.facts, target=entry.target) for path, entry in files]
        _print(_ordered(named, letters), letters, "", workspace, out)
    headed = len(paths) > 1 or "R" in letters
    left = deque(sorted(folders) if "U" not in letters else folders)
    begun = bool(files)
    while left:
        path = left.popleft()
        below = _folder(path, letters, workspace, out, title=path if headed else None, gap=begun)
        begun = True
        left.extendleft(reversed(below))


def _letters(options: Sequence[str]) -> str:
    letters = ""
    for option in options:
        letters += _LONG[option[2:]] if option.startswith("--") else option[1:]
        letters += _FULL_TIME if option == "--full-time" else ""
    if "f" in letters:
        letters += "aU"
    return letters


def _folder(
    path: str, letters: str, workspace: Workspace, out: Output, *, title: str | None, gap: bool
) -> list[str]:  # fmt: skip
    """Prints one folder; the folders in it that `-R` goes on with."""
    try:
        entries, more = workspace.entries(path)
    except FileRefused as refused:
        out.complain(f"ls: {refused}")
        return []
    if "a" not in letters and "A" not in letters:
        entries = [entry for entry in entries if not entry.name.startswith(".")]
    if "B" in letters:
        entries = [entry for entry in entries if not entry.name.endswith("~")]
    entries = _ordered(entries, letters)
    # A link is never gone through.
    below = [entry.name for entry in entries if entry.is_folder] if "R" in letters else []
    if "a" in letters:
        entries = [*_dots(path, workspace), *entries]
    if title is not None:
        out.write(f"{chr(10) if gap else ''}{title}:\n")
    if set("lgnos") & set(letters):
        total = sum(entry.facts.st_blocks for entry in entries) // 2
        out.write(f"total {_size(total * 1024, letters) if _human(letters) else total}\n")
    _print(entries, letters, path, workspace, out)
    if more:
        out.complain(f"ls: {path!r} has more entries than are listed")
    return [f"{path.rstrip('/')}/{name}" if path != "/" else f"/{name}" for name in below]


def _dots(path: str, workspace: Workspace) -> list[FileEntry]:
    here = workspace.stat(path).facts
    try:
        above = workspace.stat(f"{path}/..").facts
    except FileRefused:  # of the root: what is above it is nobody's business
        above = here
    return [FileEntry(name=".", facts=here), FileEntry(name="..", facts=above)]


def _time_s(entry: FileEntry, letters: str) -> float:
    facts = entry.facts
    return facts.st_ctime if "c" in letters else facts.st_atime if "u" in letters else facts.st_mtime


def _ordered(entries: list[FileEntry], letters: str) -> list[FileEntry]:
    """As the options sort them; of several, the last one counts."""
    asked = [letter for letter in letters if letter in "tSUvX"]
    timed = not asked and set("cu") & set(letters) and not set("lgno") & set(letters)
    by = asked[-1] if asked else "t" if timed else ""
    if by != "U":
        entries = sorted(entries, key=lambda entry: entry.name)
        keys: dict[str, Callable[[FileEntry], Any]] = {
            "t": lambda entry: -_time_s(entry, letters),
            "S": lambda entry: -entry.facts.st_size,
            "X": lambda entry: entry.name.rpartition(".")[2] if "." in entry.name[1:] else "",
            "v": lambda entry: [(int(part or 0), "") if part.isdigit() else (-1, part) for part in _runs(entry.name)],
        }
        if by:
            entries.sort(key=keys[by])
        if "r" in letters:
            entries.reverse()
    if _FOLDERS_FIRST in letters:
        entries = sorted(entries, key=lambda entry: not entry.is_folder)
    return entries


def _runs(name: str) -> list[str]:
    return re.findall(r"[0-9]{1,18}|[^0-9]+", name)


def _print(entries: list[FileEntry], letters: str, folder: str, workspace: Workspace, out: Output) -> None:
    shown = [letter for letter in letters if letter in "1Cxmlgno"]
    if set("lgno") & set(letters):
        _print_long(entries, letters, folder, workspace, out)
        return
    names = []
    for entry in entries:
        # The rest of a huge folder is not worth making.
        out.check()
        names.append(_before(entry, letters) + _name(entry, letters))
    layout = shown[-1] if shown else "1"
    if layout == "m":
        out.write(_wrapped(names))
    elif layout in "Cx" and names:
        out.write(_columns(names, down=layout == "C"))
    else:
        for name in names:
            out.write(f"{name}\n")


def _before(entry: FileEntry, letters: str) -> str:
    parts = [str(entry.facts.st_ino)] if "i" in letters else []
    if "s" in letters:
        blocks = entry.facts.st_blocks * 512
        parts.append(_size(blocks, letters) if _human(letters) else str(blocks // 1024))
    if "Z" in letters and not set("lgno") & set(letters):
        parts.append("?")
    return "".join(f"{part} " for part in parts)


def _name(entry: FileEntry, letters: str) -> str:
    name = entry.name
    if "b" in letters:
        name = name.replace("\\", "\\\\").replace(" ", "\\ ")
        name = "".join(c if c.isprintable() else "".join(f"\\{byte:03o}" for byte in _bytes(c)) for c in name)
    elif "q" in letters:
        name = "".join(c if c.isprintable() else "?" for c in name)
    if "Q" in letters:
        name = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    mode = entry.facts.st_mode
    if stat.S_ISDIR(mode) and ("F" in letters or "p" in letters):
        return f"{name}/"
    if "F" in letters:
        marks = {stat.S_IFLNK: "@", stat.S_IFIFO: "|", stat.S_IFSOCK: "="}
        runs = stat.S_ISREG(mode) and mode & 0o111
        return name + (marks.get(stat.S_IFMT(mode)) or ("*" if runs else ""))
    return name


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _wrapped(names: list[str]) -> str:
    lines, line = [], ""
    for index, name in enumerate(names):
        text = name + (", " if index < len(names) - 1 else "")
        if line and len(line) + len(text.rstrip()) > WIDTH:
            lines.append(line.rstrip())
            line = ""
        line += text
    return "".join(f"{each}\n" for each in (*lines, line) if each)


def _columns(names: list[str], *, down: bool) -> str:
    width = max(map(len, names)) + 2
    count = max(1, WIDTH // width)
    rows = -(-len(names) // count)
    lines = []
    for row in range(rows):
        picked = names[row::rows] if down else names[row * count : (row + 1) * count]
        lines.append("".join(name.ljust(width) for name in picked).rstrip())
    return "".join(f"{line}\n" for line in lines)


# --- long


def _print_long(entries: list[FileEntry], letters: str, folder: str, workspace: Workspace, out: Output) -> None:
    owners, groups = "g" not in letters, "o" not in letters and "G" not in letters
    now = time.time()
    rows = []
    for entry in entries:
        out.check()
        facts = entry.facts
        columns = [_before(entry, letters) + stat.filemode(facts.st_mode), str(facts.st_nlink)]
        columns += [_owner(facts.st_uid, letters)] if owners else []
        columns += [_group(facts.st_gid, letters)] if groups else []
        columns += [_size(facts.st_size, letters) if _human(letters) else str(facts.st_size)]
        rows.append((columns, _when(_time_s(entry, letters), now, letters), entry))
    widths = [max(len(columns[index]) for columns, _, _ in rows) for index in range(len(rows[0][0]))] if rows else []
    numbers = {1, len(widths) - 1}
    for columns, when, entry in rows:
        cells = [
            c.rjust(w) if i in numbers else c.ljust(w) for i, (c, w) in enumerate(zip(columns, widths, strict=True))
        ]
        out.write(" ".join([*cells, when, _name(entry, letters) + _target(entry, folder, workspace)]) + "\n")


def _target(entry: FileEntry, folder: str, workspace: Workspace) -> str:
    """Where a link leads, unless that is outside or protected."""
    if entry.target is None:
        return ""
    try:
        workspace.find(f"{folder}/{entry.name}" if folder else entry.name)
    except FileRefused as refused:
        if refused.code == "ACCESS_DENIED":
            return " -> (not allowed)"
    return f" -> {entry.target}"


def _when(time_s: float, now: float, letters: str) -> str:
    moment = time.localtime(time_s)
    if _FULL_TIME in letters:
        fraction = f"{time_s % 1:.9f}"[2:]
        return time.strftime(f"%Y-%m-%d %H:%M:%S.{fraction} %z", moment)
    recent = now - _HALF_YEAR_S < time_s <= now
    return time.strftime("%b %e %H:%M" if recent else "%b %e  %Y", moment)


def _human(letters: str) -> bool:
    return "h" in letters or _SI in letters


def _size(size: int, letters: str) -> str:
    """`1.5K`: rounded up, as `ls -h` does."""
    base = 1_000 if _SI in letters else 1_024
    if size < base:
        return str(size)
    value, units = size / base, ["k" if _SI in letters else "K", "M", "G", "T", "P"]
    while value >= base:
        value /= base
        units.pop(0)
    unit = units[0]
    tenths = -(-value * 10 // 1)
    return f"{tenths / 10:.1f}{unit}" if tenths < 100 else f"{-(-value // 1):.0f}{unit}"


def _owner(uid: int, letters: str) -> str:
    import pwd

    try:
        return str(uid) if "n" in letters else pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int, letters: str) -> str:
    import grp

    try:
        return str(gid) if "n" in letters else grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
