"""Budgets hold in every circle that a run can go in, and wrapping up comes to an end (spec 1.3, 2.1 rule 8, E11)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from graphflow import CompiledGraph, MemoryCheckpointer, load_graph, tool
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.events import InterruptRequest, NodeEnd, ToolResultEvent
from graphflow.graph.core.node_lifecycle import WRAP_UP_STEPS
from graphflow.runtime.runs.live_runs import registry_of
from graphflow.testing import collect
from tests.launching import launch

STATE = {"n": {"type": "integer", "x-reducer": "sum", "default": 0}, "items": {"type": "array", "default": []}}
ANY = [{"on": ["any"], "to": "a"}]


def budgeted(
    nodes: dict[str, Any], functions: Sequence[Any], store: Checkpointer | None, budget: dict[str, Any]
) -> CompiledGraph:
    """A graph of these nodes, whose functions are called as their methods are."""
    document = {
        "graphflow": "1",
        "start": next(iter(nodes)),
        "state": {"type": "object", "properties": STATE},
        "nodes": nodes,
        "budget": budget,
    }
    return load_graph(document, nodes={each.__name__: each for each in functions}, checkpointer=store)


class Nodes:
    """What the nodes of these graphs do; `ran` says which did, in order."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def fails(self, state: Any, ctx: Any) -> None:
        self.ran.append(ctx.node)
        raise ValueError("no")

    async def works(self, state: Any, ctx: Any) -> dict[str, int]:
        self.ran.append(ctx.node)
        return {"n": 1}

    async def calls(self, state: Any, ctx: Any) -> None:
        self.ran.append(ctx.node)
        ctx.charge("modelCalls")
        ctx.add_usage(promptTokens=100)

    async def calls_a_tool(self, state: Any, ctx: Any) -> None:
        self.ran.append(ctx.node)
        ctx.charge_tool_call()

    def graph(self, nodes: dict[str, Any], *, store: Checkpointer | None = None, **budget: Any) -> CompiledGraph:
        return budgeted(nodes, (self.fails, self.works, self.calls, self.calls_a_tool), store, budget)


def node(function: str, next: Any = "end", **keys: Any) -> dict[str, Any]:
    return {"use": f"node:{function}", "next": next, **keys}


def used_up(error: dict[str, Any] | None) -> tuple[str, str]:
    assert error is not None
    return error["code"], error["detail"]["figure"]


# --- circles


@pytest.mark.parametrize(
    ("nodes", "ran"),
    [
        ({"a": node("fails", error=ANY)}, ["a"] * 5),
        ({"a": node("fails", error=[{"on": ["any"], "to": "b"}]), "b": node("fails", error=ANY)}, ["a", "b", "a", "b", "a"]),
    ],
    ids=["to itself", "to each other"],
)  # fmt: skip
async def test_failures_that_are_routed_in_a_circle_end_at_the_step_limit(
    nodes: dict[str, Any], ran: list[str]
) -> None:
    work = Nodes()
    result = await work.graph(nodes, maxSteps=5).run()
    assert (used_up(result.error), work.ran) == (("budget_exceeded", "steps"), ran)


async def test_used_up_steps_go_past_error_routes_and_retries(store: Checkpointer) -> None:
    """No node could begin on the way that they lead to; the run fails where it stands, and goes on from there."""
    work = Nodes()
    nodes = {
        "a": node("works", [{"if": "state.n < 3", "to": "b"}, {"to": "end"}], error=ANY),
        "b": node("works", "a", error=ANY, retry={"max": 3, "on": ["any"], "backoffMs": 0}),
    }
    app = work.graph(nodes, store=store, maxSteps=1)
    result = await app.run({}, "t")
    assert (used_up(result.error), work.ran) == (("budget_exceeded", "steps"), ["a"])
    result = await app.resume("t", budget={"maxSteps": 9})
    assert (result.status, work.ran) == ("completed", ["a", "b", "a"])


