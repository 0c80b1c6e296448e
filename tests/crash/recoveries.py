"""A library without a server: processes that start, queue and recover, and die: `python -m tests.crash.recoveries '{"store": …}'`.

A first process starts runs on several threads (that act, wait for a time, a question that expires, or a signal) and queues
inputs behind them, and dies. Two at a time, others recover, later and later by their clock, and die, too. At last one recovers
whatever is left, and somebody who looks at the world answers what became of writes that were cut off.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from graphflow import Context
from graphflow.errors import ThreadNotFound
from graphflow.graph.validation.validate import check_document
from graphflow.nodes.kinds import NodeKinds
from graphflow.runtime.compiled_graph import CompiledGraph
from tests.crash.cancellations import MovedClock
from tests.crash.diary import Diary, read_diary
from tests.crash.seeds import Job, live_through
from tests.crash.stores import hear_out, open_store
from tests.crash.zygote import LIMIT_S

KINDS = ("plain", "timer", "ask", "signal")
"""What an input is about: where its run waits, if anywhere."""
DUE_MIN = 30
"""Timers and questions are over by then, in minutes of the processes' clock."""
ROUNDS = 20
"""More recoveries than anything needs."""
NODES: dict[str, Any] = {
    "note": {
        "use": "node:note",
        "next": [*({"if": f"state.kind == '{kind}'", "to": f"by_{kind}"} for kind in KINDS[1:]), {"to": "finish"}],
    },
    "by_timer": {"use": "wait", "with": {"for": f"PT{DUE_MIN}M"}, "next": "finish"},
    "by_ask": {"ask": {"message": "Who?", "expires": f"PT{DUE_MIN}M", "onExpire": "late"}, "next": "finish"},
    "by_signal": {"use": "wait", "with": {"signal": "go"}, "next": "finish"},
    "late": {"use": "node:act", "next": "finish"},
    "finish": {"use": "node:act", "next": "end"},
}
DOCUMENT = {
    "graphflow": "1", "key": "lone", "start": "note", "nodes": NODES,
    "state": {"type": "object", "properties": {"kind": {"type": "string", "default": ""}}},
}  # fmt: skip


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a seed, and what it was about."""

    seed: int
    kills: int = 0
    runs: int = 0
    queued: int = 0
    waited: int = 0
    broken: list[str] = []


class Life:
    """One process.

    Args:
        ahead_min: how far its clock is.
        dies: at which moment around its acts it kills itself; 0 never.
    """

    def __init__(self, diary: Diary, store: Any, ahead_min: int, dies: int = 0) -> None:
        self.diary, self.ahead_min = diary, ahead_min
        self._dies, self._moments = dies, 0
        self._gates: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}
        self._clock = MovedClock()
        self._clock.ahead_ms = ahead_min * 60_000
        kinds = NodeKinds()
        kinds.node("note", self._note)
        kinds.node("act", self._act)
        self.app = CompiledGraph(check_document(DOCUMENT, kinds), kinds=kinds, checkpointer=store, clock=self._clock)

    def _reach(self) -> None:
        self._moments += 1
        if self._moments == self._dies:
            os.kill(os.getpid(), signal.SIGKILL)

    async def _act(self, state: Any, ctx: Context) -> None:
        name, key = ctx.input["query"], ctx.idempotency_key("act")

        def write() -> str:
            self._reach()
            self.diary.effect(what=[*name.split(), ctx.node], key=key, ahead=self.ahead_min)
            self._reach()
            return "done"

        self._reach()
        if name.split()[0] in self._gates:
            arrived, go = self._gates[name.split()[0]]
            arrived.set()
            await go.wait()
        await ctx.step("act", write)
        self._reach()

    async def _note(self, state: Any, ctx: Context) -> dict[str, Any]:
        await self._act(state, ctx)
        return {"kind": ctx.input["query"].split()[2]}

    async def start(self, inputs: dict[str, list[str]]) -> None:
        """Starts the first input of each thread, and the others when it is over or behind it while it waits."""
        await asyncio.gather(*(self._start(thread, names) for thread, names in inputs.items()))
        os.kill(os.getpid(), signal.SIGKILL)  # callers that are cancelled withdraw their inputs; these die

    async def _start(self, thread: str, names: list[str]) -> None:
        """The first input's run stands in its first node until the callers of the others are queued behind it."""
        self._gates[thread] = arrived, go = asyncio.Event(), asyncio.Event()
        first = self._called(thread, names[0])
        await arrived.wait()
        for name in names[1:]:
            calling = self._called(thread, name)
            while name not in await self._queue(thread):
                if calling.done():
                    await calling
                await asyncio.sleep(0)
            self.diary.note("accepted", what=name)
        go.set()
        self.diary.note("accepted", what=names[0])
        if (await first).status == "waiting" and "signal" in names[0]:
            await self.app.thread(thread).signal("go", 1)

    def _called(self, thread: str, name: str) -> asyncio.Task[Any]:
        run = self.app.run({"query": name}, thread, durability="sync", on_busy="enqueue")
        return asyncio.ensure_future(run)  # noqa: TID251 - the process dies with it

    async def _queue(self, thread: str) -> list[str]:
        try:
            return [entry.input["query"] for entry in await self.app.thread(thread).queue()]
        except ThreadNotFound:
            return []

    async def recover(self) -> list[Any]:
        done = await self.app.recover(max_concurrency=3)
        if done.errors or done.refused:
            raise AssertionError(f"recover reports {done.errors} and {done.refused}")
        for result in done.results:
            if result.error is not None:  # three processes died at one checkpoint
                self.diary.note(result.error["code"], thread=result.thread_id)
        return done.results

    async def finish(self, threads: Sequence[str], path: Path) -> None:
        """Recovers until nothing is due, hours later each time, and answers as the world shows."""
        for _ in range(ROUNDS):
            results = await self.recover()
            open_ = [(thread, asked) for thread in threads for asked in await self._open(thread)]
            for thread, asked in open_:
                if asked.kind == "outcome_unknown":
                    happened = asked.payload["idempotencyKey"] in {line.get("key") for line in read_diary(path)}
                    answer = {"decision": "result", "result": "done"} if happened else {"decision": "retry"}
                    await self.app.answer(thread, {asked.id: answer})
                elif asked.kind == "signal":
                    await self.app.thread(thread).signal("go", 1)
                    while "driven True" in await self._status(thread):  # by the run that the signal woke
                        await asyncio.sleep(0)
            for thread in threads:
                # It lost three processes at one checkpoint, as may happen on a loaded machine: a person resumes it.
                if (await self._status(thread)).startswith("failed"):
                    await self.app.resume(thread)
            left = [
                f"{thread} is {status}"
                for thread in threads
                if (status := await self._status(thread)) not in ("idle", "")
            ]
            # What is left may be due only later: nobody sees at once that a caller in the queue is gone.
            if not open_ and not results and not left:
                return
            self.ahead_min += 2 * DUE_MIN
            self._clock.ahead_ms = self.ahead_min * 60_000
        raise AssertionError(f"something is due for ever, or never: {open_}, {left}")

    async def _status(self, thread: str) -> str:
        try:
            state = await self.app.thread(thread).state()
        except ThreadNotFound:
            return ""
        return (
            f"{state.status}, driven {state.driven}, queue {await self._queue(thread)}"
            if state.status != "idle"
            else "idle"
        )

    async def _open(self, thread: str) -> list[Any]:
        try:
            return list((await self.app.thread(thread).state()).interrupts)
        except ThreadNotFound:
            return []


