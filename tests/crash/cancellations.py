"""Code that is cancelled where it waits, and does not take it well: nodes, what they do outside, and what they do then.

A case is a place in the graph, what the code does about a cancellation, the moment, and how the run is ended. Effects
outside are counted by what they are; the campaign (`test_cancels.py`) compares them with the record.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from graphflow import Tool, tool
from graphflow.graph.validation.validate import check_document
from graphflow.models.deltas import Delta, Finish, TextDelta, Usage
from graphflow.models.pool import ModelPool
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script, ScriptedCall, ScriptTurn
from graphflow.nodes.kinds import NodeKinds
from graphflow.nodes.model import MODEL_SERVICES
from graphflow.runtime.clock_and_ids import SystemClock
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import ToolRunner
from tests.patience import PATIENCE_S

POINTS = ("before a", "a begun", "a done", "between", "b begun", "b done", "at the end")
"""The awaits of the code: `a` and `b` are writes, `begun` before one has happened and `done` after it."""


class Case(NamedTuple):
    """One cancellation."""

    place: str
    manner: str
    point: str
    how: str

    def __str__(self) -> str:
        return ", ".join(self)


class Outside:
    """The world of one case: what happened in it, and the moment of the cancellation."""

    def __init__(self, point: str, thread: str) -> None:
        self.thread = thread
        self.effects: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        """Calls of a model by nodes, by what they ask for."""
        self.answered: Counter[str] = Counter()
        """Those whose answer has come to its end."""
        self.struck = asyncio.Event()
        """The code is where it is to be cancelled."""
        self.disturbed = True
        """Whether this is the life that is cancelled."""
        self._point: str | None = point
        self._never = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.freed = threading.Event()
        """Lets a function go on that waits in a thread: nothing else can stop it."""
        self.left = threading.Event()
        """That function has ended."""

    def reach(self, point: str) -> bool:
        """Whether this is the moment; it comes once."""
        if point != self._point:
            return False
        self._point = None
        self._loop.call_soon_threadsafe(self.struck.set)
        return True

    def free(self) -> None:
        """Lets go of all that still waits."""
        self.freed.set()
        self._never.set()

    async def here(self, point: str) -> None:
        await (self._never.wait() if self.reach(point) else asyncio.sleep(0))

    def here_in_thread(self, point: str) -> None:
        if self.reach(point):
            self.freed.wait(PATIENCE_S)

    def act_in_thread(self, what: str) -> str:
        self.here_in_thread(f"{what} begun")
        self.effects[what] += 1
        self.here_in_thread(f"{what} done")
        return f"{what} is done"

    async def act(self, what: str) -> str:
        await self.here(f"{what} begun")
        self.effects[what] += 1
        await self.here(f"{what} done")
        return f"{what} is done"


Work = Callable[[Outside, Any], Awaitable[Any]]


async def _work(out: Outside, ctx: Any) -> None:
    await out.here("before a")
    await ctx.step("a", lambda: out.act("a"))
    await out.here("between")
    await ctx.step("b", lambda: out.act("b"))
    await out.here("at the end")


async def _late(out: Outside, ctx: Any, effects: str = "write") -> None:
    await ctx.step("late", lambda: out.act("late"), effects=effects)


# --- manners: what code does about a cancellation ----------------------------------------------------


async def passes_it_on(out: Outside, ctx: Any) -> None:
    await _work(out, ctx)


async def writes_finally(out: Outside, ctx: Any) -> None:
    try:
        await _work(out, ctx)
    finally:
        await _late(out, ctx)


async def reads_finally(out: Outside, ctx: Any) -> None:
    try:
        await _work(out, ctx)
    finally:
        await _late(out, ctx, "read")


async def asks_finally(out: Outside, ctx: Any) -> None:
    try:
        await _work(out, ctx)
    finally:
        await ctx.ask("Clean up?")


async def awaits_finally(out: Outside, ctx: Any) -> None:
    try:
        await _work(out, ctx)
    finally:
        for _ in range(5):
            await asyncio.sleep(0)
        facts = (ctx.path, ctx.input, ctx.idempotency_key("late"), ctx.limits, ctx.run_id, ctx.now())
        ctx.content(f"left with {len(facts)} facts")
        await ctx.emit({"left": True})


async def swallows(out: Outside, ctx: Any) -> None:
    try:
        await _work(out, ctx)
    except asyncio.CancelledError:
        return


async def swallows_and_writes(out: Outside, ctx: Any) -> None:
    try:
        await _work(out, ctx)
    except asyncio.CancelledError:
        await _late(out, ctx)


async def swallows_and_asks(out: Outside, ctx: Any) -> None:
    try:
        await _work(out, ctx)
    except asyncio.CancelledError:
        await ctx.ask("Go on?")


async def swallows_all(out: Outside, ctx: Any) -> None:
    for attempt in (_work, _late, _late):
        try:
            await attempt(out, ctx)
        except BaseException:  # noqa: BLE001 - what user code may do
            continue


async def swallows_and_says_so(out: Outside, ctx: Any) -> None:
    try:
        await _work(out, ctx)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()


async def fails_instead(out: Outside, ctx: Any) -> None:
    try:
        await _work(out, ctx)
    except asyncio.CancelledError:
        raise ValueError("something else") from None


async def swallows_in_the_act(out: Outside, ctx: Any) -> None:
    async def act(what: str) -> str:
        try:
            return await out.act(what)
        except asyncio.CancelledError:
            return f"{what} was cut off"

    await out.here("before a")
    await ctx.step("a", lambda: act("a"))
    await out.here("between")
    await ctx.step("b", lambda: act("b"))
    await out.here("at the end")


async def shields_the_act(out: Outside, ctx: Any) -> None:
    await out.here("before a")
    await ctx.step("a", lambda: asyncio.shield(asyncio.ensure_future(out.act("a"))))  # noqa: TID251
    await out.here("between")
    await ctx.step("b", lambda: asyncio.shield(asyncio.ensure_future(out.act("b"))))  # noqa: TID251
    await out.here("at the end")


class _Closing:
    """An `async with` whose end awaits and writes."""

    def __init__(self, out: Outside, ctx: Any, *, swallows: bool) -> None:
        self._out, self._ctx, self._swallows = out, ctx, swallows

    async def __aenter__(self) -> None:
        await asyncio.sleep(0)

    async def __aexit__(self, *error: object) -> bool:
        await asyncio.sleep(0)
        if not self._swallows:
            await _late(self._out, self._ctx)
        return self._swallows


async def writes_at_the_end_of_a_block(out: Outside, ctx: Any) -> None:
    async with _Closing(out, ctx, swallows=False):
        await _work(out, ctx)


async def swallows_at_the_end_of_a_block(out: Outside, ctx: Any) -> None:
    async with _Closing(out, ctx, swallows=True):
        await _work(out, ctx)


async def works_in_a_group(out: Outside, ctx: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(writes_finally(out, ctx))
        group.create_task(asyncio.sleep(0))


async def writes_in_a_group(out: Outside, ctx: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        await writes_finally(out, ctx)


async def leaves_a_task_behind(out: Outside, ctx: Any) -> None:
    task = asyncio.ensure_future(_work(out, ctx))  # noqa: TID251 - what user code may do
    await asyncio.shield(task)


MANNERS: dict[str, Work] = {
    work.__name__: work
    for work in (
        passes_it_on, writes_finally, reads_finally, asks_finally, awaits_finally, swallows, swallows_and_writes,
        swallows_and_asks, swallows_all, swallows_and_says_so, fails_instead, swallows_in_the_act, shields_the_act,
        writes_at_the_end_of_a_block, swallows_at_the_end_of_a_block, works_in_a_group, writes_in_a_group, leaves_a_task_behind,
    )
}  # fmt: skip


# --- manners of code that calls a model


async def _calls(out: Outside, ctx: Any) -> None:
    await out.here("before a")
    await ctx.call_model("a", model=SPEAKER, stream=True)
    await out.here("between")
    await ctx.call_model("b", model=SPEAKER, stream=False)
    await out.here("at the end")


async def calls(out: Outside, ctx: Any) -> None:
    await _calls(out, ctx)


async def calls_finally(out: Outside, ctx: Any) -> None:
    try:
        await _calls(out, ctx)
    finally:
        await ctx.call_model("late", model=SPEAKER)


async def swallows_in_a_call(out: Outside, ctx: Any) -> None:
    try:
        await _calls(out, ctx)
    except asyncio.CancelledError:
        await ctx.call_model("late", model=SPEAKER)


async def calls_in_a_group(out: Outside, ctx: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_calls(out, ctx))
        group.create_task(asyncio.sleep(0))


CALL_MANNERS: dict[str, Work] = {
    work.__name__: work for work in (calls, calls_finally, swallows_in_a_call, calls_in_a_group)
}
SPEAKER = "speaker"
WORDS = "is", " said"


class Speaker(ScriptedModel):
    """Answers what it is asked for in two pieces, and can be cut off around each."""

    def __init__(self, out: Outside) -> None:
        super().__init__(model=SPEAKER)
        self._out = out

    async def stream(self, messages: Any, tools: Any = (), options: Any = None) -> AsyncGenerator[Delta, None]:
        what = messages[-1].content
        self._out.asked[what] += 1
        await self._out.here(f"{what} begun")
        yield TextDelta(f"{what} {WORDS[0]}")
        await self._out.here(f"{what} done")
        yield TextDelta(WORDS[1])
        self._out.answered[what] += 1
        yield Finish("stop", "stop", Usage(prompt_tokens=10, completion_tokens=5))


TOOL_MANNERS = ("passes_it_on", "swallows_in_the_act", "shields_the_act")
"""Manners that tools have, too: what they do is one act."""
WRITE_ALSO_UNDISTURBED = (
    "swallows_all",
    "writes_in_a_group",
    "writes_finally",
    "reads_finally",
    "writes_at_the_end_of_a_block",
    "works_in_a_group",
    "writes_finally_in_thread",
)
"""Manners that do `late` in any case."""


# --- functions that run in a thread: nothing stops them but their context


def _work_in_thread(out: Outside, ctx: Any) -> None:
    out.here_in_thread("before a")
    ctx.step("a", lambda: out.act_in_thread("a"))
    out.here_in_thread("between")
    ctx.step("b", lambda: out.act_in_thread("b"))
    out.here_in_thread("at the end")


def _late_in_thread(out: Outside, ctx: Any) -> None:
    ctx.step("late", lambda: out.act_in_thread("late"))


def passes_it_on_in_thread(out: Outside, ctx: Any) -> None:
    _work_in_thread(out, ctx)


def writes_finally_in_thread(out: Outside, ctx: Any) -> None:
    try:
        _work_in_thread(out, ctx)
    finally:
        _late_in_thread(out, ctx)


def asks_finally_in_thread(out: Outside, ctx: Any) -> None:
    try:
        _work_in_thread(out, ctx)
    finally:
        ctx.ask("Clean up?")


def swallows_in_thread(out: Outside, ctx: Any) -> None:
    try:
        _work_in_thread(out, ctx)
    except asyncio.CancelledError:
        ctx.emit({"swallowed": True})


THREAD_MANNERS: dict[str, Callable[[Outside, Any], None]] = {
    work.__name__: work
    for work in (passes_it_on_in_thread, writes_finally_in_thread, asks_finally_in_thread, swallows_in_thread)
}


# --- places: where in the graph the code runs ---------------------------------------------------------

STATE: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer", "default": 0, "x-reducer": "sum"}}}
STATE["properties"]["messages"] = {"type": "array", "default": [], "x-reducer": "messages"}
CALLS = [{"id": what, "name": what, "arguments": {}} for what in "ab"]


def document(place: str, how: str) -> dict[str, Any]:
    """First, then the code in its place, then `after`, which must not begin once the run is cancelled."""
    limit = {"timeoutMs": 3_600_000} if how == "time limit of the node" else {}
    work = {"use": "node:work", **limit}
    around = {"timeoutMs": 3_600_000} if how == "time limit of the node around" else {}
    onward = {"next": "after"}
    inner: dict[str, dict[str, Any]] = {
        "root": {"here": {**work, **onward}},
        "map": {"here": {"map": "[0]", "as": "item", "do": "body", **around, **onward}, "body": work},
        "parallel": {
            "here": {
                "parallel": {"one": "body", "two": "sibling"},
                "join": {"wait": "any"} if how == "the join is decided" else {},
                **around,
                **onward,
            },
            "body": work,
            "sibling": {"use": "node:sibling"},
        },
        "subgraph": {"here": {"graph": "child", **around, **onward}},
        "branch of a subgraph": {"here": {"graph": "child", **around, **onward}},
        "thread": {"here": {**work, "use": "node:work_in_thread", **onward}},
        "tools": {"here": {"use": "tools", "with": {"calls": CALLS}, **limit, **onward}},
        "tools in a branch": {
            "here": {"map": "[0]", "as": "item", "do": "body", **around, **onward},
            "body": {"use": "tools", "with": {"calls": CALLS}, **limit},
        },
        "agent": {
            "here": {
                "use": "model",
                "with": {"tools": ["a", "b"]},
                "set": {"messages": "[out.message]"},
                "next": [{"if": "size(out.toolCalls) > 0", "to": "calls"}, {"to": "after"}],
            },
            "calls": {"use": "tools", "set": {"messages": "out.messages"}, **limit, "next": "here"},
        },
    }
    nodes = {"first": {"use": "node:first", "next": "here"}, **inner[place], "after": {"use": "node:after"}}
    return {
        "graphflow": "1", "key": "r", "state": STATE, "start": "first", "nodes": nodes,
        "budget": {"maxSteps": 100, "timeoutMs": 3_600_000},
    }  # fmt: skip


class _Child:
    """The subgraph of those places that have one."""

    def __init__(self, place: str, how: str) -> None:
        inner = document("map" if place == "branch of a subgraph" else "root", how)
        nodes = {name: keys for name, keys in inner["nodes"].items() if name not in ("first", "after")}
        nodes["here"].pop("next")
        self._document = {**inner, "key": "child", "start": "here", "nodes": nodes}

    def document(self, key: str) -> Mapping[str, Any] | None:
        return self._document if key == "child" else None


SCRIPT = Script(
    turns=(
        ScriptTurn(tool_calls=tuple(ScriptedCall(id=what, name=what, arguments={}) for what in "ab")),
        ScriptTurn(text="done"),
    )
)


def _tool_of(out: Outside, what: str, manner: str) -> Tool:
    """The tool that does `a` or `b`, in the manner of the case."""

    async def act() -> str:
        if manner == "shields_the_act":
            return await asyncio.shield(asyncio.ensure_future(out.act(what)))  # noqa: TID251 - what user code may do
        try:
            return await out.act(what)
        except asyncio.CancelledError:
            if manner == "swallows_in_the_act":
                return "cut off"
            raise

    return tool(parameters={"type": "object", "properties": {}}, name=what, description=what)(act)


class MovedClock(SystemClock):
    """The real clock, which the case moves forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def open_case(case: Case, out: Outside, store: Any, clock: MovedClock) -> CompiledGraph:
    """The graph of a case over a store."""

    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        await (MANNERS | CALL_MANNERS)[case.manner](out, ctx)
        return {"n": 1}

    async def first(state: Any, ctx: Any) -> None:
        await ctx.step("first", lambda: out.act("first"))

    async def after(state: Any, ctx: Any) -> None:
        await ctx.step("after", lambda: out.act("after"))

    async def sibling(state: Any, ctx: Any) -> None:
        if out.disturbed:
            await out.struck.wait()
            if case.how == "a sibling fails":
                raise ValueError("the sibling fails")
            if case.how != "the join is decided":
                await asyncio.Event().wait()

    def work_in_thread(state: Any, ctx: Any) -> dict[str, Any]:
        try:
            THREAD_MANNERS[case.manner](out, ctx)
            return {"n": 1}
        finally:
            out.left.set()

    registry = ToolRegistry([_tool_of(out, what, case.manner) for what in "ab"], builtins=())
    kinds = NodeKinds(registry, agents=_Child(case.place, case.how))
    for function in (work, work_in_thread, first, after, sibling):
        kinds.node(function.__name__, function)
    return CompiledGraph(
        check_document(document(case.place, case.how), kinds),
        kinds=kinds,
        checkpointer=store,
        services={
            **MODEL_SERVICES,
            "tool": ToolRunner(registry),
            "model": ModelPool(lambda provider, name: Speaker(out) if name == SPEAKER else ScriptedModel(SCRIPT)),
        },
        clock=clock,
    )
