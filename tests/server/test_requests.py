"""Requests and refusals: the envelope, fifty broken requests, tokens, agents with errors, threads (spec 3)."""

from __future__ import annotations

import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from graphflow.errors import DefinitionError, GraphflowError
from graphflow.server import bodies as bodies_module
from graphflow.server.app import create_app
from graphflow.server.auth import parse_tokens
from graphflow.server.bodies import JsonBody, QueryBody, ResumeBody, SubmitBody, parse
from graphflow.server.run import make_server
from tests.campaign import size
from tests.patience import PATIENCE_S
from tests.server.conftest import ask, serving, take
from tests.service.conftest import make_application

OK = {"message": "x", "agentKey": "plain"}
DEEP = "[" * 70 + "]" * 70
BROKEN: list[tuple[str, str, Any]] = [
    ("POST", "/api/query", content)
    for content in (
        b"", b"{", b"null", b"[]", b"7", b'"x"', b"\xff\xfe", b"{}", b'{"message": NaN}', b'{"message":"\\ud800"}',
        b'{"message":1}', b'{"message":null}', b'{"message":""}', b'{"message":"  "}', b'{"message":["x"]}',
        b'{"mesage":"x"}', b'{"message":"x","extra":1}', b'{"message":"x","chatId":"a/b"}', b'{"message":"x","chatId":"a..b"}',
        b'{"message":"x","chatId":7}', b'{"message":"x","chatId":"' + b"a" * 129 + b'"}', b'{"message":"x","agentKey":"nobody"}',
        b'{"message":"x","references":{}}', b'{"message":"x","params":[]}', b'{"message":"x","stream":"no"}',
        b'{"message":"x","events":["all"]}', b'{"message":"x","events":"graph"}', b'{"message":"x","maxRounds":0}',
        b'{"message":"x","maxSteps":1.5}', b'{"message":"x","budget":{"maxStps":1}}', b'{"message":"x","budget":7}',
        b'{"message":"x","budget":{"maxTokens":1e300}}', b'{"message":"x","budget":{"maxCostUsd":1e400}}',
        b'{"message":"x","onBusy":"wait"}', b'{"message":"x","onBusy":7}', b'{"message":"x","onWaiting":"maybe"}',
        b'{"message":"x","interruptBefore":[1]}', b'{"message":"x","params":{"a":' + DEEP.encode() + b"}}",
        b'{"message":"x","scene":' + b"[" * 5000 + b"}", b'{"message":"x","onDisconnect":1}', b'{"message":"x","role":7}',
    )
] + [
    ("POST", "/api/submit", b"{}"), ("POST", "/api/submit", b'{"chatId":"a","runId":"b","toolId":""}'),
    ("POST", "/api/submit", b'{"chatId":"a","runId":"b","payload":1}'),
    ("GET", "/api/agent", None), ("GET", "/api/agent?agentKey=nobody", None), ("GET", "/api/tool?toolName=nothing", None),
    ("GET", "/api/chat", None), ("GET", "/api/chat?chatId=nope", None), ("GET", "/api/chat?chatId=a/../b", None),
    ("GET", "/api/chat?chatId=nope&includeEvents=true", None), ("GET", "/api/chats?limit=0", None),
    ("GET", "/api/chats?limit=x", None), ("GET", "/api/chats?cursor=gone", None), ("GET", "/api/inbox?cursor=x", None),
    ("GET", "/api/threads/nope", None), ("GET", "/api/threads/nope/checkpoints", None), ("GET", "/api/threads/%00/state", None),
    ("GET", "/api/threads/known/state?checkpointId=nope", None), ("GET", "/api/threads/known/diff?from=a", None),
    ("GET", "/api/threads/known/diff?from=a&to=b", None), ("GET", "/api/threads/known/checkpoints?cursor=nope", None),
    ("PATCH", "/api/threads/known/state", b'{"values":{"nokey":1}}'), ("PATCH", "/api/threads/known/state", b'{"values":[]}'),
    ("PATCH", "/api/threads/known/state", b'{"values":{},"asNode":"nobody"}'),
    ("POST", "/api/threads/known/rewind", b"{}"), ("POST", "/api/threads/known/rewind", b'{"checkpointId":"nope"}'),
    ("POST", "/api/threads/known/fork", b'{"threadId":"a/b"}'), ("POST", "/api/threads/known/fork", b'{"threadId":"known"}'),
    ("POST", "/api/threads/known/resume", b'{"answers":[]}'), ("POST", "/api/threads/known/resume", b'{"answers":{"x":1}}'),
    ("POST", "/api/threads/known/resume", b""), ("POST", "/api/threads/nope/cancel", None), ("DELETE", "/api/threads/nope", None),
    ("GET", "/api/runs/nope/events", None), ("GET", "/api/nothing", None), ("PUT", "/api/query", b"{}"),
]  # fmt: skip


