"""`requestId`: the same request again joins what the first one began, on every server, and never runs twice (spec 3.1)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.service.runs import request_ids
from graphflow.testing.fakes import FakeClock
from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.server.conftest import ask, serving, take
from tests.server.swarm import swarm
from tests.server.test_users import ANN, BOB, with_tokens
from tests.server.test_webhooks import SETTINGS, Receiver, begin, client_of, receiver  # noqa: F401 - a fixture
from tests.service.clients import fold
from tests.service.conftest import Gate, make_application


async def post(client: httpx.AsyncClient, path: str = "/api/query", **fields: Any) -> httpx.Response:
    return await client.post(path, json=fields)


async def body_of(client: httpx.AsyncClient, **fields: Any) -> Any:
    response = await post(client, message="Hi", agentKey="plain", stream=False, **fields)
    assert response.status_code == 200, response.text
    return response.json()["data"]


async def runs_of(client: httpx.AsyncClient) -> list[str]:
    return [line["runId"] for line in (await client.get("/api/runs?limit=500")).json()["data"]]


async def test_the_same_request_again_gets_the_same_answer_and_another_body_is_refused(folder: Path) -> None:
    async with serving(make_application(folder)) as (client, _):
        first = await body_of(client, requestId="r")
        assert await body_of(client, requestId="r") == first
        other = await post(client, message="Ho", agentKey="plain", stream=False, requestId="r")
        assert (other.status_code, other.json()["data"]["error"]["code"]) == (409, "request_id_reused")
        assert await runs_of(client) == [first["runId"]]
        await body_of(client, requestId="s")
        await body_of(client)
        assert len(await runs_of(client)) == 3


async def test_a_stream_is_sent_again_whole_while_the_run_goes_on_and_after_it(
    client: httpx.AsyncClient, gate: Gate
) -> None:
    gate.close()
    request: dict[str, Any] = {"agentKey": "plain", "requestId": "r"}
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        both = [group.create_task(ask(client, **request)) for _ in range(2)]
        while not await runs_of(client):
            await asyncio.sleep(0.01)
        both.append(group.create_task(ask(client, **request)))
        gate.open()
    later = await ask(client, **request)
    first, *others = [task.result() for task in both]
    assert len(await runs_of(client)) == 1
    for other in (*others, later):
        assert fold(other.events) == fold(first.events)


async def test_a_request_that_is_queued_is_joined_in_the_queue(client: httpx.AsyncClient, gate: Gate) -> None:
    gate.close()
    busy: dict[str, Any] = {"agentKey": "plain", "chatId": "c"}
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(ask(client, **busy))
        while not await runs_of(client):
            await asyncio.sleep(0.01)
        again = [group.create_task(body_of(client, chatId="c", onBusy="enqueue", requestId="q")) for _ in range(3)]
        while len(await runs_of(client)) < 2:
            await asyncio.sleep(0.01)
        gate.open()
    first, *others = [task.result() for task in again]
    assert all(other == first for other in others) and len(await runs_of(client)) == 2


async def test_a_refused_request_may_be_sent_again(client: httpx.AsyncClient, gate: Gate) -> None:
    gate.close()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(ask(client, agentKey="plain", chatId="c"))
        while not await runs_of(client):
            await asyncio.sleep(0.01)
        for _ in range(2):
            refused = await post(client, message="Hi", agentKey="plain", stream=False, chatId="c", requestId="r")
            assert refused.json()["data"]["error"]["code"] == "thread_busy"
        gate.open()
    assert (await body_of(client, chatId="c", requestId="r"))["status"] == "completed"


async def test_answers_and_resumes_that_are_sent_again_count_once(folder: Path) -> None:
    async with serving(make_application(folder)) as (client, _):
        for chat, path in (("a", "/api/submit"), ("b", "/api/threads/b/resume")):
            fields: dict[str, Any] = {
                "message": "Hi",
                "agentKey": "ask",
                "chatId": chat,
                "stream": False,
                "requestId": "r" + chat,
            }
            waits = (await post(client, **fields)).json()["data"]
            asked = waits["interrupts"][0]["interruptId"]
            body: dict[str, Any] = {"requestId": "r"}
            if chat == "a":
                body |= {"chatId": chat, "runId": waits["runId"], "interruptId": asked, "payload": "Ann"}
            else:
                body |= {"answers": {asked: "Ann"}, "stream": False}
            first, *others = [(await post(client, path, **body)).json()["data"] for _ in range(3)]
            assert first["requestId"] == "r" and others == [first, first]
            changed = body | ({"payload": "Bob"} if chat == "a" else {"answers": {asked: "Bob"}})
            assert (await post(client, path, **changed)).status_code == 409
            seen = await take(client, "GET", f"/api/runs/{waits['runId']}/events")
            assert [event["type"] for event in seen.events].count("interrupt.resolve") == 1
            state = (await client.get(f"/api/threads/{chat}/state")).json()["data"]
            assert state["values"]["name"] == "Ann"
            assert (await post(client, **fields)).json()["data"]["answer"] == "Ann", "the query joins its run"


@pytest.mark.parametrize("route", ["regenerate", "edit", "resume"])
async def test_every_route_that_starts_a_run_takes_what_a_query_takes(
    folder: Path,
    receiver: Receiver,  # noqa: F811
    route: str,
) -> None:
    """Once per `requestId`, in the background, with word of it."""
    done: list[Any] = []

    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        done.append(state)
        if len(done) == 1:
            raise ValueError("not yet")
        return {"n": state["n"] + 1}

    app = make_application(folder, environ=SETTINGS)
    app.kinds.node("work", work)
    async with serving(app) as (client, _):
        asked = (await post(client, message="Hi", agentKey="story", chatId="c", stream=False)).json()["data"]
        said = (await client.get("/api/threads/c/messages")).json()["data"][-1]["messageId"]
        path = "/api/threads/c/resume" if route == "resume" else f"/api/threads/c/messages/{said}/{route}"
        fields: dict[str, Any] = {"message": "Ho"} if route == "edit" else {}
        wanted = fields | {"requestId": "b", "background": True, "webhook": receiver.url}
        begun = [await post(client, path, **wanted) for _ in range(3)]
        assert [answer.status_code for answer in begun] == [202] * 3, begun[0].text
        ids = {answer.json()["data"]["runId"] for answer in begun}
        (sent,) = await receiver.wait(1)
        assert ids == {sent["runId"]} != {asked["runId"]} and sent["status"] == "completed"
        other = await post(client, path, **wanted | {"effects": "rerun"})
        assert (other.status_code, other.json()["data"]["error"]["code"]) == (409, "request_id_reused")
        assert (await post(client, path, **fields, webhook=receiver.url)).status_code == 400, "only in the background"
        nobody = await post(client, path, **fields, background=True, onDisconnect="cancel")
        assert nobody.status_code == 400
        if route != "resume":
            said = (await client.get("/api/threads/c/messages")).json()["data"][-1]["messageId"]
            path = f"/api/threads/c/messages/{said}/{route}"
            first, *others = [
                (await post(client, path, **fields, requestId="s", stream=False)).json()["data"] for _ in range(3)
            ]
            assert others == [first, first] and first["requestId"] == "s" and first["status"] == "completed"
            assert len(done) == 3
        assert len(receiver.got) == 1


async def test_an_id_is_of_one_user(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        fields = {"message": "Hi", "agentKey": "plain", "stream": False, "requestId": "r"}
        hers, his = [(await client.post("/api/query", json=fields, headers=who)).json()["data"] for who in (ANN, BOB)]
        assert hers["runId"] != his["runId"] and hers["chatId"] != his["chatId"]
        other = await client.post("/api/query", json={**fields, "message": "Ho"}, headers=BOB)
        assert other.status_code == 409


async def test_a_background_request_again_is_the_same_run_and_one_webhook(
    folder: Path,
    receiver: Receiver,  # noqa: F811
) -> None:
    async with client_of(folder) as client:
        fields = {"agentKey": "plain", "requestId": "r", "webhook": receiver.url}
        ids = {(await begin(client, **fields))["runId"] for _ in range(3)}
        await receiver.wait(1)
        ids.add((await begin(client, **fields))["runId"])
        assert len(ids) == 1 and len(receiver.got) == 1


async def test_a_run_that_is_gone_is_not_begun_again(client: httpx.AsyncClient) -> None:
    first = await body_of(client, chatId="c", requestId="r")
    await client.delete(f"/api/threads/{first['chatId']}")
    again = await post(client, message="Hi", agentKey="plain", stream=False, chatId="c", requestId="r")
    assert (again.status_code, again.json()["data"]["error"]["code"]) == (404, "run_not_found")


async def test_ids_of_any_size_and_number_keep_the_store_small(client: httpx.AsyncClient) -> None:
    for wrong in ("x" * 1_000_000, "", "a\0b", 1):
        refused = await post(client, message="Hi", agentKey="plain", requestId=wrong)
        assert refused.status_code == 400 and len(refused.text) < 1000
    line = request_ids.AskedBefore(key=b"k" * 16, user=b"mine", body=b"b" * 16, at=5, run_id="r" * 36)
    crowd = [
        request_ids.AskedBefore(key=b"k" * 16, user=b"many", body=b"b" * 16, at=n, run_id="r" * 36) for n in range(400)
    ]
    kept = request_ids._decoder.decode(request_ids._encoded([line, *crowd]))
    assert line in kept and len(kept) == request_ids.MOST and kept[-1] == crowd[-1]
    assert len(request_ids._encoded(crowd)) < 40_000


class Body:
    def __init__(self, text: str) -> None:
        self.text = text

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"text": self.text}


async def test_what_a_dead_server_left_unfinished_is_begun_anew_and_a_day_later_everything_is(folder: Path) -> None:
    store, clock = MemoryCheckpointer(), FakeClock()
    application = make_application(folder, checkpointer=store, clock=clock)
    async with application:
        from graphflow.service.access import LOCAL

        async def ask_again(body: str = "b") -> request_ids.Claim:
            async with request_ids.once(application, LOCAL, "query", "r", Body(body)) as claim:
                if claim.before is None:
                    claim.accept(claim.run_id)
            return claim

        dead = request_ids.once(application, LOCAL, "query", "r", Body("b"))
        left = await dead.__aenter__()  # and never leaves
        asking = asyncio.ensure_future(ask_again())  # noqa: TID251 - awaited below
        await asyncio.sleep(0)
        clock.advance(request_ids.ABANDONED_MS / 1000 + 1)
        taken = await asyncio.wait_for(asking, PATIENCE_S)
        assert taken.before is None and taken.run_id != left.run_id
        clock.advance(23 * 3600)
        assert (await ask_again()).run_id == taken.run_id
        clock.advance(3600)
        assert (await ask_again("another")).before is None
        await dead.__aexit__(None, None, None)


async def test_a_request_is_joined_on_another_server_while_the_first_runs_and_after_it_was_killed(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with postgres.database() as url:
        async with swarm(tmp_path, [url]) as servers, asyncio.timeout(PATIENCE_S):
            a, b = await servers.start(2)
            servers.hold()
            fields = {"message": "x", "agentKey": "held", "requestId": "r", "background": True}
            answers = await asyncio.gather(*(s.client.post("/api/query", json=fields) for s in (a, b) * 5))
            ids = {answer.json()["data"]["runId"] for answer in answers}
            assert len(ids) == 1, "ten requests at once on two servers begin one run"
            await a.end(signal.SIGKILL)
            servers.let_go()
            again = (await b.client.post("/api/query", json=fields)).json()["data"]
            assert {again["runId"]} == ids
            while (await b.client.get(again["links"]["run"])).json()["data"]["status"] != "completed":
                await asyncio.sleep(0.05)
            assert len(servers.effects()) == 1
