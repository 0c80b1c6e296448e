"""One client against the others: whatever one of them runs, reads or sends, the loop turns for the rest."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.campaign import size
from tests.security.loop_thread import MeasuredServer, measured

PAUSE_S = 0.05
"""Between two questions of the other client."""
MOST_S = 0.1
"""CPU time of the loop's thread for which nobody else has a turn."""
MANY = size(1_000, long=10_000)
STATE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "default": []},
        "log": {"type": "array", "x-reducer": "append", "default": []},
        "sum": {"type": "integer", "x-reducer": "sum", "default": 0},
        "n": {"type": "integer", "default": 0},
    },
}
CLOCK = {"use": "tool:time_now", "with": {}}
BRANCH: dict[str, Any] = {"use": "tool:math_eval", "with": {"expression": "1 + 1"}, "set": {"log": "[1]", "sum": "1"}, "next": "end"}  # fmt: skip


def document(nodes: dict[str, Any], start: str = "fan", **fields: Any) -> dict[str, Any]:
    given = {"type": "object", "properties": {"query": {"type": "string"}}}
    return {"graphflow": "1", "input": given, "state": STATE, "start": start, "nodes": nodes, **fields}


def fan(**fields: Any) -> dict[str, Any]:
    return {"map": "state.items", "as": "item", "do": "work", "next": "end", **fields}


BODY = {"graphflow": "1", "start": "only", "nodes": {"only": {**CLOCK, "next": "end"}}}
WIDE = 200
AGENTS: dict[str, dict[str, Any]] = {
    "map": document({"fan": fan(), "work": BRANCH}),
    "map_of_failures": document(
        {"fan": fan(join={"onError": "collect"}), "work": {"use": "tool:math_eval", "with": {"expression": "1 /"}, "next": "end"}}
    ),
    "map_of_questions": document({"fan": fan(), "work": {"ask": {"message": "so?", "holdMs": 0}, "next": "end"}}),
    "map_of_waits": document({"fan": fan(), "work": {"use": "wait", "with": {"signal": "go"}, "next": "end"}}),
    "map_of_graphs": document({"fan": fan(do={"graph": BODY})}),
    "map_of_maps": document(
        {"fan": fan(do="inner"), "inner": {"map": "[1,2,3,4]", "as": "part", "do": "work", "next": "end"}, "work": BRANCH}
    ),
    "twice": document(
        {"fan": fan(next="again"), "work": BRANCH, "again": fan(do="more"), "more": BRANCH}
    ),
    "first_of_many": document({"fan": fan(join={"wait": "any"}), "work": BRANCH}),
    "parallel": document(
        {"fan": {"parallel": {f"b{n}": f"w{n}" for n in range(WIDE)}, "next": "end"}, **{f"w{n}": BRANCH for n in range(WIDE)}}
    ),
    "chain": document(
        {f"n{n}": {**CLOCK, "next": f"n{n + 1}" if n < WIDE else "end"} for n in range(WIDE + 1)}, start="n0"
    ),
    "loop": document(
        {"again": {**CLOCK, "set": {"n": "state.n + 1"}, "next": [{"if": f"state.n < {MANY}", "to": "again"}, {"to": "end"}]}},
        start="again", budget={"maxSteps": 2 * MANY},
    ),
    "empty_maps": document(
        {"fan": {"map": "[]", "as": "item", "do": "work", "next": [{"if": "state.n < 1", "to": "fan"}, {"to": "end"}]}, "work": BRANCH},
        budget={"maxSteps": 2 * MANY},
    ),
}  # fmt: skip
SMALL = document(
    {
        "fan": {"map": "[1]", "as": "item", "do": "work", "join": {"onError": "collect"}, "next": "below"},
        "work": {"use": "tool:math_eval", "with": {"expression": "1 /"}, "next": "end"},
        "below": {"graph": BODY, "next": "ask"},
        "ask": {"ask": {"message": "so?", "holdMs": 0}, "next": "end"},
    }
)
for key, made in AGENTS.items():
    if made["nodes"].get("fan", {}).get("map") == "state.items":
        count = MANY // 4 if key == "map_of_maps" else MANY
        listed = {"type": "array", "default": list(range(count))}
        made["state"] = {**STATE, "properties": {**STATE["properties"], "items": listed}}

READS = (
    "/api/threads", "/api/threads/{t}", "/api/threads/{t}/state", "/api/threads/{t}/checkpoints?limit=500",
    "/api/threads/{t}/messages", "/api/threads/{t}/cost", "/api/inbox", "/api/chats", "/api/runs", "/api/usage",
    "/api/metrics", "/metrics", "/openapi.json",
)  # fmt: skip
"""What one may ask of a thread once it has all those branches."""