async def test_broken_requests_are_refused_in_the_envelope_and_never_with_500(client: httpx.AsyncClient) -> None:
    await ask(client, agentKey="story", chatId="known")
    before = (await client.get("/api/threads/known/state")).json()
    assert len(BROKEN) > 50
    for method, url, content in BROKEN:
        response = await client.request(method, url, content=content)
        body = response.json()
        where = f"{method} {url} {content!r:.80}: {body}"
        assert 400 <= response.status_code < 500, where
        assert body["code"] == response.status_code and body["msg"] and isinstance(body["data"], dict), where
        assert set(body) == {"code", "msg", "data"}
    assert (await client.get("/api/threads/known/state")).json() == before
    assert len((await client.get("/api/chats")).json()["data"]) == 1, "no refused query leaves a chat behind"


async def test_a_wrong_field_is_named(client: httpx.AsyncClient) -> None:
    for body, field in (
        ({**OK, "colour": 1}, "colour"),
        ({"agentKey": "plain"}, "message"),
        ({**OK, "maxRounds": 0}, "maxRounds"),
        ({**OK, "maxSteps": 5}, "maxSteps"),
        ({**OK, "effects": "perhaps"}, "effects"),
        ({**OK, "effects": {"*": 7}}, "effects"),
        ({**OK, "budget": {"maxStps": 1}}, "budget"),
        ({**OK, "budget": {"onExceeded": "x"}}, "budget"),
        ({**OK, "interruptBefore": ["anser"]}, "interruptBefore"),
    ):
        response = await client.post("/api/query", json=body)
        assert response.status_code == 400 and field in response.json()["data"]["fields"]
    assert "colour" in (await client.post("/api/query", json={**OK, "colour": 1})).json()["msg"]


