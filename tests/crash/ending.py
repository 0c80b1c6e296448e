"""Ways to end a run from outside, and what must be true afterwards, told from the world and from the record."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from graphflow.errors import GraphflowError
from graphflow.events import NodeStart
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.result import RunResult
from tests.crash.cancellations import (
    MANNERS,
    POINTS,
    THREAD_MANNERS,
    TOOL_MANNERS,
    WRITE_ALSO_UNDISTURBED,
    Case,
    MovedClock,
    Outside,
    open_case,
)
from tests.launching import launch
from tests.patience import PATIENCE_S

TURNS = 30
"""Turns of the event loop in which code that is left behind would act, if it could."""
ROUNDS = 12
"""More answers and resumes than any case needs."""


class Ending:
    """One run that is ended, and its caller.

    Args:
        app, out, clock: of the case.
    """

    def __init__(self, app: CompiledGraph, out: Outside, clock: MovedClock) -> None:
        self.app, self.out, self.clock = app, out, clock

    def _called(self) -> asyncio.Task[RunResult]:
        return asyncio.ensure_future(self.app.run({}, self.out.thread))  # noqa: TID251 - awaited by each of the ways

    async def cancels_the_thread(self) -> str:
        caller = self._called()
        await self.out.struck.wait()
        assert await self.app.thread(self.out.thread).cancel()
        return await self.outcome(caller)

    async def cancels_a_detached_run(self) -> str:
        live = await launch(self.app, {}, self.out.thread)
        await self.out.struck.wait()
        assert await self.app.thread(self.out.thread).cancel()
        await live.over.wait()
        return "cancelled"

    async def cancels_the_callers_task(self) -> str:
        caller = self._called()
        await self.out.struck.wait()
        caller.cancel()
        return await self.outcome(caller)

    async def time_limit_of_the_caller(self) -> str:
        limit = asyncio.timeout(None)

        async def call() -> RunResult:
            async with limit:
                return await self.app.run({}, self.out.thread)

        caller = asyncio.ensure_future(call())  # noqa: TID251 - awaited below
        await self.out.struck.wait()
        limit.reschedule(asyncio.get_running_loop().time())
        return await self.outcome(caller)

    async def time_limit_of_the_node(self) -> str:
        caller = self._called()
        await self.out.struck.wait()
        live = self.app.host.live(self.out.thread)
        assert live is not None
        for number in live.executor.runs.numbers():
            ctx = live.executor.runs.get(number)
            if ctx is not None and ctx.limit is not None:
                ctx.limit.reschedule(asyncio.get_running_loop().time())
        return await self.outcome(caller)

    async def time_limit_of_the_node_around(self) -> str:
        caller = self._called()
        await self.out.struck.wait()
        live = self.app.host.live(self.out.thread)
        assert live is not None
        plan, machine = live.executor.plan, live.executor.machine
        frame = machine.root
        live.executor.feed(live.executor.runs.failed_open(frame.number, plan.nodes[frame.node]))
        return await self.outcome(caller)

    async def cancels_the_caller_of_an_answer(self) -> str:
        waiting = await self.app.run({}, self.out.thread, interrupt_before=["here"])
        answers = {waiting.interrupts[0].id: {"decision": "continue"}}
        caller = asyncio.ensure_future(self.app.answer(self.out.thread, answers))  # noqa: TID251 - awaited below
        await self.out.struck.wait()
        caller.cancel()
        return await self.outcome(caller)

    async def time_limit_of_the_run(self) -> str:
        caller = self._called()
        await self.out.struck.wait()
        live = self.app.host.live(self.out.thread)
        assert live is not None
        self.clock.ahead_ms += 3_600_001
        live.executor.timers._on_deadline()
        return await self.outcome(caller)

    async def leaves_the_stream(self) -> str:
        async def read() -> None:
            async for _ in self.app.stream({}, self.out.thread):
                pass

        reader = asyncio.ensure_future(read())  # noqa: TID251 - awaited below
        await self.out.struck.wait()
        reader.cancel()
        return await self.outcome(reader)

    async def closes_the_stream(self) -> str:
        stream = self.app.stream({}, self.out.thread)
        async for event in stream:
            if isinstance(event, NodeStart) and event.node in ("here", "body"):
                break
        await self.out.struck.wait()
        await stream.aclose()
        return "CancelledError"

    async def a_sibling_fails(self) -> str:
        return await self.outcome(self._called())

    the_join_is_decided = a_sibling_fails

    async def interrupts(self) -> str:
        return await self._preempts("interrupt")

    async def rolls_back(self) -> str:
        return await self._preempts("rollback", effects="rerun")

    async def _preempts(self, how: Any, **options: Any) -> str:
        caller = self._called()
        await self.out.struck.wait()
        first, self.out.effects, self.out.disturbed = self.out.effects, Counter(), False
        second = await self.app.run({}, self.out.thread, on_busy=how, **options)
        second = await self.answered(second)
        self.second = second.status, self.out.effects
        self.out.left.clear()  # the second's function has set it; the first's still waits
        self.out.effects = first
        return await self.outcome(caller)

    async def shuts_down(self) -> str:
        await launch(self.app, {}, self.out.thread)
        await self.out.struck.wait()
        runs = self.app.host.runs
        assert runs is not None
        await runs.close(grace_s=0)
        return "running"

    async def outcome(self, caller: asyncio.Task[Any]) -> str:
        """What the caller sees: the run's status, or the exception."""
        try:
            result = await caller
        except BaseException as error:  # noqa: BLE001 - named in the answer
            return type(error).__name__
        return getattr(result, "status", "nothing")

    async def answered(self, result: RunResult) -> RunResult:
        for _ in range(ROUNDS):
            if result.status != "waiting":
                return result
            result = await self.app.answer(self.out.thread, {i.id: self.answer_to(i) for i in result.interrupts})
        raise AssertionError("it asks for ever")

    def answer_to(self, asked: Any) -> Any:
        if asked.kind != "outcome_unknown":
            return {"decision": "continue"} if asked.kind == "breakpoint" else "yes"
        what = asked.payload["operation"]
        return {"decision": "result", "result": "seen"} if self.out.effects[what] else {"decision": "retry"}


