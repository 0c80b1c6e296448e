"""A call that two people approve is done again, skipped or given a result by two as well: by the people who may approve it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from graphflow import (
    AnswerRefused,
    CompiledGraph,
    GraphflowError,
    MemoryCheckpointer,
    Person,
    SqliteCheckpointer,
    load_graph,
    tool,
)
from graphflow.checkpoints import codec
from graphflow.checkpoints.record_decoder import decode_interrupt
from graphflow.graph.core.machine import Interrupt
from graphflow.runtime.launch import launch_answer_anywhere, launch_resume
from graphflow.runtime.runs import live_runs
from tests.conftest import OpenStore
from tests.patience import PATIENCE_S
from tests.server.conftest import serving
from tests.service.conftest import make_application

ANN, SAME_ANN = Person(name="ann-1", user="ann", admin=False), Person(name="ann-2", user="ann", admin=False)
BOB, EVE = Person(name="bob", admin=False), Person(name="eve", admin=False)
APPROVE, RETRY, SKIP = ({"decision": word} for word in ("approve", "retry", "skip"))
RESULT = {"decision": "result", "result": {"text": "paid by hand"}}
WAYS = ("where it waits", "after a restart", "on another server")


class CutOffPayment:
    """A thread that asks what became of a payment that was cut off, and people who answer in one of the ways."""

    def __init__(self, open_store: OpenStore, way: str, rule: dict[str, Any]) -> None:
        self._open_store, self.way, self.rule = open_store, way, rule
        self.paid: list[str] = []
        self.app = self.another()

    def another(self) -> CompiledGraph:
        """The same graph over the same store, as another process has it."""

        @tool
        def pay(to: str) -> str:
            """Pays; the answer to the first payment is lost."""
            self.paid.append(to)
            if len(self.paid) == 1:
                raise ConnectionResetError("the line is dead")
            return f"paid {to}"

        call = {"calls": [{"id": "c", "name": "pay", "arguments": {"to": "x"}}]}
        node = {"use": "tools", "with": call, "set": {"texts": "[out.results[0].text]"}, "next": "end"}
        texts = {"type": "array", "items": {"type": "string"}, "default": [], "x-reducer": "append"}
        state = {"type": "object", "properties": {"texts": texts}}
        fields = {"tools": ["pay"], "approval": {"pay": self.rule}}
        document = {"graphflow": "1", "state": state, "start": "call", "nodes": {"call": node}, **fields}
        return load_graph(document, tools=[pay], checkpointer=self._open_store())

    async def begin(self) -> Interrupt:
        """The question what became of the payment, once as many as it takes have approved it."""
        await self.app.run({}, "t", by=ANN)
        for person in (BOB, EVE)[: self.rule.get("count", 1)]:
            await self.app.answer("t", APPROVE, by=person)
        assert self.paid == ["x"]
        if self.way == "on another server":
            await launch_resume(self.app.host, "t", hold_ms=600_000)
        else:
            await self.app.resume("t")
        return await self.question()

    async def question(self, thread_id: str = "t", kind: str = "outcome_unknown") -> Interrupt:
        assert self.app.host.store is not None
        while not (rows := await self.app.host.store.open_interrupts(thread_id=thread_id)):
            await asyncio.sleep(0)
        (row,) = rows
        asked = decode_interrupt(codec.decode(row.data))
        assert asked.kind == kind
        return asked

    async def answer(self, asked: Interrupt, answer: Any, by: Person, thread_id: str = "t") -> Interrupt | None:
        """The next question, if there is one."""
        app = self.app if self.way == "where it waits" else self.another()
        store = app.host.need_runs().store
        before = await store.open_interrupts(thread_id=thread_id)
        if self.way == "on another server":  # which drives the thread from then on, and commits in its own time
            await launch_answer_anywhere(app.host, thread_id, {asked.id: answer}, by=by, hold_ms=600_000)
        else:
            await app.answer(thread_id, {asked.id: answer}, by=by)
        while (rows := await store.open_interrupts(thread_id=thread_id)) == before:
            await asyncio.sleep(0)
        return decode_interrupt(codec.decode(rows[0].data)) if rows else None

    async def refused(self, asked: Interrupt, answer: Any, by: Person, thread_id: str = "t") -> str:
        """The code of the refusal, which changes nothing."""
        before = await self.question(thread_id)
        with pytest.raises(AnswerRefused) as refusal:
            await self.answer(asked, answer, by, thread_id)
        assert await self.question(thread_id) == before
        return refusal.value.code

    async def end(self) -> tuple[list[str], list[str]]:
        """What was paid, and what the node got, once the run is over."""
        while (state := await self.app.thread("t").state()).status != "idle":
            await asyncio.sleep(0)
        return self.paid, list(state.values["texts"])


@pytest.fixture(params=WAYS)
async def payment(
    request: pytest.FixtureRequest, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CutOffPayment]:
    monkeypatch.setattr(live_runs, "WATCH_S", 0.01)
    async with asyncio.timeout(PATIENCE_S):
        yield CutOffPayment(open_store, request.param, {"count": 2})


def agreed(asked: Interrupt | None) -> tuple[list[str], Any]:
    """Who wants what."""
    assert asked is not None
    people = asked.payload["approval"]
    given = [each["by"] for each in people["approvals"]]
    assert asked.payload["message"].endswith(f"({len(given)} of 2 approvals)")
    return given, people.get("proposed")


async def test_nobody_alone_has_the_payment_done_again(payment: CutOffPayment) -> None:
    first = await payment.begin()
    assert agreed(first) == ([], None)
    second = await payment.answer(first, RETRY, ANN)
    assert agreed(second) == (["ann"], RETRY)
    for asked in (first, second):
        for person in (ANN, SAME_ANN):
            for answer in (RETRY, SKIP, RESULT):
                assert asked is not None
                assert await payment.refused(asked, answer, person) == "answer_forbidden"
    assert payment.paid == ["x"]
    assert await payment.answer(first, RETRY, BOB) is None, "under the id that both were shown"
    assert await payment.end() == (["x", "x"], ["paid x"])


@pytest.mark.parametrize(("answer", "text"), [(SKIP, ""), (RESULT, "paid by hand")], ids=["skip", "result"])
async def test_nobody_alone_says_what_became_of_it(payment: CutOffPayment, answer: Any, text: str) -> None:
    first = await payment.begin()
    second = await payment.answer(first, answer, ANN)
    assert agreed(second) == (["ann"], answer) and second is not None
    assert await payment.answer(second, answer, BOB) is None
    assert (await payment.end())[0] == ["x"]


async def test_two_who_disagree_decide_nothing_until_two_agree(payment: CutOffPayment) -> None:
    asked = await payment.begin()
    other = {"decision": "result", "result": {"text": "paid twice"}}
    for answer, person, name in ((RETRY, ANN, "ann"), (SKIP, BOB, "bob"), (RESULT, ANN, "ann"), (other, EVE, "eve")):
        following = await payment.answer(asked, answer, person)
        assert following is not None and agreed(following) == ([name], answer)
        assert payment.paid == ["x"]
        asked = following
    assert await payment.answer(asked, other, BOB) is None
    assert (await payment.end())[0] == ["x"]


async def test_two_answers_at_once_both_count(payment: CutOffPayment) -> None:
    first = await payment.begin()
    await asyncio.gather(payment.answer(first, RETRY, ANN), payment.answer(first, RETRY, BOB))
    assert (await payment.end())[0] == ["x", "x"]


@pytest.mark.parametrize("payment", WAYS[:2], indirect=True)
@pytest.mark.parametrize("how", ["rewind", "fork", "edit"])
async def test_where_a_thread_goes_back_or_is_forked_nobody_has_decided_yet(payment: CutOffPayment, how: str) -> None:
    first = await payment.begin()
    second = await payment.answer(first, RETRY, ANN)
    assert second is not None
    thread, thread_id = payment.app.thread("t"), "t"
    if how == "fork":
        thread_id = (await thread.fork(effects="rerun", by=EVE)).id
    elif how == "rewind":
        await thread.rewind((await thread.state()).checkpoint_id or "", effects="rerun", by=EVE)
    else:
        await thread.edit({}, path=first.path, effects="rerun", by=EVE)
    again = await payment.question(thread_id)
    assert agreed(again) == ([], None)
    for earlier in (first, second):
        assert await payment.refused(earlier, RETRY, BOB, thread_id) == "answer_stale"
    half = await payment.answer(again, RETRY, BOB, thread_id)
    assert half is not None and agreed(half) == (["bob"], RETRY) and payment.paid == ["x"]
    await payment.answer(half, RETRY, ANN, thread_id)
    assert payment.paid == ["x"], "what is done anew is approved anew"
    for person in (ANN, BOB):
        assert payment.paid == ["x"]
        await payment.answer(await payment.question(thread_id, "approval"), APPROVE, person, thread_id)
    assert payment.paid == ["x", "x"]


@pytest.mark.parametrize("answer", [RETRY, SKIP, RESULT], ids=["retry", "skip", "result"])
async def test_who_asked_for_a_payment_that_another_person_approves_does_not_decide_about_it(
    open_store: OpenStore, answer: Any
) -> None:
    payment = CutOffPayment(open_store, WAYS[0], {"by": "other"})
    first = await payment.begin()
    for person in (ANN, SAME_ANN):
        assert await payment.refused(first, answer, person) == "answer_forbidden"
    assert await payment.answer(first, answer, BOB) is None
    assert (await payment.end())[0] == ["x"] * (2 if answer is RETRY else 1)


async def test_nobody_alone_says_what_becomes_of_a_payment_that_the_past_has_no_result_for(
    open_store: OpenStore,
) -> None:
    payment = CutOffPayment(open_store, WAYS[0], {"count": 2})
    await payment.begin()
    thread = payment.app.thread("t")
    await thread.rewind((await thread.history())[-1].id, effects="reuse", by=EVE)
    await payment.app.resume("t")
    for person in (ANN, BOB):
        await payment.answer(await payment.question(kind="approval"), APPROVE, person)
    first = await payment.question()
    assert agreed(first) == ([], None)
    half = await payment.answer(first, RETRY, ANN)
    assert agreed(half) == (["ann"], RETRY) and payment.paid == ["x"]
    assert await payment.answer(first, RETRY, BOB) is None
    assert (await payment.end())[0] == ["x", "x"]


async def test_only_who_may_decide_what_agents_do_decides_about_a_change_of_it_that_was_cut_off() -> None:
    changed: list[str] = []

    @tool(capabilities=["agents:write"])
    def change() -> str:
        """Changes an agent."""
        changed.append("once")
        raise ConnectionResetError("the line is dead")

    node = {"use": "tools", "with": {"calls": [{"id": "c", "name": "change", "arguments": {}}]}, "next": "end"}
    document = {"graphflow": "1", "start": "call", "nodes": {"call": node}, "tools": ["change"]}
    app = load_graph(document, tools=[change], checkpointer=MemoryCheckpointer())
    await app.run({}, "t")
    await app.answer("t", APPROVE)
    asked = (await app.resume("t")).interrupts[0]
    assert (asked.kind, asked.role) == ("outcome_unknown", "admin")
    for answer in (RETRY, SKIP, RESULT):
        with pytest.raises(AnswerRefused, match="takes the scope `admin`"):
            await app.answer("t", answer, by=BOB)
    assert (await app.answer("t", SKIP)).status == "completed"
    assert changed == ["once"]


@pytest.mark.parametrize("rule", [{"count": 2}, {"by": "other"}], ids=["two", "another"])
async def test_one_person_s_rewind_makes_no_call_that_not_just_anybody_alone_approves(rule: dict[str, Any]) -> None:
    done: list[str] = []

    @tool(undo="tool:refund")
    def pay() -> str:
        """Pays."""
        done.append("pay")
        return "paid"

    @tool
    def refund() -> str:
        """Takes a payment back."""
        done.append("refund")
        return "refunded"

    node = {"use": "tools", "with": {"calls": [{"id": "c", "name": "pay", "arguments": {}}]}, "next": "end"}
    inner = {
        "graphflow": "1", "start": "call", "nodes": {"call": node}, "tools": ["pay", "refund"], "approval": {"refund": rule},
    }  # fmt: skip
    outer = {"graphflow": "1", "start": "a", "nodes": {"a": {"graph": inner, "next": "end"}}}
    for document in (inner, outer):
        done.clear()
        app = load_graph(document, tools=[pay, refund], checkpointer=MemoryCheckpointer())
        await app.run({}, "t", by=ANN)
        thread = app.thread("t")
        with pytest.raises(GraphflowError, match="refund undoes nothing by itself") as refused:
            await thread.rewind((await thread.history())[-1].id, effects="undo", by=BOB)
        assert (refused.value.code, done) == ("undo_failed", ["pay"])


async def test_over_http_two_people_agree_what_becomes_of_a_payment(tmp_path: Path) -> None:
    paid: list[str] = []

    @tool
    def pay() -> str:
        """Pays; the answer to the first payment is lost."""
        paid.append("x")
        if len(paid) == 1:
            raise ConnectionResetError("the line is dead")
        return "paid"

    node = {"use": "tools", "with": {"calls": [{"id": "c", "name": "pay", "arguments": {}}]}, "next": "end"}
    document = {"graphflow": "1", "start": "call", "nodes": {"call": node}, "tools": ["pay"]}
    (tmp_path / "graphs").mkdir()
    written = json.dumps({**document, "approval": {"pay": {"count": 2}}})
    (tmp_path / "graphs" / "payer.json").write_text(written, encoding="utf-8")
    (tmp_path / ".env").write_text("GRAPHFLOW_TOKENS=ann:*:ann-secret,bob:*:bob-secret\n", encoding="utf-8")
    ann, bob = ({"Authorization": f"Bearer {name}-secret"} for name in ("ann", "bob"))
    async with asyncio.timeout(PATIENCE_S), serving(make_application(tmp_path, tools=[pay])) as (client, _):
        body = {"message": "go", "agentKey": "payer", "stream": False, "chatId": "c"}
        await client.post("/api/query", json=body, headers=ann)

        async def asked(kind: str, approvals: int) -> Any:
            while True:
                lines = (await client.get("/api/inbox", headers=bob)).json()["data"]
                if lines and (lines[0]["kind"], len(lines[0]["payload"]["approval"]["approvals"])) == (kind, approvals):
                    return lines[0]

        async def submit(line: Any, answer: Any, who: dict[str, str]) -> Any:
            names = {"chatId": "c", "runId": line["runId"], "toolId": line["interruptId"]}
            return (await client.post("/api/submit", json={**names, "payload": answer}, headers=who)).json()["data"]

        for number, who in enumerate((ann, bob)):
            assert (await submit(await asked("approval", number), APPROVE, who))["accepted"]
        while (await client.get("/api/threads/c", headers=ann)).json()["data"]["status"] != "failed":
            pass
        await client.post("/api/threads/c/resume", json={"stream": False}, headers=ann)
        first = await asked("outcome_unknown", 0)
        assert (await submit(first, RETRY, ann))["accepted"]
        line = await asked("outcome_unknown", 1)
        assert line["payload"]["approval"]["proposed"] == RETRY and "(1 of 2 approvals)" in line["payload"]["message"]
        for answer in (RETRY, SKIP, RESULT):
            refused = await submit(line, answer, ann)
            assert (refused["accepted"], refused["code"]) == (False, "answer_forbidden")
        assert paid == ["x"]
        assert (await submit(first, RETRY, bob))["accepted"]
        while (await client.get("/api/threads/c", headers=ann)).json()["data"]["status"] != "idle":
            pass
        decided = (await client.get("/api/threads/c/decisions", headers=ann)).json()["data"]
    assert paid == ["x", "x"]
    named = [(line["kind"], line["decision"], line["by"]) for line in decided]
    assert named == [
        ("approval", "approve", "ann"), ("approval", "approve", "bob"),
        ("outcome_unknown", "retry", "ann"), ("outcome_unknown", "retry", "bob"),
    ]  # fmt: skip


@pytest.mark.parametrize("when", ["asked", "approved", "cut off"])
async def test_a_version_that_takes_more_people_does_not_take_over_what_one_has_approved(
    tmp_path: Path, when: str
) -> None:
    paid: list[str] = []

    @tool
    def pay() -> str:
        """Pays."""
        paid.append("x")
        raise ConnectionResetError("the line is dead")

    store = SqliteCheckpointer(tmp_path / "t.db")

    def version(rule: Any) -> CompiledGraph:
        calls = [{"id": "c", "name": "pay", "arguments": {}}]
        node = {"use": "tools", "with": {"calls": calls}, "next": "end"}
        document = {"graphflow": "1", "start": "call", "nodes": {"call": node}, "tools": ["pay"]}
        return load_graph({**document, "approval": {"pay": rule}}, tools=[pay], checkpointer=store)

    old = version("REQUIRE_APPROVAL")
    await old.run({}, "t")
    if when != "asked":
        await old.answer("t", APPROVE)
    if when == "cut off":
        await old.resume("t")
    before = await old.thread("t").state()
    with pytest.raises(GraphflowError, match="under another `approval`") as refused:
        await version({"count": 2}).thread("t").migrate()
    assert refused.value.code == "migration_refused"
    assert await old.thread("t").state() == before
    await store.close()
