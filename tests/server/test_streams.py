"""Event streams over real sockets: order, numbers, true streaming, leaving, slow readers, pauses (spec 3.3, 3.4)."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.messages import AIMessage
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.server import DeltaGate, serve_scripted
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.patience import PATIENCE_S
from tests.server.conftest import ask, frames, serving, take
from tests.service.clients import BLOCKS, Client, fold
from tests.service.conftest import Gate, make_application

CALLS = {
    "turns": [
        {"text": "Let me see.", "tool_calls": [{"name": "city_datetime", "arguments": {"city": "Paris"}, "id": "c1"}]},
        {"tool_calls": [{"name": "bash", "arguments": {"command": "pwd"}, "id": "c2"}]},
        {"text": "All done."},
    ]
}


async def test_events_come_in_the_contracts_order_with_numbers_without_gaps(client: httpx.AsyncClient) -> None:
    seen = await ask(client, agentKey="story", chatId="c", references=[{"id": "r1", "name": "n"}], scene={"url": "u"})
    kinds = [e["type"] for e in seen.events]
    assert kinds[:4] == ["request.query", "chat.start", "run.start", "node.start"]
    assert kinds[-1] == "run.complete"
    assert [e["seq"] for e in seen.events] == list(range(1, len(kinds) + 1))
    assert seen.events[0]["references"] == [{"id": "r1", "name": "n"}]
    assert all(e["timestamp"] > 1_600_000_000_000 and None not in e.values() for e in seen.events)
    open_blocks: set[str] = set()
    for event in seen.events:
        kind, _, part = event["type"].partition(".")
        if kind in BLOCKS and part == "start":
            open_blocks.add(event[BLOCKS[kind]])
        elif kind in BLOCKS and part == "end":
            open_blocks.remove(event[BLOCKS[kind]])
        elif event["type"] in ("node.end", "run.complete"):
            assert not open_blocks, "every block is closed before its node's end"


async def test_a_frame_is_id_event_one_line_of_json_and_a_blank_line(folder: Path) -> None:
    async with serving(make_application(folder)) as (client, _):
        response = await client.post("/api/query", content=b'{"agentKey":"plain","message":"\xe4\xbd\xa0\xe5\xa5\xbd"}')
        assert response.headers["cache-control"] == "no-store, no-transform"
        assert response.headers["x-accel-buffering"] == "no"
        blocks = response.content.decode().split("\n\n")
        assert blocks[-1] == ""
        for block in blocks[:-1]:
            assert re.fullmatch(r'id: \d+-\d+\nevent: message\ndata: \{"type":.*\}', block)
        assert '"message":"你好"' in blocks[0] and '"chatName":"你好"' in blocks[1]


async def test_each_delta_reaches_the_client_before_the_upstream_sends_the_next(folder: Path) -> None:
    """The hard rule of 1.4, through the whole server: the upstream waits for the client's eyes."""
    gate = DeltaGate()
    text = "one two three four five six"
    import msgspec

    from graphflow.models.scripted.script import Script

    script = msgspec.convert({"turns": [{"text": text, "piece": 3}]}, Script)
    async with serve_scripted(ScriptedModel(script), gate=gate) as upstream, asyncio.timeout(PATIENCE_S):
        environ = {"LLM_BASE_URL": upstream.url, "OPENAI_API_KEY": "key-of-nobody", "LLM_MODEL_ID": "m"}
        async with serving(Application(load_settings(folder, environ=environ))) as (client, _):
            got = 0
            body = {"message": "go", "agentKey": "plain"}
            async with client.stream("POST", "/api/query", json=body) as response:
                gate.release()
                async for _, event in frames(response):
                    if event["type"] == "content.delta":
                        got += 1
                        assert upstream.sent == got, "the next delta has not been sent yet"
                        gate.release()
            assert got == 9


