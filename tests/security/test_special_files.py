"""Files that are no files: a pipe, a device, a circle of links or 5 MB hold nobody up, and the refusal says what it is."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphflow import Bounds, load_graph
from graphflow.agents.loader import load_agent
from graphflow.authored_files import MAX_BYTES, read_authored
from graphflow.cli.commands.validate import _checked, _relative
from graphflow.errors import DefinitionError
from graphflow.models.scripted.script import ScriptError, load_script
from graphflow.nodes.kinds import NodeKinds
from graphflow.settings import load_settings
from graphflow.testing.cases import load_cases
from graphflow.tools.files.tool_files import read_folder
from graphflow.tools.registry import ToolRegistry
from tests.service.conftest import make_application


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # a path of a socket has at most 107 bytes


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def circle(path: Path) -> None:
    path.symlink_to(path.name)


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)


def endless(path: Path) -> None:
    """Its size is 0, and it has more than nothing."""
    path.symlink_to("/proc/self/pagemap")


SPECIAL: dict[Callable[[Path], None], str] = {
    pipe: "a named pipe, not a regular file",
    link_to_pipe: "a named pipe",
    a_socket: "a socket",
    device: "a device",
    circle: "symbolic links",
    large: "4 MiB",
}


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Ends a test that hangs at a pipe: whoever opens its other end lets the reader go on."""
    timer = threading.Timer(30, os._exit, [3])
    timer.start()
    yield
    timer.cancel()


@pytest.fixture(params=SPECIAL, ids=lambda make: make.__name__)
def special(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    (tmp_path / "graphs" / "tests").mkdir(parents=True)
    (tmp_path / "graphs" / "tools").mkdir()
    monkeypatch.chdir(tmp_path)
    request.param(tmp_path / "graphs" / "odd.json")
    return tmp_path / "graphs" / "odd.json", SPECIAL[request.param]


def test_a_special_file_is_not_read(special: tuple[Path, str]):
    path, why = special
    with pytest.raises(OSError, match=why):
        read_authored(path)


def test_a_file_that_says_it_is_empty_is_read_up_to_the_bound(tmp_path: Path):
    endless(tmp_path / "file")
    with pytest.raises(OSError, match="4 MiB"):
        read_authored(tmp_path / "file")


def test_a_file_at_the_bound_is_read(tmp_path: Path):
    (tmp_path / "file").write_bytes(b" " * MAX_BYTES)
    assert len(read_authored(tmp_path / "file")) == MAX_BYTES


def test_every_loader_refuses_it_and_says_what_it_is(special: tuple[Path, str]):
    path, why = special
    kinds = NodeKinds(ToolRegistry())
    for load in (lambda: load_agent(path, kinds=kinds), lambda: load_graph(path), lambda: load_cases(path)):
        with pytest.raises(DefinitionError, match=why):
            load()
    with pytest.raises(ScriptError, match=why):
        load_script(path)


@pytest.mark.parametrize("name", ["graphflow.toml", ".env"])
@pytest.mark.parametrize("make", [pipe, device, large])
def test_settings_refuse_it(make: Callable[[Path], None], name: str, tmp_path: Path):
    make(tmp_path / name)
    with pytest.raises(DefinitionError, match=SPECIAL[make]):
        load_settings(tmp_path, environ={})


async def test_a_reload_reports_it_and_the_others_stay(special: tuple[Path, str]):
    path, why = special
    (path.parent / "fine.json").write_text('{"mode": "ONESHOT", "plain": {"systemPrompt": "x"}}', encoding="utf-8")
    (path.parent / "tools" / "odd.backend").symlink_to(path)
    app = make_application(path.parent.parent)
    app.agents.reload()
    (odd,) = [agent for agent in app.agents.invalid() if agent.key == "odd"]
    assert why in odd.errors[0].message
    content = read_folder(path.parent / "tools", (".backend",))["odd.backend"]
    assert isinstance(content, str) and why in content
    assert any(why in issue.message for issue in app.toolbox.errors())


@pytest.mark.parametrize("given", [[], ["graphs"], ["graphs/odd.json"]], ids=repr)
def test_validate_refuses_it(special: tuple[Path, str], given: list[str]):
    path, why = special
    app = make_application(path.parent.parent)
    app.agents.reload()
    _, issues = _checked(app, given)
    assert any(why in issue.message for issue in issues)
    assert any("odd.json" in _relative(issue) for issue in issues)


def test_the_bound_of_a_document_is_a_setting(tmp_path: Path):
    """Files of agents, tools and viewports, and texts of agents."""
    (tmp_path / "graphs" / "tools").mkdir(parents=True)
    for name in ("graphs/agent.json", "graphs/tools/tool.backend"):
        (tmp_path / name).write_text("{" + " " * 300 + "}")
    app = make_application(tmp_path, environ={"GRAPHFLOW_BOUNDS_DOCUMENT_BYTES": "300"})
    app.agents.reload()
    text = "\n".join(issue.render() for issue in [*(e for a in app.agents.invalid() for e in a.errors), *app.errors()])
    assert text.count("it has 302 bytes; the setting bounds.document_bytes allows what people write 300") == 2, text
    with pytest.raises(DefinitionError, match=r"bounds\.document_bytes"):
        app.load("{" + " " * 300 + "}")
    with pytest.raises(DefinitionError, match=r"bounds\.document_bytes"):
        load_graph(tmp_path / "graphs" / "agent.json", bounds=Bounds(document_bytes=300))
