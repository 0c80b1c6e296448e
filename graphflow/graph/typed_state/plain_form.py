"""Declared values as the plain data that a machine keeps, and the classes that an annotation names.

A nested model is kept as the mapping of its fields, an enum member as its value: expressions, events and other languages
read them, and the store needs no registered name. What they are is said by the class of the state alone.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, get_args, get_type_hints

import msgspec

from graphflow.graph.core.immutable import ATOMS, ListView
from graphflow.graph.definition.state_classes import is_typeddict
from graphflow.graph.typed_state.annotations import Misfit, bare, is_pydantic

OWN_CLASS = "__graphflow_declared__"
"""Attribute of a read-only class: the class that it shows (`views.py`)."""


def classes_in(hint: Any, found: set[type] | None = None) -> set[type]:
    """The classes in an annotation, at any depth, whose values have a plain form of their own."""
    found = set() if found is None else found
    hint = bare(hint)
    if isinstance(hint, type) and not get_args(hint):
        if hint not in found and _has_plain_form(hint):
            found.add(hint)
            _look_into(hint, found)
        elif is_typeddict(hint) and hint not in found:
            found.add(hint)  # never the type of a value; here so that one that holds itself ends
            _look_into(hint, found)
    elif hasattr(hint, "__pydantic_validator__") or is_typeddict(getattr(hint, "__origin__", None)):
        classes_in(hint.__origin__, found)
    for part in get_args(hint):
        if isinstance(part, enum.Enum):  # of a `Literal`
            found.add(type(part))
        elif not isinstance(part, str | int | float | bytes | list | tuple):
            classes_in(part, found)
    return found


def _has_plain_form(kind: type) -> bool:
    return (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, enum.Enum | msgspec.Struct | PurePath)
        or is_pydantic(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or kind.__module__ == "pydantic.networks"
    )


def _look_into(kind: Any, found: set[type]) -> None:
    if is_pydantic(kind):
        hints = {name: field.annotation for name, field in kind.__pydantic_fields__.items()}
        classes = getattr(kind, "__pydantic_generic_metadata__", {}).get("args", ())
        hints |= {f"[{index}]": part for index, part in enumerate(classes)}
    elif issubclass(kind, enum.Enum | PurePath) or kind.__module__ == "pydantic.networks":
        return
    else:
        hints = get_type_hints(kind, include_extras=True)
    for hint in hints.values():
        classes_in(hint, found)


def plain_form(value: Any, classes: frozenset[type]) -> Any:
    """The value with every instance of these classes as plain data.

    Raises:
        Misfit: an instance of a subclass, which would come back as the declared class.
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    if isinstance(value, Mapping):
        return {plain_form(key, classes): plain_form(item, classes) for key, item in value.items()}
    if kind is list or kind is ListView or (isinstance(value, list) and kind not in classes):
        return [plain_form(item, classes) for item in value]
    declared = getattr(kind, OWN_CLASS, kind)
    if declared in classes or isinstance(value, PurePath):
        return _fields(value, declared, classes)
    if kind is tuple:
        return tuple([plain_form(item, classes) for item in value])
    if isinstance(value, set | frozenset):
        return frozenset(plain_form(item, classes) for item in value)
    if (near := next((known for known in kind.__mro__[1:] if known in classes), None)) is not None:
        raise Misfit(
            "",
            f"a {kind.__qualname__} would be read back as a {near.__qualname__}; declare the key with {kind.__qualname__}",
        )
    return value


def _fields(value: Any, kind: Any, classes: frozenset[type]) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, PurePath) or kind.__module__ == "pydantic.networks":
        return str(value)
    if isinstance(value, tuple):
        return [plain_form(item, classes) for item in value]
    if isinstance(value, msgspec.Struct):
        config = kind.__struct_config__
        fields = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(kind)}
        if config.tag is not None:
            fields[config.tag_field] = config.tag
    elif dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        fields = {**value.__dict__, **(value.__pydantic_extra__ or {})}
        fields = {
            name: part for name, part in fields.items() if name in kind.__pydantic_fields__ or value.__pydantic_extra__
        }
    return {name: plain_form(item, classes) for name, item in fields.items()}


def same_classes(given: Any, found: Any, classes: frozenset[type], place: str = "") -> None:
    """Raises `Misfit` where an instance would be read back as one of another class: members of a union that look alike."""
    kind = getattr(type(given), OWN_CLASS, type(given))
    if kind in classes:
        if type(found) is not kind and not isinstance(given, enum.Enum | PurePath):
            raise Misfit(
                place,
                f"a {kind.__qualname__} would be read back as a {type(found).__qualname__}: "
                "give the members of the union a field that tells them apart",
            )
        names = [] if isinstance(given, enum.Enum | PurePath | tuple) else _names(given)
        for name in names:
            same_classes(getattr(given, name, None), getattr(found, name, None), classes, f"{place}.{name}")
    elif isinstance(given, Mapping) and isinstance(found, Mapping):
        for key, item in given.items():
            same_classes(item, found.get(key), classes, f"{place}.{key}")
    elif isinstance(given, list | tuple | ListView) and isinstance(found, list | tuple):
        for index, (item, other) in enumerate(zip(given, found, strict=False)):
            same_classes(item, other, classes, f"{place}[{index}]")


def _names(value: Any) -> list[str]:
    if is_pydantic(type(value)):
        return list(type(value).__pydantic_fields__)
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return list(getattr(value, "__struct_fields__", ()))
