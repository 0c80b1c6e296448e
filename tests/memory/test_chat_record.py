"""The chat record as runs leave it: real agents, a real store, real files (spec 5.1, Chat Memory V2)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from graphflow import load_graph
from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.messages import AIMessage, HumanMessage, SystemMessage
from graphflow.models.openai.request import wire_messages
from graphflow.models.replay.replay import Replay
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.service.application import Application
from graphflow.service.requests import SubmitRequest
from graphflow.service.runs.submit import submit
from graphflow.service.threads import cancel, delete
from tests.memory.conftest import CALL, SEND, TWO_CALLS, WatchedModel, lines, role_and_text
from tests.service.clients import begin, query_of

Opened = Callable[..., Awaitable[Application]]


async def ask(app: Application, agent: str, message: str = "hi", chat_id: str = "c", **options: Any) -> LiveRun:
    """A served run to the end of its life; a question ends it at once."""
    begun = await begin(app, query_of(message=message, agent_key=agent, chat_id=chat_id, **options), hold_ms=0)
    await begun.run.over.wait()
    return begun.run


async def answer(app: Application, payload: Any, chat_id: str = "c") -> None:
    """Answers the one question of a waiting chat, and waits for what follows."""
    (waiting,) = await app.store.open_interrupts(thread_id=chat_id)
    given = SubmitRequest(chat_id=chat_id, run_id=waiting.run_id, asked=waiting.interrupt_id, payload=payload)
    assert (await submit(app, given)).accepted
    if (live := app.runs.by_thread.get(chat_id)) is not None:
        await live.over.wait()


def forms(line: dict[str, Any]) -> list[tuple[str, str]]:
    return [role_and_text(message) for message in line["messages"]]


# --- one line ------------------------------------------------------------------------------------


async def test_a_run_is_one_line_with_the_keys_of_v2(open_application: Opened) -> None:
    app = await open_application()
    given: dict[str, Any] = {
        "request_id": "r-1",
        "references": [{"id": "ref", "name": "a.txt"}],
        "params": {"p": 1},
        "scene": {"url": "https://x.test", "title": "X"},
        "stream": True,
    }
    run = await ask(app, "plain", "hello there", **given)
    (line,) = lines(app, "c")
    assert list(line) == ["chatId", "runId", "transactionId", "updatedAt", "query", "system", "messages"]
    assert (line["chatId"], line["runId"], line["transactionId"]) == ("c", run.run_id, run.run_id)
    assert line["query"] == {
        "requestId": "r-1",
        "chatId": "c",
        "agentKey": "plain",
        "role": "user",
        "message": "hello there",
        "references": given["references"],
        "params": {"p": 1},
        "scene": given["scene"],
        "stream": True,
    }
    assert line["system"] == {
        "model": "scripted",
        "messages": [{"role": "system", "content": "Answer."}],
        "tools": [],
        "stream": True,
    }
    user, reply = line["messages"]
    assert user == {"role": "user", "content": [{"type": "text", "text": "hello there"}], "ts": user["ts"]}
    assert reply["content"] == [{"type": "text", "text": "Hello."}]
    usage = reply["_usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0
    assert user["ts"] <= reply["ts"] <= line["updatedAt"]


async def test_user_call_result_and_answer_are_four_messages(open_application: Opened) -> None:
    app = await open_application(CALL, {"text": "A graph is a thing."})
    run = await ask(app, "react", "What is a graph?")
    (line,) = lines(app, "c")
    assert forms(line) == [
        ("user", "What is a graph?"),
        ("call", 'look_up {"word":"graph"}'),
        ("tool", "graph: a thing"),
        ("assistant", "A graph is a thing."),
    ]
    _, call, result, reply = line["messages"]
    assert call["tool_calls"][0]["id"] == call["_toolId"] == result["_toolId"] == result["tool_call_id"] == "call_1"
    assert result["name"] == "look_up"
    log = await app.graph("react").thread("c").events(run.run_id)
    shown = [event for event, _ in log if event.type == "content.snapshot"]
    assert [reply["_contentId"]] == [event.content_id for event in shown]  # type: ignore[attr-defined]


async def test_each_call_is_followed_by_its_result(open_application: Opened) -> None:
    """As many calls a turn holds, so many pairs: a reader of OpenAI messages finds every call answered."""
    agent = {
        "graphflow": "1",
        "state": {
            "type": "object",
            "properties": {"messages": {"type": "array", "default": [], "x-reducer": "messages"}},
        },
        "tools": ["look_up"],
        "start": "ask",
        "nodes": {
            "ask": {"use": "model", "set": {"messages": "[out.message]"}, "next": "tools"},
            "tools": {"use": "tools", "set": {"messages": "out.messages"}, "next": "end"},
        },
    }
    app = await open_application(TWO_CALLS)
    await app.compiled(app.load(agent)).run("both", "c")
    (line,) = lines(app, "c")
    assert forms(line) == [
        ("user", "both"),
        ("reasoning", "Two at once."),
        ("assistant", "I look."),
        ("call", 'look_up {"word":"a"}'),
        ("tool", "a: a thing"),
        ("call", 'look_up {"word":"b"}'),
        ("tool", "b: a thing"),
    ]
    assert [("_usage" in message) for message in line["messages"]] == [False] * 5 + [True, False]


async def test_tools_on_the_white_list_are_recorded_as_actions(open_application: Opened) -> None:
    app = await open_application(CALL, {"text": "ok"}, environ={"MEMORY_CHAT_ACTION_TOOLS": "look_up"})
    await ask(app, "react")
    _, call, result, _ = lines(app, "c")[0]["messages"]
    assert call["_actionId"] == result["_actionId"] == "call_1"
    assert "_toolId" not in call and "_toolId" not in result


async def test_what_was_never_shown_is_recorded_with_an_id_of_its_own(open_application: Opened) -> None:
    app = await open_application({"reasoning": "psst", "text": "secret"})
    await ask(app, "quiet")
    (line,) = lines(app, "c")
    assert forms(line) == [("user", "hi"), ("reasoning", "psst"), ("assistant", "secret")]
    _, reasoning, content = line["messages"]
    assert reasoning["_reasoningId"].startswith("reasoning_") and content["_contentId"].startswith("content_")
    assert "_usage" in content and "_usage" not in reasoning


async def test_what_was_shown_and_joined_no_message_is_recorded_too(open_application: Opened) -> None:
    app = await open_application()
    await ask(app, "mute", "work")
    assert forms(lines(app, "c")[0]) == [("user", "work"), ("reasoning", "hm"), ("assistant", "worked")]


async def test_what_a_retried_attempt_said_is_recorded_as_part_of_what_failed(open_application: Opened) -> None:
    """It was shown, so it is kept; the thread's messages, and so the model, have the attempt that went well."""
    app = await open_application({"text": "It."})
    await ask(app, "flaky")
    (line,) = lines(app, "c")
    assert forms(line) == [("user", "hi"), ("assistant", "attempt 1"), ("assistant", "attempt 2"), ("assistant", "It.")]
    assert [message.get("_status") for message in line["messages"]] == [None, "error", None, None]


