"""States of random classes, written by processes that are killed: `python -m tests.crash.state_lives '{"store": …}'`.

A forked process makes a seed's writes and edits until it kills itself inside or after one of them; another one resumes what
was cut off and makes the rest. Each reads back what it wrote, in nodes, as its own class. One line of JSON per seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from graphflow import Graph
from graphflow.errors import StateError
from graphflow.runtime.result import RunResult
from tests.crash.random_states import Act, States
from tests.crash.seeds import Job, live_through
from tests.crash.stores import hear_out, open_store
from tests.crash.zygote import fork


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a seed, and what it tried."""

    seed: int
    taken: int = 0
    refused: int = 0
    killed: str = ""
    broken: list[str] = []


class Life:
    """A process that works on the thread of a seed.

    Args:
        store: of this process.
        dies: the number of an act and the node in which the process kills itself then.
    """

    def __init__(self, states: States, store: Any, thread: str, dies: tuple[int, str] | None = None) -> None:
        self.states, self.thread, self.dies = states, thread, dies
        self.broken: list[str] = []
        self.number = 0
        self._seen = False
        self.app = self._graph().compile(checkpointer=store)

    @property
    def act(self) -> Act:
        return self.states.acts[self.number]

    def _graph(self) -> Graph:
        graph = Graph(self.states.cls, name="states")

        @graph.node(name="write", next="read")
        def write(state: Any) -> dict[str, Any]:
            self._die("write")
            return self.act.values if self.act.how == "write" else {}

        @graph.node(name="read", next="last")
        def read(state: Any) -> None:
            self._die("read")
            self._compare(state)

        @graph.node(name="last")
        def last(state: Any) -> None:
            self._die("last")

        return graph

    def _die(self, node: str) -> None:
        if self.dies == (self.number, node):
            os.kill(os.getpid(), signal.SIGKILL)

    def _compare(self, state: Any) -> None:
        self._seen = True
        if self.states.form != "typed" and not isinstance(state, self.states.cls):
            self.broken.append(f"act {self.number}: a node gets {type(state)}")
        for name, expected in self.act.after.items():
            for got in [state[name]] + ([] if self.states.form == "typed" else [getattr(state, name)]):
                if got != expected or not _is_alike(got, expected):
                    self.broken.append(f"act {self.number}: {name} is {got!r}, not {expected!r}")

    async def live(self, begin: int = 0) -> None:
        """Makes all acts from this one on; one that was begun is resumed."""
        for number in range(begin, len(self.states.acts)):
            self.number = number
            self._seen = resumed = bool(begin) and number == begin and await self._is_stopped()
            if not resumed and self.act.how != "write":
                await self._edited()
            run = self.app.resume(self.thread) if resumed else self.app.run({}, self.thread, durability="sync")
            self._judge(await run)
            if self.broken:
                return

    def _judge(self, result: RunResult) -> None:
        act, error = self.act, result.error
        if act.refused and act.how == "write":
            if error is None or error["code"] != "state_error" or repr(act.refused) not in error["message"]:
                self.broken.append(f"act {self.number}: {act.refused} of {act.values!r} gives {error}")
        elif error is not None:
            self.broken.append(f"act {self.number}: {act.how} {act.values!r} gives {error}")
        elif not self._seen:
            self.broken.append(f"act {self.number}: nobody read it")

    async def _is_stopped(self) -> bool:
        return (await self.app.thread(self.thread).state()).status == "stopped"

    async def _edited(self) -> None:
        thread, act = self.app.thread(self.thread), self.act
        try:
            await thread.edit(act.values, replace=list(act.values) if act.how == "replace" else ())
        except StateError as refused:
            if act.refused not in str(refused):
                self.broken.append(f"act {self.number}: {act.values!r} is refused by {refused}")
        else:
            if act.refused:
                self.broken.append(f"act {self.number}: an edit takes {act.refused} of {act.values!r}")


def _is_alike(got: Any, expected: Any) -> bool:
    """Whether it is of the declared class; what is read is a read-only form of it."""
    kind = type(expected)
    return isinstance(got, Sequence if kind is list else kind) and isinstance(got, bool) == (kind is bool)


def run_seed(job: Job, seed: int) -> Outcome:
    """One process that is killed and one that goes on."""
    states = States(seed)
    draw = random.Random(f"deaths of {seed}")
    dies = draw.randrange(1, len(states.acts)), draw.choice(["write", "read", "last"])
    refused = sum(bool(act.refused) for act in states.acts)
    outcome = Outcome(seed=seed, taken=len(states.acts) - refused, refused=refused)
    (Path(job.folder) / f"seed{seed}").mkdir()
    first = fork(lambda: _told(lambda: _life(job, states, seed, 1, 0, dies)))
    outcome.broken += [] if first.killed else msgspec.json.decode(first.returned or b'["it failed"]')
    if first.killed:
        outcome.killed = dies[1]
        second = fork(lambda: _told(lambda: _life(job, states, seed, 2, dies[0], None)))
        outcome.broken += msgspec.json.decode(second.returned or b'["it failed"]')
    return outcome


async def _life(
    job: Job, states: States, seed: int, number: int, begin: int, dies: tuple[int, str] | None
) -> list[str]:
    store = open_store(job.store, job.where, job.folder, seed, life=number)
    await store.setup()
    await hear_out(job.store, job.where, seed, number)
    life = Life(states, store, f"t{seed}", dies)
    await life.live(begin)
    await store.close()
    return life.broken


def _told(life: Callable[[], Any]) -> bytes:
    try:
        broken: list[str] = asyncio.run(life())
    except BaseException:  # noqa: BLE001 - told to whoever waits
        broken = [traceback.format_exc()]
    return msgspec.json.encode(broken)


if __name__ == "__main__":
    live_through(run_seed)
