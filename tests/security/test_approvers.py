"""Who approves a call: `by: other` and `count` hold in Python, over HTTP and after a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow import (
    AnswerRefused,
    CompiledGraph,
    Graph,
    MemoryCheckpointer,
    Person,
    SqliteCheckpointer,
    load_graph,
    tool,
)
from graphflow.agents.loader import load_agent
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import DefinitionError
from graphflow.nodes.kinds import NodeKinds
from graphflow.tools.registry import ToolRegistry
from tests.server.conftest import serving
from tests.service.conftest import make_application

STATE: dict[str, Any] = {
    "type": "object",
    "properties": {"texts": {"type": "array", "items": {"type": "string"}, "default": [], "x-reducer": "append"}},
}
ANN, BOB, EVE = (Person(name=name) for name in ("ann", "bob", "eve"))
APPROVE = {"decision": "approve"}
ran: list[str] = []


@tool
def pay(to: str = "x") -> str:
    """Pays."""
    ran.append(to)
    return f"paid {to}"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def document(rule: Any) -> dict[str, Any]:
    node = {
        "use": "tools",
        "with": {"calls": [{"id": "call-1", "name": "pay", "arguments": {"to": "x"}}]},
        "set": {"texts": "[out.results[0].text]"},
        "next": "end",
    }
    fields = {"tools": ["pay"], "approval": {"pay": rule}}
    return {"graphflow": "1", "state": STATE, "start": "a", "nodes": {"a": node}, **fields}


def graph(rule: Any, store: Checkpointer | None = None) -> CompiledGraph:
    return load_graph(document(rule), tools=[pay], checkpointer=store or MemoryCheckpointer())


async def test_another_person_than_who_asked_approves() -> None:
    made = graph({"mode": "REQUIRE_APPROVAL", "by": "other"})
    await made.run({}, "t", by=ANN)
    for same in (ANN, Person(name="second-token", user="ann")):
        with pytest.raises(AnswerRefused, match="who asked for the run can't approve it") as refused:
            await made.answer("t", APPROVE, by=same)
        assert refused.value.code == "answer_forbidden"
    assert ran == []
    await made.answer("t", APPROVE, by=BOB)
    assert ran == ["x"]


async def test_who_forks_a_run_has_asked_for_it_too() -> None:
    made = graph({"by": "other"})
    await made.run({}, "t", by=ANN)
    forked = await made.thread("t").fork(by=BOB)
    for one in (ANN, BOB):
        with pytest.raises(AnswerRefused, match="another person"):
            await made.answer(forked.id, APPROVE, by=one)
    await made.answer(forked.id, APPROVE, by=EVE)
    assert ran == ["x"]


async def test_the_local_person_who_forks_has_asked_too() -> None:
    made = graph({"by": "other"})
    await made.run({}, "t", by=ANN)
    forked = await made.thread("t").fork()
    with pytest.raises(AnswerRefused, match="another person"):
        await made.answer(forked.id, APPROVE)
    await made.answer(forked.id, APPROVE, by=BOB)
    assert ran == ["x"]


async def test_two_different_people_approve_and_a_crash_between_them_loses_nothing(tmp_path: Path) -> None:
    store = SqliteCheckpointer(tmp_path / "t.db")
    waiting = await graph({"count": 2}, store).run({}, "t")
    first = waiting.interrupts[0].id
    half = await graph({"count": 2}, store).answer("t", {first: APPROVE}, by=ANN)
    await store.close()
    store = SqliteCheckpointer(tmp_path / "t.db")  # another process
    made = graph({"count": 2}, store)
    assert half.status == "waiting" and ran == []
    (row,) = await store.open_interrupts(thread_id="t")
    (question,) = half.interrupts
    assert row.interrupt_id == question.id
    assert [each["by"] for each in question.payload["approval"]["approvals"]] == ["ann"]
    assert "1 of 2 approvals" in question.payload["message"]
    with pytest.raises(AnswerRefused, match="they have approved already; it takes 2 different people"):
        await made.answer("t", {question.id: APPROVE}, by=ANN)
    done = await made.answer("t", {first: APPROVE}, by=BOB)  # under the id that both were shown
    assert (done.status, ran) == ("completed", ["x"])
    await store.close()


@pytest.mark.parametrize("turn", [0, 1])
async def test_one_who_rejects_is_enough(turn: int) -> None:
    made = graph({"count": 2})
    await made.run({}, "t")
    if turn:
        await made.answer("t", APPROVE, by=ANN)
    done = await made.answer("t", {"decision": "reject", "reason": "too much"}, by=BOB)
    assert (done.status, ran) == ("completed", [])
    assert "too much" in done.state["texts"][0]


async def test_edited_arguments_are_approved_anew_by_the_others() -> None:
    made = graph({"count": 2})
    await made.run({}, "t")
    await made.answer("t", APPROVE, by=ANN)
    half = await made.answer("t", {"decision": "edit", "arguments": {"to": "y"}}, by=BOB)
    assert (half.status, ran, dict(half.interrupts[0].arguments)) == ("waiting", [], {"to": "y"})
    with pytest.raises(AnswerRefused, match="approved already"):
        await made.answer("t", APPROVE, by=BOB)
    await made.answer("t", APPROVE, by=ANN)
    assert ran == ["y"]


async def test_without_users_by_other_is_refused_when_the_file_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "payer.json").write_text(json.dumps(document({"by": "other"})), encoding="utf-8")
    app = make_application(tmp_path, tools=[pay])
    app.agents.reload()
    (refused,) = app.agents.invalid()
    assert refused.errors[0].pointer == "/approval/pay/by" and "needs users" in refused.errors[0].message


@pytest.mark.parametrize(
    ("rule", "pointer"),
    [
        ({"mode": "REQUIRE"}, "/approval/pay/mode"),
        ({"by": "others"}, "/approval/pay/by"),
        ({"count": 0}, "/approval/pay/count"),
        ({"counts": 2}, "/approval/pay/counts"),
        ({"mode": "DISABLED", "count": 2}, "/approval/pay/mode"),
        (2, "/approval/pay"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(rule: Any, pointer: str) -> None:
    registry = ToolRegistry([pay])
    with pytest.raises(DefinitionError) as refused:
        load_agent(document(rule), kinds=NodeKinds(registry), tools=registry.names())
    assert [issue.pointer for issue in refused.value.errors] == [pointer]


def _loaded(document: dict[str, Any], folder: Path, users: bool | None) -> None:
    load_graph(document, tools=[pay], users=users)


def _compiled(document: dict[str, Any], folder: Path, users: bool | None) -> None:
    Graph.from_json(document).compile(tools=[pay])


def _named(document: dict[str, Any], folder: Path, users: bool | None) -> None:
    (folder / "child.json").write_text(json.dumps(document), encoding="utf-8")
    parent = {"graphflow": "1", "start": "a", "nodes": {"a": {"graph": "child", "next": "end"}}}
    (folder / "parent.json").write_text(json.dumps(parent), encoding="utf-8")
    load_graph(folder / "parent.json", tools=[pay], users=users)


def _in_place(document: dict[str, Any], folder: Path, users: bool | None) -> None:
    inner = {"graphflow": "1", "start": "a", "nodes": {"a": {"graph": document, "next": "end"}}}
    load_graph(inner, tools=[pay], users=users)


@pytest.mark.parametrize("load", [_loaded, _compiled, _named, _in_place])
@pytest.mark.parametrize(
    ("approval", "place"),
    [
        ({"pay": {"mode": "DISABLED", "count": 2}}, "/approval/pay/mode"),
        ({"pya": "REQUIRE_APPROVAL"}, "/approval/pya"),
        ({"pay": "NEVER"}, "/approval/pay"),
        ("NEVER", "/approval"),
        ({"pay": {"by": "other"}}, "/approval/pay/by"),
    ],
)
def test_every_loader_refuses_the_same_rules(load: Any, approval: Any, place: str, tmp_path: Path) -> None:
    written = {**document({}), "approval": approval}
    if load is _compiled and place == "/approval/pay/by":
        load(written, tmp_path, None)  # it has no settings and no option that say who there is
        return
    with pytest.raises(DefinitionError) as refused:
        load(written, tmp_path, users=False)
    (issue,) = refused.value.errors
    assert issue.pointer.endswith(place) or f"{place}: " in issue.message


def test_a_key_is_checked_against_the_users_of_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "payer.json").write_text(json.dumps(document({"by": "other"})), encoding="utf-8")
    with pytest.raises(DefinitionError, match="needs users"):
        load_graph("payer", tools=[pay])
    monkeypatch.setenv("GRAPHFLOW_TOKENS", "laptop@ann:*:secret-of-ann")
    load_graph("payer", tools=[pay])
    load_graph(tmp_path / "graphs" / "payer.json", tools=[pay])  # `by` names people in Python


async def _resumed(app: CompiledGraph, by: Person) -> str:
    first = (await app.thread("t").history())[-1].id
    await app.resume("t", first, by=by)
    return "t"


async def _streamed(app: CompiledGraph, by: Person) -> str:
    first = (await app.thread("t").history())[-1].id
    async for _ in app.stream_resume("t", first, by=by):
        pass
    return "t"


async def _regenerated(app: CompiledGraph, by: Person) -> str:
    await app.regenerate("t", (await app.thread("t").messages())[0][-1].message_id, by=by)
    return "t"


async def _edited(app: CompiledGraph, by: Person) -> str:
    await app.edit_message("t", (await app.thread("t").messages())[0][-1].message_id, "again", by=by)
    return "t"


async def _replayed(app: CompiledGraph, by: Person) -> str:
    return (await app.replay("t", by=by)).thread_id


async def _batched(app: CompiledGraph, by: Person) -> str:
    return str((await app.batch([{"query": "go"}], by=by))[0].thread_id)


@pytest.mark.parametrize("again", [_resumed, _streamed, _regenerated, _edited, _replayed, _batched])
async def test_who_has_a_run_done_again_has_asked_for_it_too(again: Any) -> None:
    """In Python as over HTTP: each call that begins a run or goes back says who asked."""
    made = load_graph(
        {**document({"by": "other"}), "input": {"type": "object", "properties": {"query": {"type": "string"}}}},
        tools=[pay],
        checkpointer=MemoryCheckpointer(),
    )
    await made.run({"query": "go"}, "t", by=ANN)
    thread_id = await again(made, BOB)
    with pytest.raises(AnswerRefused, match="another person"):
        await made.answer(thread_id, APPROVE, by=BOB)
    await made.answer(thread_id, APPROVE, by=EVE)
    assert ran == ["x"]


async def test_over_http_the_inbox_shows_the_approvals_and_the_same_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    rule = {"mode": "REQUIRE_APPROVAL", "by": "other", "count": 2}
    (tmp_path / "graphs" / "payer.json").write_text(json.dumps(document(rule)), encoding="utf-8")
    tokens = "ann@ann:*:ann-secret,bob:*:bob-secret,eve:*:eve-secret"
    (tmp_path / ".env").write_text(f"GRAPHFLOW_TOKENS={tokens}\n", encoding="utf-8")
    ann, bob, eve = ({"Authorization": f"Bearer {name}-secret"} for name in ("ann", "bob", "eve"))
    async with serving(make_application(tmp_path, tools=[pay])) as (client, _):
        body = {"message": "go", "agentKey": "payer", "stream": False, "chatId": "c"}
        waits = (await client.post("/api/query", json=body, headers=ann)).json()["data"]
        answer = {
            "chatId": "c",
            "runId": waits["runId"],
            "toolId": waits["interrupts"][0]["interruptId"],
            "payload": APPROVE,
        }

        async def submit(who: dict[str, str]) -> Any:
            return (await client.post("/api/submit", json=answer, headers=who)).json()["data"]

        refused = await submit(ann)
        assert (refused["accepted"], refused["status"], refused["code"]) == (False, "invalid", "answer_forbidden")
        assert (await submit(bob))["accepted"]
        while True:
            (line,) = (await client.get("/api/inbox", headers=eve)).json()["data"]
            if line["payload"]["approval"]["approvals"]:
                break
        assert [each["by"] for each in line["payload"]["approval"]["approvals"]] == ["bob"]
        again = await submit(bob)
        assert (again["accepted"], again["status"]) == (False, "invalid") and ran == []
        assert (await submit(eve))["accepted"]