async def test_used_up_steps_in_a_subgraph_are_the_runs_and_not_its_nodes() -> None:
    work = Nodes()
    child = {
        "graphflow": "1",
        "start": "x",
        "state": {},
        "nodes": {"x": node("works_alone", "y"), "y": node("works_alone")},
    }

    async def works_alone(state: Any, ctx: Any) -> None:
        work.ran.append(ctx.node)

    inside = {"graph": child, "error": [{"on": ["any"], "to": "a"}], "retry": {"max": 3, "on": ["any"]}, "next": "end"}
    document = {
        "graphflow": "1", "start": "sub", "state": {}, "budget": {"maxSteps": 1}, "nodes": {"sub": inside, "a": node("works_alone")},
    }  # fmt: skip
    result = await load_graph(document, nodes={"works_alone": works_alone}).run()
    assert (used_up(result.error), work.ran) == (("budget_exceeded", "steps"), [])


async def test_a_model_call_that_the_budget_refuses_is_routed_like_any_failure() -> None:
    work = Nodes()
    nodes = {
        "first": node("calls", "second"),
        "second": node("calls", error=[{"on": ["budget_exceeded"], "to": "a"}]),
        "a": node("works"),
    }
    result = await work.graph(nodes, maxModelCalls=1).run()
    assert (result.status, work.ran) == ("completed", ["first", "second", "a"])


@pytest.mark.parametrize(
    "first",
    [
        {"map": "state.items", "as": "item", "do": "body", "next": [{"if": "visits.a < 4000", "to": "a"}, {"to": "end"}]},
        {"graph": {"graphflow": "1", "start": "x", "nodes": {"x": node("works")}}, "with": {"x": "${input.no.such}"},
         "next": "body", "error": ANY},
    ],
    ids=["maps of nothing", "a subgraph without its input"],
)  # fmt: skip
async def test_a_circle_on_which_nothing_runs_fails_with_the_reason(first: dict[str, Any]) -> None:
    work = Nodes()
    app = work.graph({"a": first, "body": node("works")}, store=MemoryCheckpointer(), maxSteps=5000)
    for _ in range(2):  # the thread takes new input all the same
        result = await app.run({}, "t")
        assert result.error is not None
        assert (result.status, result.error["code"], work.ran) == ("failed", "node_error", [])
        assert "leads to node 'a' again and again, and nothing runs on it" in result.error["message"]


@pytest.mark.parametrize("then", [[{"if": "visits.a < 900", "to": "a"}, {"to": "last"}], "b0"], ids=["circle", "chain"])
async def test_maps_of_nothing_end_where_their_routes_do(then: Any) -> None:
    """However many there are: they are passed through within one tick, and none of them is inside the one before."""
    empty = {"map": "state.items", "as": "item"}
    nodes = {"a": {**empty, "do": "a_body", "next": then}, "a_body": node("works"), "last": node("works")}
    if then == "b0":
        for n in range(200):
            nodes |= {
                f"b{n}": {**empty, "do": f"c{n}", "next": f"b{n + 1}" if n < 199 else "last"},
                f"c{n}": node("works"),
            }
    work = Nodes()
    result = await work.graph(nodes, maxSteps=1000).run()
    assert (result.status, work.ran) == ("completed", ["last"])


# --- wrapping up


async def test_what_wraps_up_runs_once_even_where_a_route_leads_back_to_it(store: Checkpointer) -> None:
    work = Nodes()
    nodes = {
        "a": node("works", [{"if": "state.n > 900", "to": "end"}, {"to": "wrap"}]),
        "wrap": node("works", "a"),
    }
    app = work.graph(nodes, store=store, maxSteps=3, onExceeded="wrap")
    result = await app.run({}, "t")
    assert (result.status, used_up(result.error)) == ("failed", ("budget_exceeded", "steps"))
    assert work.ran == ["a", "wrap", "a", "wrap", "a"]
    assert result.error is not None
    assert "'wrap' has wrapped up already: it runs once" in result.error["message"]