WAYS: dict[str, tuple[Callable[[Ending], Awaitable[str]], str]] = {
    "the thread is cancelled": (Ending.cancels_the_thread, "cancelled"),
    "the thread of a detached run is cancelled": (Ending.cancels_a_detached_run, "cancelled"),
    "the caller's task is cancelled": (Ending.cancels_the_callers_task, "CancelledError"),
    "the caller of an answer is cancelled": (Ending.cancels_the_caller_of_an_answer, "CancelledError"),
    "time limit of the node around": (Ending.time_limit_of_the_node_around, "failed"),
    "time limit of the caller": (Ending.time_limit_of_the_caller, "TimeoutError"),
    "time limit of the node": (Ending.time_limit_of_the_node, "failed"),
    "time limit of the run": (Ending.time_limit_of_the_run, "failed"),
    "the reader of the stream is cancelled": (Ending.leaves_the_stream, "CancelledError"),
    "the stream is closed": (Ending.closes_the_stream, "CancelledError"),
    "a sibling fails": (Ending.a_sibling_fails, "failed"),
    "the join is decided": (Ending.the_join_is_decided, "completed"),
    "another input interrupts": (Ending.interrupts, "cancelled"),
    "another input rolls back": (Ending.rolls_back, "cancelled"),
    "the process shuts down": (Ending.shuts_down, "running"),
}
"""How a run is ended → how that is done, and what its caller sees."""
PREEMPTING = ("another input interrupts", "another input rolls back")
AROUND = "time limit of the node around"
AMONG_SIBLINGS = ("a sibling fails", "the join is decided")
STATUS = {"CancelledError": "stopped", "TimeoutError": "stopped", "cancelled": "stopped", "completed": "idle"}


async def broken_by(case: Case, store: Any, thread: str) -> list[str]:
    """Every promise that does not hold for a case, in words."""
    out, clock = Outside(case.point, thread), MovedClock()
    app = open_case(case, out, store, clock)
    ending = Ending(app, out, clock)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await _broken(case, ending)
    except TimeoutError:
        return ["it hangs"]
    except (GraphflowError, asyncio.CancelledError) as error:
        return [f"{type(error).__name__}: {error}"]
    except AssertionError as error:
        return [f"assertion: {error}"]
    finally:
        out.free()


