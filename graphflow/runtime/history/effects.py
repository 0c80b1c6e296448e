"""Write effects that a rewind, fork, edit or re-run would pass over: which ones, and the choice for each (E8).

An effect is found in the journal: its intent is a record of its own, which says where it was done, with what, and what
takes it back; its result is in a later record, or in the record of the node that it ended (E5, E6).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.record_decoder import RecordBody, decode_body, decode_meta
from graphflow.checkpoints.rows import Record, Span
from graphflow.errors import EffectsNeedChoice, GraphflowError
from graphflow.excerpts import count
from graphflow.graph.core.immutable import digest_of
from graphflow.graph.core.machine import Machine, Operation
from graphflow.graph.definition.old_words import EFFECT_CHOICES

Choice = Literal["reuse", "rerun", "undo", "assume_undone"]
Choices = str | Mapping[str, str] | None
"""One word for all effects, or words by effect id; `*` stands for every other."""
CHOICES = ("reuse", "rerun", "undo")
Chain = Sequence[tuple[int, int]]
UNDO = "undo:"
"""Prefix of the key under which the undoing of an effect is recorded, beside the kind `undo`."""


class Effect(msgspec.Struct, kw_only=True):
    """One write effect of a thread's past."""

    id: str
    """Of the record of its intent."""
    thread_id: str
    run_id: str
    """Run of the thread's input (`Machine.input_run_id`)."""
    path: str
    node: str
    visit: int
    key: str
    kind: str
    digest: str
    at: int
    """Epoch ms."""
    intent: tuple[int, int]
    """(lineage, ordinal) of its record."""
    result: tuple[int, int] | None = None
    """Where its result is; None while nobody knows whether it happened."""
    undo: str | None = None
    """`tool:NAME` or `fn:NAME` that takes it back."""
    undone: Literal["", "done", "unknown"] = ""
    """Whether it was taken back; `unknown` when that was cut off."""

    @property
    def idempotency_key(self) -> str:
        """The key under which it was done (E6)."""
        return digest_of((self.run_id, self.intent[0], self.path, self.node, self.visit, self.key))

    def as_dict(self) -> dict[str, Any]:
        """For people and the wire: what it was, where, and what can be done about it."""
        out: dict[str, Any] = {
            "id": self.id,
            "node": self.node,
            "visit": self.visit,
            "key": self.key,
            "kind": self.kind,
            "outcome": "unknown" if self.result is None else "done",
            "at": self.at,
        }
        optional = {"path": self.path, "digest": self.digest, "undo": self.undo, "undone": self.undone}
        return out | {name: value for name, value in optional.items() if value}


# --- finding them --------------------------------------------------------------------------------


async def effects_behind(store: Checkpointer, head: Loaded, target: Loaded) -> list[Effect]:
    """The write effects that going on from `target` may do again, oldest first.

    Those on the way from it to the head, those of nodes that it left unfinished, and those of an older past whose
    results the head may still reuse. What was taken back already is marked, not left out.
    """
    thread_id = head.row.thread_id
    shared = dict(target.chain)
    way = [Span(lineage, shared.get(lineage, 0), last) for lineage, last in head.chain]
    found = Found(thread_id)
    unfinished = {
        (number, key)
        for number, frame in target.machine.frames.items()
        for key, operation in frame.operations.items()
        if operation.effects == "write"
    }
    if unfinished:
        # The intent of an unfinished write may lie anywhere before the target.
        found.keep(await store.read_effects(thread_id, [Span(lineage, 0, last) for lineage, last in target.chain]))
        found.forget_all_but(unfinished)
    found.keep(await store.read_effects(thread_id, way))
    # From the end of a run nothing goes on by itself, and the next input takes up nothing of an older past.
    rests = head.machine.status == "idle" and tuple(target.chain) == tuple(head.chain)
    # Rows of four only name a place that runs again.
    left = [effect_of(name, row) for name, row in head.machine.reuse.items() if len(row) > 4 and not rests]
    out = [*left, *found.effects.values()]
    return [msgspec.structs.replace(e, undone=found.undone.get(e.id, "")) for e in out]


