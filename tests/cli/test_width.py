"""What people read fits their terminal: no word is broken, no control character of a stored text reaches it."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import typer

from graphflow.cli.app import app
from graphflow.cli.terminal import console
from graphflow.text_width import units, visible, wrap
from tests.cli.in_turn import BEGIN

EVIL = "red \x1b[31m\x1b]0;title\x07\x9b2J \u202eabc\u202c 你好，世界：请告诉我北京的天气怎么样"


@pytest.fixture
def filled(cli):
    """A project with threads of long and of hostile titles, a question, and a broken agent."""
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


@pytest.mark.parametrize("width", [80, 40])
def test_every_command_fits_the_terminal(terminal, environment, filled, width):
    environment["COLUMNS"] = str(width)
    environment["NO_COLOR"] = "1"
    shown = terminal(json.dumps(COMMANDS), program="tests.cli.in_turn")
    assert shown.ends() == 0, shown.text
    printed = shown._raw.decode().split(f"{BEGIN} ")[1:]
    assert [text.split()[0] for text in printed] == [str(number) for number in range(len(COMMANDS))]
    for command, raw in zip(COMMANDS, printed, strict=True):
        lines = raw.replace("\r", "").split("\n")[1:]
        assert any(lines), command
        for line in lines:
            # A word that is wider than the terminal stands alone, as does a command in backticks.
            alone = re.fullmatch(r"\s*(\S+( \\)?|`[^`]+`\S*)", line)
            whole = alone is not None or command in JSON
            assert units(line) <= width or whole, (command, line)
        assert not any(mark in raw for mark in ("\x1b", "\x9b", "\u202e", "\x07")), command
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
    listed = filled("threads", "list")
    assert all(len(line.split()) > 3 for line in listed.out.splitlines())
    assert "supercalifragilistic structures Tell" in listed.out
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
