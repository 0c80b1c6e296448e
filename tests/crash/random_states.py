"""Random state classes from a seed, with values that they take and values that they refuse.

What fits and what a value reads back as is known by construction, from the same draw that declares the field; no checker of
types is asked, so this is an oracle of its own.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from datetime import date, timedelta
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, create_model
from typing_extensions import TypedDict  # what pydantic takes before Python 3.12

from graphflow import append, merge
from graphflow.graph.builder import max_, sum_

NAMES = ("items", "keys", "values", "get", "pop", "update", "clear", "size", "name", "a", "b", "c")
"""Fields of states; those of a mapping's methods are names like others."""
TEXTS = ("", "x", "two words", "nul\0inside", "Grüße", "🙂", '"quoted\\"', "null", "x" * 300)


class Tone(StrEnum):
    LOW = "low"
    HIGH = "high"


class Kind(NamedTuple):
    """A declared type: its annotation, a value that it takes, as written and as read back, and one that it refuses."""

    hint: Any
    right: Callable[[random.Random], tuple[Any, Any]]
    wrong: Callable[[random.Random], Any]


class Declared(NamedTuple):
    """A field of a state."""

    kind: Kind
    """Of what is written."""
    reducer: str
    initial: Any
    """What is read before anything was written."""
    hint: Any
    most: int | None = None
    """The bound of a sum or a maximum."""

    def reduced(self, old: Any, new: Any) -> Any:
        """What is read after a write of `new`."""
        match self.reducer:
            case "append":
                return [*(old or []), *new]
            case "merge":
                return {**(old or {}), **new}
            case "sum":
                return (old or 0) + new
            case "max":
                return max(old, new)
            case _:
                return new


def _generic(origin: Any, *parts: Any) -> Any:
    """A type whose parts are drawn."""
    return origin[parts if len(parts) > 1 else parts[0]]


def _same(value: Any) -> tuple[Any, Any]:
    return value, value


# --- single values -----------------------------------------------------------------------------------


def _whole(draw: random.Random) -> Kind:
    if draw.random() < 0.5:
        return Kind(int, lambda r: _same(r.randint(-(2**40), 2**40)), lambda r: r.choice(["x", 1.5, [1], {}]))
    low, high = draw.randint(-5, 0), draw.randint(1, 9)
    hint = Annotated[int, Field(ge=low, le=high)]
    return Kind(hint, lambda r: _same(r.randint(low, high)), lambda r: r.choice([low - 1, high + 1, "x", None]))


def _number(draw: random.Random) -> Kind:
    def right(r: random.Random) -> tuple[Any, Any]:
        value = r.choice([r.random() * 1e6, r.randint(-9, 9), -0.5])
        return value, float(value)

    return Kind(float, right, lambda r: r.choice(["x", [], None]))


def _text(draw: random.Random) -> Kind:
    if draw.random() < 0.6:
        return Kind(str, lambda r: _same(r.choice(TEXTS)), lambda r: r.choice([5, None, ["x"], {}]))
    most = draw.randint(1, 5)
    hint = Annotated[str, Field(min_length=1, max_length=most)]
    return Kind(hint, lambda r: _same("y" * r.randint(1, most)), lambda r: r.choice(["", "y" * (most + 1), 5]))


def _yes(draw: random.Random) -> Kind:
    return Kind(bool, lambda r: _same(r.random() < 0.5), lambda r: r.choice(["perhaps", 7, None, []]))


def _word(draw: random.Random) -> Kind:
    return Kind(
        Literal["red", "blue"], lambda r: _same(r.choice(["red", "blue"])), lambda r: r.choice(["green", 1, None])
    )


def _tone(draw: random.Random) -> Kind:
    def right(r: random.Random) -> tuple[Any, Any]:
        tone = r.choice(list(Tone))
        return r.choice([tone, tone.value]), tone

    return Kind(Tone, right, lambda r: r.choice(["loud", 3, None]))


def _day(draw: random.Random) -> Kind:
    def right(r: random.Random) -> tuple[Any, Any]:
        day = date(1970, 1, 1) + timedelta(days=r.randint(0, 40_000))
        return r.choice([day, day.isoformat()]), day

    return Kind(date, right, lambda r: r.choice(["tomorrow", "2026-13-01", [], None]))