def run_seed(job: Job, seed: int) -> Outcome:
    """The process that starts, pairs that recover, and one that recovers to the end."""
    draw = random.Random(f"recoveries of {seed}")
    inputs = {
        f"s{seed}t{thread}": [f"s{seed}t{thread} {n} {draw.choice(KINDS)}" for n in range(draw.randint(1, 3))]
        for thread in range(draw.randint(2, 4))
    }
    folder = Path(job.folder) / f"seed{seed}"
    folder.mkdir()
    path = folder / "diary"
    outcome = Outcome(seed=seed)

    def life(number: int, ahead_min: int, dies: int, act: Callable[[Life], Awaitable[Any]]) -> Callable[[], None]:
        async def lived() -> None:
            store = open_store(job.store, job.where, job.folder, seed, life=number)
            await store.setup()
            await act(Life(Diary(path, number), store, ahead_min, dies))

        def child() -> None:
            try:
                asyncio.run(lived())
            except BaseException:
                Diary(path, number).note("error", text=traceback.format_exc())
                raise

        return child

    outcome.kills += together(life(1, 0, draw.randint(4, 40), lambda it: it.start(inputs)))
    for number, ahead_min in ((2, DUE_MIN // 3), (4, DUE_MIN + 15), (6, 3 * DUE_MIN)):
        pair = [life(number + n, ahead_min, draw.randint(1, 16), lambda it: it.recover()) for n in (0, 1)]
        outcome.kills += together(*pair)

    async def whole(last: Life) -> None:
        await hear_out(job.store, job.where, seed, 9)
        await last.finish(list(inputs), path)

    together(life(9, 6 * DUE_MIN, 0, whole))
    lines = list(read_diary(path))
    outcome.broken = broken_by(lines, inputs)
    outcome.runs = sum(line["kind"] == "effect" and line["what"][3] == "finish" for line in lines)
    outcome.queued = sum(line["kind"] == "accepted" and line["what"].split()[1] != "0" for line in lines)
    outcome.waited = sum(
        line["kind"] == "effect" and line["what"][2] != "plain" and line["what"][3] == "finish" for line in lines
    )
    return outcome


def together(*children: Callable[[], None]) -> int:
    """Runs functions in forked processes at the same time; how many of these were killed."""
    pids = []
    for child in children:
        pid = os.fork()
        if pid == 0:
            status = 3
            try:
                signal.alarm(LIMIT_S)  # who hangs ends by that
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # errors go to the diary
                child()
                status = 0
            finally:
                os._exit(status)
        pids.append(pid)
    ends = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(os.WIFSIGNALED(end) and os.WTERMSIG(end) == signal.SIGALRM for end in ends):
        raise AssertionError(f"a process hangs: {ends}")
    return sum(os.WIFSIGNALED(end) for end in ends)


def broken_by(lines: list[dict[str, Any]], inputs: dict[str, list[str]]) -> list[str]:
    """Every promise that does not hold, in words."""
    if errors := [line["text"] for line in lines if line["kind"] == "error"]:
        return errors
    effects = [line for line in lines if line["kind"] == "effect"]
    broken = [f"{what} happened {n} times" for what, n in Counter(tuple(e["what"]) for e in effects).items() if n > 1]
    accepted = {line["what"] for line in lines if line["kind"] == "accepted"}
    given_up = {line["thread"] for line in lines if line["kind"] == "dead"}
    for thread, names in inputs.items():
        if thread in given_up:
            continue
        of_thread = [effect for effect in effects if effect["what"][0] == thread]
        done = [effect["what"][1:] for effect in of_thread]
        begun = [name for name in names if name in accepted or any(what[0] == name.split()[1] for what in done)]
        expected = [part for name in begun for part in _parts(name)]
        if done != expected:
            broken.append(f"{thread} did {done}, not {expected}")
        at = {(effect["what"][1], effect["what"][3]): effect["ahead"] for effect in of_thread}
        last = {"timer": "finish", "ask": "late"}
        waits = [(number, last[kind]) for _, number, kind in map(str.split, begun) if kind in last]
        early = [wait for wait in waits if wait in at and at[wait] < at[wait[0], "note"] + DUE_MIN]
        broken += [f"{thread}: {which} came before its time" for which in early]
    return broken


def _parts(name: str) -> list[list[str]]:
    """What an input does, in order; a question that was never answered goes its way at its time."""
    _, number, kind = name.split()
    return [[number, kind, node] for node in ("note", *(["late"] if kind == "ask" else []), "finish")]


if __name__ == "__main__":
    live_through(run_seed)
