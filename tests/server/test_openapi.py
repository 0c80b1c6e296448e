"""The OpenAPI page is complete and true: whatever it allows is answered as it says, and never with a 500 (spec 3)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema_rs import ValidationError
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from graphflow.events import EVENT_TYPES
from graphflow.server.answers.table import ANSWERS
from graphflow.server.app import create_app
from graphflow.server.routes import operators
from graphflow.server.run import Server, make_server
from tests.campaign import size
from tests.patience import PATIENCE_S
from tests.server.conftest import serving
from tests.server.contract import check_event
from tests.server.test_users import OPS, with_tokens
from tests.service.conftest import make_application

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
QUICK = settings(
    max_examples=size(5, long=300), deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@contextmanager
def background(folder: Path) -> Iterator[str]:
    """The address of a server on a thread of its own; it never holds a stream open for an answer."""
    (folder / ".env").write_text("GRAPHFLOW_TOOLS_HOLD_MS=0", encoding="utf-8")
    begun = threading.Event()
    made: list[Server] = []

    async def main() -> None:
        made.append(make_server(make_application(folder), port=0, on_start=lambda _: begun.set()))
        await made[0].serve()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert begun.wait(30)
        yield made[0].url
    finally:
        made[0].should_exit = True
        thread.join()


@pytest.mark.campaign
def test_whatever_the_page_allows_is_answered_as_it_says(folder: Path) -> None:
    with background(folder) as url, httpx.Client(base_url=url) as client:
        api = schemathesis.openapi.from_url(f"{url}/openapi.json")
        asked: set[str] = set()
        for result in api.get_all_operations():
            operation = result.ok()  # type: ignore[union-attr] # an invalid page raises here
            known = {"message": "x", "agentKey": "story", "chatId": "known", "stream": False, "onWaiting": "cancel"}
            assert client.post("/api/query", json=known).status_code == 200

            @QUICK
            @given(case=operation.as_strategy(), of_known=st.booleans())
            def check(case: Any, of_known: bool) -> None:
                for place in (case.path_parameters, case.query):
                    for name in ("thread_id", "chatId", "toThread"):
                        if of_known and place and name in place:
                            place[name] = "known"
                response = case.call(base_url=url, timeout=PATIENCE_S)
                case.validate_response(response, checks=CHECKS)
                asked.add(f"{case.method} {case.operation.path}")

            check()
        assert len(asked) == sum(1 for _ in api.get_all_operations()) > 30


def page(folder: Path) -> dict[str, Any]:
    return create_app(make_application(folder)).openapi()


def test_every_endpoint_and_body_of_the_contract_is_on_the_page(folder: Path) -> None:
    paths = page(folder)["paths"]
    thread = "/api/threads/{thread_id}"
    for method, path in (
        ("get", "/api/agents"), ("get", "/api/agent"), ("get", "/api/tools"), ("get", "/api/tool"), ("get", "/api/viewport"),
        ("get", "/api/chats"), ("get", "/api/chat"), ("post", "/api/query"), ("post", "/api/submit"), ("post", "/api/upload"),
        ("get", "/api/runs/{run_id}/events"), ("get", thread), ("delete", thread), ("get", f"{thread}/checkpoints"),
        ("get", f"{thread}/state"), ("patch", f"{thread}/state"), ("get", f"{thread}/diff"), ("post", f"{thread}/rewind"),
        ("post", f"{thread}/fork"), ("post", f"{thread}/resume"), ("post", f"{thread}/cancel"), ("post", f"{thread}/signal"),
        ("get", "/api/inbox"), ("get", f"{thread}/blame"), ("get", f"{thread}/why"), ("get", f"{thread}/cost"),
        ("get", "/api/health"), ("get", "/api/ready"), ("get", "/metrics"),
    ):  # fmt: skip
        assert method in paths.get(path, {}), (method, path)
    bodies = {
        path: operation["requestBody"]["content"]
        for path, operations in paths.items()
        for operation in operations.values()
        if "requestBody" in operation
    }
    assert bodies["/api/query"] == {"application/json": {"schema": {"$ref": "#/components/schemas/QueryBody"}}}
    assert "file" in bodies["/api/upload"]["multipart/form-data"]["schema"]["required"]


def test_every_endpoint_says_in_a_few_words_what_it_does(folder: Path) -> None:
    """FastAPI's own summaries are the functions' names: `Start`, `Listed`."""
    summaries = [op["summary"] for operations in page(folder)["paths"].values() for op in operations.values()]
    verbs = "Add Answer Cancel Check Compare Delete Edit Explain Find Fork Get Join List Read Remove Resume Rewind Send Show Start Upload"
    assert {summary.partition(" ")[0] for summary in summaries} <= set(verbs.split())
    assert len(set(summaries)) == len(summaries) and all(" " in summary for summary in summaries)


def test_the_page_refers_to_nothing_that_it_does_not_hold(folder: Path) -> None:
    made = page(folder)
    schemas = made["components"]["schemas"]
    text = json.dumps(made)
    for part in text.split('"$ref": "')[1:]:
        pointer = part.partition('"')[0]
        assert pointer.removeprefix("#/components/schemas/") in schemas, pointer


def test_every_answer_has_a_type_and_the_union_of_events_has_them_all(folder: Path) -> None:
    made = page(folder)
    typed = set()
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            if "application/json" in (content := operation["responses"]["200"].get("content", {})):
                typed.add(f"{method} {path}")
                data = content["application/json"]["schema"]["properties"]["data"]
                assert data or path == "/api/viewport", "any JSON is a type of nothing"
    assert typed == set(ANSWERS)
    schemas = made["components"]["schemas"]
    event = schemas["Event"]
    assert set(event["discriminator"]["mapping"]) == set(EVENT_TYPES)
    assert [{"$ref": ref} for ref in event["discriminator"]["mapping"].values()] == event["oneOf"]
    for tag, ref in event["discriminator"]["mapping"].items():
        assert schemas[ref.rpartition("/")[2]]["properties"]["type"]["const"] == tag


@pytest.mark.parametrize(
    "event",
    [
        {"type": "run.cancel", "runId": 1, "seq": 1, "timestamp": 1},
        {"type": "run.cancel", "runId": "r", "timestamp": 1},
        {"type": "run.cancel", "runId": "r", "seq": 1, "timestamp": 1, "more": 1},
        {"type": "run.cancelled", "runId": "r", "seq": 1, "timestamp": 1},
        {"type": "run.error", "runId": "r", "error": {"code": "internal"}, "seq": 1, "timestamp": 1},
    ],
)
def test_an_event_that_the_document_does_not_allow_fails_the_check_of_all_streams(event: dict[str, Any]) -> None:
    with pytest.raises((ValidationError, AssertionError)):
        check_event(event)


def test_only_probes_are_let_in_without_a_token(folder: Path) -> None:
    open_ = {path for path, ops in page(folder)["paths"].items() for op in ops.values() if "security" not in op}
    assert open_ == {route.path for route in operators.router.routes if isinstance(route, APIRoute)} - {"/metrics"}


@pytest.mark.parametrize("headers", [{}, OPS])
async def test_who_has_no_token_is_told_so_at_every_endpoint(folder: Path, headers: dict[str, str]) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        paths = (await client.get("/openapi.json")).json()["paths"]
        for path, operations in paths.items():
            for method, operation in operations.items():
                if "security" in operation:
                    url = path.replace("{", "").replace("}", "")
                    answer = await client.request(method, url, content=b"[]", headers=headers)
                    assert (answer.status_code == 401) == (not headers), (method, path, answer.text)
