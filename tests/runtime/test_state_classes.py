"""Nodes get the class that declares the state, read-only; what they write is checked by it (E22)."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from graphflow import Graph, MemoryCheckpointer, SqliteCheckpointer, append, merge, union
from graphflow.errors import GraphflowError, StateError
from graphflow.graph.builder import branch_only, max_, sum_
from graphflow.runtime.result import RunResult
from tests.printed import printed_by


class Mood(StrEnum):
    GLAD = "glad"
    SAD = "sad"


@dataclass
class Person:
    name: str
    age: int = 0
    friends: list[Person] = field(default_factory=list)

    def greeting(self) -> str:
        return f"hello {self.name}"


class Place(BaseModel):
    model_config = ConfigDict(validate_assignment=False)
    town: str = Field(alias="cityName", min_length=2)
    zip: int = 0

    def label(self) -> str:
        return f"{self.zip} {self.town}"


@dataclass
class Boss(Person):
    bonus: int = 0


@dataclass
class Cat:
    name: str = ""


@dataclass
class Dog:
    name: str = ""


@dataclass
class Zoo:
    pet: Cat | Dog | None = None


@dataclass
class Address:
    place: Place = field(default_factory=lambda: Place(cityName="Ulm"))


@dataclass
class Letter:
    to: Address = field(default_factory=Address)


def older(old: Person, new: Person) -> Person:
    assert isinstance(old, Person)
    assert isinstance(new, Person)
    old.friends.append(new)  # a copy of its own
    return old if old.age > new.age else new


@dataclass
class Oldest:
    person: Annotated[Person, older] = field(default_factory=lambda: Person("nobody"))


METHODS = ("clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values")


@dataclass
class Data:
    items: list[str] = field(default_factory=list)
    keys: int = 0
    values: str = "v"
    get: int = 0
    copy: int = 0
    pop: float = 0.0
    update: dict[str, int] = field(default_factory=dict)
    clear: bool = False
    person: Person | None = None
    people: Annotated[list[Person], append] = field(default_factory=list)
    by_name: Annotated[dict[str, Person], merge] = field(default_factory=dict)
    place: Place | None = None
    kind: Literal["a", "b"] = "a"
    mood: Mood = Mood.GLAD
    day: date = date(2026, 1, 2)
    marked: Annotated[int, Field(ge=0)] = 0
    pair: tuple[int, str] = (0, "")
    tags: set[str] = field(default_factory=set)
    total: Annotated[int, sum_, Field(ge=0, le=10)] = 0

    def shout(self) -> str:
        return " ".join(self.items).upper()

    @property
    def size(self) -> int:
        return len(self.items)


class Model(BaseModel):
    items: list[str] = []
    keys: int = 0
    values: str = "v"
    get: int = 0
    pop: float = 0.0
    update: dict[str, int] = {}
    clear: bool = False
    person: Person | None = None
    people: Annotated[list[Person], append] = []
    by_name: Annotated[dict[str, Person], merge] = {}
    place: Place | None = None
    kind: Literal["a", "b"] = "a"
    mood: Mood = Mood.GLAD
    day: date = date(2026, 1, 2)
    marked: int = Field(default=0, ge=0)
    pair: tuple[int, str] = (0, "")
    tags: set[str] = set()
    total: Annotated[int, sum_, Field(ge=0, le=10)] = 0

    def shout(self) -> str:
        return " ".join(self.items).upper()

    @property
    def size(self) -> int:
        return len(self.items)


class Typed(TypedDict, total=False):
    items: list[str]
    keys: int
    person: Person
    people: Annotated[list[Person], append]
    by_name: Annotated[dict[str, Person], merge]
    place: Place
    kind: Literal["a", "b"]
    mood: Mood
    day: date
    marked: Annotated[int, Field(ge=0)]
    pair: tuple[int, str]
    tags: set[str]
    total: Annotated[int, sum_, Field(ge=0, le=10)]


async def run(cls: Any, *nodes: Callable[[Any], Any], store: Any = None, thread: str = "t") -> RunResult:
    """Runs these functions one after the other on a state of the class."""
    graph = Graph(cls)
    for index, function in enumerate(nodes):
        graph.node(name=f"n{index}", next=f"n{index + 1}" if index + 1 < len(nodes) else "end")(function)
    return await graph.compile(checkpointer=store).run({}, thread)


async def seen(cls: Any, writes: dict[str, Any], look: Callable[[Any], Any]) -> Any:
    """What a node sees after these writes, once live and once after a load from a store."""
    found: list[Any] = []

    def write(state: Any) -> dict[str, Any]:
        return writes

    def read(state: Any) -> None:
        found.append(look(state))

    store = MemoryCheckpointer()
    (await run(cls, write, read, store=store)).raise_for_error()
    graph = Graph(cls)
    graph.node(name="n0")(read)
    (await graph.compile(checkpointer=store).run({}, "t")).raise_for_error()
    live, loaded = found
    assert live == loaded
    return live


# --- what nodes get


@pytest.mark.parametrize("cls", [Data, Model])
async def test_a_node_gets_its_own_class_with_its_fields_and_methods(cls: Any):
    def look(state: Any) -> Any:
        assert isinstance(state, cls)
        assert state.__class__ is cls
        assert type(state).__name__ == cls.__name__
        return (
            state.items,
            state["items"],
            state.keys,
            state["keys"],
            state.get,
            state.values,
            state.shout(),
            state.size,
        )

    assert await seen(cls, {"items": ["x"], "keys": 3, "get": 7}, look) == (["x"], ["x"], 3, 3, 7, "v", "X", 1)


@pytest.mark.parametrize("name", METHODS)
async def test_a_field_may_have_the_name_of_a_mapping_method(name: str):
    cls: Any = dataclasses.make_dataclass("Named", [(name, int, 1)])
    assert await seen(cls, {name: 5}, lambda state: (getattr(state, name), state[name])) == (5, 5)


@pytest.mark.parametrize("name", METHODS)
async def test_of_a_mapping_the_attribute_is_the_method_and_the_key_is_the_field(name: str):
    cls: Any = TypedDict("cls", {name: int})  # type: ignore[misc] # the names are the case

    def look(state: Any) -> Any:
        assert callable(getattr(state, name))
        assert isinstance(state, dict)
        return state[name]

    assert await seen(cls, {name: 5}, look) == 5
    schema = {"type": "object", "properties": {name: {"type": "integer"}}}
    assert await seen(schema, {name: 5}, look) == 5


@pytest.mark.parametrize("cls", [Data, Model, Typed])
async def test_nested_values_come_as_their_declared_classes(cls: Any):
    ann = Person("ann", 3, [Person("bob")])
    writes = {
        "person": ann, "people": [ann, {"name": "cy"}], "by_name": {"ann": ann}, "place": Place(cityName="Ulm", zip=1),
        "mood": "sad", "day": "2026-03-04", "pair": [1, "x"], "tags": ["a"],
    }  # fmt: skip

    def look(state: Any) -> Any:
        got = {key: state[key] for key in writes}
        assert isinstance(got["person"], Person)
        assert got["person"].greeting() == "hello ann"
        assert [type(one).__qualname__ for one in got["people"]] == ["Person", "Person"]
        assert got["by_name"]["ann"].friends[0].greeting() == "hello bob"
        assert got["place"].label() == "1 Ulm"
        assert got["mood"] is Mood.SAD
        return got

    assert await seen(cls, writes, look) == {
        "person": ann, "people": [ann, Person("cy")], "by_name": {"ann": ann}, "place": Place(cityName="Ulm", zip=1),
        "mood": Mood.SAD, "day": date(2026, 3, 4), "pair": (1, "x"), "tags": {"a"},
    }  # fmt: skip


@pytest.mark.parametrize("cls", [Data, Model])
async def test_a_state_that_nobody_has_written_has_the_defaults_of_its_class(cls: Any):
    def look(state: Any) -> Any:
        assert state == cls()
        return state.model_dump() if cls is Model else dataclasses.asdict(state)

    assert await seen(cls, {}, look) == (Model().model_dump() if cls is Model else dataclasses.asdict(Data()))


@pytest.mark.parametrize("cls", [Data, Model])
async def test_everything_in_the_state_is_read_only(cls: Any):
    changes: list[Callable[[Any], object]] = [
        lambda state: setattr(state, "keys", 1),
        lambda state: delattr(state, "keys"),
        lambda state: state.items.append("x"),
        lambda state: state.update.pop("a"),
        lambda state: setattr(state.person, "name", "eve"),
        lambda state: setattr(state.place, "zip", 2),
        lambda state: state.people.clear(),
        lambda state: setattr(state.people[0], "name", "eve"),
        lambda state: state.people[0].friends.append(1),
        lambda state: setattr(state.by_name["a"], "name", "eve"),
    ]

    def look(state: Any) -> Any:
        for change in changes:
            with pytest.raises(TypeError, match="read-only"):
                change(state)
        return state.person.name, len(state.people)

    ann = Person("ann")
    writes = {"items": ["a"], "update": {"a": 1}, "person": ann, "people": [ann], "by_name": {"a": ann}}
    assert await seen(cls, {**writes, "place": Place(cityName="Ulm")}, look) == ("ann", 1)
    ann.name = "zoe"  # what was written is nobody else's


@pytest.mark.parametrize("cls", [Data, Model])
async def test_a_copy_is_the_copiers_own(cls: Any):
    def look(state: Any) -> Any:
        deep, shallow = copy.deepcopy(state), copy.copy(state)
        assert type(deep) is type(shallow) is cls
        assert deep == state
        deep.items.append("x")
        deep.people[0].name = "eve"
        shallow.keys = 5
        changed = dataclasses.replace(state, keys=9) if cls is Data else state.model_copy(update={"keys": 9})
        assert changed.keys == 9
        return state.items, state.people, state.keys

    assert await seen(cls, {"items": ["a"], "people": [Person("ann")]}, look) == (["a"], [Person("ann")], 0)


async def test_the_methods_of_a_model_work_on_the_state():
    def look(state: Any) -> Any:
        assert Model.model_validate(state.model_dump()) == state
        assert Model.model_validate_json(state.model_dump_json()) == state
        assert list(json.loads(state.model_dump_json())) == list(Model.model_fields)
        return state.model_dump()

    got = await seen(Model, {"items": ["a"], "people": [Person("ann")], "tags": {"b"}}, look)
    assert (got["people"], got["tags"]) == ([{"name": "ann", "age": 0, "friends": []}], {"b"})


async def test_what_a_class_derives_from_its_fields_is_there_for_its_methods():
    @dataclass
    class Words:
        text: str = ""
        count: int = field(default=0, init=False)

        def __post_init__(self) -> None:
            self._words = self.text.split()

        def last(self) -> str:
            return self._words[-1]

    class Private(BaseModel):
        text: str = ""
        _words: list[str] = PrivateAttr(default_factory=list)

        def model_post_init(self, context: Any, /) -> None:
            self._words = self.text.split()

        def last(self) -> str:
            return self._words[-1]

    for cls in (Words, Private):
        assert await seen(cls, {"text": "a b"}, lambda state: state.last()) == "b"


async def test_frozen_and_slotted_classes_are_states_too():
    @dataclass(frozen=True, slots=True)
    class Slotted:
        person: Person | None = None
        names: Annotated[list[str], append] = field(default_factory=list)

    class Frozen(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        person: Person | None = None
        names: Annotated[list[str], append] = Field(default=[], frozen=True)

    for cls in (Slotted, Frozen):
        got = await seen(cls, {"person": Person("ann"), "names": ["x"]}, lambda state: (state.person.name, state.names))
        assert got == ("ann", ["x"])


# --- what may be written

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"marked": -1}, "marked"),
    ({"kind": "c"}, "kind"),
    ({"items": ["a", 1]}, "items"),
    ({"person": {"name": 5}}, "person"),
    ({"person": {}}, "person"),
    ({"people": [{"name": "ann", "age": "old"}]}, "people"),
    ({"by_name": {"x": {"nome": "x"}}}, "by_name"),
    ({"place": {"cityName": "U"}}, "place"),
    ({"mood": "cross"}, "mood"),
    ({"day": "tomorrow"}, "day"),
    ({"pair": [1, 2, 3]}, "pair"),
    ({"total": 11}, "total"),
]


@pytest.mark.parametrize("cls", [Data, Model, Typed])
@pytest.mark.parametrize(("writes", "key"), REFUSED)
async def test_a_value_that_the_class_refuses_fails_its_node_and_writes_nothing(cls: Any, writes: Any, key: str):
    result = await run(cls, lambda state: {"items": ["kept"]}, lambda state: writes)
    assert result.error is not None
    assert result.error["code"] == "state_error"
    assert repr(key) in result.error["message"]
    assert result.state["items"] == ["kept"]


@pytest.mark.parametrize("cls", [Data, Model])
@pytest.mark.parametrize(("writes", "key"), REFUSED)
async def test_an_edit_is_checked_like_a_write(cls: Any, writes: Any, key: str):
    store = MemoryCheckpointer()
    graph = Graph(cls)
    graph.node(name="one")(lambda state: {})
    app = graph.compile(checkpointer=store)
    await app.run({}, "t")
    before = await app.thread("t").state()
    with pytest.raises(StateError, match=key):
        await app.thread("t").edit(writes)
    assert await app.thread("t").state() == before


async def test_what_expressions_set_and_what_reducers_give_is_checked():
    graph = Graph(Data).add("one", use="fn:f", set={"kind": "out"})
    graph.function(lambda_named("f", lambda: "z"))
    assert (await graph.compile().run()).error is not None
    summed = await run(Data, lambda s: {"total": 6}, lambda s: {"total": 3}, lambda s: {"total": 2})
    assert (summed.status, summed.state["total"]) == ("failed", 9)
    assert (await run(Data, lambda s: {"total": 6}, lambda s: {"total": -3})).state["total"] == 3


def lambda_named(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


async def test_a_reducer_gets_and_gives_declared_values():
    writes = [{"person": Person("ann", 3)}, {"person": {"name": "bob", "age": 2}}]
    result = await run(
        Oldest, lambda s: writes[0], lambda s: writes[1], lambda s: {} if s.person.name == "ann" else {"x": 1}
    )
    assert result.error is None
    assert result.state["person"]["name"] == "ann"


def longest(old: Any, new: Any) -> Any:
    return max(old or "", new, key=len)


ANY_VALUE = [(append, ["a"], ["b"], ["a", "b"]), (merge, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}), (sum_, 5, 6, 11),
             (longest, "long", "x", "long")]  # fmt: skip


@pytest.mark.parametrize(("reducer", "first", "second", "after"), ANY_VALUE)
async def test_a_reducer_decides_on_every_write_to_a_key_of_any_value(
    reducer: Any, first: Any, second: Any, after: Any
):
    cls = dataclasses.make_dataclass("Kept", [("kept", Annotated[Any, reducer], None)])
    assert (await run(cls, lambda s: {"kept": first}, lambda s: {"kept": second})).state["kept"] == after
    if reducer in (append, merge):
        result = await run(cls, lambda s: {"kept": first}, lambda s: {"kept": "text"})
        assert result.error is not None
        assert "'kept'" in result.error["message"]
        assert result.state["kept"] == first


APPENDED = [(int, [0, "text", 1]), (Literal[0, 1], [0, 2, 1]), (dict[str, int], [{"a": 1}, {"a": "text"}])]


@pytest.mark.parametrize(("item", "given"), APPENDED)
async def test_every_item_that_a_branch_appends_is_checked_by_its_type(item: Any, given: list[Any]):
    cls = dataclasses.make_dataclass("Fan", [("got", Annotated[list[item], append], field(default_factory=list))])
    graph: Graph[Any] = Graph(cls).map("fan", "input.given", "work", as_="x", next="end")
    graph.add("work", use="fn:same", with_={"x": "${x}"}, set={"got": "[out]"}, next="end")
    graph.function(lambda_named("same", lambda x: x))
    error = (await graph.compile().run({"given": given})).error
    assert error is not None
    assert "state key 'got'" in error["message"]
    assert "at got[]" in error["message"]
    assert (await graph.compile().run({"given": given[:1]})).state["got"] == given[:1]


async def test_validators_of_a_model_see_the_other_fields_and_may_change_the_value():
    class Span(BaseModel):
        start: int = 0
        end: int = 10
        name: str = ""

        @field_validator("name")
        @classmethod
        def stripped(cls, value: str) -> str:
            return value.strip()

        @field_validator("end")
        @classmethod
        def after(cls, value: int, info: Any) -> int:
            if value < info.data["start"]:
                raise ValueError("ends before it starts")
            return value

    assert await seen(Span, {"name": " a ", "start": 5, "end": 6}, lambda s: (s.name, s.start, s.end)) == ("a", 5, 6)
    result = await run(Span, lambda s: {"start": 5}, lambda s: {"end": 4})
    assert "ends before it starts" in (result.error or {})["message"]


@pytest.mark.parametrize("kind", ["model", "dataclass"])
async def test_what_looks_at_several_fields_sees_them_after_the_whole_write(kind: str):
    class ModelSpan(BaseModel):
        start: int = 0
        end: int = 1
        seen: Annotated[list[int], append] = []

        @model_validator(mode="after")
        def ordered(self) -> ModelSpan:
            if self.end < self.start:
                raise ValueError("ends before it starts")
            return self

    @dataclass
    class DataSpan:
        start: int = 0
        end: int = 1
        seen: Annotated[list[int], append] = field(default_factory=list)

        def __post_init__(self) -> None:
            if self.end < self.start:
                raise ValueError("ends before it starts")

    cls: Any = ModelSpan if kind == "model" else DataSpan
    result = await run(
        cls, lambda s: {"start": 5, "end": 6, "seen": [1]}, lambda s: {"seen": [2]}, lambda s: {"end": 4}
    )
    assert "ends before it starts" in (result.error or {})["message"]
    assert (result.state["end"], list(result.state["seen"])) == (6, [1, 2])


async def test_a_typed_dict_of_typing_extensions_is_one():
    """Before Python 3.12 pydantic takes no other."""
    nested: Any = typing_extensions.TypedDict("nested", {"age": int})
    fields: Any = {"count": int, "who": typing_extensions.NotRequired[nested]}
    cls: Any = typing_extensions.TypedDict("cls", fields)  # type: ignore[misc] # one of its fields is a class of here
    writes = {"count": 2, "who": {"age": 3}}
    assert await seen(cls, writes, lambda state: {key: state[key] for key in writes}) == writes
    refused: list[dict[str, Any]] = [{"count": "x"}, {"who": {"age": "x"}}, {"who": {}}]
    for wrong in refused:
        assert ((await run(cls, partial(lambda given, s: given, wrong))).error or {})["code"] == "state_error"


async def test_a_default_may_be_a_dataclass_that_holds_a_model():
    assert await seen(Letter, {}, lambda state: state.to.place.label()) == "0 Ulm"


async def test_a_pydantic_dataclass_is_checked_by_pydantic():
    @pydantic_dataclass
    class Checked:
        count: int = Field(default=0, ge=0)
        names: list[str] = Field(default_factory=list)

    assert await seen(Checked, {"count": 2, "names": ["a"]}, lambda s: (s.count, s.names)) == (2, ["a"])
    assert (await run(Checked, lambda s: {"count": -1})).error is not None


async def test_a_field_of_pydantic_in_a_dataclass_gives_its_default_and_its_bounds():
    @dataclass
    class Bounded:
        count: int = Field(default=3, ge=0)

    assert await seen(Bounded, {}, lambda s: s.count) == 3
    assert (await run(Bounded, lambda s: {"count": -1})).error is not None


async def test_members_of_a_tagged_union_come_back_as_themselves_and_may_be_written_again():
    class Square(BaseModel):
        kind: Literal["square"] = "square"
        side: int = 1

    class Circle(BaseModel):
        kind: Literal["circle"] = "circle"
        radius: int = 1

    class Drawing(BaseModel):
        shape: Square | Circle = Field(default_factory=Square, discriminator="kind")
        shapes: Annotated[list[Square | Circle], append] = []

    def again(state: Any) -> dict[str, Any]:
        assert type(state.shape).__name__ == "Circle"
        return {"shape": state.shape, "shapes": list(state.shapes)}

    result = await run(Drawing, lambda s: {"shape": Circle(), "shapes": [Circle(), Square()]}, again)
    assert result.error is None
    assert [shape["kind"] for shape in result.state["shapes"]] == ["circle", "square"] * 2


async def test_a_class_that_would_come_back_as_another_is_refused():
    assert "Boss" in ((await run(Data, lambda s: {"person": Boss("eve")})).error or {})["message"]
    assert "Dog" in ((await run(Zoo, lambda s: {"pet": Dog("rex")})).error or {})["message"]
    assert await seen(Zoo, {"pet": Cat("tom")}, lambda s: s.pet.name) == "tom"


async def test_a_list_with_a_rule_of_its_own_is_checked_as_a_whole():
    class Short(BaseModel):
        names: Annotated[list[str], append] = Field(default=[], max_length=2)
        tags: Annotated[list[str], union] = []

    result = await run(Short, lambda s: {"names": ["a"]}, lambda s: {"names": ["b"]}, lambda s: {"names": ["c"]})
    assert (result.status, list(result.state["names"])) == ("failed", ["a", "b"])
    assert (await run(Short, lambda s: {"tags": ["a", 1]})).error is not None


# --- stores


async def test_nested_models_are_stored_as_data_and_need_no_name_in_the_store(tmp_path: Path):
    store = SqliteCheckpointer(tmp_path / "threads.db")
    await run(Data, lambda s: {"person": Person("ann"), "place": Place(cityName="Ulm")}, store=store)
    state = (await run(Data, lambda s: {}, store=store)).state
    assert state["person"] == {"name": "ann", "age": 0, "friends": []}
    assert state["place"] == {"town": "Ulm", "zip": 0}


async def test_a_stored_state_that_the_class_refuses_is_reported_before_anything_runs():
    class Old(BaseModel):
        count: int = 0

    class New(BaseModel):
        count: int = 0

        @field_validator("count")
        @classmethod
        def even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("not even")
            return value

    store, ran = MemoryCheckpointer(), list[str]()
    await run(Old, lambda s: {"count": 3}, store=store)
    graph = Graph(New)
    graph.node(name="n0")(lambda state: ran.append("ran"))
    app = graph.compile(checkpointer=store)
    with pytest.raises(GraphflowError, match="not even") as refused:
        await app.run({}, "t")
    assert (refused.value.code, ran) == ("state_incompatible", [])
    await app.thread("t").edit({"count": 4})
    assert (await app.run({}, "t")).status == "completed"
    assert ran == ["ran"]


async def test_branches_and_subgraphs_have_the_classes_of_their_graphs():
    @dataclass
    class Inner:
        values: list[str] = field(default_factory=list)

    @dataclass
    class Outer:
        items: list[str] = field(default_factory=lambda: ["a", "b"])
        keys: Annotated[list[Person], append] = field(default_factory=list)
        best: Annotated[int, max_] = 0
        scratch: Annotated[Person | None, branch_only] = None

    inner, classes = Graph(Inner, result="state.values"), list[Any]()

    @inner.node
    def write(state: Inner) -> dict[str, Any]:
        classes.append(isinstance(state, Inner))
        return {"values": [*state.values, "x"]}

    graph = Graph(Outer).map("fan", "state.items", "work", as_="item", next="both")

    @graph.node(next="work2")
    def work(state: Outer) -> dict[str, Any]:
        classes.append(isinstance(state, Outer))
        return {"scratch": Person(state.items[0]), "keys": [Person("k")], "best": 2}

    @graph.node(next="end")
    def work2(state: Outer) -> dict[str, Any]:
        return {"best": 5} if state.scratch is not None and state.scratch.greeting() else {}

    graph.parallel("both", {"p": inner, "q": "leaf"}, next="sub").subgraph("sub", inner, next="last")

    @graph.node(next="end")
    def leaf(state: Outer) -> dict[str, Any]:
        return {"keys": [Person("leaf")]}

    @graph.node
    def last(state: Outer) -> dict[str, Any]:
        classes.append([one.greeting() for one in state.keys])
        return {}

    result = await graph.compile(checkpointer=MemoryCheckpointer()).run({}, "t")
    assert result.error is None
    assert classes == [True, True, True, True, ["hello k", "hello k", "hello leaf"]]
    assert result.state["best"] == 5


# --- JSON


async def test_an_exported_graph_keeps_what_its_schema_can_say():
    graph = Graph(Data)
    graph.node(name="one")(lambda_named("one", lambda state: {"marked": -1}))
    properties = graph.document()["state"]["properties"]
    assert properties["marked"]["minimum"] == 0
    assert properties["kind"]["enum"] == ["a", "b"]
    assert properties["people"]["items"]["properties"]["name"] == {"type": "string"}
    again = Graph.from_json(graph.to_json(), functions={"one": lambda state: {"marked": -1}})
    result = await again.compile().run()
    assert "'marked'" in (result.error or {})["message"]


async def test_what_a_json_schema_says_of_a_key_is_checked():
    properties = {
        "n": {"type": "integer", "minimum": 0},
        "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "names": {"type": "array", "items": {"type": "string"}, "x-reducer": "append", "default": []},
    }
    state = {"type": "object", "properties": properties}
    assert (await run(state, lambda s: {"n": 1, "kind": "b", "names": ["x"]})).error is None
    for writes in ({"n": -1}, {"kind": "c"}, {"names": [1]}):
        assert ((await run(state, partial(lambda given, s: given, writes))).error or {})["code"] == "state_error"


def test_a_state_of_dataclasses_loads_no_pydantic():
    code = """
import asyncio, sys
from dataclasses import dataclass, field
from graphflow import Graph
@dataclass
class Part:
    name: str = ""
@dataclass
class State:
    parts: list[Part] = field(default_factory=list)
graph = Graph(State)
@graph.node
async def one(state: State):
    assert state.parts == []
    return {"parts": [Part("a")]}
result = asyncio.run(graph.compile().run())
print(result.state["parts"], "pydantic" in sys.modules)
"""
    assert printed_by(code) == "[{'name': 'a'}] False\n"
