"""Plans and teams after a crash: whatever event a process died at, the log ends as that of a run that nobody killed (E1)."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import GraphflowError
from graphflow.events import event_dict
from graphflow.runtime.run_request import RunRequest
from graphflow.service.application import Application
from graphflow.service.runs.event_stream import follow, run_events
from graphflow.testing.stream_grammar import StreamRules
from tests.launching import resume
from tests.service.clients import Client, Events, begin, fold, query_of
from tests.service.conftest import at_event, copy_store, make_application

AGENTS: dict[str, dict[str, Any]] = {
    "plan": {
        "mode": "PLAN_EXECUTE",
        "providerKey": "auto",
        "verify": "NONE",
        "tools": ["city_datetime"],
        "planExecute": {"planSystemPrompt": "Plan.", "executeSystemPrompt": "Do."},
    },
    "team": {
        "mode": "REACT_TEAM",
        "providerKey": "auto",
        "tools": ["city_datetime"],
        "reactTeam": {"exposeReasoningToUser": True},
    },
}
CALL = {"tool_calls": [{"name": "city_datetime", "arguments": {"city": "Paris"}, "id": "c1"}]}
DONE = {"tool_calls": [{"name": "task_done", "arguments": {"finishContent": "x"}, "id": "c2"}]}
TURNS: dict[str, list[dict[str, Any]]] = {
    "plan": [
        {"text": "No plan yet."},
        {"text": '{"steps": ["Look", "Say"]}'},
        {"text": "I look.", **CALL},
        {"text": "Looked."},
        {"text": "Said."},
        {"text": "All of it."},
    ],
    "team": [{"text": "Look."}, CALL, {"text": "Seen."}, {"text": "Done."}, DONE, {"text": "All of it."}],
}
WHOLE = {"plan": 55, "team": 56}
"""Events of a run that nobody kills."""


def write(folder: Path) -> None:
    (folder / "graphs").mkdir(parents=True, exist_ok=True)
    for key, data in AGENTS.items():
        (folder / "graphs" / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")


Opened = Callable[..., Awaitable[Application]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    apps: list[Application] = []

    async def make(name: str, agent: str, durability: str) -> Application:
        write(tmp_path / name)
        app = make_application(tmp_path / name, script={"turns": TURNS[agent]}, durability=durability)
        apps.append(await app.__aenter__())
        return app

    yield make
    for app in apps:
        await app.aclose()


async def followed(begun: Any) -> Events:
    client = Client()
    async for batch in follow(begun.run.log, begun.after):
        for sse_id, event in batch:
            client.take(sse_id, event_dict(event))
    return client.events


def told(events: Events) -> list[str]:
    """What the log says of plan and tasks, of the run's end, and which results it has."""
    out = []
    for event in events:
        if event["type"].startswith("plan."):
            out.append(f"{event['type']} {[step['status'] for step in event['plan']['steps']]}")
        elif event["type"].startswith("task."):
            out.append(f"{event['type']} {event['taskId']}")
        elif event["type"] in ("tool.result", "run.complete"):
            out.append(f"{event['type']} {event.get('toolId') or event.get('finishReason')}")
    return out


async def uninterrupted(opened: Opened, agent: str) -> Events:
    return await followed(await begin(await opened("whole", agent, "async"), ask(agent)))


def ask(agent: str) -> RunRequest:
    return query_of(message="What now?", chat_id="t", agent_key=agent)


async def resumed(app: Application) -> str | None:
    """Goes on with the run to its end; the code of what refuses that."""
    try:
        await followed(await resume(app, "t"))
    except GraphflowError as error:
        return error.code
    return None


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_run_that_nobody_kills_has_so_many_events(opened: Opened, agent: str) -> None:
    assert len(await uninterrupted(opened, agent)) == WHOLE[agent]


@pytest.mark.parametrize("durability", ["async", "sync"])
@pytest.mark.parametrize(("agent", "number"), [(a, n) for a in AGENTS for n in range(4, WHOLE[a], 3)])
async def test_after_a_crash_plan_and_tasks_are_told_as_if_nothing_had_happened(
    opened: Opened, tmp_path: Path, agent: str, number: int, durability: str
) -> None:
    dead = await opened("dead", agent, durability)
    write(tmp_path / "copy")
    begun = await begin(dead, ask(agent))
    at_event(begun.run, number, functools.partial(copy_store, dead, tmp_path / "copy"))
    whole = await followed(begun)
    app, run_id = await opened("copy", agent, durability), begun.run.run_id
    refused = await resumed(app)
    if refused == "thread_not_found":
        assert durability == "async" or number < 5, "the input was durable by then"
        return
    assert refused in (None, "nothing_to_resume"), "its end was durable by then"
    graph = await app.graph_of_thread("t")
    events = [event for event, _ in await graph.thread("t").events(run_id)]
    log = [event_dict(event) for event in events]
    assert told(log) == told(whole)
    rules = StreamRules(whole=False)
    for event in events:
        rules.take(event)
    assert rules.ended
    for keep in (0, number // 2, number):
        client = Client(whole[:keep])
        async for sse_id, event in run_events(app, run_id, f"1-{keep}"):
            client.take(sse_id, event_dict(event))
        assert fold(client.events) == log