class Found:
    """The effects that a stretch of the journal records."""

    def __init__(self, thread_id: str) -> None:
        self.effects: dict[str, Effect] = {}
        self.undone: dict[str, Literal["done", "unknown"]] = {}
        """Effect id → how far its undoing came."""
        self._thread_id = thread_id
        self._open: dict[tuple[int, str], str] = {}
        """(frame, key) → the effect that was last done there."""

    def keep(self, records: Iterable[Record]) -> None:
        for record in records:
            body = decode_body(record.data, record.id)
            for number, change in body.patch.frames.items():
                for key, operation in ((change.operations if change is not None else None) or {}).items():
                    self._operation(record, body, number, key, operation)
            for key in (body.facts or {}).get("done", ()):
                self._ended(record, body, key)

    def forget_all_but(self, places: Iterable[tuple[int, str]]) -> None:
        """Only the effects that were last done in these places (frame, key) count."""
        ids = {self._open[place] for place in places if place in self._open}
        self.effects = {name: effect for name, effect in self.effects.items() if name in ids}

    def _operation(self, record: Record, body: RecordBody, number: int, key: str, operation: Operation | None) -> None:
        effect = self.effects.get(self._open.get((number, key), ""))
        if operation is None:
            self.undone.pop(key.removeprefix(UNDO), None)
            if effect is not None:  # it surely failed, or a person had it done again
                del self.effects[effect.id]
        elif operation.kind == "undo":
            if operation.state == "done":
                self.undone[key.removeprefix(UNDO)] = "done"
            # An idempotent undo that was cut off may simply run again: nothing about it is unknown.
            elif not operation.idempotent:
                self.undone[key.removeprefix(UNDO)] = "unknown"
        elif operation.effects == "write":
            place = (record.lineage, record.ordinal)
            # A recorded result without an intent of its own is one that was reused.
            if operation.state == "intent" or effect is None or effect.result is not None:
                effect = self._begun(record, body, number, key, operation)
            if operation.state == "done":
                effect.result = place

    def _begun(self, record: Record, body: RecordBody, number: int, key: str, operation: Operation) -> Effect:
        facts = body.facts or {}
        effect = Effect(
            id=record.id,
            thread_id=self._thread_id,
            run_id=facts.get("origin") or decode_meta(record.meta, record.id).run_id,
            path=facts.get("path", ""),
            node=body.node,
            visit=facts.get("visit", 1),
            key=key,
            kind=operation.kind,
            digest=operation.digest,
            at=body.at,
            intent=(record.lineage, record.ordinal),
            undo=facts.get("undo"),
        )
        before = self.effects.get(self._open.get((number, key), ""))
        if before is not None and before.result is None and _place(before) == _place(effect):
            del self.effects[before.id]  # an idempotent write that was cut off and done again
        self.effects[effect.id] = effect
        self._open[number, key] = effect.id
        return effect

    def _ended(self, record: Record, body: RecordBody, key: str) -> None:
        """A write that ended its node: the node's record has its result."""
        for number in (body.frame, *body.patch.frames):  # the frame may be closed, and its parent gone on
            effect = self.effects.get(self._open.get((number, key), ""))
            if effect is not None and effect.result is None:
                effect.result = (record.lineage, record.ordinal)
                return


def _place(effect: Effect) -> tuple[str, str, int, str]:
    return effect.path, effect.node, effect.visit, effect.key


# --- the choices for them ------------------------------------------------------------------------


def resolve_choices(
    effects: Sequence[Effect], given: Choices, what: str, allowed: Sequence[str] = CHOICES
) -> dict[str, Choice]:
    """Effect id → its choice; none for those that were taken back.

    Raises:
        EffectsNeedChoice: with the list, when an effect has no choice, or none that can be done.
        GraphflowError: `invalid_input` for a word or id that is unknown.
    """
    words = _words(effects, given, what, allowed)
    out: dict[str, Choice] = {}
    missing: list[Effect] = []
    for effect in effects:
        word = words.get(effect.id, words.get("*"))
        if effect.undone == "done" or word == "assume_undone":
            continue
        # `*` must not decide about an undo that was cut off: somebody has to look at it by its id.
        if word is None or (effect.undone == "unknown" and effect.id not in words):
            missing.append(effect)
        else:
            out[effect.id] = word  # type: ignore[assignment] # one of `allowed`
    if missing:
        raise _needs_choice(effects, missing, what, allowed)
    if hopeless := [e for e in effects if out.get(e.id) == "undo" and e.undo is None]:
        raise EffectsNeedChoice(
            f"{_names(hopeless)} can't be undone: neither the tool nor the node declares `undo`; choose otherwise",
            effects=[effect.as_dict() for effect in effects],
        )
    return out