async def test_a_circle_behind_the_wrapping_up_comes_to_an_end() -> None:
    work = Nodes()
    loop = [{"if": "state.n > 9000", "to": "end"}, {"to": "a"}]
    nodes = {
        "first": node("calls", "second"),
        "second": node("calls"),
        "wrap": node("works", "a"),
        "a": node("works", loop),
    }
    for limits in list[Any](({}, {"maxSteps": 2})):
        work.ran.clear()
        result = await work.graph(nodes, onExceeded="wrap", maxModelCalls=1, **limits).run()
        assert used_up(result.error) == ("budget_exceeded", "steps")
        assert work.ran == ["first", "second", "wrap", *["a"] * (WRAP_UP_STEPS - 1)]


async def test_nodes_behind_the_wrapping_up_still_run_when_no_step_is_left() -> None:
    work = Nodes()
    nodes = {"a": node("works", "b"), "b": node("works"), "wrap": node("works", "tell"), "tell": node("works")}
    result = await work.graph(nodes, maxSteps=1, onExceeded="wrap").run()
    assert (result.status, result.finish_reason, work.ran) == ("completed", "max_steps", ["a", "wrap", "tell"])


@pytest.mark.parametrize("budget", [{"maxModelCalls": 2}, {"maxTokens": 150}], ids=str)
async def test_one_model_call_is_kept_for_the_wrapping_up_and_no_second(budget: Any) -> None:
    work = Nodes()
    again = [{"if": "state.n == 0", "to": "a"}, {"to": "end"}]
    nodes = {"a": node("calls", again), "wrap": node("calls", "more"), "more": node("calls")}
    result = await work.graph(nodes, onExceeded="wrap", maxSteps=20, **budget).run()
    assert (result.status, work.ran) == ("failed", ["a", "a", "a", "wrap", "more"])
    assert result.error is not None
    assert (result.error["code"], result.usage["modelCalls"]) == ("budget_exceeded", 3)


async def test_no_tool_call_is_kept_for_the_wrapping_up() -> None:
    work = Nodes()
    nodes = {"a": node("calls_a_tool", "b"), "b": node("calls_a_tool"), "wrap": node("calls_a_tool")}
    result = await work.graph(nodes, maxToolCalls=1, onExceeded="wrap").run()
    assert (used_up(result.error), work.ran) == (("budget_exceeded", "toolCalls"), ["a", "b", "wrap"])


async def test_with_a_larger_budget_a_run_that_wrapped_up_in_vain_goes_on_as_any_other(store: Checkpointer) -> None:
    work = Nodes()
    nodes = {
        "a": node("works", "b"),
        "b": node("works"),
        "wrap": node("calls", "more"),
        "more": node("calls", [{"if": "state.n < 3", "to": "b"}, {"to": "end"}]),
    }
    app = work.graph(nodes, store=store, maxSteps=1, maxModelCalls=1, onExceeded="wrap")
    result = await app.run({}, "t")
    assert (result.status, work.ran) == ("failed", ["a", "wrap", "more"])
    result = await app.resume("t", budget={"maxModelCalls": 5, "maxSteps": 3})
    assert (result.status, result.finish_reason) == ("completed", "max_steps")
    assert work.ran == ["a", "wrap", "more", "more", "wrap", "more", "b"]


# --- going on with nothing left


class Writes:
    """Nodes that each write outside once."""

    def __init__(self) -> None:
        self.wrote: list[str] = []

    async def writes(self, state: Any, ctx: Any) -> dict[str, int]:
        async def write() -> int:
            self.wrote.append(ctx.node)
            return 1

        await ctx.step("write", write, effects="write")
        return {"n": 1}

    def graph(self, nodes: dict[str, Any], store: Checkpointer, **budget: Any) -> CompiledGraph:
        return budgeted(nodes, (self.writes,), store, budget)


