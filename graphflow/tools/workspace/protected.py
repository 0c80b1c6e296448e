"""The server's own files: whatever the root of a tool is, they can't be listed, read or written through it.

They are known by name (`.env`, `graphflow.toml`), by place (the store, chat records, uploads, traces) and by identity
(device and inode), so that a link, a hard link or a moved folder does not open them under another name. The kernel's view of
processes (`/proc`, wherever it is mounted) is protected too: it shows the environment and the open files of the server.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from graphflow.settings import Settings

Identity = tuple[int, int]
"""Device and inode."""

SCANNED = 20_000
"""Entries that are looked at to find out whether a file with several names has a protected one; beyond, it is refused."""

FIRST_LETTERS = ".gG"
"""What a protected name begins with; most names are told apart by this alone."""
_EXAMPLES = frozenset({".env.example", ".env.sample", ".env.template"})
_SIDECARS = ("", "-wal", "-shm", "-journal", ".owners")
"""What SQLite and the store's locks put beside a database."""
_BESIDE_THE_STORE = ("memory.db", ".chat_history")
"""The memory tables, and what a person typed in `graphflow chat`."""


_PROCESSES = Path("/proc")


@cache
def _process_devices() -> frozenset[int]:
    with suppress(OSError):
        device = _PROCESSES.stat().st_dev
        if device != Path("/").stat().st_dev:  # a folder that nothing is mounted on
            return frozenset((device,))
    return frozenset()


def is_protected_name(name: str) -> bool:
    """Whether a file or folder of this name is protected wherever it is: `.env*` and `graphflow*.toml`."""
    if not name or name[0] not in FIRST_LETTERS:
        return False
    # On some file systems `.ENV` opens `.env`, and trailing dots and blanks are dropped.
    plain = name.casefold().rstrip(". ")
    if plain.startswith(".env"):
        return plain not in _EXAMPLES
    return fnmatch.fnmatchcase(plain, "graphflow*.toml")


def identity(facts: os.stat_result) -> Identity:
    return facts.st_dev, facts.st_ino


@dataclass(frozen=True, kw_only=True)
class Guard:
    """What is protected at one moment for a tool with one root."""

    root: tuple[str, ...]
    """Parts of the real root; all paths here are parts, which compare faster than paths."""
    folders: tuple[tuple[str, ...], ...]
    files: tuple[tuple[str, ...], ...]
    identities: frozenset[Identity]
    devices: frozenset[int]
    """File systems on which everything is protected."""
    names: bool
    authored: tuple[tuple[str, ...], ...] = ()

    def covers_root(self) -> bool:
        """Whether the root itself is protected, and so everything in it."""
        return self.covers(()) or (self.names and is_protected_name(self.root[-1]))

    def covers(self, parts: Sequence[str]) -> bool:
        """Whether the real path with these parts below the root is protected by a name or by its place."""
        if self.names and parts and is_protected_name(parts[-1]):
            return True
        path = (*self.root, *parts)
        return any(path[: len(folder)] == folder for folder in self.folders) or any(
            _begins(path, file) for file in self.files
        )

    def names_below(self, parts: Sequence[str]) -> tuple[frozenset[str], tuple[str, ...]]:
        """What is protected by its place in the folder with these parts: names, and beginnings of names."""
        path = (*self.root, *parts)
        deep = len(path)
        folders = (folder[deep] for folder in self.folders if len(folder) == deep + 1 and folder[:deep] == path)
        return frozenset(folders), tuple(file[-1] for file in self.files if file[:-1] == path)

    def is_authored(self, parts: Sequence[str]) -> bool:
        """Whether a change of this real path changes what agents may do: it lies in an authored folder, or holds one."""
        path = (*self.root, *parts)
        return any(path[: len(place)] == place or place[: len(path)] == path for place in self.authored)

    def knows(self, facts: os.stat_result) -> bool:
        """Whether this is a protected file or folder, whatever its name."""
        return facts.st_dev in self.devices or identity(facts) in self.identities


