"""Annotations as checks: the value that a machine keeps (plain data) becomes the value that the annotation declares.

What pydantic marks or declares is checked by pydantic, which is loaded then anyway; everything else by the few lines here,
so that a state of dataclasses loads no library.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from graphflow.errors import text_of
from graphflow.graph.core.immutable import ATOMS
from graphflow.graph.definition.state_classes import is_key_mark, is_typeddict
from graphflow.graph.definition.types import show
from graphflow.graph.definition.whole_numbers import whole_numbers
from graphflow.messages import MESSAGE_TYPES, kept_message

Check = Callable[[Any], Any]
"""Plain value → declared value; raises a `ValueError` (`Misfit`) when it does not fit."""

_TEXT_FORMS: tuple[type, ...] = (datetime, date, time, timedelta, Decimal, UUID)


class Misfit(ValueError):
    """A value that does not fit: where it stands below the key, and why."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place.lstrip('.')}: {why}" if place else why)
        self.place, self.why = place, why


FAILURES = (ValueError, TypeError, AssertionError, ArithmeticError, LookupError, AttributeError)
"""What validators of the user's raise for a value that they refuse; pydantic's and msgspec's errors are among them."""


def below(check: Check, place: str, value: Any) -> Any:
    """The value as `check` gives it; what it raises names the place."""
    try:
        return check(value)
    except Misfit as misfit:
        raise Misfit(place + misfit.place, misfit.why) from None
    except FAILURES as error:
        raise misfit_of(error, place) from error


def misfit_of(error: Exception, place: str = "") -> Misfit:
    """The error of a library or of the user's own validator, with its first place and all its reasons."""
    if isinstance(error, Misfit):
        return Misfit(place + error.place, error.why)
    listed = getattr(error, "errors", None)  # of pydantic: places and reasons, without the input, which may be secret
    if callable(listed) and hasattr(error, "error_count"):
        found = [(_steps(line["loc"]), line["msg"]) for line in listed(include_url=False, include_input=False)]
        rest = "".join(f"; {where.lstrip('.')}: {why}" for where, why in found[1:5])
        return Misfit(place + found[0][0], found[0][1] + rest)
    return Misfit(place, text_of(error) or type(error).__name__)


def _steps(places: Sequence[Any]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in places)


def pydantic_marks(hint: Any) -> bool:
    """Whether pydantic has to check the annotation itself: its model or dataclass, or something that it marks."""
    if "pydantic" not in sys.modules:
        return False
    if get_origin(hint) is Annotated:
        return any(map(_of_pydantic, hint.__metadata__)) or pydantic_marks(get_args(hint)[0])
    base = get_origin(hint) or hint
    return isinstance(base, type) and (
        hasattr(base, "__pydantic_validator__") or hasattr(base, "__get_pydantic_core_schema__")
    )


def _of_pydantic(mark: Any) -> bool:
    module = type(mark).__module__.partition(".")[0]
    return module in ("pydantic", "annotated_types") or hasattr(mark, "__get_pydantic_core_schema__")


def is_pydantic(cls: Any) -> bool:
    """Whether the class is a pydantic model or a pydantic dataclass."""
    return hasattr(cls, "__pydantic_validator__")


def by_pydantic(hint: Any) -> Check:
    """The check that pydantic makes of an annotation."""
    from pydantic import TypeAdapter

    adapter = TypeAdapter(hint)

    def check(value: Any) -> Any:
        # By name too: what is stored has the fields' own names, not their aliases.
        return adapter.validate_python(value, by_name=True, by_alias=True)

    return check


def bare(hint: Any) -> Any:
    """The annotation without what says nothing about values: marks of keys, aliases, `NewType`."""
    while True:
        if is_key_mark(get_origin(hint)):
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return hint


