"""What Burr's cases share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from burr.core import ApplicationBuilder, State, action
from harness import Place  # noqa: TC002

PARTITION = "bench"


@asynccontextmanager
async def persister(place: Place, name: str = "threads.db") -> AsyncIterator[Any]:
    if not place.store:
        yield None
        return
    if place.store == "postgres":
        from burr.integrations.persisters.b_asyncpg import AsyncPostgreSQLPersister

        url = urlsplit(place.url)
        host, name = parse_qs(url.query)["host"][0], url.path.lstrip("/")
        made: Any = await AsyncPostgreSQLPersister.from_values(name, url.username, "", host, 5432)
    else:
        from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister

        made = await AsyncSQLitePersister.from_values(place.database(name))
        if place.has("wal"):
            await made.connection.execute("PRAGMA journal_mode = WAL")
    await made.initialize()
    yield made
    await made.cleanup()


async def build(actions: dict[str, Any], ways: list[Any], state: dict[str, Any], name: str, store: Any) -> Any:
    """A fresh application that begins at its first action."""
    builder = ApplicationBuilder().with_actions(**actions).with_transitions(*ways).with_entrypoint(next(iter(actions)))
    builder = builder.with_state(**state).with_identifiers(app_id=name, partition_key=PARTITION)
    return await (builder.with_state_persister(store) if store is not None else builder).abuild()


async def load(
    actions: dict[str, Any], ways: list[Any], state: dict[str, Any], name: str, store: Any, **fork: Any
) -> Any:
    """An application that goes on from what the store has of it."""
    builder = ApplicationBuilder().with_actions(**actions).with_transitions(*ways)
    builder = builder.with_identifiers(app_id=name, partition_key=PARTITION).initialize_from(
        store, resume_at_next_action=True, default_state=state, default_entrypoint=next(iter(actions)), **fork
    )
    return await builder.with_state_persister(store).abuild()


def add_one() -> Any:
    @action(reads=["n"], writes=["n"])
    async def add(state: State) -> State:
        return state.update(n=state["n"] + 1)

    return add


@action(reads=[], writes=[])
async def finish(state: State) -> State:
    return state