@pytest.fixture
def application(tmp_path: Path) -> Application:
    (tmp_path / "graphs").mkdir()
    for key, data in {**AGENTS, "few": SMALL}.items():
        (tmp_path / "graphs" / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")
    environ = {"GRAPHFLOW_TELEMETRY_LOG_LEVEL": "critical"}
    return Application(load_settings(tmp_path, environ=environ))


async def run(client: httpx.AsyncClient, key: str, chat: str | None = None) -> str:
    body = {"agentKey": key, "message": "go", "chatId": chat or f"c-{key}", "stream": False}
    answer = await client.post("/api/query", json=body)
    assert answer.status_code == 200 or answer.json()["data"]["status"] == "failed", answer.text
    return answer.text


async def warm_up(client: httpx.AsyncClient) -> None:
    """What is loaded when it is first needed is loaded."""
    await run(client, "few")
    for path in READS:
        await client.get(path.format(t="c-few"))


async def health_meanwhile(client: httpx.AsyncClient, doing: Awaitable[Any]) -> Any:
    """Does it, while another client asks how the server is."""
    task = asyncio.ensure_future(doing)  # noqa: TID251 - awaited below
    while not task.done():
        assert (await client.get("/api/health")).status_code == 200
        await asyncio.wait((task,), timeout=PAUSE_S)
    return await task


async def turn_of(
    server: MeasuredServer, client: httpx.AsyncClient, doing: Callable[[], Awaitable[Any]], within: float = MOST_S
) -> float:
    """The longest turn of the loop while this is done, which is done again where it is longer than `within`."""
    return await server.longest_turn_of(lambda: health_meanwhile(client, doing()), within)


@pytest.mark.campaign
@pytest.mark.parametrize("key", AGENTS)
async def test_no_graph_keeps_the_loop_from_the_others(application: Application, key: str) -> None:
    async with measured(application) as (server, client):
        await warm_up(client)
        chats = (f"c-{key}-{number}" for number in itertools.count())
        ran = await turn_of(server, client, lambda: run(client, key, next(chats)))
        assert ran < MOST_S, f"running {key} kept the loop for {ran:.3f} s"
        for path in READS:
            read = await turn_of(server, client, functools.partial(client.get, path.format(t=f"c-{key}-0")))
            assert read < MOST_S, f"GET {path} after {key} kept the loop for {read:.3f} s"


Sends = Callable[[httpx.AsyncClient], Awaitable[Any]]
BIG = size(200_000, long=4_000_000)
BODIES: dict[str, Any] = {
    "a long text": {"agentKey": "chain", "message": "x" * BIG},
    "a deep list": '{"agentKey": "chain", "message": ' + "[" * 5_000 + "]" * 5_000 + "}",
    "many keys": {"agentKey": "chain", "message": "go", "params": {f"k{n}": n for n in range(BIG // 40)}},
    "broken JSON": '{"agentKey": "' + "\\u" * (BIG // 4),
    "no object": [0] * (BIG // 4),
    "a long integer": '{"agentKey": "chain", "message": "x", "params": {"n": ' + "9" * BIG + "}}",
    "a long fraction": '{"agentKey": "chain", "message": "x", "params": {"n": 0.' + "9" * BIG + "e}}",
    "many wide integers": '{"agentKey": "chain", "message": "x", "params": {"n": ['
    + "9" * 40
    + ("," + "9" * 40) * (BIG // 50)
    + "]}}",
    "many long integers": '{"agentKey": "chain", "message": "x", "params": {"n": ['
    + "9" * 4_200
    + ("," + "9" * 4_200) * (BIG // 5_000)
    + "]}}",
}


@pytest.mark.campaign
@pytest.mark.parametrize("what", BODIES)
async def test_no_body_keeps_the_loop_from_the_others(application: Application, what: str) -> None:
    given = BODIES[what]
    content = given if isinstance(given, str) else json.dumps(given)
    async with measured(application) as (server, client):
        for path in ("/api/query", "/api/submit", "/api/tool/result", "/api/threads/x/signal"):
            headers = {"content-type": "application/json"}
            longest = await turn_of(
                server, client, functools.partial(client.post, path, content=content, headers=headers)
            )
            assert longest < MOST_S, f"{what} to {path} kept the loop for {longest:.3f} s"


MANY_VALUES: dict[str, list[Any]] = {
    "texts": [f"s{number}" for number in range(49_000)],
    "objects": [{"a": number} for number in range(24_500)],
    "objects of three": [{"a": number, "b": "x", "c": [number]} for number in range(9_800)],
}
"""As many values as a body may have."""


def sent_in(values: list[Any]) -> dict[str, tuple[str, str, Any]]:
    query = {"agentKey": "few", "message": "go", "chatId": "c-texts", "stream": False, "params": {"list": values}}
    return {
        "query": ("POST", "/api/query", query),
        "submit": ("POST", "/api/submit", {"chatId": "c-few", "runId": "x", "interruptId": "x", "payload": values}),
        "signal": ("POST", "/api/threads/c-few/signal", {"name": "go", "payload": values}),
        "edit": ("PATCH", "/api/threads/c-few/state", {"values": {"items": values}}),
    }


@pytest.mark.campaign
@pytest.mark.parametrize("values", MANY_VALUES)
@pytest.mark.parametrize("what", sent_in([]))
async def test_no_body_of_many_values_and_no_read_of_it_keeps_the_loop(
    application: Application, what: str, values: str
) -> None:
    method, path, body = sent_in(MANY_VALUES[values])[what]
    async with measured(application) as (server, client):
        await warm_up(client)
        sent = await turn_of(server, client, lambda: client.request(method, path, json=body))
        assert sent < MOST_S, f"{method} {path} kept the loop for {sent:.3f} s"
        thread = body.get("chatId", "c-few")
        for read in (
            () if values != "texts" else (*READS, "/api/chat?chatId={t}&includeRawMessages=true", "/api/chats?q=s7")
        ):
            longest = await turn_of(server, client, functools.partial(client.get, read.format(t=thread)))
            assert longest < MOST_S, f"GET {read} after it kept the loop for {longest:.3f} s"
