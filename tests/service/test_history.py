"""What was shown live, what the history tells and what the chat record keeps are one text (spec 3.3, 5.1)."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphflow import Goto
from graphflow.events import Event, decode_event, event_dict
from graphflow.runtime.runs.event_ring import RunLog
from graphflow.service.application import Application
from graphflow.service.chats.chats import chat
from graphflow.service.requests import SubmitRequest
from graphflow.service.runs.submit import submit
from graphflow.settings import load_settings
from graphflow.testing.stream_grammar import StreamRules
from graphflow.tools.port import tool
from tests.service.clients import begin, query_of
from tests.service.conftest import MESSAGES

STEPS = ("speak", "whisper", "talk", "flaky", "ask", "look_up", "wink", "send", "stumble", "stop")
TURNS = [
    {"text": "I say this. ", "piece": 3},
    {"reasoning": "Let me see…", "text": "Then that. ", "piece": 4},
    {"reasoning": "Only thinking.", "piece": 2},
    {"text": "漢字 and 🎉 ", "piece": 1},
]
SPEAK = {
    "use": "model",
    "set": {"messages": "[out.message]"},
    "next": [{"if": "size(out.toolCalls) > 0", "to": "call"}, {"to": "pick"}],
}
WANDERER: dict[str, Any] = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {"messages": MESSAGES, "n": {"type": "integer", "default": 0}}},
    "budget": {"maxSteps": 60},
    "start": "pick",
    "nodes": {
        "pick": {"use": "node:pick", "next": {"choose": [*STEPS, "end"]}},
        "speak": SPEAK,
        "whisper": {**SPEAK, "with": {"stream": "hidden"}},
        "call": {"use": "tools", "set": {"messages": "out.messages"}, "next": "pick"},
        "talk": {"use": "node:talk", "next": "pick"},
        "flaky": {"use": "node:flaky", "retry": {"max": 2, "on": ["any"], "backoffMs": 0}, "next": "pick"},
        "ask": {"ask": {"message": "Well?", "schema": {"type": "string"}}, "next": "pick"},
        **{
            name: {"use": f"tool:{name}", "with": {"what": "it"}, "next": "pick"}
            for name in ("look_up", "wink", "send")
        },
        "stumble": {"use": "node:stumble", "next": "pick"},
        "stop": {"use": "node:stop", "next": "pick"},
    },
}
REACT = {
    "mode": "REACT",
    "providerKey": "auto",
    "tools": ["look_up", "wink", "send"],
    "approval": {"send": "REQUIRE_APPROVAL", "*": "AUTO"},
    "react": {"systemPrompt": "Work."},
}
PLAIN = {"mode": "PLAIN", "providerKey": "auto", "plain": {"systemPrompt": "Answer."}}


def _tools() -> list[Any]:
    schema = {"type": "object", "properties": {"what": {"type": "string"}}}

    @tool(effects="read", parameters=schema)
    def look_up(what: str) -> Any:
        """Looks it up."""
        from graphflow import ToolResult

        return ToolResult(data={"what": what}, sources=[{"sourceId": "s1", "title": "A book"}])

    @tool(parameters=schema)
    def send(what: str) -> str:
        """Sends it."""
        return f"sent {what}"

    @tool(parameters=schema)
    def wink(what: str) -> str:
        """Winks."""
        return "OK"

    return [look_up, send, dataclasses.replace(wink, kind="action", effects="none")]


class World:
    """An application whose wanderer takes the drawn steps, and everything that its clients were sent."""

    def __init__(self, folder: Path, steps: list[str], turns: list[dict[str, Any]]) -> None:
        import msgspec

        from graphflow.models.scripted.model import ScriptedModel
        from graphflow.models.scripted.script import Script

        (folder / "graphs").mkdir()
        for key, data in (("wanderer", WANDERER), ("react", REACT), ("plain", PLAIN)):
            (folder / "graphs" / f"{key}.json").write_bytes(msgspec.json.encode(data))
        self.steps = list(steps)
        self.sent: list[dict[str, Any]] = []
        script = msgspec.convert({"turns": turns}, Script)
        self.app = Application(
            load_settings(folder, environ={"GRAPHFLOW_TOOLS_HOLD_MS": "0"}),
            models=lambda provider, model: ScriptedModel(script),
            tools=_tools(),
        )
        for name in ("pick", "talk", "flaky", "stumble", "stop"):
            self.app.kinds.node(name, getattr(self, name))

    async def pick(self, state: Any, ctx: Any) -> Any:
        return Goto(self.steps.pop(0) if self.steps else "end")

    async def talk(self, state: Any, ctx: Any) -> None:
        await ctx.content("well ")
        await ctx.reasoning("hm")
        await ctx.content("now ")

    async def flaky(self, state: Any, ctx: Any) -> None:
        await ctx.content(f"try {ctx.attempt} ")
        if ctx.attempt == 1:
            raise ValueError("not yet")

    async def stumble(self, state: Any, ctx: Any) -> None:
        await ctx.content("oh ")
        raise ValueError("no")

    async def stop(self, state: Any, ctx: Any) -> None:
        await ctx.content("st")
        self.app.runs.by_thread["c"].executor.cancel()
        await ctx.content("op ")
        await asyncio.sleep(0)

    async def run(self, agent: str) -> None:
        """A run to its end; whatever it waits for is answered."""
        live = (await begin(self.app, query_of(message="Go", agent_key=agent, chat_id="c"))).run
        await live.over.wait()
        while rows := await self.app.store.open_interrupts(thread_id="c"):
            payload = {"decision": "approve"} if rows[0].kind == "approval" else "Fine."
            asked = SubmitRequest(chat_id="c", run_id=live.run_id, asked=rows[0].interrupt_id, payload=payload)
            assert (await submit(self.app, asked)).accepted
            if (again := self.app.runs.by_thread.get("c")) is not None:
                await again.over.wait()


def shown(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client has seen: texts, calls with their input, and results."""
    texts: dict[str, str] = defaultdict(str)
    calls: dict[str, str] = {}
    results: dict[str, Any] = {}
    for event in events:
        kind, _, part = event["type"].partition(".")
        key = event.get(f"{kind}Id", "")
        if kind in ("content", "reasoning") and part in ("delta", "snapshot"):
            texts[kind] += event["delta" if part == "delta" else "text"]
        elif kind in ("tool", "action") and part in ("start", "args", "snapshot"):
            calls[key] = calls.get(key, "") + event.get("delta" if part == "args" else "arguments", "")
        elif kind in ("tool", "action") and part == "result":
            assert key not in results, "a call has one result"
            results[key] = event["result"]
    return {"texts": dict(texts), "calls": calls, "results": results}


