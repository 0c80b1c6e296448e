"""The state schema that a Python class declares: types, defaults, reducers and marks of its fields (spec 2.2)."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict


class Reduce:
    """Marks a state key with its reducer: `Annotated[list[str], append]`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Mark:
    """Marks a state key with one of the format's `x-` words: `Annotated[str, branch_only]`."""

    __slots__ = ("value", "word")

    def __init__(self, word: str, value: str) -> None:
        self.word, self.value = word, value

    def __repr__(self) -> str:
        return f"{self.word}: {self.value}"


append = Reduce("append")
merge = Reduce("merge")
union = Reduce("union")
sum_ = Reduce("sum")
min_ = Reduce("min")
max_ = Reduce("max")
messages = Reduce("messages")

branch_only = Mark("x-scope", "branch")
"""The key belongs to each branch alone: branches may all write it, and none of it comes through the join (E10)."""
each_run = Mark("x-scope", "run")
"""The key begins anew with each input (E9)."""
state_only = Mark("x-expose", "state")
"""The key is shown in checkpoints and by the state endpoint only (E14)."""

_TYPES: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array", tuple: "array", dict: "object",
    type(None): "null",
}  # fmt: skip


def schema_of(state: Any) -> dict[str, Any]:
    """The state schema that a class declares: types, defaults and reducers of its fields.

    Raises:
        TypeError: for something that declares no fields.
    """
    if state is None:
        return {}
    if not isinstance(state, type):
        raise TypeError(f"a state is a class with annotated fields or a JSON Schema, not {state!r}")
    hints = _fields(state)
    defaults = _defaults(state, hints)
    return {
        "type": "object",
        "properties": {key: _property(key, hint, defaults.get(key, ...)) for key, hint in hints.items()},
    }


