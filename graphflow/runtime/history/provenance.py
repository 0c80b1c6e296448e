"""From one value of a state back to the records that wrote it, through every join on the way (spec 2.5)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.record_decoder import SLICE, Folded, RecordBody, decode_entry, decode_meta, fold_records
from graphflow.checkpoints.record_fields import Counts
from graphflow.checkpoints.rows import Log, Record
from graphflow.events import NodeEnd
from graphflow.graph.core.channels import Update
from graphflow.graph.core.immutable import thaw
from graphflow.graph.core.machine import ROOT, Frame, all_frames
from graphflow.graph.core.patches import apply_patch, items_of
from graphflow.graph.core.plan import FanOut, Plan
from graphflow.graph.core.route_trace import Move, read_moves
from graphflow.graph.definition.document import END
from graphflow.runtime.history.diff import differ
from graphflow.runtime.history.state_paths import MISSING, parse, written_at, written_in
from graphflow.runtime.history.walk import Chain, chain_before, folded_before, machine_before, node_ends, walk_back


class Blame(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What wrote a value, and the value."""

    key: str
    """As it was asked for: `state.draft`, `state.messages[3]`."""
    value: Any
    checkpoint_id: str
    source: str
    """As in a history: `input`, `node`, `answer`, `edit`, …"""
    at: int
    """Epoch ms."""
    run_id: str
    node: str | None = None
    """None for an input, and for an edit that stands for no node."""
    visit: int = 1
    path: str = ""
    """Of the frame, `node#visit` per level; the root's is left out."""
    node_run_id: str | None = None
    duration_ms: int | None = None
    model: str | None = None
    """`provider/model` that the node called."""
    usage: dict[str, Any] | None = None
    by: str | None = None
    """Who answered or edited."""
    branches: tuple[Blame, ...] = ()
    """Of what a `map` or `parallel` joined: the writes in its branches that it comes from, in the order in which they were
    reduced. A list's item has one, a key that is replaced its last, one that is added up or merged every one of them."""