@dataclass(frozen=True, kw_only=True)
class ProtectedFiles:
    """The files of one server."""

    folders: tuple[Path, ...] = ()
    """Folders that are protected with everything in them."""
    files: tuple[Path, ...] = ()
    """Files that are protected with all whose names begin like theirs."""
    authored: tuple[Path, ...] = ()
    """Folders and files of agents, tools, viewports and Python modules: they may be read, and changed through no tool that
    is not for that."""
    homes: Path | None = None
    """The folder of the users' workspaces: a root inside it may be used, and no other root leads into it."""
    home: Path | None = None
    """The folder of the settings files."""
    names: bool = True
    """Whether `.env*` and `graphflow*.toml` are protected wherever they are."""

    @classmethod
    def of(cls, settings: Settings) -> ProtectedFiles:
        """Those of these settings, wherever they put them."""
        store = settings.store.path
        return cls(
            folders=tuple(map(_real, (settings.memory.chat_dir, settings.uploads.dir, settings.trace.dir))),
            files=tuple(map(_real, (store, *(store.with_name(name) for name in _BESIDE_THE_STORE)))),
            authored=tuple(map(_real, _authored(settings))),
            homes=_real(settings.workspaces.dir),
            home=_real(settings.folder),
        )

    def guard(self, root: Path) -> Guard:
        """What is protected at the moment for a tool with this real root."""
        homes = self._homes_beside([root])
        logs = _log_files()
        places = [*self._places, *map(str, homes), *logs]
        return Guard(
            root=root.parts,
            folders=tuple(folder.parts for folder in (*self.folders, *homes, _PROCESSES)),
            files=tuple(file.parts for file in (*self.files, *map(Path, logs))),
            identities=frozenset(_identities(places)),
            devices=_process_devices(),
            names=self.names,
            authored=tuple(place.parts for place in self.authored),
        )

    @cached_property
    def _places(self) -> list[str]:
        beside = (f"{file}{suffix}" for file in self.files for suffix in _SIDECARS)
        return [*map(str, self.folders), *beside]

    def has_link_to(self, wanted: Identity, roots: Sequence[Path]) -> bool:
        """Whether a file with several names has a protected one, or so many entries are there that it can't be known."""
        for looked, facts in enumerate(self._candidates(roots)):
            if looked > SCANNED or (facts is not None and identity(facts) == wanted):
                return True
        return False

    def _candidates(self, roots: Sequence[Path]) -> Iterator[os.stat_result | None]:
        """The facts of every protected file; None for an entry that was passed on the way."""
        for place in (*self.folders, *self._homes_beside(roots), *(_with(file, ".owners") for file in self.files)):
            yield from _facts_below(place, all_of_it=True)
        for file in self.files:
            for suffix in _SIDECARS:
                with suppress(OSError):
                    yield _with(file, suffix).stat()
        if self.home is not None:
            yield from _facts_below(self.home, deep=False)
        for root in roots:
            yield from _facts_below(root)

    def linked(self, roots: Sequence[Path]) -> Iterator[Identity]:
        """The identity of every protected file that can be found."""
        return (identity(facts) for facts in self._candidates(roots) if facts is not None)

    def hidden(self, folders: Sequence[Path]) -> list[Path]:
        """Everything protected by its place that exists in one of these folders: what a sandbox hides."""
        beside = [_with(file, suffix) for file in self.files for suffix in _SIDECARS]
        home = [self.home / name for name in _names(self.home) if is_protected_name(name)] if self.home else []
        places = [*self.folders, *self._homes_beside(folders), *beside, *home, *map(Path, _log_files())]
        return [place for place in places if place.exists() and any(place.is_relative_to(each) for each in folders)]

    def _homes_beside(self, roots: Sequence[Path]) -> list[Path]:
        """The folder of the users' workspaces, unless one of them is a root."""
        if self.homes is None or any(_is_inside(root, self.homes) for root in roots):
            return []
        return [self.homes]


def _authored(settings: Settings) -> Iterator[Path]:
    """Where people write what agents are and may do."""
    yield from (settings.agents.dir, settings.tools.dir, settings.viewports.dir)
    for module in settings.tools.modules:
        name = module.partition(".")[0]
        yield from (settings.folder / name, settings.folder / f"{name}.py")


def _with(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)


def _is_inside(path: Path, folder: Path) -> bool:
    return path != folder and path.is_relative_to(folder)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def protected_entries(root: Path) -> Iterator[tuple[os.DirEntry[str], bool]]:
    """Every entry below a root but links, and whether its name is protected.

    Raises:
        OverflowError: more than `SCANNED` entries.
    """
    for looked, entry in enumerate(_walk(root)):
        if looked > SCANNED:
            raise OverflowError(f"{root} has more than {SCANNED} entries")
        if not entry.is_symlink():
            yield entry, is_protected_name(entry.name)


def _facts_below(folder: Path, *, deep: bool = True, all_of_it: bool = False) -> Iterator[os.stat_result | None]:
    for entry in _walk(folder, deep=deep):
        yield None
        # Inside a folder with a protected name, every file is.
        below = Path(entry.path).relative_to(folder).parts
        if all_of_it or any(map(is_protected_name, below)):
            with suppress(OSError):
                yield entry.stat(follow_symlinks=False)


def _walk(folder: Path, *, deep: bool = True) -> Iterator[os.DirEntry[str]]:
    left = [str(folder)]
    while left:
        with suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                yield entry
                if deep and entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)


def _identities(places: Sequence[str]) -> Iterator[Identity]:
    for place in places:
        with suppress(OSError, ValueError):
            yield identity(os.stat(place))  # noqa: PTH116 - a text is faster than a path
    for stream in (1, 2):  # `graphflow serve > server.log`
        with suppress(OSError):
            facts = os.fstat(stream)
            if stat.S_ISREG(facts.st_mode):
                yield identity(facts)


def _begins(path: tuple[str, ...], file: tuple[str, ...]) -> bool:
    """Whether the path is the file or one of its sidecars, or lies in one."""
    above = len(file) - 1
    return len(path) > above and path[:above] == file[:above] and path[above].startswith(file[above])


def _log_files() -> list[str]:
    """The files that loggers of this process write to."""
    loggers = [logging.root, *(each for each in logging.root.manager.loggerDict.values())]
    handlers = [handler for each in loggers if isinstance(each, logging.Logger) for handler in each.handlers]
    names = [handler.baseFilename for handler in handlers if isinstance(handler, logging.FileHandler)]
    return [os.path.realpath(name) for name in names if Path(name).is_file()]  # not `/dev/null`


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
