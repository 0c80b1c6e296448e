"""Folders that the settings name and that can't be folders: found before anything is served, not by the first who needs one."""

from __future__ import annotations

from pathlib import Path

from graphflow.errors import Issue
from graphflow.settings.table import Settings, all_settings


def folder_issues(settings: Settings) -> list[Issue]:
    """The settings whose folder is a file or lies below one, or whose file is a folder.

    Nothing is changed, and what is missing is fine.
    """
    issues = []
    for row in all_settings():
        section, _, name = row.name.partition(".")
        path = getattr(getattr(settings, section), name)
        is_file = row.name in ("store.path", "llm.models_file")
        if row.kind is not Path or (row.name == "store.path" and settings.store.url):
            continue
        if is_file and path.is_dir():
            issues.append(_issue(row.name, path, "is a folder; it must be a file"))
        elif (found := _file_at(path.parent if is_file else path)) is not None:
            where = "is a file" if found == path else f"lies below {str(found)!r}, which is a file"
            issues.append(_issue(row.name, path, f"{where}; it must be a folder"))
    return issues


def _file_at(folder: Path) -> Path | None:
    """The folder, or the nearest one above it, if it exists and is none."""
    for place in (folder, *folder.parents):
        try:
            if place.is_dir():
                return None
            if place.exists():
                return place
        except OSError:  # nobody may look there; whoever needs it says so
            return None
    return None


def _issue(name: str, path: Path, why: str) -> Issue:
    return Issue(
        pointer="", message=f"setting {name}: {str(path)!r} {why}", hint=f"set {name} to another path", kind="type"
    )
