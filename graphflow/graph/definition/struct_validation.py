"""Checks plain data against msgspec structs and reports every error at once, each with its JSON pointer.

msgspec itself stops at the first error. The structs stay the one definition of a format: documents
(`document.py`) and agent files are both checked here.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import msgspec.inspect as mi

from graphflow.errors import Issue
from graphflow.graph.definition.json_pointer import escape
from graphflow.graph.definition.types import TYPE_NAMES, json_type, show
from graphflow.suggestions import choose, meant

MAX_ISSUES = 1_000


def check_shape(data: Any, struct_type: type) -> list[Issue]:
    """Every place where the data does not fit the struct, at most `MAX_ISSUES`; `[]` means that msgspec converts it.

    Args:
        data: plain JSON data.
        struct_type: a `msgspec.Struct` (or any type that msgspec knows).
    """
    issues: list[Issue] = []
    for issue in _check(data, _type_info(struct_type), ""):
        issues.append(issue)
        if len(issues) >= MAX_ISSUES:
            break
    return issues


# msgspec describes a type anew at each call, and every document asks for the same few.
@functools.lru_cache(maxsize=256)
def _type_info(kind: type) -> mi.Type:
    return mi.type_info(kind)


def _check(value: Any, kind: mi.Type, pointer: str) -> Iterator[Issue]:
    match kind:
        case mi.AnyType() | mi.RawType():
            return
        case mi.StructType():
            yield from _struct(value, kind, pointer)
        case mi.UnionType():
            yield from _union(value, kind, pointer)
        case mi.LiteralType():
            # The types must match too: in Python `True == 1`, in JSON they differ.
            if not any(type(value) is type(word) and value == word for word in kind.values):
                yield _literal_issue(value, kind, pointer)
        case mi.DictType():
            yield from _dict(value, kind, pointer)
        case mi.ListType() | mi.VarTupleType() | mi.SetType() | mi.FrozenSetType():
            yield from _list(value, kind, pointer)
        case _:
            yield from _scalar(value, kind, pointer)


def _struct(value: Any, kind: mi.StructType, pointer: str) -> Iterator[Issue]:
    if not isinstance(value, Mapping):
        yield _wrong_type(value, [kind], pointer)
        return
    known = {field.encode_name: field for field in kind.fields}
    for name, item in value.items():
        field = known.get(name)
        if field is not None:
            yield from _check(item, field.type, f"{pointer}/{escape(name)}")
        elif kind.forbid_unknown_fields and name != kind.tag_field:
            yield Issue(
                pointer=f"{pointer}/{escape(str(name))}",
                message=f"unknown key {name!r}",
                hint=choose(str(name), known, limit=len(known)),
            )
    for field in kind.fields:
        if field.required and field.encode_name not in value:
            yield Issue(
                pointer=pointer,
                message=f"key {field.encode_name!r} is missing",
                hint=f"it is {_expected([field.type])}",
            )


def _union(value: Any, kind: mi.UnionType, pointer: str) -> Iterator[Issue]:
    """The errors of the union member that takes the value's JSON type."""
    word = json_type(value)
    fitting = [member for member in kind.types if word in _json_types(member)]
    if not fitting:
        yield _wrong_type(value, kind.types, pointer)
        return
    attempts = [list(_check(value, member, pointer)) for member in fitting]
    # Of several members the one with the fewest errors is most likely meant.
    yield from min(attempts, key=len)


def _dict(value: Any, kind: mi.DictType, pointer: str) -> Iterator[Issue]:
    if not isinstance(value, Mapping):
        yield _wrong_type(value, [kind], pointer)
        return
    for name, item in value.items():
        if not isinstance(name, str):
            yield Issue(pointer=pointer, message=f"a key is text, not {show(name)}")
            continue
        yield from _check(item, kind.value_type, f"{pointer}/{escape(name)}")


def _list(value: Any, kind: Any, pointer: str) -> Iterator[Issue]:
    if json_type(value) != "array":
        yield _wrong_type(value, [kind], pointer)
        return
    yield from _lengths(value, kind, pointer, "items")
    for index, item in enumerate(value):
        yield from _check(item, kind.item_type, f"{pointer}/{index}")


