"""Every refusal has its code, and tells what is absent and what belongs to somebody else in the same words (spec 3, 3.5).

The routes come from the OpenAPI document, so that a new one is asked too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from graphflow.errors import ERROR_CODES
from graphflow.server.envelope import STATUS
from tests.server.conftest import serving
from tests.server.test_users import ANN, BOB, OPS, waiting_chat, with_tokens

ABSENT_ID = "00000000-0000-7000-8000-000000000000"
CREATES = {("post", "/api/query"), ("post", "/api/upload")}
"""Routes whose `chatId` names a thread that need not exist."""


class Ids(NamedTuple):
    """What a user has, or what nobody has."""

    thread: str
    run: str
    checkpoint: str
    interrupt: str

    def of(self, name: str) -> str | None:
        match name:
            case "thread_id" | "chatId" | "toThread" | "threadId":
                return self.thread
            case "run_id" | "runId":
                return self.run
            case "checkpointId" | "from" | "to":
                return self.checkpoint
            case "interruptId" | "toolId" | "rule_id":
                return self.interrupt
            case "cursor":
                return self.thread
            case _:
                return None


NOTHING = Ids("absent", ABSENT_ID, ABSENT_ID, f"{ABSENT_ID}.1")


class Call(NamedTuple):
    """A request that is to be refused."""

    method: str
    path: str
    place: str
    """Of the id that is wrong; empty where the arguments are."""
    request: dict[str, Any]


async def owned(client: httpx.AsyncClient, chat_id: str, headers: dict[str, str]) -> Ids:
    """A waiting thread of this user."""
    waits = await waiting_chat(client, chat_id, headers)
    head = (await client.get(f"/api/threads/{chat_id}", headers=headers)).json()["data"]["checkpointId"]
    return Ids(chat_id, waits["runId"], head, waits["interrupts"][0]["interruptId"])


def assert_refusal(response: httpx.Response, call: Any, folder: Path) -> str:
    """The refusal is in the envelope and has a code; returns the code."""
    body = response.json()
    assert set(body) == {"code", "msg", "data"} and body["code"] == response.status_code, (call, response.text)
    assert set(body["data"]) <= {"error", "fields"}, (call, response.text)
    error = body["data"]["error"]
    assert set(error) == {"code", "message", "detail"} and isinstance(error["detail"], dict), (call, response.text)
    assert error["code"] in ERROR_CODES and STATUS[error["code"]] == response.status_code, (call, response.text)
    assert error["message"] == body["msg"] != "", (call, response.text)
    for word in (str(folder), "pydantic", "Traceback", "graphflow/", "Input should", "is not valid", "SELECT "):
        assert word not in response.text, (call, response.text)
    return str(error["code"])


def resolved(schema: dict[str, Any], page: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (
        page["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    )
    return found


def sample(name: str, field: dict[str, Any], mine: Ids) -> Any:
    """A value that the field takes."""
    if (own := mine.of(name)) is not None:
        return own
    if "enum" in field:
        return field["enum"][0]
    return {"object": {}, "array": [], "integer": 1, "boolean": True}.get(field.get("type", ""), "x")


def operations(page: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in page["paths"].items():
        for method, operation in methods.items():
            if "security" in operation:
                yield method, path, operation


def calls(page: dict[str, Any], mine: Ids, other: Ids) -> Iterator[Call]:
    """Each operation with one id of `other` and the rest of `mine`, beside every shape of body."""
    for method, path, operation in operations(page):
        parameters = operation.get("parameters", ())
        content = operation.get("requestBody", {}).get("content", {})
        schema = resolved(content["application/json"]["schema"], page) if "application/json" in content else {}
        fields = schema.get("properties", {})
        given = {p["name"]: sample(p["name"], p["schema"], mine) for p in parameters if p["required"]}
        body = {name: sample(name, fields[name], mine) for name in schema.get("required", ())}
        wrong = [p["name"] for p in parameters if p["in"] in ("path", "query") and mine.of(p["name"]) is not None]
        for name in wrong:
            for shape in bodies(body, fields) if fields else [None]:
                yield Call(method, path, name, filled(parameters, {**given, name: other.of(name)}, shape))
        if "requestId" in fields:
            body["requestId"] = "r"
        for name in fields:
            if (
                mine.of(name) is not None
                and (method, path) not in CREATES
                and (path.rpartition("/")[2], name) != ("fork", "threadId")
            ):
                yield Call(method, path, name, filled(parameters, given, {**body, name: other.of(name)}))


def bodies(body: dict[str, Any], fields: dict[str, Any]) -> Iterator[Any]:
    yield from (body, None, b"{", b"[]", {**body, "unknownField": 1})
    for name, field in fields.items():
        if ("type" in field or "anyOf" in field) and '"object"' not in json.dumps(field):
            yield {**body, name: {"wrong": "type"}}
        if '"array"' in json.dumps(field):
            yield {**body, name: [[]]}
            yield {**body, name: [{"wrong": 1}]}


def filled(parameters: Any, given: dict[str, Any], body: Any) -> dict[str, Any]:
    request: dict[str, Any] = {"path": {}, "params": {}}
    for parameter in parameters:
        if parameter["name"] in given:
            place = {"path": "path", "query": "params"}.get(parameter["in"])
            if place is not None:
                request[place][parameter["name"]] = given[parameter["name"]]
    if body is not None:
        request |= {"content": body} if isinstance(body, bytes) else {"json": body}
    return request


async def send(client: httpx.AsyncClient, call: Call, headers: dict[str, str]) -> httpx.Response:
    request = dict(call.request)
    return await client.request(
        call.method.upper(), call.path.format(**request.pop("path")), headers=headers, **request
    )


class World(NamedTuple):
    client: httpx.AsyncClient
    page: dict[str, Any]
    folder: Path
    hers: Ids
    his: Ids


@pytest.fixture
async def world(folder: Path) -> AsyncIterator[World]:
    async with serving(with_tokens(folder)) as (client, _):
        page = (await client.get("/openapi.json")).json()
        yield World(client, page, folder, await owned(client, "hers", ANN), await owned(client, "his", BOB))


async def test_what_belongs_to_another_user_is_refused_as_what_does_not_exist(world: World) -> None:
    client, page, folder, hers, his = world
    foreign, absent = list(calls(page, his, hers)), list(calls(page, his, NOTHING))
    seen: set[tuple[str, str]] = set()
    assert len(foreign) == len(absent) > 70
    for theirs, nobodys in zip(foreign, absent, strict=True):
        answers = []
        for call, ids in ((theirs, hers), (nobodys, NOTHING)):
            response = await send(client, call, BOB)
            text = response.text
            # Longest first: an interrupt's id begins with that of its checkpoint.
            for value in sorted(ids, key=len, reverse=True):
                text = text.replace(value, "ID")
            answers.append((response.status_code, text))
            if response.status_code >= 400:
                assert_refusal(response, call, folder)
                seen.add((call.method, call.path))
        assert answers[0] == answers[1], theirs
    assert {
        (method, path) for method, path, _ in operations(page) if "{thread_id}" in path or "{run_id}" in path
    } <= seen
    assert await owned_still(client, hers)


async def owned_still(client: httpx.AsyncClient, hers: Ids) -> bool:
    """Nothing of the other user's thread has changed."""
    summary = (await client.get(f"/api/threads/{hers.thread}", headers=ANN)).json()["data"]
    return bool(summary["checkpointId"] == hers.checkpoint and summary["status"] == "waiting")


