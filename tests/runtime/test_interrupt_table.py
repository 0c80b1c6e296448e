"""Interrupts fail closed: the cases of docs/internals/conformance.md's table, through Python, over every store (E5, E8, E12, E13)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from graphflow import Context, Graph, GraphflowError, ThreadBusy, ThreadWaiting, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import load_thread
from graphflow.errors import AnswerRefused, StoreError
from graphflow.testing import FakeClock, FakeIds, collect
from tests.launching import launch
from tests.patience import PATIENCE_S
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, asking, chain
from tests.runtime.questions import (
    STATE,
    Waiting,
    forget,
    paying,
    paying_graph,
    two_at_once,
    wait_at_breakpoint,
    wait_for_approval,
    wait_for_number,
    wait_for_object,
    wait_for_outcome,
    wait_for_schema,
    wait_for_two,
)

UNKNOWN = "018bcfe5-6800-7000-8000-ffffffffffff.1"
Begin = Callable[[Checkpointer], Awaitable[Waiting]]


def deep(levels: int) -> Any:
    """Lists within lists."""
    out: Any = 1
    for _ in range(levels):
        out = [out]
    return out


def by_id(answer: Any) -> Callable[[Waiting], Any]:
    return lambda waiting: {waiting.id: answer}


REFUSED: dict[str, tuple[Begin, Callable[[Waiting], Any], str]] = {
    # what is no open question
    "an unknown id": (wait_for_number, lambda w: {UNKNOWN: 5}, "interrupt_not_found"),
    "an unknown id beside a right one": (wait_for_number, lambda w: {w.id: 5, UNKNOWN: 5}, "interrupt_not_found"),
    "an id of the same checkpoint that was never asked": (
        wait_for_number, lambda w: {w.id.rpartition(".")[0] + ".9": 5}, "answer_stale",
    ),
    "a bare answer while two are open": (wait_for_two, lambda w: 1, "answer_ambiguous"),
    "an empty object while two are open": (wait_for_two, lambda w: {}, "answer_ambiguous"),
    # what does not fit
    "a word for a number": (wait_for_number, by_id("five"), "answer_invalid"),
    "a bare word for a number": (wait_for_number, lambda w: "five", "answer_invalid"),
    "true for a number": (wait_for_number, by_id(True), "answer_invalid"),
    "a broken number": (wait_for_number, by_id(5.5), "answer_invalid"),
    "null for a number": (wait_for_number, by_id(None), "answer_invalid"),
    "a bare null for a number": (wait_for_number, lambda w: None, "answer_invalid"),
    "an empty object for a number": (wait_for_number, lambda w: {}, "answer_invalid"),
    "null for an object": (wait_for_object, by_id(None), "answer_invalid"),
    "an object without what it needs": (wait_for_object, by_id({}), "answer_invalid"),
    "an object whose field breaks its rule": (wait_for_object, by_id({"to": ""}), "answer_invalid"),
    "a list for an object": (wait_for_object, by_id([{"to": "Ada"}]), "answer_invalid"),
    "one of two that does not fit": (
        wait_for_two, lambda w: {w.questions[0].id: 1, w.questions[1].id: "two"}, "answer_invalid",
    ),
    "more levels than any form has": (wait_for_number, by_id(deep(100_000)), "answer_invalid"),
    # approvals
    "null for an approval": (wait_for_approval, by_id(None), "answer_invalid"),
    "an empty object for an approval": (wait_for_approval, by_id({}), "answer_invalid"),
    "true for an approval": (wait_for_approval, by_id(True), "answer_invalid"),
    "the word without its object": (wait_for_approval, by_id("approve"), "answer_invalid"),
    "a decision that there is not": (wait_for_approval, by_id({"decision": "perhaps"}), "answer_invalid"),
    "a decision in capitals": (wait_for_approval, by_id({"decision": "APPROVE"}), "answer_invalid"),
    "a list of decisions": (wait_for_approval, by_id({"decision": ["approve"]}), "answer_invalid"),
    "a breakpoint's decision for an approval": (wait_for_approval, by_id({"decision": "continue"}), "answer_invalid"),
    "an edit without arguments": (wait_for_approval, by_id({"decision": "edit"}), "answer_invalid"),
    "an edit with arguments that are no object": (
        wait_for_approval, by_id({"decision": "edit", "arguments": ["Ada"]}), "answer_invalid",
    ),
    "an edit whose arguments don't fit the tool": (
        wait_for_approval, by_id({"decision": "edit", "arguments": {"to": 7}}), "answer_invalid",
    ),
    "an edit that leaves out what the tool needs": (
        wait_for_approval, by_id({"decision": "edit", "arguments": {"whom": "Ada"}}), "answer_invalid",
    ),
    "an approval with changed arguments": (
        wait_for_approval, by_id({"decision": "approve", "arguments": {"to": "Eve"}}), "answer_invalid",
    ),
    "a rejection with a result in the tool's place": (
        wait_for_approval, by_id({"decision": "reject", "reason": "no", "response": "sent"}), "answer_invalid",
    ),
    "a rejection without a reason": (wait_for_approval, by_id({"decision": "reject"}), "answer_invalid"),
    "a rejection with an empty reason": (wait_for_approval, by_id({"decision": "reject", "reason": ""}), "answer_invalid"),
    "a response without its text": (wait_for_approval, by_id({"decision": "respond"}), "answer_invalid"),
    "an approval with a misspelt field": (
        wait_for_approval, by_id({"decision": "approve", "argumets": {"to": "Eve"}}), "answer_invalid",
    ),
    "a decision under a misspelt name": (wait_for_approval, by_id({"decison": "approve"}), "answer_invalid"),
    "an approval with an update": (wait_for_approval, by_id({"decision": "approve", "update": {}}), "answer_invalid"),
    # breakpoints
    "a breakpoint with a misspelt update": (
        wait_at_breakpoint, by_id({"decision": "continue", "updat": {"n": 3}}), "answer_invalid",
    ),
    "an approval for a breakpoint": (wait_at_breakpoint, by_id({"decision": "approve"}), "answer_invalid"),
    "null for a breakpoint": (wait_at_breakpoint, by_id(None), "answer_invalid"),
    "an update that is no object": (
        wait_at_breakpoint, by_id({"decision": "continue", "update": 3}), "answer_invalid",
    ),
    # unknown outcomes
    "an approval for an unknown outcome": (wait_for_outcome, by_id({"decision": "approve"}), "answer_invalid"),
    "a retry with a result": (wait_for_outcome, by_id({"decision": "retry", "result": 1}), "answer_invalid"),
    "a result without the result": (wait_for_outcome, by_id({"decision": "result"}), "answer_invalid"),
    "a result under a misspelt name": (
        wait_for_outcome, by_id({"decision": "result", "result": 1, "reslt": 2}), "answer_invalid",
    ),
    "an empty object for an unknown outcome": (wait_for_outcome, by_id({}), "answer_invalid"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_an_answer_that_does_not_fit_is_refused_by_its_code_and_changes_nothing(
    store: Checkpointer, case: str
) -> None:
    begin, wrong, code = REFUSED[case]
    waiting = await begin(store)
    before = await waiting.look()
    for _ in ("in the same process", "after a restart"):
        with pytest.raises(AnswerRefused) as caught:
            await waiting.app.answer("t", wrong(waiting))
        assert caught.value.code == code
        assert await waiting.look() == before
        forget(waiting.app)
    assert (await waiting.app.answer("t", waiting.right)).status == "completed"


async def test_null_and_empty_are_answers_only_where_the_schema_says_so(store: Checkpointer) -> None:
    waiting = await wait_for_schema(store, {"type": ["object", "null"]}, None)
    done = await waiting.app.answer("t", {waiting.id: None})
    assert (done.status, done.state.v) == ("completed", None)
    again = (await waiting.app.run(thread_id="t")).interrupts[0]
    assert (await waiting.app.answer("t", {again.id: {}})).state.v == {}


async def test_a_second_answer_is_stale_also_the_same_one_and_after_a_restart(store: Checkpointer) -> None:
    waiting = await wait_for_two(store)
    x, y = (i.id for i in waiting.questions)
    await waiting.app.answer("t", {x: 1})
    before = await waiting.look()
    for answer in ({x: 1}, {x: 2}, {x: 1, y: 2}):
        forget(waiting.app)
        with pytest.raises(AnswerRefused) as caught:
            await waiting.app.answer("t", answer)
        assert caught.value.code == "answer_stale"
        assert await waiting.look() == before
    assert (await waiting.app.answer("t", {y: 2})).state.n == 3
    with pytest.raises(AnswerRefused) as caught:
        await waiting.app.answer("t", {y: 2})
    assert caught.value.code == "answer_stale"


async def test_an_answer_for_another_thread_is_unmatched_and_changes_neither(store: Checkpointer) -> None:
    waiting = await wait_for_number(store)
    other = (await waiting.app.run(thread_id="other")).interrupts[0]
    before = await waiting.look()
    with pytest.raises(AnswerRefused) as caught:
        await waiting.app.answer("t", {other.id: 5})
    assert caught.value.code == "interrupt_not_found"
    assert await waiting.look() == before
    assert (await waiting.app.answer("other", {other.id: 5})).status == "completed"


async def test_a_thread_that_rests_failed_or_was_cancelled_takes_no_answer(store: Checkpointer) -> None:
    graph = Graph(STATE)
    graph.ask("question", "well?", schema={"type": "integer"}, set={"n": "answer"}, next="check")

    @graph.node
    async def check(state: Any) -> None:
        raise ValueError("never")

    app = graph.compile(checkpointer=store, ids=FakeIds())
    asked = (await app.run(thread_id="t")).interrupts[0].id
    assert (await app.answer("t", {asked: 1})).status == "failed"
    for answer, code in (({asked: 1}, "answer_stale"), (1, "interrupt_not_found")):
        with pytest.raises(AnswerRefused) as caught:
            await app.answer("t", answer)
        assert caught.value.code == code
    asked = (await app.run(thread_id="u")).interrupts[0].id
    assert await app.thread("u").cancel()
    for answer, code in (({asked: 1}, "answer_stale"), (1, "interrupt_not_found")):
        with pytest.raises(AnswerRefused) as caught:
            await app.answer("u", answer)
        assert caught.value.code == code
    assert (await app.thread("u").state()).status == "stopped"


ON_WAITING = [
    (wait_for_two, "two are open"),
    (wait_for_number, "it takes no text"),
    (wait_for_approval, "it is no `ask`"),
    (wait_at_breakpoint, "it is no `ask`"),
]


@pytest.mark.parametrize(("begin", "why"), ON_WAITING, ids=[f"{b.__name__}: {w}" for b, w in ON_WAITING])
async def test_new_input_is_an_answer_only_for_one_open_question_that_takes_text(
    store: Checkpointer, begin: Begin, why: str
) -> None:
    waiting = await begin(store)
    before = await waiting.look()
    with pytest.raises(AnswerRefused):
        await waiting.app.run("some words", thread_id="t", on_waiting="answer")
    with pytest.raises(ThreadWaiting):
        await waiting.app.run("some words", thread_id="t")
    assert await waiting.look() == before
    assert (await waiting.app.answer("t", waiting.right)).status == "completed"


async def test_new_input_that_cancels_the_questions_makes_their_ids_stale(store: Checkpointer) -> None:
    waiting = await wait_for_approval(store)
    again = await waiting.app.run("anew", thread_id="t", on_waiting="cancel")
    assert again.status == "waiting"
    with pytest.raises(AnswerRefused) as caught:
        await waiting.app.answer("t", {waiting.id: {"decision": "approve"}})
    assert (caught.value.code, waiting.did) == ("answer_stale", [])


async def test_an_approval_is_void_when_the_arguments_have_changed_under_it(store: Checkpointer) -> None:
    """The state is edited while the question is open: the person has not allowed what would be done now."""
    waiting = await wait_for_approval(store)
    await waiting.app.thread("t").edit({"v": "Eve"})
    with pytest.raises(AnswerRefused) as caught:
        await waiting.app.answer("t", {waiting.id: {"decision": "approve"}})
    assert caught.value.code == "answer_stale", "an edit issues open questions anew"
    (again,) = (await waiting.app.thread("t").state()).interrupts
    assert again.reissue_of == waiting.id
    forget(waiting.app)
    done = await waiting.app.answer("t", {again.id: {"decision": "approve"}})
    assert waiting.did == [], "what the person saw was Ada"
    assert done.error is not None
    assert done.error["code"] == "node_not_deterministic"


async def test_an_approval_counts_for_the_arguments_that_the_person_gave(store: Checkpointer) -> None:
    waiting = await wait_for_approval(store)
    forget(waiting.app)
    done = await waiting.app.answer("t", {waiting.id: {"decision": "edit", "arguments": {"to": "Bob"}}})
    assert (done.status, waiting.did) == ("completed", ["Bob"])


DECISIONS = [
    ({"decision": "approve"}, ["Ada"], "paid Ada", "stop"),
    ({"decision": "reject", "reason": "too dear"}, [], "too dear", "stop"),
    ({"decision": "respond", "response": "paid by hand"}, [], "paid by hand", "stop"),
    ({"decision": "terminate"}, [], "ended by the person", "rejected"),
]


@pytest.mark.parametrize(("answer", "did", "text", "reason"), DECISIONS, ids=[d[0]["decision"] for d in DECISIONS])
async def test_each_decision_about_a_call_does_what_its_word_says(
    store: Checkpointer, answer: Any, did: list[str], text: str, reason: str
) -> None:
    waiting = await wait_for_approval(store)
    forget(waiting.app)
    done = await waiting.app.answer("t", {waiting.id: answer})
    assert (done.status, done.finish_reason, waiting.did) == ("completed", reason, did)
    said = [m.content for m in done.state.messages if type(m).__name__ == "ToolMessage"]
    assert reason == "rejected" or text in said[0]


@pytest.mark.parametrize("restarted", [False, True], ids=["held", "restarted"])
async def test_ending_the_run_gives_every_call_that_was_told_of_a_result(store: Checkpointer, restarted: bool) -> None:
    """Every call has its result before `run.complete` (spec 3.3): of one that the end leaves undone it says so."""
    calls = [{"id": f"c{n}", "name": "pay", "arguments": {"to": name}} for n, name in enumerate(["Ada", "Bob"], 1)]
    nodes = {"act": {"use": "tools", "with": {"calls": calls}, "set": {"messages": "out.messages"}}}
    did: list[str] = []
    document = {"graphflow": "1", "start": "act", "state": STATE, "nodes": nodes}
    app = load_graph(document, checkpointer=store, tools=[paying(did)], ids=FakeIds())
    live = await launch(app, {}, "t", hold_ms=0 if restarted else 60_000)
    events, asked = [], False
    assert live.log is not None
    async with asyncio.timeout(PATIENCE_S):
        async for event in live.log.follow(0):
            events.append(event)
            if event.type == "interrupt.request" and not restarted and not asked:
                asked = True
                live.executor.answer(event.interrupt_id, {"decision": "approve"}, "approve")  # type: ignore[attr-defined]
            elif event.type == "interrupt.request" and not restarted:
                live.executor.answer(event.interrupt_id, {"decision": "terminate"}, "terminate")  # type: ignore[attr-defined]
    if restarted:
        questions = (await app.thread("t").state()).interrupts
        forget(app)
        events += await collect(app.stream_answer("t", {questions[0].id: {"decision": "terminate"}}))
    results = {e.tool_id: e.result for e in events if e.type == "tool.result"}  # type: ignore[attr-defined]
    assert sorted(results) == ["c1", "c2"]
    assert "ended by the person" in results["c2"]
    assert ("ended by the person" in results["c1"]) == restarted == (did == [])
    assert (events[-1].type, events[-1].finish_reason) == ("run.complete", "rejected")  # type: ignore[attr-defined]
    stored = [event for event, _ in await app.thread("t").events()]
    assert [e for e in stored if e.type == "tool.result"] == [e for e in events if e.type == "tool.result"]


OUTCOMES = [("retry", ["paid", "paid"], ["done"]), ("skip", ["paid"], [None]), ("result", ["paid"], ["by hand"])]


@pytest.mark.parametrize(("decision", "did", "log"), OUTCOMES, ids=[o[0] for o in OUTCOMES])
async def test_each_decision_about_a_cut_off_write_does_what_its_word_says(
    store: Checkpointer, decision: str, did: list[str], log: list[Any]
) -> None:
    waiting = await wait_for_outcome(store)
    assert [i.kind for i in waiting.questions] == ["outcome_unknown"]
    forget(waiting.app)
    answer = {"decision": decision, **({"result": "by hand"} if decision == "result" else {})}
    done = await waiting.app.answer("t", {waiting.id: answer})
    assert (done.status, waiting.did, list(done.state.log)) == ("completed", did, log)


async def test_a_breakpoint_that_is_answered_with_cancel_stops_the_run_before_the_node(store: Checkpointer) -> None:
    waiting = await wait_at_breakpoint(store)
    assert (await waiting.app.answer("t", {"decision": "cancel"})).status == "cancelled"
    assert (await waiting.app.thread("t").state()).status == "stopped"
    assert waiting.did == ["a"]


async def test_a_renamed_node_under_an_open_question_changes_nothing_for_its_thread(store: Checkpointer) -> None:
    ids = FakeIds()

    def build(name: str) -> Any:
        graph = Graph(STATE)
        graph.ask(name, "well?", schema={"type": "integer"}, set={"n": "answer"}, next=f"after_{name}")

        @graph.node(name=f"after_{name}")
        async def after(state: Any) -> dict[str, Any]:
            return {"log": [name]}

        return graph.compile(checkpointer=store, ids=ids)

    old = build("question")
    asked = (await old.run(thread_id="t")).interrupts[0].id
    forget(old)
    new = load_graph(
        build("query").host.documents.checked().data,
        checkpointer=store,
        ids=ids,
        nodes={f"after_{name}": (lambda state, name=name: {"log": [name]}) for name in ("question", "query")},
    )
    done = await new.answer("t", {asked: 3})
    assert (done.status, done.state.n, list(done.state.log)) == ("completed", 3, ["question"])


async def test_a_question_without_a_way_out_fails_its_node_when_it_expires(compile_graph: Compile) -> None:
    graph, clock = Graph(Counter), FakeClock()
    graph.add(
        "question",
        ask={"message": "well?", "expires": "PT1M"},
        set={"log": "[answer]"},
        error=[{"on": ["timeout"], "to": "late"}],
    )

    @graph.node
    async def late(state: Any) -> dict[str, Any]:
        return {"log": ["late"]}

    app = compile_graph(graph, clock=clock)
    asked = (await app.run(thread_id="t")).interrupts[0]
    clock.advance(61)
    with pytest.raises(AnswerRefused) as caught:
        await app.answer("t", {asked.id: "here"})
    assert caught.value.code == "answer_stale"
    assert list((await app.thread("t").state()).values.log) == ["late"]


async def test_a_question_that_expires_takes_the_other_question_of_its_node_with_it(compile_graph: Compile) -> None:
    graph, clock = Graph(Counter), FakeClock()

    @graph.node
    async def both(state: Any, ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.ask("x?", key="x", expires="PT1M"))
            group.create_task(ctx.ask("y?", key="y"))

    app = compile_graph(graph, clock=clock)
    x, y = (await app.run(thread_id="t")).interrupts
    clock.advance(61)
    for asked in (x, y):
        with pytest.raises(AnswerRefused) as caught:
            await app.answer("t", {asked.id: "here"})
        assert caught.value.code == "answer_stale"
    state = await app.thread("t").state()
    assert (state.status, state.interrupts) == ("failed", ())


async def test_questions_of_a_branch_that_was_left_are_stale_and_those_of_the_new_one_are_new(
    store: Checkpointer,
) -> None:
    waiting = await wait_for_number(store)
    thread = waiting.app.thread("t")
    start = (await thread.history())[-1].id
    await thread.rewind(start)
    with pytest.raises(AnswerRefused) as caught:
        await waiting.app.answer("t", {waiting.id: 5})
    assert caught.value.code in ("answer_stale", "interrupt_not_found")
    again = await waiting.app.resume("t")
    assert again.interrupts[0].id != waiting.id
    with pytest.raises(AnswerRefused) as caught:
        await waiting.app.answer("t", {waiting.id: 5})
    assert caught.value.code == "answer_stale"
    assert (await waiting.app.answer("t", {again.interrupts[0].id: 7})).state.v == 7


async def test_an_answer_to_a_forks_question_leaves_the_originals_open(store: Checkpointer) -> None:
    waiting = await wait_for_number(store)
    fork = await waiting.app.thread("t").fork(thread_id="f")
    (asked,) = (await fork.state()).interrupts
    assert asked.id != waiting.id
    with pytest.raises(AnswerRefused):
        await waiting.app.answer("f", {waiting.id: 5})
    assert (await waiting.app.answer("f", {asked.id: 6})).state.v == 6
    with pytest.raises(AnswerRefused):
        await waiting.app.answer("t", {asked.id: 6})
    assert (await waiting.app.answer("t", {waiting.id: 5})).state.v == 5


async def test_an_answer_while_another_process_has_the_thread_takes_effect_when_that_gives_it_back(
    store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphflow.runtime.runs.live_runs.STOP_WAIT_S", 0.01)
    waiting = await wait_for_number(store)
    now = waiting.app.host.clock.now_ms()
    row = await store.take("t", owner="elsewhere/-/00000000-0000-0000-0000-000000000000", now=now, lease_ms=15_000)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        answered = group.create_task(waiting.app.answer("t", {waiting.id: 5}))
        while not await store.queue("t", kind="answer"):
            await asyncio.sleep(0)
        assert not answered.done()
        await store.release("t", row.fence)
    assert answered.result().state.v == 5 and not await store.queue("t", kind="answer")


async def test_who_answered_is_on_record(store: Checkpointer) -> None:
    """Owner and role say in whose inbox a question stands; who may answer at all is the tokens' business."""
    graph = Graph(STATE)
    graph.ask("question", "well?", schema={"type": "integer"}, set={"v": "answer"}, owner="ada", role="boss")
    app = graph.compile(checkpointer=store, ids=FakeIds())
    asked = (await app.run(thread_id="t")).interrupts[0]
    rows = {who: await store.open_interrupts(owner=who) for who in ("ada", "bob")}
    assert ([r.interrupt_id for r in rows["ada"]], rows["bob"]) == ([asked.id], [])
    await app.answer("t", {asked.id: 1}, by="bob")
    loaded = await load_thread(store, "t")
    assert loaded is not None
    records = await store.read_records("t", lineage=loaded.chain[-1][0], after=0, upto=loaded.chain[-1][1])
    assert any(b"bob" in record.data for record in records)


