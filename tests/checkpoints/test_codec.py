"""What the codec promises: every value comes back with its type, or is refused before anything is stored (spec 4.3)."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import typing
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.checkpoints import codec
from graphflow.checkpoints import type_registry as registry
from graphflow.errors import CodecError
from graphflow.graph.core.immutable import FrozenDict, FrozenList, ListView, State, freeze
from graphflow.messages import AIMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage
from tests.codec_json import from_json, to_json
from tests.registered_types import own_types


@dataclasses.dataclass
class Point:
    x: int
    y: Any = 0
    seen: list[Any] = dataclasses.field(default_factory=list)
    derived: str = dataclasses.field(init=False, default="")

    def __post_init__(self) -> None:
        self.derived = f"made from {self.x}"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: str


class Struct(msgspec.Struct, frozen=True):
    a: int
    b: Any = None


class Inner(pydantic.BaseModel):
    when: datetime


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str = pydantic.Field(alias="theName")
    inner: Inner | None = None
    tags: set[str] = set()
    _secret: int = pydantic.PrivateAttr(default=1)


class Colour(enum.Enum):
    RED = "red"
    GREEN = (0, 255, 0)


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    HELLO = "hello"


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


class Unknown:
    pass


class UnknownColour(enum.Enum):
    RED = "red"


class UnknownText(str):
    __slots__ = ()


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The types of this file, and whatever a test registers, for the test's time."""
    with own_types():
        for kind in (Point, Frozen, Struct, Inner, Model, Colour, Level, Word, Access, Pair):
            codec.register(kind, f"test.{kind.__name__}")
        codec.register(Opaque, "test.Opaque", dump=lambda o: o.value, load=Opaque)
        yield


