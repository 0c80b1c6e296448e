"""A tool's capabilities are needed of the agent and of who started the run, and nothing widens them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow import AnswerRefused, CompiledGraph, MemoryCheckpointer, Person, SqliteCheckpointer, load_graph, tool
from graphflow.capabilities import COMMON
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import DefinitionError, GraphflowError
from graphflow.messages import ToolCall
from graphflow.server.auth import parse_tokens
from tests.server.conftest import serving
from tests.service.conftest import make_application

STATE: dict[str, Any] = {
    "type": "object",
    "properties": {"texts": {"type": "array", "items": {"type": "string"}, "default": [], "x-reducer": "append"}},
}
BOB = Person(name="bob", admin=False, capabilities=COMMON)
ANN = Person(name="ann")
ran: list[str] = []


@tool(capabilities=["net"])
def fetch(url: str = "u") -> str:
    """Fetches a page."""
    ran.append(f"fetch {url}")
    return "a page"


@tool(capabilities=["agents:write"])
def set_agent(name: str = "n") -> str:
    """Changes an agent."""
    ran.append(f"set_agent {name}")
    return "changed"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def calls(name: str, **node: Any) -> dict[str, Any]:
    """A node that calls a tool as a model would, and keeps what the model would get."""
    given = {"calls": [{"name": name, "arguments": {}}], **node}
    return {"use": "tools", "with": given, "set": {"texts": "[out.results[0].text]"}, "next": "end"}


def graph(
    nodes: dict[str, Any], store: Checkpointer | None = None, functions: Any = None, **fields: Any
) -> CompiledGraph:
    document = {"graphflow": "1", "state": STATE, "start": next(iter(nodes)), "nodes": nodes, **fields}
    return load_graph(document, tools=[fetch, set_agent], checkpointer=store or MemoryCheckpointer(), nodes=functions)


async def through_the_runner(state: Any, ctx: Any) -> dict[str, Any]:
    result = await ctx.tool.run(ToolCall(id="c", name=state["tool"], arguments="{}"), ctx)
    return {"texts": [result.text]}


async def through_run_all(state: Any, ctx: Any) -> dict[str, Any]:
    (result,) = await ctx.tool.run_all([ToolCall(id="c", name=state["tool"], arguments="{}")], ctx)
    return {"texts": [result.text]}


def python(function: Any, name: str) -> Callable[..., CompiledGraph]:
    state = {**STATE, "properties": {**STATE["properties"], "tool": {"type": "string", "default": name}}}

    def made(store: Checkpointer | None = None) -> CompiledGraph:
        nodes = {"act": {"use": "node:act", "next": "end"}}
        return graph(nodes, store, {"act": function}, tools=[name], state=state)

    return made


def ways(name: str) -> dict[str, Callable[..., CompiledGraph]]:
    """Every way in which a call of a listed tool can come about."""
    sub = {
        "graphflow": "1",
        "state": STATE,
        "tools": [name],
        "approval": "DISABLED",
        "start": "a",
        "nodes": {"a": calls(name)},
    }
    each = {"map": "[1]", "as": "item", "do": {"graph": sub}, "set": {"texts": "[out[0].out.texts[0]]"}, "next": "end"}
    return {
        "a model's call": lambda store=None: graph({"a": calls(name)}, store, tools=[name]),
        "a node's own list": lambda store=None: graph({"a": calls(name, tools=[name])}, store),
        "with approval off": lambda store=None: graph({"a": calls(name)}, store, tools=[name], approval="DISABLED"),
        "a subgraph": lambda store=None: graph(
            {"s": {"graph": sub, "set": {"texts": "out.texts"}, "next": "end"}}, store
        ),
        "a map": lambda store=None: graph({"m": each}, store),
        "ctx.tool.run": python(through_the_runner, name),
        "ctx.tool.run_all": python(through_run_all, name),
    }


NO_NET = Person(name="bob", admin=False, capabilities=("shell",))


@pytest.mark.parametrize("way", ways("fetch"))
async def test_a_call_whose_capability_the_starter_lacks_does_nothing_and_says_what_grants_it(way: str) -> None:
    made = ways("fetch")[way]()
    done = await made.run({}, by=NO_NET)
    assert (done.status, ran) == ("completed", [])
    text = str(done.state)
    assert "'net'" in text and "'bob'" in text and "server.capabilities" in text
    await ways("fetch")[way]().run({}, by=BOB)
    assert ran == ["fetch u"]


@pytest.mark.parametrize("way", ways("set_agent"))
async def test_what_changes_agents_is_asked_of_an_admin_whatever_the_way(way: str) -> None:
    lacks = await ways("set_agent")[way]().run({}, by=BOB)
    assert (lacks.status, ran) == ("completed", [])
    assert "'agents:write'" in str(lacks.state) and "`admin`" in str(lacks.state)
    made = ways("set_agent")[way]()
    waiting = await made.run({}, "t", by=ANN)
    (question,) = waiting.interrupts
    assert (waiting.status, question.kind, question.role, ran) == ("waiting", "approval", "admin", [])
    for decision in (
        {"decision": "approve"},
        {"decision": "edit", "arguments": {"name": "other"}},
        {"decision": "respond", "response": "done"},
        {"decision": "reject", "reason": "no"},
        {"decision": "terminate"},
    ):
        with pytest.raises(AnswerRefused, match="takes the scope `admin`") as refused:
            await made.answer("t", {question.id: decision}, by=BOB)
        assert refused.value.code == "answer_forbidden"
    assert ran == []
    await made.answer("t", {question.id: {"decision": "approve"}}, by=ANN)
    assert ran == ["set_agent n"]


async def test_a_tool_that_the_file_does_not_list_is_not_granted() -> None:
    done = await graph({"a": calls("fetch")}).run({})
    assert (done.status, ran) == ("completed", [])
    assert "'net'" in done.state["texts"][0] and "listing 'fetch' in its `tools`" in done.state["texts"][0]
    done = await graph({"a": {"use": "tool:fetch", "set": {"texts": "[out.text]"}, "next": "end"}}).run({})
    assert ran == ["fetch u"]


# --- what is stored is never widened


def asking(store: Checkpointer) -> CompiledGraph:
    ask = {"ask": {"message": "Go on?"}, "next": "a"}
    return graph({"q": ask, "a": calls("fetch")}, store, tools=["fetch"])


async def test_an_answer_of_somebody_who_may_more_does_not_widen_the_run(tmp_path: Path) -> None:
    store = SqliteCheckpointer(tmp_path / "t.db")
    await asking(store).run({}, "t", by=NO_NET)
    await store.close()
    store = SqliteCheckpointer(tmp_path / "t.db")  # as after a crash
    done = await asking(store).answer("t", "yes", by=ANN)
    assert (done.status, ran) == ("completed", [])
    assert "'net'" in done.state["texts"][0]
    await store.close()


async def test_a_fork_may_do_what_both_may_who_asked_for_it() -> None:
    for starter, forker in ((NO_NET, ANN), (ANN, NO_NET), (NO_NET, None)):
        store = MemoryCheckpointer()
        made = asking(store)
        await made.run({}, "t", by=starter)
        forked = await made.thread("t").fork(by=forker)
        done = await made.answer(forked.id, "yes", by=ANN)
        assert ran == [], (starter, forker)
        assert "'net'" in done.state["texts"][0]


async def test_a_rewind_and_a_regenerated_answer_stay_as_narrow() -> None:
    made = asking(MemoryCheckpointer())
    await made.run({}, "t", by=ANN)
    head = (await made.thread("t").state()).checkpoint_id
    assert head is not None
    await made.thread("t").rewind(head, by=NO_NET)
    await made.answer("t", "yes", by=ANN)
    assert ran == []


UNDO: dict[str, Callable[[CompiledGraph, str, Person], Any]] = {
    "rewind": lambda made, at, by: made.thread("t").rewind(at, effects="undo", by=by),
    "edit": lambda made, at, by: made.thread("t").edit({}, checkpoint_id=at, effects="undo", by=by),
    "resume": lambda made, at, by: made.resume("t", at, effects="undo", by=by),
    "regenerate": lambda made, at, by: made.regenerate("t", "r", effects="undo", by=by),
    "edit of a message": lambda made, at, by: made.edit_message("t", "r", "go", effects="undo", by=by),
    "rollback": lambda made, at, by: made.run({}, "t", on_busy="rollback", effects="undo", by=by),
}


@pytest.mark.parametrize("way", UNDO)
@pytest.mark.parametrize(("starter", "person"), [(NO_NET, ANN), (ANN, NO_NET)])
async def test_undoing_an_effect_takes_what_both_may_who_started_the_run_and_who_wants_it_undone(
    way: str, starter: Person, person: Person
) -> None:
    @tool(undo="tool:unbook")
    def book() -> str:
        """Books."""
        return "booked"

    @tool(capabilities=["net"])
    def unbook() -> str:
        """Takes a booking back."""
        ran.append("unbook")
        return "taken back"

    gate = asyncio.Event()
    nodes = {"first": {"use": "node:hold", "next": "act"}, "act": {**calls("book"), "next": "last"}, "last": {"use": "node:hold", "next": "end"}}  # fmt: skip
    document = {"graphflow": "1", "state": STATE, "start": "first", "nodes": nodes, "tools": ["book"]}
    booked = asyncio.Event()

    async def hold(state: Any, ctx: Any) -> None:
        if state["texts"] and not gate.is_set():
            booked.set()
            await gate.wait()

    made = load_graph(document, tools=[book, unbook], checkpointer=MemoryCheckpointer(), nodes={"hold": hold})
    run = asyncio.ensure_future(made.run("go", "t", run_id="r", by=starter))  # noqa: TID251 - awaited below
    await booked.wait()
    if way != "rollback":
        gate.set()
        await run
    at = (await made.thread("t").history())[-1].id
    with pytest.raises(GraphflowError, match="'net'") as refused:
        await UNDO[way](made, at, person)
    assert (refused.value.code, refused.value.detail["error"]["detail"]["toolError"]) == ("undo_failed", "PERMISSION_DENIED")  # fmt: skip
    assert ran == []
    gate.set()
    await asyncio.gather(run, return_exceptions=True)
    await UNDO["rewind"](made, at, ANN) if starter is ANN else None
    assert ran == (["unbook"] if starter is ANN else [])


async def test_a_new_input_has_what_its_own_starter_has() -> None:
    made = graph({"a": calls("fetch")}, tools=["fetch"])
    await made.run({}, "t", by=NO_NET)
    await made.run({}, "t")
    await made.run({}, "t", by=NO_NET)
    assert ran == ["fetch u"]


async def test_a_queued_input_keeps_its_starter() -> None:
    from graphflow.checkpoints.rows import Queued
    from graphflow.runtime.queue_codec import decode_queued, encode_queued, kind_of
    from graphflow.runtime.run_request import request_of

    request = request_of({}, "t", {"by": NO_NET})
    stored = Queued(thread_id="t", position=1, body=encode_queued(request), at=0, kind=kind_of(request))
    assert decode_queued(stored).starter == {"by": ["bob"], "can": ["shell"]}


# --- declarations


@pytest.mark.parametrize(("words", "near"), [(["nett"], "did you mean 'net'"), (["agent:write"], "agents:write")])
def test_capabilities_are_a_closed_list(words: list[str], near: str) -> None:
    with pytest.raises(ValueError, match=near):
        fetch.changed(capabilities=words)


def test_capabilities_are_a_list() -> None:
    with pytest.raises(TypeError, match="a list of texts"):
        tool(capabilities="net")


def test_built_in_tools_declare_theirs(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    app = make_application(tmp_path)
    named = {each.name: each.capabilities for each in app.tools if each.capabilities}
    writing = dict.fromkeys(("Write", "Edit", "MultiEdit", "restore_file"), ("files:write",))
    others = {"bash": ("shell",), "http_request": ("net",), "agent_file_create": ("agents:write",)}
    assert named == {**others, **writing}


def test_a_tool_file_adds_capabilities_and_takes_none_away(tmp_path: Path) -> None:
    folder = tmp_path / "graphs" / "tools"
    folder.mkdir(parents=True)
    lines = [
        {"name": "bash", "capabilities": []},
        {"name": "http_request", "capabilities": ["files:write"]},
        {"name": "city_datetime", "capabilities": ["nett"]},
    ]
    (folder / "mine.backend").write_text(json.dumps({"tools": lines}), encoding="utf-8")
    app = make_application(tmp_path)
    assert app.tools.require("bash").capabilities == ("shell",)
    assert app.tools.require("http_request").capabilities == ("net", "files:write")
    (refused,) = app.toolbox.errors()
    assert refused.pointer == "/tools/2/capabilities" and "did you mean 'net'" in (refused.hint or "")


# --- tokens


def test_tokens_have_all_but_what_changes_agents_which_takes_the_scope_admin() -> None:
    plain, admin, bare = parse_tokens(["a:read+run:one", "b:run+admin:two", "three"])
    assert plain.capabilities == COMMON == ("files:write", "net", "shell")
    assert admin.capabilities is None and bare.capabilities is None


def test_a_setting_leaves_a_token_or_a_user_less() -> None:
    entries = ["a@ann:run:one", "b@ann:*:two", "c:run:three"]
    first, second, third = parse_tokens(entries, ["@ann=net+shell+agents:write", "a=net", "c="])
    assert (first.capabilities, second.capabilities, third.capabilities) == (
        ("net",),
        ("agents:write", "net", "shell"),
        (),
    )
    for wrong, word in (("d=net", "is no token"), ("a=nett", "did you mean 'net'"), ("a", "NAME=CAPABILITY")):
        with pytest.raises(DefinitionError, match=word):
            parse_tokens(entries, [wrong])


async def test_over_http_the_token_decides_what_its_runs_may_do(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    document = {
        "graphflow": "1",
        "state": STATE,
        "tools": ["set_agent"],
        "start": "a",
        "nodes": {"a": calls("set_agent")},
    }
    (tmp_path / "graphs" / "setter.json").write_text(json.dumps(document), encoding="utf-8")
    tokens = "bob:read+run+answer:bob-secret,ann:*:ann-secret"
    (tmp_path / ".env").write_text(f"GRAPHFLOW_TOKENS={tokens}\n", encoding="utf-8")
    bob, ann = ({"Authorization": f"Bearer {name}-secret"} for name in ("bob", "ann"))
    body = {"message": "go", "agentKey": "setter", "stream": False}
    async with serving(make_application(tmp_path, tools=[set_agent])) as (client, _):
        lacks = (await client.post("/api/query", json={**body, "chatId": "b"}, headers=bob)).json()["data"]
        assert lacks["status"] == "completed" and ran == []
        waits = (await client.post("/api/query", json={**body, "chatId": "a"}, headers=ann)).json()["data"]
        asked = waits["interrupts"][0]["interruptId"]
        answer = {"chatId": "a", "runId": waits["runId"], "toolId": asked, "payload": {"decision": "approve"}}
        told = (await client.post("/api/submit", json=answer, headers=bob)).json()["data"]
        assert (told["accepted"], told["status"]) == (False, "invalid") and "admin" in told["detail"]
        resumed = await client.post(
            "/api/threads/a/resume", json={"answers": {asked: {"decision": "approve"}}}, headers=bob
        )
        assert resumed.status_code == 403 and ran == []
        assert (await client.post("/api/submit", json=answer, headers=ann)).json()["data"]["accepted"]
