"""`StateClass`: the class that declares a graph's state, for its plan: what nodes get, and what may be written.

A machine keeps plain data, whatever class declared it. Each write is checked by the class and kept as plain data again;
nodes get a read-only instance, whose fields are made from that data when they are first read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

from graphflow.errors import StateError
from graphflow.graph.core.channels import Channel, Update, apply_update
from graphflow.graph.core.immutable import FrozenList, ListView, State, fold, freeze
from graphflow.graph.definition.state_classes import defaults_of, fields_of, is_typeddict
from graphflow.graph.typed_state.annotations import (
    FAILURES,
    Check,
    Misfit,
    bare,
    below,
    by_pydantic,
    check_of,
    is_pydantic,
    made,
    misfit_of,
    passing_types,
)
from graphflow.graph.typed_state.plain_form import classes_in, plain_form, same_classes
from graphflow.graph.typed_state.views import locked, show, shown_class

_MISSING: Any = object()
_AS_KEPT = frozenset({str, int, bool, type(None), Any, object, list, dict})
"""Annotations whose values nodes get as the machine keeps them."""


class Field:
    """One key as the class declares it."""

    __slots__ = (
        "check",
        "classes",
        "default",
        "initial",
        "is_log",
        "item",
        "item_passes",
        "key",
        "last",
        "lazy",
        "passes",
        "reduce",
        "whole",
    )

    def __init__(self, key: str, hint: Any, channel: Channel, default: Any, own: Check | None, *, whole: bool) -> None:
        self.key, self.reduce = key, channel.reduce
        self.initial, self.is_log = channel.initial(), channel.is_log
        self.classes = frozenset(classes_in(hint))
        self.check = own or check_of(hint)
        item = _item_hint(hint) if channel.is_log else None
        self.item = None if item is None else check_of(item)
        self.whole = whole or _has_marks(hint)
        """Whether the whole value of a log or map is checked, and not only what is added to it."""
        self.passes = passing_types(hint, self.check)
        self.item_passes = passing_types(item, self.item)
        """Types whose values fit and stay as they are."""
        self.default = self._declared_default(default)
        kept_alike = default is _MISSING or type(self.default) is type(self.initial)
        self.lazy = channel.is_log or not (kept_alike and _is_kept_alike(hint))
        self.last: tuple[Any, Any] = (_MISSING, None)

    @property
    def written_as_is(self) -> frozenset[type]:
        """Types of what is written, of a log of its items, that needs no look at the class."""
        if not self.is_log:
            return self.passes
        return frozenset() if self.whole and self.check is not None else self.item_passes

    def _declared_default(self, default: Any) -> Any:
        given = self.initial if default is _MISSING else plain_form(default, self.classes)
        try:
            return self._typed(given)
        except Misfit:
            return None if default is _MISSING and self.classes else freeze(given)

    def _typed(self, kept: Any) -> Any:
        if type(kept) is ListView and self.item_passes.issuperset(map(type, kept)):
            return FrozenList(kept)
        if type(kept) is ListView:
            return FrozenList(kept if self.item is None else [self._locked(self.item, part) for part in kept])
        return freeze(kept) if self.check is None else self._locked(self.check, kept)

    def _locked(self, check: Check, kept: Any) -> Any:
        found = locked(below(check, "", kept), self.classes)
        return found if isinstance(found, set) else freeze(found)

    def typed(self, kept: Any) -> Any:
        """The declared value of what the machine keeps; that of the last one is remembered, and grows with its list.

        Raises:
            Misfit: what is kept does not fit (any more).
        """
        before, made_of = self.last
        if kept is before:
            return made_of
        if self.initial == kept and type(kept) is type(self.initial):
            return self.default
        if type(kept) is ListView and type(before) is ListView and (new := kept.since(before)) is not None:
            out = FrozenList([*made_of, *(new if self.item is None else [self._locked(self.item, one) for one in new])])
        else:
            out = self._typed(kept)
        self.last = (kept, out)
        return out

    def plain(self, value: Any) -> Any:
        return freeze(plain_form(value, self.classes) if self.classes else value)

    def fitted(self, check: Check | None, value: Any, place: str = "") -> Any:
        """A value to write, as the machine keeps it."""
        if check is None:
            return value
        return self.plain(below(check, place, value))


def _is_kept_alike(hint: Any) -> bool:
    hint = bare(hint)
    if getattr(hint, "__metadata__", None) is not None:
        return _is_kept_alike(get_args(hint)[0])
    origin = get_origin(hint)
    if origin in (list, dict) or type(hint).__name__ == "UnionType" or "Union" in str(origin):
        return all(map(_is_kept_alike, get_args(hint)))
    if str(origin) == "typing.Literal":
        return all(type(part) in _AS_KEPT for part in get_args(hint))
    return hint in _AS_KEPT if origin is None and _is_hashable(hint) else False


def _is_hashable(hint: Any) -> bool:
    return getattr(hint, "__hash__", None) is not None


def _has_marks(hint: Any) -> bool:
    """Whether more than its items is said of a list."""
    marks = getattr(bare(hint), "__metadata__", ())
    return any(type(mark).__module__.partition(".")[0] in ("pydantic", "annotated_types", "msgspec") for mark in marks)


def _item_hint(hint: Any) -> Any:
    hint = bare(hint)
    if getattr(hint, "__metadata__", None) is not None:
        return _item_hint(get_args(hint)[0])
    given = [part for part in get_args(hint) if part is not type(None) and part is not ...]
    if get_origin(hint) is not None and isinstance(get_origin(hint), type) and hasattr(get_origin(hint), "__iter__"):
        return given[0] if len(given) == 1 else None
    return _item_hint(given[0]) if len(given) == 1 else None


class StateClass:
    """The class of one graph's state."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self._hints, self._defaults = fields_of(cls), defaults_of(cls, fields_of(cls))
        self._mapping = is_typeddict(cls)

    def rules(self, channels: Mapping[str, Channel]) -> StateRules:
        """What a plan with these keys needs of the class."""
        return StateRules(
            self.cls, self._mapping, {key: self._field(key, channels) for key in self._hints if key in channels}
        )

    def _field(self, key: str, channels: Mapping[str, Channel]) -> Field:
        hint, own, whole = self._hints[key], None, False
        if is_pydantic(self.cls):
            from graphflow.graph.typed_state.pydantic_state import field_check

            hint, own, whole = field_check(self.cls, key, hint)
        return Field(key, hint, channels[key], self._defaults.get(key, _MISSING), own, whole=whole)


