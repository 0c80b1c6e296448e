"""What people read fits their terminal: no word is broken, no control character of a stored text reaches it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import sys
from typing import Any

import pytest
import typer

from graphflow.cli.app import app
from graphflow.cli.terminal import console
from graphflow.cli.terminal.question_text import Leave
from graphflow.models import opening
from graphflow.text_width import units, visible, wrap
from tests.campaign import size
from tests.cli.in_turn import BEGIN
from tests.cli.processes import _ESCAPES, _environment

EVIL = "red \x1b[31m\x1b]0;title\x07\x9b2J \u202eabc\u202c 你好，世界：请告诉我北京的天气怎么样"


@pytest.fixture
def filled(cli):
    """A project with threads of long and of hostile titles, a question, and a broken agent."""
    for file in (cli.folder / "graphs").glob("demo_*.json"):
        if file.stem not in USED:  # each command loads and checks them all
            file.unlink()
    cli("run", "demo_plain", "Tell me about supercalifragilistic structures " * 4, "--thread", "long")
    cli("run", "demo_plain", EVIL, "--thread", "evil")
    cli("run", "demo_react", "list the files", "--thread", "asks")
    (cli.folder / "graphs" / "broken.json").write_text(
        '{"mode": "REACT", "tools": ["nope"], "react": {"systemPrompt": 1}}'
    )
    return cli


COMMANDS = (
    ["agents"], ["agents", "show", "demo_service_desk"], ["threads"], ["threads", "show", "long"], ["threads", "show", "evil"],
    ["inbox"], ["rules"], ["usage"], ["graph"], ["graph", "show", "demo_react_team"], ["doctor"], ["validate"],
    ["threads", "cost", "long"], ["threads", "why", "long"], ["threads", "state", "evil"], ["threads", "blame", "evil", "messages"],
    ["run", "nobody", "x"], ["threads", "show", "nobody"], ["runs"], ["runs", "list"], ["agents", "list"], ["threads", "list"],
    ["inbox", "list"], ["rules", "list"], ["graph", "list"], ["commands"], ["threads", "diff", "long", "a", "b"],
    ["threads", "resume", "nobody"], ["threads", "rename", "long", "A new and much longer title than the one before it"],
    ["why", "long"], ["replay", "nobody"], ["threads", "fork", "long"],
    ["threads", "cancel", "asks"], ["threads", "rewind", "long"], ["threads", "export", "nobody"], ["threads", "import", "nobody"],
    ["threads", "prune", "--dry-run"], ["threads", "migrate", "nobody"], ["threads", "rm", "nobody", "--yes"], ["inbox", "answer", "nobody"],
    ["rules", "add", "--help"], ["rules", "remove", "nobody"], ["threads", "update", "long", "--metadata", "team=blue"],
    ["threads", "replay", "nobody"], ["threads", "rotate-keys"], ["runs", "show", "nobody"], ["test"], ["new", "fresh_agent"], ["scripted-model", "--help"],
    ["models", "list"], ["models", "show", "deepseek/deepseek-chat"], ["models", "refresh", "nobody"],
)  # fmt: skip
JSON = (["threads", "state", "evil"],)
"""Data, whose lines stay as they are."""


USAGE = (
    ["nope"], ["run"], ["run", "demo_plain", "hi", "--nope"], ["threads", "shwo"], ["threads", "show"], ["runs", "list", "--limit", "many"],
    ["threads", "show", "long", "--limit", "0"], ["run", "demo_plain", "hi", "--budget"], ["run", "demo_plain", "hi", "--on-busy", "wait"],
    ["run", "demo_plain", "hi", "--thread", ""], ["inbox", "answer", "nobody", "--approve", "--edit", "{}"], ["run", "demo_plain", "a", "b", "c"],
    ["threads", "rewind", "long@nothing"], ["threads", "fork", "long", "a message without the flag"], ["serve", "--port", "none"],
)  # fmt: skip
USED = ("demo_plain", "demo_react", "demo_react_team", "demo_service_desk", "demo_plan_execute")
RUNS = (
    ["run", "demo_plain", "Tell me about supercalifragilistic structures " * 4], ["run", "demo_plain", EVIL],
    ["run", "demo_react", "list the files", "--approve", "all"], ["run", "demo_react", "list the files", "--approve", "deny"],
    ["run", "demo_plan_execute", "Plan a trip with several stops", "--approve", "all"], ["run", "demo_react_team", "Compare both of them"],
    ["run", "asker", "hi", "--thread", "asks_all"], ["run", "failing", "hi", "--thread", "fails"], ["threads", "show", "fails"], ["why", "fails"],
    ["threads", "resume", "fails"], ["replay", "long"], ["threads", "show", "asks_all"], ["inbox"], ["threads", "resume", "asks"],
    ["threads", "diff", "long", "head", "head"], ["runs"], ["run", "demo_react", "x", "--budget", "maxModelCalls=0", "--thread", "budget"],
)  # fmt: skip
"""Runs, and what is shown of them later; in this order."""
ASKER = {
    "graphflow": "1", "start": "q",
    "nodes": {"q": {
        "ask": {"message": "May this very long question be asked of somebody who has a narrow terminal in front of them?",
                "schema": {"type": "object", "required": ["a_field"], "properties": {"a_field": {"type": "string"}, "another": {"type": "integer"}}}},
        "next": "end",
    }},
}  # fmt: skip
FAILING = {
    "graphflow": "1", "start": "a_node_with_a_rather_long_name",
    "nodes": {"a_node_with_a_rather_long_name": {"use": "tool:math_eval", "with": {"expression": "this is no arithmetic " * 5}, "next": "end"}},
}  # fmt: skip


def _check_lines(lines: list[str], width: int, command: list[str]) -> None:
    for line in lines:
        # A word that is wider than the terminal stands alone, as does a command in backticks.
        alone = re.fullmatch(r"\s*(\S+( \\)?|`[^`]+`\S*)", line)
        assert units(line) <= width or alone is not None or command in JSON, (command, line)


@pytest.fixture
def shown(cli, monkeypatch):
    """What a command shows on a terminal of so many columns, in this process."""
    monkeypatch.setattr(console, "_is_tty", lambda stream: stream is not None and stream is not sys.stdin)
    monkeypatch.setattr(opening, "_on_terminal", lambda: True)
    cli.environment["NO_COLOR"] = "1"
    (cli.folder / "graphs" / "asker.json").write_text(json.dumps(ASKER))
    (cli.folder / "graphs" / "failing.json").write_text(json.dumps(FAILING))

    def run(command: list[str], width: int) -> str:
        cli.environment["COLUMNS"] = str(width)
        done = cli(*command)
        return str(done.out + done.err)

    return run


@pytest.mark.campaign
@pytest.mark.parametrize("width", [40, 60, 80])
def test_everything_that_a_command_prints_fits_the_terminal(filled, shown, width):
    """Tables, runs as they go, questions, failures and usage errors; without a terminal of its own for each."""
    # All at the narrowest; at each of the others a third of the tables, and another one.
    step = 1 if width == 40 else size(3, long=1)
    for command in (*COMMANDS[width // 20 % step :: step], *USAGE, *RUNS):
        text = shown(command, width)
        assert any(text.split("\n")), command
        _check_lines(text.split("\n"), width, command)
        assert not any(mark in text for mark in ("\x9b", "\u202e", "\x07", "\x1b]")), command
        assert "Traceback" not in text, command


@pytest.mark.parametrize("width", [40, 60])
def test_a_conversation_fits_the_terminal(filled, shown, width, capsys):
    from graphflow.cli.commands.chat import COMMANDS as WORDS
    from graphflow.cli.commands.chat import Chat
    from graphflow.cli.startup import agent_named, opened
    from graphflow.cli.terminal.answer_policy import Policy

    async def talked() -> None:
        async with opened() as app:
            talk = Chat(app, agent_named(app, "demo_react"), "talk", Policy(person=False), {})
            await talk.survive(talk.turn(talk.begin("list the files")))
            for word in WORDS:
                if word not in ("quit", "save"):
                    print(f"/{word}")  # noqa: T201 - the line that a person types
                    events = None
                    with contextlib.suppress(Leave):
                        events = await talk.survive(talk.obey(f"/{word}"))
                    if events is not None:
                        await talk.survive(talk.turn(events))

    with contextlib.chdir(filled.folder), _environment({**filled.environment, "COLUMNS": str(width)}):
        asyncio.run(talked())
    said = capsys.readouterr()
    for part in (*re.split(r"(?m)^(?=/\w+$)", said.out), said.err):
        # The state is data.
        if not part.startswith("/state"):
            _check_lines(part.split("\n"), width, ["chat", part[:20]])


def test_what_is_said_on_a_real_terminal_fits_it(terminal, environment, filled):
    width = 40
    environment["COLUMNS"] = str(width)
    environment["NO_COLOR"] = "1"
    commands = [*COMMANDS[:7], *USAGE[:4], RUNS[0], RUNS[2]]
    shown = terminal(json.dumps(commands), program="tests.cli.in_turn")
    assert shown.ends() == 0, shown.text
    printed = shown._raw.decode().split(f"{BEGIN} ")[1:]
    assert [text.split()[0] for text in printed] == [str(number) for number in range(len(commands))]
    for command, raw in zip(commands, printed, strict=True):
        # A run is drawn in styles, and again and again.
        plain = _ESCAPES.sub("", raw.replace("\r", "\n")) if command[0] == "run" else raw.replace("\r", "")
        lines = plain.split("\n")[1:]
        assert any(lines), command
        _check_lines(lines, width, command)
        assert not any(mark in plain for mark in ("\x1b", "\x9b", "\u202e", "\x07")), command
        assert "Traceback" not in raw


def _helps() -> list[list[str]]:
    """`--help` of every command and group."""
    found: list[tuple[list[str], Any]] = [([], typer.main.get_command(app))]
    for path, at in found:
        found += [([*path, name], each) for name, each in getattr(at, "commands", {}).items()]
    return [[*path, "--help"] for path, _ in found]


def _check_help(text: str, width: int, command: list[str], whole: str) -> None:
    for line in text.splitlines():
        assert units(line) <= width, (command, line)
    assert text.split() == whole.split(), f"{command}: a word was broken"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_help_of_every_command_fits_and_breaks_no_word(cli, terminal, environment, width):
    environment["NO_COLOR"] = "1"
    environment["COLUMNS"] = "200"
    helps = _helps()
    assert ["run", "--help"] in helps and ["threads", "migrate", "--help"] in helps
    whole = [cli(*command).out for command in helps]
    environment["COLUMNS"] = str(width)
    for command, text in zip(helps, whole, strict=True):
        _check_help(cli(*command).out, width, command, text)
    if width > 40:  # a terminal is dear, and the text is made by the same lines
        return
    shown = terminal(json.dumps(helps), program="tests.cli.in_turn")
    assert shown.ends() == 0, shown.text
    printed = shown._raw.decode().replace("\r", "").split(f"{BEGIN} ")[1:]
    for command, raw, text in zip(helps, printed, whole, strict=True):
        _check_help(raw.partition("\n")[2], width, command, text)


def test_every_command_that_prints_is_tried_at_each_width():
    tried = [" ".join(command) for command in COMMANDS]
    # A conversation, a server, and JSON alone.
    others = {"chat", "serve", "schema"}
    for path in (" ".join(command[:-1]) for command in _helps()[1:]):
        assert path in others or any(f"{command} ".startswith(f"{path} ") for command in tried), path


def test_a_command_to_copy_goes_on_in_the_next_line(monkeypatch, capsys):
    monkeypatch.setattr(console, "_is_tty", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "40")
    command = """graphflow inbox answer 01a205fa-4b40-7000-b7e8-7193b5596ff4.1 --answer '{"decision": "retry it"}'"""
    console.note(f"    {command}", whole=True)
    shown = capsys.readouterr().err
    assert all(units(line) <= 40 for line in shown.splitlines())
    assert shlex.split(shown.replace("\\\n", "")) == shlex.split(command)


def test_a_run_shows_no_control_characters(terminal, environment):
    environment["NO_COLOR"] = "1"
    run = terminal("run", "demo_plain", EVIL)
    run.sees("completed")
    run.ends()
    assert "\x1b]0" not in run._raw.decode() and "\x9b" not in run._raw.decode()


def test_a_pipe_gets_rows_and_the_result_as_they_are(filled):
    title = "supercalifragilistic structures " * 4 + "and more"
    filled("threads", "rename", "long", title)
    listed = filled("threads", "list")
    assert all(len(line.split()) > 3 for line in listed.out.splitlines())
    assert title in listed.out
    assert "\x1b" not in listed.out
    # The result of a run is data: somebody else decides what is shown of it.
    assert "\x1b" in filled("run", "demo_plain", "say \x1b[0m").out


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("  one two three", 9, ["  one two", "  three"]),
        ("a supercalifragilistic b", 10, ["a", "supercalifragilistic", "b"]),
        ("你好，世界和平", 8, ["你好，世", "界和平"]),
        ("run `graphflow chat x` now", 14, ["run", "`graphflow chat x`", "now"]),
        ("", 10, [""]),
        ("a\n\nb", 10, ["a", "", "b"]),
    ],
)
def test_text_is_wrapped_between_words(text, width, lines):
    assert wrap(text, width) == lines


def test_what_could_move_the_cursor_or_hide_is_shown_as_one_mark_each():
    assert visible("a\x1b\x07\r\x9b\u202e\ud800b\tc\nd 👩‍💻") == "a������b\tc\nd 👩‍💻"


@pytest.mark.parametrize("group", ["agents", "threads", "graph", "inbox", "rules"])
def test_a_group_without_a_command_lists(filled, group):
    assert filled(group).out == filled(group, "list").out
    assert filled(group, "--json").json == filled(group, "list", "--json").json


def test_a_graph_is_drawn_from_left_to_right_and_in_dot(cli):
    condition = "visits.reason &lt; limits.rounds"
    assert condition in cli("graph", "show", "demo_react", "--svg", "--lr").out
    assert cli("graph", "show", "demo_react", "--mermaid", "--lr").out.startswith("flowchart LR")
    dot = cli("graph", "show", "demo_react", "--dot", "--lr").out
    assert "rankdir=LR" in dot
    assert '"tools" -> "reason" [label="visits.reason < limits.rounds"' in dot
    assert cli("graph", "show", "demo_react", "--lr").code == 2