async def test_a_run_without_a_request_has_the_query_of_its_input(open_application: Opened) -> None:
    """As the command line runs it; the text is long enough to be stored by reference."""
    app = await open_application()
    await app.graph("plain").run({"query": "long " * 40, "params": {"a": 1}}, "c")
    (line,) = lines(app, "c")
    assert line["query"] == {
        "chatId": "c",
        "agentKey": "plain",
        "role": "user",
        "message": "long " * 40,
        "params": {"a": 1},
    }


async def test_system_is_written_with_the_first_run_and_when_it_changed(
    open_application: Opened, tmp_path: Path
) -> None:
    app = await open_application()
    await ask(app, "plain")
    await ask(app, "plain")
    changed = {"mode": "PLAIN", "providerKey": "auto", "plain": {"systemPrompt": "Answer in verse."}}
    (tmp_path / "graphs" / "plain.json").write_text(json.dumps(changed), encoding="utf-8")
    app.agents.reload()
    await ask(app, "plain")
    await ask(app, "plain")
    said = [line.get("system", {}).get("messages") for line in lines(app, "c")]
    assert said == [
        [{"role": "system", "content": "Answer."}],
        None,
        [{"role": "system", "content": "Answer in verse."}],
        None,
    ]


# --- how runs end --------------------------------------------------------------------------------


async def test_a_failed_run_is_recorded_as_failed(open_application: Opened) -> None:
    app = await open_application()
    await ask(app, "broken")
    (line,) = lines(app, "c")
    assert (line["_status"], forms(line)) == ("failed", [("user", "hi")])