def recorded(lines: list[dict[str, Any]], block_ids: set[str]) -> dict[str, Any]:
    """The same of the chat record, without what was never shown."""
    texts: dict[str, str] = defaultdict(str)
    calls: dict[str, str] = {}
    results: dict[str, Any] = {}
    for message in (message for line in lines for message in line["messages"]):
        key = message.get("_toolId") or message.get("_actionId")
        for kind, field, name in (
            ("content", "content", "_contentId"),
            ("reasoning", "reasoning_content", "_reasoningId"),
        ):
            if message.get(name) in block_ids:
                texts[kind] += message[field][0]["text"]
        for call in message.get("tool_calls", ()):
            calls[key] = call["function"]["arguments"]
        if message["role"] == "tool":
            results[key] = message["content"][0]["text"]
    return {"texts": dict(texts), "calls": calls, "results": results}


def calling(*names: str) -> dict[str, Any]:
    return {"text": "One moment. ", "tool_calls": [{"name": name, "arguments": {"what": "it"}} for name in names]}


@given(
    steps=st.lists(st.sampled_from(STEPS), max_size=6),
    turns=st.lists(st.sampled_from([*TURNS, calling("look_up"), calling("wink"), calling("send", "look_up")]), min_size=1, max_size=4),
    agents=st.lists(st.sampled_from(["wanderer", "wanderer", "react", "plain"]), min_size=1, max_size=3),
)  # fmt: skip
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_shown_history_and_record_are_one_text(
    steps: list[str], turns: list[dict[str, Any]], agents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [{**turn, "tool_calls": [{**c, "id": f"call_{n}_{i}"} for i, c in enumerate(turn.get("tool_calls", ()))]} for n, turn in enumerate(turns)]  # fmt: skip
    turns.append({"text": "The end."})

    async def play() -> None:
        with tempfile.TemporaryDirectory() as folder, monkeypatch.context() as patched:
            world = World(Path(folder), steps, turns)
            patched.setattr(RunLog, "pass_on", telling(world.sent))
            async with world.app:
                for agent in agents:
                    await world.run(agent)
                told = (await chat(world.app, "c"))["events"]
                lines = (await world.app.chat_record.read("c")).runs
            check_history(told, world.sent, lines)

    asyncio.run(play())


def telling(sent: list[dict[str, Any]]) -> Any:
    pass_on = RunLog.pass_on

    def told(self: RunLog, event: Event) -> None:
        pass_on(self, event)
        sent.append(event_dict(event))

    return told


def check_history(told: list[dict[str, Any]], sent: list[dict[str, Any]], lines: list[dict[str, Any]]) -> None:
    block_ids = {str(e[f]) for e in sent for f in ("contentId", "reasoningId") if f in e}
    live = shown(sent)
    assert shown(told) == live
    in_record = recorded(lines, block_ids)
    assert in_record["texts"] == live["texts"]
    # What a run has left without a result, the next one tells its model; that was never shown.
    assert {key: text for key, text in in_record["results"].items() if key in live["results"]} == live["results"]
    assert in_record["calls"] == live["calls"]
    assert [e["type"] for e in told].count("chat.start") == 1
    check_runs(told, lines)


def check_runs(told: list[dict[str, Any]], lines: list[dict[str, Any]]) -> None:
    """Each run keeps the grammar and ends with its own terminal; the graph family is left out but for run.waiting."""
    runs: list[list[dict[str, Any]]] = []
    for event in told:
        if event["type"] == "request.query":
            runs.append([])
        runs[-1].append(event)
    assert len(runs) == len(lines)
    ends = {"failed": "run.error", "cancelled": "run.cancel", "waiting": "run.waiting", None: "run.complete"}
    for run, line in zip(runs, lines, strict=True):
        assert run[-1]["type"] == ends[line.get("_status")]
        if run[-1]["type"] == "run.complete":
            assert run[-1]["finishReason"] == "end_turn"
        families = {e["type"].partition(".")[0] for e in run}
        assert not families & {"node", "checkpoint", "interrupt", "stream"}
        assert not any(e["type"].endswith((".start", ".delta", ".args", ".end")) for e in run if e["type"] not in ("run.start", "chat.start"))  # fmt: skip
        rules = StreamRules(whole=False)
        for event in run:
            rules.take(decode_event(event))
        assert rules.ended


async def test_a_chat_that_waits_ends_its_history_with_run_waiting(tmp_path: Path) -> None:
    world = World(tmp_path, ["talk", "ask"], TURNS)
    async with world.app:
        live = (await begin(world.app, query_of(message="Go", agent_key="wanderer", chat_id="c"))).run
        await live.over.wait()
        told = (await chat(world.app, "c"))["events"]
    assert [event["type"] for event in told] == [
        "request.query", "chat.start", "run.start", "content.snapshot", "reasoning.snapshot", "content.snapshot",
        "run.waiting",
    ]  # fmt: skip


async def test_sources_come_after_the_result_that_names_them(tmp_path: Path) -> None:
    world = World(tmp_path, ["look_up"], TURNS)
    async with world.app:
        await world.run("wanderer")
        told = (await chat(world.app, "c"))["events"]
    types = [event["type"] for event in told]
    assert types[3:6] == ["tool.snapshot", "tool.result", "source.snapshot"]
    assert (told[5]["sourceId"], told[5]["title"]) == ("s1", "A book")


async def test_references_of_all_runs_are_merged_and_the_first_of_an_id_wins(tmp_path: Path) -> None:
    world = World(tmp_path, [], TURNS)
    given: list[list[dict[str, Any]]] = [[{"id": "a", "name": "one"}], [], [{"id": "a", "name": "two"}, {"id": "b"}]]
    async with world.app:
        before = None
        for references in given:
            request = query_of(message="Go", agent_key="plain", chat_id="c", references=references)
            await (await begin(world.app, request)).run.over.wait()
            before = before or (await chat(world.app, "c"))["references"]
        data = await chat(world.app, "c")
    assert before == [{"id": "a", "name": "one"}]
    assert data["references"] == [{"id": "a", "name": "one"}, {"id": "b"}]


async def test_references_are_there_when_there_are_none(tmp_path: Path) -> None:
    world = World(tmp_path, [], TURNS)
    async with world.app:
        await world.run("plain")
        data = await chat(world.app, "c")
    assert list(data) == ["chatId", "chatName", "rawMessages", "events", "references"]
    assert data["references"] == []
