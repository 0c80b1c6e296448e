"""Bounds of a run: a value, the state. Beyond one the run ends with `limit_exceeded`, nothing is lost, and a resume goes on."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

import graphflow
from graphflow import Bounds, Graph, MemoryCheckpointer, SqliteCheckpointer, load_graph
from graphflow.errors import AnswerRefused, GraphflowError, LimitExceeded
from graphflow.events import RunError
from graphflow.graph.engine import light_event
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.templates import compile_template
from graphflow.value_size import size_of

SMALL = Bounds(value_bytes=10_000, state_bytes=40_000)
KEYS = {
    "text": {"type": "string", "default": ""},
    "items": {"type": "array", "default": []},
    "log": {"type": "array", "default": [], "x-reducer": "append"},
    "map": {"type": "object", "default": {}, "x-reducer": "merge"},
    "any": {},
    "n": {"type": "integer", "default": 0},
}
MIB = 1024 * 1024


def document(set_: dict[str, str], *, rounds: int = 1, **more: Any) -> dict[str, Any]:
    """A node that writes `set_`, in a cycle of so many rounds."""
    routes: Any = [{"if": f"state.n < {rounds}", "to": "grow"}, {"to": "end"}] if rounds > 1 else "end"
    return {
        "graphflow": "1",
        "state": {"type": "object", "properties": KEYS},
        "start": "grow",
        "budget": {"maxSteps": 1_000},
        "nodes": {"grow": {"use": "fn:some", "set": {**set_, "n": "state.n + 1"}, "next": routes}},
        **more,
    }


def app(doc: dict[str, Any], *, bounds: Bounds = SMALL, out: Any = "x" * 4_000, store: Any = None) -> Any:
    return load_graph(doc, functions={"some": lambda: out}, checkpointer=store, bounds=bounds)


def limit(error: Any) -> tuple[str, str]:
    return error["code"], error["detail"]["setting"]


VALUE = "limit_exceeded", "bounds.value_bytes"
STATE = "limit_exceeded", "bounds.state_bytes"


@pytest.mark.parametrize(
    ("set_", "rounds"),
    [
        ({"text": "out + out + out"}, 1),
        ({"text": "state.text + state.text + 'ab'"}, 20),
        ({"text": "size(state.text) < 5 ? out + out + out : 'short'"}, 1),
        ({"items": "[out, out, out]"}, 1),
        ({"items": "[state.items, state.items]"}, 40),
        ({"any": "{'a': out, 'b': [out, {'c': out}]}"}, 1),
        ({"items": "[1, 2, 3].map(x, out)"}, 1),
        ({"items": "[1, 2].map(x, [1, 2].map(y, out))"}, 1),
        ({"log": "[[out, out, out]]"}, 1),
        ({"map": "{'k': out + out + out}"}, 1),
        ({"map": "{'k': [state.map, state.map]}"}, 40),
        ({"text": "string(bytes(out + out + out))"}, 1),
    ],
)
async def test_an_expression_that_multiplies_its_values_is_refused(set_, rounds):
    result = await app(document(set_, rounds=rounds)).run()
    assert result.status == "failed"
    assert limit(result.error) == VALUE
    assert result.error["node"] == "grow"


@pytest.mark.parametrize(
    "source", ["+".join(["state.text"] * 80), "[" + ",".join(["state.text"] * 80) + "].map(x, x + x)"]
)
def test_nothing_of_a_value_that_is_refused_is_built(source):
    """80 times 16 MiB; the memory that Python allocates, since CEL's is not reached."""
    expression = compile_expression(source, Environment(state={"text": {"type": "string"}}), check=False)
    state = {"text": "x" * (16 * MIB)}
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded):
            expression.evaluate({"state": state})
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "source",
    [
        "state.rows.map(r, r.name)",
        "state.rows.map(r, r.name + ': ' + state.text)",
        "state.rows.map(r, r.parts.map(p, p + r.name))",
        "state.rows.filter(r, r.parts.exists(p, p == state.text))",
        "state.rows.all(r, r.name != state.text)",
        "state.long == state.long || state.long + state.long == ''",
        "size(state.long + state.long) > 5 ? 'long' : 'short'",
    ],
)
def test_ordinary_expressions_over_much_data_are_not_refused(source):
    """A bound that guesses must not refuse what people write: 1,000 rows of ten parts, a text of 9 MiB."""
    rows = [{"name": f"row {n}", "parts": ["part"] * 5} for n in range(500)]
    state = {"rows": rows, "text": "a title", "long": "x" * (9 * MIB)}
    environment = Environment(state={"rows": {"type": "array"}, "text": {"type": "string"}, "long": {"type": "string"}})
    assert compile_expression(source, environment, check=False).evaluate({"state": state}) is not None