def _scalar(value: Any, kind: mi.Type, pointer: str) -> Iterator[Issue]:
    if json_type(value) not in _json_types(kind):
        yield _wrong_type(value, [kind], pointer)
    elif isinstance(kind, mi.StrType):
        yield from _lengths(value, kind, pointer, "characters")
        if kind.pattern is not None and re.search(kind.pattern, value) is None:
            yield Issue(pointer=pointer, message=f"{show(value)} does not match {kind.pattern!r}", kind="type")
    elif isinstance(kind, mi.IntType | mi.FloatType):
        yield from _range(value, kind, pointer)


def _lengths(value: Any, kind: Any, pointer: str, what: str) -> Iterator[Issue]:
    least, most = getattr(kind, "min_length", None), getattr(kind, "max_length", None)
    if least is not None and len(value) < least:
        yield Issue(pointer=pointer, message=f"at least {least} {what}, not {len(value)}", kind="type")
    if most is not None and len(value) > most:
        yield Issue(pointer=pointer, message=f"at most {most} {what}, not {len(value)}", kind="type")


def _range(value: Any, kind: mi.IntType | mi.FloatType, pointer: str) -> Iterator[Issue]:
    rules: tuple[tuple[Any, Callable[[Any, Any], bool], str], ...] = (
        (kind.ge, operator.ge, "at least"),
        (kind.gt, operator.gt, "above"),
        (kind.le, operator.le, "at most"),
        (kind.lt, operator.lt, "below"),
    )
    for bound, holds, words in rules:
        if bound is not None and not holds(value, bound):
            yield Issue(pointer=pointer, message=f"must be {words} {bound}, not {show(value)}", kind="type")


def _wrong_type(value: Any, kinds: Sequence[mi.Type], pointer: str) -> Issue:
    return Issue(pointer=pointer, message=f"expected {_expected(kinds)}, not {show(value)}")


def _literal_issue(value: Any, kind: mi.LiteralType, pointer: str) -> Issue:
    words = [str(word) for word in kind.values]
    shown = " or ".join(show(word) for word in kind.values)
    if len(words) == 1:
        return Issue(
            pointer=pointer,
            message=f"expected {shown}, not {show(value)}",
            hint=f"write {msgspec.json.encode(kind.values[0]).decode()}",
        )
    return Issue(
        pointer=pointer, message=f"expected one of {', '.join(words)}, not {show(value)}", hint=meant(str(value), words)
    )


def _expected(kinds: Iterable[mi.Type]) -> str:
    """`text, a list or an object`."""
    words: dict[str, None] = {}
    for kind in kinds:
        for member in kind.types if isinstance(kind, mi.UnionType) else (kind,):
            if isinstance(member, mi.LiteralType):
                words.setdefault(_listed_words(member))
            elif isinstance(member, mi.StructType):
                needed = [field.encode_name for field in member.fields if field.required]
                words.setdefault("an object" + (f" with {' and '.join(needed)}" if needed else ""))
            elif not isinstance(member, mi.NoneType):
                words.update(dict.fromkeys(TYPE_NAMES[name] for name in _shown_types(member)))
    listed = list(words) or ["null"]
    return listed[0] if len(listed) == 1 else ", ".join(listed[:-1]) + " or " + listed[-1]


def _listed_words(kind: mi.LiteralType) -> str:
    words = [msgspec.json.encode(word).decode() for word in kind.values]
    return words[0] if len(words) == 1 else "one of " + ", ".join(words)


def _shown_types(kind: mi.Type) -> tuple[str, ...]:
    names = _json_types(kind)
    return ("number",) if names == ("integer", "number") else names


def _json_types(kind: mi.Type) -> tuple[str, ...]:
    """The JSON types that a type takes."""
    match kind:
        case mi.NoneType():
            return ("null",)
        case mi.BoolType():
            return ("boolean",)
        case mi.IntType():
            return ("integer",)
        case mi.FloatType():
            return ("integer", "number")
        case mi.StructType() | mi.DictType():
            return ("object",)
        case mi.ListType() | mi.VarTupleType() | mi.SetType() | mi.FrozenSetType() | mi.TupleType():
            return ("array",)
        case mi.LiteralType():
            return tuple({json_type(word) for word in kind.values})
        case mi.AnyType() | mi.RawType():
            return ("null", "boolean", "integer", "number", "string", "array", "object")
    return ("string",)  # text, and what is written as text: dates, ids, bytes
