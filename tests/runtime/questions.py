"""Threads that wait, each for another kind of answer, and a look at everything that a refused answer must leave alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphflow import Context, Graph, load_graph, tool
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.graph.core.machine import Interrupt
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeIds
from graphflow.tools.port import Tool
from tests.launching import crash, launch
from tests.runtime.graphs import Counter, CutOffWrite, chain

STATE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "default": 0},
        "v": {"default": None},
        "log": {"type": "array", "default": [], "x-reducer": "append"},
        "messages": {"type": "array", "default": [], "x-reducer": "messages"},
    },
}


def forget(app: Any, thread_id: str = "t") -> None:
    """The next call reads the thread from the store, as another process would."""
    runs = app.host.runs
    assert runs is not None
    runs.forget(thread_id)


@dataclass
class Waiting:
    """A thread `t` that waits, and what has been done on it."""

    app: CompiledGraph
    questions: tuple[Interrupt, ...]
    right: Any
    """An answer that is taken and ends the run."""
    did: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.questions[0].id

    async def look(self) -> Any:
        """Everything that a refused answer must not change."""
        state = await self.app.thread("t").state()
        history = await self.app.thread("t").history()
        store: Any = self.app.host.store
        row = await store.thread("t")
        return state, history, row.head, row.owner, [r.interrupt_id for r in await store.open_interrupts()], [*self.did]


async def wait_for_schema(store: Checkpointer, schema: Mapping[str, Any], right: Any) -> Waiting:
    """An `ask` node with a schema."""
    graph = Graph(STATE)
    graph.ask("question", "well?", schema=dict(schema), set={"v": "answer"})
    app = graph.compile(checkpointer=store, ids=FakeIds())
    return Waiting(app, (await app.run(thread_id="t")).interrupts, right)


async def wait_for_number(store: Checkpointer) -> Waiting:
    return await wait_for_schema(store, {"type": "integer"}, 5)


async def wait_for_object(store: Checkpointer) -> Waiting:
    schema = {"type": "object", "required": ["to"], "properties": {"to": {"type": "string", "minLength": 1}}}
    return await wait_for_schema(store, schema, {"to": "Ada"})


def two_at_once() -> Graph:
    """A node that says something, then asks `x` and `y` at once."""
    graph = Graph(Counter)

    @graph.node
    async def both(state: Any, ctx: Context) -> dict[str, Any]:
        await ctx.content("two things: ")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.ask(f"{n}?", key=n, schema={"type": "integer"})) for n in ("x", "y")]
        return {"n": sum(task.result() for task in tasks)}

    return graph


async def wait_for_two(store: Checkpointer) -> Waiting:
    app = two_at_once().compile(checkpointer=store, ids=FakeIds())
    questions = (await app.run(thread_id="t")).interrupts
    return Waiting(app, questions, {i.id: 1 for i in questions})


def paying(did: list[str], **options: Any) -> Tool:
    """A tool that a person must allow."""
    parameters = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}

    @tool(parameters=parameters, approval_hint="It is dear.", **options)
    async def pay(to: str) -> str:
        """Pays."""
        did.append(to)
        return f"paid {to}"

    return pay


def paying_graph(store: Checkpointer, did: list[str]) -> CompiledGraph:
    """A `tools` node with a call that a person must allow, whose arguments are the state's `v`."""
    calls = "${[{'id': 'c1', 'name': 'pay', 'arguments': {'to': state.v}}]}"
    nodes = {
        "begin": {"use": "node:begin", "next": "act"},
        "act": {"use": "tools", "with": {"calls": calls}, "set": {"messages": "out.messages"}},
    }
    document = {"graphflow": "1", "start": "begin", "state": STATE, "nodes": nodes}
    return load_graph(
        document, checkpointer=store, tools=[paying(did)], nodes={"begin": lambda state: {"v": "Ada"}}, ids=FakeIds()
    )


async def wait_for_approval(store: Checkpointer) -> Waiting:
    did: list[str] = []
    app = paying_graph(store, did)
    return Waiting(app, (await app.run(thread_id="t")).interrupts, {"decision": "approve"}, did)


async def wait_at_breakpoint(store: Checkpointer) -> Waiting:
    graph, ran = chain("a", "b")
    app = graph.compile(checkpointer=store, ids=FakeIds())
    questions = (await app.run(thread_id="t", interrupt_before=["b"])).interrupts
    return Waiting(app, questions, {"decision": "continue"}, ran)


async def wait_for_outcome(store: Checkpointer) -> Waiting:
    """A write that was cut off in its midst."""
    write = CutOffWrite()
    app = write.graph.compile(checkpointer=store, ids=FakeIds())
    live = await launch(app, thread_id="t")
    await write.inside.wait()
    await crash(live)
    return Waiting(app, (await app.resume("t")).interrupts, {"decision": "skip"}, write.did)
