"""Tool files and viewports that change while the application runs: last good versions, errors, half-written files."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from graphflow.service.application import Application
from graphflow.service.catalog.watched_folders import WatchedFolder
from tests.service.conftest import Opened

PATHS = ("graphs/tools", "graphs/viewports")


def write(folder: Path, name: str, *tools: Any, text: str | None = None) -> Path:
    file = folder / "graphs" / "tools" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"tools": tools}) if text is None else text, encoding="utf-8")
    return file


@pytest.fixture
async def app(open_application: Opened, folder: Path) -> Application:
    for path in PATHS:
        (folder / path).mkdir()
    return await open_application()


def kinds(app: Application) -> dict[str, str]:
    return {tool.name: tool.kind for tool in app.toolbox.files.tools}


async def test_files_that_come_change_and_go_take_effect(app: Application, folder: Path):
    file = write(folder, "a.action", {"name": "one"})
    await app.toolbox.refresh()
    assert kinds(app) == {"one": "action"}
    assert app.runner.registry is app.tools
    write(folder, "a.action", {"name": "one", "description": "New."}, {"name": "two"})
    await app.toolbox.refresh()
    assert app.tools.require("one").description == "New."
    file.unlink()
    await app.toolbox.refresh()
    assert "one" not in app.tools
    assert "bash" in app.tools


@pytest.mark.parametrize("broken", ["{", '{"tools": 1}', '{"tools": [{"name": "one", "parameters": 5}]}'])
async def test_what_is_broken_now_serves_on_as_it_was_and_is_reported_until_it_is_mended(
    app: Application, folder: Path, broken: str, caplog: pytest.LogCaptureFixture
):
    write(folder, "a.action", {"name": "one", "description": "Good."})
    write(folder, "b.action", {"name": "two"})
    await app.toolbox.refresh()
    with caplog.at_level(logging.WARNING, logger="graphflow.tools"):
        write(folder, "a.action", text=broken)
        await app.toolbox.refresh()
        write(folder, "b.action", {"name": "two", "description": "Newer."})
        await app.toolbox.refresh()
    assert app.tools.require("one").description == "Good."
    assert app.tools.require("two").description == "Newer."
    (issue,) = app.errors()
    assert (Path(issue.file or "").name, caplog.text.count("a.action")) == ("a.action", 1)
    write(folder, "a.action", {"name": "one", "description": "Mended."})
    await app.toolbox.refresh()
    assert app.errors() == []
    assert app.tools.require("one").description == "Mended."


async def test_a_second_tool_of_a_name_takes_both_out_and_reports_both(app: Application, folder: Path):
    write(folder, "a.action", {"name": "one"}, {"name": "other"})
    second = write(folder, "b.html", {"name": "one"})
    await app.toolbox.refresh()
    assert kinds(app) == {"other": "action"}
    assert [Path(issue.file or "").name for issue in app.errors()] == ["a.action", "b.html"]
    second.unlink()
    await app.toolbox.refresh()
    assert kinds(app) == {"one": "action", "other": "action"}


async def test_a_frontend_tool_takes_its_files_name_or_tool_api_as_its_viewport_and_says_when_there_is_none(
    app: Application, folder: Path
):
    write(folder, "My_Form.qlc", {"name": "one"}, {"name": "two", "toolApi": "Other"})
    (folder / "graphs" / "viewports" / "MY_form.qlc").write_text("{}", encoding="utf-8")
    await app.toolbox.refresh()
    one, two = app.tools.require("one"), app.tools.require("two")
    assert (one.viewport, one.viewport_type, two.viewport) == ("my_form", "qlc", "other")
    (issue,) = app.errors()
    assert (issue.severity, issue.pointer) == ("warning", "/tools/1/name")


async def test_viewports_change_too_and_a_broken_or_doubled_one_is_reported(app: Application, folder: Path):
    viewports = folder / "graphs" / "viewports"
    (viewports / "A.dqlc").write_text('{"v": 1}', encoding="utf-8")
    await app.toolbox.refresh()
    (viewports / "A.dqlc").write_text('{"v": ', encoding="utf-8")
    await app.toolbox.refresh()
    found = app.toolbox.viewports.get("a")
    assert found is not None
    assert found.content == {"v": 1}
    assert [issue.kind for issue in app.errors()] == ["syntax"]
    (viewports / "A.dqlc").write_text('{"v": 2}', encoding="utf-8")
    (viewports / "a.html").write_text("<p>", encoding="utf-8")
    await app.toolbox.refresh()
    assert app.toolbox.viewports.get("a") is None
    assert len(app.errors()) == 2


async def test_an_agent_is_checked_again_when_its_tools_come_and_keeps_serving_when_they_go(
    app: Application, folder: Path
):
    agent = {"mode": "REACT", "providerKey": "auto", "tools": ["one"], "react": {"systemPrompt": "x"}}
    (folder / "graphs" / "needy.json").write_text(json.dumps(agent), encoding="utf-8")
    app.agents.reload()
    assert [refused.key for refused in app.agents.invalid()] == ["needy"]
    file = write(folder, "a.action", {"name": "one"})
    await app.toolbox.refresh()
    assert app.agents.invalid() == ()
    file.unlink()
    await app.toolbox.refresh()
    (refused,) = app.agents.invalid()
    assert (refused.key, refused.in_service) == ("needy", True)
    assert "one" in app.graph("needy").host.services["tool"].registry
    assert "one" not in app.graph("plain").host.services["tool"].registry


# --- the folder itself


class Halves:
    """Sleeps by finishing what somebody is writing."""

    def __init__(self, file: Path, later: list[str]) -> None:
        self.file, self.later = file, later

    async def __call__(self, _: float) -> None:
        if self.later:
            self.file.write_text(self.later.pop(0), encoding="utf-8")


def folder_of(path: Path, taken: list[dict[str, Any]], **options: Any) -> WatchedFolder:
    async def take(contents: Any) -> None:
        taken.append({name: content.decode() for name, content in contents.items()})

    def is_whole(name: str, content: Any) -> bool:
        return bool(content.decode().endswith("}"))

    return WatchedFolder(path, (".x",), take=take, is_whole=is_whole, interval_ms=1_000, **options)


async def test_a_file_written_in_two_halves_is_taken_once_and_whole(tmp_path: Path):
    file, taken = tmp_path / "a.x", list[dict[str, Any]]()
    folder = folder_of(tmp_path, taken, sleep=Halves(file, ["{half", "{half}"]))
    folder.read()
    file.write_text("{", encoding="utf-8")
    await folder.refresh()
    assert taken == [{"a.x": "{half}"}]


async def test_a_file_that_stays_half_is_taken_in_the_end_and_holds_up_no_other(tmp_path: Path):
    file, taken = tmp_path / "a.x", list[dict[str, Any]]()
    folder = folder_of(tmp_path, taken, sleep=Halves(file, []))
    folder.read()
    file.write_text("{", encoding="utf-8")
    (tmp_path / "b.x").write_text("{}", encoding="utf-8")
    (tmp_path / "c.y").write_text("{}", encoding="utf-8")
    await folder.refresh()
    assert taken == [{"b.x": "{}"}, {"a.x": "{", "b.x": "{}"}]


async def test_a_file_that_vanishes_for_a_moment_was_never_gone(tmp_path: Path):
    file, taken = tmp_path / "a.x", list[dict[str, Any]]()
    file.write_text("{}", encoding="utf-8")
    folder = folder_of(tmp_path, taken, sleep=Halves(file, ["{}"]))
    folder.read()
    file.unlink()
    await folder.refresh()
    assert taken == []