class FullDisk:
    """A store whose next commit fails."""

    def __init__(self, store: Any) -> None:
        self._store, self.full = store, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, *arguments: Any, **options: Any) -> Any:
        if not self.full:
            return self._store.commit(*arguments, **options)

        class Failed:
            done, error = True, StoreError("the disk is full")

            def when_done(self, callback: Callable[[], None]) -> None:
                callback()

            def __await__(self) -> Any:
                raise self.error
                yield

        return Failed()


async def test_an_answer_that_the_store_could_not_keep_was_not_given(store: Checkpointer) -> None:
    disk: Any = FullDisk(store)
    waiting = await wait_for_approval(disk)
    disk.full = True
    with pytest.raises(StoreError):
        await waiting.app.answer("t", {waiting.id: {"decision": "approve"}})
    disk.full = False
    forget(waiting.app)
    assert (waiting.did, [i.id for i in (await waiting.app.thread("t").state()).interrupts]) == ([], [waiting.id])
    done = await waiting.app.answer("t", {waiting.id: {"decision": "approve"}})
    assert (done.status, waiting.did) == ("completed", ["Ada"])


async def test_of_two_answers_at_once_in_one_process_one_is_taken(store: Checkpointer) -> None:
    waiting = await wait_for_approval(store)
    given = [{waiting.id: {"decision": "approve"}}, {waiting.id: {"decision": "reject", "reason": "no"}}] * 2
    results = await asyncio.gather(*(waiting.app.answer("t", a) for a in given), return_exceptions=True)
    taken = [r for r in results if not isinstance(r, BaseException)]
    assert len(taken) == 1
    assert all(isinstance(r, ThreadBusy | AnswerRefused) for r in results if isinstance(r, BaseException))
    assert len(waiting.did) <= 1


