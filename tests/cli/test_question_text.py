"""Open questions in words: who answers sees what will run, and a command to copy."""

from __future__ import annotations

import json
import shlex
from typing import Any

from graphflow.cli.terminal.question_text import answer_lines, question_line
from graphflow.graph.core.machine import Interrupt


def interrupt(kind: str, **fields: Any) -> Interrupt:
    return Interrupt(id="i.1", kind=kind, run_id="r", node="send", frame=0, key="k", **fields)


def test_an_unknown_outcome_shows_the_tool_and_all_of_its_arguments():
    arguments = {"to": "Ada", "text": "x" * 200}
    asked = interrupt("outcome_unknown", tool_name="mail", arguments=arguments, payload={"operation": "call-1"})
    assert question_line(asked) == f"outcome_unknown: mail {json.dumps(arguments, separators=(',', ':'))} (node send)"


def test_an_unknown_outcome_outside_a_tool_shows_the_operation():
    asked = interrupt("outcome_unknown", arguments={"order": 7}, payload={"operation": "charge"})
    assert question_line(asked) == 'outcome_unknown: charge {"order":7} (node send)'
    bare = interrupt("outcome_unknown", payload={"operation": "once:1"})
    assert question_line(bare) == "outcome_unknown: once:1 (node send)"


def test_the_edit_of_an_approval_is_shown_with_the_arguments_to_change():
    asked = interrupt("approval", tool_name="bash", arguments={"command": "echo 'hi'"})
    lines = answer_lines(asked)
    _, _, edit = lines.partition("--edit ")
    assert json.loads(shlex.split(edit)[0]) == {"command": "echo 'hi'"}


def test_every_alternative_of_an_unknown_outcome_is_an_option_with_its_value():
    lines = answer_lines(interrupt("outcome_unknown", payload={"operation": "once:1"}))
    assert [word for word in shlex.split(lines) if word.startswith("{")] == [
        '{"decision":"retry"}',
        '{"decision":"skip"},',
        '{"decision":"result","result":…}',
    ]
    assert lines.count("--answer") == 3


def people(*names: str, **facts: Any) -> dict[str, Any]:
    given = [{"by": name, "interruptId": "i.0"} for name in names]
    return {"operation": "c", "approval": {"by": "anyone", "count": 2, "approvals": given, **facts}}


def test_what_the_first_of_two_people_has_decided_is_shown_and_offered_to_the_second():
    decided = {"decision": "result", "result": "it's paid"}
    asked = interrupt("outcome_unknown", tool_name="pay", arguments={}, payload=people("ann", proposed=decided))
    assert question_line(asked) == 'outcome_unknown: pay {} (node send) (1 of 2: ann result "it\'s paid")'
    command, *_ = answer_lines(asked).split("\n")
    assert json.loads(shlex.split(command)[5]) == decided and command.endswith(" --as NAME")
    first = interrupt("outcome_unknown", tool_name="pay", arguments={}, payload=people())
    assert question_line(first) == "outcome_unknown: pay {} (node send)"
    assert shlex.split(answer_lines(first).split("\n")[0])[5:] == ['{"decision":"retry"}', "--as", "NAME"]