@pytest.mark.parametrize("template", ["${state.text}${state.text}${state.text}", {"a": ["-${state.items}-"]}])
def test_a_template_is_counted_before_it_is_joined(template):
    environment = Environment(state=KEYS, bounds=SMALL)
    state = {"text": "x" * 4_000, "items": ["x" * 4_000] * 3}
    with pytest.raises(LimitExceeded) as caught:
        compile_template(template, environment).evaluate({"state": state})
    assert caught.value.detail["setting"] == "bounds.value_bytes"


@pytest.mark.parametrize("store", [None, "memory", "sqlite"])
async def test_a_value_of_python_code_is_refused_and_the_run_goes_on_once_the_bound_is_raised(store, tmp_path):
    given = {None: None, "memory": MemoryCheckpointer(), "sqlite": SqliteCheckpointer(tmp_path / "t.db")}[store]
    made: list[str] = []

    def graph(bounds: Bounds) -> Any:
        builder = Graph({"type": "object", "properties": KEYS})

        @builder.node(next="large")
        async def first(state: Any) -> dict[str, Any]:
            made.append("first")
            return {"n": 1}

        @builder.node(next="end")
        async def large(state: Any) -> dict[str, Any]:
            made.append("large")
            return {"text": "é" * 6_000}

        return builder.compile(checkpointer=given, bounds=bounds)

    result = await graph(SMALL).run({}, "t")
    assert result.status == "failed"
    assert limit(result.error) == VALUE
    assert result.error["node"] == "large"
    assert "'text'" in result.error["message"]
    if given is None:
        return
    assert (await graph(SMALL).thread("t").state()).values["n"] == 1
    after = await graph(Bounds()).resume("t")
    assert (after.status, len(after.state["text"])) == ("completed", 6_000)
    assert made == ["first", "large", "large"]


@pytest.mark.parametrize("set_", [{"log": "[out]"}, {"map": "{string(state.n): out}"}])
@pytest.mark.parametrize("place", ["top", "subgraph", "branch"])
async def test_a_state_that_grows_ends_the_run_at_its_last_checkpoint(set_, place):
    """Reducers that add: each value is small, and all of them together are not."""
    inner = document(set_, rounds=30)
    outer: dict[str, Any] = {**inner, "start": "all", "nodes": {"all": {"graph": inner, "next": "end"}}}
    if place == "branch":
        body = {"map": "[1]", "as": "x", "do": {"graph": inner}, "next": "end"}
        outer = {**inner, "start": "all", "nodes": {"all": body}}
    doc = inner if place == "top" else outer
    store = MemoryCheckpointer()
    result = await app(doc, store=store).run({}, "t")
    assert limit(result.error) == STATE, result
    more = app(doc, store=store, bounds=Bounds())
    after = await more.resume("t")
    assert after.status == "completed"


async def test_branches_that_share_their_parents_state_count_it_once():
    doc = document({"log": "[out]"})
    doc["nodes"] = {
        "grow": {"use": "fn:some", "set": {"log": "[out, out, out, out, out, out, out, out, out]"}, "next": "fan"},
        "fan": {"map": "[1, 2, 3, 4, 5, 6, 7, 8]", "as": "x", "do": "small", "next": "end"},
        "small": {"use": "fn:some", "set": {"n": "1", "log": "['s']"}, "next": "end"},
    }
    doc["state"]["properties"] = {**KEYS, "n": {"type": "integer", "x-reducer": "sum", "default": 0}}
    result = await app(doc, bounds=Bounds(value_bytes=30_000, state_bytes=20_000), out="x" * 1_000).run()
    assert (result.status, result.state["n"]) == ("completed", 8), result.error


async def test_the_state_is_measured_again_once_it_has_shrunk():
    """Values that replace each other: 40 times 4,000 bytes are written, and 8,000 are held."""
    result = await app(document({"text": "out", "any": "out"}, rounds=40)).run()
    assert result.status == "completed"


async def test_an_error_route_may_take_a_value_that_is_too_large():
    doc = document({"text": "out + out + out"})
    doc["nodes"]["grow"]["error"] = [{"on": ["any"], "to": "small"}]
    doc["nodes"]["small"] = {"use": "fn:some", "set": {"any": "error.detail.setting"}, "next": "end"}
    result = await app(doc).run()
    assert (result.status, result.state["any"]) == ("completed", "bounds.value_bytes")


