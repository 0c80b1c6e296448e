"""The stream of a resume: from the first event that the resume sends, with no gap, under the right run (E1)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from graphflow.events import NodeStart
from graphflow.service.application import Application
from graphflow.service.runs.event_stream import run_events
from graphflow.service.threads import checkpoints
from tests.launching import resume
from tests.service.clients import Client, begin, fold, query_of
from tests.service.conftest import Opened, at_event, copy_store, make_application, write_agents
from tests.service.test_rejoin import followed, read, stored

ASK = query_of(message="Tell me a story", chat_id="t", agent_key="halting")
HALTING = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}},
    "start": "talk",
    "nodes": {
        "talk": {"use": "node:talk", "next": "halt"},
        "halt": {"use": "node:halt", "next": "end"},
    },
}
Halt = Callable[[Application, "Halting"], Awaitable[Client]]
"""Runs the agent and ends it before its end; what the client of that run had."""


async def talk(state: Any, ctx: Any) -> dict[str, Any]:
    for _ in range(40):  # more events than the resumed run sends
        await ctx.content("word ")
    return {"n": 1}


class Halting:
    """A node that fails as often as it is told to."""

    def __init__(self) -> None:
        self.failures = 0

    async def halt(self, state: Any, ctx: Any) -> dict[str, Any]:
        if self.failures:
            self.failures -= 1
            raise ValueError("not yet")
        return {"n": state["n"] + 1}


@pytest.fixture
def node() -> Halting:
    return Halting()


Open = Callable[..., Awaitable[Application]]


@pytest.fixture
async def open_halting(folder: Path, node: Halting) -> AsyncIterator[Open]:
    """Opens applications that have the agent, each over its folder."""
    async with AsyncExitStack() as stack:

        async def make(where: Path = folder, **options: Any) -> Application:
            write_agents(where)
            (where / "graphs" / "halting.json").write_text(json.dumps(HALTING), encoding="utf-8")
            app = make_application(where, **options)
            app.kinds.node("talk", talk)
            app.kinds.node("halt", node.halt)
            return await stack.enter_async_context(app)

        yield make


@pytest.fixture
async def app(open_halting: Open) -> Application:
    return await open_halting()


async def failed(app: Application, node: Halting) -> Client:
    node.failures = 1
    return await followed(await begin(app, ASK))


async def cancelled(app: Application, node: Halting) -> Client:
    begun = await begin(app, ASK)
    executor = begun.run.executor
    send = executor.events.sink
    assert send is not None

    def sink(event: Any) -> None:
        send(event)
        if isinstance(event, NodeStart) and event.node == "halt":
            executor.cancel()

    executor.events.sink = sink
    return await followed(begun)


def assert_whole(client: Client, run_id: str) -> None:
    """The client has the log of the run from its first event on."""
    assert [event["seq"] for event in client.events] == list(range(1, len(client.events) + 1))
    assert [(event["type"], event["runId"]) for event in client.events[:2]] == [
        ("run.start", run_id),
        ("run.resume", run_id),
    ]
    assert client.events[-1]["type"] == "run.complete"


@pytest.mark.parametrize(("halt", "ending"), [(failed, "run.error"), (cancelled, "run.cancel")])
async def test_a_run_that_ended_early_resumes_as_another_run_whose_stream_is_whole(
    app: Application, node: Halting, halt: Halt, ending: str
) -> None:
    before = await halt(app, node)
    assert before.events[-1]["type"] == ending
    begun = await resume(app, "t")
    client = await followed(begun)
    assert_whole(client, begun.run_id)
    assert fold(client.events) == await stored(app, begun.run_id)
    assert begun.run_id != before.events[2]["runId"]


async def test_a_rewound_thread_resumes_as_another_run_whose_stream_is_whole(app: Application, node: Halting) -> None:
    first = await begin(app, ASK)
    await followed(first)
    found, _ = await checkpoints(app, "t")
    place = next(info.id for info in found if info.next == ["halt"])
    begun = await resume(app, "t", checkpoint_id=place)
    client = await followed(begun)
    assert_whole(client, begun.run_id)
    assert fold(client.events) == await stored(app, begun.run_id)
    assert begun.run_id != first.run_id


async def test_a_run_that_failed_in_an_earlier_process_resumes_with_a_whole_stream(
    open_halting: Open, node: Halting
) -> None:
    dead = await open_halting()
    await failed(dead, node)
    await dead.aclose()
    begun = await resume(await open_halting(), "t")
    assert_whole(await followed(begun), begun.run_id)


async def test_a_crashed_run_resumes_where_its_durable_log_ends(open_halting: Open, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    dead = await open_halting(durability="sync")
    begun = await begin(dead, ASK)
    at_event(begun.run, 30, lambda: copy_store(dead, tmp_path / "copy"))
    had = await followed(begun)
    app = await open_halting(tmp_path / "copy")
    resumed = await resume(app, "t")
    client = await followed(resumed)
    run_id = had.events[2]["runId"]
    log = await stored(app, run_id)
    before = [event for event in log if event["seq"] < client.events[0]["seq"]]
    assert fold([*before, *client.events]) == log
    assert [e["seq"] for e in client.events] == list(range(resumed.after + 1, client.events[-1]["seq"] + 1))
    assert before[-1]["seq"] == resumed.after and "run.resume" in [event["type"] for event in client.events]
    assert resumed.run_id == run_id


@pytest.mark.parametrize("way", ["resume", "query"])
async def test_an_answered_run_goes_on_with_the_event_after_its_last(open_application: Opened, way: str) -> None:
    app = await open_application()
    first = await begin(app, query_of(message="Hi", chat_id="t", agent_key="ask"), hold_ms=0)
    client = await followed(first)
    await first.run.over.wait()
    asked = next(event for event in client.events if event["type"] == "interrupt.request")
    if way == "resume":
        begun = await resume(app, "t", answers={asked["interruptId"]: "Ada"})
    else:
        begun = await begin(app, query_of(message="Ada", chat_id="t", agent_key="ask", on_waiting="answer"))
    await followed(begun, client)
    assert [event["seq"] for event in client.events] == list(range(1, len(client.events) + 1))
    assert fold(client.events) == await stored(app, first.run_id)
    assert begun.run_id == first.run_id


async def test_a_run_is_known_by_its_id_before_it_has_sent_anything(app: Application, node: Halting) -> None:
    before = await failed(app, node)
    begun = await resume(app, "t")
    assert begun.run.log is not None and not begun.run.log.ring, "nothing was sent yet"
    new = run_events(app, begun.run_id)
    old = run_events(app, before.events[2]["runId"])
    assert (await read(new)).events[0]["type"] == "run.start"
    assert (await read(old)).events == fold(before.events)


async def test_a_run_s_id_is_right_from_the_moment_it_is_launched(app: Application, node: Halting) -> None:
    await failed(app, node)
    begun = await begin(app, ASK)
    assert app.runs.by_thread["t"].run_id == begun.run_id
    await followed(begun)
