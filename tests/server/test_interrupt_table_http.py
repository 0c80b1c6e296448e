"""Interrupts fail closed over HTTP too: `/api/submit` says why it takes no answer, and then has changed nothing (E13)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import serving
from tests.service.conftest import make_application

CALLS = {
    "turns": [
        {"tool_calls": [{"name": "bash", "arguments": {"command": "pwd"}, "id": "c1"}]},
        {"text": "done"},
    ]
}
Asked = dict[str, Any]


@pytest.fixture
async def client(folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(make_application(folder, script=CALLS)) as (made, _):
        yield made


async def wait(client: httpx.AsyncClient, agent: str, chat: str = "c") -> Asked:
    """A chat that waits, as the inbox shows its question."""
    body = {"message": "go", "agentKey": agent, "chatId": chat, "stream": False}
    await client.post("/api/query", json=body)
    (line,) = (await client.get("/api/inbox", params={"threadId": chat})).json()["data"]
    return dict(line)


async def look(client: httpx.AsyncClient, chat: str = "c") -> Any:
    """Everything that a refused answer must not change."""
    thread = (await client.get(f"/api/threads/{chat}")).json()["data"]
    history = (await client.get(f"/api/threads/{chat}/history")).json()["data"]
    return thread, history, (await client.get("/api/inbox")).json()["data"]


async def submit(client: httpx.AsyncClient, asked: Asked, **changes: Any) -> Any:
    body = {"chatId": asked["threadId"], "runId": asked["runId"], "toolId": asked["interruptId"], "payload": "Ada"}
    return (await client.post("/api/submit", json={**body, **changes})).json()["data"]


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "an unknown question": ("ask", {"toolId": "018bcfe5-6800-7000-8000-ffffffffffff.1"}, "unmatched"),
    "no id at all": ("ask", {"toolId": "what?"}, "unmatched"),
    "another run": ("ask", {"runId": "018bcfe5-6800-7000-8000-ffffffffffff"}, "unmatched"),
    "a chat that is not there": ("ask", {"chatId": "nobody"}, "unmatched"),
    "null": ("ask", {"payload": None}, "invalid"),
    "an empty object": ("ask", {"payload": {}}, "invalid"),
    "a number for a word": ("ask", {"payload": 5}, "invalid"),
    "an object with the right word inside": ("ask", {"payload": {"answer": "Ada"}}, "invalid"),
    "null for an approval": ("react", {"payload": None}, "invalid"),
    "an empty object for an approval": ("react", {"payload": {}}, "invalid"),
    "a decision that there is not": ("react", {"payload": {"decision": "yes"}}, "invalid"),
    "an edit without arguments": ("react", {"payload": {"decision": "edit"}}, "invalid"),
    "an edit that the tool can't take": (
        "react", {"payload": {"decision": "edit", "arguments": {"command": ["rm"]}}}, "invalid",
    ),
    "a rejection without a reason": ("react", {"payload": {"decision": "reject"}}, "invalid"),
}  # fmt: skip


CODES = {"unmatched": ("interrupt_not_found", "thread_not_found"), "invalid": ("answer_invalid", "limit_exceeded")}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_submit_that_does_not_fit_says_why_and_changes_nothing(client: httpx.AsyncClient, case: str) -> None:
    agent, changes, status = REFUSED[case]
    asked = await wait(client, agent)
    before = await look(client)
    refused = await submit(client, asked, **changes)
    assert (refused["accepted"], refused["status"]) == (False, status)
    assert refused["detail"]
    assert refused["code"] in CODES[status]
    assert await look(client) == before
    right = "Ada" if agent == "ask" else {"decision": "reject", "reason": "not now"}
    assert (await submit(client, asked, payload=right))["status"] == "accepted"
    again = await submit(client, asked, payload=right)
    assert (again["accepted"], again["status"], again["code"]) == (False, "stale", "answer_stale")


NAMED: dict[str, tuple[str, ...]] = {
    "by interruptId": ("interruptId",),
    "by the interrupt's id as toolId": ("toolId",),
    "by its tool call": ("call",),
    "by both": ("interruptId", "call"),
    "by one id twice": ("interruptId", "toolId"),
}


@pytest.mark.parametrize("case", NAMED)
async def test_the_question_is_named_by_its_interrupt_or_its_tool_call(client: httpx.AsyncClient, case: str) -> None:
    asked = await wait(client, "react")
    names = {
        "interruptId": {"interruptId": asked["interruptId"]},
        "toolId": {"toolId": asked["interruptId"]},
        "call": {"toolId": asked["toolId"]},
    }
    body = {"chatId": "c", "runId": asked["runId"], "payload": {"decision": "reject", "reason": "not now"}}
    for name in NAMED[case]:
        body |= names[name]
    assert (await client.post("/api/submit", json=body)).json()["data"]["status"] == "accepted"


@pytest.mark.parametrize("names", [{"toolId": "another"}, {"interruptId": None, "toolId": None}], ids=["two", "none"])
async def test_an_answer_to_two_questions_or_to_none_is_a_bad_request(
    client: httpx.AsyncClient, names: dict[str, Any]
) -> None:
    asked = await wait(client, "ask")
    before = await look(client)
    body = {"chatId": "c", "runId": asked["runId"], "interruptId": asked["interruptId"], "payload": "Ada", **names}
    refused = await client.post("/api/submit", json=body)
    assert refused.status_code == 400
    assert set(refused.json()["data"]["fields"]) == ({"toolId"} if names["toolId"] else {"interruptId"})
    assert await look(client) == before
    assert (await submit(client, asked))["status"] == "accepted"


async def test_an_answer_meant_for_another_chat_is_unmatched(client: httpx.AsyncClient) -> None:
    first, second = await wait(client, "ask", "a"), await wait(client, "ask", "b")
    for changes in ({"chatId": "b"}, {"chatId": "b", "runId": second["runId"]}):
        refused = await submit(client, first, **changes)
        assert (refused["accepted"], refused["status"]) == (False, "unmatched")
    lines = (await client.get("/api/inbox")).json()["data"]
    assert {line["interruptId"] for line in lines} == {first["interruptId"], second["interruptId"]}


@pytest.mark.parametrize("levels", [200, 100_000])
async def test_a_payload_deeper_than_any_form_is_refused_and_the_server_lives_on(
    client: httpx.AsyncClient, levels: int
) -> None:
    asked = await wait(client, "ask")
    before = await look(client)
    head = json.dumps({"chatId": "c", "runId": asked["runId"], "toolId": asked["interruptId"]})[:-1]
    body = head + ', "payload": ' + "[" * levels + "]" * levels + "}"
    response = await client.post("/api/submit", content=body, headers={"content-type": "application/json"})
    assert response.status_code < 500
    assert response.status_code >= 400 or response.json()["data"]["status"] == "invalid"
    assert await look(client) == before
    assert (await submit(client, asked))["status"] == "accepted"


async def test_of_many_submits_at_once_exactly_one_is_accepted(client: httpx.AsyncClient) -> None:
    asked = await wait(client, "react")
    payloads = [{"decision": "approve"}, {"decision": "reject", "reason": "no"}] * 8
    results = await asyncio.gather(*(submit(client, asked, payload=payload) for payload in payloads))
    assert sorted(r["status"] for r in results) == ["accepted", *["stale"] * 15]


async def test_a_query_on_a_waiting_chat_is_a_conflict_that_names_the_questions(client: httpx.AsyncClient) -> None:
    asked = await wait(client, "ask")
    before = await look(client)
    response = await client.post("/api/query", json={"message": "and now?", "agentKey": "ask", "chatId": "c"})
    assert response.status_code == 409
    assert asked["interruptId"] in response.text
    assert await look(client) == before


async def test_a_token_without_the_scope_answers_nothing(folder: Path) -> None:
    """Who may answer is the tokens' business; owner and role say in whose inbox a question stands."""
    tokens = "looker:read+run:secret-1,boss:read+answer:secret-2"
    (folder / ".env").write_text(f"GRAPHFLOW_TOKENS={tokens}\n", encoding="utf-8")
    async with serving(make_application(folder, script=CALLS)) as (client, _):
        client.headers["authorization"] = "Bearer secret-1"
        asked = await wait(client, "ask")
        before = await look(client)
        body = {"chatId": "c", "runId": asked["runId"], "toolId": asked["interruptId"], "payload": "Ada"}
        assert (await client.post("/api/submit", json=body)).status_code == 403
        client.headers["authorization"] = "Bearer nobody's"
        assert (await client.post("/api/submit", json=body)).status_code == 401
        client.headers["authorization"] = "Bearer secret-2"
        assert await look(client) == before
        assert (await submit(client, asked))["status"] == "accepted"
