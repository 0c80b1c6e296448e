"""A thread's past and its time travel: history, state at any checkpoint, diff, rewind, fork, edit (spec 2.5, E8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.checkpoints.journal import Loaded, ThreadJournal, decode_meta, load_thread
from graphflow.checkpoints.port import Checkpointer, Lineage, Record
from graphflow.checkpoints.records import decode_body
from graphflow.errors import (
    CheckpointNotFound,
    EffectsNeedChoice,
    GraphflowError,
    StateError,
    ThreadBusy,
    ThreadNotFound,
)
from graphflow.graph.executor import Executor
from graphflow.graph.machine import ROOT, Edited, Interrupt, Machine, Moved
from graphflow.graph.ports import Logged
from graphflow.graph.state import State, thaw
from graphflow.runtime.diff import json_patch
from graphflow.runtime.live import LiveRun, Runs
from graphflow.runtime.stored_log import branch_of_run, stored_log

if TYPE_CHECKING:
    from graphflow.runtime.compiled import CompiledGraph


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One checkpoint of a history: metadata only."""

    id: str
    parent: str | None
    step: int
    """Nodes finished since the input."""
    node: str
    next: list[str]
    source: str
    """`input, node, ask, answer, timer, cancel, edit, rewind, fork` (spec 3.2)."""
    created_at: int
    """Epoch ms."""
    size: int
    """Stored bytes."""
    run_id: str | None
    lineage: int
    error: str | None = None
    """Code of the failure that it ended in."""


class ThreadState(msgspec.Struct, frozen=True, kw_only=True):
    """A thread at one checkpoint."""

    checkpoint_id: str | None
    status: str
    values: State
    """The root's values."""
    next: list[str]
    interrupts: tuple[Interrupt, ...]
    usage: dict[str, Any]
    run_id: str
    frames: dict[str, State]
    """Values of open subgraphs by path."""


