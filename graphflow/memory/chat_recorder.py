"""Keeps the chat record: tells the files of every run that has ended or waits, and can make them again (spec 5.1).

A line is made from the journal, never from what the process happens to know, so that what is written at the end of a
run and what is rebuilt later is the same.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from graphflow.checkpoints import input_references as inputs
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.event_log import read_events
from graphflow.checkpoints.record_decoder import (
    Folded,
    RecordBody,
    beside_loop,
    decode_bodies,
    decode_body,
    decode_entry,
    decode_meta,
    decode_snapshot,
    fold_records,
)
from graphflow.checkpoints.rows import ThreadFacts
from graphflow.events import Event, RunCancel, RunComplete, RunError, RunWaiting
from graphflow.graph.core.machine import ROOT, Machine
from graphflow.graph.engine.announcements import ending_event
from graphflow.graph.engine.ports import Logged
from graphflow.memory.chat_files import KNOWN_CHATS, ChatFiles, ChatLines
from graphflow.memory.chat_record import record_of
from graphflow.memory.run_reader import Ended, RunFacts, RunPart
from graphflow.messages import MESSAGE_TYPES, HumanMessage, Message, from_wire
from graphflow.runtime.history.stored_events import LEAST_PAGE, PAGE, Chain, records_of_run, settled
from graphflow.runtime.runs.live_runs import LiveRun

SystemOf = Callable[[str | None], Awaitable[Mapping[str, Any] | None]]
"""Hash of a document → the system prompt and tools of its model."""

_ENDS: dict[type[Event], Ended] = {
    RunComplete: "completed",
    RunError: "failed",
    RunCancel: "cancelled",
    RunWaiting: "waiting",
}
TRAVEL = frozenset({"edit", "rewind", "fork", "migrate"})
"""Sources of records that move a thread without running anything."""


class ChatRecorder:
    """The chat record of one application.

    Args:
        store: returns the store of threads; called when it is first needed.
        files: the files for the lines.
        system_of: returns the `system` of an agent's version.
        action_tools: names of tools whose calls are recorded as actions, besides those of kind action.
    """

    def __init__(
        self, store: Callable[[], Checkpointer], files: ChatFiles, system_of: SystemOf, action_tools: Sequence[str] = ()
    ) -> None:
        self._store, self.files, self._system_of = store, files, system_of
        self._action_tools = frozenset(action_tools)
        # Weak: a lock lives as long as somebody holds or awaits it, and the table does not grow with the chats.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._whole: OrderedDict[str, str | None] = OrderedDict()
        """Chats whose lines are complete: chat → the thread's head at that time."""

    async def ended(self, live: LiveRun) -> None:
        """A listener of `RunRegistry.on_end`: writes the line of the run whose epoch has just ended."""
        journal = live.journal
        if journal is None or live.executor.error is not None or live.executor.machine.status == "running":
            return  # nothing was stored, or the run is left for another epoch to end
        chat_id, run_id = live.thread_id, live.run_id
        known = journal.as_loaded(live.executor.machine, live.executor.seq, [])
        entries, chain, facts = known.counts.get((ROOT, "messages"), 0), known.chain, known.row.facts
        async with self._turn(chat_id):
            # Another process, or a crash of this one, may have left runs without a line; they come before this one.
            if journal.row.head is not None and self._whole.get(chat_id) != journal.row.head:
                await self._write_missing(chat_id, chain, facts, but=run_id)
            run = await read_run(self._store(), chat_id, run_id, chain, entries, facts.agent_key)
            if run is not None:
                await self._write(chat_id, run, await self._system_of(facts.document))
            self._note_whole(chat_id, journal.head)

    async def heal(self, chat_id: str) -> int:
        """Writes missing lines and lines that still say `waiting` for an ended run; returns how many.

        A crash between a run's last commit and its line leaves such gaps. Cheap when nothing has happened since
        the last call.
        """
        store = self._store()
        row = await store.thread(chat_id)
        if row is None or row.head is None or self._whole.get(chat_id) == row.head:
            return 0
        async with self._turn(chat_id):
            stored = await store.load(chat_id)
            count = 0 if stored is None else await self._write_missing(chat_id, stored.chain, row.facts)
            self._note_whole(chat_id, row.head)
        return count

    async def _write(self, chat_id: str, run: RunFacts, system: Mapping[str, Any] | None) -> None:
        """Makes the run's line and writes it, in a thread: a run may have streamed thousands of blocks."""

        def write() -> None:
            self.files.write(chat_id, record_of(run, action_tools=self._action_tools), system)

        await asyncio.to_thread(write)

    async def _write_missing(self, chat_id: str, chain: Chain, facts: ThreadFacts, but: str | None = None) -> int:
        """Writes missing lines of a branch, from the newest run back to the first final line; skips the run `but`."""
        store, lacking = self._store(), list[RunFacts]()
        settled = await asyncio.to_thread(self.files.settled, chat_id)
        async for run_id, checkpoint_id in _runs_back(store, chat_id, chain):
            # Lines are written in order, so behind the first final one nothing is missing.
            if run_id in settled or await store.find_run(run_id) != chat_id:  # the past of a fork is another chat's
                break
            if run_id != but and (run := await _run_at(store, chat_id, run_id, checkpoint_id, facts.agent_key)):
                lacking.append(run)
        # Found from the newest back, written from the oldest on.
        for run in reversed(lacking):
            await self._write(chat_id, run, await self._system_of(facts.document))
        return len(lacking)

    def _note_whole(self, chat_id: str, head: str | None) -> None:
        self._whole[chat_id] = head
        self._whole.move_to_end(chat_id)
        while len(self._whole) > KNOWN_CHATS:
            self._whole.popitem(last=False)

    async def rebuild(self, chat_id: str) -> int:
        """Rewrites the chat's file from the store; returns how many runs the store has.

        The store only knows the newest version of a thread's agent, so a readable line keeps its
        `system`. Lines of pruned runs stay, before the others.
        """
        store = self._store()
        async with self._turn(chat_id):
            row = await store.thread(chat_id)
            before = (await asyncio.to_thread(self.files.read, chat_id)).runs
            known = _systems(before)
            newest = None if row is None or row.head is None else await self._system_of(row.facts.document)
            lines = []
            for run_id, checkpoint_id in await _runs_of(store, chat_id):
                agent_key = None if row is None else row.facts.agent_key
                run = await _run_at(store, chat_id, run_id, checkpoint_id, agent_key)
                if run is not None:
                    record = await asyncio.to_thread(record_of, run, action_tools=self._action_tools)
                    lines.append((record, known.get(run_id, newest)))
            told = {record["runId"] for record, _ in lines}
            # Pruning removes records, not the conversation: their lines exist nowhere else.
            kept = [(line, known.get(line["runId"])) for line in before if line["runId"] not in told]
            await asyncio.to_thread(self.files.rewrite, chat_id, kept + lines)
        return len(lines)

    async def read(self, chat_id: str) -> ChatLines:
        """The chat's lines, and which of them are damaged."""
        return await asyncio.to_thread(self.files.read, chat_id)

    async def delete(self, chat_id: str) -> None:
        """Removes the chat's file."""
        async with self._turn(chat_id):
            await asyncio.to_thread(self.files.delete, chat_id)

    def _turn(self, chat_id: str) -> asyncio.Lock:
        """The chat's lock: lines are written in the order in which the runs ended."""
        return self._turns.setdefault(chat_id, asyncio.Lock())