LOOP = node("writes", [{"if": "state.n < 50", "to": "a"}, {"to": "end"}])
INSIDE = {
    "graphflow": "1", "start": "x0", "state": {"type": "object", "properties": STATE},
    "nodes": {f"x{n}": node("writes", f"x{n + 1}" if n < 9 else "end") for n in range(10)},
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "before", "after"),
    [
        ({"a": LOOP}, 3, 5),
        ({"sub": {"graph": INSIDE, "next": "end"}}, 2, 4),
        ({"fan": {"map": "[0]", "as": "i", "do": "a", "next": "end"}, "a": LOOP}, 2, 4),
        ({"fan": {"map": "[0, 1]", "as": "i", "do": "a", "next": "end"}, "a": LOOP}, None, None),
        ({"both": {"parallel": {"l": "a", "r": "b"}, "next": "end"}, "a": LOOP, "b": node("writes")}, None, None),
    ],
    ids=["loop", "subgraph", "branch", "branches", "parallel"],
)  # fmt: skip
async def test_a_resume_with_no_step_left_fails_as_before_and_nothing_acts(
    nodes: dict[str, Any], before: int | None, after: int | None, store: Checkpointer
) -> None:
    work = Writes()
    app = work.graph(nodes, store, maxSteps=3)
    first = await app.run({}, "t")
    assert first.error is not None
    assert first.error["detail"] == {"figure": "steps", "limit": 3, "used": 3}
    wrote = list(work.wrote)
    assert before is None or len(wrote) == before
    for _ in range(3):
        again = await app.resume("t")
        assert (again.status, again.error, work.wrote) == ("failed", first.error, wrote)
    more = await app.resume("t", budget={"maxSteps": 5})
    assert (more.status, used_up(more.error)) == ("failed", ("budget_exceeded", "steps"))
    assert after is None or len(work.wrote) == after
    assert len(work.wrote) <= 5
    assert (await app.resume("t")).status == "failed"
    assert len(work.wrote) <= 5


async def test_an_edit_gives_a_run_no_more_steps(store: Checkpointer) -> None:
    work = Writes()
    app = work.graph({"a": LOOP}, store, maxSteps=3)
    await app.run({}, "t")
    await app.thread("t").edit({"n": 1})
    result = await app.resume("t")
    assert (used_up(result.error), work.wrote) == (("budget_exceeded", "steps"), ["a"] * 3)


async def test_what_has_wrapped_up_does_not_at_a_resume_either(store: Checkpointer) -> None:
    work = Writes()
    nodes = {"a": node("writes", [{"if": "state.n > 900", "to": "end"}, {"to": "wrap"}]), "wrap": node("writes", "a")}
    app = work.graph(nodes, store, maxSteps=3, onExceeded="wrap")
    first = await app.run({}, "t")
    wrote = list(work.wrote)
    for _ in range(2):
        again = await app.resume("t")
        assert (again.status, again.error, work.wrote) == ("failed", first.error, wrote)


# --- what counts


