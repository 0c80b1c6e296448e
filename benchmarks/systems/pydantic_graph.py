"""pydantic-graph as its documentation shows it: the builder for rows and fan-outs, `BaseNode` for loops. It has no store."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from harness import Case, Place, Timed
from payloads import Script, script, text, tool_result
from pydantic_graph import BaseNode, End, GraphBuilder, GraphRunContext, StepContext, reduce_list_append

PACKAGES = ["pydantic-graph", "pydantic"]


@dataclass
class Counter:
    n: int = 0
    upto: int = 0


async def add_one(ctx: StepContext[Counter, None, Any]) -> None:
    ctx.state.n += 1


async def nothing(ctx: StepContext[Counter, None, Any]) -> None:
    return None


def row(n: int, function: Any) -> Any:
    graph = GraphBuilder(state_type=Counter, output_type=type(None))
    steps = [graph.step(function, node_id=f"n{i}") for i in range(n)]
    graph.add(
        graph.edge_from(graph.start_node).to(steps[0]),
        *(graph.edge_from(before).to(after) for before, after in itertools.pairwise(steps)),
        graph.edge_from(steps[-1]).to(graph.end_node),
    )
    return graph.build()


@asynccontextmanager
async def chain(place: Place) -> AsyncIterator[Timed]:
    n = place.params["n"]
    graph = row(n, add_one)

    async def run() -> None:
        state = Counter()
        await graph.run(state=state)
        assert state.n == n

    yield Timed(run)


@asynccontextmanager
async def sequential(place: Place) -> AsyncIterator[Timed]:
    n = place.params["n"]
    graph = row(n, nothing)

    async def run() -> None:
        count = 0
        async with graph.iter(state=Counter()) as steps:
            async for _ in steps:
                count += 1
        assert count >= n

    yield Timed(run)


@dataclass
class Work(BaseNode[Counter, None, int]):
    async def run(self, ctx: GraphRunContext[Counter, None]) -> Work | End[int]:
        ctx.state.n += 1
        return Work() if ctx.state.n < ctx.state.upto else End(ctx.state.n)


def of_nodes(state: Any, output: Any, first: Any, *others: Any) -> Any:
    graph = GraphBuilder(state_type=state, input_type=first, output_type=output)
    graph.add(*(graph.node(node) for node in (first, *others)), graph.edge_from(graph.start_node).to(first))
    return graph.build()


@asynccontextmanager
async def loop(place: Place) -> AsyncIterator[Timed]:
    n = place.params["n"]
    graph = of_nodes(Counter, int, Work)

    async def run() -> None:
        assert await graph.run(state=Counter(0, n), inputs=Work()) == n

    yield Timed(run)


def spread_over(source: Any, branch: Any, output: Any, item: Any) -> GraphBuilder[Any, Any, Any, Any]:
    """A list, a branch for each of its items, and the list of their results."""
    graph = GraphBuilder(output_type=output)
    first, each = graph.step(source, node_id="source"), graph.step(branch, node_id="branch")
    join = graph.join(reduce_list_append, initial_factory=list[item])
    graph.add(
        graph.edge_from(graph.start_node).to(first),
        graph.edge_from(first).map().to(each),
        graph.edge_from(each).to(join),
    )
    graph.add(graph.edge_from(join).to(graph.end_node))
    return graph


@asynccontextmanager
async def fanout(place: Place) -> AsyncIterator[Timed]:
    n = place.params["n"]

    async def source(ctx: StepContext[None, None, None]) -> list[int]:
        return list(range(n))

    async def branch(ctx: StepContext[None, None, int]) -> int:
        return ctx.inputs

    graph = spread_over(source, branch, list[int], int).build()

    async def run() -> None:
        assert sum(await graph.run()) == n * (n - 1) // 2

    yield Timed(run)


@asynccontextmanager
async def nested(place: Place) -> AsyncIterator[Timed]:
    def around(inner: Any) -> Any:
        async def sub(ctx: StepContext[Counter, None, Any]) -> None:
            await inner.run(state=ctx.state)

        return row(1, sub)

    graph = row(1, add_one)
    for _ in range(place.params["depth"] - 1):
        graph = around(graph)

    async def run() -> None:
        state = Counter()
        await graph.run(state=state)
        assert state.n == 1

    yield Timed(run)


@dataclass
class Joke:
    subject: str
    text: str = ""


@dataclass
class Edit(BaseNode[Joke, None, str]):
    async def run(self, ctx: GraphRunContext[Joke, None]) -> Generate:
        ctx.state.subject += " - hohoho"
        return Generate()


@dataclass
class Generate(BaseNode[Joke, None, str]):
    async def run(self, ctx: GraphRunContext[Joke, None]) -> Bump:
        ctx.state.text = f"Joke about {ctx.state.subject}"
        return Bump()


@dataclass
class Bump(BaseNode[Joke, None, str]):
    async def run(self, ctx: GraphRunContext[Joke, None]) -> Bump | End[str]:
        ctx.state.text += " a"
        return End(ctx.state.text) if ctx.state.text.endswith(" a" * 10) else Bump()


@asynccontextmanager
async def subfan(place: Place) -> AsyncIterator[Timed]:
    inner = of_nodes(Joke, str, Edit, Generate, Bump)
    subjects = [text(1000, seed) for seed in range(place.params["n"])]

    async def source(ctx: StepContext[None, None, None]) -> list[str]:
        return subjects

    async def branch(ctx: StepContext[None, None, str]) -> str:
        return str(await inner.run(state=Joke(ctx.inputs), inputs=Edit()))

    graph = spread_over(source, branch, list[str], str).build()

    async def run() -> None:
        assert len(await graph.run()) == len(subjects)

    yield Timed(run)


@dataclass
class Talk:
    messages: list[dict[str, Any]]
    said: Script


@dataclass
class Model(BaseNode[Talk, None, list[Any]]):
    async def run(self, ctx: GraphRunContext[Talk, None]) -> Tool | End[list[Any]]:
        messages, said = ctx.state.messages, ctx.state.said
        turn = (len(messages) - 1) // 2
        if turn == len(said.calls):
            messages.append({"role": "assistant", "content": said.answer})
            return End(messages)
        call = said.calls[turn]
        calls = [{"id": call.id, "name": said.tool, "arguments": {"query": call.query}}]
        messages.append({"role": "assistant", "calls": calls})
        return Tool()


@dataclass
class Tool(BaseNode[Talk, None, list[Any]]):
    async def run(self, ctx: GraphRunContext[Talk, None]) -> Model:
        for call in ctx.state.messages[-1]["calls"]:
            content = tool_result(call["arguments"]["query"])
            ctx.state.messages.append({"role": "tool", "id": call["id"], "content": content})
        return Model()


@asynccontextmanager
async def react(place: Place) -> AsyncIterator[Timed]:
    said = script(place.params["n"])
    graph = of_nodes(Talk, list[Any], Model, Tool)

    async def run() -> None:
        messages = await graph.run(state=Talk([{"role": "user", "content": "hi?"}], said), inputs=Model())
        assert len(messages) == 2 * len(said.calls) + 2

    yield Timed(run)


CASES: dict[str, Case] = {
    "chain": chain, "sequential": sequential, "loop": loop, "fanout": fanout, "nested": nested, "subfan": subfan,
    "react": react,
}  # fmt: skip