async def test_a_live_run_takes_the_first_answer_and_the_second_is_refused(compile_graph: Compile) -> None:
    graph, ran = asking()
    app = compile_graph(graph)
    live = await launch(app, thread_id="t", hold_ms=60_000)
    assert live.log is not None
    async with asyncio.timeout(PATIENCE_S):
        async for event in live.log.follow(0):
            if event.type == "interrupt.request":
                live.executor.answer(event.interrupt_id, 5, "answered")  # type: ignore[attr-defined]
                with pytest.raises(GraphflowError):
                    await app.answer("t", {event.interrupt_id: 6})  # type: ignore[attr-defined]
        await live.over.wait()
    assert ((await app.thread("t").state()).values.n, ran) == (16, ["before", "once", "after"])


# --- several questions, and what is said of them -------------------------------------------------


async def test_a_thread_with_one_of_two_questions_answered_still_waits(
    store: Checkpointer, compile_graph: Compile
) -> None:
    app = compile_graph(two_at_once())
    _, y = (await app.run(thread_id="t")).interrupts
    events = await collect(app.stream_answer("t", {y.id: 2}))
    assert events[-1].type == "run.waiting"
    forget(app)
    assert (await app.thread("t").state()).status == "waiting"
    assert (await app.answer("t", 1)).state.n == 3