# --- several values ----------------------------------------------------------------------------------


def _some(r: random.Random, kind: Kind, least: int = 0) -> tuple[list[Any], list[Any]]:
    pairs = [kind.right(r) for _ in range(r.randint(least, 3))]
    return [written for written, _ in pairs], [read for _, read in pairs]


def _list(draw: random.Random, depth: int) -> Kind:
    inner = kind_of(draw, depth - 1)

    def wrong(r: random.Random) -> Any:
        return r.choice([5, None, {"x": 1}, [*_some(r, inner)[0], inner.wrong(r)]])

    return Kind(_generic(list, inner.hint), lambda r: _some(r, inner), wrong)


def _dict(draw: random.Random, depth: int) -> Kind:
    inner = kind_of(draw, depth - 1)

    def right(r: random.Random) -> tuple[Any, Any]:
        written, read = _some(r, inner)
        keys = r.sample(["", "k", "ü", "a.b", "items"], len(read))
        return dict(zip(keys, written, strict=True)), dict(zip(keys, read, strict=True))

    return Kind(_generic(dict, str, inner.hint), right, lambda r: r.choice([5, None, [1], {"k": inner.wrong(r)}]))


def _maybe(draw: random.Random, depth: int) -> Kind:
    inner = kind_of(draw, depth - 1)

    def wrong(r: random.Random) -> Any:
        return next(value for _ in range(1_000) if (value := inner.wrong(r)) is not None)

    return Kind(inner.hint | None, lambda r: _same(None) if r.random() < 0.3 else inner.right(r), wrong)


def _pair(draw: random.Random, depth: int) -> Kind:
    one, two = kind_of(draw, depth - 1), kind_of(draw, depth - 1)

    def right(r: random.Random) -> tuple[Any, Any]:
        (a, read_a), (b, read_b) = one.right(r), two.right(r)
        return r.choice([(a, b), [a, b]]), (read_a, read_b)

    def wrong(r: random.Random) -> Any:
        return r.choice([5, [], [one.right(r)[0]], [one.wrong(r), two.right(r)[0]], [one.right(r)[0], two.wrong(r)]])

    return Kind(_generic(tuple, one.hint, two.hint), right, wrong)


def _set(draw: random.Random, depth: int) -> Kind:
    def right(r: random.Random) -> tuple[Any, Any]:
        words = set(r.sample(["a", "b", "c", ""], r.randint(0, 3)))
        return r.choice([words, sorted(words)]), words

    return Kind(set[str], right, lambda r: r.choice([5, None, ["a", 1]]))


def _record(draw: random.Random, depth: int) -> Kind:
    """A nested class: a dataclass, a model or a `TypedDict`, written as itself or as plain data."""
    fields = {name: kind_of(draw, depth - 1) for name in draw.sample(["name", "items", "n"], draw.randint(1, 3))}
    form = draw.choice(["dataclass", "model", "typed"])
    hints = {name: kind.hint for name, kind in fields.items()}
    cls = _class(form, "Nested", hints, {})

    def values(r: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
        pairs = {name: kind.right(r) for name, kind in fields.items()}
        return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}

    def right(r: random.Random) -> tuple[Any, Any]:
        written, read = values(r)
        return r.choice([cls(**read), written]), cls(**read)

    def wrong(r: random.Random) -> Any:
        written, name = values(r)[0], r.choice(list(fields))
        missing = {key: value for key, value in written.items() if key != name}
        return r.choice([5, [1], missing, {**written, name: fields[name].wrong(r)}])

    return Kind(cls, right, wrong)


SINGLE: list[Callable[[random.Random], Kind]] = [_whole, _number, _text, _yes, _word, _tone, _day]
SEVERAL: list[Callable[[random.Random, int], Kind]] = [_list, _dict, _maybe, _pair, _set, _record, _record]


def kind_of(draw: random.Random, depth: int) -> Kind:
    """A random type, so deep at most."""
    if depth == 0 or draw.random() < 0.4:
        return draw.choice(SINGLE)(draw)
    return draw.choice(SEVERAL)(draw, depth)


# --- states ------------------------------------------------------------------------------------------