async def test_wrong_arguments_of_every_route_are_refused_with_a_code(world: World) -> None:
    client, page, folder, _, his = world
    for method, path, operation in operations(page):
        parameters = operation.get("parameters", ())
        content = operation.get("requestBody", {}).get("content", {})
        given = {p["name"]: sample(p["name"], p["schema"], his) for p in parameters if p["required"]}
        wrong: list[Call] = []
        base = filled(parameters, given, {} if content else None)
        for name in ("noSuchParameter", *(p["name"] for p in parameters if p["in"] == "query")):
            for value in ("\0", ["1", "2"]):
                wrong.append(Call(method, path, name, {**base, "params": {**base["params"], name: value}}))
        for parameter in parameters:
            if parameter["in"] == "query" and parameter["schema"].get("type") in ("integer", "boolean"):
                wrong.append(
                    Call(
                        method, path, parameter["name"], {**base, "params": {**base["params"], parameter["name"]: "x"}}
                    )
                )
            if parameter["in"] == "path":
                wrong.append(
                    Call(method, path, parameter["name"], {**base, "path": {**base["path"], parameter["name"]: "a..b"}})
                )
        if "application/json" in content:
            fields = resolved(content["application/json"]["schema"], page)["properties"]
            for body in bodies({}, fields):
                if body not in ({}, None) or operation["requestBody"]["required"]:
                    wrong.append(Call(method, path, "", filled(parameters, given, body)))
        for call in wrong:
            response = await send(client, call, OPS)
            assert response.status_code >= 400, (call, response.text)
            code = assert_refusal(response, call, folder)
            assert response.status_code in (400, 404), (call, response.text)
            if response.status_code == 400:
                assert code == "invalid_input" and response.json()["data"]["fields"], (call, response.text)


