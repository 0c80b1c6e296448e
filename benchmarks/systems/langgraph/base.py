"""What LangGraph's cases share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from harness import Place  # noqa: TC002
from langgraph.graph import MessagesState, StateGraph
from typing_extensions import TypedDict


class Counter(TypedDict):
    n: int


async def add_one(state: Counter) -> dict[str, int]:
    return {"n": state["n"] + 1}


@asynccontextmanager
async def saver_of(place: Place, name: str = "threads.db") -> AsyncIterator[Any]:
    """A saver of this place; None without a store."""
    if place.store == "memory":
        from langgraph.checkpoint.memory import InMemorySaver

        yield InMemorySaver()
    elif place.store == "sqlite":
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(place.database(name)) as saver:
            await saver.setup()
            yield saver
    elif place.store == "postgres":
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        async with AsyncPostgresSaver.from_conn_string(place.url) as saver:
            await saver.setup()
            yield saver
    else:
        yield None


@asynccontextmanager
async def compiled(place: Place, graph: StateGraph) -> AsyncIterator[Any]:
    async with saver_of(place) as saver:
        yield graph.compile(checkpointer=saver)


def config(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id}, "recursion_limit": 10**9}


def durability(place: Place) -> dict[str, Any]:
    return {"durability": "sync"} if place.store and place.has("sync") else {}


async def drained(graph: Any, given: Any, place: Place) -> int:
    """Reads a run's stream to its end; how many parts it has."""
    count = 0
    async for _ in graph.astream(given, config(place.thread())):
        count += 1
    return count


def messages_state(place: Place) -> Any:
    if not place.has("delta"):
        return MessagesState
    from langgraph.channels import DeltaChannel
    from langgraph.graph.message import _messages_delta_reducer

    return TypedDict("DeltaMessages", {"messages": Annotated[list, DeltaChannel(_messages_delta_reducer)]})