class Branches(Nodes):
    """The branch of item 0 ends by itself; those of others have called a model and go on until they are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.all_begun = asyncio.Event()

    async def calls(self, state: Any, ctx: Any) -> None:
        await super().calls(state, ctx)
        self.begun += 1
        if self.begun % 3 == 0:
            self.all_begun.set()
        if ctx.path.endswith("[0]"):
            await self.all_begun.wait()
            self.all_begun.clear()
        else:
            await asyncio.Event().wait()


def race(**keys: Any) -> dict[str, Any]:
    fan = {"map": "[0, 1, 2]", "as": "item", "do": "body", "join": {"wait": "any"}, **keys}
    return {"fan": fan, "body": node("calls")}


async def test_what_losers_have_used_counts_for_the_run(store: Checkpointer) -> None:
    result = await Branches().graph(race(), store=store).run({}, "t")
    assert (result.status, result.usage["modelCalls"], result.usage["promptTokens"]) == ("completed", 3, 300)
    assert sum(row.model_calls for row in await store.spent()) == 3


async def test_losers_can_not_carry_a_run_past_its_limit() -> None:
    work = Branches()
    again = [{"if": "visits.fan < 50", "to": "fan"}, {"to": "end"}]
    result = await work.graph(race(next=again), maxModelCalls=6, maxSteps=500).run()
    assert (used_up(result.error), result.usage["modelCalls"]) == (("budget_exceeded", "modelCalls"), 6)


async def test_what_the_branches_of_a_fan_that_took_too_long_have_used_counts() -> None:
    work = Branches()
    keys = {"join": {"wait": "all"}, "timeoutMs": 20, "error": [{"on": ["timeout"], "to": "end"}]}
    result = await work.graph(race(**keys)).run()
    assert (result.status, result.usage["modelCalls"]) == ("completed", 3)


async def test_what_branches_have_used_counts_where_a_sibling_ends_the_run() -> None:
    work = Branches()
    branches = {"first": "calls", "second": "fails_once_begun"}

    async def fails_once_begun(state: Any, ctx: Any) -> None:
        while work.begun < 1:
            await asyncio.sleep(0)
        raise ValueError("no")

    document = {
        "graphflow": "1",
        "start": "both",
        "state": {},
        "nodes": {"both": {"parallel": branches}, **{name: node(name) for name in branches.values()}},
    }
    app = load_graph(document, nodes={"calls": work.calls, "fails_once_begun": fails_once_begun})
    result = await app.run()
    assert (result.status, result.usage["modelCalls"]) == ("failed", 1)


async def test_what_a_node_used_before_it_waited_counts_though_it_is_entered_again(store: Checkpointer) -> None:
    async def asks(state: Any, ctx: Any) -> None:
        async def call() -> int:
            ctx.charge("modelCalls")
            ctx.add_usage(promptTokens=10, costUsd=0.5)
            return 1

        await ctx.step("first", call, effects="none")
        await ctx.ask("go on?")
        await ctx.step("second", call, effects="none")

    document = {"graphflow": "1", "start": "asks", "state": {}, "nodes": {"asks": node("asks")}}
    app = load_graph(document, nodes={"asks": asks}, checkpointer=store)
    waiting = await app.run({}, "t", budget={"maxModelCalls": 1})
    assert (waiting.status, waiting.usage["modelCalls"]) == ("waiting", 1)
    failed = await app.answer("t", {waiting.interrupts[0].id: "yes"})
    assert (used_up(failed.error), failed.usage["modelCalls"]) == (("budget_exceeded", "modelCalls"), 1)
    done = await app.resume("t", budget={"maxModelCalls": 2})
    assert (done.status, done.usage["modelCalls"], done.usage["promptTokens"]) == ("completed", 2, 20)
    assert done.usage["costUsd"] == 1.0


@pytest.mark.parametrize("hold_ms", [0, 60_000], ids=["left", "held"])
async def test_a_call_counts_once_however_often_its_node_is_entered(store: Checkpointer, hold_ms: int) -> None:
    ran: list[str] = []

    @tool
    async def look(place: str) -> str:
        """Looks."""
        ran.append(place)
        return place

    @tool
    async def go(place: str) -> str:
        """Goes."""
        ran.append(f"to {place}")
        return place

    calls = [{"id": name, "name": name, "arguments": '{"place": "Ulm"}'} for name in ("look", "go")]
    act = {"use": "tools", "with": {"calls": calls, "parallel": False}, "next": "end"}
    document = {
        "graphflow": "1",
        "start": "act",
        "nodes": {"act": act},
        "approval": {"look": "DISABLED", "go": "REQUIRE_APPROVAL"},
    }
    app = load_graph(document, tools=[look, go], checkpointer=store)
    live = await launch(app, {}, "t", budget={"maxToolCalls": 2}, hold_ms=hold_ms)
    assert live.log is not None
    events = []
    async for event in live.log.follow(0):
        events.append(event)
        if hold_ms and isinstance(event, InterruptRequest):
            live.executor.answer(event.interrupt_id, {"decision": "approve"}, "approve")
    if not hold_ms:
        events = await collect(app.stream_answer("t", {"decision": "approve"}))
    assert [event.usage for event in events if isinstance(event, NodeEnd)] == [{"toolCalls": 2}]
    assert (await app.thread("t").state()).usage["toolCalls"] == 2
    assert ran == ["Ulm", "to Ulm"]
    assert sum(row.tool_calls for row in await store.spent()) == 2


async def test_a_call_that_was_cut_off_counts_when_it_is_made_again_and_not_with_the_record_of_another(
    store: Checkpointer,
) -> None:
    slow_began, first_life = asyncio.Event(), True

    @tool(effects="read")
    async def quick() -> str:
        """Quick."""
        return "a"

    @tool(effects="read")
    async def slow() -> str:
        """Slow."""
        slow_began.set()
        if first_life:
            await asyncio.Event().wait()
        return "b"

    calls = [{"id": name, "name": name, "arguments": "{}"} for name in ("quick", "slow")]
    act = {"use": "tools", "with": {"calls": calls}, "next": "end"}
    app = load_graph({"graphflow": "1", "start": "act", "nodes": {"act": act}}, tools=[quick, slow], checkpointer=store)
    live = await launch(app, {}, "t", budget={"maxToolCalls": 2})
    assert live.log is not None
    await slow_began.wait()
    async for event in live.log.follow(0):
        if isinstance(event, ToolResultEvent):
            break
    await live.executor.flush()
    await registry_of(store).here(app.host.clock).close(0)
    assert sum(row.tool_calls for row in await store.spent()) == 1
    first_life = False
    done = await app.resume("t")
    assert (done.status, done.usage["toolCalls"]) == ("completed", 2)


async def test_what_an_operation_used_is_durable_with_its_record_and_told_at_the_nodes_end(store: Checkpointer) -> None:
    """A crash loses both or none; what a node's operations used is counted once."""
    durable: list[int] = []

    async def calls(state: Any, ctx: Any) -> None:
        async def call() -> int:
            durable.append(sum(row.tool_calls for row in await store.spent()))
            ctx.charge_tool_call()
            return 1

        for name in ("a", "b"):
            await ctx.step(name, call, effects="write")

    document = {"graphflow": "1", "start": "calls", "state": {}, "nodes": {"calls": node("calls")}}
    app = load_graph(document, nodes={"calls": calls}, checkpointer=store)
    events = await collect(app.stream({}, "t", budget={"maxToolCalls": 2}))
    ends = [event.usage for event in events if isinstance(event, NodeEnd)]
    assert (durable, ends) == ([0, 1], [{"toolCalls": 2}])
    assert sum(row.tool_calls for row in await store.spent()) == 2


