"""A run that failed says why in the same words wherever the command line shows it, also long after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphflow.cli.terminal.failure_text import error_text, failure_text, shown_error

MODULE = """
from graphflow import GraphflowError, node

@node
def failing_of_test_failures(state, ctx):
    raise GraphflowError(
        "the ledger is closed for token=abcdef0123456789abcdef; pass on_waiting='cancel'",
        code="invalid_input",
        errors=[{"pointer": "/a", "message": "first"}, {"pointer": "/b", "message": "the second, password=hunter2hunter2"}],
    )
"""
AGENT = '{"graphflow": "1", "start": "pay", "nodes": {"pay": {"use": "node:failing_of_test_failures", "next": "end"}}}'
SAID = (
    "the run failed at node 'pay' with invalid_input: the ledger is closed for token=***; pass --on-waiting cancel\n"
    "  /b: the second, password=***\n"
)


@pytest.fixture
def failed(cli, project: Path) -> Any:
    (project / "nodes_of_test_failures.py").write_text(MODULE)
    (project / "graphflow.toml").write_text('[tools]\nmodules = ["nodes_of_test_failures"]\n')
    (project / "graphs" / "payer.json").write_text(AGENT)
    return cli("run", "payer", "go", "--thread", "t")


def test_the_command_that_ran_it_says_why_and_what_is_next(failed):
    assert failed.code == 2 and failed.out == ""
    assert failed.err == f"graphflow: {SAID}next: `graphflow threads resume t` retries from the last finished node\n"


def test_every_command_that_shows_it_later_says_the_same(cli, failed):
    run = cli("runs", "--json").json[0]["runId"]
    for command in (["runs", "show", run], ["threads", "show", "t"]):
        shown = cli(*command)
        assert SAID in shown.out, command
        assert "next: `graphflow threads resume t`" in shown.err, command
    assert "invalid_input: the ledger is closed for token=***; pass --on-waiting cancel" in cli("why", "t").out
    again = cli("threads", "resume", "t")
    assert SAID in again.err
    for command in (["runs", "show", run], ["threads", "show", "t"], ["threads", "resume", "t"]):
        error = cli(*command, "--json").json["error"]
        assert error["code"] == "invalid_input" and error["node"] == "pay", command
        assert error["message"] == "the ledger is closed for token=***; pass --on-waiting cancel", command
    assert cli("runs", "--json").json[0]["error"] == error


def test_on_a_terminal_the_same_is_said(failed, terminal):
    shown = terminal("threads", "resume", "t")
    assert shown.ends() == 2
    assert " ".join(SAID.split()) in " ".join(shown.text.split())


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ({}, "the run failed with internal: no reason was recorded"),
        ({"code": None, "message": None, "node": None}, "the run failed with internal: no reason was recorded"),
        ({"code": "x", "message": {"a": ["b", None]}}, 'the run failed with x: {"a":["b",null]}'),
        ({"code": "x", "message": "m", "node": 3, "detail": "d"}, "the run failed with x: m"),
        ({"code": "x", "message": "m", "detail": {"errors": [1, 2]}}, "the run failed with x: m"),
    ],
)
def test_what_an_older_version_or_an_import_has_stored_is_text_all_the_same(error: Any, text: str):
    assert failure_text(error) == text
    assert error_text(error) in text
    assert isinstance(shown_error(error)["message"], str)