async def read_run(
    store: Checkpointer, chat_id: str, run_id: str, chain: Chain, entries: int, agent_key: str | None = None
) -> RunFacts | None:
    """The run from the journal of one branch; None while it has neither ended nor paused.

    Args:
        entries: the number of entries in the log of the root's `messages` after the run.
    """
    records = await records_of_run(store, chat_id, chain, run_id)
    bodies = await decode_bodies(records)
    status = await beside_loop(bodies, _status, bodies)
    if status is None:
        return None
    counts = await beside_loop(bodies, _counts, bodies)
    # The run's messages are the newest entries of the log, so only those are read.
    start = entries - sum(counts)
    rows = await store.read_items(chain, ROOT, "messages", entries, start=start) if entries > start else []
    events = await read_events(store, chain, records, bodies)
    parts = await beside_loop(rows if len(rows) > len(bodies) else bodies, _parts, bodies, counts, rows, events)
    given = _input(bodies, parts)
    return RunFacts(chat_id=chat_id, run_id=run_id, status=status, parts=tuple(parts), agent_key=agent_key, input=given)


def _counts(bodies: Sequence[RecordBody]) -> list[int]:
    """How many messages each record adds."""
    return [body.counts.get((ROOT, "messages"), 0) for body in bodies]


def _parts(
    bodies: Sequence[RecordBody], counts: Sequence[int], rows: Sequence[bytes], events: Sequence[Logged]
) -> list[RunPart]:
    messages, told = _appended(map(decode_entry, rows), counts), _events_of(bodies, events)
    return [
        RunPart(at=body.at, messages=tuple(new), events=tuple(own))
        for body, new, own in zip(bodies, messages, told, strict=True)
    ]


