"""The list and the search of one user cost nothing for the threads of others: their statements go by the user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from graphflow import PostgresCheckpointer, SqliteCheckpointer
from graphflow.checkpoints.postgres.driver import SLOTS as POSTGRES_SLOTS
from graphflow.checkpoints.sql import lists
from graphflow.checkpoints.sql.statement import SharedStatement, filled
from graphflow.checkpoints.sqlite.driver import prepared
from graphflow.memory.conversations import ConversationFilter, SqlConversations
from graphflow.memory.sqlite_tables import SqliteTables
from graphflow.service.application import Application
from graphflow.service.chats.chats import chats
from tests.postgres import Schemas
from tests.service.clients import begin, query_of
from tests.service.conftest import make_application, write_agents


async def plan_in_sqlite(folder: Path, statement: SharedStatement, *values: Any) -> str:
    store = SqliteCheckpointer(folder / "t.db")
    await store.assign("t", "ann", now=1)
    sql = prepared(statement).sql
    plan: Any = await store._write(lambda db: db.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall())
    await store.close()
    return " ".join(row[3] for row in plan)


async def test_threads_of_a_user_in_sqlite(tmp_path: Path) -> None:
    used = await plan_in_sqlite(tmp_path, lists._THREADS_OF_USER, None, None, None, 10, "ann")
    assert "SEARCH t USING INDEX threads_by_user (user_name=?)" in used and "TEMP B-TREE" not in used


async def test_the_inbox_of_a_user_in_sqlite(tmp_path: Path) -> None:
    used = await plan_in_sqlite(tmp_path, lists._OPEN_OF_USER, None, None, None, None, None, None, 10, "ann")
    assert "SEARCH interrupts USING PRIMARY KEY (thread=?)" in used and "SCAN" not in used
    assert "threads_by_user (user_name=?)" in used


async def test_the_runs_of_a_user_in_sqlite(tmp_path: Path) -> None:
    used = await plan_in_sqlite(tmp_path, lists._RUNS_OF_USER, None, None, "ann", 10)
    assert "SEARCH t USING INDEX threads_by_user (user_name=?)" in used and "SCAN" not in used
    assert "SEARCH r USING" in used and "runs_by_thread (thread=?)" in used


@pytest.mark.parametrize(
    ("statement", "types", "values"),
    [
        (lists._THREADS_OF_USER, "text, text, text, bigint, text", "NULL, NULL, NULL, 10, 'ann'"),
        (
            lists._OPEN_OF_USER,
            "text, text, text, text, bigint, text, bigint, text",
            "NULL, NULL, NULL, NULL, NULL, NULL, 10, 'ann'",
        ),
        (lists._RUNS_OF_USER, "text, text, text, bigint", "NULL, NULL, 'ann', 10"),
    ],
    ids=["threads", "inbox", "runs"],
)
async def test_lists_of_a_user_in_postgres(
    schemas: Schemas, statement: SharedStatement, types: str, values: str
) -> None:
    schema = schemas.take()
    store = PostgresCheckpointer(schemas.url, schema=schema)
    await store.setup()
    await store.close()
    sql = filled(statement.sql, POSTGRES_SLOTS).replace("@.", f"{schema}.")
    async with await psycopg.AsyncConnection.connect(schemas.url, autocommit=True) as db:
        await db.execute(f"VACUUM ANALYZE {schema}.threads, {schema}.interrupts, {schema}.runs".encode())
        # An autovacuum of the empty tables may have come first, and then any plan costs the same: as if none had.
        fresh = f"UPDATE pg_class SET relpages = 0, reltuples = -1 WHERE relkind = 'r' AND relnamespace = '{schema}'::regnamespace"
        await db.execute(fresh.encode())
        # As if there were millions of threads, and for whatever user.
        for setting in ("enable_seqscan = off", "enable_bitmapscan = off", "plan_cache_mode = force_generic_plan"):
            await db.execute(f"SET {setting}".encode())
        await db.execute(f"PREPARE listed ({types}) AS {sql}".encode())
        rows = await (await db.execute(f"EXPLAIN EXECUTE listed ({values})".encode())).fetchall()
    plan = "\n".join(row[0] for row in rows)
    schemas.empty()
    assert "using threads_by_user" in plan and "user_name = $" in plan


async def test_conversations_of_a_user(tmp_path: Path) -> None:
    asked: list[tuple[str, tuple[Any, ...]]] = []
    tables = SqliteTables(tmp_path / "memory.db")
    read: Callable[..., Awaitable[Any]] = tables.read

    async def noted(sql: str, *values: Any) -> Any:
        asked.append((sql, values))
        return await read(sql, *values)

    tables.read = noted  # type: ignore[method-assign] # watched
    await SqlConversations(tables).search("tea", ConversationFilter(owner="ann", cursor="5:c"))
    ((sql, values),) = asked
    plan = " ".join(str(row[3]) for row in await read(f"EXPLAIN QUERY PLAN {sql}", *values))
    await tables.close()
    assert "SEARCH conversations USING INDEX conversations_of_owner (owner=?" in plan and "TEMP B-TREE" not in plan


@pytest.mark.parametrize("user", ["ann", None])
async def test_a_search_looks_at_the_threads_of_its_user_alone(
    tmp_path: Path, user: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_agents(tmp_path)
    async with make_application(tmp_path) as app:
        await app.runs.ready()
        for thread, owner in (("a", "ann"), ("b", "bob"), ("c", "bob")):
            await app.store.assign(thread, owner, now=app.clock.now_ms())
            await (await begin(app, query_of(message="hello", chat_id=thread, agent_key="plain"))).run.over.wait()
        looked = _watched(app, monkeypatch)
        found = [line["chatId"] for line in (await chats(app, query="hello", user=user))[0]]
        assert sorted(found) == sorted(looked) == (["a"] if user else ["a", "b", "c"])


def _watched(app: Application, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    looked: list[str] = []
    heal = app.chat_record.heal

    async def noted(chat_id: str) -> Any:
        looked.append(chat_id)
        return await heal(chat_id)

    monkeypatch.setattr(app.chat_record, "heal", noted)
    return looked
