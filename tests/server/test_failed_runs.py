"""What clients learn of a run that fails, and of its resume: its code and its place, nothing of the machine (spec 3, 3.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.events import NodeError, RunError
from graphflow.public_text import public_text
from graphflow.server.public_failures import public_event, public_failure
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.server.conftest import ask, serving, take
from tests.service.conftest import make_application

SECRET_PLACE = "https://inner.example:8443/v1/chat"


def failing(folder: Path) -> Application:
    """Whose node `work` fails with an error that names a path and an address."""
    app = make_application(folder)

    async def work(state: Any, ctx: Any) -> None:
        raise FileNotFoundError(2, f"{SECRET_PLACE} has no", str(folder / "deep" / "secret.txt"))

    app.kinds.node("work", work)
    return app


async def test_a_failed_run_that_is_returned_as_one_body_is_no_success(folder: Path) -> None:
    async with serving(failing(folder)) as (client, _):
        body = {"message": "hi", "agentKey": "story", "chatId": "c", "stream": False}
        response = await client.post("/api/query", json=body)
        told = response.json()
        assert response.status_code == told["code"] == 500 and told["msg"] != "success"
        assert told["data"]["error"]["code"] == "node_error" and told["data"]["error"]["message"] == told["msg"]
        assert told["data"]["error"]["detail"] == {} and told["data"]["error"]["node"] == "work"
        assert told["data"]["status"] == "failed" and told["data"]["chatId"] == "c" and told["data"]["runId"]
        limited = await client.post("/api/query", json={**body, "chatId": "d", "budget": {"maxSteps": 1}})
        assert limited.status_code == limited.json()["code"] == 422
        assert limited.json()["data"]["error"]["code"] == "budget_exceeded"


async def test_paths_and_addresses_of_the_server_are_not_shown(folder: Path) -> None:
    (folder / "graphs" / "broken.json").write_text('{"mode": "PLAIN", "plan": 1', encoding="utf-8")
    async with serving(failing(folder)) as (client, _):
        seen = await ask(client, agentKey="story", chatId="c")
        shown = [json.dumps(seen.events)]
        for url in ("/api/chat?chatId=c", "/api/agents", "/api/tools", "/api/threads/c", "/api/threads/c/checkpoints"):
            shown.append((await client.get(url)).text)
        shown.append(
            (await client.post("/api/query", json={"message": "x", "agentKey": "story", "stream": False})).text
        )
        for text in shown:
            assert str(folder) not in text and "inner.example" not in text, text
        assert "secret.txt" in shown[0] and "graphs/broken.json" in shown[2], "the name helps, the place does not"


async def test_the_address_of_a_provider_is_not_shown(folder: Path) -> None:
    environ = {
        "LLM_BASE_URL": "http://127.0.0.1:1/v1",
        "OPENAI_API_KEY": "k",
        "LLM_MODEL_ID": "m",
        "LLM_MAX_RETRIES": "0",
    }
    async with serving(Application(load_settings(folder, environ=environ))) as (client, _):
        response = await client.post("/api/query", json={"message": "x", "agentKey": "plain", "stream": False})
        assert response.json()["data"]["error"]["code"] == "connection" and response.status_code == 503
        assert "127.0.0.1" not in response.text and "/v1" not in response.text, response.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no such file: '/tmp/a/b.txt'", "no such file: 'b.txt'"),
        (r"no such file: 'C:\Users\ann\b.txt'", "no such file: 'b.txt'"),
        ("at postgresql://me@db.inner/x: refused", "at (address) refused"),
        ("/nodes/a/use: unknown; GET /api/threads/x", "/nodes/a/use: unknown; GET /api/threads/x"),
        ("1/2 of a/b", "1/2 of a/b"),
    ],
)
def test_a_public_text_keeps_names_pointers_and_routes(text: str, shown: str) -> None:
    assert public_text(text) == shown


def test_an_event_that_bears_an_error_is_shown_with_public_texts() -> None:
    error = {"code": "node_error", "message": "at https://inner.example/x", "detail": {"excerpt": ["/tmp/a/b"], "n": 1}}
    made = (RunError(run_id="r", error=error), NodeError(node="a", node_run_id="1", error=error, will_retry=False))
    for event in made:
        told = public_event(event)
        assert told.error == {"code": "node_error", "message": "at (address)", "detail": {"excerpt": ["b"], "n": 1}}  # type: ignore[attr-defined]
        assert event.error is error, "what is stored stays"


def test_an_error_speaks_the_words_of_http_in_events_and_resources() -> None:
    error = {"code": "not_serializable", "message": "rewind with effects='rerun', or pass on_waiting='cancel'"}
    told = 'rewind with "effects": "rerun", or pass "onWaiting": "cancel"'
    assert public_event(RunError(run_id="r", error=error)).error["message"] == told  # type: ignore[attr-defined]
    assert public_failure({"runId": "r", "error": error})["error"]["message"] == told


async def test_an_answer_that_is_not_accepted_says_why_in_the_words_of_http(client: httpx.AsyncClient) -> None:
    body = {"chatId": "nobody", "runId": "r", "toolId": "t", "payload": 1}
    told = (await client.post("/api/submit", json=body)).json()["data"]
    assert (told["status"], told["accepted"]) == ("unmatched", False)
    assert "GET /api/threads" in told["detail"] and "app." not in told["detail"]


@pytest.mark.parametrize("ending", ["failed", "out of budget", "cancelled"])
async def test_the_stream_of_a_resume_begins_with_its_first_event(folder: Path, ending: str) -> None:
    app = make_application(folder)
    failures = [True] if ending == "failed" else []

    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        for _ in range(40):  # more events than the resumed run sends
            await ctx.content("word ")
        if ending == "cancelled" and not failures:
            failures.append(True)
            app.runs.by_thread["c"].executor.cancel()
            await ctx.content("never")
        elif failures and ending == "failed":
            failures.pop()
            raise ValueError("not yet")
        return {"n": 1}

    app.kinds.node("work", work)
    async with serving(app) as (client, _):
        limits: dict[str, Any] = {"budget": {"maxSteps": 2}} if ending == "out of budget" else {}
        first = await ask(client, agentKey="story", chatId="c", **limits)
        assert first.events[-1]["type"] == ("run.cancel" if ending == "cancelled" else "run.error")
        resumed = await resume(client, {"budget": {"maxSteps": 100}} if ending == "out of budget" else {})
        assert [event["seq"] for event in resumed] == list(range(1, len(resumed) + 1))
        assert [event["type"] for event in resumed[:2]] == ["run.start", "run.resume"]
        assert resumed[-1]["type"] == "run.complete"


async def resume(client: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    return (await take(client, "POST", "/api/threads/c/resume", json=body)).events


async def test_role_and_references_of_a_query_are_checked(client: httpx.AsyncClient) -> None:
    for field, value in (
        ("role", "wizard"), ("role", ""), ("references", ["r1"]), ("references", [{}]), ("references", [{"name": "a"}]),
        ("references", [{"id": "a", "sizeBytes": -1}]), ("references", [{"id": "a", "mimetype": "x"}]), ("references", [{"id": []}]),
    ):  # fmt: skip
        response = await client.post("/api/query", json={"message": "x", "agentKey": "plain", field: value})
        assert response.status_code == 400, (field, value)
        (wrong,) = {name.partition(".")[0] for name in response.json()["data"]["fields"]}
        assert wrong == field
    given = [{"id": 1}, {"id": "a", "name": "b"}, {"url": "https://example.com/a", "meta": {"x": 1}}]
    seen = await ask(client, agentKey="plain", references=given, role="developer")
    assert seen.events[0]["references"] == given
