"""Uses of the public API that a type checker must accept; `test_typing.py` runs mypy over it, nobody runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from pydantic import BaseModel

from graphflow import (
    CompiledGraph,
    Context,
    Goto,
    Graph,
    MemoryCheckpointer,
    RunResult,
    SqliteCheckpointer,
    Thread,
    append,
    load_graph,
    merge,
    union,
)
from graphflow.events import Event
from graphflow.graph.builder import branch_only, messages, sum_


def use(*values: object) -> None:
    """What is used is not unused."""


@dataclass
class Review:
    query: str = ""
    parts: list[str] = field(default_factory=list)
    results: Annotated[list[str], append] = field(default_factory=list)
    total: Annotated[int, sum_] = 0
    scratch: Annotated[str, branch_only] = ""
    score: float = 0.0


class Chat(TypedDict, total=False):
    messages: Annotated[list[Any], messages]
    facts: Annotated[dict[str, str], merge]
    tags: Annotated[list[str], union]


class Letter(BaseModel):
    draft: str | None = None
    tries: int = 0


def longest(old: str, new: str) -> str:
    return max(old, new, key=len)


class Notes(TypedDict):
    note: Annotated[str, longest]


graph = Graph(Review, name="review", budget={"maxSteps": 60, "onExceeded": "wrap_up"}, result="state.results")


@graph.node
def plan(state: Review) -> dict[str, Any]:
    return {"parts": state.query.split()}


@graph.node(next=[{"if": "state.score >= 0.8", "to": "end"}, {"to": "plan"}], retry={"max": 3, "on": ["timeout"]})
async def judge(state: Review, ctx: Context) -> Mapping[str, float]:
    draw: float = ctx.random
    return {"score": state.score + draw}


@graph.node(next={"choose": ["judge", "end"]}, error=[{"on": ["any"], "to": "wrap_up"}], timeout_s=2.5, effects="read")
async def choose(state: Review, ctx: Context) -> Goto:
    await ctx.step("look", lambda: 1, effects="read")
    letter: Letter = await ctx.ask("Well?", schema=Letter)
    draft: str | None = (await ctx.call_model("Write.", schema=Letter)).draft
    chat_: Chat = await ctx.ask("Well?", schema=Chat)
    use(letter, draft, chat_)
    return Goto("judge", update={"total": 1})


@graph.node(name="wrap_up", description="says what there is")
def say(state: Review) -> None:
    return None


@graph.node
async def nothing(state: Review) -> None:
    return None


graph.map("fan", "state.parts", "work", as_="part", max=4, on_error="collect", set={"total": "size(out)"}, next="judge")
graph.add("work", use="fn:shout", with_={"text": "${part}"}, set={"results": "[out]"})
graph.parallel(
    "both", {"a": "first", "b": Graph(Letter, name="letter"), "c": {"graph": "review"}}, after={"b": ["a"]}, wait=2
)
graph.ask(
    "approve",
    "Send?",
    schema={"type": "object"},
    expires="P2D",
    on_expire="wrap_up",
    next=[{"if": "answer.ok", "to": "end"}, {"to": "plan"}],
)
graph.subgraph("child", Graph(Chat), with_={"query": "${input.query}"}, set={"results": "[out]"}, next="end").start(
    "plan"
)


@graph.function
def shout(text: str) -> str:
    return text.upper()


chat = Graph(Chat)


@chat.node
def first(state: Chat) -> Chat:
    return {"tags": [*state["tags"], "seen"]}


letters = Graph(Letter)


@letters.node
async def write(state: Letter) -> dict[str, Any]:
    return {"tries": state.tries + 1, "draft": (state.draft or "") + "."}


loose = Graph({"type": "object", "properties": {"n": {"type": "integer"}}})
bare = Graph()


@loose.node(next="end")
def count(state: Any) -> dict[str, int]:
    return {"n": state.n + 1}


again: Graph[Any] = Graph.from_json(graph.to_json(), functions=[plan, judge])
same: bool = again == graph
shouted: str = shout("a")
planned: dict[str, Any] = plan(Review(query="a b"))


async def run() -> None:
    app: CompiledGraph = graph.compile(checkpointer=SqliteCheckpointer("threads.db"))
    result: RunResult = await app.run({"query": "…"}, thread_id="t1")
    status: str = result.status
    event: Event
    async for event in app.stream({"query": "…"}, thread_id="t1", durability="sync"):
        use(event, status)
    result = await app.run("…", "t1", on_busy="enqueue", interrupt_before=["judge"], params={"lang": "en"}, budget=None)
    result = await app.answer("t1", {"i1": {"decision": "approve"}})
    result = await app.resume("t1", budget={"maxSteps": 5})
    results: list[Any] = await app.batch([{"query": "a"}, {"query": "b"}], max_concurrency=2)
    thread: Thread = app.thread("t1")
    history = await thread.history(limit=20)
    await thread.diff(history[0].id, history[-1].id)
    await thread.rewind(history[-1].id)
    other: Thread = await thread.fork(history[-1].id)
    await other.edit({"score": 1.0}, as_node="judge")
    use(results)


def run_sync() -> None:
    app = load_graph("graphs/review.json", checkpointer=MemoryCheckpointer())
    result: RunResult = app.run_sync({"query": "…"}, thread_id="t1")
    result = app.answer_sync("t1", "yes")
    result = app.resume_sync("t1")
    for event in app.stream_sync({"query": "…"}):
        use(event, result)
    everything: list[Any] = app.batch_sync([{}])
    use(everything, Graph(Notes))