async def test_a_cancelled_run_is_recorded_with_what_it_had_said(open_application: Opened) -> None:
    app = await open_application({"text": "Once upon a time", "piece": 5, "hang": True})
    stream = app.graph("plain").stream({"query": "tell"}, "c")
    async with aclosing(stream):
        async for event in stream:
            if event.type == "content.delta":
                break
    (line,) = lines(app, "c")
    assert line["_status"] == "cancelled"
    assert line["messages"][-1]["_status"] == "cancelled"
    assert "Once upon a time".startswith(line["messages"][-1]["content"][0]["text"])


@pytest.mark.parametrize("again", [False, True], ids=["the same process", "after a restart"])
async def test_a_waiting_run_s_line_is_replaced_by_its_continuation_s(open_application: Opened, again: bool) -> None:
    script = (SEND, {"text": "Sent."})
    app = await open_application(*script)
    await ask(app, "react", "before", chat_id="other")
    run = await ask(app, "react", "send it")
    (line,) = lines(app, "c")
    assert (line["runId"], line["_status"]) == (run.run_id, "waiting")
    assert forms(line) == [("user", "send it"), ("call", 'send {"text":"hello"}')]
    if again:
        await app.aclose()
        app = await open_application(*script)
    await answer(app, {"decision": "approve"})
    (line,) = lines(app, "c")
    assert line["runId"] == run.run_id and "_status" not in line and "system" in line
    assert forms(line)[2:] == [("tool", "sent"), ("assistant", "Sent.")]


async def test_a_run_that_waits_again_keeps_one_line(open_application: Opened) -> None:
    app = await open_application(
        SEND, {"tool_calls": [{**SEND["tool_calls"][0], "id": "call_t"}]}, {"text": "Both sent."}
    )
    await ask(app, "react")
    await answer(app, {"decision": "approve"})
    (line,) = lines(app, "c")
    assert line["_status"] == "waiting"
    await answer(app, {"decision": "reject", "reason": "once is enough"})
    (line,) = lines(app, "c")
    assert "_status" not in line and len(line["messages"]) == 6


async def test_a_waiting_run_that_is_cancelled_is_recorded_as_cancelled(open_application: Opened) -> None:
    app = await open_application()
    await ask(app, "ask")
    assert await cancel(app, "c")
    assert [line["_status"] for line in lines(app, "c")] == ["cancelled"]


async def test_new_input_that_closes_the_question_leaves_no_line_waiting(open_application: Opened) -> None:
    app = await open_application(SEND, {"text": "Never mind."})
    await ask(app, "react", "send")
    await ask(app, "react", "stop", on_waiting="cancel")
    first, second = lines(app, "c")
    assert (first["_status"], second.get("_status")) == ("cancelled", None)
    assert forms(second)[0][0] == "tool", "the open call gets its result when the next run begins"


async def test_a_served_run_s_line_is_there_when_its_log_ends(open_application: Opened) -> None:
    app = await open_application()
    begun = await begin(app, query_of(message="hi", agent_key="plain", chat_id="c"))
    assert begun.run.log is not None
    async for _ in begun.run.log.follow(0):
        pass
    assert len(lines(app, "c")) == 1


async def test_a_record_that_can_t_be_written_fails_no_run(
    open_application: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    app = await open_application()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "chats").write_text("a file where the folder should be", encoding="utf-8")
    result = await app.graph("plain").run("hi", "c")
    assert result.status == "completed"
    assert "a listener failed at the end of a run" in caplog.text
    assert capsys.readouterr().out == "", "stdout is the program's own"


async def test_deleting_a_thread_deletes_its_record(open_application: Opened) -> None:
    app = await open_application()
    await ask(app, "plain")
    await ask(app, "plain", chat_id="d")
    await delete(app, "c")
    assert [path.name for path in app.settings.memory.chat_dir.iterdir()] == ["d.json"]


async def test_a_library_s_graphs_leave_no_record_and_have_no_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[list[Any]]
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = {"mode": "PLAIN", "plain": {"systemPrompt": "Answer."}}
    model = WatchedModel({"turns": [], "otherwise": {"text": "Hello."}}, seen)
    graph = load_graph(agent, checkpointer=MemoryCheckpointer(), model=model)
    for _ in range(25):
        await graph.run("hi", "c")
    messages = (await graph.thread("c").state()).values["messages"]
    assert len(messages) == 50 and len(seen[-1]) == 50, "the system prompt and all that was said"
    assert list(tmp_path.iterdir()) == []


