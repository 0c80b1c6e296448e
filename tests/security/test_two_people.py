"""A call that two people approve runs after both have: whichever server they answer, whatever ends, moves or edits between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from graphflow import AnswerRefused, CompiledGraph, Person, load_graph, tool
from graphflow.checkpoints import codec
from graphflow.checkpoints.record_decoder import decode_interrupt
from graphflow.graph.core.machine import Interrupt
from graphflow.runtime.launch import launch_answer_anywhere
from graphflow.runtime.runs import live_runs
from tests.conftest import OpenStore
from tests.launching import launch
from tests.patience import PATIENCE_S

ANN, SAME_ANN = Person(name="ann-1", user="ann", admin=False), Person(name="ann-2", user="ann", admin=False)
BOB, EVE = Person(name="bob", admin=False), Person(name="eve", admin=False)
APPROVE = {"decision": "approve"}
EDIT = {"decision": "edit", "arguments": {"to": "y"}}
WAYS = ("where it waits", "after a restart", "on another server")


class Payment:
    """A thread that asks whether to pay, and people who answer in one of the ways."""

    def __init__(self, open_store: OpenStore, way: str) -> None:
        self._open_store, self.way = open_store, way
        self.paid: list[str] = []
        self.gate = asyncio.Event()
        self.app = self.another()

    def another(self) -> CompiledGraph:
        """The same graph over the same store, as another process has it."""

        @tool
        def pay(to: str) -> str:
            """Pays."""
            self.paid.append(to)
            return f"paid {to}"

        async def work(state: Any) -> None:
            await self.gate.wait()

        call = {"calls": [{"id": "c", "name": "pay", "arguments": {"to": "x"}}]}
        nodes = {
            "both": {"parallel": {"pay": "call", "work": "work"}, "next": "end"},
            "call": {"use": "tools", "with": call, "next": "end"},
            "work": {"use": "node:work", "next": "end"},
        }
        fields = {"tools": ["pay"], "approval": {"pay": {"count": 2}}}
        document = {"graphflow": "1", "start": "both", "nodes": nodes, **fields}
        return load_graph(document, tools=[pay], nodes={"work": work}, checkpointer=self._open_store())

    async def begin(self) -> Interrupt:
        """The first question; on another server the run works on meanwhile."""
        if self.way == "on another server":
            await launch(self.app, {}, "t")
        else:
            self.gate.set()
            await self.app.run({}, "t")
        return await self.question()

    async def question(self, thread_id: str = "t") -> Interrupt:
        assert self.app.host.store is not None
        while not (rows := await self.app.host.store.open_interrupts(thread_id=thread_id)):
            await asyncio.sleep(0)
        (row,) = rows
        return decode_interrupt(codec.decode(row.data))

    async def answer(self, asked: Interrupt, answer: Any, by: Person, thread_id: str = "t") -> Interrupt | None:
        """The next question, if there is one."""
        app = self.app if self.way == "where it waits" else self.another()
        if self.way == "on another server":
            await launch_answer_anywhere(app.host, thread_id, {asked.id: answer}, by=by, hold_ms=0)
        else:
            await app.answer(thread_id, {asked.id: answer}, by=by)
        rows = await app.host.need_runs().store.open_interrupts(thread_id=thread_id)
        return decode_interrupt(codec.decode(rows[0].data)) if rows else None

    async def refused(self, asked: Interrupt, answer: Any, by: Person, thread_id: str = "t") -> str:
        """The code of the refusal, which changes nothing."""
        before = await self.question(thread_id)
        with pytest.raises(AnswerRefused) as refusal:
            await self.answer(asked, answer, by, thread_id)
        assert await self.question(thread_id) == before
        return refusal.value.code

    async def end(self) -> list[str]:
        """What was paid, once the run is over."""
        self.gate.set()
        while (await self.app.thread("t").state()).status != "idle":
            await asyncio.sleep(0)
        return self.paid


@pytest.fixture(params=WAYS)
async def payment(
    request: pytest.FixtureRequest, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Payment]:
    monkeypatch.setattr(live_runs, "WATCH_S", 0.01)
    async with asyncio.timeout(PATIENCE_S):
        yield Payment(open_store, request.param)


def approvals(asked: Interrupt | None) -> list[str]:
    assert asked is not None
    given = [each["by"] for each in asked.payload["approval"]["approvals"]]
    assert asked.payload["message"] == f"Run pay? ({len(given)} of 2 approvals)"
    return given


async def test_two_different_people_approve_and_two_tokens_of_a_user_are_one_person(payment: Payment) -> None:
    first = await payment.begin()
    second = await payment.answer(first, APPROVE, ANN)
    assert approvals(second) == ["ann"]
    for person in (ANN, SAME_ANN):
        for answer in (APPROVE, EDIT):
            assert await payment.refused(first, answer, person) == "answer_forbidden"
    assert payment.paid == []
    assert await payment.answer(first, APPROVE, BOB) is None, "under the id that both were shown"
    assert await payment.end() == ["x"]


async def test_two_answers_at_once_both_count(payment: Payment) -> None:
    first = await payment.begin()
    await asyncio.gather(payment.answer(first, APPROVE, ANN), payment.answer(first, APPROVE, BOB))
    assert await payment.end() == ["x"]


async def test_nobody_approves_arguments_that_he_has_not_seen(payment: Payment) -> None:
    """What the second one edits the others are shown, and approve, under a new id alone."""
    first = await payment.begin()
    second = await payment.answer(first, APPROVE, ANN)
    assert second is not None
    third = await payment.answer(second, EDIT, BOB)
    assert third is not None and approvals(third) == ["bob"]
    assert (dict(third.arguments), dict(third.payload["approval"]["edited"]["arguments"])) == ({"to": "y"}, {"to": "x"})
    for earlier in (first, second):
        for person in (ANN, EVE):
            assert await payment.refused(earlier, APPROVE, person) == "answer_stale"
    assert await payment.refused(third, APPROVE, BOB) == "answer_forbidden"
    assert await payment.answer(third, APPROVE, EVE) is None
    assert await payment.end() == ["y"]


@pytest.mark.parametrize("payment", WAYS[:2], indirect=True)
@pytest.mark.parametrize("answers", [[APPROVE], [APPROVE, EDIT]], ids=["approved", "edited"])
@pytest.mark.parametrize("how", ["rewind", "fork", "edit"])
async def test_where_a_thread_goes_back_or_is_forked_both_approve_anew(
    payment: Payment, how: str, answers: list[Any]
) -> None:
    asked = [await payment.begin()]
    for answer, person in zip(answers, (ANN, BOB), strict=False):
        following = await payment.answer(asked[-1], answer, person)
        assert following is not None
        asked.append(following)
    thread, thread_id = payment.app.thread("t"), "t"
    if how == "fork":
        thread_id = (await thread.fork(by=EVE)).id
    elif how == "rewind":
        await thread.rewind((await thread.state()).checkpoint_id or "", by=EVE)
    else:
        await thread.edit({}, path=asked[0].path, by=EVE)
    again = await payment.question(thread_id)
    assert (approvals(again), dict(again.arguments)) == ([], {"to": "x"})
    for earlier in asked:
        assert await payment.refused(earlier, APPROVE, EVE, thread_id) == "answer_stale"
    second = await payment.answer(again, APPROVE, BOB, thread_id)
    assert second is not None and approvals(second) == ["bob"] and payment.paid == []
    third = await payment.answer(second, EDIT, ANN, thread_id)
    assert third is not None and approvals(third) == ["ann"] and payment.paid == []
    assert await payment.answer(third, APPROVE, BOB, thread_id) is None
    assert payment.paid == ["y"]