async def test_a_process_that_holds_two_questions_lets_go_of_the_second_in_its_time_too(compile_graph: Compile) -> None:
    app = compile_graph(two_at_once())
    live = await launch(app, thread_id="t", hold_ms=50)
    assert live.log is not None
    asked: list[str] = []
    seen: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in live.log.follow(0):
            seen.append(event.type)
            if event.type == "interrupt.request":
                asked.append(event.interrupt_id)  # type: ignore[attr-defined]
                if len(asked) == 2:
                    live.executor.answer(asked[0], 1, "answered")
        await live.over.wait()
    assert seen[-1] == "run.waiting"
    assert (await app.answer("t", 2)).state.n == 3


async def test_what_is_said_again_after_a_restart_bears_the_time_at_which_it_was_said(compile_graph: Compile) -> None:
    """The first record of a life names its fence, which is no time."""
    graph, _ = chain("a")
    app = compile_graph(graph, clock=FakeClock())
    await app.run(thread_id="t", interrupt_after=["a"])
    sent = await collect(app.stream_answer("t", {"decision": "continue"}))
    assert [event for event, _ in await app.thread("t").events()][-2:] == sent[-2:]


async def test_what_a_node_says_before_it_is_left_again_stays_in_the_log(compile_graph: Compile) -> None:
    """Its text was sent before `run.waiting`, so a reader of the store must find both under their numbers (E1)."""
    app = compile_graph(two_at_once())
    sent = await collect(app.stream(thread_id="t"))
    x = next(i for i in (await app.thread("t").state()).interrupts if i.key == "x")
    forget(app)
    sent += await collect(app.stream_answer("t", {x.id: 1}))
    stored = [event for event, _ in await app.thread("t").events()]
    assert [(e.seq, e.type) for e in stored if e.type in ("content.snapshot", "run.waiting")] == [
        (e.seq, e.type.replace("end", "snapshot")) for e in sent if e.type in ("content.end", "run.waiting")
    ]
    assert stored[-1] == sent[-1]


