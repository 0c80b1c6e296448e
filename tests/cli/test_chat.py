"""A conversation goes on whatever happens in it; its questions are answered at their prompt or by a command."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest


def begun(terminal, agent="demo_react"):
    """A conversation that waits for the approval of a call."""
    chat = terminal("chat", agent)
    chat.sees("›")
    chat.enters("list the files")
    chat.sees("leave open: ")
    return chat


def test_a_message_behind_an_open_question_is_not_sent_and_the_conversation_goes_on(terminal, cli):
    chat = begun(terminal)
    chat.enters("/later")
    chat.sees("›")
    chat.enters("and another thing")
    chat.sees("not sent: this thread waits for an answer")
    chat.sees(r"approval: bash \{\"command\":\"ls\"\}")
    chat.sees("›")
    chat.enters("/later")
    chat.sees("/resume asks")
    chat.sees("›")
    chat.enters("/approve")
    chat.sees("This is what `ls` gave")
    chat.sees("›")
    chat.enters("/approve")
    chat.sees("no question is open")
    chat.sees("›")
    chat.enters("/quit")
    assert chat.ends() == 0
    thread = cli("threads", "list", "--json").json[0]["threadId"]
    assert "another thing" not in cli("threads", "state", thread, "messages").out


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("/reject too  early", "too  early"), ('/edit {"command": "pwd"}', r'"command":"pwd"')],
)
def test_an_approval_is_answered_by_a_command_with_its_text(terminal, typed: str, shown: str):
    chat = begun(terminal)
    chat.enters("/later")
    chat.sees("›")
    chat.enters(typed)
    chat.sees(shown)
    chat.sees("completed")
    chat.sees("›")
    chat.enters("/quit")
    assert chat.ends() == 0


@pytest.mark.parametrize("begins", ["e", "r", "s", "/edit {bad"])
def test_a_decision_that_is_typed_where_a_value_is_asked_for_is_that_decision(terminal, begins: str):
    chat = begun(terminal)
    chat.enters(begins)
    chat.sees(r"(command \[ls\]|why|result to give instead):")
    chat.enters("/reject not today")
    chat.sees("not today")
    chat.sees("›")
    chat.enters("/quit")
    assert chat.ends() == 0
    assert "edit bash" not in chat.text and "/reject" not in chat.text.rpartition("not today")[2]


def test_arguments_are_edited_by_one_json_object_at_the_prompt_for_the_first_too(terminal):
    chat = begun(terminal)
    chat.enters("e")
    chat.sees(r"command \[ls\]:")
    chat.enters('{"command": "pwd"}')
    chat.sees(r'"command":"pwd"')
    chat.sees("completed")
    chat.enters("/quit")
    assert chat.ends() == 0


def test_what_is_no_answer_is_explained_at_the_question(terminal):
    chat = begun(terminal)
    for typed in ("perhaps", "approve nothing yet", "/nope"):
        chat.enters(typed)
        chat.sees(f"'{typed}' is not an answer to this question")
        chat.sees(r"\[t\] terminate +do not run it, and end the run")
        chat.sees("leave open: ")
    chat.enters("/help")
    chat.sees(r"\[a\] approve +run the call as it is")
    chat.sees("leave open: ")
    chat.enters("y")
    chat.sees("This is what `ls` gave")
    chat.sees("›")
    chat.enters("/quit")
    assert chat.ends() == 0


def test_quit_at_a_question_leaves_it_open(terminal, cli):
    chat = begun(terminal)
    chat.enters("/quit")
    assert chat.ends() == 0
    assert [waiting["kind"] for waiting in cli("inbox", "--json").json] == ["approval"]


def test_no_input_ends_the_conversation(terminal, cli):
    """Bytes that are no UTF-8, commands of all kinds with anything behind them, before and after the first turn."""
    chat = terminal("chat", "demo_plain")
    chat.sees("›")
    lines = ["/rewind nowhere", "/rewind 0", "/fork x", "/resume", "/state nope", "/model", "/nope", "/edit {", "/", "//", "/later", "/tools x"]  # fmt: skip
    for line in [*lines, "hello", *lines, "/save /nowhere/x"]:
        chat.enters(line)
        chat.sees("\n")
        chat.sees("›")
    chat.types(b"caf\xe9 \xff".decode(errors="surrogateescape"))
    chat.enters("")
    chat.sees("›")
    chat.enters("/quit")
    assert chat.ends() == 0
    assert "Traceback" not in chat.text and "ExceptionGroup" not in chat.text


def test_a_defect_of_a_turn_does_not_end_the_conversation(terminal, project):
    """The store loses its tables: every turn and command fails, each is reported, and the next line is read."""
    chat = terminal("chat", "demo_plain")
    chat.sees("›")
    chat.enters("hello")
    chat.sees("completed")
    chat.sees("›")
    with contextlib.closing(sqlite3.connect(project / "checkpoints" / "threads.db")) as store:
        for (name,) in store.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        ).fetchall():
            store.execute(f'DROP TABLE IF EXISTS "{name}"')
        store.commit()
    for line in ("hello again", "/state", "/resume", "/rewind", "hello"):
        chat.enters(line)
        chat.sees("graphflow: ")
        chat.sees("›")
    chat.enters("/quit")
    chat.ends()
    assert "Traceback" not in chat.text


def test_a_thread_of_a_new_id_begins_with_the_first_message_and_an_odd_id_is_refused(terminal, cli):
    chat = terminal("chat", "demo_plain", "--thread", "new")
    chat.sees("thread 'new' does not exist yet; it begins with your first message")
    chat.sees("›")
    chat.enters("hello")
    chat.sees("completed")
    chat.sees("›")
    chat.enters("/quit")
    assert chat.ends() == 0
    assert [row["threadId"] for row in cli("threads", "list", "--json").json] == ["new"]
    odd = terminal("chat", "demo_plain", "--thread", "a b")
    odd.sees("'a b' is not a valid id")
    assert odd.ends() == 2