@pytest.mark.parametrize(
    ("method", "url", "body", "msg"),
    [
        ("POST", "/api/query", b"null", "body: must be a JSON object, not null"),
        ("POST", "/api/query", b"[]", "body: must be a JSON object, not an array"),
        (
            "POST",
            "/api/query",
            b'{"message":"x","agentKey":"plain","interruptBefore":["anser"]}',
            "did you mean 'answer'?",
        ),
        (
            "POST",
            "/api/query",
            b'{"message":"x","agentKey":"plain","budget":{"maxStps":1}}',
            "did you mean 'maxSteps'?",
        ),
        (
            "POST",
            "/api/query",
            b'{"message":"x","agentKey":"plain","maxSteps":5}',
            "maxSteps: unknown field: it is called 'maxRounds' now",
        ),
        ("POST", "/api/query", b'{"message":', "body: not valid JSON"),
        (
            "POST",
            "/api/query",
            b'{"message":"9e999","params":{"a":-1E+400}}',
            "body: the number -1E+400 is larger than a double can be; send it as text",
        ),
        ("POST", "/api/query", b"[" * 5_000, "body: nested deeper than 64 levels"),
        ("POST", "/api/query", b'{"params":%s}' % (b"[" * 5_000 + b"]" * 5_000), "body: nested deeper than 64 levels"),
        (
            "POST",
            "/api/query",
            b'{"message":"x","mesage":1}',
            "mesage: unknown field; did you mean 'message'? one of agentKey,",
        ),
        ("POST", "/api/query", b'{"message":"x","zzzz":1}', "zzzz: unknown field; one of agentKey, background,"),
        (
            "POST",
            "/api/query",
            b'{"message":"x","references":[{"id":"a","ulr":1}]}',
            "references.0.ulr: unknown field; did you mean 'url'?",
        ),
        ("POST", "/api/threads/t/fork", b'{"zzzz":1}', "zzzz: unknown field; one of checkpointId, effects, threadId"),
        ("POST", "/api/query", b'{"message":"x","chatId":"a\\u0000"}', "chatId: must not hold the character U+0000"),
        ("POST", "/api/query", b'{"message":"x","messge":"y","message":"z"}', "message: given twice in one object"),
        (
            "POST",
            "/api/query",
            b'{"message":"x","params":{"rows":[{"id":1},{"id":1,"\\u0069d":2}]}}',
            "id: given twice in one object",
        ),
        ("POST", "/api/query", b"{}", "message: required and not given"),
        ("POST", "/api/query", b'{"message":null}', "message: must be a string, not null"),
        ("POST", "/api/query", b'{"message":"x","stream":"false"}', "stream: must be true or false, not 'false'"),
        ("POST", "/api/query", b'{"message":"x","budget":[1]}', "budget: must be an object, not an array"),
        ("POST", "/api/query", b'{"message":"x","maxRounds":0}', "maxRounds: must be at least 1, not 0"),
        ("POST", "/api/query", b'{"message":"x","onBusy":true}', "'interrupt' or 'rollback', not true"),
        ("GET", "/api/chats?limit=many", b"", "limit: must be an integer, not 'many'"),
        ("GET", "/api/chats?limit=0", b"", "limit: must be at least 1, not '0'"),
        (
            "GET",
            "/api/inbox?treadId=t",
            b"",
            "treadId: unknown parameter; parameters are owner, role, agentKey, threadId",
        ),
        ("GET", "/api/inbox?threadId=a&threadId=b", b"", "threadId: given more than once"),
        ("GET", "/api/health?verbose=1", b"", "verbose: unknown parameter; parameters are none"),
        ("DELETE", "/api/threads/t?force=true", b"", "force: unknown parameter"),
        ("POST", "/api/upload", b"", "the header Content-Type is missing"),
    ],
)
async def test_a_refusal_says_what_is_wrong_and_what_to_write(
    client: httpx.AsyncClient, method: str, url: str, body: bytes, msg: str
) -> None:
    response = await client.request(method, url, content=body)
    assert response.status_code == 400 and msg in response.json()["msg"], response.text


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("/api/threads/a%00b", "threadId"), ("/api/runs/%00/events", "runId"), ("/api/chats?cursor=%00", "cursor"),
        ("/api/chats?agentKey=%00", "agentKey"), ("/api/inbox?owner=a%00", "owner"), ("/api/usage?agentKey=%00", "agentKey"),
        ("/api/threads/t/state?checkpointId=%00", "checkpointId"),
    ],
)  # fmt: skip
async def test_the_character_that_postgresql_can_not_hold_is_refused_by_its_field(
    client: httpx.AsyncClient, url: str, field: str
) -> None:
    response = await client.get(url)
    assert response.status_code == 400 and field in response.json()["data"]["fields"]
    submit = {"chatId": "c", "runId": "\0", "toolId": "t", "payload": "\0 may stand here"}
    refused = await client.post("/api/submit", json=submit)
    assert refused.status_code == 400 and set(refused.json()["data"]["fields"]) == {"runId"}


def test_every_id_and_key_of_a_body_refuses_that_character() -> None:
    """PostgreSQL refuses it too, but can't name the field."""
    bodies = [
        model for model in vars(bodies_module).values() if isinstance(model, type) and issubclass(model, JsonBody)
    ]
    names = [(model, name) for model in bodies for name in model.model_fields if name.endswith(("_id", "_key"))]
    assert len(names) > 10
    for model, name in names:
        with pytest.raises(ValidationError) as caught:
            model.model_validate({model.model_fields[name].alias or name: "a\0b"})
        assert "string_pattern_mismatch" in {error["type"] for error in caught.value.errors()}, (model, name)


@pytest.mark.parametrize(
    "url",
    ["/api/chats?cursor=x", "/api/chats?q=a&cursor=x", "/api/inbox?cursor=x", "/api/threads/t/checkpoints?cursor=x"],
)
async def test_a_cursor_that_is_none_is_refused_by_its_field(client: httpx.AsyncClient, url: str) -> None:
    await ask(client, agentKey="plain", chatId="t")
    response = await client.get(url)
    assert response.status_code == 400 and "start over" in response.json()["data"]["fields"]["cursor"]


async def test_a_large_body_is_checked_like_a_small_one(client: httpx.AsyncClient) -> None:
    rows = b"[" + b'{"id":1},' * 20_000 + b"1]"
    for body, field in ((b'{"params":{"x":%b}}' % rows, "message"), (b'{"message":"x","x":%b,"x":1}' % rows, "x")):
        response = await client.post("/api/query", content=body)
        assert response.status_code == 400 and field in response.json()["data"]["fields"]


