"""`map` and `parallel` as a user runs them: order, limits, losers, failures, questions, crashes (E10)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import Context, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.events import NodeStart
from graphflow.testing import collect
from tests.runtime.branches import STATE, WORK, Gates, document, fan


async def test_results_keep_the_input_order_whatever_order_branches_finish_in(store: Checkpointer) -> None:
    gates = Gates()
    run = asyncio.create_task(fan(gates, store=store).run({}, "t"))  # noqa: TID251 - awaited below
    await gates.begun_are(0, 1, 2)
    for number in (2, 0, 1):
        gates.open(number)
    result = await run
    assert list(result.state["results"]) == [0, 10, 20]
    assert result.state["total"] == 30
    assert result.state["outs"] == [{"index": i, "status": "done", "out": 10 * i} for i in range(3)]


async def test_no_more_branches_run_at_once_than_max_says(store: Checkpointer) -> None:
    gates = Gates()
    run = asyncio.create_task(fan(gates, store=store, max=2).run({"query": "q"}, "t"))  # noqa: TID251 - awaited below
    await gates.begun_are(0, 1)
    gates.open(1)
    await gates.begun_are(0, 1, 2)
    gates.open(0, 2)
    assert list((await run).state["results"]) == [0, 10, 20]
    assert gates.most == 2


async def test_branches_that_never_wait_take_turns_node_by_node(store: Checkpointer) -> None:
    took: list[tuple[str, int]] = []

    def taking(node: str) -> Any:
        async def take(n: int) -> None:
            took.append((node, n))

        return take

    nodes = {
        "all": {"map": "state.items", "as": "n", "do": "first", "next": "end"},
        "first": {"use": "fn:first", "with": {"n": "${n}"}, "next": "second"},
        "second": {"use": "fn:second", "with": {"n": "${n}"}, "next": "end"},
    }
    state = {"type": "object", "properties": {"items": {"type": "array", "default": [0, 1, 2]}}}
    functions = {node: taking(node) for node in ("first", "second")}
    made = {"graphflow": "1", "start": "all", "state": state, "nodes": nodes, "budget": {"maxSteps": 20}}
    await load_graph(made, functions=functions, checkpointer=store).run({}, "t")
    assert took == [(node, n) for node in ("first", "second") for n in range(3)]


async def test_an_empty_map_gives_an_empty_list_and_its_node_begins_and_ends(store: Checkpointer) -> None:
    app = fan(Gates(), store=store, map="[]")
    events = await collect(app.stream({}, "t"))
    assert [e.type for e in events if e.type.startswith("node.")] == ["node.start", "node.end"]
    assert (await app.thread("t").state()).values["outs"] == []


async def test_the_first_branch_wins_and_the_losers_are_cancelled_and_said_to_be(store: Checkpointer) -> None:
    gates = Gates()
    app = fan(gates, store=store, join={"wait": "any"})
    events: list[Any] = []

    async def stream() -> None:
        async for event in app.stream({}, "t"):
            events.append(event)

    run = asyncio.create_task(stream())  # noqa: TID251 - awaited below
    await gates.begun_are(0, 1, 2)
    gates.open(1)
    await run
    state = (await app.thread("t").state()).values
    assert state["outs"] == [{"index": 1, "status": "done", "out": 10}]
    assert list(state["results"]) == [10]
    assert sorted(gates.cancelled) == [0, 2]
    cancelled = [e for e in events if e.type == "node.error"]
    assert sorted((e.node, e.error["code"], e.will_retry) for e in cancelled) == [("work", "cancelled", False)] * 2


async def test_some_winners_are_enough_when_the_join_says_how_many(store: Checkpointer) -> None:
    gates = Gates()
    run = asyncio.create_task(fan(gates, store=store, join={"wait": 2}).run({}, "t"))  # noqa: TID251 - awaited below
    await gates.begun_are(0, 1, 2)
    gates.open(2)
    gates.open(0)
    result = await run
    assert [branch["index"] for branch in result.state["outs"]] == [0, 2]
    assert list(result.state["results"]) == [0, 20]


async def test_a_failed_branch_fails_the_node_and_its_error_route_is_taken(store: Checkpointer) -> None:
    gates = Gates()
    gates.failing.add(1)
    after = {"use": "fn:work", "with": {"n": "${7}"}, "set": {"results": "[out]"}, "next": "end"}
    app = fan(gates, {"after": after}, store=store, error=[{"on": ["node_error"], "to": "after"}])
    run = asyncio.create_task(app.run({}, "t"))  # noqa: TID251 - awaited below
    await gates.begun_are(0, 1, 2)
    gates.open(1, 7)
    result = await run
    assert list(result.state["results"]) == [70]
    assert sorted(gates.cancelled) == [0, 2]


async def test_a_failure_ends_branches_that_have_not_taken_their_first_step(store: Checkpointer) -> None:
    gates = Gates(open_from_start=True)
    gates.failing.add(0)
    result = await fan(gates, store=store).run({}, "t")
    assert (result.status, gates.begun) == ("failed", [0])


async def test_an_error_of_the_engine_in_a_branch_ends_the_run_and_does_not_hang(
    store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("a bug of the engine")

    monkeypatch.setattr("graphflow.graph.engine.node_runs.NodeRuns.succeeded", broken)
    monkeypatch.setattr("graphflow.graph.engine.node_runs.NodeRuns.failed", broken)
    with pytest.raises(RuntimeError, match="a bug of the engine"):
        await fan(Gates(open_from_start=True), store=store).run({}, "t")


async def test_without_a_route_the_run_fails_and_a_resume_runs_only_what_had_not_finished(store: Checkpointer) -> None:
    gates = Gates()
    gates.failing.add(1)
    app = fan(gates, store=store, max=1)
    gates.open(0, 1, 2)
    failed = await app.run({}, "t")
    assert (failed.status, (failed.error or {}).get("code")) == ("failed", "node_error")
    assert gates.begun == [0, 1]
    gates.failing.clear()
    result = await app.resume("t")
    assert list(result.state["results"]) == [0, 10, 20]
    assert gates.begun == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("on_error", "expected"),
    [
        ("collect", [(0, "done"), (1, "failed"), (2, "done")]),
        ("skip", [(0, "done"), (2, "done")]),
    ],
)
async def test_failed_branches_are_collected_or_skipped(
    store: Checkpointer, on_error: str, expected: list[tuple[int, str]]
) -> None:
    gates = Gates(open_from_start=True)
    gates.failing.add(1)
    result = await fan(gates, store=store, join={"onError": on_error}).run({}, "t")
    assert [(branch["index"], branch["status"]) for branch in result.state["outs"]] == expected
    assert [branch["error"]["code"] for branch in result.state["outs"] if "error" in branch] == ["node_error"] * (
        on_error == "collect"
    )
    assert list(result.state["results"]) == [0, 20]


async def test_a_join_that_can_not_be_met_any_more_says_why(store: Checkpointer) -> None:
    gates = Gates(open_from_start=True)
    gates.failing |= {0, 1}
    result = await fan(gates, store=store, join={"wait": 2, "onError": "skip"}).run({}, "t")
    assert result.status == "failed"
    assert "waits for 2 of its 3 branches, and only 1 ended well" in (result.error or {}).get("message", "")


@pytest.mark.parametrize("onError", ["fail", "collect", "skip"])
@pytest.mark.parametrize("items", [[], [0], [0, 1]])
async def test_a_map_that_waits_for_more_branches_than_it_has_items_fails_before_any_begins(
    store: Checkpointer,
    items: list[int],
    onError: str,  # noqa: N803 - a key of the document
) -> None:
    gates = Gates(open_from_start=True)
    app = fan(gates, store=store, map=str(items), join={"wait": 5, "onError": onError})
    result = await app.run({}, "t")
    error = result.error or {}
    assert (result.status, error["code"], error["node"], error["detail"]) == (
        "failed", "validation", "fan", {"wait": 5, "items": len(items)},
    )  # fmt: skip
    assert gates.begun == [], "no branch has begun"


async def test_an_error_route_takes_a_map_that_has_too_few_items(store: Checkpointer) -> None:
    other = {"use": "fn:work", "with": {"n": "${7}"}, "set": {"total": "out"}, "next": "end"}
    route = [{"on": ["validation"], "to": "other"}, {"to": "fail"}]
    app = fan(Gates(open_from_start=True), {"other": other}, store=store, map="[1, 2]", join={"wait": 5}, error=route)
    result = await app.run({}, "t")
    assert (result.status, result.state["total"]) == ("completed", 70)


async def test_a_map_over_something_else_than_a_list_fails_with_the_value(store: Checkpointer) -> None:
    result = await fan(Gates(), store=store, map="state.outs").run({}, "t")
    assert (result.status, (result.error or {}).get("code")) == ("failed", "expression")
    assert "'state.outs' gave NoneType None" in (result.error or {}).get("message", "")


async def test_a_branch_fails_alone_when_its_attempts_are_used_up(store: Checkpointer) -> None:
    gates = Gates(open_from_start=True)
    gates.failing.add(2)
    work = {**WORK, "retry": {"max": 3, "on": ["node_error"], "backoffMs": 0}}
    result = await fan(gates, {"work": work}, store=store, join={"onError": "skip"}).run({}, "t")
    assert list(result.state["results"]) == [0, 10]
    assert sorted(gates.begun) == [0, 1, 2, 2, 2]


async def test_another_attempt_of_the_fan_opens_all_branches_anew(store: Checkpointer) -> None:
    gates = Gates(open_from_start=True)
    gates.failing.add(2)
    app = fan(gates, store=store, retry={"max": 2, "on": ["node_error"], "backoffMs": 0})
    result = await app.run({}, "t")
    assert result.status == "failed"
    assert sorted(gates.begun) == [0, 0, 1, 1, 2, 2]
    assert result.state["total"] == 0


async def test_a_fan_that_takes_too_long_is_ended_with_its_branches(store: Checkpointer) -> None:
    gates = Gates()
    app = fan(gates, store=store, timeoutMs=1, error=[{"on": ["timeout"], "to": "end"}])
    result = await app.run({}, "t")
    assert (result.status, result.state["outs"]) == ("completed", None)
    assert sorted(gates.cancelled) == [0, 1, 2]


async def test_side_by_side_branches_do_not_pass_the_step_limit_together(store: Checkpointer) -> None:
    gates = Gates()
    app = fan(gates, store=store)
    run = asyncio.create_task(app.run({}, "t", budget={"maxSteps": 3}))  # noqa: TID251 - awaited below
    await gates.begun_are(0, 1)  # the fan itself is the third
    gates.open(0, 1, 2)
    result = await run
    assert (result.status, (result.error or {}).get("code")) == ("failed", "budget_exceeded")
    assert sorted(gates.begun) == [0, 1]


async def test_parallel_branches_run_side_by_side_and_a_later_one_sees_what_it_waited_for(store: Checkpointer) -> None:
    seen: dict[str, Any] = {}

    def node(name: str) -> Any:
        async def run(state: Any) -> dict[str, Any]:
            seen[name] = (list(state.results), state.total)
            return {"results": [name], "total": 1}

        return run

    nodes = {
        "both": {
            "parallel": {"a": "first", "b": "second", "c": {"do": "third", "after": ["a"]}},
            "set": {"outs": "out"},
            "next": "end",
        },
        **{name: {"use": f"node:{name}", "next": "end"} for name in ("first", "second", "third")},
    }
    functions = {name: node(name) for name in ("first", "second", "third")}
    app = load_graph(document(nodes), checkpointer=store, nodes=functions)
    result = await app.run({}, "t")
    assert seen == {"first": ([], 0), "second": ([], 0), "third": (["first"], 1)}
    assert (list(result.state["results"]), result.state["total"]) == (["first", "second", "third"], 3)
    assert {name: branch["index"] for name, branch in result.state["outs"].items()} == {"a": 0, "b": 1, "c": 2}


async def test_scratch_keys_of_a_branch_end_with_it(store: Checkpointer) -> None:
    nodes = {
        "fan": {"map": "[1, 2]", "as": "item", "do": "note", "next": "end"},
        "note": {"use": "fn:work", "with": {"n": "${item}"}, "set": {"scratch": "out"}, "next": "tell"},
        "tell": {"use": "fn:work", "with": {"n": "${state.scratch}"}, "set": {"results": "[out]"}, "next": "end"},
    }
    graph = document(nodes)
    graph["state"] = {"type": "object", "properties": {**STATE, "scratch": {"type": "integer", "default": 0, "x-scope": "branch"}}}  # fmt: skip
    app = load_graph(graph, checkpointer=store, functions={"work": Gates(open_from_start=True).work})
    result = await app.run({}, "t")
    assert (list(result.state["results"]), result.state["scratch"]) == ([100, 200], 0)


async def test_bodies_that_are_subgraphs_have_their_own_state_and_input(store: Checkpointer) -> None:
    inner = {
        "graphflow": "1",
        "start": "work",
        "input": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "state": {"type": "object", "properties": {"mine": {"type": "integer", "default": 0}}},
        "result": "state.mine",
        "nodes": {"work": {"use": "fn:work", "with": {"n": "${input.n}"}, "set": {"mine": "out"}, "next": "end"}},
    }
    graph = document({"fan": {"map": "state.items", "as": "item", "do": {"graph": inner, "with": {"n": "${item + 1}"}}, "set": {"outs": "out.map(b, b.out)"}, "next": "end"}})  # fmt: skip
    app = load_graph(graph, checkpointer=store, functions={"work": Gates(open_from_start=True).work})
    assert (await app.run({}, "t")).state["outs"] == [10, 20, 30]


def asking(store: Checkpointer, ran: list[Any]) -> Any:
    """A map whose items 0 and 2 ask, after something that must happen once."""

    async def check(state: Any, ctx: Context) -> dict[str, Any]:
        item = state.mine

        async def count() -> int:
            ran.append(item)
            return 0

        await ctx.step("count", count, effects="read")
        answer = await ctx.ask(f"item {item}?", schema={"type": "integer"}) if item != 1 else 1
        return {"results": [answer]}

    async def give(n: int) -> int:
        return n

    nodes = {
        "fan": {"map": "state.items", "as": "item", "do": "take", "next": "end"},
        "take": {"use": "fn:give", "with": {"n": "${item}"}, "set": {"mine": "out"}, "next": "check"},
        "check": {"use": "node:check", "next": "end"},
    }
    graph = document(nodes)
    graph["state"] = {"type": "object", "properties": {**STATE, "mine": {"type": "integer", "default": 0, "x-scope": "branch"}}}  # fmt: skip
    return load_graph(graph, checkpointer=store, functions={"give": give}, nodes={"check": check})


@pytest.mark.parametrize("first", [0, 1])
async def test_items_that_ask_are_answered_in_any_order_and_nothing_finished_runs_again(
    store: Checkpointer, first: int
) -> None:
    ran: list[Any] = []
    app = asking(store, ran)
    waiting = await app.run({}, "t")
    assert [interrupt.path for interrupt in waiting.interrupts] == ["fan#1[0]", "fan#1[2]"]
    answers = {"fan#1[0]": 100, "fan#1[2]": 300}
    order = list(waiting.interrupts) if first == 0 else list(reversed(waiting.interrupts))
    half = await app.answer("t", {order[0].id: answers[order[0].path]})
    assert (half.status, [i.id for i in half.interrupts]) == ("waiting", [order[1].id])
    done = await asking(store, ran).answer("t", {order[1].id: answers[order[1].path]})
    assert (done.status, list(done.state["results"])) == ("completed", [100, 1, 300])
    assert sorted(ran) == [0, 1, 2]


async def test_what_a_thread_shows_of_its_open_branches(store: Checkpointer) -> None:
    app = asking(store, [])
    await app.run({}, "t")
    shown = await app.thread("t").state()
    assert shown.next == ["fan#1[0]/check", "fan#1[2]/check"]
    assert shown.frames["fan#1[2]"]["mine"] == 2
    assert list(shown.frames["fan#1[1]"]["results"]) == [1]


async def test_a_fork_in_the_midst_of_a_map_goes_its_own_way(store: Checkpointer) -> None:
    app = asking(store, [])
    await app.run({}, "t")
    other = await app.thread("t").fork()
    for thread, base in ((app.thread("t"), 10), (other, 20)):
        open_ = (await thread.state()).interrupts
        result = await app.answer(thread.id, {i.id: base + n for n, i in enumerate(open_)})
        assert list(result.state["results"]) == [base, 1, base + 1]


async def test_cancelling_a_run_cancels_every_branch_and_a_resume_goes_on_with_the_rest(store: Checkpointer) -> None:
    gates = Gates()
    app = fan(gates, store=store)
    run = asyncio.create_task(app.run({}, "t"))  # noqa: TID251 - awaited below
    await gates.begun_are(0, 1, 2)
    gates.open(0)
    await gates.begun_are(0, 1, 2)
    while 1 not in gates.cancelled:
        await app.thread("t").cancel()
        await asyncio.gather(run, return_exceptions=True)
    gates.open(1, 2)
    result = await app.resume("t")
    assert list(result.state["results"]) == [0, 10, 20]


async def test_the_events_of_a_map_in_a_map(store: Checkpointer, snapshot: Any) -> None:
    nodes = {
        "outer": {"map": "[[1, 2], [3]]", "as": "row", "do": "inner", "set": {"outs": "out"}, "next": "end"},
        "inner": {"map": "row", "as": "cell", "max": 1, "do": "work", "set": {"total": "100"}, "next": "end"},
        "work": {**WORK, "with": {"n": "${cell}"}},
    }
    app = load_graph(document(nodes), checkpointer=store, functions={"work": Gates(open_from_start=True).work})
    events = await collect(app.stream({}, "t"))
    lines = [f"{e.type} {e.path or ''}/{e.node}" if isinstance(e, NodeStart) else f"{e.type} {getattr(e, 'node', '')} {getattr(e, 'next', '')}" for e in events]  # fmt: skip
    lines.sort(key=lambda line: line.startswith("checkpoint.create"))  # when a commit is durable is up to the store
    assert "\n".join(lines) == snapshot(name="map_in_map")
    state = (await app.thread("t").state()).values
    assert (list(state["results"]), state["total"]) == ([10, 20, 30], 260)
