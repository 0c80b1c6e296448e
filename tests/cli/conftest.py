"""The command line as people meet it: a process in a project folder, on a pipe or on a terminal."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminals import Command, Terminal

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the demo agents."""
    shutil.copytree(ROOT / "graphs", tmp_path / "graphs")
    return tmp_path


@pytest.fixture
def environment(project: Path) -> dict[str, str]:
    """What every process of a test sees; tests may add to it."""
    terminal = {"TERM": "xterm", "COLUMNS": "100", "LINES": "50", "PROMPT_TOOLKIT_NO_CPR": "1"}
    return {**os.environ, **terminal, "PYTHONPATH": str(ROOT), "TZ": "UTC"}


@pytest.fixture
def cli(project: Path, environment: dict[str, str]) -> Command:
    """Runs `graphflow …` in the project to its end."""
    return Command(project, environment)


@pytest.fixture
def terminal(project: Path, environment: dict[str, str]) -> Iterator[type[Terminal]]:
    """`terminal("run", …)` starts `graphflow …` on a terminal of its own."""
    opened: list[Terminal] = []

    class Here(Terminal):
        def __init__(self, *arguments: str) -> None:
            super().__init__(project, environment, *arguments)
            opened.append(self)

    yield Here
    for each in opened:
        each.close()


@pytest.fixture
def slow_model(project: Path, environment: dict[str, str]) -> Iterator[str]:
    """The scripted model as a server that takes its time; every process of the test uses it."""
    command = [sys.executable, "-m", "graphflow", "scripted-model", "--port", "0", "--delay-ms", "15"]
    with subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip().removeprefix("LLM_BASE_URL=")
        environment |= {"LLM_BASE_URL": url, "LLM_MODEL_ID": "scripted"}
        yield url
        server.kill()


@pytest.fixture
def steady() -> Steady:
    """Replaces what differs from run to run: ids, times, folders."""
    return Steady()


class Steady:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def __call__(self, text: str, project: Path | None = None) -> str:
        if project is not None:
            text = text.replace(str(project), "<project>")
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", self._name, text)
        for full, name in list(self._names.items()):
            text = text.replace(full[-8:], name)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>", text)
        text = re.sub(r" +\d+ ms +[█▏]+ *", " <ms> <bar> ", text)
        return re.sub(r"[^\S\n]+$", "", text, flags=re.MULTILINE)

    def _name(self, match: re.Match[str]) -> str:
        return self._names.setdefault(match[0], f"<id {len(self._names) + 1}>")
