"""Uses of the public API that a type checker must refuse, each with the code of its error; nobody runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphflow import CompiledGraph, Context, Graph, RunResult


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
Graph(5)  # expect: call-overload


async def run(app: CompiledGraph) -> None:
    result: RunResult = app.run({})  # expect: assignment
    use(result, result.outputs)  # expect: attr-defined
    await app.run({}, threadid="t1")  # expect: call-arg
    await app.run({}, on_busy="wait")  # expect: arg-type
    app.stream({}, durability="now")  # expect: arg-type
    await app.batch([{}], interupt_before=["a"])  # expect: call-arg
    await app.answer("t1")  # expect: call-arg
    await app.thread(1).history()  # expect: arg-type
    await app.thread("t").rewind()  # expect: call-arg
    blocking: str = app.run_sync({})  # expect: assignment
    app.run_sync({}, threadid="t1")  # expect: call-arg
    app.stream_sync({}, "t1", on_wait="cancel")  # expect: call-arg
    use(blocking)