class Tracer:
    """Walks back from one moment of a thread to who wrote one key.

    Args:
        plan: the version that the thread runs; it says how writes of branches were reduced.
    """

    def __init__(self, store: Checkpointer, plan: Plan, loaded: Loaded, expression: str) -> None:
        self.store, self.plan, self.thread_id = store, plan, loaded.row.thread_id
        self.expression = expression
        self.key, self.parts = parse(expression)

    async def entry(self, chain: Chain, counts: Counts, frame: Frame, ordinal: int, value: Any) -> Blame | None:
        """Who added an entry to the frame's log."""
        place = (frame.number, self.key)
        end = counts.get(place, 0)
        async for record, body in walk_back(self.store, self.thread_id, chain):
            end -= body.counts.get(place, 0)
            if body.counts.get(place) and end <= ordinal:
                return await self._entry_of(At(chain, record, body), frame, ordinal - end, value)
        return None

    async def beginning(self, chain: Chain, frame: Frame, value: Any) -> Blame | None:
        """Who opened the frame, or last gave it an input: its log is as it was then."""
        found = None
        async for record, body in walk_back(self.store, self.thread_id, chain):
            change = body.patch.frames.get(frame.number)
            if change is not None:
                found = (record, body)
        return None if found is None else await self._told(At(chain, *found), frame, value)

    async def value(self, chain: Chain, frame: Frame, value: Any) -> Blame | None:
        """Who wrote the key last; of a part, who wrote the part as it is."""
        found: At | None = None
        seen: Any = MISSING
        async for record, body in walk_back(self.store, self.thread_id, chain):
            wrote = written_at(body, frame.number, self.key, self.parts)
            if wrote is not MISSING:
                # The part was still the same before this record, so an older record may have written it; only a
                # difference ends the search.
                if found is not None and differ(seen, wrote):
                    break
                found, seen = At(chain, record, body), wrote
                if not self.parts:
                    break
            change = body.patch.frames.get(frame.number)
            if change is not None and "parent" in change.fields and change.inherited is not None:
                given = Update(change.inherited.sets, {}, change.inherited.merges)
                if found is None and written_in(given, self.key, self.parts) is not MISSING:
                    return await self._inherited(At(chain, record, body), frame, value)
        return None if found is None else await self._value_of(found, frame, value)

    # --- one record

    async def _entry_of(self, at: At, frame: Frame, offset: int, value: Any) -> Blame | None:
        change = at.body.patch.frames[frame.number]
        branch = change.fields.get("branch") if change is not None and "parent" in change.fields else None
        inherited = 0 if branch is None else branch.inherited.get(self.key, 0)
        if offset < inherited:
            return await self._item(await self._branches_before(at, frame), offset, value, at)
        moves = at.moves_of(frame.number)
        if not moves:
            return await self._told(at, frame, value)
        wrote = [(m, m.joined.get(self.key, 0), m.writes.get(self.key, 0)) for m in moves]
        # Entries that no move names come first in the record.
        offset -= at.body.counts[frame.number, self.key] - sum(joined + own for _, joined, own in wrote)
        for move, joined, own in wrote:
            if offset < 0:
                break
            if offset < joined:
                inner = await self._item(await self._branches_of(at, frame.number, move), offset, value, at)
                return self._moved(at, move, value, () if inner is None else (inner,))
            if offset < joined + own:
                return self._moved(at, move, value)
            offset -= joined + own
        return await self._told(at, frame, value)

    async def _value_of(self, at: At, frame: Frame, value: Any) -> Blame:
        for move in reversed(at.moves_of(frame.number)):
            if self._touches(move.joined):
                own = self._touches(move.writes)
                replaced = own and self._reduce(frame) == "replace"
                inner = (
                    ()
                    if replaced
                    else await self._contributions(await self._branches_of(at, frame.number, move), at, value)
                )
                return self._moved(at, move, value, inner)
            if self._touches(move.writes):
                return self._moved(at, move, value)
        return await self._told(at, frame, value)

    async def _inherited(self, at: At, frame: Frame, value: Any) -> Blame | None:
        """A value that a branch has of those that it came `after`."""
        found = await self._contributions(await self._branches_before(at, frame), at, value)
        return found[-1] if found else None

    # --- the branches behind a join

    async def _branches_of(self, at: At, number: int, move: Move) -> list[Wrote]:
        """What each branch wrote that a node joined in this record, in the order in which it was reduced."""
        before = await folded_before(self.store, self.thread_id, at.chain, at.record)
        parent = before.machine.frames.get(number)
        below = f"{move.path}/{move.node}#{move.visit}[" if move.path else f"{move.node}#{move.visit}["
        ended: dict[str, Frame] = {}
        # The join keeps branches that ended in earlier records, if it is the one that was open then.
        if parent is not None and parent.join is not None and parent.node == move.node and parent.visit == move.visit:
            ended = {f.path: f for f in all_frames(before.machine) if f.parent == number and f.branch is not None}
        moves: dict[str, list[Move]] = {}
        for each in read_moves(at.body.facts):
            if each.path.startswith(below) and "/" not in each.path[len(below) :]:
                moves.setdefault(each.path, []).append(each)
        graph = parent.graph if parent is not None else self._graph_of(at, number)
        fan = None if graph is None else self.plan.graphs[graph].nodes[move.node].fan
        if fan is None:
            return []
        found = []
        for place, path in enumerate({**ended, **moves}, 1):
            if place % SLICE == 0:
                await asyncio.sleep(0)
            frame, last = ended.get(path), moves.get(path, [])
            index = _index(fan, path)
            if fan.body(index).graph is not None:
                continue  # it has a state of its own
            done = frame is not None and frame.status == "done"
            if done or any(m.to == END and m.by not in LOST for m in last):
                found.append((fan.rank(index), path, frame, last))
        chain = chain_before(at.chain, at.record)
        return await self._wrote(chain, before, sorted(found, key=lambda row: row[0]), self.plan.graphs[graph or ""])

    async def _branches_before(self, at: At, frame: Frame) -> list[Wrote]:
        """What each branch wrote that this one came `after`; the last of them may have ended in the same record."""
        before = await folded_before(self.store, self.thread_id, at.chain, at.record)
        after = fold_records(before, [at.body])
        parent = after.machine.frames.get(frame.parent)
        fan = None if parent is None else self.plan.graphs[parent.graph].nodes[parent.node].fan
        if parent is None or parent.join is None or fan is None or frame.branch is None:
            return []
        wanted = fan.body(frame.branch.index).before
        found = [
            (fan.rank(f.branch.index), f.path, f, list[Move]())
            for f in parent.join.ended
            if f.branch is not None and f.branch.index in wanted and f.branch.own is not None and f.status == "done"
        ]
        chain = [*chain_before(at.chain, at.record)[:-1], (at.record.lineage, at.record.ordinal)]
        return await self._wrote(chain, after, sorted(found, key=lambda row: row[0]), self.plan.graphs[parent.graph])

    async def _wrote(
        self, chain: Chain, folded: Folded, found: list[tuple[int, str, Frame | None, list[Move]]], plan: Plan
    ) -> list[Wrote]:
        """The branches with the items that they brought to the key, if it is a log."""
        channel = plan.schema.channels.get(self.key)
        if channel is None or channel.scope == "branch":
            return []
        out = []
        for place, (_, path, frame, moves) in enumerate(found, 1):
            if place % SLICE == 0:
                await asyncio.sleep(0)
            items: list[tuple[int, Any]] = []
            count = 0 if frame is None else folded.counts.get((frame.number, self.key), 0)
            if frame is not None and frame.branch is not None and count and channel.is_log:
                rows = (await self.store.read_logs(chain, [Log(frame.number, self.key, count)]))[0]
                for ordinal in range(frame.branch.inherited.get(self.key, 0), count):
                    entry = decode_entry(rows[ordinal])
                    items += [(ordinal, item) for item in items_of([entry])]
            out.append(Wrote(path, frame, items, moves, chain, folded.counts, channel.reduce))
        return out

    async def _item(self, branches: Sequence[Wrote], offset: int, value: Any, at: At) -> Blame | None:
        """The branch behind one of the items that a join added to a log."""
        if branches and branches[0].reduce != "append":  # it may have added fewer than were written
            return await self._equal_item(branches, value, at)
        for branch in branches:
            assert branch.frame is not None or not branch.items
            if offset < len(branch.items):
                assert branch.frame is not None
                ordinal = branch.items[offset][0]
                return await self.entry(branch.chain, branch.counts, branch.frame, ordinal, value)
            offset -= len(branch.items)
            for move in branch.moves:
                joined, own = move.joined.get(self.key, 0), move.writes.get(self.key, 0)
                if offset < joined:
                    inner = await self._item(await self._branches_of(at, move.frame, move), offset, value, at)
                    return self._moved(at, move, value, () if inner is None else (inner,))
                if offset < joined + own:
                    return self._moved(at, move, value)
                offset -= joined + own
        return None

    async def _equal_item(self, branches: Sequence[Wrote], value: Any, at: At) -> Blame | None:
        """The same where a reducer drops or replaces items: the first (`union`) or last (`messages`) branch with this one."""
        for branch in branches if branches[0].reduce == "union" else reversed(branches):
            for ordinal, item in branch.items:
                if branch.frame is not None and not differ(item, value):
                    return await self.entry(branch.chain, branch.counts, branch.frame, ordinal, value)
        for branch in branches:
            for move in reversed(branch.moves):
                if self._touches(move.joined):
                    inner = await self._equal_item(await self._branches_of(at, move.frame, move), value, at)
                    return self._moved(at, move, value, () if inner is None else (inner,))
                if self._touches(move.writes):
                    return self._moved(at, move, value)
        return None

    async def _contributions(self, branches: Sequence[Wrote], at: At, value: Any) -> tuple[Blame, ...]:
        """The writes that a join reduced to a value: of a key that is replaced the last, of one that is added up all."""
        if not branches:
            return ()
        reduce = branches[0].reduce
        only_last = reduce == "replace" or (reduce == "merge" and bool(self.parts))
        out: list[Blame] = []
        written = await self._written(branches, only_last)
        for place, branch in enumerate(reversed(branches), 1):
            if place % SLICE == 0:
                await asyncio.sleep(0)
            for move in reversed(branch.moves):
                if self._touches(move.joined):
                    inner = await self._contributions(await self._branches_of(at, move.frame, move), at, value)
                    out.append(self._moved(at, move, value if only_last else _told_of(move.joined[self.key]), inner))
                elif self._touches(move.writes):
                    out.append(self._moved(at, move, value if only_last else _told_of(move.writes[self.key])))
                if out and only_last:
                    return (out[0],)
            if branch.frame is not None:
                for at_write in written.get(branch.frame.number, ()):
                    out.append(await self._write_in(at_write, branch.frame, value, only_last))
            if out and only_last:
                return (out[0],)
        # Only the branch that gave the value counts; the others lost the comparison.
        if reduce in ("min", "max"):
            out = [each for each in out if not differ(each.value, value)]
        return tuple(reversed(out))

    async def _written(self, branches: Sequence[Wrote], only_last: bool) -> dict[int, list[At]]:
        """The records in which each branch wrote the key itself, newest first: one way back finds those of all branches,
        and one forth the frames that they changed.
        """
        found: list[tuple[Record, RecordBody, list[int]]] = []
        out: dict[int, list[At]] = {}
        sought = {branch.frame.number for branch in branches if branch.frame is not None}
        if not sought:
            return out
        chain = branches[0].chain
        async for record, body in walk_back(self.store, self.thread_id, chain):
            found.append((record, body, []))
            for number in body.patch.frames.keys() & sought:
                change = body.patch.frames[number]
                if change is None:
                    continue
                writes = written_at(body, number, self.key, self.parts) is not MISSING
                if writes:
                    found[-1][2].append(number)
                if "parent" in change.fields or (writes and only_last):
                    sought.discard(number)
            if not sought:
                break
        machine = await machine_before(self.store, self.thread_id, chain, found[-1][0])
        for place, (record, body, numbers) in enumerate(reversed(found), 1):
            for number in numbers:
                out.setdefault(number, []).insert(0, At(chain, record, body, (machine.frames.get(number),)))
            machine = apply_patch(machine, body.patch)
            if place % SLICE == 0:
                await asyncio.sleep(0)
        return out

    async def _write_in(self, at: At, frame: Frame, value: Any, only_last: bool) -> Blame:
        """A branch's own write to the key."""
        if only_last:
            return await self._value_of(at, frame, value)
        change = at.body.patch.frames[frame.number]
        assert change is not None
        raw = (change.raw or {}).get(self.key)
        sets = change.update.sets if change.update is not None else {}
        changed = change.update.merges if change.update is not None else {}
        wrote = raw[0] if raw and len(raw) == 1 else raw or sets.get(self.key, changed.get(self.key))
        return await self._value_of(at, frame, wrote)

    # --- parts

    def _touches(self, writes: Mapping[str, Any]) -> bool:
        """Whether a move wrote the key, and of a `merge` map the part that was asked for."""
        wrote = writes.get(self.key)
        return wrote is not None and not (self.parts and isinstance(wrote, Mapping) and self.parts[0] not in wrote)

    def _reduce(self, frame: Frame) -> str:
        channel = self.plan.graphs[frame.graph].schema.channels.get(self.key)
        return "replace" if channel is None else channel.reduce

    def _graph_of(self, at: At, number: int) -> str | None:
        change = at.body.patch.frames.get(number)
        graph = None if change is None else change.fields.get("graph", "")
        return graph if graph in self.plan.graphs else None

    # --- what it tells

    def _moved(self, at: At, move: Move, value: Any, branches: tuple[Blame, ...] = ()) -> Blame:
        """One of several nodes that the record led on."""
        before = [m for m in read_moves(at.body.facts) if m.node == move.node]
        ends = [end for end in node_ends(at.body) if end.node == move.node]
        place = next(index for index, m in enumerate(before) if m == move) - len(before) + len(ends)
        return self._blame(at, move.node, move.visit, move.path, value, ends[place] if place >= 0 else None, branches)

    async def _told(self, at: At, frame: Frame, value: Any) -> Blame:
        """The one node that the record led on, or the frame's beginning."""
        body, facts = at.body, at.body.facts or {}
        if at.frame is not None:
            (there,) = at.frame
        else:
            there = (await machine_before(self.store, self.thread_id, at.chain, at.record)).frames.get(frame.number)
        node, visit, path = (None, 1, frame.path) if there is None else (there.node, there.visit, frame.path)
        if body.source == "edit":
            node = body.node if "asNode" in facts else None
        elif body.source == "input" and frame.number == ROOT:
            node = None
        elif there is None and (
            above := _ABOVE.fullmatch(frame.path)
        ):  # the child's beginning: the node that opened it
            node, visit, path = above["node"], int(above["visit"]), (above["up"] or "").rstrip("/")
        end = next((event for event in reversed(node_ends(body)) if event.node == node), None)
        return self._blame(at, node, visit, path, value, end)

    def _blame(
        self,
        at: At,
        node: str | None,
        visit: int,
        path: str,
        value: Any,
        end: NodeEnd | None,
        branches: tuple[Blame, ...] = (),
    ) -> Blame:
        meta, body, facts = decode_meta(at.record.meta, at.record.id), at.body, at.body.facts or {}
        called = facts.get("model")
        return Blame(
            key=self.expression,
            value=thaw(value),
            checkpoint_id=at.record.id,
            source=meta.source,
            at=body.at,
            run_id=meta.run_id,
            node=node,
            visit=visit,
            path=path,
            node_run_id=end.node_run_id if end is not None else None,
            duration_ms=end.duration_ms if end is not None else None,
            model="/".join(called) if called and node == body.node else None,
            usage=end.usage if end is not None else None,
            by=facts.get("by"),
            branches=branches,
        )


