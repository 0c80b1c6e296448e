"""Fields without a default that nobody has written: every kind of state class reads them alike."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field

from graphflow import Graph


@dataclass
class Inner:
    x: int


@dataclass
class Data:
    text: str
    count: int
    share: float
    done: bool
    names: list[str]
    scores: dict[str, int]
    maybe: int | None
    kind: Literal["a", "b"]
    at: datetime
    inner: Inner
    least: Annotated[int, Field(ge=1)]
    seen: set[int]


class Typed(TypedDict):
    text: str
    count: int
    share: float
    done: bool
    names: list[str]
    scores: dict[str, int]
    maybe: int | None
    kind: Literal["a", "b"]
    at: datetime
    inner: Inner
    least: Annotated[int, Field(ge=1)]
    seen: set[int]


class Model(BaseModel):
    text: str
    count: int
    share: float
    done: bool
    names: list[str]
    scores: dict[str, int]
    maybe: int | None
    kind: Literal["a", "b"]
    at: datetime
    inner: Inner
    least: Annotated[int, Field(ge=1)]
    seen: set[int]


class Plain:
    text: str
    count: int
    share: float
    done: bool
    names: list[str]
    scores: dict[str, int]
    maybe: int | None
    kind: Literal["a", "b"]
    at: datetime
    inner: Inner
    least: Annotated[int, Field(ge=1)]
    seen: set[int]


EMPTY = {"text": "", "count": 0, "share": 0.0, "done": False, "names": [], "scores": {}}
NOTHING = dict.fromkeys(("maybe", "kind", "at", "inner", "least", "seen"))


@pytest.mark.parametrize("declared", [Data, Typed, Model, Plain])
async def test_an_unwritten_field_is_empty_or_null_where_its_class_takes_nothing_empty(declared: Any) -> None:
    read: dict[str, Any] = {}
    graph = Graph(declared)

    @graph.node
    async def look(state: Any) -> None:
        read.update({name: state[name] for name in declared.__annotations__})

    assert (await graph.compile().run({})).error is None
    assert read == EMPTY | NOTHING
