"""Documents with branches that the tests run, and functions that let a test say when each branch goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from graphflow import CompiledGraph, load_graph

STATE: dict[str, Any] = {
    "items": {"type": "array", "default": [0, 1, 2]},
    "results": {"type": "array", "x-reducer": "append", "default": []},
    "total": {"type": "integer", "x-reducer": "sum", "default": 0},
    "outs": {"default": None},
}


class Gates:
    """Work whose end the test decides: `work(n)` waits for `open(n)` and gives 10 n."""

    def __init__(self, *, open_from_start: bool = False) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.at_once = self.most = 0
        self._gates: dict[int, asyncio.Event] = {}
        self._everything = open_from_start
        self.failing: set[int] = set()
        self.changed = asyncio.Event()

    def open(self, *numbers: int) -> None:
        for number in numbers:
            self._gate(number).set()

    async def begun_are(self, *numbers: int) -> None:
        """Returns when exactly these have begun."""
        while sorted(self.begun) != sorted(numbers):
            self.changed.clear()
            await self.changed.wait()

    async def work(self, n: int) -> int:
        self.begun.append(n)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.changed.set()
        try:
            if not self._everything:
                await self._gate(n).wait()
        except asyncio.CancelledError:
            self.cancelled.append(n)
            raise
        finally:
            self.at_once -= 1
        if n in self.failing:
            raise ValueError(f"work {n} failed")
        return 10 * n

    def _gate(self, number: int) -> asyncio.Event:
        return self._gates.setdefault(number, asyncio.Event())


WORK: dict[str, Any] = {
    "use": "fn:work",
    "with": {"n": "${item}"},
    "set": {"results": "[out]", "total": "out"},
    "next": "end",
}


def fan(gates: Gates, nodes: Mapping[str, Any] | None = None, /, *, store: Any = None, **keys: Any) -> CompiledGraph:
    """A map over `state.items` whose body is `work`; `keys` go to the map node, `nodes` beside it."""
    node = {"map": "state.items", "as": "item", "do": "work", "set": {"outs": "out"}, "next": "end", **keys}
    return load_graph(
        document({"fan": node, "work": WORK, **(nodes or {})}), checkpointer=store, functions={"work": gates.work}
    )


def document(nodes: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "graphflow": "1",
        "start": next(iter(nodes)),
        "state": {"type": "object", "properties": STATE},
        "nodes": dict(nodes),
        **fields,
    }