LOST = ("collect", "skip", "failed")
"""How a branch ended whose writes no join takes."""
_ABOVE = re.compile(r"(?P<up>.*/)?(?P<node>[^/#]+)#(?P<visit>\d+)(?:\[(?P<label>[^/]*)\])?")
"""A frame's path: the frame that opened it, the node there, and the branch."""


class At(msgspec.Struct, frozen=True):
    """One record, and the branch of the history on which it was found."""

    chain: Chain
    record: Record
    body: RecordBody
    frame: tuple[Frame | None] | None = None
    """The frame that is asked for as it was before the record, where that is known."""

    def moves_of(self, number: int) -> list[Move]:
        """The frame's nodes among those that the record led on, in order."""
        return [move for move in read_moves(self.body.facts) if move.frame == number]


class Wrote(msgspec.Struct, frozen=True):
    """What one branch brought to the join, of one key."""

    path: str
    frame: Frame | None
    """None when it was opened and ended in the same record."""
    items: list[tuple[int, Any]]
    """(ordinal, item) that it brought to a log in earlier records."""
    moves: list[Move]
    """Its nodes in the record of the join."""
    chain: Chain
    counts: Counts
    reduce: str


def _index(fan: FanOut, path: str) -> int:
    """The position of a branch, by its path."""
    match = _ABOVE.fullmatch(path)
    label = match["label"] if match is not None else ""
    return int(label) if fan.items is not None else next(i for i, b in enumerate(fan.branches) if b.name == label)


def _told_of(wrote: Any) -> Any:
    """What a move says that it wrote, in short."""
    return wrote[0] if isinstance(wrote, list) and len(wrote) == 1 else wrote
