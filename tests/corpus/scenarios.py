"""What the corpus holds: small threads with every kind of record, made by the engine itself, the same each time.

A scenario makes threads; what goes on from them, under the version that each has begun, is `goes_on`. Names of scenarios,
threads, nodes and functions are part of the frozen files: never change one that is frozen, add another.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

from graphflow import AIMessage, Context, HumanMessage, load_graph, tool
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.media import large_bytes
from graphflow.content import ImagePart, TextPart
from graphflow.errors import NodeFailed
from graphflow.models.scripted.script import Script, ScriptedCall, ScriptTurn
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.result import RunResult
from graphflow.runtime.runs.live_runs import registry_of
from graphflow.testing import FakeClock, FakeIds, ScriptedModel
from tests.corpus import kinds
from tests.launching import launch

NOW_MS = 1_750_000_000_000
ANY: dict[str, Any] = {}
LIST: dict[str, Any] = {"type": "array", "default": [], "x-reducer": "append"}
NUMBER: dict[str, Any] = {"type": "integer", "default": 0}


class Clock(FakeClock):
    """Time that goes on by a millisecond a look, and at once where somebody sleeps."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


class Stage:
    """Where a scenario plays: one store, with ids and time that repeat.

    Args:
        first_id: so that what goes on later makes ids of its own.
    """

    def __init__(self, store: Checkpointer, *, first_id: int = 0) -> None:
        self.store = store
        self.ids, self.clock = FakeIds(), Clock(NOW_MS + 1000 * first_id, step_ms=1)
        for _ in range(first_id):
            self.ids.new_id()
        for _ in range(first_id // 100):
            self.ids.random()  # lineage numbers are drawn, and no two of a store are the same
        self.fails = 0
        """How often `flaky` fails before it succeeds."""
        self.stops = False
        """Whether `stuck` and `sends` never come to an end."""
        self.reached = asyncio.Event()
        self.charged = 0
        """How often `charges` has acted in this process."""

    def graph(self, nodes: dict[str, Any], state: dict[str, Any] | None = None, **keys: Any) -> CompiledGraph:
        """A graph of these nodes, whose `node:` functions are the ones below."""
        document = {
            "graphflow": "1",
            "start": next(iter(nodes)),
            "nodes": nodes,
            "state": {"type": "object", "properties": {"n": NUMBER, **(state or {})}},
            **keys,
        }
        functions = {name.removeprefix("_"): getattr(self, name) for name in dir(Stage) if name.startswith("_n_")}
        return load_graph(
            document,
            checkpointer=self.store,
            ids=self.ids,
            clock=self.clock,
            nodes={name.removeprefix("n_"): function for name, function in functions.items()},
            tools=[city],
            model=ScriptedModel(script()),
        )

    async def leave(self) -> None:
        """The process ends in the middle: what was committed stays, the rest is gone."""
        await registry_of(self.store).here(self.clock).close(0)

    # --- node functions

    async def _n_add(self, state: Any) -> dict[str, Any]:
        return {"n": state["n"] + 1}

    async def _n_note(self, state: Any, ctx: Context) -> dict[str, Any]:
        ctx.content(f"visit {ctx.visit}")
        return {"n": state["n"] + 1, "log": [ctx.visit]}

    async def _n_long(self, state: Any, ctx: Context) -> dict[str, Any]:
        return {"n": state["n"] + 1, "log": [f"{ctx.visit}: " + "x" * 600], "blob": "y" * 900 + str(ctx.visit)}

    async def _n_values(self, state: Any) -> dict[str, Any]:
        return kinds.values()

    async def _n_reduced(self, state: Any) -> dict[str, Any]:
        n = state["n"]
        return {
            "n": n + 1, "log": [n], "seen": [n % 2, n % 3], "facts": {f"k{n}": n, "last": n}, "total": 0.5, "least": -n, "most": n,
            "once": [n], "messages": [HumanMessage(content=f"at {n}", id=f"m{n % 2}"), AIMessage(content="ok")],
        }  # fmt: skip

    async def _n_shows(self, state: Any) -> dict[str, Any]:
        part = ImagePart(data=bytes(range(256)) * 20, media_type="image/png", name="dots.png")
        return {
            "n": state["n"] + 1,
            "messages": [HumanMessage(content=(TextPart(text="Look."), part))],
            "kept": [part.size, [HumanMessage(content=(part,))]],
        }

    async def _n_flaky(self, state: Any, ctx: Context) -> dict[str, Any]:
        if ctx.attempt <= self.fails:
            raise NodeFailed(f"attempt {ctx.attempt}", code="connection")
        return {"n": state["n"] + 10}

    async def _n_broken(self, state: Any, ctx: Context) -> None:
        ctx.content("half a sent")
        raise ValueError("always")

    async def _n_asks(self, state: Any, ctx: Context) -> dict[str, Any]:
        drawn = await ctx.step("draw", _seven, effects="read")
        sent = await ctx.step("send", _seven, effects="write", idempotent=True)
        first = await ctx.ask("how many?", schema={"type": "integer"})
        second = await ctx.ask("and more?", schema={"type": "integer"})
        return {"n": drawn + sent + first + second}

    async def _n_sends(self, state: Any, ctx: Context) -> dict[str, Any]:
        async def send() -> str:
            if self.stops:
                self.reached.set()
                await asyncio.Event().wait()
            return "sent"

        return {"word": await ctx.step("mail", send, effects="write")}

    async def _n_charges(self, state: Any, ctx: Context) -> dict[str, Any]:
        """Two writes without a name; `stops` ends the process between them."""

        async def charge() -> int:
            self.charged += 1
            return self.charged

        first = await ctx.step(None, charge)
        if self.stops:
            self.reached.set()
            await asyncio.Event().wait()
        return {"n": 10 * first + await ctx.step(None, charge), "word": ctx.idempotency_key("once:1")}

    async def _n_odd(self, state: Any) -> dict[str, Any]:
        return {"word": object()}

    async def _n_stuck(self, state: Any, ctx: Context) -> dict[str, Any]:
        await ctx.step("draw", _seven, effects="read")
        if self.stops:
            self.reached.set()
            await asyncio.Event().wait()
        return {"n": state["n"] + 100}


async def _seven() -> int:
    return 7


@tool
def city(name: str) -> str:
    """Something about a city."""
    return f"{name} is large"


def script() -> Script:
    call = ScriptedCall(name="city", arguments={"name": "Ulm"}, id="call_1")
    return Script(
        turns=(
            ScriptTurn(reasoning="a city", text="Let me look.", tool_calls=(call,)),
            ScriptTurn(text="Ulm is large."),
            ScriptTurn(text="Once more."),
        )
    )


def ask(after: Any = "end", schema: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"ask": {"message": "n is ${state.n}?", "schema": schema or {"type": "boolean"}, **fields}, "next": after}


def node(name: str, after: Any = "end", **fields: Any) -> dict[str, Any]:
    return {"use": f"node:{name}", "next": after, **fields}


Scenario = Callable[[Stage], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}
GOES_ON: dict[str, Callable[[Stage], Awaitable[RunResult]]] = {}


def scenario(make: Scenario) -> Scenario:
    SCENARIOS[make.__name__] = make
    return make


def goes_on(name: str) -> Callable[[Callable[[Stage], Awaitable[RunResult]]], None]:
    """How the scenario's thread of the same name goes on; the graph that it is asked of is a newer version."""

    def add(function: Callable[[Stage], Awaitable[RunResult]]) -> None:
        GOES_ON[name] = function

    return add


def newer(stage: Stage) -> CompiledGraph:
    """A graph that no frozen thread has begun: what goes on does so under its own, stored version."""
    return stage.graph({"another": node("add")})


# --- chains, loops, lists, types -------------------------------------------------------------------


@scenario
async def chain(stage: Stage) -> None:
    app = stage.graph({"a": node("note", "b"), "b": node("add")}, {"log": LIST})
    await app.run({"query": "hello", "extra": [1]}, "chain", params={"tone": "dry"})
    await app.run({"query": "again"}, "chain", durability="sync")


@scenario
async def loop(stage: Stage) -> None:
    routes = [{"if": "visits.work < 4 && state.n < 9", "to": "work"}, {"to": "end"}]
    app = stage.graph(
        {"work": node("note", routes)}, {"log": LIST}, budget={"maxSteps": 20}, invariants=["work at most 4"]
    )
    await app.run({}, "loop")


@scenario
async def long(stage: Stage) -> None:
    """Enough for snapshots."""
    routes = [{"if": "state.n < 14", "to": "work"}, {"to": "end"}]
    app = stage.graph({"work": node("long", routes)}, {"log": LIST, "blob": ANY}, budget={"maxSteps": 99})
    await app.run({}, "long")


@scenario
async def types(stage: Stage) -> None:
    app = stage.graph({"store": node("values", "wait"), "wait": ask()}, dict.fromkeys(kinds.values(), ANY))
    await app.run({"query": "q"}, "types")


@goes_on("types")
async def _types(stage: Stage) -> RunResult:
    return await newer(stage).answer("types", True)


@scenario
async def reducers(stage: Stage) -> None:
    state = {
        "log": LIST,
        "seen": {"type": "array", "x-reducer": "union", "default": []},
        "facts": {"type": "object", "x-reducer": "merge", "default": {}},
        "total": {"type": "number", "x-reducer": "sum", "default": 0},
        "least": {"type": ["integer", "null"], "x-reducer": "min", "default": None},
        "most": {"type": ["integer", "null"], "x-reducer": "max", "default": None},
        "once": {**LIST, "x-scope": "run"},
        "messages": {"type": "array", "x-reducer": "messages", "default": []},
    }
    routes = [{"if": "visits.write < 3", "to": "write"}, {"to": "end"}]
    app = stage.graph({"write": node("reduced", routes)}, state, budget={"maxSteps": 20})
    await app.run({"query": "one"}, "reducers")
    await app.run({"query": "two"}, "reducers")


# --- failures --------------------------------------------------------------------------------------


@scenario
async def retried(stage: Stage) -> None:
    stage.fails = 2
    retry = {"max": 3, "on": ["connection"], "backoffMs": 0, "jitter": 0}
    await stage.graph({"try": node("flaky", retry=retry)}).run({}, "retried")


@scenario
async def routed(stage: Stage) -> None:
    nodes = {"try": node("broken", error=[{"on": ["node_error"], "to": "mend"}]), "mend": node("add")}
    await stage.graph(nodes).run({}, "routed")


@scenario
async def failed(stage: Stage) -> None:
    await stage.graph({"a": node("add", "try"), "try": node("broken")}).run({"query": "q"}, "failed")


@scenario
async def wrapped(stage: Stage) -> None:
    """The budget is used up; its `onExceeded` node wraps up."""
    routes = [{"if": "state.n < 99", "to": "work"}, {"to": "end"}]
    nodes = {"work": node("add", routes), "wrap_up": node("add")}
    await stage.graph(nodes, budget={"maxSteps": 2, "onExceeded": "wrap_up"}).run({}, "wrapped")


@scenario
async def resumed(stage: Stage) -> None:
    """A run whose budget was used up went on with a larger one."""
    app = stage.graph({"a": node("add", "b"), "b": node("add", "c"), "c": node("add")}, budget={"maxSteps": 1})
    await app.run({}, "resumed")
    await app.resume("resumed", budget={"maxSteps": 5})


@scenario
async def crashed(stage: Stage) -> None:
    """Inside a node with a recorded operation."""
    stage.stops = True
    app = stage.graph({"a": node("add", "b"), "b": node("stuck")})
    await launch(app, {}, "crashed")
    await stage.reached.wait()
    await stage.leave()


@goes_on("crashed")
async def _crashed(stage: Stage) -> RunResult:
    return await newer(stage).resume("crashed")


@scenario
async def recovered(stage: Stage) -> None:
    """After a crash the run has gone on."""
    stage.stops = True
    app = stage.graph({"a": node("add", "b"), "b": node("stuck")})
    await launch(app, {}, "recovered")
    await stage.reached.wait()
    await stage.leave()
    stage.stops = False
    await app.resume("recovered")


@scenario
async def unknown(stage: Stage) -> None:
    """A write whose outcome nobody knows."""
    stage.stops = True
    app = stage.graph({"mail": node("sends")}, {"word": ANY})
    await launch(app, {}, "unknown")
    await stage.reached.wait()
    await stage.leave()
    stage.stops = False
    await app.resume("unknown")


@goes_on("unknown")
async def _unknown(stage: Stage) -> RunResult:
    return await newer(stage).answer("unknown", {"decision": "result", "result": "was sent"})


# --- people ----------------------------------------------------------------------------------------


@scenario
async def asked(stage: Stage) -> None:
    """Waits for an answer, until it expires."""
    routes = [{"if": "answer == true", "to": "yes"}, {"to": "end"}]
    question = ask(routes, expires="P2D", onExpire="yes", owner="ann", role="boss", show="state.n")
    await stage.graph({"a": node("add", "q"), "q": question, "yes": node("add")}).run({"query": "q"}, "asked")


@goes_on("asked")
async def _asked(stage: Stage) -> RunResult:
    return await newer(stage).answer("asked", True)


@scenario
async def answered(stage: Stage) -> None:
    """One of two questions of a node is answered; what it had recorded stands."""
    app = stage.graph({"a": node("asks", "b"), "b": node("add")})
    await app.run({}, "answered")
    await app.answer("answered", 1, by="bob")


@goes_on("answered")
async def _answered(stage: Stage) -> RunResult:
    return await newer(stage).answer("answered", 2)


@scenario
async def stopped(stage: Stage) -> None:
    """At a breakpoint, after another was skipped."""
    app = stage.graph({"a": node("add", "b"), "b": node("add", "c"), "c": node("add")}, interruptAfter=["c"])
    await app.run({}, "stopped", interrupt_before=["a", "b"])
    await app.answer("stopped", {"decision": "skip"})


@goes_on("stopped")
async def _stopped(stage: Stage) -> RunResult:
    app = newer(stage)
    await app.answer("stopped", {"decision": "continue", "update": {"n": 5}})
    return await app.answer("stopped", {"decision": "continue"})


@scenario
async def cancelled(stage: Stage) -> None:
    app = stage.graph({"a": node("add", "q"), "q": ask()})
    await app.run({}, "cancelled")
    await app.thread("cancelled").cancel()


@goes_on("cancelled")
async def _cancelled(stage: Stage) -> RunResult:
    app = newer(stage)
    await app.resume("cancelled")
    return await app.answer("cancelled", True)


@scenario
async def signalled(stage: Stage) -> None:
    """One signal was taken up, another is waited for, until a time."""
    wait = {"use": "wait", "with": {"signal": "paid", "for": "P2D"}, "set": {"word": "out.by"}}
    app = stage.graph({"first": {**wait, "next": "second"}, "second": {**wait, "next": "end"}}, {"word": ANY})
    await app.run({}, "signalled")
    await app.thread("signalled").signal("paid", {"amount": 3})
    if (live := app.host.live("signalled")) is not None:
        await live.over.wait()


# --- subgraphs, tools ------------------------------------------------------------------------------


@scenario
async def nested(stage: Stage) -> None:
    """A question two subgraphs deep."""
    inner = {
        "graphflow": "1",
        "start": "add",
        "state": {"type": "object", "properties": {"n": NUMBER, "log": LIST}},
        "nodes": {"add": node("note", "q"), "q": ask()},
        "result": "state.n",
    }
    middle = {
        **inner,
        "nodes": {"add": node("note", "deeper"), "deeper": {"graph": inner, "set": {"n": "out + 10"}, "next": "end"}},
    }
    app = stage.graph(
        {
            "a": node("add", "sub"),
            "sub": {"graph": middle, "with": {"query": "x"}, "set": {"n": "out"}, "next": "b"},
            "b": node("add"),
        }
    )
    await app.run({"query": "q"}, "nested")


@goes_on("nested")
async def _nested(stage: Stage) -> RunResult:
    return await newer(stage).answer("nested", True)


@scenario
async def tools(stage: Stage) -> None:
    """A model, a tool that a person approved, and text that was streamed."""
    nodes = {
        "think": {
            "use": "model",
            "set": {"messages": "[out.message]"},
            "next": [{"if": "size(out.toolCalls) > 0", "to": "act"}, {"to": "end"}],
        },
        "act": {"use": "tools", "set": {"messages": "out.messages"}, "next": "think"},
    }
    messages = {"messages": {"type": "array", "x-reducer": "messages", "default": []}}
    app = stage.graph(nodes, messages, budget={"maxSteps": 20}, tools=["city"], approval="REQUIRE_APPROVAL")
    await app.run({"query": "Tell me of Ulm"}, "tools")
    await app.answer("tools", {"decision": "approve"})
    await app.run({"query": "More"}, "tools")


# --- time travel, versions -------------------------------------------------------------------------


@scenario
async def travelled(stage: Stage) -> None:
    """A rewind, an edit as a node, and a fork that went its own way."""
    app = stage.graph({"a": node("note", "b"), "b": node("note", "q"), "q": ask("c"), "c": node("add")}, {"log": LIST})
    await app.run({"query": "q"}, "travelled")
    thread = app.thread("travelled")
    after_a = next(c for c in await thread.history() if c.node == "a")
    await thread.rewind(after_a.id)
    await app.resume("travelled")
    await thread.edit({"n": 40, "log": ["edited"]}, as_node="b", replace=["log"])
    other = await thread.fork(after_a.id, thread_id="travelled_fork")
    await app.resume(other.id)
    await app.answer(other.id, True)


@goes_on("travelled")
async def _travelled(stage: Stage) -> RunResult:
    app = newer(stage)
    await app.resume("travelled")
    return await app.answer("travelled", True)


@scenario
async def migrated(stage: Stage) -> None:
    """A waiting thread under its second version; the first is in its past."""
    old = stage.graph(
        {"a": node("add", "q"), "q": ask("b"), "b": node("add")},
        {"kept": {"type": "array", "default": [1]}, "gone": {"default": "x"}},
    )
    new = stage.graph({"a": node("add", "ask"), "ask": ask("b"), "b": node("note")}, {"kept": LIST, "log": LIST})
    await old.run({}, "migrated")
    await new.thread("migrated").migrate({"q": "ask"}, by="cy")


@goes_on("migrated")
async def _migrated(stage: Stage) -> RunResult:
    return await newer(stage).answer("migrated", True)


# --- branches --------------------------------------------------------------------------------------


@scenario
async def mapped(stage: Stage) -> None:
    """Of four items, two at once, one has ended, one failed and is collected, one waits, one has not begun."""
    nodes = {
        "fan": {
            "map": "state.list", "as": "it", "do": "q", "max": 2, "join": {"onError": "collect"}, "set": {"got": "out"}, "next": "last",
        },
        "q": {**ask([{"if": "it == 2", "to": "fall"}, {"to": "write"}]), "set": {"log": "[it, string(answer)]"}},
        "fall": node("broken"),
        "write": node("note"),
        "last": node("add"),
    }  # fmt: skip
    state = {
        "n": {**NUMBER, "x-reducer": "max"},
        "list": {"default": [1, 2, 3, 4]},
        "log": LIST,
        "got": {"default": None},
    }
    app = stage.graph(nodes, state)
    asked = (await app.run({}, "mapped")).interrupts
    await app.answer("mapped", {asked[0].id: True, asked[1].id: False})
    last = (await app.thread("mapped").state()).interrupts
    await app.answer("mapped", {last[0].id: True})


@goes_on("mapped")
async def _mapped(stage: Stage) -> RunResult:
    return await newer(stage).answer("mapped", False)


@scenario
async def forked(stage: Stage) -> None:
    """A parallel in a parallel: one branch came after another, one is inside a subgraph, all wait."""
    inner = {
        "graphflow": "1",
        "start": "deep",
        "state": {"type": "object", "properties": {"n": NUMBER}},
        "nodes": {"deep": ask()},
        "input": {"type": "object"},
        "result": "state.n",
    }
    nodes = {
        "outer": {
            "parallel": {"a": "first", "b": {"do": "inner", "after": ["a"]}, "c": {"do": {"graph": inner}}},
            "next": "last",
        },
        "first": node("note"),
        "inner": {"parallel": {"x": "left", "y": "right"}, "join": {"wait": "any"}, "next": "end"},
        "left": node("note", "q"),
        "q": ask(),
        "right": ask(),
        "last": node("add"),
    }
    state = {"n": {**NUMBER, "x-reducer": "sum"}, "log": LIST}
    await stage.graph(nodes, state, invariants=["before last visit first"]).run({}, "forked")


@goes_on("forked")
async def _forked(stage: Stage) -> RunResult:
    app = newer(stage)
    asked = {question.node: question.id for question in (await app.thread("forked").state()).interrupts}
    await app.answer("forked", {asked["q"]: True})
    return await app.answer("forked", {asked["deep"]: True})


# --- since format 2 --------------------------------------------------------------------------------


@scenario
async def unnamed(stage: Stage) -> None:
    """Killed between two writes that have no name: their keys count the calls, under the stored kind `once`."""
    stage.stops = True
    app = stage.graph({"pay": node("charges")}, {"word": ANY})
    await launch(app, {}, "unnamed")
    await stage.reached.wait()
    await stage.leave()


@goes_on("unnamed")
async def _unnamed(stage: Stage) -> RunResult:
    return await newer(stage).resume("unnamed")


# --- media ------------------------------------------------------------------------------------------

PICTURES = {"messages": {"type": "array", "x-reducer": "messages", "default": []}, "kept": ANY}


@scenario
async def pictured(stage: Stage) -> None:
    """Messages with a picture that is stored beside them, once; its number is drawn at random, and fixed here."""
    app = stage.graph({"a": node("shows", "b"), "b": node("shows")}, PICTURES)
    with patch.object(secrets, "randbelow", lambda below: 7):
        first = await app.run({"query": "one"}, "pictured")
        await app.run({"query": "two"}, "pictured")
        await app.thread("pictured").fork(first.checkpoint_id, thread_id="pictured_fork")


@scenario
async def inlined(stage: Stage) -> None:
    """Messages that hold the bytes of their pictures, as earlier versions stored them."""
    app = stage.graph({"a": node("shows", "b"), "b": node("shows")}, PICTURES)
    with patch.object(large_bytes, "LARGE_BYTES", 1 << 40):
        await app.run({"query": "one"}, "inlined")
