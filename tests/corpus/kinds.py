"""Types that the corpus stores: one of every kind that the codec knows, registered under names that must stay."""

from __future__ import annotations

import dataclasses
import enum
import typing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic

from graphflow.checkpoints import codec
from graphflow.messages import AIMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage


@dataclasses.dataclass
class Point:
    x: int
    y: Any = 0


class Struct(msgspec.Struct, frozen=True):
    a: int
    b: Any = None


class Order(pydantic.BaseModel):
    name: str
    when: datetime
    tags: set[str] = set()


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Pair(typing.NamedTuple):
    left: Any
    right: Any = "default"


class Opaque:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


def register() -> None:
    """Registers the types of this file; once for a process."""
    for kind in (Point, Struct, Order, Colour, Level, Access, Pair):
        codec.register(kind, f"corpus.{kind.__name__}")
    codec.register(Opaque, "corpus.Opaque", dump=lambda opaque: opaque.value, load=Opaque)


def values() -> dict[str, Any]:
    """A value of every kind; the keys are those of the state."""
    berlin = ZoneInfo("Europe/Berlin")
    return {
        "plain": {
            "text": "Ä 你好 🙂",
            "int": 2**63 - 1,
            "float": 0.1,
            "true": True,
            "null": None,
            "list": [1, [2, []]],
            "": {},
        },
        "floats": [1e308, -0.0, float("inf"), float("-inf"), 5e-324],
        "large": [2**200, -(2**64)],
        "bytes": b"\x00\xff",
        "text": "lone \ud800 surrogate",
        "tuple": (1, ("two", None)),
        "sets": [{"b", "a"}, frozenset({2, 1})],
        "pairs": {1: "one", (2, 3): "two"},
        "times": [
            datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=1),
            datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
            datetime(2026, 1, 2),  # noqa: DTZ001 - a naive one is stored as such
            date(2026, 2, 28),
            time(23, 59, 58, 1),
            timedelta(days=-1, microseconds=7),
        ],
        "numbers": [Decimal("1.10"), Decimal("NaN"), UUID("018bcfe5-6800-7000-8000-000000000001")],
        "messages_kept": [
            SystemMessage(content="be brief"),
            HumanMessage(content="hi", id="m1"),
            AIMessage(
                content="", reasoning="hm", tool_calls=(ToolCall(id="c1", name="bash", arguments='{"command": "ls"}'),)
            ),
            ToolCall(id="c2", name="bash", arguments="{}"),
            ToolMessage(tool_call_id="c1", name="bash", content="a.txt", error=True),
        ],
        "registered": [
            Point(1, y=(2,)),
            Struct(1, b={"deep": {3}}),
            Order(name="tea", when=datetime(2026, 1, 1, tzinfo=UTC), tags={"x"}),
            Colour.RED,
            Level.LOW,
            Access.READ | Access.WRITE,
            Pair("l"),
            Opaque(5),
        ],
    }