async def test_a_query_works_with_curls_form_header_and_any_accept(client: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "*/*"}
    seen = await take(client, "POST", "/api/query", content=b'{"agentKey":"plain","message":"hi"}', headers=headers)
    assert seen.events[-1]["type"] == "run.complete"


async def test_families_choose_events_and_numbers_still_increase(client: httpx.AsyncClient) -> None:
    contract = await ask(client, agentKey="story", events=["contract"])
    assert not {e["type"] for e in contract.events} & {"node.start", "node.end", "checkpoint.create"}
    assert contract.events[-1]["type"] == "run.complete"
    graph = await ask(client, agentKey="story", events=["graph"])
    assert {e["type"].partition(".")[0] for e in graph.events} == {"node", "checkpoint"}
    run = contract.events[2]["runId"]
    newest = (await client.get("/api/chats")).json()["data"]
    run_of = {
        "contract": run,
        "graph": (await client.get(f"/api/threads/{newest[0]['chatId']}")).json()["data"]["runId"],
    }
    joined = await take(client, "GET", f"/api/runs/{run}/events?events=contract")
    assert joined.events == fold(contract.events)
    assert (await client.get(f"/api/runs/{run}/events?events=nonsense")).status_code == 400
    for seen, family in ((contract, "contract"), (graph, "graph")):
        rejoined = f"/api/runs/{run_of[family]}/events?events={family}&lastEventId={seen.last_id}"
        assert (await client.get(rejoined)).status_code == 204, "what is left is of another family"


@pytest.mark.parametrize("family", ["contract", "graph"])
async def test_whichever_family_is_chosen_a_client_learns_that_a_person_is_asked(
    client: httpx.AsyncClient, family: str
) -> None:
    """Events that ask or wait belong to every family (spec 3.3)."""
    seen = Client()
    body = {"message": "hi", "agentKey": "ask", "chatId": "w", "events": [family]}
    async with client.stream("POST", "/api/query", json=body) as response:
        async for sse_id, event in frames(response):
            seen.take(sse_id, event)
            if event["type"] == "interrupt.request":
                answer = {"chatId": "w", "runId": event["runId"], "interruptId": event["interruptId"], "payload": "Ada"}
                assert (await client.post("/api/submit", json=answer)).json()["data"]["accepted"]
    kinds = [event["type"] for event in seen.events]
    assert "interrupt.request" in kinds and "interrupt.resolve" in kinds
    joined = await take(client, "GET", f"/api/runs/{answer['runId']}/events?events={family}")
    assert {"interrupt.request", "interrupt.resolve"} <= {event["type"] for event in joined.events}


async def test_closing_the_connection_only_unsubscribes(client: httpx.AsyncClient, gate: Gate) -> None:
    gate.open(3)
    seen = Client()
    async with client.stream(
        "POST", "/api/query", json={"message": "x", "chatId": "d", "agentKey": "story"}
    ) as response:
        async for sse_id, event in frames(response):
            seen.take(sse_id, event)
            if event["type"] == "reasoning.delta":
                break
    assert (await client.get("/api/threads/d")).json()["data"]["status"] == "running"
    gate.open()
    run = seen.events[2]["runId"]
    await take(client, "GET", f"/api/runs/{run}/events", seen, headers={"Last-Event-ID": seen.last_id or ""})
    assert seen.events[-1]["type"] == "run.complete"
    assert fold(seen.events) == (await take(client, "GET", f"/api/runs/{run}/events")).events
    assert (await client.get(f"/api/runs/{run}/events?lastEventId={seen.last_id}")).status_code == 204


async def test_on_disconnect_cancel_ends_the_run(client: httpx.AsyncClient, gate: Gate) -> None:
    gate.open(3)
    body = {"message": "x", "chatId": "d", "agentKey": "story", "onDisconnect": "cancel"}
    async with client.stream("POST", "/api/query", json=body) as response:
        async for _, event in frames(response):
            if event["type"] == "reasoning.delta":
                break
    async with asyncio.timeout(PATIENCE_S):
        while (await client.get("/api/threads/d")).json()["data"]["status"] != "stopped":
            await asyncio.sleep(0.01)
    events = (await client.get("/api/chat?chatId=d")).json()["data"]["events"]
    assert events[-1]["type"] == "run.cancel"


