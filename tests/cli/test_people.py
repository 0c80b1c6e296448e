"""`--as NAME`: at the command line one person after another asks, answers and changes, each under their own name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TWO = {"bash": {"count": 2}}


@pytest.fixture
def payer(project: Path):
    """Writes an agent whose one call, `bash pwd`, is approved by this rule."""

    def write(rule: dict[str, Any]) -> None:
        call = {"id": "call-1", "name": "bash", "arguments": {"command": "pwd"}}
        document = {
            "graphflow": "1", "start": "a", "tools": ["bash"], "approval": rule,
            "nodes": {"a": {"use": "tools", "with": {"calls": [call]}, "next": "end"}},
        }  # fmt: skip
        (project / "graphs" / "payer.json").write_text(json.dumps(document))

    return write


def _question(cli) -> dict[str, Any]:
    line: dict[str, Any]
    (line,) = cli("inbox", "--json").json
    return line


def test_two_people_approve_one_after_the_other(cli, payer):
    payer(TWO)
    waits = cli("run", "payer", "go", "--thread", "t")
    assert waits.code == 4 and "--approve --as NAME" in waits.err
    first = _question(cli)["interruptId"]
    half = cli("inbox", "answer", first, "--approve", "--as", "ann")
    assert half.code == 4 and "can't decide" not in half.err  # nobody was asked
    line = _question(cli)
    assert [given["by"] for given in line["payload"]["approval"]["approvals"]] == ["ann"]
    assert "(1 of 2 approvals)" in line["payload"]["message"]
    again = cli("inbox", "answer", line["interruptId"], "--approve", "--as", "ann")
    assert (again.code, _question(cli)["interruptId"]) == (4, line["interruptId"])
    assert "approved already" in again.err and "--as NAME" in again.err
    done = cli("inbox", "answer", line["interruptId"], "--approve", "--as", "bob")
    assert done.code == 0, done.err
    assert cli("inbox", "--json").json == []


def test_the_id_of_the_first_question_still_counts(cli, payer):
    payer(TWO)
    assert cli("run", "payer", "go", "--thread", "t").code == 4
    first = _question(cli)["interruptId"]
    assert cli("inbox", "answer", first, "--approve", "--as", "dave").code == 4
    done = cli("inbox", "answer", first, "--approve", "--as", "erin")
    assert done.code == 0, done.err
    assert cli("inbox", "--json").json == []


def test_a_wrong_thread_is_reported_by_the_name_of_its_option(cli, payer):
    payer(TWO)
    refused = cli("run", "payer", "go", "--thread", "../x")
    assert refused.code != 0 and "--thread" in refused.err and "--thread-id" not in refused.err


def test_who_asked_does_not_approve_what_takes_somebody_else(cli, payer, environment):
    environment["GRAPHFLOW_TOKENS"] = "laptop@ann:*:secret-of-ann,bob:*:secret-of-bob"
    payer({"bash": {"by": "other"}})
    assert cli("run", "payer", "go", "--thread", "t", "--as", "ann").code == 4
    question = _question(cli)["interruptId"]
    same = cli("inbox", "answer", question, "--approve", "--as", "ann")
    assert same.code == 4 and "who asked for the run can't approve it" in same.err
    assert cli("inbox", "answer", question, "--approve", "--as", "bob").code == 0


def test_every_command_that_shows_the_question_shows_what_it_warns_of(cli, project):
    call = {
        "id": "call-1",
        "name": "agent_file_create",
        "arguments": {"agentId": "demo_plain", "systemPrompt": "Rest."},
    }
    nodes = {"a": {"use": "tools", "with": {"calls": [call]}, "next": "end"}}
    document = {"graphflow": "1", "start": "a", "tools": ["agent_file_create"], "nodes": nodes}
    (project / "graphs" / "writer.json").write_text(json.dumps(document))
    warning = "It replaces graphs/demo_plain.json, a file that this agent did not make."
    assert warning in cli("run", "writer", "go", "--thread", "t").err
    assert warning in cli("inbox").out
    assert warning in cli("threads", "show", "t").err
    assert _question(cli)["payload"]["warning"] == warning


@pytest.mark.parametrize("name", ["", "two words", "a\nb", "x" * 129, "{}"])
def test_a_name_that_no_user_can_have_is_refused_before_anything_runs(cli, payer, name):
    payer(TWO)
    refused = cli("run", "payer", "go", "--thread", "t", "--as", name)
    assert refused.code == 2 and "--as takes a name" in refused.err
    assert cli("threads", "--json").json == []


@pytest.mark.parametrize(("given", "who"), [([], "local"), (["--as", "ann"], "ann")])
def test_every_change_has_the_name_of_who_made_it(cli, given, who):
    cli("run", "demo_plain", "hello", "--thread", "t")
    first = cli("threads", "show", "t", "--json").json["checkpoints"][0]["id"]
    cli("threads", "rewind", f"t@{first}", *given)
    assert cli("why", "t", "--json").json["by"] == who
    assert cli("threads", "fork", "t", "--id", "f", "--edit", '{"messages": []}', *given).code == 0
    assert cli("why", "f", "--json").json["by"] == who
    cli("rules", "add", "deny", "bash", *given)
    assert cli("rules", "--json").json[0]["createdBy"] == who


def test_at_the_terminal_a_person_is_not_asked_again_for_their_second_approval(terminal, payer):
    payer(TWO)
    run = terminal("run", "payer", "go", "--thread", "t", "--as", "ann")
    run.sees("leave open:")
    run.enters("approve")
    run.sees("approved already")
    run.sees("--approve --as NAME")
    assert run.ends() == 4
    assert run.text.count("leave open:") == 1