async def test_a_page_for_people_ignores_what_was_appended_to_its_address(client: httpx.AsyncClient) -> None:
    for page in ("/?utm_source=mail", "/docs?utm_source=mail"):
        assert (await client.get(page)).status_code == 200


async def test_a_body_over_the_limit_is_refused_with_413(folder: Path) -> None:
    (folder / ".env").write_text("GRAPHFLOW_SERVER_MAX_BODY_BYTES=1000\n", encoding="utf-8")

    async def endless() -> Any:
        for _ in range(100):
            yield b"x" * 100

    async with serving(make_application(folder)) as (client, _):
        for content in (b'{"message":"' + b"x" * 2000 + b'"}', endless()):
            response = await client.post("/api/query", content=content)
            assert (response.status_code, response.json()["code"]) == (413, 413)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.sampled_from(
    [field.alias or name for name, field in {**QueryBody.model_fields, **SubmitBody.model_fields}.items()]
)


@pytest.mark.campaign
@settings(max_examples=size(150, long=7_500), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(_FIELDS, _JSON, max_size=5), st.binary(max_size=20))
def test_any_body_is_read_or_refused_with_its_fields(value: dict[str, Any], noise: bytes) -> None:
    for model in (QueryBody, SubmitBody, ResumeBody):
        for data in (json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), noise):
            if (refusal := _refusal(model, data)) is not None:
                assert refusal.code == "invalid_input" and refusal.detail["fields"]


def _refusal(model: Any, data: bytes) -> GraphflowError | None:
    try:
        parse(model, data)
    except GraphflowError as error:
        return error
    return None


# --- tokens --------------------------------------------------------------------------------------


async def test_tokens_let_in_by_scope(folder: Path) -> None:
    (folder / ".env").write_text("GRAPHFLOW_TOKENS=root-secret,viewer:read:look-secret\n", encoding="utf-8")
    async with serving(make_application(folder)) as (client, _):

        def bearer(token: str) -> dict[str, str]:
            return {"Authorization": f"Bearer {token}"}

        assert (await client.get("/api/health")).status_code == 200
        nobody = await client.get("/api/agents")
        assert (
            nobody.status_code == 401
            and nobody.headers["www-authenticate"] == "Bearer"
            and nobody.json()["code"] == 401
        )
        assert (await client.get("/api/agents", headers=bearer("wrong"))).status_code == 401
        assert (await client.get("/api/agents", headers=bearer("look-secret"))).status_code == 200
        refused = await client.post("/api/query", json=OK, headers=bearer("look-secret"))
        assert refused.status_code == 403 and "run" in refused.json()["msg"] and "secret" not in refused.text
        assert (await client.post("/api/query", json=OK, headers=bearer("root-secret"))).status_code == 200
        assert (await client.delete("/api/threads/x", headers=bearer("look-secret"))).status_code == 403


def test_an_unknown_scope_is_refused_without_showing_the_secret() -> None:
    with pytest.raises(DefinitionError) as refused:
        parse_tokens(["ci:read+fly:hidden"])
    assert "fly" in str(refused.value) and "hidden" not in str(refused.value)


@pytest.mark.parametrize("entry", ["", " ", "web:read:", "web@ann:*: "])
def test_a_token_without_a_secret_is_refused(entry: str) -> None:
    """`web:read:$UNSET` must be no secret of its own, which anyone can guess and which may do all."""
    with pytest.raises(DefinitionError, match="token 2 has no secret"):
        parse_tokens(["ci:read:hidden", entry])


async def test_a_server_of_python_refuses_an_empty_token(folder: Path) -> None:
    async with make_application(folder) as application:
        with pytest.raises(DefinitionError, match="has no secret"):
            make_server(application, port=0, token="")


async def test_an_address_that_others_reach_needs_a_token(folder: Path) -> None:
    for host in ("0.0.0.0", "::", "example.org"):
        with pytest.raises(GraphflowError, match="token"):
            make_server(make_application(folder), host=host)
        make_server(make_application(folder), host=host, token="t")
    make_server(make_application(folder), host="localhost")


# --- agents and tools ----------------------------------------------------------------------------


