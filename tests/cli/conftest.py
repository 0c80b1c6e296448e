"""The command line as people meet it: a process in a project folder, on a pipe or on a terminal."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Command, HeldModel, Terminal

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
def cli(project: Path, environment: dict[str, str]) -> Iterator[Command]:
    """Runs `graphflow …` in the project to its end."""
    command = Command(project, environment)
    yield command
    command.close()


@pytest.fixture
def terminal(project: Path, environment: dict[str, str]) -> Iterator[type[Terminal]]:
    """`terminal("run", …)` starts `graphflow …` on a terminal of its own."""
    opened: list[Terminal] = []

    class Here(Terminal):
        def __init__(self, *arguments: str, program: str = "graphflow") -> None:
            super().__init__(project, environment, *arguments, program=program)
            opened.append(self)

    yield Here
    for each in opened:
        each.close()


@pytest.fixture
def held_model(environment: dict[str, str]) -> Iterator[HeldModel]:
    """The scripted model as a server that waits where the test says; every process of the test uses it."""
    model = HeldModel()
    environment |= {"LLM_BASE_URL": model.start(), "LLM_MODEL_ID": "scripted"}
    yield model
    model.stop()


@pytest.fixture
def steady() -> Steady:
    """Replaces what differs from run to run: ids, times, folders."""
    return Steady()


class Steady:
    """Texts of two runs are equal after this."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", self._name, text)
        text = re.sub(r"\b[0-9a-f]{8}\b", self._name, text)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>", text)
        text = re.sub(r"\d+ ms +[█▏]+", "<ms> <bar>", text)
        text = re.sub(r"(<bar> +)\d+", r"\1<tokens>", text)  # the day's weather is said in more words or fewer
        text = re.sub(r"(?<=\S) {2,}", "  ", text)
        return re.sub(r"[^\S\n]+$", "", text, flags=re.MULTILINE)

    def _name(self, match: re.Match[str]) -> str:
        return self._names.setdefault(match[0], f"<id {len(self._names) + 1}>")
