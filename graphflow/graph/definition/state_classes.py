"""The state schema that a Python class declares: types, defaults, reducers and marks of its fields (spec 2.2)."""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


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
"""`Annotated[list[str], append]`: a write is a list, whose items are added at the end."""
merge = Reduce("merge")
"""`Annotated[dict[str, int], merge]`: a write is a mapping, whose entries are added, or replace those of the same key."""
union = Reduce("union")
"""`Annotated[list[str], union]`: as `append`, without items that the list has already."""
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
    if hasattr(state, "__struct_fields__"):
        raise TypeError(
            f"{state.__qualname__} is a msgspec.Struct, whose fields can't be read one by one; as a state write a dataclass, a "
            "pydantic model or a TypedDict (a key's value may be a Struct)"
        )
    hints = fields_of(state)
    declared = dataclasses.is_dataclass(state) or is_typeddict(state) or hasattr(state, "__pydantic_fields__")
    if not hints and not declared:
        raise TypeError(
            f"{state.__qualname__} declares no fields, and a state is made of them: write a dataclass, a pydantic model or a "
            "TypedDict, or give a JSON Schema"
        )
    defaults = defaults_of(state, hints)
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
    for key, hint in fields_of(state).items() if isinstance(state, type) else ():
        for mark in _marks(hint):
            if _is_function(mark) and out.setdefault(mark.__name__, mark) is not mark:
                raise ValueError(
                    f"state key {key!r} names another reducer {mark.__name__!r} than a key before it, and a document "
                    "tells functions apart by name only; define each with `def` and a name of its own"
                )
    return out


def fields_of(state: type) -> dict[str, Any]:
    """Name → hint of what an instance holds: no class variables, `InitVar`s or private attributes of a model."""
    models = getattr(state, "__pydantic_fields__", None)
    if models is not None:
        # As pydantic has them: also what `= Field(ge=0)` says, and names that only it could look up.
        return {
            name: Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
            for name, field in models.items()
        }
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
        for field in dataclasses.fields(state):
            given: Any = field.default
            if _is_field_info(given) and given.metadata:
                hints[field.name] = Annotated[(hints[field.name], *given.metadata)]
    else:
        names = {name for name, hint in hints.items() if not _is_class_variable(hint)}
    return {name: hint for name, hint in hints.items() if name in names}


def _is_field_info(default: Any) -> bool:
    """Whether a dataclass's default is pydantic's `Field(…)`."""
    return type(default).__module__ == "pydantic.fields" and hasattr(default, "get_default")


def _is_class_variable(hint: Any) -> bool:
    return hint is typing.ClassVar or get_origin(hint) is typing.ClassVar


def _is_function(mark: Any) -> bool:
    """Whether a mark is a function to reduce with: anything that is called and has a name, but no class."""
    return callable(mark) and not isinstance(mark, type) and hasattr(mark, "__name__")


def defaults_of(state: type, hints: Mapping[str, Any]) -> dict[str, Any]:
    """Name → default of the fields that have one."""
    fields = getattr(state, "__pydantic_fields__", None)
    if fields is not None:
        return {
            key: field.get_default(call_default_factory=True)
            for key, field in fields.items()
            if not field.is_required()
        }
    if dataclasses.is_dataclass(state):
        out = {}
        for field in dataclasses.fields(state):
            given: Any = field.default
            factory: Any = field.default_factory
            if _is_field_info(given):
                if not given.is_required():
                    out[field.name] = given.get_default(call_default_factory=True)
            elif given is not dataclasses.MISSING:
                out[field.name] = given
            elif factory is not dataclasses.MISSING:
                out[field.name] = factory()
        return out
    # A `TypedDict` cannot declare defaults.
    if is_typeddict(state):
        return {}
    return {key: getattr(state, key) for key in hints if hasattr(state, key)}


def is_typeddict(cls: Any) -> bool:
    """Whether the class is a `TypedDict`, also one of `typing_extensions`, which pydantic demands before Python 3.12."""
    extensions = sys.modules.get("typing_extensions")
    return typing.is_typeddict(cls) or (extensions is not None and extensions.is_typeddict(cls))


def is_key_mark(origin: Any) -> bool:
    """Whether it says something of a key and nothing of its value: `Required`, `NotRequired`, `ReadOnly`."""
    return origin in (typing.Required, typing.NotRequired) or getattr(origin, "_name", "") == "ReadOnly"


def _bare(hint: Any) -> Any:
    """The hint without what it says of the key."""
    while is_key_mark(get_origin(hint)):
        hint = get_args(hint)[0]
    return hint


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
    names = _type_names(_unmarked(hint))
    said = value_schema(hint)
    if out.get("x-reducer") == "messages":
        said.pop("items", None)  # written in their wire form; the items of the hint are the Python classes
    out = {**said, **out}
    if default is not ...:
        out["default"] = default
    elif out.get("x-reducer") in ("append", "messages", "union"):
        out["default"] = []
    elif out.get("x-reducer") == "merge":
        out["default"] = {}
    elif names and "null" not in names and "x-reducer" not in out:
        out |= _unset(out, _ZEROS.get(names[0]))
    return out