async def test_of_two_queries_at_once_one_runs_and_the_other_gets_409(client: httpx.AsyncClient, gate: Gate) -> None:
    gate.close()
    body = {"message": "x", "chatId": "b", "agentKey": "story"}
    async with client.stream("POST", "/api/query", json=body) as first:
        busy = await client.post("/api/query", json=body)
        assert busy.status_code == 409 and busy.headers["retry-after"]
        error = busy.json()["data"]["error"]
        assert error["code"] == "thread_busy" and error["detail"]["retryAfterMs"] > 0
        async with asyncio.TaskGroup() as group:
            other = group.create_task(ask(client, chatId="b", agentKey="story", onBusy="interrupt"))
            kinds = [event["type"] async for _, event in frames(first)]
            gate.open()
    assert kinds[-1] == "run.cancel" and other.result().events[-1]["type"] == "run.complete"


async def test_a_new_query_may_follow_the_terminal_event_at_once(client: httpx.AsyncClient) -> None:
    for _ in range(10):
        async with client.stream(
            "POST", "/api/query", json={"message": "x", "chatId": "q", "agentKey": "plain"}
        ) as response:
            last = ""
            async for _, event in frames(response):
                last = event["type"]
                if last in ("run.complete", "run.error"):
                    break
        assert (response.status_code, last) == (200, "run.complete")