async def test_a_broken_agent_file_is_shown_while_the_others_work(folder: Path) -> None:
    (folder / "graphs" / "broken.json").write_text('{"mode": "PLAIN",\n  "plan": {}}', encoding="utf-8")
    async with serving(make_application(folder)) as (client, _), asyncio.timeout(PATIENCE_S):
        agents = {agent["key"]: agent for agent in (await client.get("/api/agents")).json()["data"]}
        issue = agents["broken"]["invalid"]
        assert issue["file"].endswith("broken.json") and issue["line"] and issue["message"]
        assert set(agents["plain"]) == {"key", "name", "icon", "description", "mode", "model", "tools", "version"}
        assert (await ask(client, agentKey="plain")).events[-1]["type"] == "run.complete"
        refused = await client.post("/api/query", json={**OK, "agentKey": "broken"})
        assert refused.status_code == 400 and "broken.json" in refused.json()["msg"]
        (folder / "graphs" / "plain.json").write_text("{", encoding="utf-8")
        while "invalid" not in {a["key"]: a for a in (await client.get("/api/agents")).json()["data"]}["plain"]:
            await asyncio.sleep(0.05)
        assert (await ask(client, agentKey="plain")).events[-1]["type"] == "run.complete", (
            "the last good version serves"
        )
        assert [a["key"] for a in (await client.get("/api/agents?q=BASH")).json()["data"]] == ["react"]


async def test_an_agent_is_shown_in_full_with_its_graph(client: httpx.AsyncClient) -> None:
    agent = (await client.get("/api/agent?agentKey=react")).json()["data"]
    assert {"reason", "tools"} <= {node["name"] for node in agent["graph"]["nodes"]}
    assert agent["graph"]["mermaid"].startswith("flowchart") and agent["graph"]["edges"] and agent["document"]["nodes"]
    assert agent["instructions"] == "Work."
    unknown = await client.get("/api/agent?agentKey=raect")
    assert unknown.status_code == 400 and "react" in unknown.json()["msg"]
    assert unknown.json()["data"]["error"]["code"] == "agent_not_found"
    names = [tool["name"] for tool in (await client.get("/api/tools")).json()["data"]]
    assert "bash" in names and names == sorted(names)
    assert (await client.get("/api/tool?toolName=bash")).json()["data"]["parameters"]["required"] == ["command"]


async def test_blank_auto_and_default_mean_the_first_agent_and_a_chat_keeps_its_own(client: httpx.AsyncClient) -> None:
    body = {"message": "x", "stream": False, "chatId": "own"}
    first = (await client.post("/api/query", json={**body, "agentKey": "plain"})).json()["data"]
    assert first["status"] == "completed"
    assert (await client.post("/api/query", json=body)).json()["data"]["status"] == "completed"
    assert [c["agentKey"] for c in (await client.get("/api/chats")).json()["data"]] == ["plain"]
    for number, word in enumerate(("", "auto", "default", " auto ")):
        made = await client.post("/api/query", json={**body, "chatId": f"new{number}", "agentKey": word})
        assert made.json()["data"]["status"] == "waiting", "`ask` comes first by key"


# --- chats and threads ---------------------------------------------------------------------------


async def test_a_chat_is_reread_as_history(client: httpx.AsyncClient) -> None:
    await ask(client, "Tell  me\na long story", agentKey="story", chatId="h", references=[{"id": 1}, {"id": 2}])
    await ask(client, "more", chatId="h", references=[{"id": 2}, {"id": 3}])
    chat = (await client.get("/api/chat?chatId=h")).json()["data"]
    assert list(chat) == ["chatId", "chatName", "rawMessages", "events", "references"]
    assert chat["rawMessages"] is None and chat["chatName"] == "Tell me a "
    assert chat["references"] == [{"id": 1}, {"id": 2}, {"id": 3}]
    kinds = [e["type"] for e in chat["events"]]
    assert kinds.count("chat.start") == 1 and kinds.count("run.start") == kinds.count("run.complete") == 2
    families = {kind.partition(".")[0] for kind in kinds}
    assert families == {"request", "chat", "run", "reasoning", "content"}
    assert not [k for k in kinds if k.endswith((".delta", ".start", ".end")) and k not in ("chat.start", "run.start")]
    assert {e["finishReason"] for e in chat["events"] if e["type"] == "run.complete"} == {"end_turn"}
    raw = (await client.get("/api/chat?chatId=h&includeRawMessages=true")).json()["data"]["rawMessages"]
    assert [m["role"] for m in raw] == ["user", "assistant", "assistant", "user", "assistant", "assistant"]
    assert "reasoning" not in raw[1]