def check_of(hint: Any) -> Check | None:
    """The check of an annotation; None when any value fits as it is."""
    hint = bare(hint)
    if pydantic_marks(hint):
        return by_pydantic(hint)
    origin, given = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if any(isinstance(mark, msgspec.Meta) for mark in hint.__metadata__):
            return _by_msgspec(hint)
        return check_of(given[0])
    if origin is Literal:
        return _literal(given)
    if origin in (Union, types.UnionType):
        return _union([check_of(part) for part in given], hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if hint is Any or hint is object or isinstance(hint, TypeVar | str | ForwardRef):
        return None
    base = origin or hint
    return _of_class(base, given) if isinstance(base, type) else None


def passing_types(hint: Any, check: Check | None) -> frozenset[type]:
    """Types whose values fit the annotation, and its check, as they are."""
    if check is None:
        return ATOMS
    hint = bare(hint)
    return frozenset({hint}) if isinstance(hint, type) and SCALARS.get(hint) is check else frozenset()


def _of_class(base: type, given: tuple[Any, ...]) -> Check | None:
    if is_typeddict(base) or dataclasses.is_dataclass(base):
        return _Record(base)
    if issubclass(base, enum.Enum):
        return _enum(base)
    if issubclass(base, tuple) and hasattr(base, "_fields"):
        return _named_tuple(base)
    if base is tuple:
        return _tuple(given)
    if base in MESSAGE_TYPES:
        return _message(base)
    if issubclass(base, msgspec.Struct):
        return _by_msgspec(base)
    if base in _TEXT_FORMS:
        return _instance(base, _by_msgspec(base))
    if issubclass(base, str | bytes):
        return _instance(base, None)
    if issubclass(base, Mapping):
        return _mapping(given)
    if issubclass(base, Sequence):
        return _items(list, given)
    if issubclass(base, AbstractSet):
        return _items(frozenset if base is frozenset else set, given)
    return _instance(base, None)


# --- single values


def _refuse(expected: str, value: Any) -> Misfit:
    return Misfit("", f"expected {expected}, not {show(value)}")


def _exactly(kind: type, name: str) -> Check:
    def check(value: Any) -> Any:
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        raise _refuse(name, value)

    return check


def _int(value: Any) -> Any:
    # As JSON Schema counts, and every other check here: a float without a fraction is an integer.
    return _whole(int(value) if type(value) is float and value.is_integer() else value)


def _float(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _refuse("a number", value)


def _nothing(value: Any) -> Any:
    if value is None:
        return None
    raise _refuse("null", value)


_whole = _exactly(int, "a whole number")

SCALARS: dict[Any, Check] = {
    str: _exactly(str, "text"),
    int: _int,
    bool: _exactly(bool, "true or false"),
    float: _float,
    type(None): _nothing,
    None: _nothing,
}


def _literal(allowed: tuple[Any, ...]) -> Check:
    plain = [part.value if isinstance(part, enum.Enum) else part for part in allowed]

    def check(value: Any) -> Any:
        for declared, form in zip(allowed, plain, strict=True):
            if value == form and (type(value) is type(form) or {type(value), type(form)} == {int, float}):
                return declared
        raise _refuse(f"one of {', '.join(map(show, plain))}", value)

    return check


def _enum(kind: Any) -> Check:
    def check(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError:
            raise _refuse(f"one of {', '.join(show(member.value) for member in kind)}", value) from None

    return check


def _instance(kind: type, read: Check | None) -> Check:
    """A class that the codec stores as it is (a date, …), or one that it has to know by registration."""

    def check(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if read is not None and isinstance(value, str):
            return read(value)
        raise _refuse(f"a {kind.__qualname__}", value)

    return check


def _by_msgspec(hint: Any) -> Check:
    def check(value: Any) -> Any:
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError:
            # It takes no `2.0` for an `int`, as the other checks do.
            try:
                taken = whole_numbers(value, msgspec.json.schema(hint))
            except TypeError:  # a class that JSON Schema can't describe
                taken = value
            if taken is value:
                raise
            return msgspec.convert(taken, hint)

    return check


def _message(kind: type) -> Check:
    def check(value: Any) -> Any:
        found = kept_message(value) if isinstance(value, Mapping) else value
        if isinstance(found, kind):
            return found
        raise _refuse(f"a {kind.__qualname__}", value)

    return check


# --- several values


def _union(checks: Sequence[Check | None], hint: Any) -> Check | None:
    tried = [check for check in checks if check is not None]
    if len(tried) < len(checks):
        return None  # one of them takes anything

    def check(value: Any) -> Any:
        misfits: list[Misfit] = []
        fitting: list[Any] = []
        for attempt in tried:
            try:
                found = below(attempt, "", value)
            except Misfit as misfit:
                misfits.append(misfit)
                continue
            if type(found) is type(value):  # `int | float` keeps a whole number whole
                return found
            fitting.append(found)
        if fitting:
            return fitting[0]
        # The one that came furthest says best what is wrong: of `Person | None` not that it is no null.
        raise max(misfits, key=lambda misfit: len(misfit.place)) if misfits else _refuse(str(hint), value)

    return check


def _items(make: Callable[[Any], Any], given: tuple[Any, ...]) -> Check:
    item = check_of(given[0]) if given else None
    passing = passing_types(given[0] if given else Any, item)

    def check(value: Any) -> Any:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence | AbstractSet):
            raise _refuse("a list", value)
        # One pass in C over what fits as it is: large lists of scalars are common.
        if item is None or passing.issuperset(map(type, value)):
            return make(value)
        return make([below(item, f"[{index}]", part) for index, part in enumerate(value)])

    return check


def _tuple(given: tuple[Any, ...]) -> Check:
    if not given or given[1:] == (...,):
        return _items(tuple, given[:1])
    parts = [check_of(part) for part in given if part != ()]

    def check(value: Any) -> Any:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes) or len(value) != len(parts):
            raise _refuse(f"{len(parts)} values", value)
        return tuple(
            value[index] if one is None else below(one, f"[{index}]", value[index]) for index, one in enumerate(parts)
        )

    return check


def _mapping(given: tuple[Any, ...]) -> Check:
    key, item = (check_of(given[0]), check_of(given[1])) if len(given) == 2 else (None, None)

    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _refuse("an object", value)
        out = {}
        for name, part in value.items():
            place = f".{name}"
            fitted = name if key is None else below(key, place, name)
            out[fitted] = part if item is None else below(item, place, part)
        return out

    return check


def _named_tuple(kind: Any) -> Check:
    hints = get_type_hints(kind, include_extras=True)
    parts = _tuple(tuple(hints.get(name, Any) for name in kind._fields))
    return lambda value: kind(*parts([value[name] for name in kind._fields] if isinstance(value, Mapping) else value))


class _Record:
    """A dataclass or a `TypedDict` inside a state; its fields are looked up at the first value, as it may hold itself."""

    __slots__ = ("_checks", "_cls", "_required")

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._checks: dict[str, Check | None] | None = None
        self._required: frozenset[str] = frozenset()

    def _looked_up(self) -> dict[str, Check | None]:
        hints = get_type_hints(self._cls, include_extras=True)
        if is_typeddict(self._cls):
            self._required = self._cls.__required_keys__
        else:
            fields = dataclasses.fields(self._cls)
            missing = dataclasses.MISSING
            self._required = frozenset(
                f.name for f in fields if f.init and f.default is missing and f.default_factory is missing
            )
            hints = {field.name: hints[field.name] for field in fields}
        return {name: check_of(hint) for name, hint in hints.items()}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _refuse("an object", value)
        if self._checks is None:
            self._checks = self._looked_up()
        checks = self._checks
        for name in value:
            if name not in checks:
                raise Misfit("", f"unknown key {name!r}; {self._cls.__qualname__} has {', '.join(checks)}")
        for name in self._required - value.keys():
            raise Misfit("", f"{name!r} is missing")
        fitted = {}
        for name, part in value.items():
            check = checks[name]
            fitted[name] = part if check is None else below(check, f".{name}", part)
        return fitted if is_typeddict(self._cls) else made(self._cls, fitted)


def made(cls: Any, values: Mapping[str, Any]) -> Any:
    """An instance of a dataclass with these values, made by its own constructor."""
    init = {field.name for field in dataclasses.fields(cls) if field.init}
    instance = cls(**{name: value for name, value in values.items() if name in init})
    for name, value in values.items():
        if name not in init:
            object.__setattr__(instance, name, value)
    return instance
