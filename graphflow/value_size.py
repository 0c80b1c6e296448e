"""How large a value is, without encoding it: about the bytes that it takes in a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from typing import Any

import msgspec
from msgspec.structs import astuple


class HiddenFields:
    """Fields that are shown to nobody: whoever writes a value for people, as JSON or as text, gets their size and a digest.

    Not a mapping, so that nothing looks inside by itself.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def __eq__(self, other: object) -> bool:
        return self.fields == other.fields if isinstance(other, HiddenFields) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        import hashlib  # asked for by few: every import of graphflow would wait for it

        data = msgspec.json.encode(self.fields, enc_hook=repr, order="deterministic")
        return f"{len(data)} bytes, sha256:{hashlib.sha256(data).hexdigest()[:32]}"


FIXED: frozenset[type] = frozenset({int, float, bool, type(None)})
"""Types whose values are small; an `int` of many digits is looked at all the same."""
_TEXTS = frozenset({str})
_WHOLE = frozenset({int})
_NUMBER = 9
_FEW = 8
_STRUCT = type(msgspec.Struct)


def text_size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    # Half a surrogate pair has three bytes, as a whole character of its range would have.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def size_of(value: Any, limit: int) -> int:
    """The bytes of a value; counting ends once they are more than `limit`.

    What a value holds twice counts twice: stored or rendered, it is written twice.
    """
    kind = type(value)
    if kind is str:
        return len(value) if len(value) > limit else text_size(value)
    total = 0
    rest = [value]
    # A stack and not recursion: nothing has checked yet how deep the value is.
    while rest:
        value = rest.pop()
        kind = type(value)
        if kind is str:
            total += 1 + (len(value) if value.isascii() or len(value) > limit else text_size(value))
        elif kind in FIXED:
            total += _NUMBER if kind is not int else 1 + (value.bit_length() >> 3)
        elif type(kind) is _STRUCT:
            for part in filter(None, astuple(value)):
                if type(part) is str and part.isascii():
                    total += 1 + len(part)
                else:
                    rest.append(part)
        # The abstract classes come last: they cost more to ask for.
        elif kind is tuple or kind is list:
            total += len(value)
            if value and total <= limit:
                total += _add(value, rest)
        elif isinstance(value, dict):
            total += len(value)
            if value and total <= limit:
                total += _add(value, rest) + _add(value.values(), rest)
        elif isinstance(value, Mapping):
            total += len(value)
            if total <= limit:
                total += _add(list(value), rest) + _add(list(value.values()), rest)
        elif isinstance(value, bytes | bytearray | str):
            total += len(value)
        elif isinstance(value, Sequence | AbstractSet):
            total += len(value)
            if total <= limit:
                total += _add(value, rest)
        else:
            total += _NUMBER
            if type(value) is HiddenFields:
                rest.append(value.fields)
            elif is_dataclass(value):
                rest += list(getattr(value, "__dict__", {}).values())
        if total > limit:
            break
    return total


def _add(items: Any, rest: list[Any]) -> int:
    """The size of items that are all texts or all numbers, at once; others, and a few, are left for later."""
    if len(items) <= _FEW:
        rest.extend(items)
        return 0
    kinds = set(map(type, items))
    if kinds <= _TEXTS:
        return sum(map(len, items)) if all(map(str.isascii, items)) else sum(map(text_size, items))
    if kinds == _WHOLE:
        return (sum(map(int.bit_length, items)) >> 3) + len(items)
    if kinds <= FIXED and int not in kinds:
        return _NUMBER * len(items)
    rest.extend(items)
    return 0
