"""Moving a thread to the newest version of a graph: planned in full, refused in full, or done as one checkpoint (spec 2.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.capabilities import By, name_of
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.record_decoder import RecordBody
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import GraphflowError
from graphflow.graph.core.migration import Migration, Problem, plan_migration
from graphflow.graph.core.ticks import Migrated
from graphflow.graph.definition.versions import graphs_of
from graphflow.json_data import plain
from graphflow.runtime.documents import stored_document
from graphflow.runtime.history.walk import walk_back
from graphflow.runtime.runs.live_runs import LiveRuns
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.taking import Taking, make_executor


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a migration did to a thread, or would do."""

    thread_id: str
    from_version: str
    to_version: str
    status: str
    """Of the thread: `idle`, `waiting`, `stopped` or `failed`."""
    nodes: list[dict[str, str]]
    """`{path, from, to}` of every frame that stands on a node."""
    added: list[str]
    """State keys that begin at their default; with the frame's path below the root."""
    dropped: list[str]
    """State keys that the new version does not declare; their values stay in the state."""
    rewritten: list[str]
    """Lists that are stored entry by entry from now on."""
    questions: list[dict[str, str]]
    """`{interruptId, kind, node}` of every open question; each is asked anew under another id."""
    forgotten: list[str]
    """Nodes of the run's breakpoints that the new version lacks."""
    problems: list[Problem]
    """Reasons against the migration; with any, nothing changes."""
    unchanged: bool = False
    """The thread runs this version already."""
    checkpoint_id: str | None = None
    """The checkpoint that it made; None for a plan, and for a thread that was not changed."""


class Migrator:
    """Migrates one thread to the newest version of a graph."""

    def __init__(self, host: RunHost, thread_id: str) -> None:
        self._host, self._id = host, thread_id

    async def plan(self, names: Mapping[str, str]) -> MigrationReport:
        """What would happen; takes nothing and changes nothing."""
        report, _ = await self._planned(await self._host.load(self._id), names)
        return report

    async def migrate(self, names: Mapping[str, str], by: By) -> MigrationReport:
        """See `Thread.migrate`."""
        # An unknown thread is refused before a waiting run is released for it.
        await self._host.load(self._id, logs=False)
        runs = self._host.need_runs()
        await _release(runs, self._id)
        async with Taking(self._host, runs, await runs.take(self._id, create=False)) as taking:
            row = taking.row
            loaded = await runs.load_head(row)
            report, migration = await self._planned(loaded, names)
            if report.problems:
                raise refusal(report)
            if migration is None:
                await runs.store.release(self._id, row.fence)
                return report
            checkpoint = await self._commit(runs, row, loaded, migration, names, by)
        return msgspec.structs.replace(report, checkpoint_id=checkpoint)

    async def _planned(self, loaded: Loaded, names: Mapping[str, str]) -> tuple[MigrationReport, Migration | None]:
        host, machine = self._host, loaded.machine
        new, old = host.documents.newest(), machine.document or loaded.row.facts.document or ""
        if old == new.digest:
            return _report(self._id, old, new.digest, loaded, None), None
        store = host.need_runs().store
        checked = await stored_document(store, old)
        # Reads every record since the input, so only where invariants need the facts.
        facts = await _facts(store, loaded) if new.monitor is not None else None
        migration = plan_migration(
            machine,
            graphs_of(checked),
            new,
            names,
            at=host.clock.now_ms(),
            facts=facts,
        )
        return _report(self._id, old, new.digest, loaded, migration), migration

    async def _commit(
        self,
        runs: LiveRuns,
        row: ThreadRow,
        loaded: Loaded,
        migration: Migration,
        names: Mapping[str, str],
        by: By,
    ) -> str:
        host, machine = self._host, loaded.machine
        plan = host.documents.newest()
        await host.documents.keep(plan)
        facts = msgspec.structs.replace(
            row.facts, document=plan.digest, agent_key=host.agent_key or row.facts.agent_key
        )
        journal = ThreadJournal(runs.store, row, facts, loaded=loaded)
        # A run that rests or waits keeps its log; any other goes on as a new run with a log of its own (E1).
        goes_on = machine.status in ("idle", "waiting")
        executor = make_executor(host, plan, machine, journal, seq=loaded.seq if goes_on else 0)
        if goes_on:
            executor.restore_log(list(loaded.pending))
        said: dict[str, Any] = {"map": dict(names)} if names else {}
        if by is not None:
            said["by"] = name_of(by)
        executor.feed(
            Migrated(
                id=host.ids.new_id(),
                at=host.clock.now_ms(),
                run_id=machine.run_id if goes_on else host.ids.new_id(),
                migration=migration,
                facts=said or None,
            )
        )
        await executor.flush()
        await journal.release()
        # The hot copy belongs to the old version.
        runs.forget(self._id)
        return executor.checkpoint_id or ""


