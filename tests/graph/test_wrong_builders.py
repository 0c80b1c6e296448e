"""Wrong uses of the Python form that no run could make right: each is refused where it is written, with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from graphflow import Context, Graph, load_graph, node
from graphflow.errors import ArgumentRefused, DefinitionError
from graphflow.models.scripted.model import ScriptedModel


class Counter(TypedDict):
    n: int


@dataclass
class Nothing:
    """A state without keys."""


class Packed(msgspec.Struct):
    n: int = 0


class Called:
    def __call__(self, state: Any) -> dict[str, Any]:
        return {}


class Streams:
    def __call__(self, state: Any) -> Any:
        yield {}


def no_state() -> dict[str, Any]:
    return {}


def three(state: Any, ctx: Context, more: int) -> dict[str, Any]:
    return {}


def named_only(state: Any, *, more: int) -> dict[str, Any]:
    return {}


def yields(state: Any) -> Any:
    yield {}


async def yields_later(state: Any) -> Any:
    yield {}


def plain(state: Any) -> dict[str, Any]:
    return {}


def with_context(state: Any, ctx: Context) -> dict[str, Any]:
    return {}


def with_defaults(state: Any, ctx: Any = None, limit: int = 3, *, loud: bool = False) -> dict[str, Any]:
    return {}


def with_any(*given: Any, **more: Any) -> dict[str, Any]:
    return {}


WRONG: list[tuple[Any, str]] = [
    (no_state, "takes no state"),
    (three, "needs 'more', which nobody gives it"),
    (named_only, "needs 'more'"),
    (yields, "has a `yield` in it"),
    (yields_later, "has a `yield` in it"),
    (Streams(), "has a `yield` in it"),
    (Called, "no function"),
]


@pytest.mark.parametrize(("function", "why"), WRONG)
def test_a_function_that_could_not_run_as_a_node_is_refused_where_it_is_added(function: Any, why: str) -> None:
    graph: Any = Graph(Counter)
    with pytest.raises(ArgumentRefused, match="a node is f\\(state\\) or f\\(state, ctx\\)") as refused:
        graph.node(function, name="work")
    assert why in refused.value.message
    with pytest.raises(ArgumentRefused):
        node(name="work")(function)


@pytest.mark.parametrize("function", [plain, with_context, with_defaults, with_any, Called(), lambda state: {}])
def test_a_function_of_the_state_is_a_node(function: Callable[..., Any]) -> None:
    graph: Any = Graph(Counter)
    graph.node(function, name="work")
    assert graph.compile().run_sync({}).status == "completed"


@pytest.mark.parametrize("state", [int, str, list, dict, object, Called])
def test_a_class_without_fields_is_no_state(state: Any) -> None:
    with pytest.raises(TypeError, match="declares no fields"):
        Graph(state)


def test_a_struct_is_no_state_and_a_state_may_have_no_keys() -> None:
    with pytest.raises(TypeError, match="write a dataclass"):
        Graph(Packed)
    empty = Graph(Nothing)
    empty.node(name="work")(plain)
    assert empty.compile().run_sync({}).status == "completed"


def test_agent_fields_of_a_python_graph_are_checked_as_those_of_a_file() -> None:
    graph = Graph(Counter, approval="ALWAYS")
    graph.node(name="work")(plain)
    with pytest.raises(DefinitionError, match="expected one of AUTO, DISABLED, REQUIRE_APPROVAL"):
        graph.compile()


def talking(**fields: Any) -> Graph[Any]:
    graph = Graph({"properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}}, **fields)
    return graph.add("ask", use="model", next="work").add("work", use="tools", next="end")


NO_TOOL = "no tool is named 'time_nwo' \\(did you mean 'time_now'"
NO_PROVIDER = "no provider is named 'opneai' \\(did you mean 'openai'"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tools": ["time_nwo"]}, f"^/tools/0: {NO_TOOL}"),
        ({"tools": ["time_now", "mien"]}, "^/tools/1: no tool is named 'mien' \\(did you mean 'mine'"),
        ({"approval": {"time_nwo": "REQUIRE_APPROVAL"}}, f"^/approval/time_nwo: {NO_TOOL}"),
        ({"provider_key": "opneai"}, f"^/providerKey: {NO_PROVIDER}"),
    ],
)
def test_agent_fields_that_name_nothing_are_refused_in_every_graph_of_the_builder(fields: Any, said: str) -> None:
    def mine() -> str:
        """Mine."""
        return ""

    with pytest.raises(DefinitionError, match=said):
        talking(**fields).compile(tools=[mine])
    inner, place = talking(**fields), said.removeprefix("^")
    with pytest.raises(DefinitionError, match=f"^/nodes/run/graph{place}"):
        Graph().subgraph("run", inner, next="end").compile(tools=[mine])
    with pytest.raises(DefinitionError, match=f"^/nodes/run/do/graph{place}"):
        Graph().map("run", "[1]", inner).compile(tools=[mine])
    both = Graph().parallel("run", {"a": inner, "b": inner}, after={"b": ["a"]})
    with pytest.raises(DefinitionError, match=f"(?s)/nodes/run/parallel/a/do/graph{place}.*/b/do/graph{place}"):
        both.compile(tools=[mine])
    with pytest.raises(DefinitionError, match=f"/nodes/run/do/graph{place}"):
        load_graph(Graph().map("run", "[1]", inner).document(), tools=[mine])


@pytest.mark.parametrize(("use", "with_"), [("tools", {"tools": ["time_nwo"]}), ("model", {"tools": ["time_nwo"]})])
def test_a_node_names_tools_that_exist(use: str, with_: Any) -> None:
    with pytest.raises(DefinitionError, match="^/nodes/more/with/tools/0: no tool 'time_nwo' is registered"):
        Graph({"properties": {}}).add("more", use=use, with_=with_, next="end").compile()


def test_a_node_names_a_provider_that_exists_unless_every_model_is_given() -> None:
    graph = Graph({"properties": {}}, provider_key="made_up").add(
        "more", use="model", with_={"providerKey": "more"}, next="end"
    )
    with pytest.raises(DefinitionError, match="^/providerKey: no provider is named 'made_up'"):
        graph.compile()
    graph = Graph({"properties": {}}).add("more", use="model", with_={"providerKey": "made_up"}, next="end")
    with pytest.raises(DefinitionError, match="^/nodes/more/with/providerKey: no provider 'made_up'"):
        graph.compile()
    graph.compile(model=ScriptedModel())


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_a_time_limit_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(ArgumentRefused, match="timeout_s of node 'work'"):
        Graph(Counter).node(name="work", timeout_s=seconds)(plain)


def test_a_batch_makes_the_ids_of_its_runs() -> None:
    graph = Graph(Counter)
    graph.node(name="work")(plain)
    app: Any = graph.compile()
    with pytest.raises(ArgumentRefused, match="has no option 'run_id'"):
        app.batch_sync([{}, {}], run_id="one")
    assert len({done.run_id for done in app.batch_sync([{}, {}])}) == 2


def test_a_misspelt_first_word_of_a_document_is_named() -> None:
    with pytest.raises(DefinitionError, match="unknown key 'mdoe' \\(did you mean 'mode'"):
        load_graph({"mdoe": "PLAIN", "plain": {"systemPrompt": "Hello."}})
    with pytest.raises(DefinitionError, match="unknown key 'mdoe'"):
        load_graph({"mdoe": "PLAIN"})