async def test_a_live_answer_takes_no_number_that_the_log_gives_to_the_pause(
    store: Checkpointer, compile_graph: Compile
) -> None:
    """What comes next while a process holds a question is not known when the question is stored."""
    app = compile_graph(two_at_once())
    live = await launch(app, thread_id="t", hold_ms=60_000)
    assert live.log is not None
    async with asyncio.timeout(PATIENCE_S):
        async for event in live.log.follow(0):
            if event.type == "interrupt.request" and len(live.executor.machine.interrupts) == 2:
                await live.executor.flush()
                loaded = await load_thread(store, "t")
                assert loaded is not None
                assert loaded.mark < next(e.seq for e, _ in loaded.pending if e.type == "run.waiting")
                break
    live.executor.cancel()
    await live.over.wait()


async def test_a_call_is_asked_about_once_however_often_its_node_is_entered(store: Checkpointer) -> None:
    did: list[str] = []
    app = paying_graph(store, did)
    first = (await app.run(thread_id="t")).interrupts
    for _ in range(3):
        forget(app)
        assert (await app.thread("t").state()).interrupts == first
    assert (await app.answer("t", {"decision": "approve"})).status == "completed"
    assert did == ["Ada"]


@pytest.mark.parametrize("hold_ms", [0, 10], ids=["left at once", "held for a moment"])
async def test_a_write_beside_a_question_ends_before_its_node_is_left(compile_graph: Compile, hold_ms: int) -> None:
    """Leaving a node cancels what it does; a write that is cut off would be one of unknown outcome."""
    graph, did = Graph(Counter), list[str]()

    @graph.node
    async def both(state: Any, ctx: Context) -> dict[str, Any]:
        async def slowly() -> str:
            for _ in range(50):
                await asyncio.sleep(0.001)
            did.append("written")
            return "written"

        async with asyncio.TaskGroup() as group:
            asked = group.create_task(ctx.ask("well?", schema={"type": "string"}))
            written = group.create_task(ctx.step("slow", slowly))
        return {"log": [asked.result(), written.result()]}

    app = compile_graph(graph)
    live = await launch(app, thread_id="t", hold_ms=hold_ms)
    await live.over.wait()
    assert [i.kind for i in (await app.thread("t").state()).interrupts] == ["ask"]
    assert did == ["written"]
    forget(app)
    done = await app.answer("t", "yes")
    assert (done.status, list(done.state.log), did) == ("completed", ["yes", "written"], ["written"])