async def test_a_reader_that_takes_nothing_blocks_nobody(folder: Path) -> None:
    long = {"turns": [{"text": "0123456789" * 20_000, "piece": 20}]}
    async with serving(make_application(folder, script=long)) as (client, server), asyncio.timeout(PATIENCE_S):
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        slow = socket.create_connection((host, port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps({"message": "x", "chatId": "slow", "agentKey": "plain"})
        slow.sendall(f"POST /api/query HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        quick = await ask(client, chatId="quick", agentKey="plain")
        assert quick.events[-1]["type"] == "run.complete"
        while (await client.get("/api/chats")).json()["data"][-1]["status"] == "running":
            await asyncio.sleep(0.01)
        assert {c["status"] for c in (await client.get("/api/chats")).json()["data"]} == {"idle"}
        slow.close()


async def test_a_silent_stream_gets_a_heartbeat_comment(folder: Path, gate: Gate) -> None:
    (folder / ".env").write_text("GRAPHFLOW_SERVER_HEARTBEAT_S=0.1\n", encoding="utf-8")
    gate.close()
    async with serving(make_application(folder, gate=gate)) as (client, _), asyncio.timeout(PATIENCE_S):
        async with client.stream("POST", "/api/query", json={"message": "x", "agentKey": "plain"}) as response:
            text = ""
            async for piece in response.aiter_text():
                text += piece
                if text.count(": heartbeat\n\n") == 2:
                    gate.open()
        assert "run.complete" in text


async def test_a_live_approval_is_answered_on_the_open_stream(folder: Path) -> None:
    async with serving(make_application(folder, script=CALLS)) as (client, _), asyncio.timeout(PATIENCE_S):
        seen = Client()
        body = {"message": "x", "chatId": "p", "agentKey": "react"}
        async with client.stream("POST", "/api/query", json=body) as response:
            async for sse_id, event in frames(response):
                seen.take(sse_id, event)
                if event["type"] == "interrupt.request":
                    waiting = await client.post("/api/query", json=body)
                    assert waiting.json()["data"]["error"]["code"] == "thread_waiting"
                    assert event["arguments"] == {"command": "pwd"} and event["toolId"] == "c2"
                    answer = {"chatId": "p", "runId": event["runId"], "toolId": "c2", "requestId": "q1"}
                    answer["payload"] = {"decision": "reject", "reason": "not today"}
                    assert (await client.post("/api/submit", json=answer)).json()["data"] == {
                        "requestId": "q1", "accepted": True, "status": "accepted", "runId": event["runId"], "toolId": "c2",
                    }  # fmt: skip
        kinds = [e["type"] for e in seen.events]
        assert "run.waiting" not in kinds and "run.resume" not in kinds and kinds[-1] == "run.complete"
        after = kinds.index("interrupt.request")
        order = [k for k in kinds[after:] if k in ("request.submit", "interrupt.resolve", "tool.result")]
        assert order == ["request.submit", "interrupt.resolve", "tool.result"]
        assert "not today" in next(
            e["result"] for e in seen.events if e["type"] == "tool.result" and e["toolId"] == "c2"
        )
        sent_again = (await client.post("/api/submit", json=answer)).json()["data"]
        assert sent_again["accepted"], "the same request under its id"
        answer["requestId"] = "q2"
        again = (await client.post("/api/submit", json=answer)).json()["data"]
        assert (again["accepted"], again["status"]) == (False, "stale")
        answer["runId"] = "other"
        assert (await client.post("/api/submit", json=answer)).json()["data"]["status"] == "unmatched"


async def test_stream_false_answers_with_one_body_and_never_holds(client: httpx.AsyncClient, folder: Path) -> None:
    done = (await client.post("/api/query", json={"message": "x", "agentKey": "plain", "stream": False})).json()["data"]
    assert done["status"] == "completed" and done["answer"].startswith("Once upon") and done["usage"]["modelCalls"] == 1
    paused = (await client.post("/api/query", json={"message": "x", "agentKey": "ask", "stream": False})).json()["data"]
    assert paused["status"] == "waiting" and paused["interrupts"][0]["kind"] == "ask"
    path, answers = f"/api/threads/{paused['chatId']}/resume", {paused["interrupts"][0]["interruptId"]: "Ada"}
    for wrong in ({"x": "Ada"}, {paused["interrupts"][0]["interruptId"]: 7}):
        assert (await client.post(path, json={"answers": wrong})).status_code in (404, 422)
    assert (await client.post(path, json={})).status_code == 409, "it waits for people"
    gone_on = (await client.post(path, json={"answers": answers, "stream": False})).json()["data"]
    assert gone_on["status"] == "completed" and gone_on["answer"] == "Ada" and gone_on["runId"] == paused["runId"]


async def test_on_waiting_says_what_new_input_does_to_an_open_question(client: httpx.AsyncClient) -> None:
    body = {"message": "x", "agentKey": "ask", "stream": False, "chatId": "o"}
    first = (await client.post("/api/query", json=body)).json()["data"]
    refused = await client.post("/api/query", json=body)
    assert refused.status_code == 409 and refused.json()["data"]["error"]["code"] == "thread_waiting"
    seen = await ask(client, "Grace", agentKey="ask", chatId="o", onWaiting="answer")
    kinds = [e["type"] for e in seen.events]
    assert kinds[:3] == ["request.submit", "interrupt.resolve", "run.resume"] and kinds[-1] == "run.complete"
    assert seen.events[-1]["runId"] == first["runId"]
    second = (await client.post("/api/query", json=body)).json()["data"]
    third = (await client.post("/api/query", json={**body, "onWaiting": "cancel"})).json()["data"]
    assert third["runId"] != second["runId"] and third["status"] == "waiting"
    old = await take(client, "GET", f"/api/runs/{second['runId']}/events")
    assert [e["type"] for e in old.events][-1] == "run.cancel"
    (line,) = (await client.get("/api/inbox?threadId=o")).json()["data"]
    assert line["interruptId"] == third["interrupts"][0]["interruptId"]


async def test_an_expired_question_goes_its_way_without_an_answer(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE_S):
        paused = (await client.post("/api/query", json={"message": "x", "agentKey": "hurry", "stream": False})).json()[
            "data"
        ]
        path = f"/api/threads/{paused['chatId']}"
        while (await client.get(path)).json()["data"]["status"] != "idle":
            await asyncio.sleep(0.05)
        assert (await client.get(path + "/state")).json()["data"]["values"]["late"] is True
        late = {"chatId": paused["chatId"], "runId": paused["runId"], "payload": "x"}
        late["toolId"] = paused["interrupts"][0]["interruptId"]
        assert (await client.post("/api/submit", json=late)).json()["data"]["status"] == "stale"


HALF = {
    "graphflow": "1",
    "state": {
        "type": "object",
        "properties": {"messages": {"type": "array", "x-reducer": "messages"}, "k": {"type": ["string", "null"]}},
    },
    "start": "n",
    "nodes": {"n": {"use": "node:half", "next": "end"}},
}


async def test_half_a_character_that_a_node_left_in_the_state_hides_nothing_of_the_chat(folder: Path) -> None:
    """Names of files that are no UTF-8 come as such; what was streamed must be readable afterwards, too."""

    async def half(state: Any, ctx: Any) -> dict[str, Any]:
        await ctx.content("a\udcff b")
        return {"k": "\ud83d", "messages": [AIMessage(content="a\udcff b")]}

    (folder / "graphs" / "half.json").write_text(json.dumps(HALF), encoding="utf-8")
    app = make_application(folder)
    app.kinds.node("half", half)
    async with serving(app) as (client, _):
        live = await ask(client, agentKey="half", chatId="h")
        assert [event["delta"] for event in live.events if event["type"] == "content.delta"] == ["a\udcff b"]
        history = json.loads((await client.get("/api/chat?chatId=h")).content)["data"]["events"]
        assert [event["text"] for event in history if event["type"] == "content.snapshot"] == ["a\udcff b"]
        state = json.loads((await client.get("/api/threads/h/state")).content)["data"]["values"]
        assert state["k"] == "\ud83d" and state["messages"][-1]["content"] == "a\udcff b"
        assert [line["chatId"] for line in (await client.get("/api/chats?q=b")).json()["data"]] == ["h"]
        raw = await client.get("/api/chat?chatId=h&includeRawMessages=true")
        assert raw.json()["data"]["rawMessages"][-1]["content"] == "a\udcff b"


async def test_every_response_that_begins_or_continues_a_run_names_it_in_a_header(client: httpx.AsyncClient) -> None:
    async def header(method: str, url: str, **request: Any) -> str:
        async with client.stream(method, url, **request) as response:
            assert response.status_code in (200, 202, 204), await response.aread()
            await response.aread()
            return response.headers["Graphflow-Run-Id"]

    body = {"message": "x", "agentKey": "ask", "chatId": "c"}
    run_id = await header("POST", "/api/query", json={**body, "stream": False})
    (line,) = (await client.get("/api/inbox")).json()["data"]
    assert line["runId"] == run_id
    assert await header("GET", f"/api/runs/{run_id}/events") == run_id
    answer = {"chatId": "c", "runId": run_id, "interruptId": line["interruptId"], "payload": "Ann"}
    assert await header("POST", "/api/submit", json=answer) == run_id
    assert await header("GET", f"/api/runs/{run_id}/events", headers={"Last-Event-ID": "999-999"}) == run_id
    assert await header("POST", "/api/query", json={"message": "x", "agentKey": "plain", "chatId": "d"})
    assert await header("POST", "/api/query", json={"message": "x", "agentKey": "plain", "background": True})
    first = (await client.get("/api/threads/d/checkpoints")).json()["data"][-1]["id"]
    for stream in (True, False):
        assert await header("POST", "/api/threads/d/resume", json={"checkpointId": first, "stream": stream})
