"""Where a process may die: every step of persistence counts itself here, and at the chosen one the process kills itself.

`install` wraps what the engine and the stores call, in this process only; the code under test does not know of it.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import Any

from graphflow.checkpoints.journal import ThreadJournal
from graphflow.graph.core.ticks import Answered, NodeAsked, NodeSucceeded, OperationRecorded
from graphflow.graph.engine.event_emitter import EventEmitter
from graphflow.graph.engine.executor import Executor
from graphflow.graph.engine.run import Run
from tests.crash.diary import Diary

STORE_CALLS = ("take", "release", "renew", "load", "put_document", "thread")
STATEMENTS = ("BEGIN", "INSERT", "UPDATE", "DELETE", "COMMIT")


class Boundaries:
    """Counts the boundaries of one process by name.

    Args:
        name, number: die at the `number`-th boundary called `name`; None lives on.
    """

    def __init__(self, name: str | None = None, number: int = 0) -> None:
        self._name, self._number = name, number
        self.counts: Counter[str] = Counter()

    def reach(self, name: str) -> None:
        self.counts[name] += 1
        if name == self._name and self.counts[name] == self._number:
            os.kill(os.getpid(), signal.SIGKILL)


def install(boundaries: Boundaries, diary: Diary, store: Any) -> None:
    """Wraps the journal, the executor, the events, the store and the database connections of this process."""
    reach = boundaries.reach
    _wrap_journal(reach, diary)
    _wrap_sending(reach)
    _wrap_store(reach, store)
    _wrap_sqlite(reach)
    if "postgres" in type(store).__module__:
        _wrap_postgres(reach)


def _wrap_journal(reach: Callable[[str], None], diary: Diary) -> None:
    """Preparing, queueing and acknowledging records; the diary hears of each in that order."""
    meant: dict[str, dict[str, Any]] = {}
    begin, feed, flush = Executor.__init__, Executor.feed, Run.flush
    prepare, write = ThreadJournal.prepare, ThreadJournal.write

    def beginning(self: Executor, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        diary.note("begin", mark=self.seq)

    def feeding(self: Executor, tick: Any) -> None:
        meant[tick.id] = _meaning(self, tick)
        feed(self, tick)

    def preparing(self: ThreadJournal, commit: Any, *taken: Any) -> Any:
        reach("prepare <")
        prepared = prepare(self, commit, *taken)
        reach("prepare >")
        return prepared

    def writing(self: ThreadJournal, prepared: Any, *arguments: Any) -> Any:
        commit = prepared.commit
        reach("write <")
        diary.note("queued", id=commit.id)
        durable = write(self, prepared, *arguments)
        reach("write >")

        def acknowledge() -> None:
            if durable.error is None:
                reach("durable <")
                diary.note("durable", id=commit.id, **meant.pop(commit.id, {}))
                reach("durable >")

        durable.when_done(acknowledge)
        return durable

    async def flushing(self: Run) -> None:
        reach("flush <")
        await flush(self)
        reach("flush >")

    _replace(Executor, __init__=beginning, feed=feeding)
    _replace(Run, flush=flushing)
    _replace(ThreadJournal, prepare=preparing, write=writing)


def _meaning(executor: Executor, tick: Any) -> dict[str, Any]:
    """What a durable record of this tick promises never to run again."""
    frames = executor.machine.frames
    match tick:
        case NodeSucceeded():
            return {"step": place(frames[tick.frame])}
        case OperationRecorded() if tick.operation is not None:
            return {
                "operation": [*place(frames[tick.frame]), tick.key],
                "state": tick.operation.state,
            }
        case Answered() if tick.interrupt_id in executor.machine.interrupts:
            asked = executor.machine.interrupts[tick.interrupt_id]
            return {"operation": [*place(frames[asked.frame]), asked.key], "state": "answered"}
        case NodeAsked():
            return {"asked": tick.interrupt.key}
    return {}


def place(frame: Any) -> list[Any]:
    """A node run's place, the same in every life: path, node, visit."""
    return [frame.path, frame.node, frame.visit]


def _wrap_sending(reach: Callable[[str], None]) -> None:
    emit, emit_at = EventEmitter.emit, EventEmitter.emit_at

    def emitting(self: EventEmitter, event: Any) -> None:
        reach("send <")
        emit(self, event)
        reach("send >")

    def emitting_at(self: EventEmitter, event: Any, at: int) -> None:
        reach("announce <")
        emit_at(self, event, at)
        reach("announce >")

    _replace(EventEmitter, emit=emitting, emit_at=emitting_at)


def _replace(owner: Any, **functions: Any) -> None:
    for name, function in functions.items():
        setattr(owner, name, function)


def _wrap_store(reach: Callable[[str], None], store: Any) -> None:
    for name in STORE_CALLS:
        setattr(store, name, _around(reach, name, getattr(store, name)))


def _around(reach: Callable[[str], None], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    async def around(*arguments: Any, **options: Any) -> Any:
        reach(f"{name} <")
        result = await method(*arguments, **options)
        reach(f"{name} >")
        return result

    return around


def _wrap_sqlite(reach: Callable[[str], None]) -> None:
    """Every statement of the database, by its first word, in whatever thread it runs."""

    def word(sql: str) -> str | None:
        first = sql.split(None, 1)[0].upper()
        return f"sql {first}" if first in STATEMENTS else None

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            name = word(sql)
            if name is None:
                return super().execute(sql, *arguments)
            reach(f"{name} <")
            cursor = super().execute(sql, *arguments)
            reach(f"{name} >")
            return cursor

        def executemany(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            name = word(sql) or "sql many"
            reach(f"{name} <")
            cursor = super().executemany(sql, *arguments)
            reach(f"{name} >")
            return cursor

    connect = sqlite3.connect

    def connecting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*arguments, **{"factory": Watched, **options})
        return made

    _replace(sqlite3, connect=connecting)


def _wrap_postgres(reach: Callable[[str], None]) -> None:
    """Every round trip: not sent yet, sent, and answered."""
    from graphflow.checkpoints.postgres.pipeline import Connection

    send = Connection.send

    def sending(self: Connection, calls: Any, done: Any) -> None:
        def landed(results: Any, error: Any) -> None:
            reach("trip answered")
            done(results, error)

        reach("trip <")
        send(self, calls, landed)
        reach("trip >")

    _replace(Connection, send=sending)