async def test_unknown_threads_runs_checkpoints_and_urls_differ_by_code(world: World) -> None:
    client, folder = world.client, world.folder
    for method, url, body, status, code in (
        ("GET", "/api/threads/absent", None, 404, "thread_not_found"),
        ("DELETE", "/api/threads/absent", None, 404, "thread_not_found"),
        ("GET", "/api/chat?chatId=absent", None, 404, "thread_not_found"),
        ("GET", f"/api/runs/{ABSENT_ID}/events", None, 404, "run_not_found"),
        ("DELETE", f"/api/threads/his/queue/{ABSENT_ID}", None, 404, "run_not_found"),
        ("GET", f"/api/threads/his/state?checkpointId={ABSENT_ID}", None, 404, "checkpoint_not_found"),
        ("POST", "/api/threads/his/rewind", {"checkpointId": ABSENT_ID}, 404, "checkpoint_not_found"),
        ("GET", "/api/tool/result?chatId=his&toolId=x", None, 404, "not_found"),
        ("GET", "/api/viewport?viewportKey=x", None, 404, "not_found"),
        ("DELETE", "/api/rules/x", None, 404, "not_found"),
        ("GET", "/api/none", None, 404, "route_not_found"),
        ("DELETE", "/none", None, 404, "route_not_found"),
        ("PUT", "/api/chats", None, 405, "method_not_allowed"),
        ("POST", "/api/threads/his/fork", {"threadId": "hers"}, 409, "thread_exists"),
        ("POST", "/api/query", {"message": "x", "agentKey": "none"}, 400, "agent_not_found"),
        ("POST", "/api/query", {"message": "x" * 17_000_000}, 413, "too_large"),
    ):
        response = await client.request(method, url, json=body, headers=OPS)
        assert (response.status_code, assert_refusal(response, url, folder)) == (status, code), response.text
    assert (await client.get("/api/chats")).headers["WWW-Authenticate"] == "Bearer"
    for headers, url, status, code in (({}, "/api/chats", 401, "unauthorized"), (BOB, "/api/usage", 403, "forbidden")):
        response = await client.get(url, headers=headers)
        assert (response.status_code, assert_refusal(response, url, folder)) == (status, code)


async def test_a_fork_onto_an_id_in_use_is_refused_without_showing_whose_it_is(world: World) -> None:
    client, folder = world.client, world.folder
    own = await client.post("/api/threads/his/fork", json={"threadId": "his"}, headers=BOB)
    assert assert_refusal(own, "own", folder) == "thread_exists"
    assert "Retry-After" not in own.headers and "retryAfterMs" not in own.text
    foreign = await client.post("/api/threads/his/fork", json={"threadId": "hers"}, headers=BOB)
    absent = await client.post("/api/threads/absent/fork", json={"threadId": "new"}, headers=BOB)
    assert foreign.status_code == absent.status_code == 404
    assert json.loads(foreign.text.replace("hers", "absent")) == absent.json()
