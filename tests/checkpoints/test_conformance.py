"""The suite that authors of stores run, over our own stores."""

from __future__ import annotations

from pathlib import Path

from graphflow.checkpoints.memory import MemoryCheckpointer
from graphflow.checkpoints.sqlite import SqliteCheckpointer
from graphflow.testing.checkpointer_conformance import CheckpointerConformance


class TestMemory(CheckpointerConformance):
    durable = False

    def make(self, folder: Path) -> MemoryCheckpointer:
        return MemoryCheckpointer()


class TestSqlite(CheckpointerConformance):
    def make(self, folder: Path) -> SqliteCheckpointer:
        return SqliteCheckpointer(folder / "threads.db")