async def test_a_loser_that_has_used_something_has_no_list_of_the_state_copied() -> None:
    """What a tick ends is counted with it, at a cost that does not grow with the thread."""
    seen: list[Any] = []

    async def loses(state: Any, ctx: Any) -> None:
        ctx.add_usage(promptTokens=7)
        await asyncio.Event().wait()

    async def wins(state: Any, ctx: Any) -> None:
        await asyncio.sleep(0)  # the other one has begun by then
        seen.append(state["log"]._items)

    race = {
        "parallel": {"a": "wins", "b": "loses"},
        "join": {"wait": "any"},
        "set": {"log": "['round']"},
        "next": [{"if": "visits.race < 5", "to": "race"}, {"to": "end"}],
    }
    document = {
        "graphflow": "1", "start": "race", "budget": {"maxSteps": 50},
        "state": {"type": "object", "properties": {"log": {"type": "array", "default": [], "x-reducer": "append"}}},
        "nodes": {"race": race, "wins": node("wins"), "loses": node("loses")},
    }  # fmt: skip
    result = await load_graph(document, nodes={"wins": wins, "loses": loses}).run()
    assert (result.status, len(result.state["log"]), result.usage["promptTokens"]) == ("completed", 5, 35)
    assert all(items is seen[1] for items in seen[1:])