class StateRules:
    """A state class beside the keys of a plan; see `channels.Rules`."""

    def __init__(self, cls: Any, mapping: bool, fields: dict[str, Field]) -> None:
        self.cls, self.fields = cls, fields
        self._plain = {key: field for key, field in fields.items() if field.classes}
        self._lazy = {key: field for key, field in fields.items() if field.lazy}
        self._eager = tuple(key for key in fields if key not in self._lazy)
        self._required = [key for key in fields if key not in defaults_of(cls, fields_of(cls))]
        self._together = _together_of(cls)
        self.converts = bool(self._plain)
        self.passes: Mapping[str, frozenset[type]] = {
            key: frozenset() if self._together is not None else field.written_as_is for key, field in fields.items()
        }
        messages = [key for key, field in fields.items() if field.reduce == "messages"]
        self.leaves_alone = frozenset(messages if self._together is None else ())
        # Of a `TypedDict` an append channel stays the window that it is, unless its items have a class.
        self._converted = [key for key, field in self._lazy.items() if field.classes or not field.is_log]
        self.shows = not mapping or bool(self._converted)
        """Whether nodes get anything else than the mapping that the machine keeps."""
        self._shown = None if mapping else shown_class(cls, frozenset(self._lazy), tuple(fields), self._read)

    # --- reading

    def view(self, state: State) -> Any:
        """What nodes get: an instance of the class, or of a `TypedDict` the mapping itself."""
        if self._shown is not None:
            return show(self._shown, self.cls, state, {key: state[key] for key in self._eager if key in state})
        return state.evolve({key: self._read(key, state) for key in self._converted})

    def _read(self, key: str, state: State) -> Any:
        field = self.fields[key]
        kept = state.get(key, _MISSING)
        if kept is _MISSING:
            return field.default
        try:
            return field.typed(kept)
        except Misfit as misfit:
            raise _refused(key, misfit) from misfit

    def reducer_values(self, key: str, old: Any, new: Any) -> tuple[Any, Any]:
        """The arguments of a reducer of the user's, as the class declares the key."""
        import copy

        field = self.fields.get(key)
        if field is None or field.check is None or not field.classes:
            return old, new
        out = []
        for value in (old, new):
            try:
                out.append(copy.deepcopy(below(field.check, "", value)))
            except Misfit:
                out.append(value)
        return out[0], out[1]

    # --- writing

    def plain(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values with instances of declared classes as plain data; refuses those that would come back as others."""
        if not self._plain:
            return values
        out = dict(values)
        for key, field in self._plain.items():
            if key in values:
                try:
                    out[key] = plain_form(values[key], field.classes)
                    self._check_classes(field, values[key], out[key])
                except Misfit as misfit:
                    raise _refused(key, misfit) from misfit
        return out

    def _check_classes(self, field: Field, given: Any, plain: Any) -> None:
        if len(field.classes) < 2 or field.reduce.startswith("fn:"):
            return
        if field.item is not None and isinstance(plain, list):
            found: Any = [below(field.item, f"[{index}]", part) for index, part in enumerate(plain)]
        elif field.check is not None and field.reduce in ("replace", "append", "merge"):
            found = below(field.check, "", plain)
        else:
            return
        same_classes(given, found, field.classes)

    def checked(self, state: State, update: Update) -> Update:
        """The update with every value as the class has it.

        Raises:
            StateError: a value that the class refuses; nothing is written then.
        """
        if self._together is not None:
            return self._checked_together(state, self._checked_alone(state, update))
        return self._checked_alone(state, update)

    def _checked_alone(self, state: State, update: Update) -> Update:
        key = ""
        fields = self.fields
        try:
            for key, value in update.sets.items():
                if (field := fields.get(key)) is not None and type(value) not in field.passes:
                    update.sets[key] = field.fitted(self._check_in(field, state, update), value)
            for key, entries in update.logs.items():
                if (field := fields.get(key)) is not None and field.reduce != "messages":
                    update.logs[key] = self._log(field, state, entries)
            for key, changed in update.merges.items():
                if (field := fields.get(key)) is not None and field.check is not None:
                    given = {**(state.get(key) or {}), **changed} if field.whole else changed
                    fitted = field.fitted(self._check_in(field, state, update), given)
                    update.merges[key] = {name: fitted[name] for name in changed if name in fitted}
        except Misfit as misfit:
            raise _refused(key, misfit) from misfit
        return update

    def _check_in(self, field: Field, state: State, update: Update) -> Check | None:
        """The key's check; a validator of pydantic's may look at the other fields."""
        check: Any = field.check
        within = getattr(check, "within", None)
        if within is None:
            return field.check
        bound: Check = within(lambda: self._values(state.evolve(update.sets)))
        return bound

    def _values(self, state: State) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, field in self.fields.items():
            try:
                out[key] = field.typed(state[key]) if key in state else field.default
            except Misfit:  # said where that key itself is read
                out[key] = state[key]
        return out

    def _log(self, field: Field, state: State, entries: list[Any]) -> list[Any]:
        if field.item_passes.issuperset([type(entry[-1]) for entry in entries]):
            out = entries
        else:
            out = [self._entry(field, entry) for entry in entries]
        if field.whole and field.check is not None:
            whole = list(state.get(field.key) or ())
            for entry in out:
                fold(whole, entry)
            fitted = field.fitted(self._check_in(field, state, Update({}, {}, {})), whole)
            if list(fitted) != whole:
                return [("*", list(fitted))]
        return out

    def _entry(self, field: Field, entry: Any) -> Any:
        if field.item is None or entry[0] == "-":
            return entry
        if entry[0] == "*":
            return ("*", [field.fitted(field.item, item, f"[{index}]") for index, item in enumerate(entry[1])])
        return (*entry[:-1], field.fitted(field.item, entry[-1], f"[{entry[1]}]" if entry[0] == "=" else "[]"))

    def _checked_together(self, state: State, update: Update) -> Update:
        """The update after the checks that look at the whole state; they wait until every required key was written."""
        written = [*update.sets, *update.logs, *update.merges]
        after = _after(state, update)
        assert self._together is not None
        try:
            found = self._together({key: after[key] for key in self.fields if key in after})
        except FAILURES as error:
            if self._is_incomplete(after, written):
                return update
            misfit = misfit_of(error)
            raise StateError(
                f"the state after the write of {', '.join(map(repr, written))} is no {self.cls.__qualname__}: {misfit}",
                key=written[0] if written else "",
            ) from error
        for key in update.sets:
            if (field := self.fields.get(key)) is not None:
                update.sets[key] = field.plain(getattr(found, key))
        return update

    def _is_incomplete(self, after: State, written: Iterable[str]) -> bool:
        return any(after.get(key) == self.fields[key].initial and key not in written for key in self._required)

    # --- loading

    def check(self, state: State) -> None:
        """Checks a state that was loaded.

        Raises:
            StateError: `state_incompatible`, a value that the class refuses.
        """
        key = ""
        try:
            for key, field in self.fields.items():
                if key in state and field.reduce != "messages" and state[key] != field.initial:
                    self._check_kept(field, state)
            if self._together is not None and not self._is_incomplete(state, ()):
                key = ""
                below(self._together, "", {name: state[name] for name in self.fields if name in state})
        except Misfit as misfit:
            place = f"key {key!r} ({misfit})" if key else f"({misfit})"
            raise StateError(
                f"the stored state does not fit {self.cls.__qualname__}: {place}; edit it, "
                "or move the thread with `graphflow threads migrate`",
                code="state_incompatible",
                key=key,
            ) from misfit

    def _check_kept(self, field: Field, state: State) -> None:
        if field.lazy and not field.whole:
            field.typed(state[field.key])
        elif field.check is not None:
            kept = state[field.key]
            below(
                self._check_in(field, state, Update({}, {}, {})) or field.check,
                "",
                list(kept) if type(kept) is ListView else kept,
            )


def _after(state: State, update: Update) -> State:
    """The state after an update that may still be refused: lists are copied, as an append would grow them in place."""
    lists = {key: ListView(list(state[key])) for key in update.logs if type(state.get(key)) is ListView}
    return apply_update(state.evolve(lists) if lists else state, update)


def _together_of(cls: Any) -> Check | None:
    """What checks several fields at once: validators of a model, a dataclass's `__post_init__`."""
    if is_pydantic(cls):
        from graphflow.graph.typed_state.pydantic_state import checks_together

        return by_pydantic(cls) if checks_together(cls) else None
    if not dataclasses.is_dataclass(cls) or not hasattr(cls, "__post_init__"):
        return None
    declared: Any = cls
    checks = {name: check_of(hint) for name, hint in fields_of(declared).items()}

    def check(values: Any) -> Any:
        fitted = {}
        for name, value in values.items():
            one = checks[name]
            plain = list(value) if type(value) is ListView else value
            fitted[name] = plain if one is None else one(plain)
        return made(cls, fitted)

    return check


def _refused(key: str, misfit: Misfit) -> StateError:
    place = f"{key}{misfit.place}"
    return StateError(f"state key {key!r}: {misfit.why}" + (f" (at {place})" if misfit.place else ""), key=key)
