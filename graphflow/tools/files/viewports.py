"""Viewports: what clients render for a frontend tool, files under `graphs/viewports/` (spec 8.1).

A viewport's key is its file's base name in lower case. `.html` is text; the others are JSON, served as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

from graphflow.errors import Issue
from graphflow.tools.files.json_files import read_json

SUFFIXES = (".html", ".qlc", ".dqlc", ".json_schema", ".custom")


@dataclass(frozen=True, kw_only=True)
class Viewport:
    """One viewport."""

    key: str
    type: str
    """Its suffix without the dot."""
    content: Any
    """The text of an `.html`, the data of the others."""
    source: bytes | str
    """The file's bytes."""


@dataclass(frozen=True, kw_only=True)
class Viewports:
    """The viewports of a folder."""

    by_file: Mapping[str, Viewport] = field(default_factory=lambda: MappingProxyType({}))
    """File name → its last good version."""
    by_key: Mapping[str, Viewport] = field(default_factory=lambda: MappingProxyType({}))
    errors: tuple[Issue, ...] = ()

    def get(self, key: str) -> Viewport | None:
        """The viewport of this key, in any case."""
        return self.by_key.get(key.lower())


def next_viewports(old: Viewports, folder: Path, contents: Mapping[str, bytes | str]) -> Viewports:
    """The viewports after some files changed: a broken one keeps its last valid version, duplicate keys are rejected.

    Args:
        old: the active viewports.
        folder: the folder of the files.
        contents: file name → its bytes, or why they can't be read.
    """
    by_file: dict[str, Viewport] = {}
    issues: list[Issue] = []
    for name, content in contents.items():
        before = old.by_file.get(name)
        found, issue = _read(str(folder / name), content)
        if issue is not None:
            issues.append(issue)
        # Clients may be showing the old version; a file that is being written must not take it from them.
        if (kept := found or before) is not None:
            by_file[name] = kept
    by_key: dict[str, list[str]] = {}
    # Over all files, the unreadable too: a broken file still takes its key.
    for name in contents:
        by_key.setdefault(PurePath(name).stem.lower(), []).append(name)
    single = {}
    for key, names in by_key.items():
        if len(names) == 1 and names[0] in by_file:
            single[key] = by_file[names[0]]
        elif len(names) > 1:
            message = f"the viewport key {key!r} has {len(names)} files: {' and '.join(names)}; none of them counts"
            issues += [
                Issue(file=str(folder / name), pointer="", message=message, hint="rename one", kind="reference")
                for name in names
            ]
    return Viewports(by_file=MappingProxyType(by_file), by_key=MappingProxyType(single), errors=tuple(issues))


def _read(file: str, content: bytes | str) -> tuple[Viewport | None, Issue | None]:
    path = PurePath(file)
    key, kind = path.stem.lower(), path.suffix[1:]
    if kind != "html":
        data, issue = read_json(content, file)
        # `null` is valid JSON, so the issue decides and not the data.
        viewport = None if issue is not None else Viewport(key=key, type=kind, content=data, source=content)
        return viewport, issue
    if isinstance(content, str):
        return None, Issue(file=file, pointer="", message=f"the file can't be read: {content}", kind="syntax")
    try:
        return Viewport(key=key, type=kind, content=content.decode("utf-8-sig"), source=content), None
    except UnicodeDecodeError as error:
        return None, Issue(file=file, pointer="", message=f"the file is not UTF-8: {error}", kind="syntax")
