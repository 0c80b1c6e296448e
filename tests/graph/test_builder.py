"""The Python form builds the same document as the JSON form, and the way between them loses nothing (spec 2.2)."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

import pytest
from hypothesis import given, settings
from pydantic import BaseModel, ConfigDict

import graphflow.messages
from graphflow import Graph, load_graph
from graphflow.errors import DefinitionError
from graphflow.graph.builder import append, branch_only, each_run, max_, merge, messages, min_, sum_, union
from graphflow.graph.validation.validate import check_document
from tests.campaign import size
from tests.graph.random_documents import RandomDocument, random_documents

# --- there and back


@given(random_documents(asks=True))
@pytest.mark.campaign
@settings(max_examples=size(30, long=4_000))
def test_what_is_exported_and_imported_is_the_same_document_with_the_same_hash(made: RandomDocument):
    graph = Graph.from_json(made.document)
    again = Graph.from_json(graph.to_json())
    assert again == graph
    assert again.to_json() == graph.to_json()
    assert again.document() == made.document
    hashes = {check_document(g.document(), made.kinds).digest for g in (graph, again)}
    assert hashes == {check_document(made.document, made.kinds).digest}


class Colour(StrEnum):
    RED = "red"


class Rank(IntEnum):
    LOW = 1


@dataclass
class Part:
    name: str = ""


@dataclass
class Review:
    parts: list[Part] = field(default_factory=lambda: [Part("one")])
    results: Annotated[list[str], append] = field(default_factory=list)
    seen: Annotated[list[str], union] = field(default_factory=list)
    facts: Annotated[dict[str, str], merge] = field(default_factory=dict)
    talk: Annotated[list[Any], messages] = field(default_factory=list)
    total: Annotated[int, sum_] = 0
    best: Annotated[int | None, max_] = None
    least: Annotated[int | None, min_] = None
    product: Annotated[int, operator.mul] = 1
    scratch: Annotated[str, branch_only] = ""
    turn: Annotated[int, each_run] = 0
    score: float = 0.5


def built() -> Graph[Review]:
    inner: Graph[Any] = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}, name="inner")

    @inner.node
    def count(state: Any) -> dict[str, int]:
        return {"n": state.n + 1}

    graph = Graph(Review, name="review", budget={"maxSteps": 60}, description="Reviews", interrupt_before=["judge"])

    @graph.node(next="fan", retry={"max": 2, "on": ["timeout"], "backoffMs": 10}, timeout_s=1.5)
    def plan(state: Review) -> dict[str, Any]:
        return {}

    graph.map(
        "fan", "state.parts", "work", as_="part", max=4, on_error="collect", set={"total": "size(out)"}, next="both"
    )
    graph.add("work", use="fn:shout", with_={"text": "${part.name}"}, set={"results": "[out]"}, next="end")
    graph.parallel(
        "both",
        {"b": "second", "a": "first", "g": inner, "d": inner.document()},
        after={"b": ["a", "g"]},
        wait=2,
        next="sub",
    )
    graph.add("first", use="fn:shout", with_={"text": "a"}).add("second", use="fn:shout", with_={"text": "b"})
    graph.subgraph("sub", inner, set={"total": "out.n"}, next="judge")

    @graph.node(next=[{"if": "state.score > 0.8", "to": "end"}, {"to": "plan"}], error=[{"to": "fail"}])
    async def judge(state: Review) -> dict[str, float]:
        return {"score": 1.0}

    @graph.function
    def shout(text: str) -> str:
        return text.upper()

    return graph


def test_a_built_graph_goes_to_json_and_back_without_loss():
    graph = built()
    again = Graph.from_json(graph.to_json())
    assert again == graph
    assert json.loads(graph.to_json()) == graph.document()


def test_a_file_is_read_with_the_functions_behind_its_names(tmp_path: Path):
    file = tmp_path / "review.json"
    graph = built()
    file.write_text(graph.to_json(), encoding="utf-8")
    parts = graph.parts()
    assert set(parts.nodes) == {"plan", "judge", "count"}
    assert set(parts.functions) == {"shout"}
    assert parts.reducers == {"mul": operator.mul}
    again = Graph.from_json(file, functions=[*parts.nodes.values(), *parts.functions.values()])
    assert again == graph
    assert again.parts().nodes["count"] is parts.nodes["count"]


def test_an_imported_graph_can_be_built_on():
    graph = Graph.from_json(Graph().add("one", use="fn:shout", next="two").to_json())
    graph.add("two", use="fn:shout")
    assert list(graph.document()["nodes"]) == ["one", "two"]


@pytest.mark.parametrize("text", ["[]", '{"graphflow": ', '"x"', b"\xff", '{"nodes": []}', '{"nodes": null}'])
def test_what_is_no_document_is_refused_when_it_is_imported(text):
    with pytest.raises(DefinitionError):
        Graph.from_json(text)


@pytest.mark.parametrize(
    "keys",
    [{"state": {}}, {"budget": {}}, {"key": ""}, {"graphflow": "2"}, {"state": [1]}, {"budget": {"max_steps": 5}}, {"version": None}],
)  # fmt: skip
def test_what_was_imported_is_exported_as_it_was_right_or_wrong(keys):
    source = {"graphflow": "1", "start": "one", "nodes": {"one": {"use": "model", "next": None}}, **keys}
    assert Graph.from_json(source).document() == source


async def test_the_reducers_of_an_imported_graph_are_among_its_functions():
    @dataclass
    class Product:
        product: Annotated[int, operator.mul] = 5

    graph = Graph(Product, result="state.product")
    graph.add("one", use="fn:three", set={"product": "out"})

    def three() -> int:
        return 3

    again = Graph.from_json(graph.to_json(), functions=[three, operator.mul])
    assert (await again.compile().run()).output == 15
    loaded = load_graph(graph.document(), functions={"three": three, "mul": operator.mul})
    assert (await loaded.run()).output == 15


def test_the_order_of_branches_tells_graphs_apart():
    one = Graph().parallel("both", {"a": "x", "b": "y"})
    other = Graph().parallel("both", {"b": "y", "a": "x"})
    assert one != other
    assert one == Graph().parallel("both", {"a": "x", "b": "y"})
    assert one != "a graph"


# --- what is built


def test_map_and_parallel_write_the_forms_of_the_document():
    nodes = built().document()["nodes"]
    assert nodes["fan"] == {
        "map": "state.parts", "as": "part", "do": "work", "max": 4, "join": {"onError": "collect"},
        "set": {"total": "size(out)"}, "next": "both",
    }  # fmt: skip
    inner = nodes["sub"]["graph"]
    assert inner["key"] == "inner"
    assert nodes["both"] == {
        "parallel": {"b": {"do": "second", "after": ["a", "g"]}, "a": "first", "g": {"do": {"graph": inner}}, "d": {"do": {"graph": inner}}},
        "join": {"wait": 2}, "next": "sub",
    }  # fmt: skip
    assert list(nodes["both"]["parallel"]) == ["b", "a", "g", "d"]


def test_a_module_in_the_place_of_a_reducer_is_refused_with_the_reducers_place():
    class State(TypedDict):
        messages: Annotated[list[Any], graphflow.messages]

    with pytest.raises(
        TypeError, match=r"'graphflow\.messages', which is not a reducer; reducers are in graphflow\.graph\.builder"
    ):
        Graph(State)


def test_a_registered_graph_may_be_a_body_with_its_input():
    graph = Graph().map("fan", "[1, 2]", {"graph": "child", "with": {"n": "${item}"}}, wait="any")
    assert graph.document()["nodes"]["fan"] == {
        "map": "[1, 2]", "as": "item", "do": {"graph": "child", "with": {"n": "${item}"}}, "join": {"wait": "any"}, "next": "end",
    }  # fmt: skip


def test_after_names_branches_of_the_node():
    with pytest.raises(ValueError, match="'c', which is not a branch of 'both'; it has a, b"):
        Graph().parallel("both", {"a": "x", "b": "y"}, after={"c": ["a"]})


def test_a_name_is_given_once():
    graph = Graph().add("one", use="fn:a")
    with pytest.raises(ValueError, match="has a node 'one' already"):
        graph.map("one", "[]", "two")


def test_two_functions_of_one_name_are_never_mixed_up():
    inner, outer = Graph(), Graph()

    @inner.node(name="work")
    def first(state: Any) -> None: ...

    @outer.node(name="work")
    def second(state: Any) -> None: ...

    outer.subgraph("sub", inner)
    with pytest.raises(ValueError, match="two functions are named 'work'"):
        outer.parts()


def test_one_graph_may_stand_in_several_places():
    inner: Graph[Any] = Graph()

    @inner.node
    def work(state: Any) -> None: ...

    graph = Graph().subgraph("a", inner, next="b").subgraph("b", inner)
    assert graph.parts().nodes == {"work": work}


# --- state


def test_a_dataclass_declares_types_defaults_reducers_and_marks():
    properties = built().document()["state"]["properties"]
    part = {"type": "object", "properties": {"name": {"type": "string"}}}
    assert properties["parts"] == {"type": "array", "items": part, "default": [{"name": "one"}]}
    assert properties["results"] == {"type": "array", "x-reducer": "append", "items": {"type": "string"}, "default": []}
    assert {key: properties[key]["x-reducer"] for key in ("seen", "facts", "talk", "total", "best", "least", "product")} == {
        "seen": "union", "facts": "merge", "talk": "messages", "total": "sum", "best": "max", "least": "min", "product": "fn:mul",
    }  # fmt: skip
    assert properties["best"] == {"type": ["integer", "null"], "x-reducer": "max", "default": None}
    assert (properties["scratch"]["x-scope"], properties["turn"]["x-scope"]) == ("branch", "run")


def test_a_typed_dict_and_a_pydantic_model_declare_the_same():
    class Typed(TypedDict):
        names: Annotated[list[str], append]
        score: float

    class Model(BaseModel):
        names: Annotated[list[str], append] = []
        score: float = 0

    assert Graph(Typed).document()["state"] == Graph(Model).document()["state"] == {
        "type": "object",
        "properties": {
            "names": {"type": "array", "x-reducer": "append", "items": {"type": "string"}, "default": []}, "score": {"type": "number", "default": 0}},
    }  # fmt: skip


def test_items_of_lists_are_declared_as_far_as_they_are_json():
    class Lists(TypedDict):
        table: list[list[int]]
        maybe: list[str | None] | None
        pair: tuple[int, ...]
        fixed: tuple[int, str]
        own: list[Part]
        bare: list

    properties = Graph(Lists).document()["state"]["properties"]
    assert {key: schema.get("items") for key, schema in properties.items()} == {
        "table": {"type": "array", "items": {"type": "integer"}},
        "maybe": {"type": ["string", "null"]},
        "pair": {"type": "integer"},
        "fixed": None,
        "own": {"type": "object", "properties": {"name": {"type": "string"}}},
        "bare": None,
    }


def test_a_map_and_a_parallel_may_be_tried_again():
    retry: Any = {"max": 3, "on": ["any"]}
    graph = Graph().map("fan", "[1]", "work", retry=retry, next="both").parallel("both", {"a": "other"}, retry=retry)
    assert [graph.document()["nodes"][name]["retry"] for name in ("fan", "both")] == [retry, retry]


def test_only_what_an_instance_holds_is_a_state_key():
    @dataclass
    class Record:
        limit: ClassVar[int] = 3
        seed: InitVar[int] = 2
        kept: int = 1

    class Model(BaseModel):
        model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
        kept: int = 1
        _private: int = 2

    class Plain:
        limit: ClassVar[int] = 3
        kept: int = 1

    assert [list(Graph(state).document()["state"]["properties"]) for state in (Record, Model, Plain)] == [["kept"]] * 3


def test_a_type_that_json_has_not_is_left_open_and_one_over_text_or_numbers_is_that():
    @dataclass
    class Record:
        when: datetime | None = None
        day: date = field(default_factory=lambda: date(2026, 1, 2))
        raw: bytes = b""
        colour: Colour = Colour.RED
        rank: Rank = Rank.LOW
        part: Part = field(default_factory=Part)
        table: Mapping[str, int] = field(default_factory=dict)

    properties = Graph(Record).document()["state"]["properties"]
    assert {key: schema.get("type") for key, schema in properties.items()} == {
        "when": None, "day": None, "raw": None, "colour": "string", "rank": "integer", "part": "object", "table": "object",
    }  # fmt: skip
    assert (properties["colour"], properties["rank"]["default"]) == (
        {"type": "string", "enum": ["red"], "default": "red"},
        1,
    )
    assert type(properties["colour"]["default"]) is str


async def test_a_date_may_be_written_to_the_key_that_is_declared_as_one():
    class State(TypedDict):
        when: datetime

    graph = Graph(State, result="state.when")

    @graph.node
    def now(state: State) -> dict[str, Any]:
        return {"when": datetime(2026, 1, 2)}  # noqa: DTZ001

    assert (await graph.compile().run()).output == datetime(2026, 1, 2)  # noqa: DTZ001


def test_reducers_of_one_name_are_never_mixed_up():
    class State(TypedDict):
        total: Annotated[int, lambda old, new: old + new]
        best: Annotated[int, lambda old, new: old * new]

    with pytest.raises(ValueError, match="'best' names another reducer '<lambda>'"):
        Graph(State)


def test_what_has_no_name_is_refused_where_the_document_needs_one():
    class State(TypedDict):
        total: Annotated[int, functools.partial(max)]

    with pytest.raises(TypeError, match="'total' is marked with .* which has no name"):
        Graph(State)
    with pytest.raises(TypeError, match=r"has no name; give it one: @graph\.node\(name="):
        Graph().node(functools.partial(print))


def test_a_default_that_json_has_no_form_for_is_refused():
    @dataclass
    class State:
        call: Any = print

    with pytest.raises(TypeError, match="has no form for <built-in function print>"):
        Graph(State).document()


def test_a_function_as_a_branch_is_refused_with_the_way_to_add_it():
    work: Any = lambda state: None  # noqa: E731
    for add in (
        lambda: Graph(Review).parallel("both", {"a": work}),
        lambda: Graph(Review).map("each", "state.n", work),
    ):
        with pytest.raises(TypeError, match=r"a branch begins at the name of a node.*@graph\.node"):
            add()


def test_a_graph_that_contains_itself_is_refused():
    outer, inner = Graph(name="outer"), Graph()
    outer.subgraph("a", inner)
    inner.map("b", "[1]", outer)
    with pytest.raises(ValueError, match="graph 'outer' contains itself"):
        outer.document()
    with pytest.raises(ValueError, match="graph 'outer' contains itself"):
        outer.compile()


def test_a_time_limit_is_kept_to_the_millisecond():
    assert Graph().add("a", use="model", timeout_s=1.001).document()["nodes"]["a"]["timeoutMs"] == 1_001


def test_sets_are_written_in_one_order():
    words = [f"word{number}" for number in range(30)]
    graph = Graph(interrupt_before=set(words))
    assert graph.document()["interruptBefore"] == sorted(words)


def test_a_question_has_the_keys_of_its_node_beside_its_own():
    graph = Graph().ask("q", "Well?", hold_ms=5, show=None, error=[{"to": "end"}], description="asks")
    assert graph.document()["nodes"]["q"] == {
        "ask": {"message": "Well?", "holdMs": 5}, "next": "end", "error": [{"to": "end"}], "description": "asks",
    }  # fmt: skip


def test_a_type_that_only_a_function_knows_is_refused_by_name():
    class Local: ...

    class State(TypedDict):
        part: Local

    with pytest.raises(TypeError, match="annotations of State name 'Local', which its module does not have"):
        Graph(State)


def test_something_without_fields_is_no_state():
    with pytest.raises(TypeError, match="a class with annotated fields or a JSON Schema, not 5"):
        Graph(5)  # type: ignore[call-overload]


# --- running


async def test_a_function_may_be_a_reducer_and_a_registered_function_a_node():
    @dataclass
    class Product:
        product: Annotated[int, operator.mul] = 1

    graph = Graph(Product, result="state.product")

    @graph.function
    def factor(n: int) -> int:
        return n * 2

    graph.add("one", use="fn:factor", with_={"n": 3}, set={"product": "out"}, next="two")
    graph.add("two", use="fn:factor", with_={"n": 5}, set={"product": "out"})
    assert (await graph.compile().run()).output == 60


async def test_an_imported_graph_runs_like_the_built_one():
    graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}, result="state.n")

    @graph.node(next="again")
    def double(state: Any) -> dict[str, int]:
        return {"n": state.n * 2}

    @graph.node
    async def again(state: Any) -> dict[str, int]:
        return {"n": state.n * 3}

    imported = Graph.from_json(graph.to_json(), functions={"double": double, "again": again})
    first, second = graph.compile(), imported.compile()
    assert first.version == second.version
    assert (await first.run()).output == (await second.run()).output == 6
