"""Burr as its documentation shows it: async actions, conditions as expressions, an async persister after every action.

Burr leaves SQLite's own settings (rollback journal, `synchronous=FULL`); variant `wal` opens the file in WAL mode. Its
persister is awaited after each action, so there is no `async` durability to choose.
"""

from __future__ import annotations

PACKAGES = ["apache-burr", "aiosqlite", "asyncpg"]
HOMES = {
    "engine": ["chain", "loop", "route"], "branches": ["fanout", "nested", "wide"], "talk": ["react", "growth"],
    "streams": ["stream", "slow"], "questions": ["pause", "cold"],
}  # fmt: skip