async def _broken(case: Case, ending: Ending) -> list[str]:
    app, out = ending.app, ending.out
    act, expected = WAYS[case.how]
    seen = await act(ending)
    out.disturbed = False
    if case.place == "thread":
        out.freed.set()
        await asyncio.to_thread(out.left.wait, PATIENCE_S)
    then = Counter(out.effects)
    broken = []
    if seen != expected:
        broken.append(f"its caller sees {seen}, not {expected}")
    for _ in range(TURNS):
        await asyncio.sleep(0)
    if out.effects - then:
        broken.append(f"after the end it did {dict(out.effects - then)}")
    if out.effects["late"]:
        broken.append("it did `late` although its run had ended")
    preempted = case.how in PREEMPTING
    if out.effects["after"] and case.how != "the join is decided":
        broken.append("the run went on to the next node")
    if not preempted:
        broken += await _unrecorded(app, out)
        loaded = await app.host.load(out.thread)
        status = loaded.machine.status
        if status != STATUS.get(expected, expected):
            broken.append(f"the thread is {status}")
        if loaded.machine.interrupts:
            broken.append(f"it asks {[i.payload for i in loaded.machine.interrupts.values()]}")
    if broken:
        return broken
    once = {"first": 1, "a": 1, "b": 1, "after": 1}
    if case.manner in WRITE_ALSO_UNDISTURBED:
        once["late"] = 1
    if preempted:
        if ending.second != ("completed", once):
            broken.append(f"the second input gives {ending.second}")
        if any(n > 1 for n in out.effects.values()):
            broken.append(f"the first did {dict(out.effects)}")
        return broken
    if case.how == "the join is decided":
        return broken
    for _ in range(ROUNDS):
        loaded = await app.host.load(out.thread)
        if loaded.machine.status == "idle":
            break
        result = (
            await app.answer(out.thread, {i.id: ending.answer_to(i) for i in loaded.machine.interrupts.values()})
            if loaded.machine.status == "waiting"
            else await app.resume(out.thread, budget={"timeoutMs": 3_600_000_000})
        )
    else:
        return [f"it never completes: {result.error}"]
    if dict(out.effects) != once:
        broken.append(f"resumed, it did {dict(out.effects)}")
    return broken


async def _unrecorded(app: CompiledGraph, out: Outside) -> list[str]:
    """What happened and is not on record, and what is on record and did not happen."""
    thread = app.thread(out.thread)
    history = await thread.history(limit=1000)
    recorded = {e.key: e.as_dict()["outcome"] for e in await thread.effects(history[-1].id)}
    broken = [f"{what} is not on record" for what in out.effects if what not in recorded and what != "late"]
    broken += [
        f"{what} is on record and was not done"
        for what, how in recorded.items()
        if how == "done" and not out.effects[what]
    ]
    broken += [f"{what} happened {n} times" for what, n in out.effects.items() if n > 1]
    return broken


def cases() -> list[Case]:
    """Every case there is."""
    around = ("map", "parallel", "subgraph", "branch of a subgraph")
    acts = [point for point in POINTS if point.endswith(("begun", "done"))]
    nodes = [
        Case(place, manner, point, how)
        for how in WAYS
        for place in (("parallel",) if how in AMONG_SIBLINGS else around if how == AROUND else ("root", *around))
        for manner in MANNERS
        for point in POINTS
    ]
    ways = [how for how in WAYS if how not in (*AMONG_SIBLINGS, AROUND)]
    threads = [Case("thread", manner, point, how) for how in ways for manner in THREAD_MANNERS for point in POINTS]
    tools = [
        Case(place, manner, point, how)
        for how in ways
        for place in ("tools", "tools in a branch", "agent")
        for manner in TOOL_MANNERS
        for point in acts
        if place != "agent" or how not in PREEMPTING  # its script is of one run
    ]
    return [*nodes, *threads, *tools]