# --- from the store ------------------------------------------------------------------------------


async def test_a_rebuilt_record_is_byte_for_byte_what_was_written(open_application: Opened) -> None:
    app = await open_application(CALL, {"reasoning": "so", "text": "Done."}, SEND, {"text": "Sent."}, SEND)
    await ask(app, "react", "look " * 30, references=[{"id": "1"}], params={"a": [1]})
    await ask(app, "react", "send")
    await answer(app, {"decision": "approve"})
    await app.graph("react").run({"query": "again"}, "c")
    await ask(app, "react", "no", on_waiting="cancel")
    path = app.chat_record.files.path("c")
    written = path.read_bytes()
    assert written.count(b"\n") == 4
    path.unlink()
    assert await app.chat_record.rebuild("c") == 4
    assert path.read_bytes() == written
    assert await app.chat_record.rebuild("c") == 4
    assert path.read_bytes() == written


async def test_a_rebuilt_record_has_the_runs_of_every_branch_and_a_fork_only_its_own(open_application: Opened) -> None:
    app = await open_application()
    first = await ask(app, "plain", "one")
    second = await ask(app, "plain", "two")
    thread = app.graph("plain").thread("c")
    start = next(point for point in await thread.history() if point.run_id == first.run_id)
    fork = await thread.fork(start.id, thread_id="forked")
    await thread.rewind(start.id)
    third = await ask(app, "plain", "three")
    fourth = await ask(app, "plain", "four", chat_id=fork.id)
    for chat_id, runs in (("c", [first, second, third]), ("forked", [fourth])):
        path = app.chat_record.files.path(chat_id)
        written = path.read_bytes()
        assert [line["runId"] for line in lines(app, chat_id)] == [run.run_id for run in runs]
        path.unlink()
        await app.chat_record.rebuild(chat_id)
        assert path.read_bytes() == written


async def test_a_damaged_record_is_whole_again_after_a_rebuild_and_keeps_what_the_model_was_told_then(
    open_application: Opened, tmp_path: Path
) -> None:
    app = await open_application()
    await ask(app, "plain", "one")
    changed = {"mode": "PLAIN", "providerKey": "auto", "plain": {"systemPrompt": "Anew."}}
    (tmp_path / "graphs" / "plain.json").write_text(json.dumps(changed), encoding="utf-8")
    app.agents.reload()
    await ask(app, "plain", "two")
    path = app.chat_record.files.path("c")
    written = path.read_bytes()
    path.write_bytes(written[:-9])
    assert len((await app.chat_record.read("c")).damaged) == 1
    await app.chat_record.rebuild("c")
    assert path.read_bytes() == written
    assert (await app.chat_record.read("c")).damaged == []


# --- what the model is shown ---------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["plain", "flaky"], ids=["its default messages", "${state.messages}"])
async def test_the_model_is_shown_the_last_k_runs_and_the_thread_keeps_all(
    open_application: Opened, seen: list[list[Any]], agent: str
) -> None:
    app = await open_application({"text": "Yes."}, environ={"MEMORY_CHAT_K": "2"})
    for number in range(4):
        await ask(app, agent, f"question {number}")
    asked = [m.content for m in seen[-1] if isinstance(m, HumanMessage) and m.text.startswith("question")]
    assert asked == ["question 2", "question 3"]
    values = (await app.graph(agent).thread("c").state()).values
    assert sum(isinstance(message, HumanMessage) for message in values["messages"]) == 4
    assert len(lines(app, "c")) == 4, "the file is never trimmed"


async def test_the_reasoning_of_an_earlier_run_is_never_sent_back(
    open_application: Opened, seen: list[list[Any]]
) -> None:
    app = await open_application({"reasoning": "hidden thought", "text": "One."}, {"text": "Two."})
    await ask(app, "plain", "first")
    await ask(app, "plain", "second")
    assert [type(message) for message in seen[-1]] == [SystemMessage, HumanMessage, AIMessage, HumanMessage]
    for replay in (Replay("scripted", "scripted"), Replay("deepseek", "deepseek-chat")):
        assert "hidden thought" not in json.dumps(wire_messages(replay, seen[-1]))
