"""Rows of actions, loops and routes that count to n."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from burr.core import expr
from harness import Case, Place, Timed, growing

from systems.burr.base import add_one, build, persister


def counting(shape: Any) -> Case:
    @asynccontextmanager
    async def case(place: Place) -> AsyncIterator[Timed]:
        n = place.params["n"]
        actions, ways = shape(n)
        last = list(actions)[-1]
        async with persister(place) as store:

            async def one() -> None:
                app = await build(actions, ways, {"n": 0}, place.thread(), store)
                _, _, state = await app.arun(halt_after=[last])
                assert state["n"] == n

            async def swarm() -> None:
                await asyncio.gather(*(one() for _ in range(place.params["threads"])))

            yield Timed(swarm if "threads" in place.params else one, growing(place))

    return case


def chain(n: int) -> Any:
    names = [f"n{i}" for i in range(n)]
    return {name: add_one() for name in names}, list(itertools.pairwise(names))


def loop(n: int) -> Any:
    """The last of the n runs is an action of its own: Burr halts at an action, not at a condition."""
    return {"work": add_one(), "last": add_one()}, [("work", "work", expr(f"n < {n - 1}")), ("work", "last")]


def route(n: int) -> Any:
    names = ["a", "b", "c"]
    ways: list[Any] = []
    for name in names:
        ways.append((name, "last", expr(f"n >= {n - 1}")))
        ways += [(name, other, expr(f"n % 3 == {i}")) for i, other in enumerate(names)]
    return {**{name: add_one() for name in names}, "last": add_one()}, ways


CASES: dict[str, Case] = {"chain": counting(chain), "loop": counting(loop), "route": counting(route)}
