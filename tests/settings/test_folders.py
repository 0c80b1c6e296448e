"""A folder of the settings that is a file is refused before anything is served, by the name of its setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow.errors import DefinitionError
from graphflow.service.application import Application
from graphflow.settings import load_settings
from graphflow.settings.folders import folder_issues
from graphflow.settings.table import all_settings

FOLDERS = [row for row in all_settings() if row.kind is Path and row.name not in ("store.path", "llm.models_file")]


@pytest.mark.parametrize("row", FOLDERS, ids=lambda row: row.name)
@pytest.mark.parametrize("below", ["", "/a/b"])
def test_a_folder_that_is_a_file_or_lies_below_one_is_refused(tmp_path: Path, row, below: str) -> None:
    (tmp_path / "file").touch()
    settings = load_settings(tmp_path, environ={row.ruled_env: f"file{below}"})
    with pytest.raises(DefinitionError, match=rf"setting {row.name}: .* is a file; it must be a folder"):
        Application(settings)


@pytest.mark.parametrize(("path", "why"), [("folder", "is a folder"), ("file/a.db", "lies below .* which is a file")])
def test_a_store_that_cannot_be_a_file_is_refused(tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(DefinitionError, match=f"setting store.path: .* {why}"):
        Application(load_settings(tmp_path, environ={"GRAPHFLOW_STORE_PATH": path}))


def test_what_is_missing_is_made_later_and_nothing_is_made_now(tmp_path: Path) -> None:
    assert folder_issues(load_settings(tmp_path, environ={})) == []
    assert list(tmp_path.iterdir()) == []
