"""One client against the others, over all that there is: routes, their fields, tools, kinds and parts of documents come from the
registries. A new one is asked for its most by itself, or fails here until the tables below say how.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.server.app import create_app
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.campaign import size
from tests.security.loop_thread import MeasuredServer, measured
from tests.security.test_one_against_the_others import MOST_S, SMALL, turn_of

LONG = size(12_000, long=4_000_000)
"""Characters of a text; a list or an object has an entry for every forty."""
FOLLOWED_S = 5.0
"""A stream that goes on is left after this time."""
PLACES = {
    "thread_id": "c-few",
    "run_id": "r-few",
    "rule_id": "x",
    "message_id": "m-few",
    "key": "k",
    "sha256": "0" * 64,
}
"""Parameter of a path → what there is of it."""
PAGES = ("/", "/docs", "/openapi.json")
"""What OpenAPI does not describe."""
CLOCK = {"use": "tool:time_now", "with": {}, "next": "end"}
ASKED = {"type": "object", "properties": {"query": {"type": "string"}, "params": {"type": "object"}}}


def document(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    named = {f"n{number}": node for number, node in enumerate(nodes)}
    return {"graphflow": "1", "input": ASKED, "start": "n0", "nodes": named, **fields}


# --- the most of a JSON Schema


def most_of(schema: Mapping[str, Any], root: Mapping[str, Any], length: int) -> Iterator[Any]:
    """Large values of a schema, as far as it says what fits; and what does not fit is as large."""
    if "$ref" in schema:
        yield from most_of(root["components"]["schemas"][schema["$ref"].rpartition("/")[2]], root, length)
        return
    for form in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from most_of(form, root, length)
    kind = schema.get("type")
    if kind in (None, "string"):
        yield "a, {b} [c]: 'd' \\n" * (length // 16)
    if kind in (None, "object"):
        yield {f"k{number}": [number, {"a": "b"}] for number in range(length // 40)}
    if kind in (None, "array"):
        item = next(most_of(schema.get("items") or {"type": "string"}, root, 40), "x")
        yield [item] * (length // 40)
    if kind in ("integer", "number"):
        yield 10**15


def least_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """A small value."""
    if "$ref" in schema:
        return least_of(root["components"]["schemas"][schema["$ref"].rpartition("/")[2]], root)
    if "enum" in schema:
        return schema["enum"][0]
    if forms := (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        return least_of(forms[0], root)
    return {"integer": 1, "number": 1, "array": [], "object": {}, "boolean": True, "null": None}.get(schema.get("type", ""), "x")  # fmt: skip


KNOWN = {"agentKey": "few", "chatId": "c-few", "threadId": "c-few", "runId": "r-few", "stream": False, "message": "go"}


def requests_of(api: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every route as it is, then with each of its fields and parameters at its most."""
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            parameters = operation.get("parameters", ())
            unknown = {p["name"] for p in parameters if p["in"] == "path"} - PLACES.keys()
            assert not unknown, f"{method} {path}: say in PLACES what {unknown} may be"
            url = path.format(**PLACES)
            given = {
                p["name"]: KNOWN.get(p["name"], "x") for p in parameters if p["in"] == "query" and p.get("required")
            }
            content = operation.get("requestBody", {}).get("content", {})
            yield method, url, {"params": given, **({"json": {}} if "application/json" in content else {})}
            for parameter in parameters:
                if parameter["in"] == "query":
                    yield method, url, {"params": {**given, parameter["name"]: "a b" * 2_000}}
            if "multipart/form-data" in content:
                yield method, url, {"files": {"file": b"x" * LONG}, "data": {"chatId": "c-few"}}
            if "application/json" in content:
                schema = content["application/json"]["schema"]
                schema = api["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
                properties = schema["properties"]
                least = {name: KNOWN.get(name, least_of(properties[name], api)) for name in schema.get("required", ())}
                least |= {name: KNOWN[name] for name in properties if name in KNOWN}
                for name in properties:
                    for value in most_of(properties[name], api, LONG):
                        yield method, url, {"params": given, "json": {**least, name: value}}


async def sent(client: httpx.AsyncClient, method: str, url: str, given: dict[str, Any]) -> int:
    try:
        async with asyncio.timeout(FOLLOWED_S):
            return (await client.request(method, url, **given)).status_code
    except TimeoutError:
        return 0


# --- agents


KINDS: dict[str, dict[str, Any]] = {
    "model": {"use": "model", "next": "end"},
    "tools": {"use": "tools", "next": "end"},
    "wait": {"use": "wait", "with": {"signal": "${input.query}"}, "next": "end"},
    "verify": {"use": "verify", "with": {"candidate": {"text": "${input.query}"}}, "next": "end"},
    "plan": {"use": "plan", "next": "end"},
    "task": {"use": "task", "next": "end"},
    "stage": {"use": "stage", "with": {"stage": "final", "notes": ["${input.query}"]}, "next": "end"},
    "summary": {"use": "summary", "next": "end"},
    "agent_call": {"use": "agent_call", "with": {"call": {"calls": [], "over": [], "most": None}}, "next": "end"},
    "agent_result": {
        "use": "agent_result",
        "with": {
            "call": {"calls": [{"at": 0, "id": "c", "name": "agent:few", "arguments": "{}"}]},
            "given": {},
            "error": {"code": "x", "message": "${input.query}"},
        },
        "next": "end",
    },
    "turn_results": {"use": "turn_results", "with": {"answers": []}, "next": "end"},
}
"""Kind → a node of it that takes the message."""


def agents_of(application: Application) -> dict[str, dict[str, Any]]:
    """An agent for each tool and each kind of node, whose input goes into it."""
    made: dict[str, dict[str, Any]] = {}
    for tool in application.tools:
        names = tool.spec.parameters.get("properties", {})
        given = {
            name: f"${{input.params.{name}}}" for name in names if name in tool.spec.parameters.get("required", names)
        }
        made[f"tool_{tool.name}"] = document({"use": f"tool:{tool.name}", "with": given, "next": "end"})
    named = {name for name in application.kinds.names() if not name.startswith("tool:")}
    assert named == KINDS.keys(), f"say in KINDS how a node of {named ^ KINDS.keys()} is written"
    for kind, node in KINDS.items():
        made[f"kind_{kind}"] = document(node)
    return made


LARGE: dict[str, Any] = {
    "use": CLOCK,
    "map": {"map": "[" + "1," * (LONG // 400) + "1]", "as": "item", "do": "n1"},
    "parallel": {"parallel": {f"b{n}": f"n{n + 1}" for n in range(LONG // 400)}},
    "graph": {"graph": document(*[CLOCK] * 3)},
    "stream": {**CLOCK, "stream": {f"k{n}": True for n in range(LONG // 40)}},
    "ask": {"ask": {"message": "so ${input.query}? " * (LONG // 40), "holdMs": 0}, "next": "end"},
    "with": {"use": "tool:math_eval", "with": {"expression": "1 + " * (LONG // 8) + "1"}, "next": "end"},
    "set": {**CLOCK, "set": {f"k{n}": f"{n} + 1" for n in range(LONG // 100)}},
    "next": {**CLOCK, "next": [{"if": f"input.query == '{n}'", "to": "end"} for n in range(LONG // 200)] + [{"to": "end"}]},
    "error": {**CLOCK, "error": [{"if": f"error.code == '{n}'", "to": "end"} for n in range(LONG // 200)]},
    "retry": {**CLOCK, "retry": {"on": ["x"] * (LONG // 40), "max": 1}},
    "timeoutMs": {**CLOCK, "timeoutMs": 10**15},
    "effects": {**CLOCK, "effects": "x" * LONG},
    "idempotent": {**CLOCK, "idempotent": True},
    "undo": {**CLOCK, "undo": "x" * LONG},
    "description": {**CLOCK, "description": "x" * LONG},
    "as": {**CLOCK, "as": "x" * LONG},
    "do": {"map": "[1]", "as": "item", "do": {"graph": document(*[CLOCK] * (LONG // 100))}},
    "max": {"map": "[1]", "as": "item", "do": "n1", "max": 10**15},
    "join": {"map": "[1]", "as": "item", "do": "n1", "join": {"wait": 10**15}},
}  # fmt: skip
"""Field of a node → a node with much in it."""


def shapes() -> Iterator[tuple[str, Any]]:
    """Documents with much in one of their parts; most of them are refused, which takes as long."""
    fields = set(NodeDefinition.__struct_encode_fields__)
    assert fields == LARGE.keys(), f"say in LARGE what a node with much in {fields ^ LARGE.keys()} is"
    for name, node in LARGE.items():
        yield f"node_{name}", document(node, *[CLOCK] * (LONG // 400 if name == "parallel" else 1))
    words = [f"w{number}" for number in range(LONG // 40)]
    kinds = {"text": "a b " * (LONG // 4), "list": words, "object": dict.fromkeys(words, "x")}
    for place, name in enumerate(GraphDefinition.__struct_encode_fields__):
        for kind in [*kinds, *kinds][place % 3 :][: size(1, long=3)]:
            yield f"{name}_{kind}", document(CLOCK, **{name: kinds[kind]})
    yield (
        "keys_of_the_state",
        document(CLOCK, state={"type": "object", "properties": {word: {"type": "string"} for word in words}}),
    )
    yield "a_chain", document(*[{**CLOCK, "next": f"n{number + 1}"} for number in range(LONG // 100)], CLOCK)


# --- the campaign


@asynccontextmanager
async def serving(
    folder: Path, agents: Mapping[str, Any]
) -> AsyncIterator[tuple[MeasuredServer, httpx.AsyncClient, Application]]:
    (folder / "graphs").mkdir(exist_ok=True)
    for key, data in {"few": SMALL, **agents}.items():
        (folder / "graphs" / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")
    application = Application(load_settings(folder, environ={"GRAPHFLOW_TELEMETRY_LOG_LEVEL": "critical"}))
    async with measured(application) as (server, client):
        body = {"agentKey": "few", "message": "go", "chatId": "c-few", "stream": False}
        assert (await client.post("/api/query", json=body)).status_code == 200
        yield server, client, application


@pytest.mark.campaign
async def test_no_route_keeps_the_loop_with_whatever_field_of_it(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as (server, client, application):
        asked: list[tuple[str, str, dict[str, Any]]] = [("get", page, {}) for page in PAGES] + [
            *requests_of(create_app(application).openapi())
        ]
        for method, url, given in asked[: len(PAGES) + 60]:
            await sent(client, method, url, {} if method == "delete" else given)  # what is loaded once is loaded
        for method, url, given in asked:
            status = 0

            async def asking() -> None:
                nonlocal status
                status = await sent(client, method, url, given)  # noqa: B023 - awaited at once

            longest = await turn_of(server, client, asking)
            shown = json.dumps(given, default=repr)[:200]
            assert status < 500, f"{method} {url} {shown} was answered with {status}"
            assert longest < MOST_S, f"{method} {url} {shown} kept the loop for {longest:.3f} s"


@pytest.mark.campaign
async def test_no_tool_and_no_kind_of_node_keeps_the_loop(tmp_path: Path) -> None:
    probe = Application(load_settings(tmp_path, environ={}))
    agents = agents_of(probe)
    tools = {tool.name: tool.spec.parameters.get("properties", {}) for tool in probe.tools}
    async with serving(tmp_path, agents) as (server, client, _):
        refused = [
            key for key in agents if (await client.get("/api/agent", params={"agentKey": key})).status_code != 200
        ]
        assert not refused, f"KINDS has no node of {refused} that can be loaded"
        for length in (40, LONG):  # first what is loaded once
            for key in agents:
                fields = tools.get(key.removeprefix("tool_"), {})
                share = max(length // (len(fields) or 1), 40)
                params = {name: next(most_of(schema, {}, share), "x") for name, schema in fields.items()}
                body = {"agentKey": key, "message": "go " * (length // 3), "params": params, "stream": False}
                longest = await turn_of(
                    server, client, functools.partial(sent, client, "post", "/api/query", {"json": body})
                )
                assert length < LONG or longest < MOST_S, f"{key} kept the loop for {longest:.3f} s"


@pytest.mark.campaign
async def test_no_document_keeps_the_loop(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as (server, client, application):
        await client.get("/api/agent", params={"agentKey": "few"})
        for name, data in shapes():
            written = msgspec.json.encode(data)
            ends = itertools.count()

            async def looking() -> None:
                (tmp_path / "graphs" / "shape.json").write_bytes(written + b"\n" * next(ends))  # noqa: B023 - awaited at once
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(application.agents.refresh(), server.loop))
                if await sent(client, "get", "/api/agent?agentKey=shape", {}) == 200:
                    await sent(client, "get", "/api/agents?q=w1", {})
                    body = {"agentKey": "shape", "message": "go", "stream": False}
                    await sent(client, "post", "/api/query", {"json": body})

            longest = await turn_of(server, client, looking)
            assert longest < MOST_S, f"a document with a large {name} kept the loop for {longest:.3f} s"
