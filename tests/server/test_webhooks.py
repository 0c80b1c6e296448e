"""Runs in the background, and webhooks: word of a run reaches its receiver at least once, signed (spec 3.1)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.errors import DefinitionError
from graphflow.service.runs import webhooks
from graphflow.service.runs.webhooks import signing_keys
from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.server.conftest import ask, serving
from tests.server.swarm import swarm
from tests.service.conftest import Gate, make_application

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
SETTINGS = {
    "GRAPHFLOW_WEBHOOKS_SECRETS": f"{SECRET},older secret",
    "GRAPHFLOW_WEBHOOKS_PRIVATE_HOSTS": "127.0.0.1",
    "GRAPHFLOW_WEBHOOKS_RETRY_S": "0.01",
}
ROOT = Path(__file__).parents[2]


class Receiver:
    """A server that takes webhooks, and answers each with the next of its statuses, then with 200."""

    def __init__(self) -> None:
        self.url = ""
        self.statuses: list[int] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        self._more = asyncio.Condition()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        status = self.statuses.pop(0) if self.statuses else 200
        more = f"Location: {self.url}/elsewhere\r\n" if status == 302 else ""
        writer.write(f"HTTP/1.1 {status} x\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        async with self._more:
            self.got.append(({**headers, ":line": head[0]}, body))
            self._more.notify_all()

    async def wait(self, count: int) -> list[dict[str, Any]]:
        """The runs that were sent, once there are so many."""
        async with asyncio.timeout(PATIENCE_S), self._more:
            await self._more.wait_for(lambda: len(self.got) >= count)
            return [json.loads(body) for _, body in self.got]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "INTERVAL_S", 0.02)


@asynccontextmanager
async def client_of(
    folder: Path, more: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(make_application(folder, environ={**SETTINGS, **(more or {})}, **options)) as (client, _):
        yield client


async def begin(client: httpx.AsyncClient, **fields: Any) -> Any:
    response = await client.post("/api/query", json={"message": "Hi", "background": True, **fields})
    assert response.status_code == 202, response.text
    assert response.headers["location"] == response.json()["data"]["links"]["run"]
    return response.json()["data"]


async def test_a_run_in_the_background_is_accepted_at_once_and_goes_on(folder: Path, gate: Gate) -> None:
    async with client_of(folder, gate=gate) as client:
        gate.close()
        first = await begin(client, agentKey="plain", chatId="c", requestId="r")
        second = await begin(client, agentKey="plain", chatId="c", onBusy="enqueue")
        assert (first["status"], first["requestId"]) == ("running", "r")
        assert (second["status"], second["queuePosition"]) == ("queued", 1)
        for begun in (first, second):
            assert (await client.get(begun["links"]["run"])).json()["data"]["status"] == begun["status"]
        gate.open()
        for begun in (first, second):
            async with client.stream("GET", begun["links"]["events"]) as response:
                assert "run.complete" in (await response.aread()).decode()


def test_the_guides_code_verifies_signatures() -> None:
    """The code of docs/how-to/background-runs.md."""
    page = (ROOT / "docs/how-to/background-runs.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(import base64.*?)```", page, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)
    check: Callable[..., bool] = names["is_genuine"]
    at, body = 1_900_000_000, b'{"status": "completed"}'
    signature = base64.b64encode(hmac.digest(KEY, b"id.%d." % at + body, hashlib.sha256)).decode()
    headers = {"webhook-id": "id", "webhook-timestamp": str(at), "webhook-signature": f"v1,AAAA v1,{signature}"}
    assert check(SECRET, headers, body, now=at + 10)
    assert not check(SECRET, headers, body + b" ", now=at)
    assert not check(SECRET, headers, body, now=at + 3600), "an old message may be a replay"
    assert not check(SECRET, {**headers, "webhook-id": "other"}, body, now=at)


async def test_a_webhook_is_sent_signed_when_the_run_waits_and_when_it_ends(folder: Path, receiver: Receiver) -> None:
    async with client_of(folder) as client:
        begun = await begin(client, agentKey="ask", chatId="c", webhook=f"{receiver.url}/hook?for=me")
        (waits,) = await receiver.wait(1)
        assert (waits["status"], waits["runId"]) == ("waiting", begun["runId"])
        assert waits == (await client.get(begun["links"]["run"])).json()["data"]
        answers = {waits["interrupts"][0]["interruptId"]: "Ann"}
        await client.post("/api/threads/c/resume", json={"answers": answers, "stream": False})
        _, ended = await receiver.wait(2)
        assert (ended["status"], ended["answer"]) == ("completed", "Ann")
        (first, body), (second, _) = receiver.got
        assert first[":line"] == "POST /hook?for=me HTTP/1.1" and first["content-type"] == "application/json"
        assert first["webhook-id"] != second["webhook-id"]
        content = f"{first['webhook-id']}.{first['webhook-timestamp']}.".encode() + body
        keys = (KEY, b"older secret")
        expected = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys]
        assert first["webhook-signature"] == " ".join(f"v1,{signature}" for signature in expected)


@pytest.mark.parametrize("way", ["submit", "resume", "query", "signal"])
async def test_a_run_that_was_answered_is_told_of_again_when_it_asks_again(
    folder: Path, receiver: Receiver, way: str
) -> None:
    first = {"ask": {"message": "first?", "schema": {"type": "string"}}, "next": "second"}
    if way == "signal":
        first = {"use": "wait", "with": {"signal": "go"}, "next": "second"}
    nodes = {"first": first, "second": {"ask": {"message": "second?"}, "next": "end"}}
    data = {"graphflow": "1", "start": "first", "nodes": nodes}
    (folder / "graphs" / "twice.json").write_text(json.dumps(data), encoding="utf-8")
    # For as long as this the process that goes on with the run would wait for the answer itself.
    async with client_of(folder, {"GRAPHFLOW_TOOLS_HOLD_MS": "600000"}) as client:
        begun = await begin(client, agentKey="twice", chatId="c", webhook=receiver.url)
        (waits,) = await receiver.wait(1)
        asked = waits["interrupts"][0]["interruptId"]
        bodies: dict[str, tuple[str, dict[str, Any]]] = {
            "submit": ("/api/submit", {"chatId": "c", "runId": begun["runId"], "interruptId": asked, "payload": "x"}),
            "resume": ("/api/threads/c/resume", {"answers": {asked: "x"}, "background": True}),
            "query": ("/api/query", {"chatId": "c", "message": "x", "onWaiting": "answer", "background": True}),
            "signal": ("/api/threads/c/signal", {"name": "go"}),
        }
        path, body = bodies[way]
        answer = await client.post(path, json=body)
        assert answer.status_code in (200, 202), answer.text
        _, again = await receiver.wait(2)
        assert (again["status"], again["interrupts"][0]["node"]) == ("waiting", "second")


async def test_a_webhook_is_tried_again_as_the_same_message_until_it_is_taken(
    folder: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [500, 302]
    with caplog.at_level(logging.INFO, logger="graphflow"):
        async with client_of(folder, script={"turns": [{"text": "Hello."}]}) as client:
            await begin(client, agentKey="plain", webhook=f"{receiver.url}/hook?token=hidden")
            sent = await receiver.wait(3)
            assert [run["answer"] for run in sent] == ["Hello."] * 3
            assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
            assert all(headers[":line"].startswith("POST /hook") for headers, _ in receiver.got), (
                "no redirect is followed"
            )
    assert "attempt 1" in caplog.text and "hidden" not in caplog.text and SECRET not in caplog.text


async def test_what_can_not_be_sent_to_is_refused_before_anything_runs(folder: Path) -> None:
    async with client_of(folder) as client:
        for url in (
            "nothing", "ftp://127.0.0.1/x", "http://10.0.0.1/", "http://[::1]/", "http://localhost:1/", "http://127.0.0.2",
            "http://user:hushed@127.0.0.1/", "http://169.254.169.254/latest", "x" * 3000,
            "http://93.184.215.14:99999/", "http://93.184.215.14:0/", "http://[2606:4700::1]:65536/",
        ):  # fmt: skip
            for fields in ({"background": True}, {}):
                body = {"message": "Hi", "agentKey": "plain", "webhook": url, **fields}
                refused = await client.post("/api/query", json=body)
                assert "webhook" in refused.json()["data"]["fields"]
                assert refused.status_code == 400, (url, refused.text)
                assert "hushed" not in refused.text and "10.0.0.1" not in refused.text
        refused = await client.post("/api/query", json={"message": "Hi", "background": True, "onDisconnect": "cancel"})
        assert refused.status_code == 400
        assert (await client.get("/api/runs")).json()["data"] == []


async def test_a_name_that_leads_inside_later_reaches_nothing(
    folder: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """DNS rebinding: the address is checked for each connection, and is the one that is connected to."""
    real, addresses = asyncio.BaseEventLoop.getaddrinfo, ["93.184.216.34"]

    async def resolve(self: Any, host: Any, port: Any, **options: Any) -> Any:
        if host != "rebind.example":
            return await real(self, host, port, **options)
        return [(2, 1, 6, "", (addresses.pop() if addresses else "127.0.0.1", port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    with caplog.at_level(logging.INFO, logger="graphflow"):
        async with client_of(folder) as client:
            url = receiver.url.replace("127.0.0.1", "rebind.example")
            await begin(client, agentKey="plain", webhook=url)
            async with asyncio.timeout(PATIENCE_S):
                while "its host has no public address" not in caplog.text:
                    await asyncio.sleep(0.01)
    assert receiver.got == []


async def test_a_receiver_that_is_gone_or_never_answers_is_given_up(
    folder: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [500, 410, 500, 500, 500, 500]
    with caplog.at_level(logging.WARNING, logger="graphflow"):
        async with client_of(folder, more={"GRAPHFLOW_WEBHOOKS_MAX_ATTEMPTS": "3"}) as client:
            for count in (2, 5):
                await begin(client, agentKey="plain", webhook=receiver.url)
                await receiver.wait(count)
                async with asyncio.timeout(PATIENCE_S):
                    while caplog.text.count("given up") < 1 + (count == 5):
                        await asyncio.sleep(0.01)
            assert len(receiver.got) == 5


async def test_without_a_secret_no_webhook_is_accepted(folder: Path, receiver: Receiver) -> None:
    async with serving(make_application(folder)) as (client, _):
        body = {"message": "Hi", "agentKey": "plain", "background": True, "webhook": receiver.url}
        refused = await client.post("/api/query", json=body)
        assert "webhooks.secrets" in refused.json()["data"]["fields"]["webhook"]
    with pytest.raises(DefinitionError, match=r"webhooks\.secrets"):
        signing_keys(["whsec_not base64!"])


async def test_a_queued_run_that_is_withdrawn_is_sent_as_cancelled(
    folder: Path, gate: Gate, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the deliveries have looked at it before, and nothing of its thread has changed since."""
    looked, handle = asyncio.Event(), webhooks.Webhooks._handle

    async def noted(self: webhooks.Webhooks, *given: Any) -> None:
        await handle(self, *given)
        looked.set()

    monkeypatch.setattr(webhooks.Webhooks, "_handle", noted)
    async with client_of(folder, gate=gate) as client:
        gate.close()
        await begin(client, agentKey="plain", chatId="c")
        queued = await begin(client, agentKey="plain", chatId="c", onBusy="enqueue", webhook=receiver.url)
        await looked.wait()
        await client.delete(f"/api/threads/c/queue/{queued['runId']}")
        (sent,) = await receiver.wait(1)
        assert (sent["runId"], sent["status"]) == (queued["runId"], "cancelled")
        gate.open()
        await ask(client, agentKey="plain", chatId="c", onBusy="enqueue")


async def test_a_killed_servers_webhooks_are_delivered_by_another(
    postgres: PostgresServer, tmp_path: Path, receiver: Receiver
) -> None:
    """Also after the receiver was away for a while."""
    settings = {name.removeprefix("GRAPHFLOW_").lower(): value for name, value in SETTINGS.items()}
    with postgres.database() as url:
        async with swarm(tmp_path, [url], **settings) as servers, asyncio.timeout(PATIENCE_S):
            (first,) = await servers.start()
            servers.hold()
            receiver.statuses = [503] * 3
            waits = await begin(first.client, agentKey="ask", webhook=receiver.url)
            runs = await begin(first.client, agentKey="held", chatId="t", webhook=receiver.url)
            await receiver.wait(1)
            await first.end(signal.SIGKILL)
            servers.let_go()
            second, _ = await servers.start(2)
            sent = await receiver.wait(5)
            final = {run["runId"]: run["status"] for run in sent}
            assert final == {waits["runId"]: "waiting", runs["runId"]: "completed"}
            assert len(receiver.got) == 5, "two servers send it once"
            assert (await second.client.get(runs["links"]["run"])).json()["data"]["status"] == "completed"