async def test_an_input_that_is_too_large_is_refused_before_anything_is_stored():
    store = MemoryCheckpointer()
    graph = app(document({"text": "out"}), store=store)
    with pytest.raises(GraphflowError) as caught:
        await graph.run({"query": "x" * 11_000}, "t")
    assert caught.value.code == "limit_exceeded"
    assert await store.thread("t") is None


def test_bounds_hold_for_calls_that_block_too():
    assert limit(app(document({"text": "out + out + out"})).run_sync().error) == VALUE


def test_the_defaults_are_those_of_the_settings():
    from graphflow.settings import load_settings

    assert load_settings(environ={}).bounds == graphflow.Bounds()
    assert load_settings(environ={"GRAPHFLOW_BOUNDS_VALUE_BYTES": "5"}).bounds.value_bytes == 5


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("x" * 100, 100, 110),
        ("é" * 100, 200, 210),
        ([1] * 100, 100, 1_000),
        ({"a": ["x" * 50, "y" * 50]}, 100, 130),
        (2**8_000, 1_000, 1_010),
        (b"x" * 100, 100, 110),
    ],
)
def test_the_size_of_a_value_is_about_what_it_takes_in_a_store(value, least, most):
    assert least <= size_of(value, 10**9) <= most


def test_measuring_ends_once_the_limit_is_passed():
    """A list that holds itself many times over would take for ever, and deeper nesting than Python's stack is no error."""
    shared: list[Any] = ["x"]
    for _ in range(200):
        shared = [shared, shared]
    assert size_of(shared, 1_000) > 1_000
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert size_of(deep, 10**9) > 0


EVENTS = "limit_exceeded", "bounds.events"


def chatty(where: str) -> dict[str, Any]:
    """A node that sends deltas for ever, at the top, in a subgraph or in a branch."""
    inner = {"graphflow": "1", "state": {"type": "object", "properties": KEYS}, "start": "talk"}
    inner |= {"nodes": {"talk": {"use": "node:talk", "error": [{"on": ["any"], "to": "end"}], "next": "end"}}}
    if where == "top":
        return inner
    body = (
        {"graph": inner, "next": "end"}
        if where == "subgraph"
        else {"map": "[1]", "as": "x", "do": {"graph": inner}, "next": "end"}
    )
    return {**inner, "start": "all", "nodes": {"all": body}}


@pytest.mark.parametrize("where", ["top", "subgraph", "branch"])
@pytest.mark.parametrize("stored", [False, True])
async def test_a_run_that_never_ceases_to_send_events_ends_and_its_end_is_seen(where, stored):
    """The node never waits for anything, so that nothing else of the loop has a turn; no error route may go on."""

    async def talk(state, ctx):
        while True:
            await ctx.content("x")

    bounds = Bounds(events=200)
    graph = load_graph(
        chatty(where), nodes={"talk": talk}, bounds=bounds, checkpointer=MemoryCheckpointer() if stored else None
    )
    events = [event async for event in graph.stream({}, "t")]
    assert isinstance(events[-1], RunError)
    assert limit(events[-1].error) == EVENTS
    assert 200 < len(events) < 215
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert sum(type(event).__name__ == "ContentEnd" for event in events) == 1


