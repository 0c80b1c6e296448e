"""Changing where a thread stands: rewind, fork and edit, each one commit of a new checkpoint (E8).

Whatever can be refused is refused before anything has changed. Neither the length of the history nor that of the
state's lists matters to a rewind or a fork: they read what changed since the last snapshot, and the records of effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from graphflow.capabilities import By, Starter, asker_of, name_of
from graphflow.checkpoints.errors import busy
from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.media.large_bytes import names_bytes, stored_media, with_bytes
from graphflow.checkpoints.rows import Lineage, ThreadRow
from graphflow.errors import StateError
from graphflow.graph.core.machine import ROOT, Machine, all_frames
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.ticks import Edited, Moved
from graphflow.graph.core.transition import advance
from graphflow.id_rule import check_id
from graphflow.runtime.history.effects import (
    CHOICES,
    Choice,
    Choices,
    Effect,
    effects_behind,
    resolve_choices,
    reuse_rows,
    spared,
)
from graphflow.runtime.runs.live_runs import ASK_AGAIN_MS, LiveRuns
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.taking import Taking, make_executor
from graphflow.runtime.travel.undo import undo_effects


class Edit(msgspec.Struct, frozen=True):
    """What an edit writes, and where."""

    values: dict[str, Any]
    as_node: str | None
    path: str | None
    replace: tuple[str, ...]


class Travel:
    """Moves one thread."""

    def __init__(self, host: RunHost, thread_id: str) -> None:
        self._host, self._id = host, thread_id
        self._load = partial(host.load, thread_id)

    async def rewind(self, checkpoint_id: str, effects: Choices = None, cancel: bool = False, by: By = None) -> str:
        """See `Thread.rewind`."""
        return await self.rewind_to(await self._load(checkpoint_id, logs=False), effects, cancel, by)

    async def rewind_to(
        self,
        target: Loaded,
        effects: Choices,
        cancel: bool,
        by: By,
        *,
        what: str = "rewind",
        starter: Starter | None = None,
    ) -> str:
        """The same for a loaded checkpoint; an empty chain stands for the time before the first one.

        Args:
            starter: who asks for it, if not `by`; effects are undone by what this person may do, too.
        """
        await self.check_free(cancel)
        await self._plan(target)  # a missing version is refused before anything is cancelled or taken back
        runs, row, choices, found = await self._ready(
            what, lambda head: target, effects, cancel, starter or asker_of(by)
        )
        async with Taking(self._host, runs, row):
            tick = self._moved("rewind", found, choices, by)
            if starter is not None:
                tick = msgspec.structs.replace(tick, starter=starter)
            return await self._commit(runs, row, target, tick, self._branch(target))

    async def fork(
        self, checkpoint_id: str | None, new_id: str | None, effects: Choices, by: By, *, what: str = "fork"
    ) -> str:
        """See `Thread.fork`; the new thread's id.

        Args:
            what: what the caller asked for, for errors.
        """
        if new_id is not None:
            check_id(new_id)
        head = await self._load(logs=False)
        if checkpoint_id is None:  # what was recorded after it belongs to a node that the fork runs again
            checkpoint_id = head.checkpoint_id
        target = await self._load(checkpoint_id, logs=False)
        host, runs = self._host, self._host.need_runs()
        found = await effects_behind(runs.store, head, target)
        choices = resolve_choices(found, effects, what, allowed=("reuse", "rerun"))
        await self._plan(target)  # a missing version is refused before the new thread is there
        new_id = new_id or host.ids.new_id()
        facts = msgspec.structs.replace(target.row.facts, status="stopped", run_id=None, updated_at=host.clock.now_ms())
        assert checkpoint_id is not None
        await runs.store.fork(checkpoint_id, self._id, new_id, number=host.new_lineage(), facts=facts)
        if (share := host.services.get("share_uploads")) is not None:
            await share(self._id, new_id)
        async with Taking(host, runs, await runs.take(new_id, create=False)) as taking:
            await self._commit(runs, taking.row, target, self._moved("fork", found, choices, by), None)
        return new_id

    async def edit(self, edit: Edit, checkpoint_id: str | None, effects: Choices, cancel: bool, by: By) -> str:
        """See `Thread.edit`."""
        target = await self._load(checkpoint_id)
        await self.check_free(cancel)
        await self._check(edit, target)
        edit = await self._with_bytes(edit, target)

        def behind(head: Loaded) -> Loaded:
            return _without_edited(head if checkpoint_id is None else target, edit)

        runs, row, choices, found = await self._ready("edit", behind, effects, cancel, asker_of(by))
        async with Taking(self._host, runs, row):
            # Read again now that the thread is taken: the state may have changed since the check.
            if checkpoint_id is None:
                target = await runs.load_head(row)
            waits = checkpoint_id is None and target.machine.status == "waiting"
            tick = self._host.tick(
                Edited,
                values=edit.values,
                same_run=waits,
                as_node=edit.as_node,
                frame=frame_at(target.machine, edit),
                replace=edit.replace,
                reuse=reuse_rows(found, choices),
                facts=_facts(choices, by, edit.as_node),
                starter=asker_of(by),
            )
            begins = self._branch(target)
            return await self._commit(runs, row, target, tick, begins, goes_on=waits)

    async def _with_bytes(self, edit: Edit, target: Loaded) -> Edit:
        """The edit with the bytes that its messages name and the target lacks, if the thread has them at its head."""
        if not names_bytes(edit.values):
            return edit
        head, store = await self._load(), self._host.need_runs().store
        known = stored_media(target.machine)
        values = await with_bytes(store, head.chain, head.machine, dict(edit.values), known)
        return msgspec.structs.replace(edit, values=values)

    async def check_free(self, cancel: bool) -> None:
        """Raises `ThreadBusy` when a run drives the thread and is not to be cancelled.

        It comes before whatever the caller could correct or choose: that is asked only of a request which can be served, and
        at the state that it will find.
        """
        runs = await self._host.open_runs()
        if cancel:
            return
        if (live := runs.by_thread.get(self._id)) is not None:
            raise live.busy("or pass cancel")
        if runs.time.source is not None:  # a lease is over by the store's clock, not by what was read of it last
            await runs.time.refresh()
        row = await runs.store.thread(self._id)
        # What this process still owes to the store is given back by `take`.
        if row is not None and row.owner != runs.owner and runs.is_driven(row):
            now = runs.time.now_ms()
            raise busy(self._id, min(row.lease_until, now + ASK_AGAIN_MS), now)

    async def _check(self, edit: Edit, target: Loaded) -> None:
        """Refuses an edit that does not fit, before a run is cancelled for it or an effect taken back."""
        if unknown := [key for key in edit.replace if key not in edit.values]:
            raise StateError(
                f"replace names {', '.join(map(repr, unknown))}, for which the edit gives no value; it gives "
                f"{', '.join(edit.values) or 'none'}",
                code="invalid_input",
            )
        tick = Edited(
            id="",
            at=target.machine.last_at,
            values=edit.values,
            same_run=True,
            as_node=edit.as_node,
            frame=frame_at(target.machine, edit),
            replace=edit.replace,
        )
        # The result is dropped: advancing the pure core is the check.
        advance(await self._plan(target), target.machine, tick)

    # --- parts

    async def _plan(self, target: Loaded) -> Plan:
        """The plan of the version that the thread had there."""
        return await self._host.documents.of(target.machine, target.row.facts.document)

    async def _ready(
        self, what: str, target_of: Callable[[Loaded], Loaded], effects: Choices, cancel: bool, starter: Starter | None
    ) -> tuple[LiveRuns, ThreadRow, dict[str, Choice], list[Effect]]:
        """The thread, taken, with a choice for every effect; the effects chosen for `undo` are undone.

        Args:
            target_of: where the thread goes, from its head as it is: an edit of the head goes with it.
            starter: who asks for it.
        """
        runs = self._host.need_runs()
        head = await self._load(logs=False)
        found = await effects_behind(runs.store, head, target_of(head))
        choices = resolve_choices(found, effects, what, CHOICES)
        await self._preempt(runs, cancel)
        row = await runs.take(self._id, create=False)
        try:
            # Another run may have moved the head before the take: effects are judged anew, at the head that is now
            # fixed.
            if row.head != head.row.head:
                head = await self._load(logs=False)
                found = await effects_behind(runs.store, head, target_of(head))
                choices = resolve_choices(found, effects, what, CHOICES)
            if undone := [effect for effect in found if choices.get(effect.id) == "undo"]:
                row = await undo_effects(self._host, runs, row, await self._load(), undone, starter)
        except BaseException:
            await runs.store.release(self._id, row.fence)
            runs.forget(self._id)
            raise
        return runs, row, choices, found

    async def _preempt(self, runs: LiveRuns, cancel: bool) -> None:
        if cancel:
            await runs.preempt(self._id)
        elif (live := runs.by_thread.get(self._id)) is not None:
            raise live.busy("or pass cancel")

    def _branch(self, target: Loaded) -> Lineage:
        parent, cut = target.chain[-1] if target.chain else (None, 0)
        return Lineage(number=self._host.new_lineage(), thread_id=self._id, parent=parent, cut=cut)

    def _moved(self, source: str, found: Sequence[Effect], choices: Mapping[str, Choice], by: By) -> Moved:
        reuse, facts = reuse_rows(found, choices), _facts(choices, by)
        ids, clock, starter = self._host.ids, self._host.clock, asker_of(by)
        return Moved(id=ids.new_id(), at=clock.now_ms(), source=source, reuse=reuse, facts=facts, starter=starter)

    async def _commit(
        self,
        runs: LiveRuns,
        row: ThreadRow,
        target: Loaded,
        tick: Moved | Edited,
        begins: Lineage | None,
        *,
        goes_on: bool = False,
    ) -> str:
        """One commit of its own, outside any run: its events start a log that the next run goes on with.

        Args:
            goes_on: the run that waits stays the same, and its log goes on.
        """
        plan = await self._host.documents.of(target.machine, row.facts.document)
        facts = msgspec.structs.replace(row.facts, document=plan.digest)
        if isinstance(tick, Moved):  # no snapshot here: the lists were not read
            target = msgspec.structs.replace(target, bytes_since=0)
        # What was open at the head is issued anew or was opened after the target: none of it can be answered any more.
        left = [i.interrupt_id for i in await runs.store.open_interrupts(thread_id=row.thread_id, limit=1 << 62)]
        journal = ThreadJournal(runs.store, row, facts, loaded=target, begins=begins, closes=left)
        executor = make_executor(self._host, plan, target.machine, journal, seq=target.seq if goes_on else 0)
        if goes_on:
            executor.restore_log(list(target.pending))
        executor.feed(tick)
        await executor.flush()
        await journal.release()
        # The hot copy stands at the head before this commit.
        runs.forget(row.thread_id)
        return executor.checkpoint_id or ""


def frame_at(machine: Machine, edit: Edit) -> int:
    """The number of the frame that an edit means.

    Raises:
        StateError: the thread has no state yet, no frame of this path is open (a branch that has ended is not), or several are and
            `as_node` may mean any.
    """
    if not machine.frames:  # where a rollback has left the time before the first input
        raise StateError(
            "there is no state to edit: at this checkpoint the thread is as before its first input; run it first",
            code="invalid_input",
        )
    open_ = {frame.path: number for number, frame in machine.frames.items()}
    listed = ", ".join(f"{path!r}" for path in open_)
    if edit.path is None:
        if edit.as_node is not None and len(open_) > 1:
            raise StateError(
                f"{len(open_)} frames are open, so {edit.as_node!r} needs the path of its frame; "
                f"name one ('' is the root): {listed}",
                code="invalid_input",
                paths=list(open_),
            )
        return ROOT
    if edit.path not in open_:
        ended = any(frame.path == edit.path for frame in all_frames(machine))
        raise StateError(
            f"{f'branch {edit.path!r} has ended' if ended else f'no frame {edit.path!r} is open'}; "
            f"open are ('' is the root): {listed}",
            code="invalid_input",
            paths=list(open_),
        )
    return open_[edit.path]


def _without_edited(target: Loaded, edit: Edit) -> Loaded:
    """The thread without the unfinished frames that the edit treats as finished: they do not run again."""
    if edit.as_node is None:
        return target
    frames = spared(target.machine, frame_at(target.machine, edit))
    table = {number: frame for number, frame in target.machine.frames.items() if number not in frames}
    return msgspec.structs.replace(target, machine=msgspec.structs.replace(target.machine, frames=table))


def _facts(choices: Mapping[str, Choice], by: By, as_node: str | None = None) -> dict[str, Any] | None:
    """What the checkpoint records about itself: by whom, as which node, and the choices for effects."""
    facts: dict[str, Any] = {}
    if as_node is not None:
        facts["asNode"] = as_node
    if by is not None:
        facts["by"] = name_of(by)
    if choices:
        facts["effects"] = dict(choices)
    return facts or None