def same(a: Any, b: Any) -> bool:
    """Equal with equal types, all the way down; nan equals nan and -0.0 does not equal 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, Decimal):
        return bool(a.as_tuple() == b.as_tuple())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(k, j) and same(v, w) for (k, v), (j, w) in zip(a.items(), b.items(), strict=True)
        )
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if isinstance(a, msgspec.Struct):
        return same(msgspec.structs.astuple(a), msgspec.structs.astuple(b))
    if isinstance(a, datetime | time):
        return bool(a == b and a.tzinfo == b.tzinfo and a.fold == b.fold)
    return bool(a == b)


def returned(value: Any) -> Any:
    """The value after a round trip, which both forms must agree on."""
    out = codec.decode(codec.encode(value))
    text = msgspec.json.encode(to_json(value))
    assert same(from_json(msgspec.json.decode(text)), out)
    return out


VALUES: dict[str, Any] = {
    "integers": [0, -1, 2**31, 2**53 + 1, 2**63, 2**64 - 1, -(2**63), 2**64, -(2**63) - 1, 10**500],
    "bools are no integers": [True, 1, False, 0, None],
    "floats": [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 5e-324],
    "texts": ["", "天气 \U0001f324", "\x00", "half \ud83d", "a" * 70_000],
    "bytes": [b"", b"\x00\xff", b"x" * 70_000],
    "keys": {1: "a", None: "b", (1, 2): "c", b"k": "d", 1.5: {2: 3}, date(2020, 1, 1): "e", "half \udc00": 1},
    "maps": {"a": {}, "": [], "$": {"$": "set", "value": [1]}, "value": {"$": 1}},
    "tuples": ((), (1,), ([2], (3, (4,)))),
    "sets": [set(), {1, "a", (2,), None}, frozenset({frozenset({1}), b"x"}), {2**70}],
    "naive datetime": datetime(2024, 2, 29, 23, 59, 59, 999_999),  # noqa: DTZ001 – naive on purpose
    "aware datetimes": [
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45, seconds=1))),
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime.min,  # noqa: DTZ901 – naive on purpose
        datetime.max,  # noqa: DTZ901
    ],
    "times": [time(1, 2, 3, 4), time(1, tzinfo=UTC), time(1, tzinfo=ZoneInfo("Asia/Shanghai"), fold=1), time.min],
    "dates": [date.min, date(2024, 2, 29), date.max],
    "timedeltas": [timedelta(), timedelta(days=-1, microseconds=1), timedelta.max, timedelta.min],
    "decimals": [
        Decimal("1.10"),
        Decimal("-0"),
        Decimal("NaN"),
        Decimal("sNaN12"),
        Decimal("-Infinity"),
        Decimal("1E+99"),
    ],
    "uuid": UUID("018f0000-0000-7000-8000-00000000abcd"),
    "enums": [Colour.RED, Colour.GREEN, Level.LOW, Word.HELLO, Access.READ, Access.READ | Access.WRITE, Access(0)],
    "dataclasses": [Point(1), Point(2, Point(3, (4,)), [{5}]), Frozen("n")],
    "structs": [Struct(1), Struct(2, Struct(3, {4}))],
    "named tuples": [Pair(1), Pair(Pair({2}), None)],
    "own ways": [Opaque(3)],
    "messages": [
        SystemMessage(content="s", id="1"),
        HumanMessage(content="h", name="n", references=({"a": (1, {2})}, date(2024, 1, 1))),
        AIMessage(
            content="a",
            reasoning="r",
            tool_calls=(ToolCall(id="c", name="t", arguments='{"x": 1}'),),
            status="cancelled",
            reasoning_details=({"type": "x", "when": datetime(2024, 1, 1, tzinfo=UTC)}, ("t",), b"\x00"),
        ),
        ToolMessage(tool_call_id="c", content="r", name="t", error=True),
        ToolCall(id="c", name="t"),
        AIMessage(),
    ],
    "messages with half characters": [
        AIMessage(content="half \ud83d", tool_calls=(ToolCall(id="c", name="t", arguments="\udc00"),)),
        ToolMessage(tool_call_id="c", content="\ud83d"),
    ],
}


GOLDEN: dict[str, tuple[str, Any]] = {
    "plain": ("0182a16101a16294c3c0cb3ff8000000000000c40100", {"a": 1, "b": [True, None, 1.5, b"\x00"]}),
    "integer": ("01c71701b631313830353931363230373137343131333033343234", 2**70),
    "tuple": ("01c706029201d5029102", (1, (2,))),
    "set": ("01c70303920102", {1, 2}),
    "frozenset": ("01c7030491a161", frozenset({"a"})),
    "map": ("01c70505919201a161", {1: "a"}),
    "text": ("01c70306eda080", "\ud800"),
    "datetime": (
        "01c7230a91d920323032342d30322d32395430313a30323a30332e3030303030342b30303a3030",
        datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
    ),
    "zoned datetime": (
        "01c7240a93b3323032342d31302d32375430323a33303a3030ad4575726f70652f4265726c696e01",
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    ),
    "date": ("01c70b0baa323032342d30322d3239", date(2024, 2, 29)),
    "time": ("01c70a0c91a830313a30323a3030", time(1, 2)),
    "timedelta": ("01d60d93010203", timedelta(1, 2, 3)),
    "decimal": ("01c7050ea4312e3130", Decimal("1.10")),
    "uuid": ("01d80f00000000000000000000000000000001", UUID(int=1)),
    "user message": (
        "01c72a1484a4726f6c65a475736572a7636f6e74656e74a168aa7265666572656e63657391d5029101a26964a131",
        HumanMessage(content="h", id="1", references=((1,),)),
    ),
    "assistant message": (
        "01c7321483a4726f6c65a9617373697374616e74a7636f6e74656e74a161a9746f6f6c43616c6c739182a26964a163a46e616d65a174",
        AIMessage(content="a", tool_calls=(ToolCall(id="c", name="t"),)),
    ),
    "message with half a character": (
        "01c73c1492ab546f6f6c4d65737361676585ac746f6f6c5f63616c6c5f6964a163a7636f6e74656e74c70306eda080a46e616d65c0a56572726f72c2a26964c0",
        ToolMessage(tool_call_id="c", content="\ud800"),
    ),
    "system message": ("01c7171482a4726f6c65a673797374656da7636f6e74656e74a173", SystemMessage(content="s")),
    "tool call": ("01c70d1582a26964a163a46e616d65a174", ToolCall(id="c", name="t")),
    "dataclass": ("01c7161e93ab746573742e46726f7a656e0181a46e616d65a16e", Frozen("n")),
    "enum": ("01c7121e93ab746573742e436f6c6f757201a3524544", Colour.RED),
    "own ways": ("01c70f1e93ab746573742e4f70617175650103", Opaque(3)),
}
"""Blobs as the first version wrote them."""


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_every_value_comes_back_with_its_type(value: Any) -> None:
    assert same(returned(value), value)


def test_a_pydantic_model_comes_back_with_aliases_extras_and_private_parts() -> None:
    model = Model(theName="n", inner=Inner(when=datetime(2024, 1, 1, tzinfo=UTC)), tags={"a"}, extra=(1, {2}))
    model._secret = 7
    back = returned(model)
    assert back == model
    assert back._secret == 7
    assert back.model_fields_set == {"name", "inner", "tags", "extra"}
    assert back.extra == (1, {2})


def test_reading_calls_no_code_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    point, model = Point(1), Model(theName="n")
    point.derived = "changed"
    blobs = [codec.encode(point), codec.encode(model)]

    def explode(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("user code ran")

    for kind in (Point, Model):
        monkeypatch.setattr(kind, "__init__", explode)
    monkeypatch.setattr(Point, "__post_init__", explode)
    assert codec.decode(blobs[0]).derived == "changed"
    assert codec.decode(blobs[1]).name == "n"


def test_frozen_values_come_back_plain() -> None:
    frozen = freeze({"a": [1, {"b": 2}], "c": {"d": []}})
    assert type(frozen) is FrozenDict
    assert type(frozen["a"]) is FrozenList
    assert same(returned(frozen), {"a": [1, {"b": 2}], "c": {"d": []}})
    assert same(returned(State({"k": FrozenList([2**70])})), {"k": [2**70]})
    assert same(returned(ListView([1, (2,), 3], 2)), [1, (2,)])


def test_equal_sets_give_equal_bytes() -> None:
    # Both fall into one slot of a small table, so the order of adding them is the order of iterating.
    one, other = set(iter([0, 8])), set(iter([8, 0]))
    assert list(one) != list(other)
    assert codec.encode(one) == codec.encode(other)


keys = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.binary(), st.dates(), st.tuples(st.integers()))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.decimals(),
    st.uuids(),
    st.dates(),
    st.timedeltas(),
    st.datetimes(timezones=st.one_of(st.none(), st.timezones(), st.just(UTC))),
    st.times(),
    st.sampled_from(list(Colour)),
    st.builds(HumanMessage, content=st.text(), references=st.tuples(st.binary(), st.dates())),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text(), inner),
        st.dictionaries(keys, inner),
        st.frozensets(keys),
        st.sets(keys),
        st.builds(Pair, inner, inner),
        st.builds(Struct, st.integers(-(2**63), 2**63), inner),
    ),
    max_leaves=20,
)


@given(values)
def test_decode_undoes_encode(value: Any) -> None:
    assert same(codec.decode(codec.encode(value)), value)


@given(values)
def test_from_json_undoes_to_json(value: Any) -> None:
    assert same(from_json(msgspec.json.decode(msgspec.json.encode(to_json(value)))), value)


def is_refused_or_a_value(blob: bytes) -> bool:
    """Whether the bytes are a codec error, or a value that is stored and read as any other."""
    try:
        value = codec.decode(blob)
    except CodecError:
        return True
    return same(codec.decode(codec.encode(value)), value)


@given(st.binary(max_size=200))
def test_damaged_bytes_are_a_codec_error_or_a_value(data: bytes) -> None:
    for blob in (data, b"\x01" + data):
        assert is_refused_or_a_value(blob)


@given(values, st.data())
def test_a_cut_off_blob_is_a_codec_error(value: Any, data: st.DataObject) -> None:
    blob = codec.encode(value)
    cut = data.draw(st.integers(0, len(blob) - 1))
    with pytest.raises(CodecError):
        codec.decode(blob[:cut])


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Unknown(), "Unknown"),
        ({"deep": [({"er": Unknown()},)]}, "Unknown"),
        ([2**70, Unknown()], "Unknown"),
        (UnknownColour.RED, "UnknownColour"),
        (UnknownText("x"), "UnknownText"),
        (collections.OrderedDict(), "OrderedDict"),
        (collections.defaultdict(list), "defaultdict"),
        (bytearray(b"x"), "bytearray"),
        (3j, "complex"),
        (lambda: 0, "function"),
        (Point, "type"),
        (HumanMessage(content="", references=(Unknown(),)), "Unknown"),
        (Point(1, Unknown()), "Unknown"),
    ],
)
def test_an_unregistered_type_is_refused_with_channel_type_and_advice(value: Any, name: str) -> None:
    with pytest.raises(CodecError) as caught:
        codec.encode(value, channel="notes")
    assert caught.value.code == "not_serializable"
    assert caught.value.detail == {"channel": "notes"}
    for words in ("'notes'", name, "register"):
        assert words in caught.value.message


def test_a_value_that_holds_itself_is_refused() -> None:
    inner: list[Any] = []
    outer = {"a": [inner]}
    inner.append(outer)
    point = Point(1)
    point.y = (point,)
    for value in (inner, outer, point):
        with pytest.raises(CodecError, match="contains itself"):
            codec.encode(value, channel="loop")


def test_a_value_may_be_nested_as_deeply_as_it_can_be_read() -> None:
    for wrap in (lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: {1: v}, Pair):
        value: Any = [1]
        for _ in range(codec.MAX_DEPTH // 2 - 1):
            value = wrap(value)
        assert same(returned(value), value)
        for _ in range(codec.MAX_DEPTH):
            value = wrap(value)
        with pytest.raises(CodecError, match="nested deeper"):
            codec.encode(value)


@pytest.mark.parametrize(
    "code_and_content",
    [
        (code, content)
        for code in codec.EXTENSIONS
        for content in (b"", b"\xc0", b"\x92\xa1x\x80", b"\x93\xa1x\xa1x\xa1x")
    ],
    ids=str,
)
def test_an_extension_with_content_of_another_shape_is_a_codec_error_or_a_value(code_and_content: Any) -> None:
    assert is_refused_or_a_value(b"\x01" + msgspec.msgpack.encode(msgspec.msgpack.Ext(*code_and_content)))


@pytest.mark.parametrize("key", ["Mars/Olympus", "../../etc/passwd", ""])
def test_a_time_in_a_zone_that_this_machine_does_not_know_names_the_zone(key: str) -> None:
    content = msgspec.msgpack.encode(["2024-01-01T00:00:00", key, 0])
    with pytest.raises(CodecError, match="tzdata") as caught:
        codec.decode(b"\x01" + msgspec.msgpack.encode(msgspec.msgpack.Ext(codec.DATETIME, content)))
    assert caught.value.code == "store_failed"
    assert repr(key) in caught.value.message


def test_unknown_formats_and_extensions_say_what_to_do() -> None:
    for blob, code in (
        (b"", "store_failed"),
        (b"\x02x", "store_version_unsupported"),
        (b"\x03x", "store_version_unsupported"),
        (b"\x99x", "store_failed"),
        (b"\x01" + msgspec.msgpack.encode(msgspec.msgpack.Ext(99, b"")), "store_version_unsupported"),
        (b"\x01\xc1", "store_failed"),
    ):
        with pytest.raises(CodecError) as caught:
            codec.decode(blob)
        assert caught.value.code == code


@pytest.mark.parametrize(
    "data",
    [
        {"$": "surprise"},
        {"$": "bytes", "value": "?"},
        {"$": "uuid", "value": "x"},
        {"$": "int", "value": "x"},
        {"$": 1},
    ],
)
def test_damaged_json_is_a_codec_error(data: Any) -> None:
    with pytest.raises(CodecError):
        from_json(data)


def test_codes_are_the_ones_that_stored_data_has() -> None:
    """Never change a line of this test: add one."""
    assert codec.FORMATS.keys() == {1, 2, 3, 4}
    assert codec.EXTENSIONS == {
        1: "integer", 2: "tuple", 3: "set", 4: "frozenset", 5: "map", 6: "text",
        10: "datetime", 11: "date", 12: "time", 13: "timedelta", 14: "decimal", 15: "uuid",
        20: "message", 21: "tool_call", 30: "type",
    }  # fmt: skip


@pytest.mark.parametrize(("blob", "value"), GOLDEN.values(), ids=GOLDEN.keys())
def test_blobs_of_the_first_version_are_still_read(blob: str, value: Any) -> None:
    """Never change a line of `GOLDEN`: add one."""
    assert same(codec.decode(bytes.fromhex(blob)), value)


# --- registered types ------------------------------------------------------------------------------


def test_a_type_is_stored_under_its_name_not_its_path() -> None:
    blob = codec.encode(Point(1))
    assert b"test.Point" in blob
    assert b"test_codec" not in blob
    Moved = dataclasses.make_dataclass("Moved", [("x", int), ("y", Any), ("seen", list), ("derived", str)])  # noqa: N806 – a class
    del registry._by_name["test.Point"]
    codec.register(Moved, "test.Point")
    assert codec.decode(blob) == Moved(1, 0, [], "made from 1")


def test_upgrades_lead_from_any_older_version_to_this_one() -> None:
    codec.register(Struct, "test.Struct", version=1)
    old = codec.encode(Struct(1, 2))

    class Newer(msgspec.Struct):
        total: int
        unit: str = "m"

    del registry._by_name["test.Struct"]
    steps = {1: lambda f: {"sum": f["a"] + f["b"]}, 2: lambda f: {"total": f["sum"]}}
    codec.register(Newer, "test.Struct", version=3, upgrade=steps)
    assert codec.decode(old) == Newer(3, "m")
    assert codec.decode(codec.encode(Newer(5, "cm"))) == Newer(5, "cm")


@pytest.mark.parametrize("failure", [KeyError("gone"), ZeroDivisionError("of nothing"), RuntimeError("no luck")])
def test_an_upgrade_that_fails_is_a_codec_error_that_names_type_and_version(failure: Exception) -> None:
    """Whatever it raises: a thread that is read must fail with an error that says what to correct."""

    def upgrade(content: Any) -> Any:
        raise failure

    codec.register(Struct, "test.Struct", version=1)
    old = codec.encode(Struct(1))
    codec.register(Struct, "test.Struct", version=2, upgrade={1: upgrade})
    with pytest.raises(CodecError, match=r"'test\.Struct' has version 1: its upgrade from version 1 failed") as caught:
        codec.decode(old)
    assert type(failure).__name__ in caught.value.message
    assert caught.value.__cause__ is failure


def test_a_load_function_that_fails_is_a_codec_error_that_names_the_type() -> None:
    def load(content: Any) -> Any:
        raise RuntimeError("no luck")

    kind = type("Loaded", (), {})
    codec.register(kind, "test.Loaded", dump=lambda value: {}, load=load)
    with pytest.raises(CodecError, match=r"'test\.Loaded' does not fit .*no luck"):
        codec.decode(codec.encode(kind()))


def test_a_renamed_enum_member_is_upgraded_by_name() -> None:
    old = codec.encode([Colour.RED, Access.READ])

    class Shade(enum.Enum):
        CRIMSON = "red"

    del registry._by_name["test.Colour"]
    codec.register(Shade, "test.Colour", version=2, upgrade={1: {"RED": "CRIMSON"}.__getitem__})
    assert codec.decode(old) == [Shade.CRIMSON, Access.READ]


@pytest.mark.parametrize("base", ["dataclass", "struct", "pydantic", "named tuple"])
def test_a_new_field_gets_its_default_and_a_missing_one_is_named(base: str) -> None:
    made: dict[str, tuple[Any, Any, Any]] = {
        "dataclass": (
            dataclasses.make_dataclass("A", [("a", int)]),
            dataclasses.make_dataclass("A", [("a", int), ("b", int, 7)]),
            dataclasses.make_dataclass("A", [("c", int)]),
        ),
        "struct": (
            msgspec.defstruct("A", [("a", int)]),
            msgspec.defstruct("A", [("a", int), ("b", int, 7)]),
            msgspec.defstruct("A", [("c", int)]),
        ),
        "pydantic": (
            pydantic.create_model("A", a=(int, ...)),
            pydantic.create_model("A", a=(int, ...), b=(int, 7)),
            pydantic.create_model("A", c=(int, ...)),
        ),
        "named tuple": (
            collections.namedtuple("A", "a"),  # noqa: PYI024 – made here like its neighbours
            collections.namedtuple("A", "a b", defaults=[7]),  # noqa: PYI024
            collections.namedtuple("A", "c"),  # noqa: PYI024
        ),
    }
    first, wider, other = made[base]
    codec.register(first, "test.A")
    blob = codec.encode(first(a=1))
    del registry._by_name["test.A"]
    codec.register(wider, "test.A")
    assert codec.decode(blob) == wider(a=1, b=7)
    del registry._by_name["test.A"]
    codec.register(other, "test.A")
    with pytest.raises(CodecError) as caught:
        codec.decode(blob)
    assert caught.value.code == "store_failed"
    assert "version 2" in caught.value.message


def test_a_stored_type_that_nobody_registered_or_that_is_newer_says_so() -> None:
    codec.register(Frozen, "test.Frozen", version=3)
    newer = codec.encode(Frozen("n"))
    codec.register(Frozen, "test.Frozen", version=2)
    with pytest.raises(CodecError) as caught:
        codec.decode(newer)
    assert caught.value.code == "store_version_unsupported"
    del registry._by_name["test.Frozen"]
    with pytest.raises(CodecError, match="not registered"):
        codec.decode(newer)
    codec.register(Struct, "test.Struct", version=1)
    old = codec.encode(Struct(1))
    codec.register(Struct, "test.Struct", version=2)
    with pytest.raises(CodecError, match="register an upgrade from version 1"):
        codec.decode(old)


def test_wrong_registrations_are_refused_at_once() -> None:
    for kind, name, options, words in (
        (Unknown, "test.Unknown", {}, "dump="),
        (Unknown, "test.Point", {}, "belongs to"),
        (Point, "test.another", {}, "registered as 'test.Point'"),
        (Frozen, "", {}, "name"),
        (Frozen, "test.Frozen", {"version": 0}, "version from 1"),
        (Frozen, "test.Frozen", {"version": 3, "upgrade": {1: dict}}, r"\[2\]"),
    ):
        with pytest.raises(ValueError, match=words):
            codec.register(kind, name, **options)
    assert codec.register(Point, "test.Point") is Point


@given(values)
def test_parts_that_were_walked_before_read_as_if_they_were_not(value: Any) -> None:
    assert same(codec.decode(codec.encode_parts(["a", {"k": codec.storable(value)}, 1])), ["a", {"k": value}, 1])


def test_a_part_that_can_not_be_stored_names_its_channel() -> None:
    with pytest.raises(CodecError, match="'notes'"):
        codec.storable((2**70, Unknown()), channel="notes")