async def test_a_question_inside_an_operation_leaves_no_doubt_about_it(compile_graph: Compile) -> None:
    graph, did = Graph(Counter), list[str]()

    @graph.node
    async def node(state: Any, ctx: Context) -> dict[str, Any]:
        async def act() -> str:
            answer: str = await ctx.ask("well?", schema={"type": "string"})
            did.append(answer)
            return answer

        return {"log": [await ctx.step("act", act)]}

    app = compile_graph(graph)
    assert [i.kind for i in (await app.run(thread_id="t")).interrupts] == ["ask"]
    forget(app)
    done = await app.answer("t", "yes")
    assert (done.status, list(done.state.log), did) == ("completed", ["yes"], ["yes"])


async def test_an_answer_that_another_answer_of_the_same_call_makes_needless_is_dropped(compile_graph: Compile) -> None:
    graph = Graph(Counter)
    approval = {"type": "object", "properties": {"decision": {"type": "string"}}}

    @graph.node
    async def both(state: Any, ctx: Any) -> None:
        async with asyncio.TaskGroup() as group:
            for name in ("x", "y"):
                group.create_task(ctx.ask(f"{name}?", key=name, kind="approval", schema=approval))

    app = compile_graph(graph)
    x, y = (await app.run(thread_id="t")).interrupts
    done = await app.answer("t", {x.id: {"decision": "terminate"}, y.id: {"decision": "approve"}})
    assert (done.status, done.finish_reason, done.interrupts) == ("completed", "rejected", ())
    assert (await app.run(thread_id="t")).status == "waiting"


