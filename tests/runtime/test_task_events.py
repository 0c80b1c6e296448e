"""`plan.*` and `task.*` events are a function of the records: exact live, after a cancel, a failure, a resume (spec 3.3)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import DefinitionError, NodeFailed, StoreError
from graphflow.events import Event
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeClock, FakeIds

STEPS = ("one", "two")
DOCUMENT: dict[str, Any] = {
    "graphflow": "1",
    "state": {
        "type": "object",
        "properties": {
            "plan": {"type": ["object", "null"], "default": None, "x-scope": "run", "x-tasks": ["work"]},
            "left": {"type": "integer", "default": 0},
        },
    },
    "budget": {"maxRounds": 5},
    "start": "make",
    "nodes": {
        "make": {"use": "node:make", "next": "work"},
        "work": {
            "use": "node:work",
            "next": [{"if": "state.left > 0 && visits.work < limits.rounds", "to": "work"}, {"to": "tell"}],
            "error": [{"on": ["node_error"], "to": "tell"}],
        },
        "tell": {"use": "node:tell", "next": "end"},
    },
}


def plan_of(*statuses: str) -> dict[str, Any]:
    steps = [
        {"taskId": name, "title": f"Do {name}", "description": f"All of {name}", "status": status}
        for name, status in zip(STEPS, statuses, strict=True)
    ]
    return {"planId": "p", "steps": steps}


async def make(state: Any, ctx: Any) -> dict[str, Any]:
    return {"plan": plan_of("running", "init"), "left": 2}


async def work(state: Any, ctx: Any) -> dict[str, Any]:
    await ctx.content(f"working, {state.left} left")
    left = state.left - 1
    return {"plan": plan_of("completed", "running" if left else "completed"), "left": left}


async def tell(state: Any, ctx: Any) -> None:
    await ctx.content("told")


class FallingIds(FakeIds):
    """Ids of which none is greater than the one before."""

    def new_id(self) -> str:
        *head, last = super().new_id().split("-")
        return "-".join([*head, f"{0xFFFFFFFFFFFF - int(last, 16):012x}"])


def compiled(store: Checkpointer | None, ids: FakeIds | None = None, **nodes: Any) -> CompiledGraph:
    functions = {"make": make, "work": work, "tell": tell, **nodes}
    return load_graph(DOCUMENT, checkpointer=store, nodes=functions, ids=ids or FakeIds())


def told(events: list[Event]) -> list[str]:
    """What the events say of plan, tasks and blocks, in short."""
    out = []
    for event in events:
        data: Any = event
        match event.type.partition(".")[0]:
            case "plan":
                statuses = " ".join(step["status"] for step in data.plan["steps"])
                out.append(f"{event.type} {data.plan_id} {statuses}")
            case "task":
                out.append(f"{event.type} {data.task_id}")
            case "run":
                out.append(event.type)
            case "content" if event.type.endswith((".start", ".snapshot")):
                out.append(f"content of {data.task_id}")
    return out


WHOLE = [
    "run.start",
    "plan.create p init init",
    "plan.update p running init",
    "task.start one",
    "content of one",
    "task.complete one",
    "plan.update p completed running",
    "task.start two",
    "content of two",
    "task.complete two",
    "plan.update p completed completed",
    "content of None",
    "run.complete",
]


async def test_tasks_are_told_in_order_and_leaf_events_bear_the_active_one(store: Checkpointer) -> None:
    app = compiled(store)
    assert told([event async for event in app.stream({}, "t")]) == WHOLE


async def test_the_same_is_told_without_a_store() -> None:
    assert told([event async for event in compiled(None).stream({}, "t")]) == WHOLE


async def test_a_start_names_the_task_and_a_plan_shows_its_steps(store: Checkpointer) -> None:
    events = [event async for event in compiled(store).stream({}, "t")]
    start: Any = next(event for event in events if event.type == "task.start")
    assert (start.task_name, start.description) == ("Do one", "All of one")
    create: Any = next(event for event in events if event.type == "plan.create")
    assert create.chat_id == "t" and create.plan["steps"][0]["title"] == "Do one"


async def test_a_task_whose_node_fails_is_told_as_failed_before_the_next_node_speaks(store: Checkpointer) -> None:
    async def broken(state: Any, ctx: Any) -> None:
        await ctx.content("well")
        raise ValueError("no luck")

    events = [event async for event in compiled(store, work=broken).stream({}, "t")]
    assert told(events)[3:] == [
        "task.start one",
        "content of one",
        "task.fail one",
        "plan.update p failed canceled",
        "content of None",
        "run.complete",
    ]
    fail: Any = next(event for event in events if event.type == "task.fail")
    assert fail.error["code"] == "node_error" and "no luck" in fail.error["message"]


async def test_a_run_that_fails_fails_its_task_first_and_another_run_takes_it_up(store: Checkpointer) -> None:
    failures = [NodeFailed("try later", code="rate_limit")]

    async def limited(state: Any, ctx: Any) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return await work(state, ctx)

    app = compiled(store, work=limited)
    events = [event async for event in app.stream({}, "t")]
    assert told(events)[3:] == ["task.start one", "task.fail one", "plan.update p failed init", "run.error"]
    again = told([event async for event in app.stream_resume("t")])
    assert again[:4] == ["run.start", "run.resume", "plan.update p running init", "task.start one"]
    assert again[4:] == WHOLE[4:]


async def test_a_failure_without_a_task_is_told_as_the_runs_only(store: Checkpointer) -> None:
    async def none(state: Any, ctx: Any) -> None:
        raise NodeFailed("try later", code="rate_limit")

    assert told([event async for event in compiled(store, make=none).stream({}, "t")]) == ["run.start", "run.error"]


async def test_a_cancel_closes_blocks_then_the_task_then_the_run(store: Checkpointer) -> None:
    async def cancelled(state: Any, ctx: Any) -> None:
        await ctx.content("begun")
        live = app.host.live("t")
        assert live is not None
        live.executor.cancel()

    app = compiled(store, work=cancelled)
    events = [event async for event in app.stream({}, "t")]
    assert told(events)[3:] == [
        "task.start one",
        "content of one",
        "task.cancel one",
        "plan.update p canceled init",
        "run.cancel",
    ]
    types = [event.type for event in events]
    assert types.index("content.end") < types.index("task.cancel")


async def test_a_task_that_waits_goes_on_under_its_id_after_the_answer(store: Checkpointer) -> None:
    async def asks(state: Any, ctx: Any) -> dict[str, Any]:
        await ctx.ask("May I?", schema={"type": "string"})
        return dict(await work(state, ctx))

    app = compiled(store, work=asks)
    waiting = [event async for event in app.stream({}, "t")]
    assert told(waiting)[3:] == ["task.start one", "run.waiting"]
    [interrupt] = (await app.thread("t").state()).interrupts
    answered = [event async for event in app.stream_answer("t", {interrupt.id: "yes"})]
    assert told(answered)[:3] == ["run.resume", "content of one", "task.complete one"]


async def test_nothing_is_told_of_a_value_that_is_no_plan(store: Checkpointer) -> None:
    async def odd(state: Any, ctx: Any) -> dict[str, Any]:
        return {"plan": {"steps": ["nothing"]}, "left": 0}

    assert told([event async for event in compiled(store, make=odd, work=tell).stream({}, "t")]) == [
        "run.start", "content of None", "content of None", "run.complete",
    ]  # fmt: skip


@pytest.mark.parametrize("nodes", ["work", ["nobody"], [3]])
def test_the_nodes_of_a_plan_must_exist(nodes: Any) -> None:
    properties = {"plan": {"type": ["object", "null"], "default": None, "x-tasks": nodes}}
    with pytest.raises(DefinitionError) as refused:
        load_graph({**DOCUMENT, "state": {"type": "object", "properties": properties}}, nodes={"make": make})
    assert any(issue.pointer.startswith("/state/properties/plan/x-tasks") for issue in refused.value.errors)


async def test_without_a_store_no_time_falls_behind_the_one_before() -> None:
    functions = {"make": make, "work": work, "tell": tell}
    app = load_graph(DOCUMENT, nodes=functions, ids=FakeIds(), clock=FakeClock(step_ms=1))
    times = [event.timestamp async for event in app.stream({}, "t")]
    assert times == sorted(times)


async def test_a_run_that_goes_on_from_an_earlier_task_tells_the_plan_as_it_was_then(store: Checkpointer) -> None:
    app = compiled(store)
    await app.run({}, "t")
    history = await app.thread("t").history()
    in_task_one = next(c.id for c in history if c.next == ["work"] and c.step == 1)
    again = told([event async for event in app.stream_resume("t", checkpoint_id=in_task_one)])
    assert again == ["run.start", "run.resume", "plan.update p running init", "task.start one", *WHOLE[4:]]


async def test_a_fork_tells_the_plan_under_its_own_chat(store: Checkpointer) -> None:
    app = compiled(store)
    await app.run({}, "t")
    history = await app.thread("t").history()
    in_task_two = next(c.id for c in history if c.next == ["work"] and c.step == 2)
    await app.thread("t").fork(in_task_two, thread_id="u")
    events = [event async for event in app.stream_resume("u")]
    assert told(events)[2:4] == ["plan.update p completed running", "task.start two"]
    assert {event.chat_id for event in events if event.type.startswith("plan.")} == {"u"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("ids", [FakeIds, FallingIds])
async def test_a_rewind_to_a_question_tells_the_task_that_asks_before_the_answer_comes(
    store: Checkpointer, ids: type[FakeIds]
) -> None:
    async def asks(state: Any, ctx: Any) -> dict[str, Any]:
        await ctx.ask("May I?", schema={"type": "string"})
        return dict(await work(state, ctx))

    app = compiled(store, ids(), work=asks)
    await app.run({}, "t")
    thread = app.thread("t")
    [waiting] = [c.id for c in await thread.history() if c.source == "ask"]
    [question] = (await thread.state()).interrupts
    await app.answer("t", {question.id: "yes"})
    await thread.rewind(waiting, cancel=True)
    state = await thread.state()
    [question] = state.interrupts
    after = [event async for event in app.stream_answer("t", {question.id: "yes"})]
    log = [event for event, _ in await thread.events(question.run_id)]
    tasks = [line for line in told(log) if line.startswith(("task", "plan"))]
    assert tasks[:3] == ["plan.update p running init", "task.start one", "task.complete one"]
    assert all(getattr(e, "task_id", "one") == "one" for e in after if e.type == "content.start")


async def test_a_store_that_fails_fails_the_active_task_too(store: Checkpointer) -> None:
    async def doomed(state: Any, ctx: Any) -> None:
        await ctx.content("begun")
        live = app.host.live("t")
        assert live is not None
        live.executor.commits.fail(StoreError("the disk is gone"))

    app = compiled(store, work=doomed)
    events: list[Event] = []

    async def read() -> None:
        async for event in app.stream({}, "t"):
            events.append(event)

    with pytest.raises(StoreError):
        await read()
    assert told(events)[3:] == ["task.start one", "content of one", "task.fail one", "run.error"]


async def test_steps_that_run_side_by_side_give_updates_of_the_plan_only(store: Checkpointer) -> None:
    async def both(state: Any, ctx: Any) -> dict[str, Any]:
        return {"plan": plan_of("running", "running"), "names": list(STEPS)}

    async def finish(state: Any, ctx: Any) -> dict[str, Any]:
        return {"plan": plan_of("completed", "completed")}

    async def act(state: Any, ctx: Any) -> None:
        await ctx.content("acting")

    properties = {
        "plan": {"type": ["object", "null"], "default": None, "x-scope": "run", "x-tasks": []},
        "names": {"type": "array", "default": []},
    }
    document = {
        "graphflow": "1",
        "state": {"type": "object", "properties": properties},
        "start": "make",
        "nodes": {
            "make": {"use": "node:make", "next": "fan"},
            "fan": {"map": "state.names", "as": "name", "do": "act", "next": "finish"},
            "act": {"use": "node:act", "next": "end"},
            "finish": {"use": "node:finish", "next": "end"},
        },
    }
    nodes = {"make": both, "act": act, "finish": finish}
    app = load_graph(document, checkpointer=store, nodes=nodes, ids=FakeIds())
    assert told([event async for event in app.stream({}, "t")]) == [
        "run.start",
        "plan.create p init init",
        "plan.update p running running",
        "content of None",
        "content of None",
        "plan.update p completed completed",
        "run.complete",
    ]
