"""A thread's past and its time travel: history, state at any checkpoint, diff, rewind, fork, edit (spec 2.5, E8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from graphflow.arguments import checked
from graphflow.capabilities import By
from graphflow.checkpoints.bulk_load import load_machines
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.errors import unknown_thread
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.media.large_bytes import read_bytes, stored_media
from graphflow.checkpoints.rows import Keep, Pruned
from graphflow.content import MediaPart, bytes_in
from graphflow.errors import CheckpointNotFound, StateError, ThreadBusy
from graphflow.graph.engine.ports import Logged
from graphflow.runtime.history.diff import diff
from graphflow.runtime.history.effects import Choices, Effect, effects_behind, kept_places
from graphflow.runtime.history.stored_events import branch_of_run, pruned_log, stored_log
from graphflow.runtime.history.thread_states import CheckpointInfo, ThreadState, checkpoint_info, state_at
from graphflow.runtime.queue_codec import Signal, decode_queued
from graphflow.runtime.result import RunResult, result_from
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.live_runs import LiveRuns
from graphflow.runtime.runs.resume import cancel
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.signals import deliver
from graphflow.runtime.sync import blocking
from graphflow.runtime.thread_about import AboutThread, write_about
from graphflow.runtime.travel.rewind_fork_edit import Edit, Travel

if TYPE_CHECKING:
    from graphflow.runtime.history.blame import Blame
    from graphflow.runtime.history.cost import Cost
    from graphflow.runtime.history.messages import MessageInfo
    from graphflow.runtime.history.why import Why
    from graphflow.runtime.runs.thread_list import ThreadInfo
    from graphflow.runtime.travel.migrate import MigrationReport


REPLAY_PAGE = 200
"""Checkpoints that are listed at once while the one to replay from is looked for."""


class Thread:
    """One thread of a compiled graph. Reads work while a run drives it; rewinds, edits and migrations need it to be free."""

    def __init__(self, host: RunHost, thread_id: str) -> None:
        self._host = host
        self.id = thread_id

    async def _store(self) -> Checkpointer:
        return (await self._host.open_runs()).store

    async def _load(self, checkpoint_id: str | None = None, *, logs: bool = True) -> Loaded:
        return await self._host.load(self.id, checkpoint_id, logs=logs)

    # --- reading

    @checked
    async def history(
        self, limit: int | None = None, *, before: str | None = None, all_lineages: bool = False
    ) -> list[CheckpointInfo]:
        """Checkpoints newest first: of the present branch, or of the whole tree."""
        store = await self._store()
        if await store.thread(self.id) is None:
            raise unknown_thread(self.id)
        rows = await store.list_checkpoints(self.id, before=before, limit=limit, all_lineages=all_lineages)
        return [checkpoint_info(row) for row in rows]

    def __repr__(self) -> str:
        agent = self._host.agent_key
        live = "; runs in this process" if self._host.live(self.id) is not None else ""
        return f"<Thread {self.id!r}{f' of {agent}' if agent else ''}{live}: await .state(), .history(), .result()>"

    @checked
    async def tree(self) -> list[CheckpointInfo]:
        """Every checkpoint of every branch, newest first."""
        return await self.history(all_lineages=True)

    @checked
    async def state(self, checkpoint_id: str | None = None) -> ThreadState:
        """The thread at its head, or at a checkpoint.

        Raises:
            ThreadNotFound, CheckpointNotFound
        """
        runs = await self._host.open_runs()
        loaded = await self._load(checkpoint_id)
        return state_at(loaded.machine, loaded.checkpoint_id, driven=runs.is_driven(loaded.row))

    @checked
    async def states(
        self, limit: int | None = None, *, before: str | None = None, all_lineages: bool = False
    ) -> list[ThreadState]:
        """The thread at every checkpoint that `history` names for these arguments, newest first.

        It is read in one pass, and what the states have in common they share: much less than `state` for each of them costs.

        Raises:
            ThreadNotFound, CheckpointNotFound
        """
        runs = await self._host.open_runs()
        store = runs.store
        row = await store.thread(self.id)
        if row is None:
            raise unknown_thread(self.id)
        driven = runs.is_driven(row)
        listed = await store.list_checkpoints(self.id, before=before, limit=limit, all_lineages=all_lineages)
        machines = await load_machines(store, self.id, listed)
        return [state_at(machines[point.id], point.id, driven=driven) for point in listed if point.id in machines]

    @checked
    async def result(self) -> RunResult:
        """The outcome of the newest run, as `run` returned it; so far, of one that is `running` or `stopped`."""
        runs = await self._host.open_runs()
        loaded = await self._load()
        plan = await self._host.documents.pinned(loaded.row.facts.document)
        result = result_from(plan, loaded.machine, self.id, loaded.checkpoint_id)
        if result.status == "stopped" and runs.is_driven(loaded.row):
            return msgspec.structs.replace(result, status="running")
        return result

    @checked
    async def diff(self, a: str, b: str, *, other: Thread | None = None) -> dict[str, list[dict[str, Any]]]:
        """What changed from checkpoint `a` to `b`, also across branches: JSON Patch per state key.

        Keys of open subgraphs and branches have their frame's path before them: `sub#1/draft`.

        Args:
            other: the thread of `b`, a fork for instance; default this one.
        """
        return await diff((await self._load(a)).machine, (await (other or self)._load(b)).machine)

    @checked
    async def blame(self, key: str, checkpoint_id: str | None = None, *, path: str = "") -> Blame:
        """What wrote a value: `state.draft`, `state.messages[3]`, `state.plan.steps[0].title`.

        Args:
            checkpoint_id: the value that the state had there; default the head's.
            path: the frame, of those that were open there, branches that had ended included; default the root.

        Raises:
            StateError: no such frame, key or part.
        """
        from graphflow.runtime.history.blame import blame

        loaded = await self._load(checkpoint_id)
        plan = await self._host.documents.of(loaded.machine, loaded.row.facts.document)
        return await blame(await self._store(), plan, loaded, key, path)

    @checked
    async def why(self, checkpoint_id: str | None = None) -> Why:
        """Why the thread went on from a checkpoint as it did: which condition, with which values, took the edge."""
        from graphflow.runtime.history.why import why

        loaded = await self._load(checkpoint_id)
        if checkpoint_id is None and loaded.checkpoint_id is not None:
            loaded = await self._load(loaded.checkpoint_id)  # a record without a checkpoint led nowhere
        plan = await self._host.documents.of(loaded.machine, loaded.row.facts.document)
        return await why(await self._store(), plan, loaded)

    @checked
    async def cost(self) -> Cost:
        """What the present branch has used, by run, node and model."""
        from graphflow.runtime.history.cost import cost_of

        return await cost_of(await self._store(), await self._load(logs=False))

    @checked
    async def replay_point(self, until: str | None = None) -> CheckpointInfo:
        """The checkpoint from which `app.replay` runs again; see there."""
        from graphflow.runtime.history.replay import moment_of

        loaded = await self._load(logs=False)
        found = await moment_of(await self._store(), self.id, loaded.chain, until)
        before: str | None = None
        while page := await self.history(REPLAY_PAGE, before=before):
            for row in page:
                if row.id == found:
                    return row
            before = page[-1].id
        raise CheckpointNotFound(
            f"thread {self.id!r} can't be replayed from {until or 'the beginning of its newest run'}: that checkpoint was"
            " pruned; those that are left are listed by thread.history()",
            threadId=self.id,
            pruned=True,
        )

    @checked
    async def events(self, run_id: str | None = None, *, whole: bool = True) -> list[Logged]:
        """The stored log of a run (default: the newest): blocks as snapshots, numbered as they were sent (E1).

        Args:
            whole: False gives what is left of a log that was pruned.

        Raises:
            CheckpointNotFound: the run's log was pruned, or its beginning was; `detail.pruned` is true.
        """
        loaded = await self._load()
        run_id = run_id or loaded.machine.run_id
        store = await self._store()
        chain = await branch_of_run(store, self.id, loaded.chain, run_id)
        log = await stored_log(store, self.id, chain, run_id)
        if log.pruned and whole:
            raise pruned_log(self.id, run_id)
        return log.events

    @checked
    async def messages(self, limit: int = 50, *, cursor: str | None = None) -> tuple[list[MessageInfo], str | None]:
        """What was said and answered on the present branch, newest first, and the cursor of the next page, if there is one.

        Raises:
            GraphflowError: `invalid_input` for an invalid cursor.
        """
        from graphflow.runtime.history.messages import messages_page

        store = await self._store()
        if await store.thread(self.id) is None:
            raise unknown_thread(self.id)
        return await messages_page(store, self.id, limit=limit, cursor=cursor)

    @checked
    async def part_bytes(self, part: MediaPart, checkpoint_id: str | None = None) -> bytes | None:
        """The bytes of a message's part, stored outside the message where they are many; None if the thread has none.

        Args:
            checkpoint_id: where the message is in the state; default the head.
        """
        if (name := part.blob) is None or part.data is not None:
            return bytes_in(part)
        loaded = await self._load(checkpoint_id)
        number = stored_media(loaded.machine).get(name)
        return None if number is None else await read_bytes(await self._store(), loaded.chain, name, number)

    # --- changing

    @checked
    async def rewind(self, checkpoint_id: str, *, effects: Choices = None, cancel: bool = False, by: By = None) -> str:
        """Commits a new head that continues from the checkpoint; later checkpoints stay in the tree. Its id.

        Args:
            effects: how to treat the `write` effects behind it: `reuse` their results where the same calls come
                again, `rerun` them, `undo` them now; one word for all, or words by effect id, `*` for the rest.
            cancel: end a run that drives the thread first.
            by: who asked for it.

        Raises:
            EffectsNeedChoice: `write` effects lie behind it and have no choice; nothing has changed.
            ThreadBusy: a run drives the thread and `cancel` is false.
            GraphflowError: `undo_failed`.
        """
        return await Travel(self._host, self.id).rewind(checkpoint_id, effects, cancel, by)

    @checked
    async def edit(
        self,
        values: Mapping[str, Any],
        as_node: str | None = None,
        *,
        path: str | None = None,
        replace: Iterable[str] = (),
        checkpoint_id: str | None = None,
        effects: Choices = None,
        cancel: bool = False,
        by: By = None,
    ) -> str:
        """Commits new values through the reducers, as if `as_node` had written them; the new checkpoint's id.

        With `as_node` the cursor moves to where that node's routes lead, and questions of what that ends are closed. Keys
        in `replace` are set, not reduced. Nothing runs until the thread is resumed.

        Args:
            path: the frame whose state it is, as `state().frames` names it; default the root. `""` names the root where
                several frames are open and `as_node` could mean any.
            checkpoint_id: edit the state of that checkpoint instead of the head's; as with `rewind`, what came later stays.
            effects, cancel, by: as with `rewind`.

        Raises:
            StateError: a key or value outside the schema, an unknown path or node; nothing has changed.
        """
        edit = Edit(dict(values), as_node, path, tuple(replace))
        return await Travel(self._host, self.id).edit(edit, checkpoint_id, effects, cancel, by)

    @checked
    async def fork(
        self,
        checkpoint_id: str | None = None,
        *,
        thread_id: str | None = None,
        effects: Choices = None,
        by: By = None,
    ) -> Thread:
        """A new thread that shares the past up to the checkpoint; O(1) in the history's length (E8).

        Args:
            effects: `reuse` or `rerun`, as with `rewind`.
        """
        forked = await Travel(self._host, self.id).fork(checkpoint_id, thread_id, effects, by)
        return Thread(self._host, forked)

    @checked
    async def update(self, **changes: Unpack[AboutThread]) -> ThreadInfo:
        """Changes the thread's title and metadata, also while a run drives it; returns the thread as `app.threads` lists it.

        Metadata are a small JSON object, by which `app.threads` finds threads: at most 64 keys and 8 KiB. Keys that are given
        replace those of the same name, or remove them with None; the others stay.

        Args:
            title: 1 to 200 printable characters; None gives the automatic title back.
            metadata: keys with their new values; None removes all.

        Raises:
            ThreadNotFound: no such thread.
            GraphflowError: `invalid_input`; nothing has changed.
        """
        from graphflow.runtime.runs.thread_list import thread_info

        runs = await self._host.open_runs()
        return thread_info(runs, await write_about(runs.store, self.id, changes, now=self._host.clock.now_ms()))

    @checked
    async def effects(self, checkpoint_id: str) -> list[Effect]:
        """The `write` effects that going back to the checkpoint would pass over, oldest first."""
        store = await self._store()
        return await effects_behind(store, await self._load(logs=False), await self._load(checkpoint_id, logs=False))

    # --- signals and the queue

    @checked
    async def signal(self, name: str, payload: Any = None) -> bool:
        """Wakes the oldest `wait` node of this name and continues; returns whether there was one.

        Else the signal is kept for a `wait` that the run still comes to; new input forgets it. The run goes on detached in
        this process, or in the one that drives it, which processes the signal within a second.

        Raises:
            GraphflowError: `nothing_to_resume` when the thread has no unfinished run.
        """
        return await deliver(self._host, self.id, Signal(name=name, payload=payload), hold_ms=0) is not None

    @checked
    async def queue(self) -> list[RunRequest]:
        """The inputs that wait for their turn, in order."""
        store = await self._store()
        return [decode_queued(entry) for entry in await store.queue(self.id, kind="input", limit=10_000)]

    @checked
    async def withdraw(self, run_id: str) -> bool:
        """Removes an input from the queue before its run begins; False if it is not in the queue."""
        store = await self._store()
        for entry in await store.queue(self.id, kind="input", limit=10_000):
            if decode_queued(entry).run_id == run_id:
                return await store.withdraw(self.id, entry.position, run_id=run_id)
        return False

    @checked
    async def migrate(
        self, names: Mapping[str, str] | None = None, *, dry_run: bool = False, by: By = None
    ) -> MigrationReport:
        """Moves the thread to the newest version of this graph, as one checkpoint; nothing runs until it is resumed.

        A thread otherwise goes on under the version that it has begun. Frames stay where they stand, new state keys begin at
        their default, and open questions are asked anew: an answer to an old one is stale.

        Args:
            names: old node name → new one, for nodes that were renamed.
            dry_run: only reports what would happen, problems included.
            by: who asked for it.

        Raises:
            GraphflowError: `migration_refused`, with every problem; nothing has changed.
            ThreadBusy: a run drives the thread.
        """
        from graphflow.runtime.travel.migrate import Migrator

        migrator = Migrator(self._host, self.id)
        return await (migrator.plan(names or {}) if dry_run else migrator.migrate(names or {}, by))

    async def _free(self) -> LiveRuns:
        """The live runs, once it is clear that no run drives the thread; the hot copy of the thread is dropped."""
        runs = await self._host.open_runs()
        row = await runs.store.thread(self.id)
        live = runs.by_thread.get(self.id)
        if live is not None or (row is not None and runs.is_driven(row)):
            by = f"run {live.run_id}" if live is not None else "another process"
            raise ThreadBusy(f"{by} drives thread {self.id!r}; cancel it first", retryAfterMs=1000)
        # The store is about to change, so the next run must not start from the hot copy.
        runs.forget(self.id)
        return runs

    @checked
    async def delete(self) -> None:
        """Removes the thread and all that no other thread shares.

        Raises:
            ThreadBusy: a run drives the thread.
        """
        runs = await self._free()
        await runs.store.delete_thread(self.id)

    @checked
    async def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Removes one checkpoint from the history; later ones lose nothing. Deleting the last one removes the thread.

        Raises:
            ThreadNotFound, CheckpointNotFound: nothing to delete.
            ThreadBusy: a run drives the thread.
            GraphflowError: `invalid_input` when a thread stands on it, an open question belongs to it, or another thread
                began it.
        """
        runs = await self._free()
        await runs.store.delete_checkpoint(self.id, checkpoint_id)

    @checked
    async def prune(
        self, *, newest: int | None = None, since: int | None = None, dry_run: bool = False
    ) -> Pruned:  # fmt: skip
        """Removes old checkpoints, and all that only they needed; safe while the thread runs.

        The head, checkpoints of open questions and fork points of other threads stay, and with them the records of
        `write` effects that a rewind to what is left would pass over. A run whose records went has no log any more.

        Args:
            newest: keep so many of the newest, of all branches together.
            since: keep what was made at this moment or later, epoch ms. Given both, either suffices.
            dry_run: only reports what would be removed.

        Raises:
            GraphflowError: `invalid_input` when nothing says what to keep.
        """
        loaded = await self._load(logs=False)
        keep = Keep(newest=newest, since=since, records=kept_places(loaded.machine))
        return await (await self._store()).prune(self.id, keep, dry_run=dry_run)

    @checked
    async def cancel(self) -> bool:
        """Cancels the run that drives or waits on the thread.

        Returns:
            Whether a run was cancelled: false where there is none, and where it ended by itself first.

        Raises:
            ThreadBusy: the process that drives it does not respond.
        """
        return await cancel(self._host, self.id)

    # sync twins

    history_sync = blocking(history)
    tree_sync = blocking(tree)
    state_sync = blocking(state)
    states_sync = blocking(states)
    result_sync = blocking(result)
    diff_sync = blocking(diff)
    blame_sync = blocking(blame)
    why_sync = blocking(why)
    cost_sync = blocking(cost)
    replay_point_sync = blocking(replay_point)
    messages_sync = blocking(messages)
    events_sync = blocking(events)
    rewind_sync = blocking(rewind)
    edit_sync = blocking(edit)
    fork_sync = blocking(fork)
    effects_sync = blocking(effects)
    update_sync = blocking(update)
    queue_sync = blocking(queue)
    withdraw_sync = blocking(withdraw)
    migrate_sync = blocking(migrate)
    delete_sync = blocking(delete)
    delete_checkpoint_sync = blocking(delete_checkpoint)
    prune_sync = blocking(prune)
    cancel_sync = blocking(cancel)
    part_bytes_sync = blocking(part_bytes)


__all__ = ["CheckpointInfo", "StateError", "Thread", "ThreadState"]
