"""A process that has loaded everything and forks the ones that die: `python -m tests.crash.zygote '{"store": …}'`.

It has no threads and no open store, so a fork costs milliseconds and each child opens what it needs itself. It prints
one line of JSON per seed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import select
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from tests.crash.boundaries import Boundaries
from tests.crash.checks import broken_promises, world_of
from tests.crash.diary import Diary, read_diary
from tests.crash.lives import Habits, final, live, report
from tests.crash.sabotage import SABOTAGES
from tests.crash.scenarios import Scenario, World, make_scenario
from tests.crash.stores import hear_out, open_store, prepare_store

LIVES = 30
"""More lives than any seed needs; a thread that is not over by then never ends."""
LIMIT_S = 120
"""For a process that nobody kills. It takes a fraction of a second, so whoever takes longer hangs, on any machine."""
ENOUGH = 5
"""Broken seeds, after which a zygote stops."""
_SQL = tuple(f"sql {word} {side}" for word in ("BEGIN", "INSERT", "UPDATE", "COMMIT") for side in "<>")
STORE_NAMES = {"sqlite": (*_SQL, "renew <", "renew >"), "postgres": ("trip <", "trip >", "trip answered", "renew >")}
"""Boundaries inside a store or of long runs, which the run over memory that counts the others does not have."""


class Job(msgspec.Struct, kw_only=True):
    """What one zygote does."""

    store: str
    where: str
    """A folder, or the address of a database server."""
    folder: str
    seeds: list[int]
    kills: int = 5
    """Processes that are killed per seed, at most."""
    sabotage: str = ""
    """A promise that is broken on purpose, to see that somebody notices (see `sabotage.py`)."""
    aims: list[str] = []
    """Boundaries to die at; empty draws from all, and from moments that have nothing to do with any."""
    until: str = ""
    """A file that is made with the first seed that breaks a promise, and at which all zygotes stop."""


class Outcome(msgspec.Struct, kw_only=True):
    """What became of one seed."""

    seed: int
    kills: list[str]
    """Where each process died."""
    lives: int
    broken: list[str]


def main(job: Job) -> None:
    prepare_store(job.store, job.where, job.folder)
    gc.collect()
    gc.freeze()
    broken = 0
    for seed in job.seeds:
        if broken >= ENOUGH or (job.until and Path(job.until).exists()):
            return
        outcome = run_seed(job, seed)
        sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
        sys.stdout.buffer.flush()
        broken += bool(outcome.broken)
        if job.until and outcome.broken:
            Path(job.until).touch()


def run_seed(job: Job, seed: int) -> Outcome:
    """All processes of one seed: the one that nobody kills, those that are killed, and the one that checks."""
    draw = random.Random(f"kills of {seed}")
    scenario = make_scenario(seed)
    habits = Habits(
        live=draw.random() < 0.4,
        leaves=draw.choice([0.0, 0.0, 0.3, 1.0]),
        blind=draw.random() < 0.15,
        sync_disk=draw.random() < 0.1,
        short_leases=draw.random() < 0.15,
    )
    folder = Path(job.folder) / f"seed{seed}"
    folder.mkdir()
    World.thread = f"t{seed}"
    out = Outcome(seed=seed, kills=[], lives=0, broken=[])
    text = fork(lambda: _undisturbed(scenario, folder / "undisturbed"))
    if text.returned is None:
        out.broken.append(f"nobody killed it and it failed: {_errors(folder / 'undisturbed')}")
        return out
    expected = msgspec.json.decode(text.returned)
    counts = Counter(expected.pop("counts"))
    counts.update({name: max(1, counts["write >"] // 2) for name in STORE_NAMES[job.store]})
    diary = folder / "diary"
    over = False
    while not over and out.lives < LIVES:
        out.lives += 1
        killable = len(out.kills) < job.kills
        name, number, after_s = _choose(draw, counts, job.aims) if killable else (None, 0, None)
        ended = fork(
            lambda: _one_life(job, scenario, habits, diary, out.lives, seed, name, number),  # noqa: B023
            after_s,
        )
        if ended.killed:
            obituary = Diary(diary, out.lives)
            obituary.note("killed")
            obituary.close()
            out.kills.append(f"{name} {number}" if after_s is None else f"after-ms {after_s * 1000:.1f}")
        elif ended.returned is None:
            break
        else:
            over = ended.returned == b"over"
    checked = fork(lambda: _check(job, scenario, diary, seed, expected, truthful=not habits.blind))
    if checked.returned is None:
        out.broken.append(f"the thread could not be checked: {_errors(diary)}")
    else:
        out.broken += msgspec.json.decode(checked.returned)
    if not over and not out.broken:
        out.broken.append(f"it is not over after {out.lives} lives")
    if not out.broken:
        shutil.rmtree(folder)
    return out


def _choose(
    draw: random.Random, counts: Counter[str], aims: Sequence[str]
) -> tuple[str | None, int, float | None]:  # fmt: skip
    """A boundary, or a moment that has nothing to do with any."""
    if not aims and draw.random() < 0.15:
        return None, 0, draw.random() * 0.04
    name = draw.choice(aims or sorted(counts))
    return name, 1 + int(counts[name] * draw.random() ** 2), None


# --- what children do ----------------------------------------------------------------------------


def _undisturbed(scenario: Scenario, path: Path) -> bytes:
    """The same seed over a store in memory, from beginning to end; also counts the boundaries."""
    diary, boundaries, store = Diary(path, 1), Boundaries(), MemoryCheckpointer()

    async def whole() -> bytes:
        draw = random.Random(f"people of {scenario.seed}")
        await live(scenario, store, Habits(), boundaries, diary, path, draw)
        counts = dict(boundaries.counts)
        left = await final(store)
        return msgspec.json.encode({**left, "world": world_of(list(read_diary(path))), "counts": counts})

    return _told(whole, diary)


def _one_life(
    job: Job, scenario: Scenario, habits: Habits, path: Path, life: int, seed: int, name: str | None, number: int
) -> bytes:
    diary = Diary(path, life, sync=habits.sync_disk)
    boundaries = Boundaries(name, number)
    draw = random.Random(f"people of {seed} in life {life}")

    async def whole() -> bytes:
        if job.sabotage:
            SABOTAGES[job.sabotage]()
        store = open_store(job.store, job.where, job.folder, seed, life=life, sync_disk=habits.sync_disk)
        spoken = partial(hear_out, job.store, job.where, seed, life)
        over = await live(scenario, store, habits, boundaries, diary, path, draw, spoken)
        if draw.random() < 0.3:
            await store.close()
        return b"over" if over else b"left"

    return _told(whole, diary)


def _check(job: Job, scenario: Scenario, path: Path, seed: int, expected: Any, *, truthful: bool) -> bytes:
    diary = Diary(path, 0)

    async def whole() -> bytes:
        store = open_store(job.store, job.where, job.folder, seed)
        app = scenario.open(store)
        lines = list(read_diary(path))
        await store.setup()
        broken = await broken_promises(app, store, lines, expected, truthful=truthful)
        await store.close()
        return msgspec.json.encode(broken)

    return _told(whole, diary)


def _told(whole: Callable[[], Any], diary: Diary) -> bytes:
    try:
        told: bytes = asyncio.run(whole())
    except BaseException as error:
        report(diary, error)
        raise
    return told


def _errors(path: Path) -> str:
    return "\n".join(line["text"] for line in read_diary(path) if line["kind"] == "error")


# --- forking -------------------------------------------------------------------------------------


_NOWHERE = os.open(os.devnull, os.O_WRONLY)


class Ended(msgspec.Struct):
    """How a child ended."""

    killed: bool
    returned: bytes | None
    """What its function gave; None when it was killed or failed."""


def fork(child: Callable[[], bytes], kill_after_s: float | None = None) -> Ended:
    """Runs a function in a forked process, and kills that process after a while if asked."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 3
        try:
            os.close(reading)
            os.dup2(_NOWHERE, 2)  # what threads say when their loop is gone; errors go to the diary
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(child())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    until = time.monotonic() + (LIMIT_S if kill_after_s is None else kill_after_s)
    given = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                os.kill(pid, signal.SIGKILL)
                break
            piece = pipe.read(65536)
            if not piece:
                break
            given += piece
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if killed and kill_after_s is None and time.monotonic() > until:
        return Ended(False, None)
    return Ended(killed, given if status == 0 else None)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Job))
