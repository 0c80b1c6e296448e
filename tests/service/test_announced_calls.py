"""Each call is told once, its start before its result, whatever lies between: a wait, another process, a crash (spec 3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import StreamBroken
from graphflow.events import Event, event_dict
from graphflow.graph.engine.announced_calls import AnnouncedCalls
from graphflow.graph.engine.blocks import Blocks
from graphflow.service.application import Application
from graphflow.service.requests import SubmitRequest
from graphflow.service.run_log import log_of_run
from graphflow.service.runs.submit import submit
from graphflow.tools.port import tool
from tests.service.clients import begin, query_of
from tests.service.conftest import copy_store

Opened = Callable[..., Awaitable[Application]]
CALLS = [
    {"id": "call_1", "name": "city_datetime", "arguments": {"city": "Berlin"}},
    {"id": "call_2", "name": "bash", "arguments": {"command": "ls"}},
    {"id": "call_3", "name": "city_datetime", "arguments": {"city": "Paris"}},
]
TWO_TURNS = {"turns": [{"tool_calls": CALLS}, {"text": "Done."}]}


async def told(app: Application, run_id: str) -> list[tuple[str, str]]:
    """What the run's log says of calls."""
    events = [event_dict(event) for event, _ in await log_of_run(app, "c", run_id)]
    return [(e["type"], e["toolId"]) for e in events if e["type"] in ("tool.snapshot", "tool.result")]


EACH_ONCE = [("tool.snapshot", f"call_{n}") for n in (1, 2, 3)] + [("tool.result", f"call_{n}") for n in (1, 2, 3)]


async def test_results_from_before_a_wait_are_not_told_again_by_the_process_that_goes_on(
    open_application: Opened,
) -> None:
    approval = {"bash": "REQUIRE_APPROVAL", "*": "AUTO"}
    agent = {"graphflow": "1", "tools": ["city_datetime", "bash"], "approval": approval, **CALLER}
    app = await open_application(script=TWO_TURNS)
    write(app, agent)
    request = query_of(message="go", agent_key="caller", chat_id="c")
    run = (await begin(app, request, hold_ms=0)).run
    await run.over.wait()
    (waiting,) = await app.store.open_interrupts(thread_id="c")
    other = await open_application(script=TWO_TURNS)
    payload = {"decision": "approve"}
    given = SubmitRequest(chat_id="c", run_id=run.run_id, asked=waiting.interrupt_id, payload=payload)
    assert (await submit(other, given)).accepted
    if (live := other.runs.by_thread.get("c")) is not None:
        await live.over.wait()
    assert await told(other, run.run_id) == EACH_ONCE


async def test_results_from_before_a_crash_are_not_told_again(open_application: Opened, tmp_path: Path) -> None:
    """The process dies while the second of two calls runs: the first one's result is on record, and in the log."""
    reached, held = asyncio.Event(), asyncio.Event()

    @tool(effects="read")
    async def slow(city: str) -> str:
        """Takes its time."""
        reached.set()
        await held.wait()
        return "late"

    @tool(effects="write")
    async def mark(city: str) -> str:
        """Marks a city."""
        return "marked"

    calls = [{"id": f"call_{n}", "name": name, "arguments": {"city": "X"}} for n, name in ((1, "mark"), (2, "mark"), (3, "slow"))]  # fmt: skip
    script = {"turns": [{"tool_calls": calls}, {"text": "Done."}]}
    agent = {"graphflow": "1", "tools": ["mark", "slow"], **CALLER}
    app = await open_application(script=script, tools=(slow, mark))
    write(app, agent)
    run = (await begin(app, query_of(message="go", agent_key="caller", chat_id="c"))).run
    await reached.wait()
    assert run.journal is not None
    await run.journal.flush()
    (tmp_path / "copy").mkdir()
    copy_store(app, tmp_path / "copy")
    held.set()
    await run.over.wait()
    other = await open_application(tmp_path / "copy", script=script, tools=(slow, mark))
    write(other, agent)
    resumed = await (await other.graph_of_thread("c")).resume("c")
    assert resumed.status == "completed"
    assert await told(other, run.run_id) == EACH_ONCE


CALLER: dict[str, Any] = {
    "state": {
        "type": "object",
        "properties": {"messages": {"type": "array", "default": [], "x-reducer": "messages"}},
    },
    "start": "think",
    "nodes": {
        "think": {"use": "model", "set": {"messages": "[out.message]"}, "next": "act"},
        "act": {"use": "tools", "with": {"parallel": False}, "set": {"messages": "out.messages"}, "next": "end"},
    },
}


def write(app: Application, agent: dict[str, Any]) -> None:
    import json

    (app.settings.agents.dir / "caller.json").write_text(json.dumps(agent), encoding="utf-8")
    app.agents.reload()


# --- the blocks themselves -------------------------------------------------------------------------


def blocks_of(announced_calls: AnnouncedCalls) -> tuple[Blocks, list[str]]:
    sent: list[str] = []

    def emit(event: Event) -> None:
        sent.append(event.type)

    return Blocks(emit, lambda end, _snapshot, _first: emit(end), lambda kind: kind, announced_calls, "r", "1.1"), sent


def test_a_call_that_readers_know_is_not_opened_again() -> None:
    blocks, sent = blocks_of(AnnouncedCalls(complete=True))
    for _ in range(2):
        blocks.call_start("t", "look")
        blocks.call_args("t", "{}")
        blocks.call_end("t")
    assert sent == ["tool.start", "tool.args", "tool.end"]


def test_arguments_of_a_call_that_has_not_begun_are_refused() -> None:
    blocks, sent = blocks_of(AnnouncedCalls(complete=True))
    with pytest.raises(StreamBroken, match="has not begun"):
        blocks.call_args("t", "{}")
    assert sent == []


def test_input_of_an_open_call_closes_the_text_that_has_begun_since() -> None:
    blocks, sent = blocks_of(AnnouncedCalls(complete=True))
    blocks.call_start("t", "look")
    blocks.content("by the way")
    blocks.call_args("t", "{}")
    assert sent == ["tool.start", "content.start", "content.delta", "content.end", "tool.args"]


def test_a_result_closes_its_call_first_and_comes_once() -> None:
    blocks, sent = blocks_of(AnnouncedCalls(complete=True))
    blocks.call_start("t", "look")
    blocks.tool_result("t", "ok")
    blocks.tool_result("t", "ok")
    assert sent == ["tool.start", "tool.end", "tool.result"]


def test_a_result_of_a_call_that_nobody_streamed_brings_its_start() -> None:
    blocks, sent = blocks_of(AnnouncedCalls(complete=True))
    blocks.action_result("a", {"x": 1}, "OK")
    assert sent == ["action.start", "action.end", "action.param", "action.result"]
