"""`graphflow inbox`: what waits, and answering it from anywhere."""

from __future__ import annotations

import json

import pytest

LONG = "May this go out? " + " ".join(f"word-{number}" for number in range(30))


@pytest.fixture
def waiting(cli):
    """The id of an approval of `bash ls` on thread `t1`."""
    assert cli("run", "demo_react", "list the files", "--thread", "t1").code == 4
    return cli("inbox", "--json").json[0]["interruptId"]


def test_the_list_says_what_is_asked_and_how_to_answer(cli, waiting, steady, snapshot):
    done = cli("inbox")
    assert steady(done.out + done.err) == snapshot


@pytest.fixture
def long_question(cli, project):
    asks = {"graphflow": "1", "start": "q", "nodes": {"q": {"ask": {"message": LONG}, "next": "end"}}}
    (project / "graphs" / "asks.json").write_text(json.dumps(asks))
    assert cli("run", "asks", "go").code == 4


def test_on_a_pipe_a_long_question_is_whole_and_on_one_line(cli, long_question):
    assert any(f"ask: {LONG} (node q)" in line for line in cli("inbox").out.splitlines())


@pytest.mark.parametrize(("columns", "first"), [(130, "id "), (60, "id        ")], ids=["wrapped", "in blocks"])
def test_on_a_narrow_terminal_nothing_of_a_long_question_is_cut(terminal, environment, long_question, columns, first):
    environment["COLUMNS"] = str(columns)
    shown = terminal("inbox")
    shown.sees("to answer, for example")
    assert shown.ends() == 0
    table = shown.text.partition("to answer")[0]
    assert table.startswith(first)
    assert LONG.split() == [word for word in table.split() if word in LONG.split()]
    assert "…" not in table
    if columns == 130:
        assert max(map(len, table.splitlines())) <= columns


def test_nothing_waits(cli):
    done = cli("inbox")
    assert (done.code, done.out, done.err) == (0, "", "no open questions\n")


@pytest.mark.parametrize(
    ("flags", "heard"),
    [
        (["--approve"], "graphs"),
        (["--edit", '{"command": "pwd"}'], "pwd"),
        (["--reject", "not on a Sunday"], "not on a Sunday"),
        (["--respond", "there are no files"], "there are no files"),
        (["--answer", '{"decision": "approve"}'], "graphs"),
    ],
)
def test_an_answer_goes_on_to_the_final_text(cli, waiting, flags, heard):
    done = cli("inbox", "answer", waiting, *flags)
    assert done.code == 0, done.err
    assert heard in cli("threads", "state", "t1", "messages").out


def test_terminate_ends_the_run_as_rejected(cli, waiting):
    done = cli("inbox", "answer", waiting, "--terminate", "--json")
    assert done.code == 4 and done.json["finishReason"] == "rejected"


def test_arguments_from_a_file(cli, waiting, project):
    (project / "arguments.json").write_text('{"command": "pwd"}')
    assert cli("inbox", "answer", waiting[-10:], "--edit", "@arguments.json").code == 0


def test_an_answer_that_does_not_fit_changes_nothing(cli, waiting):
    wrong = cli("inbox", "answer", waiting, "--answer", '{"decision": "perhaps"}')
    assert wrong.code == 2 and "perhaps" in wrong.err and wrong.out == ""
    assert cli("inbox", "answer", waiting, "--edit", '{"command": 7}').code == 2
    assert cli("inbox", "answer", waiting).code == 2
    assert cli("inbox", "answer", waiting, "--approve", "--reject", "x").code == 2
    assert [row["interruptId"] for row in cli("inbox", "--json").json] == [waiting]


def test_a_second_answer_is_refused(cli, waiting):
    assert cli("inbox", "answer", waiting, "--approve").code == 0
    again = cli("inbox", "answer", waiting, "--approve")
    assert again.code == 2 and "nothing has changed" in again.err


def test_an_ask_takes_any_answer_that_fits_its_schema(cli):
    asked = cli("run", "demo_review", "graphs")
    command = next(line for line in asked.err.splitlines() if "inbox answer" in line)
    assert """--answer '{"decision":"approve"}'""" in command
    waiting = cli("inbox", "--json").json[0]["interruptId"]
    assert cli("inbox", "answer", waiting, "--approve").code == 2
    assert cli("inbox", "answer", waiting, "--answer", '{"decision": "approve"}').code == 0


def test_what_comes_after_is_answered_by_then(cli):
    cli("run", "demo_react", "list the files", "--thread", "t1")
    waiting = cli("inbox", "--json").json[0]["interruptId"]
    assert cli("inbox", "answer", waiting, "--approve", "--then", "deny").code == 0
