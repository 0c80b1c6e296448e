"""A result that can't be stored, or that JSON has no form for, fails where it is given, by name, type and what is allowed (E5, E6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphflow import Context, Goto, Graph, MemoryCheckpointer, SqliteCheckpointer, ToolResult, load_graph, tool
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import GraphflowError
from graphflow.runtime.result import RunResult
from graphflow.testing import ScriptedModel
from tests.runtime.conftest import Compile


class Odd:
    """Neither JSON nor registered, and without a text of its own."""


class Point:
    def __str__(self) -> str:
        return "2/3"


ALLOWED = "give plain data: text, numbers, true and false, None, lists and mappings of them"
STATE = {"type": "object", "properties": {"n": {"default": None}}}


def graph_of(work: Callable[[Any, Context], Any]) -> Graph[Any]:
    graph = Graph(STATE)

    @graph.node(next="end")
    async def work_(state: Any, ctx: Context) -> Any:
        return await work(state, ctx)

    return graph


def said(done: RunResult) -> str:
    assert done.error is not None
    assert (done.status, done.error["code"], done.interrupts) == ("failed", "not_serializable", ())
    return str(done.error["message"])


# --- steps


async def test_a_step_whose_result_cannot_be_stored_fails_at_once_and_acts_once(compile_graph: Compile) -> None:
    """Also after a resume: it was done, so nobody has to say whether it was, and it is not done again."""
    acted: list[int] = []

    def save() -> Odd:
        acted.append(1)
        return Odd()

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        return {"n": str(await ctx.step("save", save))}

    app = compile_graph(graph_of(work))
    for done in (await app.run({}, "t"), await app.resume("t")):
        assert said(done).startswith(
            "the result of step 'save' of node 'work_' can't be stored: it holds a value of type "
        )
        assert "test_unstorable_results.Odd" in said(done)
        assert ALLOWED in said(done)
        assert "was done, and is not repeated" in said(done)
        assert acted == [1]


async def test_the_step_is_done_again_after_a_rewind_that_chooses_so(compile_graph: Compile) -> None:
    acted: list[Any] = [7, Odd()]

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        return {"n": await ctx.step("save", acted.pop)}

    app = compile_graph(graph_of(work))
    said(await app.run({}, "t"))
    thread = app.thread("t")
    await thread.rewind((await thread.history())[-1].id, effects="rerun")
    assert ((await app.resume("t")).state["n"], acted) == (7, [])


@pytest.mark.parametrize("options", [{"effects": "read"}, {"effects": "none"}, {"idempotent": True}])
async def test_what_may_be_done_again_is_done_again_by_a_resume(
    compile_graph: Compile, options: dict[str, Any]
) -> None:
    acted: list[Any] = [7, Odd()]

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        return {"n": await ctx.step("save", acted.pop, **options)}

    app = compile_graph(graph_of(work))
    assert "is not repeated" not in said(await app.run({}, "t"))
    assert ((await app.resume("t")).state["n"], acted) == (7, [])


@pytest.mark.parametrize(
    ("work", "place"),
    [
        (lambda state, ctx: ctx.step("s", lambda: 1 / 0, arguments={"a": Odd()}), "what step 's' of node 'work_' has as `arguments`"),
        (lambda state, ctx: ctx.ask("Well?", key="q", payload=Odd()), "the payload of question 'q' of node 'work_'"),
        (lambda state, ctx: given({"n": Odd()}), "what node 'work_' gives for 'n'"),
        (lambda state, ctx: given(Goto("end", update={"n": [Odd()]})), "what node 'work_' gives for 'n'"),
        (lambda state, ctx: given({"n": {"a": (i for i in [1])}}), "what node 'work_' gives for 'n'"),
    ],
)  # fmt: skip
async def test_whatever_else_cannot_be_stored_is_named_and_nothing_has_happened(
    compile_graph: Compile, work: Callable[[Any, Context], Any], place: str
) -> None:
    done = await compile_graph(graph_of(work)).run({}, "t")
    assert said(done).startswith(f"{place} can't be stored: it holds a value of type ")
    assert ALLOWED in said(done)


async def given(value: Any) -> Any:
    return value


# --- tools

RESULTS: list[tuple[Any, str]] = [
    (Odd(), "Odd"),
    ({"a": [Odd()]}, "Odd"),
    (ToolResult(data={"a": Odd()}), "Odd"),
    (lambda: 1, "function"),
    ((i for i in [1]), "generator"),
]


def agent(store: Checkpointer | None, result: Any) -> Any:
    @tool
    def find(x: int = 1) -> Any:
        """Finds."""
        return result

    model = ScriptedModel({"turns": [{"tool_calls": [{"name": "find", "arguments": {}}]}, {"text": "done"}]})
    document = {
        "key": "x", "description": "d", "mode": "REACT", "react": {"systemPrompt": "Do."}, "providerKey": "scripted",
        "model": "m", "tools": ["find"],
    }  # fmt: skip
    return load_graph(document, tools=[find], model=model, checkpointer=store), model


@pytest.mark.parametrize(("result", "kind"), RESULTS, ids=range(len(RESULTS)))
async def test_a_models_tool_without_a_json_result_gives_an_error_that_says_so(result: Any, kind: str) -> None:
    app, model = agent(MemoryCheckpointer(), result)
    done = await app.run({"query": "hi"}, "t")
    assert done.status == "completed"
    answer = model.requests[-1].messages[-1].content
    assert "find ran, and its result holds a value of type " in answer
    assert kind in answer
    assert "a tool returns text, numbers, true, false, null, lists and mappings of them" in answer
    assert " at 0x" not in answer


async def test_a_value_with_a_text_of_its_own_is_that_text() -> None:
    app, model = agent(None, {"at": Point()})
    await app.run({"query": "hi"})
    assert '"at":"2/3"' in model.requests[-1].messages[-1].content.replace(" ", "")


async def test_a_tool_node_without_a_json_result_fails_as_tool_error() -> None:
    @tool
    def find() -> Any:
        """Finds."""
        return Odd()

    graph = Graph(STATE).add("a", use="tool:find", set={"n": "out"}, next="end")
    done = await graph.compile(tools=[find]).run({})
    assert done.error is not None
    assert (done.error["code"], "tool 'find' failed" in done.error["message"]) == ("tool_error", True)


# --- the question about a write that was cut off


@pytest.mark.parametrize("by_tool", [False, True])
async def test_the_question_about_a_cut_off_write_names_the_step_or_the_call(tmp_path: Any, by_tool: bool) -> None:
    async def cut_off() -> Any:
        raise TimeoutError

    @tool
    async def find() -> Any:
        """Finds."""
        await cut_off()

    if by_tool:
        graph = Graph(STATE).add("a", use="tool:find", set={"n": "out"}, next="end")
    else:
        graph = graph_of(lambda state, ctx: ctx.step("save", cut_off))
    app = graph.compile(tools=[find], checkpointer=SqliteCheckpointer(tmp_path / "t.db"))
    assert (await app.run({}, "t")).status == "failed"
    (asked,) = (await app.resume("t")).interrupts
    assert asked.kind == "outcome_unknown"
    if by_tool:
        assert (asked.tool_name, asked.tool_id) == ("find", asked.payload["operation"])
        assert "of tool 'find' of node 'a' happened before it was cut off is unknown" in asked.payload["message"]
    else:
        assert asked.payload["step"] == "save"
        assert "Whether the write 'save' of node 'work_' happened before it was cut off" in asked.payload["message"]


def deep() -> list[Any]:
    out: list[Any] = []
    for _ in range(10_000):
        out = [out]
    return out


@pytest.mark.parametrize("place", ["the input", "`params`"])
async def test_what_is_nested_too_deeply_is_refused_by_its_place(place: str) -> None:
    document = {"graphflow": "1", "start": "s", "nodes": {"s": {"ask": {"message": "'?'"}}}}
    app = load_graph(document, checkpointer=MemoryCheckpointer())
    given = {"query": "x", "a": deep()} if place == "the input" else "x"
    with pytest.raises(GraphflowError) as caught:
        await app.run(given, "t", params={"a": deep() if place == "`params`" else 1})
    assert caught.value.code == "invalid_input"
    assert caught.value.message.startswith(f"{place}: a value of type dict contains itself, or is nested too deeply")


@pytest.mark.parametrize("key", ["kept", "log", "map"])
async def test_a_write_that_is_nested_too_deeply_fails_by_its_state_key(key: str) -> None:
    properties = {
        "kept": {},
        "log": {"type": "array", "x-reducer": "append", "default": []},
        "map": {"type": "object", "x-reducer": "merge", "default": {}},
    }
    graph = Graph({"properties": properties})

    @graph.node(next="end")
    def write(state: Any, ctx: Any) -> dict[str, Any]:
        return {key: {"a": deep()} if key == "map" else [deep()]}

    failed = await graph.compile(checkpointer=MemoryCheckpointer()).run("x", "t")
    assert failed.error is not None
    assert failed.error["message"].startswith(f"state key {key!r}: a value of type list contains itself")