def _words(effects: Sequence[Effect], given: Choices, what: str, allowed: Sequence[str]) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, str | Mapping):
        raise GraphflowError(
            f"effects is {given!r}; give one word for all, or words by effect id: {', '.join(allowed)}",
            code="invalid_input",
        )
    words = {"*": given} if isinstance(given, str) else dict(given)
    known = {effect.id: effect for effect in effects}
    for name, word in words.items():
        settled = name in known and known[name].undone == "unknown" and word == "assume_undone"
        if word not in allowed and not settled:
            now = f"; {word!r} is called {EFFECT_CHOICES[word]!r} now" if word in EFFECT_CHOICES else ""
            text = f"effects is {word!r}; for a {what} it is one of {', '.join(allowed)}{now}"
            raise GraphflowError(text, code="invalid_input")
        if name != "*" and name not in known:
            raise GraphflowError(
                f"effects names {name!r}, which is not a write effect that this {what} passes over",
                code="invalid_input",
            )
    return words


def _needs_choice(
    effects: Sequence[Effect], missing: Sequence[Effect], what: str, allowed: Sequence[str]
) -> EffectsNeedChoice:
    text = f"{_names(missing)} would be passed over by this {what}; choose effects: {', '.join(allowed)}"
    if any(effect.undone == "unknown" for effect in missing):
        text += "; where an undoing was cut off, by its id: undo (again) or assume_undone"
    return EffectsNeedChoice(text, effects=[effect.as_dict() for effect in effects], choices=list(allowed))


def _names(effects: Sequence[Effect]) -> str:
    shown = ", ".join(f"{e.key!r} of {f'{e.path}/{e.node}' if e.path else e.node}" for e in effects[:5])
    return f"{count(len(effects), 'write effect')} ({shown}{', …' if len(effects) > 5 else ''})"


# --- results that are taken up again -------------------------------------------------------------


def reuse_rows(effects: Sequence[Effect], choices: Mapping[str, str]) -> dict[str, Any]:
    """`Machine.reuse`: the effects whose results the new branch reuses, by id.

    Of those that it may do again only the place is there, so that nobody is asked about them.
    """
    if "reuse" not in choices.values():
        return {}
    return {e.id: _row(e) if choices.get(e.id) == "reuse" else [e.path, e.node, e.visit, e.key] for e in effects}


def _row(effect: Effect) -> list[Any]:
    result = list(effect.result) if effect.result is not None else None
    where = [effect.path, effect.node, effect.visit, effect.key, effect.digest]
    return [*where, effect.kind, effect.thread_id, list(effect.intent), result, effect.run_id, effect.at, effect.undo]


def effect_of(name: str, row: Sequence[Any]) -> Effect:
    """The effect behind a row of `Machine.reuse`."""
    path, node, visit, key, digest, kind, thread_id, intent, result, run_id, at, undo = row
    return Effect(
        id=name, thread_id=thread_id, run_id=run_id, path=path, node=node, visit=visit, key=key, kind=kind,
        digest=digest, at=at, intent=tuple(intent), result=None if result is None else tuple(result), undo=undo,
    )  # fmt: skip


def kept_places(machine: Machine) -> tuple[tuple[int, int], ...]:
    """(lineage, ordinal) of the records from which results that the machine may reuse are read."""
    effects = [effect_of(name, row) for name, row in machine.reuse.items() if len(row) > 4]
    return tuple(place for effect in effects for place in (effect.intent, effect.result) if place is not None)


def recalling(store: Checkpointer) -> Callable[[Sequence[Any]], Awaitable[Operation | None]]:
    """What `Context.step` asks for recorded results: a row of `Machine.reuse` → the operation, or None if it is gone."""

    async def recall(row: Sequence[Any]) -> Operation | None:
        return await result_of(store, effect_of("", row))

    return recall


async def result_of(store: Checkpointer, effect: Effect) -> Operation | None:
    """The effect's recorded operation; None when its outcome is unknown or its records are gone."""
    if effect.result is None:
        return None
    body = await read_body(store, effect.thread_id, effect.result)
    if body is None:
        return None
    for change in body.patch.frames.values():
        operation = ((change.operations if change is not None else None) or {}).get(effect.key)
        if operation is not None and operation.state == "done":
            return operation
    done = (body.facts or {}).get("done", {})
    if effect.key not in done:
        return None
    return Operation(effect.kind, effect.digest, "write", "done", done[effect.key])


async def read_body(store: Checkpointer, thread_id: str, place: tuple[int, int]) -> RecordBody | None:
    """One record's content."""
    lineage, ordinal = place
    found = await store.read_records(thread_id, lineage=lineage, after=ordinal - 1, upto=ordinal)
    return decode_body(found[0].data, found[0].id) if found else None


def spared(machine: Machine, frame: int) -> set[int]:
    """Frames whose unfinished nodes do not run again when the frame's node counts as finished."""
    out = {frame}
    for number, other in machine.frames.items():
        if other.parent in out:
            out.add(number)
    return out
