"""Functions of CEL, and `in`, for the values where Python is certain to give the same answer.

Each takes the values of its arguments and raises `Unsure` for any others: then the library evaluates the whole. It is asked for most
functions anyway; these are the ones that stand in conditions of comprehensions, where it would be asked for each item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Scope = Mapping[str, Any]
Read = Callable[[Scope], Any]

BUDGET = ""
"""The key in a scope of what comprehensions share (`loops.ItemBudget`); no variable has this name."""

LEAST, MOST = -(2**63), 2**63 - 1
_LONGEST = 65_536
"""Characters of a text that is made without a look at how large values may be."""


class Unsure(Exception):
    """Only CEL knows."""


def is_sound(value: Any) -> bool:
    """Whether it is a text that CEL takes: half a surrogate pair is an error there."""
    if type(value) is not str:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: Any) -> str:
    if is_sound(value):
        return str(value)
    raise Unsure


def joined(a: Any, b: Any) -> str:
    """`a + b` of two texts."""
    if len(a) + len(b) <= _LONGEST and is_sound(a) and is_sound(b):
        return str(a + b)
    raise Unsure


def _size(value: Any) -> int:
    return len(_text(value))


def _string(value: Any) -> str:
    if type(value) is int and LEAST <= value <= MOST:
        return str(value)
    return _text(value)


def _int(value: Any) -> int:
    if type(value) is int and LEAST <= value <= MOST:
        return value
    raise Unsure


def _double(value: Any) -> float:
    if type(value) is float or (type(value) is int and LEAST <= value <= MOST):
        return float(value)
    raise Unsure


CALLS: dict[tuple[str, int], Callable[..., Any]] = {
    ("contains", 2): lambda text, part: _text(part) in _text(text),
    ("startsWith", 2): lambda text, part: _text(text).startswith(_text(part)),
    ("endsWith", 2): lambda text, part: _text(text).endswith(_text(part)),
    ("size", 1): _size,
    ("string", 1): _string,
    ("int", 1): _int,
    ("double", 1): _double,
}
"""Name and number of arguments, of which the target of a method is the first."""


# --- in --------------------------------------------------------------------------------------------


class _Members:
    """The texts and the numbers of a list, or the texts among the keys of a map."""

    __slots__ = ("numbers", "texts")

    def __init__(self, value: Any) -> None:
        is_map = isinstance(value, Mapping)
        if not is_map and (isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Sequence)):
            raise Unsure
        self.texts = {item for item in value if type(item) is str}
        # A number among keys may be one that CEL refuses as a key.
        self.numbers = None if is_map else {item for item in value if type(item) is int or type(item) is float}
        others = sum(1 for item in value if type(item) not in _SIMPLE)
        if others:
            raise Unsure

    def has(self, value: Any) -> bool:
        if type(value) is int and self.numbers is not None and LEAST <= value <= MOST:
            return value in self.numbers
        return _text(value) in self.texts


_SIMPLE = frozenset({str, int, float, bool, type(None)})


def membership(read: Read, read_list: Read, *, kept: bool) -> Read:
    """`value in list`.

    Args:
        kept: the list is the same in each step of the comprehensions around.
    """
    key = object()

    def once(scope: Scope) -> bool:
        return _Members(read_list(scope)).has(read(scope))

    def in_each_step(scope: Scope) -> bool:
        shared = scope[BUDGET].kept
        members = shared.get(key)
        if members is None:
            members = shared[key] = _Members(read_list(scope))
        return bool(members.has(read(scope)))

    return in_each_step if kept else once