def _class(form: str, name: str, hints: dict[str, Any], initial: dict[str, Any]) -> Any:
    if form == "typed":
        return TypedDict(name, hints)  # type: ignore[operator] # the fields are drawn
    if form == "dataclass":
        defaults = {field: dataclasses.field(default_factory=partial(initial.get, field)) for field in initial}
        return dataclasses.make_dataclass(
            name,
            [(field, hint, defaults[field]) if field in defaults else (field, hint) for field, hint in hints.items()],
        )
    given: dict[str, Any] = {
        field: (hint, Field(default=initial[field]) if field in initial else ...) for field, hint in hints.items()
    }
    return create_model(name, __base__=BaseModel, **given)


def _declared(draw: random.Random) -> Declared:
    reducer = draw.choice(["replace", "replace", "replace", "append", "merge", "sum", "max"])
    if reducer in ("sum", "max"):
        top = draw.randint(5, 20)
        kind = Kind(int, lambda r: _same(r.randint(0, 4)), lambda r: r.choice(["x", [1], top + 1]))
        mark = sum_ if reducer == "sum" else max_
        hint = Annotated[int, mark, Field(ge=0, le=top)]
        return Declared(kind, reducer, 0, hint, top)
    if reducer == "replace":
        kind = kind_of(draw, 2)
        return Declared(kind, reducer, kind.right(draw)[1], kind.hint)
    inner = kind_of(draw, 1)
    kind = _list_of(inner) if reducer == "append" else _dict_of(inner)
    mark = append if reducer == "append" else merge
    return Declared(kind, reducer, [] if reducer == "append" else {}, Annotated[kind.hint, mark])


def _list_of(inner: Kind) -> Kind:
    return Kind(_generic(list, inner.hint), lambda r: _some(r, inner), lambda r: [*_some(r, inner)[0], inner.wrong(r)])


def _dict_of(inner: Kind) -> Kind:
    def right(r: random.Random) -> tuple[Any, Any]:
        written, read = _some(r, inner)
        keys = r.sample(["k", "l", "m", "n"], len(read))
        return dict(zip(keys, written, strict=True)), dict(zip(keys, read, strict=True))

    return Kind(_generic(dict, str, inner.hint), right, lambda r: {"k": inner.wrong(r)})


class Act(NamedTuple):
    """One write or edit, and what is read after it."""

    how: str
    """`write`, `edit`, `replace` (an edit that sets what others would reduce)"""
    values: dict[str, Any]
    refused: str
    """The field whose value is wrong; empty when all is taken."""
    after: dict[str, Any]
    """Every field that is known then."""


class States:
    """The class of a seed, and what is done with its state."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(f"states of {seed}")
        self.form = draw.choice(["dataclass", "model", "typed"])
        self.fields = {name: _declared(draw) for name in draw.sample(NAMES, draw.randint(1, 5))}
        self.initial = {} if self.form == "typed" else {name: field.initial for name, field in self.fields.items()}
        hints = {name: field.hint for name, field in self.fields.items()}
        self.cls = _class(self.form, "State", hints, self.initial)
        self.acts: list[Act] = []
        known = dict(self.initial)
        for _ in range(draw.randint(2, 5)):
            self.acts.append(self._act(draw, known))
            known = self.acts[-1].after
        self.acts += [Act("write", {}, "", known)] * 2  # one to die in, and one that reads the end in any case

    def _act(self, draw: random.Random, known: dict[str, Any]) -> Act:
        names = draw.sample(list(self.fields), draw.randint(1, len(self.fields)))
        how = draw.choice(["write", "write", "edit", "replace"]) if self.acts else "write"  # an edit needs a thread
        values, after = {}, dict(known)
        for name in names:
            field = self.fields[name]
            values[name], read = field.kind.right(draw)
            after[name] = read if how == "replace" or name not in known else field.reduced(known[name], read)
        for name in names:  # a sum that gets too large is refused, too
            if (most := self.fields[name].most) is not None and after[name] > most:
                return Act(how, values, name, known)
        if draw.random() < 0.3:
            name = draw.choice(names)
            values[name] = self.fields[name].kind.wrong(draw)
            return Act(how, values, name, known)
        return Act(how, values, "", after)