def _unset(schema: Mapping[str, Any], zero: Any) -> dict[str, Any]:
    """How a key without a default begins: empty, or as null where its class takes nothing that is empty."""
    if schema.keys() <= {"type", "items"}:
        return {"default": zero}
    from graphflow.graph.definition.json_schema import compile_schema  # not at the top: most keys say their type alone

    if not compile_schema(schema).errors(zero):
        return {"default": zero}
    more = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {"type": [schema["type"], "null"], "default": None, **more}


_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
"""Where a class gives no default, a key begins empty: a document's keys always have a value of their type."""


_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_LENGTHS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def value_schema(hint: Any, around: tuple[Any, ...] = ()) -> dict[str, Any]:
    """What JSON Schema can say of an annotation: types, items, fields, allowed values and bounds.

    Args:
        around: the classes that the annotation stands in; one that holds itself is only an object there.
    """
    hint = _bare(hint)
    origin, given = get_origin(hint), get_args(hint)
    if origin is Annotated:
        out = value_schema(given[0], around)
        for mark in given[1:]:
            out |= _bounds(mark, out.get("type"))
        return out
    names = _type_names(hint)
    out = {} if not names else {"type": names[0] if len(names) == 1 else names}
    if origin in (Union, types.UnionType):
        parts = [part for part in given if part is not type(None)]
        if len(parts) != 1 or not names:
            return out
        inner = value_schema(parts[0], around)
        if "enum" in inner:
            inner["enum"] = [*inner["enum"], None]
        return {**inner, **out}
    if origin is typing.Literal or (isinstance(hint, type) and issubclass(hint, enum.Enum)):
        members = given or list(hint)
        return (
            {**out, "enum": [part.value if isinstance(part, enum.Enum) else part for part in members]} if names else out
        )
    base = origin or hint
    if names == ["array"] and given and (base is not tuple or given[1:] == (...,)):
        items = value_schema(given[0], around)
        return {**out, "items": items} if items else out
    if names == ["object"] and isinstance(base, type) and base not in around:
        if len(given) == 2 and issubclass(base, Mapping):
            items = value_schema(given[1], around)
            return {**out, "additionalProperties": items} if items else out
        if dataclasses.is_dataclass(base) or hasattr(base, "__pydantic_fields__") or is_typeddict(base):
            out |= _fields_schema(base, (*around, base))
    return out


def _fields_schema(cls: Any, around: tuple[Any, ...]) -> dict[str, Any]:
    fields = fields_of(cls)
    optional = defaults_of(cls, fields)
    required = sorted(cls.__required_keys__) if is_typeddict(cls) else [key for key in fields if key not in optional]
    out = {"properties": {key: value_schema(hint, around) for key, hint in fields.items()}}
    return {**out, "required": required} if required else out


def _bounds(mark: Any, declared: Any) -> dict[str, Any]:
    """What a mark of pydantic, annotated-types or msgspec says of a value, in the words of JSON Schema."""
    if isinstance(mark, Reduce | Mark | type) or _is_function(mark):
        return {}
    out: dict[str, Any] = {}
    for inner in getattr(mark, "metadata", None) or ():  # `Field(ge=0)` inside `Annotated`
        out |= _bounds(inner, declared)
    names = (declared,) if isinstance(declared, str) else declared or ()
    kind = next((name for name in names if name in _LENGTHS), None)
    words = {**_BOUNDS, **dict(zip(("min_length", "max_length"), _LENGTHS[kind], strict=True))} if kind else _BOUNDS
    for attribute, word in words.items():
        value = getattr(mark, attribute, None)
        if isinstance(value, int | float) and not isinstance(value, bool):
            out[word] = value
    pattern = getattr(mark, "pattern", None)
    return {**out, "pattern": pattern} if isinstance(pattern, str) and kind == "string" else out


def _unmarked(hint: Any) -> Any:
    hint = _bare(hint)
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _type_names(hint: Any) -> list[str]:
    hint = _unmarked(hint)
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
    if issubclass(base, enum.Enum):
        kinds = list(dict.fromkeys(_TYPES.get(type(member.value), "") for member in base))
        return kinds if all(kinds) else []
    is_record = (
        dataclasses.is_dataclass(base) or hasattr(base, "__pydantic_fields__") or hasattr(base, "__struct_fields__")
    )
    return ["object"] if is_record or issubclass(base, Mapping) else []  # of dates, ids, sets, … JSON has no type