def _status(bodies: Sequence[RecordBody]) -> Ended | None:
    # A rewind or fork that has not run yet has nothing to record.
    if all(body.source in TRAVEL for body in bodies):
        return None
    end = ending_event(settled(bodies), bodies[-1].source)
    return None if end is None else _ENDS[type(end)]


def _appended(entries: Iterable[Any], counts: Sequence[int]) -> list[list[Message]]:
    """The messages of each record. A message that replaces another of the run takes its position."""
    out: list[list[Message]] = []
    places: dict[str, tuple[int, int]] = {}
    rest = iter(entries)
    for number, count in enumerate(counts):
        new: list[Message] = []
        out.append(new)
        for entry in (next(rest) for _ in range(count)):
            # Deletions change what the model sees, not what was said.
            message = _as_message(entry[-1]) if entry[0] in "+=" else None
            if message is None:
                continue
            place = places.get(message.id or "")
            if entry[0] == "=" and place is not None:
                out[place[0]][place[1]] = message
                continue
            if message.id is not None:
                places[message.id] = (number, len(new))
            new.append(message)
    return out


def _as_message(item: Any) -> Message | None:
    if isinstance(item, MESSAGE_TYPES):
        return item
    try:
        return from_wire(item)
    except (ValueError, AttributeError, TypeError):  # a graph may keep other things under this name
        return None


def _events_of(bodies: Sequence[RecordBody], events: Sequence[Logged]) -> list[list[Event]]:
    """The stored events of each record."""
    out: list[list[Event]] = [[] for _ in bodies]
    number = 0
    for event, _ in events:
        while number < len(bodies) - 1 and event.seq > bodies[number].seq:
            number += 1
        out[number].append(event)
    return out


def _input(bodies: Sequence[RecordBody], parts: Sequence[RunPart]) -> Mapping[str, Any] | None:
    for body, part in zip(bodies, parts, strict=True):
        change = body.patch.frames.get(ROOT)
        if body.source == "input" and change is not None:
            given = change.fields.get("input")
            if type(given) is inputs.Referenced:
                said = next((m.text for m in reversed(part.messages) if isinstance(m, HumanMessage)), None)
                return {**given.rest, "query": said}
            return given if isinstance(given, Mapping) else {}
    return None


# --- the whole of a chat -------------------------------------------------------------------------


async def _runs_of(store: Checkpointer, chat_id: str) -> list[tuple[str, str]]:
    """(run, its newest checkpoint) of every branch, in the order of the runs; without those of a fork's past."""
    newest: dict[str, str] = {}
    for row in await store.list_checkpoints(chat_id, all_lineages=True):
        if (run_id := decode_meta(row.meta, row.id).run_id) is not None:
            newest[run_id] = newest.pop(run_id, row.id)  # ordered by its oldest checkpoint
    return [(run, at) for run, at in reversed(newest.items()) if await store.find_run(run) == chat_id]


async def _runs_back(store: Checkpointer, chat_id: str, chain: Chain) -> AsyncIterator[tuple[str, str]]:
    """(run, its newest checkpoint) on a branch, newest first; reads pages on demand."""
    last_run, page = None, LEAST_PAGE
    for lineage, last in reversed(chain):
        upto = last
        while upto > 0:
            rows = await store.read_records(chat_id, lineage=lineage, after=max(0, upto - page), upto=upto)
            for record in reversed(rows):
                run_id = decode_meta(record.meta, record.id).run_id if record.checkpoint else None
                if run_id is not None and run_id != last_run:
                    last_run = run_id
                    yield run_id, record.id
            # Small pages first: healing usually stops at the first run.
            upto, page = upto - page, min(2 * page, PAGE)


async def _run_at(
    store: Checkpointer, chat_id: str, run_id: str, checkpoint_id: str, agent_key: str | None
) -> RunFacts | None:
    stored = await store.load(chat_id, checkpoint_id)
    if stored is None:
        return None
    start = Folded(Machine(), {}) if stored.snapshot is None else decode_snapshot(stored.snapshot)
    counts = fold_records(start, (decode_body(record.data, record.id) for record in stored.records)).counts
    *before, (lineage, ordinal) = stored.chain  # records without a checkpoint may follow
    chain = (*before, (lineage, ordinal + PAGE))
    return await read_run(store, chat_id, run_id, chain, counts.get((ROOT, "messages"), 0), agent_key)


def _systems(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Run → the `system` that applies to its line."""
    out: dict[str, Any] = {}
    system = None
    for line in lines:
        system = line.get("system", system)
        if system is not None:
            out[line["runId"]] = system
    return out
