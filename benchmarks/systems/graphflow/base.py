"""What graphflow's cases share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

from harness import Place  # noqa: TC002

from graphflow import CompiledGraph, Graph, MemoryCheckpointer, SqliteCheckpointer

UNBOUNDED = {"maxSteps": 10_000_000}


class Counter(TypedDict):
    n: int


async def add_one(state: Any) -> dict[str, int]:
    return {"n": state["n"] + 1}


def store_of(place: Place, name: str = "threads.db") -> Any:
    """A checkpointer of this place; None without a store."""
    if place.store == "memory":
        return MemoryCheckpointer()
    if place.store == "sqlite":
        return SqliteCheckpointer(place.database(name))
    if place.store == "postgres":
        from graphflow import PostgresCheckpointer

        return PostgresCheckpointer(place.url)
    return None


@asynccontextmanager
async def compiled(place: Place, graph: Graph[Any], **parts: Any) -> AsyncIterator[CompiledGraph]:
    store = store_of(place)
    yield graph.compile(checkpointer=store, **parts)
    if store is not None:
        await store.close()


def options(place: Place) -> dict[str, Any]:
    return {"durability": "sync"} if place.has("sync") else {}


async def consume(app: CompiledGraph, input: Any, **chosen: Any) -> int:
    """Reads the whole stream of a run; how many events it has."""
    count, last = 0, ""
    async for event in app.stream(input, **chosen):
        count += 1
        last = event.type
    assert last == "run.complete", last
    return count