def refusal(report: MigrationReport) -> GraphflowError:
    """The error of a migration that has problems: all of them at once."""
    lines = [f"  {p.where}: {p.message}" + (f" ({p.hint})" if p.hint else "") for p in report.problems]
    return GraphflowError(
        f"thread {report.thread_id!r} can't be migrated; nothing has changed:\n" + "\n".join(lines),
        code="migration_refused",
        problems=msgspec.to_builtins(report.problems, enc_hook=plain),
    )


async def _release(runs: LiveRuns, thread_id: str) -> None:
    """A run that only holds its questions lets go of the thread; one that works is not disturbed."""
    live = runs.by_thread.get(thread_id)
    if live is None:
        return
    if live.executor.machine.status == "waiting":
        live.executor.release()
        await live.over.wait()
        return
    raise live.busy("or cancel it before it is migrated")


def _report(thread_id: str, old: str, new: str, loaded: Loaded, migration: Migration | None) -> MigrationReport:
    machine = loaded.machine
    moves = {} if migration is None else migration.frames
    prefix = {number: f"{frame.path}: " if frame.path else "" for number, frame in machine.frames.items()}
    crashed = machine.status == "running"

    def keys(name: str) -> list[str]:
        return [f"{prefix[number]}{key}" for number, move in moves.items() for key in getattr(move, name)]

    return MigrationReport(
        thread_id=thread_id,
        from_version=old,
        to_version=new,
        status="stopped" if crashed else machine.status,
        nodes=[
            {"path": machine.frames[number].path, "from": move.node[0], "to": move.node[1]}
            for number, move in moves.items()
            if move.node[0] not in ("", "end")
        ],
        added=keys("added"),
        dropped=keys("dropped"),
        rewritten=keys("rewritten"),
        questions=[
            {"interruptId": key, "kind": asked.kind, "node": asked.node}
            for key, asked in ({} if migration is None else migration.interrupts).items()
        ],
        forgotten=[] if migration is None else list(migration.forgotten),
        problems=[] if migration is None else list(migration.problems),
        unchanged=migration is None,
    )


# --- what `invariants` must know of the run so far ---------------------------------------------------


async def _facts(store: Checkpointer, loaded: Loaded) -> dict[int, dict[str, int]]:
    """Frame → nodes that were entered and finished since the run's input, as `core/invariants.py` notes them."""
    bodies: list[RecordBody] = []
    async for _, body in walk_back(store, loaded.row.thread_id, loaded.chain, whole=False):
        bodies.append(body)
        if body.source == "input":
            break
    history = _History()
    for body in reversed(bodies):
        history.take(body)
    return {number: noted for number, noted in history.facts.items() if number in loaded.machine.frames}


class _History:
    """Follows the frames of a run through its records."""

    def __init__(self) -> None:
        self.facts: dict[int, dict[str, int]] = {}
        self._stands: dict[int, str] = {}
        self._parents: dict[int, int] = {}
        self._branches: set[int] = set()

    def take(self, body: RecordBody) -> None:
        if body.source == "migrate":
            names = (body.facts or {}).get("map", {})
            self.facts = {number: _renamed(noted, names) for number, noted in self.facts.items()}
            self._stands = {number: names.get(node, node) for number, node in self._stands.items()}
        if body.source in ("node", "answer") and "steps" in body.patch.machine:
            # The node that the record is about has finished; where that ended its frame, so has the node above it.
            # The record names the frame that went on last, which then is one above it.
            frames = body.patch.frames
            number = next((n for n in (body.frame, *frames) if self._stands.get(n) == body.node), body.frame)
            self._finished(number, body.node)
            while frames.get(number, _GONE) is None and number in self._parents:
                if number in self._branches:
                    self._join(number)
                number = self._parents[number]
                self._finished(number, self._stands.get(number, ""))
        for number, change in body.patch.frames.items():
            if change is not None and "node" in change.fields:
                if "parent" in change.fields:
                    self._parents[number] = change.fields["parent"]
                if change.fields.get("branch") is not None:
                    self._branches.add(number)
                self._stands[number] = change.fields["node"]
                self._entered(number, change.fields["node"])

    def _finished(self, number: int, node: str) -> None:
        if node:
            self.facts.setdefault(number, {})[f"finished {node}"] = 1

    def _entered(self, number: int, node: str) -> None:
        while number in self._branches:
            number = self._parents[number]
        noted = self.facts.setdefault(number, {})
        noted[f"entered {node}"] = noted.get(f"entered {node}", 0) + 1

    def _join(self, number: int) -> None:
        """A join that is done: what its branches have finished, the frame around them has."""
        parent = self._parents[number]
        for sibling in [other for other in self._branches if self._parents[other] == parent]:
            for key in self.facts.get(sibling, {}):
                self._finished(parent, key.removeprefix("finished "))


_GONE = object()


def _renamed(noted: Mapping[str, int], names: Mapping[str, str]) -> dict[str, int]:
    out = {}
    for key, count in noted.items():
        word, _, name = key.partition(" ")
        out[f"{word} {names.get(name, name)}"] = count
    return out