async def test_a_held_question_that_expires_ends_its_node_and_begins_what_the_failure_leads_to(
    compile_graph: Compile,
) -> None:
    graph, left = Graph(Counter), list[str]()

    @graph.node(error=[{"on": ["timeout"], "to": "late"}])
    async def ask(state: Any, ctx: Context) -> None:
        try:
            await ctx.ask("well?", expires="PT0.01S")
        finally:
            left.append("left")

    @graph.node
    async def late(state: Any) -> dict[str, Any]:
        return {"log": ["late"]}

    app = compile_graph(graph)
    live = await launch(app, thread_id="t", hold_ms=60_000)
    async with asyncio.timeout(PATIENCE_S):
        await live.over.wait()
    state = await app.thread("t").state()
    assert (state.status, list(state.values.log), left) == ("idle", ["late"], ["left"])


@pytest.mark.parametrize("where", ["root", "subgraph"])
async def test_a_run_whose_time_is_up_wraps_up_and_ends(compile_graph: Compile, where: str) -> None:
    graph = Graph(Counter, budget={"timeoutMs": 20, "onExceeded": "wrap"})
    inner = graph if where == "root" else Graph(Counter)

    @inner.node(next="wrap" if where == "root" else "end")
    async def slow(state: Any) -> None:
        await asyncio.Event().wait()

    if inner is not graph:
        graph.subgraph("sub", inner, next="wrap")

    @graph.node
    async def wrap(state: Any) -> dict[str, Any]:
        return {"log": ["wrapped"]}

    async with asyncio.timeout(PATIENCE_S):
        done = await compile_graph(graph).run(thread_id="t")
    assert (done.status, done.finish_reason, list(done.state.log)) == ("completed", "budget", ["wrapped"])