async def test_chats_come_newest_first_in_pages(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await ask(client, agentKey="plain", chatId=f"c{number}")
    seen, url = [], "/api/chats?limit=2"
    while True:
        page = (await client.get(url)).json()
        seen += [line["chatId"] for line in page["data"]]
        if "cursor" not in page:
            break
        url = f"/api/chats?limit=2&cursor={page['cursor']}"
    assert sorted(seen) == [f"c{n}" for n in range(5)]


async def test_threads_travel_in_time_and_the_first_branch_stays(client: httpx.AsyncClient) -> None:
    first = await ask(client, agentKey="story", chatId="t")
    tree = (await client.get("/api/threads/t/checkpoints")).json()["data"]
    assert [c["source"] for c in tree] == ["node", "node", "node", "input"] and [c["step"] for c in tree] == [
        3,
        2,
        1,
        0,
    ]
    after_one = tree[2]["id"]
    assert (await client.get(f"/api/threads/t/state?checkpointId={after_one}")).json()["data"]["values"]["n"] == 0
    changes = (await client.get(f"/api/threads/t/diff?from={after_one}&to={tree[0]['id']}")).json()["data"]["changes"]
    assert changes["n"] == [{"op": "replace", "path": "", "value": 1}]
    forked = (await client.post("/api/threads/t/fork", json={"checkpointId": after_one, "threadId": "f"})).json()[
        "data"
    ]
    assert forked["threadId"] == "f"
    edited = await client.patch("/api/threads/f/state", json={"values": {"n": 41}})
    assert edited.json()["data"]["checkpointId"]
    resumed = await take(client, "POST", "/api/threads/f/resume", json={})
    assert [e["type"] for e in resumed.events[:2]] == ["run.start", "run.resume"]
    assert resumed.events[-1]["type"] == "run.complete"
    assert (await client.get("/api/threads/f/state")).json()["data"]["values"]["n"] == 42
    assert (await client.get("/api/threads/t/state")).json()["data"]["values"]["n"] == 1
    rewound = (await client.post("/api/threads/t/rewind", json={"checkpointId": after_one})).json()["data"]
    summary = (await client.get("/api/threads/t")).json()["data"]
    assert summary["checkpointId"] == rewound["checkpointId"] and summary["status"] == "stopped"
    whole = await take(client, "GET", f"/api/runs/{first.events[2]['runId']}/events")
    assert whole.events[-1]["type"] == "run.complete", "a run keeps its log when a rewind leaves it behind"
    assert (await client.post("/api/threads/t/cancel")).json()["data"]["cancelled"] is False
    assert (await client.delete("/api/threads/t")).json()["data"]["deleted"] is True
    assert (await client.get("/api/threads/t")).status_code == 404
    assert (await client.get("/api/threads/f/state")).json()["data"]["values"]["n"] == 42


async def test_the_documentation_and_health_are_served(client: httpx.AsyncClient) -> None:
    assert (await client.get("/docs")).status_code == 200
    page = (await client.get("/openapi.json")).json()
    assert "QueryBody" in json.dumps(page["paths"]["/api/query"]["post"]["requestBody"])
    assert "chatId" in page["components"]["schemas"]["QueryBody"]["properties"]
    assert (await client.get("/api/ready")).json()["data"]["status"] == "ready"


async def test_no_request_waits_for_a_thread_of_its_own(folder: Path) -> None:
    """What FastAPI finds to be no coroutine goes through a pool of threads, which costs every request a part of a millisecond."""
    plain: set[str] = set()

    def look(dependant: Any) -> None:
        if dependant.call is not None and not inspect.iscoroutinefunction(dependant.call):
            plain.add(dependant.call.__name__)
        for inner in dependant.dependencies:
            look(inner)

    app = create_app(make_application(folder))
    for route in app.routes:
        if isinstance(route, APIRoute):
            look(route.dependant)
    assert not plain


def test_half_of_a_surrogate_pair_is_named_in_the_refusal_of_a_body() -> None:
    with pytest.raises(GraphflowError) as refused:
        parse(QueryBody, b'{"message": "\\ud800"}')
    assert "\\ud800 may be half of a character" in refused.value.message
    with pytest.raises(GraphflowError, match="truncated"):
        parse(QueryBody, b'{"message": "cut')
