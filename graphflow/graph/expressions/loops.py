"""Comprehensions, item by item, as CEL defines them: `list.map(item, …)`, `filter`, `all`, `exists` and `exists_one`.

The library copies the list that `map` and `filter` have made so far for each item, so its time grows with their square.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

from msgspec.structs import replace

from graphflow.bounds import Bounds
from graphflow.errors import LimitExceeded
from graphflow.excerpts import excerpt_of
from graphflow.graph.expressions.ast import Loop, Outline, Path
from graphflow.graph.expressions.cel_library import CelError, Unconvertible, to_plain
from graphflow.graph.expressions.environment import VARIABLES
from graphflow.graph.expressions.growth import items_in, too_large
from graphflow.graph.expressions.native_calls import BUDGET
from graphflow.graph.expressions.paths import Missing
from graphflow.value_size import FIXED, size_of

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]

COMPUTED = ""
"""The variable of a path that stands for a comprehension."""

_VALUES_PER_ITEM = 5
_BYTES_PER_ITEM = 8_192
_ITEMS_PER_PROGRAM = 50
"""An item for which the library is asked counts twice, and more by what is converted for it: about the time that it takes."""


class ItemBudget:
    """What one evaluation of an expression may still go through, and what its comprehensions share."""

    __slots__ = ("_bounds", "_left", "_source", "kept")

    def __init__(self, source: str, bounds: Bounds) -> None:
        self._source, self._bounds = source, bounds
        self._left = bounds.expression_items
        self.kept: dict[object, Any] = {}
        """What is the same in each step of the comprehensions around."""

    def spend(self, count: int, what: Callable[[], str]) -> None:
        """Counts items.

        Args:
            what: says what is too much, for the error.

        Raises:
            LimitExceeded
        """
        self.check(count, what)
        self._left -= count

    def check(self, count: int, what: Callable[[], str]) -> None:
        """Refuses what is too much, before any of it is done."""
        if count > self._left:
            shown = self._source if len(self._source) <= 80 else self._source[:79] + "…"
            raise LimitExceeded(
                "expression_items",
                self._bounds.expression_items,
                f"expression {shown!r} goes through too many items: {what()}",
                "pass fewer items, compute it in a Python node, or raise it",
            )

    def spend_conversion(self, data: Mapping[str, Any], size: int, literals: int) -> None:
        """Counts what the library is given for one item."""
        values = sum(items_in(value, self._bounds.expression_items * _VALUES_PER_ITEM) for value in data.values())
        count = 1 + values // _VALUES_PER_ITEM + size // _BYTES_PER_ITEM + (_ITEMS_PER_PROGRAM if literals else 0)
        self.spend(
            count,
            lambda: f"the CEL library is asked in each step, and reads {values:,} values and {size:,} bytes there",
        )

    def check_conversion(self, value: Any) -> None:
        """Refuses a value with more in it than the library may be given for a whole comprehension."""
        most = (self._left + 1) * _VALUES_PER_ITEM
        values = _values_in(value, most)
        self.check(
            values // _VALUES_PER_ITEM,
            lambda: f"its list is made of a value with {'more than ' if values >= most else ''}{values:,} values in it",
        )

    def keep(self, size: int) -> None:
        """Refuses a list of so many bytes if no value may have them."""
        if size > self._bounds.value_bytes:
            raise too_large(self._source, self._bounds.value_bytes)

    @property
    def most_bytes(self) -> int:
        return self._bounds.value_bytes


def _values_in(value: Any, most: int) -> int:
    """The values in all lists and maps of a value, counted up to `most`."""
    count, rest = 0, [value]
    while rest and count < most:
        found = rest.pop()
        if isinstance(found, Mapping):
            found = found.values()
        elif isinstance(found, str | bytes) or not isinstance(found, Sequence):
            continue
        count += len(found)
        rest += [item for item in islice(found, most) if isinstance(item, Mapping | list | tuple)]
    return min(count, most)


class _Within(dict[str, Any]):
    """A scope with one variable more."""

    __slots__ = ("_outer",)

    def __init__(self, outer: Scope) -> None:
        self._outer = outer

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._outer[name]
        return value


def budgeted(evaluate: Evaluate, source: str, bounds: Bounds) -> Evaluate:
    """The evaluation of an expression with comprehensions: all of them share one budget."""

    def within(scope: Scope) -> Any:
        inner = _Within(scope)
        inner[BUDGET] = ItemBudget(source, bounds)
        return evaluate(inner)

    return within


# --- which ones ------------------------------------------------------------------------------------

_MAPS = re.compile(r"\.\s*map\s*\(")
_OF_CEL = re.compile(r"\b(?:\d+|0[xX][0-9a-fA-F]+)[uU]\b|\b(?:uint|type|timestamp|duration)\s*\(")
"""What makes values of types that only the library has."""


def is_taken(loop: Loop, text: str) -> bool:
    """Whether it is gone through here.

    What `map` makes may go from the library to Python and back, and values of the library's own types would not come back.
    """
    source = text[loop.start : loop.end]
    return loop.variable not in VARIABLES and not (_MAPS.search(source) and _OF_CEL.search(source))


def computed(outline: Outline, start: int, end: int) -> tuple[Outline, dict[Path, Loop]]:
    """The outline of the span, with a path for each of its comprehensions that is gone through here."""
    taken: list[Loop] = []
    at = start
    within_paths = [(path.start, path.end) for path in outline.paths]
    # Those around the span, whose list it may be, are none of its own.
    own = [loop for loop in outline.loops if start <= loop.start and loop.end <= end]
    for loop in sorted(own, key=lambda loop: (loop.start, -loop.end)):
        inside = any(first <= loop.start and loop.end <= last for first, last in within_paths)
        if loop.start >= at and not inside:
            at = loop.end
            if is_taken(loop, outline.text):
                taken.append(loop)
    stand_ins = {Path(COMPUTED, (outline.text[loop.start : loop.end],), loop.start, loop.end): loop for loop in taken}

    def outside(at: int) -> bool:
        return not any(loop.start <= at < loop.end for loop in taken)

    paths = [*(path for path in outline.paths if outside(path.start)), *stand_ins]
    return replace(
        outline,
        paths=tuple(sorted(paths, key=lambda path: path.start)),
        loops=tuple(loop for loop in own if outside(loop.start)),
        uses=tuple(use for use in outline.uses if start <= use[0] < end and outside(use[0])),
    ), stand_ins


# --- what they give --------------------------------------------------------------------------------


class Items:
    """What a comprehension goes through: the items of a list or the keys of a map, each converted when it is reached."""

    __slots__ = ("_convert", "_given", "_made")

    def __init__(self, given: Sequence[Any], convert: Callable[[Any, int], Any]) -> None:
        self._given, self._convert = given, convert
        self._made: list[Any] = []

    def __len__(self) -> int:
        return len(self._given)

    def __iter__(self) -> Iterator[Any]:
        made = self._made
        for index in range(len(self._given)):
            if index == len(made):
                made.append(self._convert(self._given[index], index))
            yield made[index]


def items_of(value: Any, macro: str, convert: Callable[[Any, int], Any]) -> Items:
    """The items of a value.

    Raises:
        CelError: it has none.
    """
    if isinstance(value, list | tuple):
        return Items(value, convert)
    if isinstance(value, Mapping):
        return Items(list(value), _key)
    if isinstance(value, Sequence | AbstractSet) and not isinstance(value, str | bytes | bytearray | memoryview):
        return Items(list(value), convert)
    plain = to_plain(value)
    if isinstance(plain, dict):
        return Items(list(plain), _key)
    raise CelError(f"{macro}() goes through a list or a map, not {excerpt_of(plain, 60)}")


def _key(key: Any, _: int) -> Any:
    return to_plain(key)


def through(loop: Loop, items: Callable[[Scope], Items], bodies: list[Evaluate]) -> Evaluate:
    """The function that evaluates the comprehension.

    Args:
        items: gives what it goes through.
        bodies: its expressions.
    """
    run, macro, variable = _MACROS[loop.macro], loop.macro, loop.variable

    def evaluate(scope: Scope) -> Any:
        found = items(scope)
        budget: ItemBudget = scope[BUDGET]
        inner = _Within(scope)

        def what() -> str:
            return f"{macro}() has {len(found):,}, and comprehensions in each other multiply"

        def each() -> Iterable[Any]:
            for item in found:
                budget.spend(1, what)
                inner[variable] = item
                yield item

        if macro not in ("all", "exists"):
            budget.check(len(found), what)
        return run(macro, each(), inner, bodies, budget)

    return evaluate


def _truth(value: Any, macro: str) -> bool:
    if value is True or value is False:
        return bool(value)
    raise CelError(f"the condition of {macro}() is {excerpt_of(value, 60)}, not true or false")


def _any(macro: str, each: Iterable[Any], scope: Scope, bodies: list[Evaluate], _: ItemBudget) -> bool:
    """`exists` and `all`: an error counts only if no item decides."""
    until = macro == "exists"
    failure: Exception | None = None
    (condition,) = bodies
    for _item in each:
        try:
            if _truth(condition(scope), macro) is until:
                return until
        except (Missing, CelError, Unconvertible) as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return not until


def _one(macro: str, each: Iterable[Any], scope: Scope, bodies: list[Evaluate], _: ItemBudget) -> bool:
    (condition,) = bodies
    return sum(_truth(condition(scope), macro) for _item in each) == 1


def _filter(macro: str, each: Iterable[Any], scope: Scope, bodies: list[Evaluate], _: ItemBudget) -> list[Any]:
    (condition,) = bodies
    return [item for item in each if _truth(condition(scope), macro)]


def _map(macro: str, each: Iterable[Any], scope: Scope, bodies: list[Evaluate], budget: ItemBudget) -> list[Any]:
    *conditions, make = bodies
    out: list[Any] = []
    size = 0
    for _item in each:
        if all(_truth(condition(scope), macro) for condition in conditions):
            value = make(scope)
            size += 9 if type(value) in FIXED else size_of(value, budget.most_bytes)
            budget.keep(size)
            out.append(value)
    return out


_MACROS: dict[str, Callable[[str, Iterable[Any], Scope, list[Evaluate], ItemBudget], Any]] = {
    "all": _any,
    "exists": _any,
    "exists_one": _one,
    "filter": _filter,
    "map": _map,
}
