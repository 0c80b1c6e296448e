"""`graphflow run` on a pipe: stdout is the result, everything else is on stderr, the exit code tells the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

QUESTION = "What time is it in Beijing? And list the files"


@pytest.fixture(autouse=True)
def _named_model(environment: dict[str, str]) -> None:
    """The scripted model is named, so nothing is said about it."""
    environment["LLM_PROVIDER"] = "scripted"


def test_on_a_pipe_stdout_is_the_final_text_alone(cli):
    done = cli("run", "demo_plain", "hello")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Hello! I am the scripted model") and done.out.count("\n") == 1


def test_the_message_may_come_from_stdin(cli):
    assert cli("run", "demo_plain", "-", input="hello\n").out.startswith("Hello!")


def test_an_agent_may_be_a_file(cli, project):
    (project / "elsewhere").mkdir()
    Path(project / "graphs" / "demo_plain.json").rename(project / "elsewhere" / "mine.json")
    assert cli("run", "elsewhere/mine.json", "hello").out.startswith("Hello!")


def test_json_is_one_value_with_output_usage_and_thread(cli):
    result = cli("run", "demo_plain", "hello", "--json", "--thread", "t1").json
    assert result["status"] == "completed" and result["threadId"] == "t1"
    assert result["output"].startswith("Hello!") and result["usage"]["modelCalls"] == 1


def test_jsonl_is_every_event_in_order_without_gaps(cli):
    events = cli("run", "demo_plain", "hello", "--jsonl").lines
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["type"], events[-1]["type"]) == ("run.start", "run.complete")
    assert "content.delta" in {event["type"] for event in events}


def test_a_thread_goes_on_with_the_next_message(cli):
    cli("run", "demo_plain", "hello", "--thread", "t1")
    cli("run", "demo_plain", "and again", "--thread", "t1")
    messages = cli("threads", "state", "t1", "messages").json
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2


def test_without_a_terminal_an_approval_stops_with_4_and_the_command_that_answers(cli, steady, snapshot):
    done = cli("run", "demo_react", QUESTION)
    assert (done.code, done.out) == (4, "")
    assert steady(done.err) == snapshot
    command = next(line.split() for line in done.err.splitlines() if "inbox answer" in line)
    answered = cli(*command[1:])
    assert answered.code == 0 and "This is what `ls` gave" in answered.out


def test_approve_all_runs_to_the_end(cli):
    done = cli("run", "demo_react", QUESTION, "--approve", "all")
    assert done.code == 0 and "This is what `ls` gave" in done.out


def test_approve_deny_tells_the_model_and_exits_with_4(cli):
    done = cli("run", "demo_react", QUESTION, "--approve", "deny")
    assert done.code == 4 and "REJECTED" in done.out


def test_rules_decide_by_tool_and_arguments(cli, project):
    rules = [
        {"tool": "bash", "arguments": {"command": "ls|pwd"}, "decision": "approve"},
        {"decision": "deny", "reason": "no"},
    ]
    (project / "rules.json").write_text(json.dumps(rules))
    assert cli("run", "demo_react", "list the files", "--approve", "rules.json").code == 0
    denied = cli("run", "demo_react", "how full is the disk?", "--approve", "rules.json")
    assert denied.code == 4 and "no" in denied.out


def test_a_broken_rules_file_is_wrong_usage(cli, project):
    (project / "rules.json").write_text('[{"tool": "bash", "decision": "perhaps"}]')
    done = cli("run", "demo_react", QUESTION, "--approve", "rules.json")
    assert done.code == 2 and "rules.json" in done.err and "perhaps" in done.err


def test_a_used_up_budget_exits_with_5_and_says_how_to_go_on(cli):
    done = cli("run", "demo_plain", "hello", "--budget", "maxModelCalls=0", "--thread", "t1")
    assert done.code == 5 and "threads resume t1 --budget maxModelCalls=VALUE" in done.err
    more = cli("threads", "resume", "t1", "--budget", "maxModelCalls=1")
    assert more.code == 0 and more.out.startswith("Hello!")


def test_a_time_limit_is_a_limit(cli, held_model):
    held_model.hold(request=1)
    done = cli("run", "demo_plain", "hello", "--timeout", "0.1")
    assert done.code == 5 and "timeoutMs" in done.err


def test_a_server_that_can_not_be_reached_exits_with_3(cli, environment):
    environment |= {"LLM_BASE_URL": "http://127.0.0.1:9/v1", "LLM_MODEL_ID": "x", "LLM_MAX_RETRIES": "0"}
    done = cli("run", "demo_plain", "hello")
    assert done.code == 3 and "connection" in done.err and "threads resume" in done.err


def test_state_is_set_before_the_first_node(cli):
    done = cli("run", "demo_review", "graphs", "--state", "note=use fewer words", "--thread", "t1")
    assert done.code == 4
    assert "use fewer words" in cli("threads", "state", "t1", "draft").out


def test_state_that_does_not_fit_is_refused_before_a_run_begins(cli):
    done = cli("run", "demo_review", "graphs", "--state", "draft=5")
    assert done.code == 2 and "'draft' takes string" in done.err
    assert cli("run", "demo_review", "graphs", "--state", "nope=x").code == 2
    assert cli("threads", "list", "--json").json == []


def test_an_agent_that_works_on_a_message_is_not_run_without_one(cli):
    for message in ((), ("",), ("-",)):
        done = cli("run", "demo_plain", *message)
        assert done.code == 2 and "needs a message" in done.err and 'graphflow run demo_plain "MSG"' in done.err
    assert cli("threads", "list", "--json").json == []


def test_an_empty_thread_id_is_not_taken_for_none(cli):
    assert cli("run", "demo_plain", "hello", "--thread", "").code == 2


def test_nothing_that_is_logged_gets_between_the_result_and_its_reader(cli, project):
    cli("run", "demo_plain", "hello", "--thread", "t1")
    record = next((project / "checkpoints" / "chats").glob("t1*"))
    record.write_bytes(b"{ damaged\n" + record.read_bytes())
    done = cli.process("run", "demo_plain", "and again", "--thread", "t1", "--json")
    assert done.json["status"] == "completed" and done.err == ""


@pytest.mark.parametrize("message", [["-"], [os.fsdecode(b"caf\xe9")]])
def test_a_message_that_is_no_text_is_refused_before_a_run_begins(project, environment, message):
    for encoding in ("utf-8:strict", "utf-8:surrogateescape"):
        command = [sys.executable, "-m", "graphflow", "run", "demo_plain", *message]
        done = subprocess.run(
            command,
            cwd=project,
            env={**environment, "PYTHONIOENCODING": encoding},
            input=b"caf\xe9",
            capture_output=True,
            check=False,
        )
        assert done.returncode == 2 and b"not UTF-8 text" in done.stderr
    assert not (project / "checkpoints" / "threads.db").exists()


def test_a_terminal_without_the_answers_characters_gets_their_escapes(cli, environment):
    environment["PYTHONIOENCODING"] = "ascii"
    done = cli.process("run", "demo_plain", "北京")
    assert done.code == 0 and r"\u5317\u4eac" in done.out


def test_a_closed_output_is_no_failure(project: Path, environment: dict[str, str]):
    command = f"{sys.executable} -m graphflow run demo_plain hello >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], cwd=project, env=environment, check=False).returncode == 0


def test_an_unknown_agent_names_near_ones(cli):
    done = cli("run", "demo_reakt", "hello")
    assert done.code == 2 and "did you mean 'demo_react'" in done.err and "Traceback" not in done.err


def test_a_refused_agent_shows_all_its_errors(cli, project):
    (project / "graphs" / "broken.json").write_text('{"mode": "REACTT", "reakt": {}}')
    done = cli("run", "broken", "hello")
    assert done.code == 2 and "/mode" in done.err and "/reakt" in done.err
    assert cli("run", "demo_plain", "hello").code == 0


def test_new_input_never_drops_an_open_question(cli):
    cli("run", "demo_react", QUESTION, "--thread", "t1")
    done = cli("run", "demo_react", "something else", "--thread", "t1")
    assert done.code == 4 and "graphflow inbox answer" in done.err
    assert "pass --on-waiting cancel" in done.err and "onWaiting" not in done.err
    assert cli("run", "demo_react", "What time is it?", "--thread", "t1", "--on-waiting", "cancel").code == 0
    assert cli("run", "demo_react", "x", "--on-waiting", "drop").code == 2


def test_a_closed_pipe_ends_quietly(project: Path, environment: dict[str, str]):
    command = f"{sys.executable} -m graphflow run demo_plain hello --jsonl | head -1"
    done = subprocess.run(
        ["sh", "-c", command], cwd=project, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\n") == 1 and done.stderr == ""


def test_wrong_usage_exits_with_2(cli):
    assert cli("run", "demo_plain", "--frobnicate").code == 2
    assert cli("run", "demo_plain", "hello", "--budget", "maxSteps").code == 2
    assert cli("run", "demo_plain", "hello", "--budget", "maxHorses=1").code == 2