class Thread:
    """One thread of a compiled graph; reading it takes nothing, changing it takes it for a moment."""

    def __init__(self, app: CompiledGraph, thread_id: str) -> None:
        self._app = app
        self.id = thread_id

    async def _runs(self) -> Runs:
        if self._app.checkpointer is None:
            raise GraphflowError(
                "without a checkpointer there are no threads; pass one to load_graph", code="thread_not_found"
            )
        runs = Runs.over(self._app.checkpointer, self._app.clock)
        await runs.ready()
        return runs

    async def _store(self) -> Checkpointer:
        return (await self._runs()).store

    async def _load(self, checkpoint_id: str | None = None) -> Loaded:
        store = await self._store()
        loaded = await load_thread(store, self.id, checkpoint_id)
        if loaded is None or loaded.row.head is None:
            if await store.thread(self.id) is None:
                raise ThreadNotFound(f"no thread {self.id!r}")
            raise CheckpointNotFound(
                f"thread {self.id!r} has no checkpoint {checkpoint_id!r}; list them with history()"
            )
        return loaded

    # --- reading

    async def history(
        self, limit: int | None = None, *, before: str | None = None, all_lineages: bool = False
    ) -> list[CheckpointInfo]:
        """Checkpoints newest first: of the present branch, or of the whole tree."""
        store = await self._store()
        if await store.thread(self.id) is None:
            raise ThreadNotFound(f"no thread {self.id!r}")
        rows = await store.list(self.id, before=before, limit=limit, all_lineages=all_lineages)
        out = []
        for row in rows:
            meta = decode_meta(row.meta)
            out.append(
                CheckpointInfo(
                    id=row.id,
                    parent=row.parent,
                    step=meta.step,
                    node=meta.node,
                    next=meta.next,
                    source=meta.source,
                    created_at=meta.at,
                    size=row.size,
                    run_id=meta.run_id,
                    lineage=row.lineage,
                    error=meta.error,
                )
            )
        return out

    async def tree(self) -> list[CheckpointInfo]:
        """Every checkpoint of every branch, newest first."""
        return await self.history(all_lineages=True)

    async def state(self, checkpoint_id: str | None = None) -> ThreadState:
        """The thread at its head, or at a checkpoint.

        Raises:
            ThreadNotFound, CheckpointNotFound
        """
        loaded = await self._load(checkpoint_id)
        machine = loaded.machine
        from graphflow.graph.machine import next_nodes

        return ThreadState(
            checkpoint_id=loaded.checkpoint_id,
            status=status_of(machine, loaded),
            values=machine.root.state if machine.frames else State(),
            next=next_nodes(machine),
            interrupts=tuple(machine.interrupts.values()),
            usage=dict(machine.usage),
            run_id=machine.run_id,
            frames={frame.path: frame.state for frame in machine.frames.values() if frame.number != ROOT},
        )

    async def diff(self, a: str, b: str) -> dict[str, list[dict[str, Any]]]:
        """What changed from checkpoint `a` to `b`, also across branches: JSON Patch per state key."""
        first, second = (await self._load(a)).machine, (await self._load(b)).machine
        old = first.root.state if first.frames else State()
        new = second.root.state if second.frames else State()
        out = {}
        for key in {**old, **new}:
            if patch := json_patch(thaw(old.get(key)), thaw(new.get(key))):
                out[key] = patch
        return out

    async def events(self, run_id: str | None = None) -> list[Logged]:
        """The stored log of a run (default: the newest): blocks as snapshots, numbered as they were sent (E1)."""
        loaded = await self._load()
        run_id = run_id or loaded.machine.run_id
        store = await self._store()
        chain = await branch_of_run(store, self.id, loaded.chain, run_id)
        return (await stored_log(store, self.id, chain, run_id)).events

    # --- changing

    async def rewind(self, checkpoint_id: str, *, effects: str | None = None, cancel: bool = False) -> str:
        """Commits a new head that goes on from the checkpoint; what came later stays in the tree. Its id.

        Raises:
            EffectsNeedChoice: `write` effects lie behind it and `effects` chooses nothing.
            ThreadBusy: a run drives the thread and `cancel` is false.
        """
        return await self._move("rewind", checkpoint_id, effects, cancel)

    async def edit(
        self,
        values: Mapping[str, Any],
        as_node: str | None = None,
        *,
        replace: Iterable[str] = (),
        checkpoint_id: str | None = None,
        effects: str | None = None,
        cancel: bool = False,
    ) -> str:
        """Commits new values through the reducers, as if `as_node` had written them; the new checkpoint's id.

        With `as_node` the cursor moves to where that node's routes lead. Keys in `replace` are set, not reduced.
        Nothing runs until the thread is resumed.

        Raises:
            StateError: a key or value outside the schema; nothing has changed.
        """
        if checkpoint_id is not None:
            await self.rewind(checkpoint_id, effects=effects, cancel=cancel)
        runs = await self._take_over(cancel)
        row = await runs.take(self.id, create=False)
        try:
            loaded = await runs.load(row)
            if loaded is None:
                raise ThreadNotFound(f"thread {self.id!r} has no checkpoint yet; run it first")
            plan = await self._app.documents.pinned(row.facts.document)
            begins = self._branch(row.lineage, row.ordinal)
            journal = ThreadJournal(runs.store, row, row.facts, loaded=loaded, begins=begins)
            waits = loaded.machine.status == "waiting"
            executor = self._app.lives.executor(plan, loaded.machine, self.id, journal, seq=loaded.seq if waits else 0)
            if waits:
                executor.go_on_from(list(loaded.pending))
            tick = Edited(
                id=self._app.ids.new_id(),
                at=self._app.clock.now_ms(),
                values=dict(values),
                run_id=loaded.machine.run_id if waits else self._app.ids.new_id(),
                as_node=as_node,
                replace=tuple(replace),
            )
            await self._commit(executor, tick, runs, journal)
        except BaseException:
            await runs.store.release(self.id, row.fence)
            raise
        return executor.checkpoint_id or ""

    async def fork(
        self, checkpoint_id: str | None = None, *, thread_id: str | None = None, effects: str | None = None
    ) -> Thread:
        """A new thread that shares the past up to the checkpoint; O(1) in the history's length (E8)."""
        loaded = await self._load(checkpoint_id)
        if checkpoint_id is None:  # what was recorded after it belongs to a node that the fork runs again
            checkpoint_id = loaded.checkpoint_id
            loaded = await self._load(checkpoint_id)
        assert checkpoint_id is not None
        await self._check_effects(loaded, checkpoint_id, effects, "fork")
        runs = await self._runs()
        new_id = thread_id or self._app.ids.new_id()
        facts = msgspec.structs.replace(
            loaded.row.facts, status="stopped", run_id=None, updated_at=self._app.clock.now_ms()
        )
        await runs.store.fork(checkpoint_id, self.id, new_id, number=self._app.lives.new_lineage(), facts=facts)
        other = Thread(self._app, new_id)
        row = await runs.take(new_id, create=False)
        await other._settle_at(runs, row, loaded, "fork", None)
        return other

    async def delete(self) -> None:
        """Removes the thread and all that no other thread shares."""
        runs = await self._runs()
        live = runs.by_thread.get(self.id)
        if live is not None:
            raise ThreadBusy(f"run {live.run_id} drives thread {self.id!r}; cancel it first", retryAfterMs=1000)
        runs.forget(self.id)
        await runs.store.delete_thread(self.id)

    async def cancel(self) -> bool:
        """Cancels the run that drives or waits on the thread; whether there was one."""
        runs = await self._runs()
        live = runs.by_thread.get(self.id)
        if live is not None:
            live.executor.cancel()
            await live.over.wait()
            return True
        loaded = await self._load()
        if loaded.machine.status not in ("waiting", "running"):
            return False
        row = await runs.take(self.id, create=False)
        fresh = await runs.load(row)
        if fresh is None or fresh.machine.status not in ("waiting", "running"):
            await runs.store.release(self.id, row.fence)
            return False
        plan = await self._app.documents.pinned(row.facts.document)
        journal = ThreadJournal(runs.store, row, row.facts, loaded=fresh)
        executor = self._app.lives.executor(plan, fresh.machine, self.id, journal, seq=fresh.seq)
        executor.go_on_from(list(fresh.pending))
        executor.cancel()
        await executor.flush()
        await journal.release()
        runs.keep_hot(journal.as_loaded(executor.machine, executor.seq, executor.sent))
        await runs.tell(LiveRun(executor, journal))
        return True

    # --- parts

    def _branch(self, parent: int | None, cut: int) -> Lineage:
        return Lineage(number=self._app.lives.new_lineage(), thread_id=self.id, parent=parent, cut=cut)

    async def _take_over(self, cancel: bool) -> Runs:
        runs = await self._runs()
        live = runs.by_thread.get(self.id)
        if live is not None:
            if not cancel:
                raise ThreadBusy(
                    f"run {live.run_id} drives thread {self.id!r}; wait for it, or pass cancel",
                    retryAfterMs=1000,
                    runId=live.run_id,
                )
            live.executor.cancel()
            await live.over.wait()
        return runs

    async def _move(self, source: str, checkpoint_id: str, effects: str | None, cancel: bool) -> str:
        loaded = await self._load(checkpoint_id)
        await self._check_effects(loaded, checkpoint_id, effects, source)
        runs = await self._take_over(cancel)
        row = await runs.take(self.id, create=False)
        begins = self._branch(*loaded.chain[-1])
        return await self._settle_at(runs, row, loaded, source, begins)

    async def _settle_at(self, runs: Runs, row: Any, loaded: Loaded, source: str, begins: Lineage | None) -> str:
        """Commits the machine of a checkpoint as the head of this thread."""
        try:
            plan = await self._app.documents.pinned(row.facts.document)
            journal = ThreadJournal(runs.store, row, row.facts, loaded=loaded, begins=begins)
            executor = self._app.lives.executor(plan, loaded.machine, self.id, journal)
            tick = Moved(
                id=self._app.ids.new_id(), at=self._app.clock.now_ms(), source=source, run_id=self._app.ids.new_id()
            )
            await self._commit(executor, tick, runs, journal)
        except BaseException:
            await runs.store.release(self.id, row.fence)
            raise
        return executor.checkpoint_id or ""

    async def _commit(self, executor: Executor, tick: Any, runs: Runs, journal: ThreadJournal) -> None:
        """One commit of its own, outside any run: its events start a log that the next run goes on with."""
        executor.feed(tick)
        await executor.flush()
        await journal.release()
        runs.forget(self.id)

    async def _check_effects(self, loaded: Loaded, checkpoint_id: str, effects: str | None, what: str) -> None:
        """Refuses to pass over `write` effects without a choice (E8)."""
        allowed = ("rerun",)
        if effects is not None and effects not in allowed:
            raise GraphflowError(
                f"effects is {effects!r}; this version knows {', '.join(map(repr, allowed))} for a {what}",
                code="invalid_input",
            )
        if effects is not None:
            return
        written = await self._writes_after(checkpoint_id)
        if written:
            raise EffectsNeedChoice(
                f"{len(written)} write effect(s) happened after checkpoint {checkpoint_id}; choose effects: rerun to run them again",
                effects=written,
            )

    async def _writes_after(self, checkpoint_id: str) -> list[dict[str, Any]]:
        """Write effects recorded after a checkpoint on the present branch, or inside a node that it left unfinished."""
        head, target = await self._load(), await self._load(checkpoint_id)
        shared = dict(target.chain)
        store = await self._store()
        out = [
            {
                "node": frame.node,
                "key": key,
                "digest": operation.digest,
                "recordId": checkpoint_id,
                "at": target.machine.last_at,
            }
            for frame in target.machine.frames.values()
            for key, operation in frame.operations.items()
            if operation.effects == "write"
        ]
        for lineage, last in head.chain:
            first = shared.get(lineage, 0)
            for record in await store.read_records(self.id, lineage=lineage, after=first, upto=last):
                if not record.checkpoint:  # an intent is a record of its own, which history does not show
                    out += _writes_of(record)
        return out


def _writes_of(record: Record) -> list[dict[str, Any]]:
    body = decode_body(record.data)
    out = []
    for change in body.patch.frames.values():
        if change is None:
            continue
        for key, operation in (change.operations or {}).items():
            if operation is not None and operation.effects == "write" and operation.state == "intent":
                out.append(
                    {"node": body.node, "key": key, "digest": operation.digest, "recordId": record.id, "at": body.at}
                )
    return out


def status_of(machine: Machine, loaded: Loaded) -> str:
    """`running` only while somebody drives it; a thread whose process died is `stopped` (spec 3.2)."""
    if machine.status == "running" and loaded.row.owner is None:
        return "stopped"
    return machine.status


__all__ = ["CheckpointInfo", "StateError", "Thread", "ThreadState"]
