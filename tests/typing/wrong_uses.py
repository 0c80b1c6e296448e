"""Uses of the public API that a type checker must refuse, each with the code of its error; nobody runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphflow import CompiledGraph, Context, Graph, RunResult, load_graph, tool


def use(*values: object) -> None:
    """What is used is not unused."""


@dataclass
class Review:
    score: float = 0.0


graph = Graph(Review)


@graph.node  # expect: type-var
def gives_text(state: Review) -> str:
    return "no update"


@graph.node  # expect: arg-type
def takes_another_state(state: int) -> None:
    return None


@graph.node(next="end")  # expect: arg-type
def takes_too_much(state: Review, ctx: Context, more: int) -> None:
    return None


@graph.node(nexxt="end")  # expect: call-overload
def misspelt_key(state: Review) -> None:
    return None


@graph.node(retry={"max": "three"})  # expect: call-overload
def retries_by_words(state: Review) -> None:
    return None


@graph.node(next=[{"if": "state.score > 1.0", "too": "end"}])  # expect: typeddict-unknown-key
def routes_to_nowhere(state: Review) -> None:
    return None


@graph.node(effects="writes")  # expect: call-overload
def unknown_effects(state: Review) -> None:
    return None


@graph.node
def unknown_key(state: Review) -> dict[str, Any]:
    return {"score": state.scores}  # expect: attr-defined


graph.map("fan", "state.parts", "work", on_error="ignore")  # expect: arg-type
graph.map("fan", "state.parts", "work", wait="some")  # expect: arg-type
graph.map("fan", "state.parts")  # expect: call-arg
graph.map("fan", "state.parts", "work", most=4)  # expect: call-arg
graph.parallel("both", ["a", "b"])  # expect: arg-type
graph.parallel("both", {"a": 1})  # expect: dict-item
graph.parallel("both", {"a": "x"}, after={"a": 1})  # expect: dict-item
graph.ask("question", "Well?", next=1)  # expect: arg-type
graph.ask("question", "Well?", expire="P2D")  # expect: call-arg
graph.add("x", us="model")  # expect: call-arg
graph.subgraph("x", "key", nxt="end")  # expect: call-arg
Graph(5)  # expect: call-overload
Graph(Review, descripton="x")  # expect: call-overload
Graph(Review, interrupt_before=5)  # expect: call-overload
graph.compile(chekpointer=None)  # expect: call-arg
graph.compile(model="gpt-4")  # expect: arg-type
graph.compile(validate="no")  # expect: arg-type
load_graph("key", modle=None)  # expect: call-arg
load_graph("key", model="gpt-4")  # expect: arg-type
load_graph(5)  # expect: arg-type
tool(efects="read")  # expect: call-overload


async def run(app: CompiledGraph) -> None:
    result: RunResult = app.run({})  # expect: assignment
    use(result, result.outputs)  # expect: attr-defined
    await app.run({}, threadid="t1")  # expect: call-arg
    await app.run({}, on_busy="wait")  # expect: arg-type
    app.stream({}, durability="now")  # expect: arg-type
    await app.batch([{}], interupt_before=["a"])  # expect: call-arg
    await app.answer("t1")  # expect: call-arg
    await app.answer("t1", {}, bye="me")  # expect: call-arg
    await app.resume("t1", checkpoint="c")  # expect: call-arg
    await app.resume("t1", budget=5)  # expect: arg-type
    await app.replay("t1", untill="a")  # expect: call-arg
    await app.recover(max_concurency=1)  # expect: call-arg
    app.recovering(interval=1)  # expect: call-arg
    await app.threads(state="idle")  # expect: call-arg
    app.stream_answer("t1", {}, bye="me")  # expect: call-arg
    app.stream_resume("t1", efects="rerun")  # expect: call-arg
    await app.run({}, hold_ms="5")  # expect: arg-type
    await app.batch("hi", max_concurrency="2")  # expect: arg-type
    await app.thread("t").edit({}, as_nod="a")  # expect: call-arg
    await app.thread("t").fork(threadid="b")  # expect: call-arg
    await app.thread(1).history()  # expect: arg-type
    await app.thread("t").rewind()  # expect: call-arg
    blocking: str = app.run_sync({})  # expect: assignment
    app.run_sync({}, threadid="t1")  # expect: call-arg
    app.stream_sync({}, "t1", on_wait="cancel")  # expect: call-arg
    app.answer_sync("t1", {}, bye="me")  # expect: call-arg
    app.resume_sync("t1", checkpoint="c")  # expect: call-arg
    app.replay_sync("t1", untill="a")  # expect: call-arg
    app.recover_sync(max_concurency=1)  # expect: call-arg
    app.batch_sync([{}], on_wait="cancel")  # expect: call-arg
    app.stream_answer_sync("t1", {}, bye="me")  # expect: call-arg
    app.stream_resume_sync("t1", efects="rerun")  # expect: call-arg
    app.threads_sync(state="idle")  # expect: call-arg
    use(blocking)


async def inside(ctx: Context) -> None:
    await ctx.ask("Well?", schma={})  # expect: call-overload
    await ctx.ask(5)  # expect: call-overload
    await ctx.step("a", lambda: 1, effect="read")  # expect: call-arg
    await ctx.call_model("hi", shema={})  # expect: call-overload
    ctx.open_model(modle="x")  # expect: call-arg