@pytest.mark.parametrize("slice_s", [-1.0, 1_000.0], ids=["every node waits for a turn", "no node ever waits"])
@pytest.mark.parametrize("store", [None, "memory", "sqlite"])
async def test_a_run_that_is_ended_while_its_next_node_waits_for_its_turn_fails_and_goes_no_further(
    store, slice_s, tmp_path, monkeypatch
):
    monkeypatch.setattr(light_event, "SLICE_S", slice_s)
    given = {None: None, "memory": MemoryCheckpointer(), "sqlite": SqliteCheckpointer(tmp_path / "t.db")}[store]
    builder = Graph({"type": "object", "properties": KEYS}, budget={"maxSteps": 1_000})

    @builder.node(next=[{"if": "state.n < 300", "to": "count"}, {"to": "end"}])
    async def count(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    graph = builder.compile(checkpointer=given, bounds=Bounds(events=50))
    result = await graph.run({}, "t")
    assert (result.status, limit(result.error)) == ("failed", EVENTS)
    assert 0 < result.state["n"] < 50
    if given is None:
        return
    events = [event async for event in graph.stream({}, "u")]
    assert isinstance(events[-1], RunError)
    assert limit(events[-1].error) == EVENTS
    assert sum(isinstance(event, RunError) for event in events) == 1


async def test_steps_count_as_events_too_and_a_resume_goes_on():
    store = MemoryCheckpointer()
    doc = document({"any": "1"}, rounds=100)
    result = await app(doc, bounds=Bounds(events=50), store=store).run({}, "t")
    assert limit(result.error) == EVENTS
    done = result.state["n"]
    assert 0 < done < 100
    after = await app(doc, store=store, bounds=Bounds()).resume("t")
    assert (after.status, after.state["n"]) == ("completed", 100)


# --- what comes from outside


LONG = "x" * 10_001
ASKING: dict[str, Any] = {
    "graphflow": "1",
    "start": "ask",
    "nodes": {"ask": {"ask": {"message": "so?", "holdMs": 0}, "next": "wait"}, "wait": {"use": "wait", "with": {"signal": "go"}, "next": "end"}},
}  # fmt: skip


def says(error: GraphflowError, place: str) -> bool:
    """Whether it names the place, the size, the rule and the setting."""
    told = (place, "has 10,001 bytes", "bounds.value_bytes allows 10,000", "or raise it")
    return error.code == "limit_exceeded" and all(text in error.message for text in told) and error.detail["limit"] == 10_000  # fmt: skip


@pytest.mark.parametrize("given", [{"params": LONG}, {"input": LONG}])
async def test_what_a_run_is_given_is_no_larger_than_a_value(given: dict[str, Any]) -> None:
    graph = load_graph(ASKING, checkpointer=MemoryCheckpointer(), bounds=SMALL)
    given = {"input": {}, **given}
    with pytest.raises(LimitExceeded) as refused:
        await graph.run(given.pop("input"), "t", **given)
    assert "bounds.value_bytes allows 10,000" in refused.value.message
    assert await graph.threads() == []


async def test_an_answer_is_no_larger_than_a_value_and_its_question_stays_open(store: Any) -> None:
    graph = load_graph(ASKING, checkpointer=store, bounds=SMALL)
    asked = (await graph.run({}, "t")).interrupts[0].id
    for answer in (LONG, {asked: LONG}):
        with pytest.raises(AnswerRefused) as refused:
            await graph.answer("t", answer)
        assert says(refused.value, f"the answer to {asked!r}")
    assert [one.id for one in (await graph.thread("t").state()).interrupts] == [asked]
    assert (await graph.answer("t", "x" * 9_999)).status == "waiting"


async def test_the_payload_of_a_signal_is_no_larger_than_a_value(store: Any) -> None:
    graph = load_graph(ASKING, checkpointer=store, bounds=SMALL)
    await graph.run({}, "t")
    with pytest.raises(LimitExceeded) as refused:
        await graph.thread("t").signal("go", LONG)
    assert says(refused.value, "the payload of signal 'go'")
    await graph.answer("t", "yes")
    assert await graph.thread("t").signal("go", "x" * 9_999)


@pytest.mark.parametrize("effects", ["none", "read", "write"])
async def test_the_result_of_a_step_is_no_larger_than_a_value(store: Any, effects: str) -> None:
    acts: list[str] = []

    def long() -> str:
        acts.append("act")
        return LONG

    async def act(state: Any, ctx: graphflow.Context) -> dict[str, Any]:
        result = await ctx.step("read", long, effects=effects)
        return {"n": len(result)}

    steps = {**document({}), "nodes": {"grow": {"use": "node:act", "next": "end"}}}
    graph = load_graph(steps, checkpointer=store, bounds=SMALL, nodes={"act": act})
    failed = await graph.run({}, "t")
    assert failed.error is not None
    assert says(GraphflowError(failed.error["message"], code=failed.error["code"], **failed.error["detail"]), "the result of step 'read' of node 'grow'")  # fmt: skip
    assert (await graph.resume("t")).status == "failed"
    larger = load_graph(steps, checkpointer=store, bounds=Bounds(), nodes={"act": act})
    done = await larger.resume("t")
    # What was written is never written again; what was read is not on record, and is read again.
    assert (done.status, done.state["n"], len(acts)) == ("completed", 10_001, 1 if effects == "write" else 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("value_bytes", "x"), ("value_bytes", -1), ("events", 2.5), ("map_max", 0), ("fan_out", True), ("state_bytes", None)],
)  # fmt: skip
def test_a_bound_that_is_no_whole_number_above_0_is_refused_where_it_is_written(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match="takes a whole number") as refused:
        Bounds(**{name: value})
    assert str(refused.value) == f"Bounds() got {name}={value!r}; {name} takes a whole number, at least 1"
