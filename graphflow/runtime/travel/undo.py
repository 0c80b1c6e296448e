"""Taking write effects back: each undoing is a recorded write of its own, so it happens once (E8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.capabilities import Starter, narrowed
from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.loading import Loaded, load_thread
from graphflow.checkpoints.media.large_bytes import with_all_bytes
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import GraphflowError, error_dict, text_of
from graphflow.excerpts import count
from graphflow.graph.core.immutable import digest_of, freeze, thaw
from graphflow.graph.core.machine import ROOT, Operation, all_frames
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.ticks import OperationRecorded
from graphflow.graph.core.transition import advance
from graphflow.graph.engine.suspension import is_cut_off
from graphflow.messages import AIMessage
from graphflow.runtime.history.effects import UNDO, Effect, read_body, result_of
from graphflow.runtime.runs.live_runs import LiveRuns
from graphflow.runtime.runs.run_host import RunHost

PAGE = 64
"""Records that are read at once while the checkpoint before an effect is looked for."""


async def undo_effects(
    host: RunHost,
    runs: LiveRuns,
    row: ThreadRow,
    head: Loaded,
    effects: Sequence[Effect],
    starter: Starter | None,
) -> ThreadRow:
    """Takes the effects back, the newest first, and returns the thread's row after that.

    Args:
        row: the thread, taken.
        head: the thread at its head.
        starter: who wants them undone: a tool that does it needs capabilities that both this person and who started the
            run have.

    Raises:
        GraphflowError: `undo_failed`; what was taken back before it stays so, and nothing else has changed.
    """
    plan = await host.documents.pinned(row.facts.document)
    # `keep`: the rewind or edit commits right after this, so the thread stays taken.
    journal = ThreadJournal(runs.store, row, row.facts, loaded=head, keep=True)
    undoing = Undoing(host, plan, journal, head, starter)
    async with runs.leases.kept(runs.registry.pause_s):
        for index, effect in enumerate(reversed(effects)):
            try:
                await undoing.undo(effect)
            except Exception as error:
                left = len(effects) - index
                undone = [done.id for done in reversed(effects)][:index]
                raise _failure(effect, undone, [e.id for e in effects[:left]], error) from error
    return msgspec.structs.replace(row, head=journal.head)


class Undoing:
    """The undoing of effects of one thread, recorded at its head."""

    def __init__(
        self, host: RunHost, plan: Plan, journal: ThreadJournal, head: Loaded, starter: Starter | None
    ) -> None:
        self.host, self.plan, self.journal, self.machine = host, plan, journal, head.machine
        self.starter = narrowed(head.machine.starter, starter)
        self._seq, self._pending, self._chain = head.seq, list(head.pending), head.chain

    async def undo(self, effect: Effect) -> None:
        """Runs what takes the effect back with `{arguments, result, idempotencyKey}`.

        Raises:
            GraphflowError: it failed, or is not registered here.
        """
        word, _, name = (effect.undo or "").partition(":")
        given = {
            "arguments": await self._arguments(effect),
            "result": await self._result(effect),
            "idempotencyKey": effect.idempotency_key,
            **await self._kept(effect),
        }
        ctx = UndoContext(self, effect)
        if word == "tool":
            approvals = [each.document.approval for each in self.plan.graphs.values()]
            result = await self.host.services["tool"].undo(name, given, ctx, key=UNDO + effect.id, approvals=approvals)
            if result.error is not None:
                # An error result is a definite failure, so the intent goes: the effect may be undone again.
                await ctx.forget()
                raise GraphflowError(result.error.message, code="tool_error", toolError=result.error.code)
        else:
            run = self.host.documents.function(effect.undo or "", self.plan) if word == "fn" else None
            if run is None:
                raise GraphflowError(f"no {effect.undo!r} is registered here", code="tool_error")
            await ctx.step(UNDO + effect.id, lambda: run(given, ctx))
        await ctx.settle()

    async def _arguments(self, effect: Effect) -> Any:
        """The arguments of the write: kept with its intent, or in the call that the messages held then."""
        store = self.journal.store
        body = await read_body(store, effect.thread_id, effect.intent)
        kept = (body.facts or {}).get("arguments") if body is not None else None
        if kept is None and effect.kind == "tool":
            return await self._called(effect)
        return kept["arguments"] if effect.kind == "tool" and kept is not None else thaw(kept)

    async def _called(self, effect: Effect) -> Any:
        lineage, ordinal = effect.intent
        store, upto = self.journal.store, ordinal - 1
        at: str | None = None
        while at is None and upto > 0:  # records of operations, of branches side by side too, may lie between
            before = await store.read_records(effect.thread_id, lineage=lineage, after=max(0, upto - PAGE), upto=upto)
            at = next((record.id for record in reversed(before) if record.checkpoint), None)
            upto -= PAGE
        loaded = None if at is None else await load_thread(store, effect.thread_id, at)
        frames = all_frames(loaded.machine if loaded is not None else self.machine)
        for frame in sorted(
            frames, key=lambda frame: frame.path != effect.path
        ):  # ids of calls are unique in a frame only
            for message in reversed(frame.state.get("messages", ())):
                if isinstance(message, AIMessage):
                    for call in message.tool_calls:
                        if call.id == effect.key:
                            return msgspec.json.decode(call.arguments or "{}")
        return None

    async def _kept(self, effect: Effect) -> dict[str, Any]:
        """What the write kept before it acted, with its bytes; only tools keep anything."""
        store = self.journal.store
        body = await read_body(store, effect.thread_id, effect.intent)
        for change in () if body is None else body.patch.frames.values():
            intent = ((change.operations if change is not None else None) or {}).get(effect.key)
            if intent is not None and intent.state == "intent" and intent.result is not None:
                return {"kept": await with_all_bytes(store, self._chain, thaw(intent.result))}
        return {}

    async def _result(self, effect: Effect) -> Any:
        operation = await result_of(self.journal.store, effect)
        return None if operation is None else thaw(operation.result)

    async def record(self, key: str, operation: Operation | None, notes: dict[str, Any] | None = None) -> None:
        """Makes a step of an undoing durable, with what its tool notes."""
        tick = self.host.tick(OperationRecorded, frame=ROOT, key=key, operation=operation, kept=notes)
        machine, commands = advance(self.plan, self.machine, tick)
        prepared = self.journal.prepare(commands[0])  # type: ignore[arg-type] # the commit comes first
        if prepared.media:
            tick, taken = self.journal.without_bytes(tick, self.machine)
            machine, commands = advance(self.plan, self.machine, tick)
            prepared = self.journal.prepare(commands[0], taken)  # type: ignore[arg-type]
        pending, self._pending = self._pending, []
        await self.journal.write(prepared, pending, self._seq, 0, release=False)
        self.machine = machine


class UndoContext:
    """The context of a tool that takes an effect back: steps are recorded, events go nowhere, and it can't ask."""

    def __init__(self, undoing: Undoing, effect: Effect) -> None:
        self._undoing, self._effect = undoing, effect
        self.machine = msgspec.structs.replace(undoing.machine, starter=undoing.starter)
        """Says what the tool may do."""
        self.thread_id = undoing.journal.row.thread_id
        self.run_id = effect.run_id
        self.now_ms = undoing.host.clock.now_ms
        self._begun = False
        self._notes: dict[str, Any] = {}

    @property
    def kept(self) -> Mapping[str, Any]:
        """What tools have noted about the thread."""
        return self.machine.kept

    def keep(self, notes: Mapping[str, Any]) -> None:
        """Kept with the outcome."""
        self._notes |= {key: freeze(note) for key, note in notes.items()}

    def idempotency_key(self, key: str) -> str:
        """The same however often the undoing of this effect is tried."""
        return digest_of((self._effect.idempotency_key, "undo"))

    def charge_tool_call(self, key: str | None = None, *, counted: bool = False) -> None:
        """Undoing is outside every run's budget."""

    def call_key(self, call_id: str) -> str:
        return call_id

    async def step(
        self, name: str, fn: Callable[[], Awaitable[Any]], *, idempotent: bool = False, arguments: Any = None, **_: Any
    ) -> Any:
        """Runs it after a durable intent; `settle` or `forget` then records the outcome."""
        await self._undoing.record(name, Operation("undo", self._effect.digest, "write", "intent", None, idempotent))
        self._begun = True
        try:
            return await fn()
        except BaseException as error:
            # After a cut-off nobody knows whether it was undone; the intent stays, as for any write (E6).
            if not is_cut_off(error):
                await self.forget()
            raise

    async def settle(self) -> None:
        """It was taken back."""
        done = Operation("undo", self._effect.digest, "write", "done")
        await self._undoing.record(UNDO + self._effect.id, done, self._notes or None)

    async def forget(self) -> None:
        """It surely failed: nothing was taken back."""
        if self._begun:
            self._begun = False
            await self._undoing.record(UNDO + self._effect.id, None)

    async def ask(self, message: str, **_: Any) -> Any:
        raise GraphflowError(f"an undoing can't ask anybody: {message}", code="tool_error")

    async def tool_progress(self, call_id: str, data: Any) -> None:
        """Nobody listens."""

    async def tool_result(self, call_id: str, text: str, action: bool = False, param: Any = None) -> None:
        """Nobody listens."""

    def source(self, facts: dict[str, Any]) -> None:
        """Nobody listens."""


def _failure(effect: Effect, undone: list[str], left: list[str], error: Exception) -> GraphflowError:
    text = f"{effect.undo!r} could not take back {effect.key!r} of node {effect.node!r}: {text_of(error)}"
    if is_cut_off(error):
        text += "; whether it did is unknown"
    return GraphflowError(
        f"{text}; the thread stays where it is, and {count(len(undone), 'effect')} taken back before",
        code="undo_failed",
        effect=effect.id,
        undone=undone,
        left=left,
        error=error_dict(error),
    )


__all__ = ["UndoContext", "Undoing", "undo_effects"]
