"""How large a value an expression may make, from the sizes of what it reads: refused before anything is built.

Only CEL builds values: whatever else an expression does is read by reference. CEL itself limits nothing but the iterations
of all comprehensions of an evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from graphflow.errors import LimitExceeded
from graphflow.graph.expressions.ast import Binary, Choice, Constant, ListOf, Loop, MapOf, Node, Outline, Path
from graphflow.value_size import size_of

ITERATIONS = 10_000
"""Of all comprehensions of one evaluation: CEL refuses more."""
MOST_COPIED = 1_000
"""Items for a `map` or `filter` in the library, which copies what it has made for each."""
SLACK = 4
"""How far what calls and comprehensions are guessed to make may be above the bound: what they give is measured afterwards."""

_IS_READ = re.compile(r"[\w.\s]*+")
"""What a comprehension goes through if nothing is made there: a path, or one below another comprehension's variable."""

Key = tuple[Any, ...]


def key_of(path: Path) -> Key:
    """The same for all places that name one path."""
    return path.variable, path.steps, path.test


class Growth:
    """What one span of an expression can make."""

    __slots__ = ("_loops", "_most", "_node", "_paths", "_source", "_text", "_uses", "_work")

    def __init__(self, outline: Outline, node: Node, value_bytes: int) -> None:
        start, end = node.start, node.end
        self._node, self._most = node, value_bytes
        self._text, self._source = outline.text, outline.text[start:end]
        self._paths = [path for path in outline.paths if start <= path.start < end]
        self._loops, self._uses = outline.loops, outline.uses
        self._work = max(1, len(self._paths) + len(self._uses)) * (ITERATIONS if self._loops else 1)

    def check(self, data: Mapping[Key, Any]) -> int:
        """The bytes of the data; refuses an evaluation that could make too much.

        Args:
            data: path → the value that CEL is given for it.

        Raises:
            LimitExceeded
        """
        sizes = {key: size_of(value, self._most) for key, value in data.items()}
        read = sum(sizes.values())
        # The usual case: even if each name were all that is read, in each iteration, it would fit.
        if (read + len(self._source)) * self._work <= self._most:
            return read
        items = sum(map(items_in, data.values())) if self._loops else 0
        largest = self._largest(data) if self._loops else 0
        if self._made(self._node, sizes, items, largest) > self._most:
            raise too_large(self._source, self._most)
        return read

    def check_made(self, value: Any) -> Any:
        """The value; raises `LimitExceeded` if it is too large after all."""
        if size_of(value, self._most) > self._most:
            raise too_large(self._source, self._most)
        return value

    def _largest(self, data: Mapping[Key, Any]) -> int:
        """No variable of a comprehension has a larger value: the largest item if all go through lists that were read."""
        if all(_IS_READ.fullmatch(self._text, loop.start, loop.opens) for loop in self._loops):
            found = (item for value in data.values() for item in (value if isinstance(value, list) else (value,)))
            return max((size_of(item, self._most) for item in found), default=0)
        return self._most

    def _made(self, node: Node, sizes: Mapping[Key, int], items: int, largest: int) -> int:
        """At most so many bytes are made for the node; what only decides about its value is left out."""
        match node:
            case Path():
                return sizes.get(key_of(node), 0)
            case Constant(value=value):
                return len(value) if isinstance(value, str) else 9
            case ListOf(items=parts):
                return sum(self._made(part, sizes, items, largest) for part in parts)
            case MapOf(entries=entries):
                return sum(len(key) + self._made(part, sizes, items, largest) for key, part in entries)
            case Choice(then=then, other=other):
                return max(self._made(then, sizes, items, largest), self._made(other, sizes, items, largest))
            case Binary(operator="+", left=left, right=right):
                return self._made(left, sizes, items, largest) + self._made(right, sizes, items, largest)
        return self._guess(node, sizes, items, largest) // SLACK

    def _guess(self, node: Node, sizes: Mapping[Key, int], items: int, largest: int) -> int:
        """Of calls, comprehensions and comparisons: all that is named in them, as often as it may be evaluated."""

        def times(levels: int) -> int:
            return min(ITERATIONS, int((items + 1) ** levels))

        def total(loop: Loop) -> int:
            """What the comprehension goes through, in all of its evaluations together."""
            if (name := names.get(loop.start)) is not None and (outer := self._owner(loop.start, name)) is not None:
                # Items of another comprehension: their lists are parts of what that one goes through.
                return total(outer) * times(self._level(loop.start) - self._level(outer.start) - 1)
            read = (sizes.get(key_of(path), 0) for path in self._paths if loop.start <= path.start < loop.opens)
            return sum(read) * times(self._level(loop.start))

        names = dict(self._uses)
        made = len(self._source) * times(max((self._level(loop.opens) for loop in self._loops), default=0))
        for path in self._paths:
            if node.start <= path.start < node.end:
                made += sizes.get(key_of(path), 0) * times(self._level(path.start))
        for at, name in self._uses:
            if node.start <= at < node.end and (owner := self._owner(at, name)) is not None:
                level = self._level(at)
                made += min(total(owner) * times(level - self._level(owner.start) - 1), largest * times(level))
        return made

    def _level(self, at: int) -> int:
        """In how many comprehensions the place is."""
        return sum(loop.opens <= at < loop.end for loop in self._loops)

    def _owner(self, at: int, name: str) -> Loop | None:
        """The comprehension whose variable is named there: the innermost one of that name."""
        around = [loop for loop in self._loops if loop.opens <= at < loop.end and loop.variable == name]
        return max(around, key=lambda loop: loop.opens, default=None)


def too_large(source: str, most: int) -> LimitExceeded:
    """The failure of an expression whose value would be too large."""
    shown = source if len(source) <= 80 else source[:79] + "…"
    return LimitExceeded("value_bytes", most, f"the value of expression {shown!r} would have more than {most:,} bytes")


def items_in(value: Any, most: int = ITERATIONS) -> int:
    """The items of all lists and maps in a value, at most as many as matter."""
    count, rest = 0, [value]
    while rest and count < most:
        found = rest.pop()
        if isinstance(found, Mapping):
            found = list(found.values())
        if isinstance(found, list):
            count += len(found)
            rest += [item for item in found if type(item) is list or type(item) is dict]
    return count
