"""A process is killed in the middle, or two want one thread: nothing finished runs twice, nobody waits in vain."""

from __future__ import annotations

import signal

import msgspec
import pytest

from graphflow.cli.terminal.exit_codes import next_step
from graphflow.errors import ThreadWaiting
from graphflow.graph.core.machine import Frame, Machine, Operation
from graphflow.runtime.runs.preconditions import check_outcomes

QUESTION = "What time is it in Beijing? And list the files"


def test_after_kill_9_resume_goes_on_from_the_last_finished_node(cli, held_model):
    held_model.hold(request=2)
    run = cli.start("run", "demo_react", QUESTION, "--thread", "t1", "--approve", "all", "--jsonl")
    before = events_until(run, lambda event: event["type"] == "checkpoint.create" and event["step"] == 2)
    run.kill()
    run.communicate()
    held_model.release()
    assert [row["threadId"] for row in cli("threads", "list", "--status", "stopped", "--json").json] == ["t1"]
    assert cli("threads", "list", "--status", "running", "--json").json == []

    finished = {event["nodeRunId"] for event in before if event["type"] == "node.end"}
    done = cli.process("threads", "resume", "t1", "--approve", "all", "--jsonl")
    assert done.code == 0, done.err
    after = done.lines
    assert "run.resume" in {event["type"] for event in after} and after[-1]["type"] == "run.complete"
    assert len(finished) == 2
    assert not finished & {event["nodeRunId"] for event in after if event["type"] == "node.start"}
    messages = cli("threads", "state", "t1", "messages").json
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def test_a_thread_that_another_process_drives_is_busy_and_exits_with_3(cli, held_model):
    held_model.hold(request=1, delta=8)
    run = cli.start("run", "demo_plain", "hello", "--thread", "t1", "--jsonl")
    events_until(run, lambda event: event["type"] == "content.delta")
    busy = cli("run", "demo_plain", "and me?", "--thread", "t1")
    assert busy.code == 3 and "try again in" in busy.err
    assert cli("threads", "resume", "t1").code == 3
    assert cli("threads", "rm", "t1", "--yes").code == 3
    assert cli("threads", "show", "t1", "--json").json["status"] == "running"
    held_model.release()
    out, _ = run.communicate()
    assert run.returncode == 0 and "run.complete" in out
    assert cli("run", "demo_plain", "and me?", "--thread", "t1").code == 0


def test_ctrl_c_stops_the_run_and_exits_with_130(cli, held_model):
    held_model.hold(request=1, delta=8)
    run = cli.start("run", "demo_plain", "hello", "--thread", "t1", "--jsonl")
    events_until(run, lambda event: event["type"] == "content.delta")
    run.send_signal(signal.SIGINT)
    _, err = run.communicate()
    assert run.returncode == 130 and "threads resume t1" in err and "Traceback" not in err
    shown = cli("threads", "show", "t1", "--json").json
    assert shown["status"] == "stopped" and shown["checkpoints"][-1]["source"] == "cancel"
    held_model.release()
    assert cli("threads", "resume", "t1").code == 0


def events_until(run, wanted):
    """The events that a running process printed, up to the first that is wanted."""
    events = []
    for line in run.stdout:
        events.append(msgspec.json.decode(line))
        if wanted(events[-1]):
            return events
    raise AssertionError(f"the process ended first: {run.stderr.read()}")


def test_of_five_processes_on_one_thread_each_succeeds_or_is_told_that_it_is_busy(cli):
    runs = [cli.start("run", "demo_plain", f"message {number}", "--thread", "t1") for number in range(5)]
    codes = []
    for number, run in enumerate(runs):
        out, err = run.communicate()
        codes.append(run.returncode)
        assert (f"message {number}" in out) if run.returncode == 0 else ("busy" in err or "another run" in err), err
    assert set(codes) <= {0, 3} and 0 in codes
    messages = cli("threads", "state", "t1", "messages").json
    said = [message["content"] for message in messages if message["role"] == "user"]
    assert sorted(said) == [f"message {number}" for number, code in enumerate(codes) if code == 0]


def test_the_hint_after_a_crash_inside_a_write_names_the_command_that_asks():
    frame = Frame(number=0, node="pay", operations={"fee": Operation("once", "d", effects="write", state="intent")})
    with pytest.raises(ThreadWaiting) as refused:
        check_outcomes("t1", Machine(status="running", frames={0: frame}))
    assert (
        next_step("thread_waiting", refused.value.detail, "t1")
        == "`graphflow threads resume t1` asks what became of it"
    )
    assert "inbox answer 7" in (next_step("thread_waiting", {"interrupts": [{"interruptId": "7"}]}, "t1") or "")