def reducers_of(state: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """The functions that a class names as reducers, by the name that its schema has for them.

    Raises:
        ValueError: two of them have one name, as lambdas do: the schema could not tell them apart.
    """
    out: dict[str, Callable[[Any, Any], Any]] = {}
    for key, hint in _fields(state).items() if isinstance(state, type) else ():
        for mark in _marks(hint):
            if _is_function(mark) and out.setdefault(mark.__name__, mark) is not mark:
                raise ValueError(
                    f"state key {key!r} names another reducer {mark.__name__!r} than a key before it, and a document "
                    "tells functions apart by name only; define each with `def` and a name of its own"
                )
    return out


def _fields(state: type) -> dict[str, Any]:
    """Name → hint of what an instance holds: no class variables, `InitVar`s or private attributes of a model."""
    try:
        hints = get_type_hints(state, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the annotations of {state.__name__} name {error.name!r}, which its module does not have; "
            "define it at the top of the module, beside the class"
        ) from error
    if dataclasses.is_dataclass(state):
        # The hints also hold `ClassVar` and `InitVar`, of which an instance keeps nothing.
        names = {field.name for field in dataclasses.fields(state)}
    else:
        models = getattr(state, "model_fields", None)  # of a pydantic model
        names = (
            {name for name, hint in hints.items() if not _is_class_variable(hint)} if models is None else set(models)
        )
    return {name: hint for name, hint in hints.items() if name in names}


def _is_class_variable(hint: Any) -> bool:
    return hint is typing.ClassVar or get_origin(hint) is typing.ClassVar


def _is_function(mark: Any) -> bool:
    """Whether a mark is a function to reduce with: anything that is called and has a name, but no class."""
    return callable(mark) and not isinstance(mark, type) and hasattr(mark, "__name__")


def _defaults(state: type, hints: Mapping[str, Any]) -> dict[str, Any]:
    if dataclasses.is_dataclass(state):
        out = {}
        for field in dataclasses.fields(state):
            if field.default is not dataclasses.MISSING:
                out[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                out[field.name] = field.default_factory()
        return out
    fields = getattr(state, "model_fields", None)
    if fields is not None:  # a pydantic model
        return {
            key: field.get_default(call_default_factory=True)
            for key, field in fields.items()
            if not field.is_required()
        }
    # A `TypedDict` cannot declare defaults.
    if is_typeddict(state):
        return {}
    return {key: getattr(state, key) for key in hints if hasattr(state, key)}


def _bare(hint: Any) -> Any:
    """The hint without `Required` and `NotRequired`."""
    return get_args(hint)[0] if get_origin(hint) in (typing.Required, typing.NotRequired) else hint


def _marks(hint: Any) -> tuple[Any, ...]:
    hint = _bare(hint)
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _property(key: str, hint: Any, default: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for mark in _marks(hint):
        if isinstance(mark, Reduce):
            out["x-reducer"] = mark.name
        elif isinstance(mark, Mark):
            out[mark.word] = mark.value
        elif _is_function(mark):
            out["x-reducer"] = f"fn:{mark.__name__}"
        elif callable(mark) and not isinstance(mark, type):
            raise TypeError(
                f"state key {key!r} is marked with {mark!r}, which has no name for the document; "
                "define the reducer with `def`"
            )
        elif isinstance(mark, types.ModuleType):  # `from graphflow import messages` gives one
            raise TypeError(
                f"state key {key!r} is marked with the module {mark.__name__!r}, which is not a reducer; reducers are in "
                "graphflow.graph.builder: from graphflow.graph.builder import messages"
            )
    hint = _bare(hint)
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    names = _type_names(hint)
    if names:
        out = {"type": names[0] if len(names) == 1 else names, **out}
    # Messages are written in their wire form; the items of the hint are the Python classes.
    if out.get("x-reducer") != "messages" and (items := _items(hint)) is not None:
        out["items"] = items
    if default is not ...:
        out["default"] = default
    elif out.get("x-reducer") in ("append", "messages", "union"):
        out["default"] = []
    elif out.get("x-reducer") == "merge":
        out["default"] = {}
    elif names and "null" not in names and "x-reducer" not in out:
        out["default"] = _ZEROS.get(names[0])
    return out


_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
"""Where a class gives no default, a key begins empty: a document's keys always have a value of their type."""


def _items(hint: Any) -> dict[str, Any] | None:
    """The schema of a list's items, as far as they are JSON values: `list[list[int]]`, `list[str] | None`."""
    origin, given = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        lists = [arg for arg in given if arg is not type(None)]
        return _items(lists[0]) if len(lists) == 1 else None
    if origin is tuple and given[1:] != (...,):
        return None
    if not (isinstance(origin, type) and issubclass(origin, Sequence)) or not given:
        return None
    plain = get_args(given[0]) if get_origin(given[0]) in (Union, types.UnionType) else (given[0],)
    if any((get_origin(arg) or arg) not in _TYPES for arg in plain):
        return None  # of anything else nothing is known
    names = _type_names(given[0])
    below = _items(given[0])
    return {"type": names[0] if len(names) == 1 else names, **({} if below is None else {"items": below})}


def _type_names(hint: Any) -> list[str]:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        parts = [_type_names(arg) for arg in get_args(hint)]
        return list(dict.fromkeys(name for part in parts for name in part)) if all(parts) else []
    if origin is typing.Literal:
        return list(dict.fromkeys(_TYPES.get(type(value), "string") for value in get_args(hint)))
    base = origin or hint
    if base in _TYPES:
        return [_TYPES[base]]
    if not isinstance(base, type) or issubclass(base, bytes | bytearray):
        return []
    for kind in (str, int, float):  # an `IntEnum`, a `StrEnum`, a class of one's own over them
        if issubclass(base, kind):
            return [_TYPES[kind]]
    if issubclass(base, Sequence):
        return ["array"]
    is_record = dataclasses.is_dataclass(base) or hasattr(base, "model_fields") or hasattr(base, "__struct_fields__")
    return ["object"] if is_record or issubclass(base, Mapping) else []  # of dates, ids, sets, … JSON has no type
