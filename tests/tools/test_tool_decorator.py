"""`@tool`: schema from signature and docstring, checked arguments, injected context, progress (spec 8.1)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from graphflow.tools.docstring import parse_docstring
from graphflow.tools.port import ArgumentsRefused, Tool, ToolContext, ToolResult, tool
from tests.tools.fakes import tool_context


class Place(BaseModel):
    name: str
    lines: list[int] = []


@tool
def forecast(city: str, days: int = 3, unit: Literal["C", "F"] = "C", place: Place | None = None) -> dict[str, Any]:
    """Forecast for a city.

    Invented, of course.

    Args:
        city: Its name,
            in any language.
        days (int): How many days.
        unit: Of temperature.

    Returns:
        What nobody reads.
    """
    return {"city": city, "days": days, "unit": unit, "place": place.name if place else None}


def test_importing_the_front_door_and_the_runner_loads_no_heavy_library():
    code = (
        "import sys, graphflow.tools.port, graphflow.tools.running.runner, graphflow.tools.files.tool_files;"
        "print([m for m in ('pydantic', 'structlog', 'httpx', 'jsonschema_rs', 'networkx', 'fastapi') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_specs_and_checks_of_the_built_in_tools_load_no_pydantic_and_no_schema_library():
    code = (
        "import sys; from graphflow.tools.registry import ToolRegistry; r = ToolRegistry(); r.specs(r.names());"
        "r.require('city_datetime').prepare({'city': 'x'});"
        "from graphflow.tools.running.approval import answer_schema; answer_schema(r.require('bash'));"
        "print([m for m in ('pydantic', 'jsonschema_rs') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_schema_comes_from_signature_and_docstring():
    spec = forecast.spec
    assert spec.name == "forecast"
    assert spec.description == "Forecast for a city.\n\nInvented, of course."
    assert spec.parameters["required"] == ["city"]
    assert spec.parameters["additionalProperties"] is False
    properties = spec.parameters["properties"]
    assert properties["city"] == {"type": "string", "description": "Its name, in any language."}
    assert properties["days"] == {"type": "integer", "default": 3, "description": "How many days."}
    assert properties["unit"]["enum"] == ["C", "F"]
    assert "title" not in spec.parameters


def test_options_override_what_the_function_says():
    @tool(name="other", description="Said here.", effects="read", idempotent=True, undo="tool:back", timeout_s=2)
    def function(text: str) -> str:
        """Said there."""
        return text

    assert (function.name, function.description, function.effects) == ("other", "Said here.", "read")
    assert (function.idempotent, function.undo, function.timeout_s) == (True, "tool:back", 2)


def test_a_tool_writes_unless_it_says_otherwise():
    assert forecast.effects == "write"
    assert forecast.kind == "backend"


def test_a_tool_can_still_be_called_as_a_function():
    assert forecast("Oslo", days=1) == {"city": "Oslo", "days": 1, "unit": "C", "place": None}


async def test_arguments_are_converted_to_the_annotated_types():
    seen: list[Any] = []

    @tool
    def keep(day: date, place: Place, count: int) -> None:
        seen.extend([day, place, count])

    await keep.call({"day": "2024-01-31", "place": {"name": "x"}, "count": "3"}, tool_context())
    assert seen == [date(2024, 1, 31), Place(name="x"), 3]


def test_refused_arguments_name_field_value_and_rule_all_at_once():
    with pytest.raises(ArgumentsRefused) as caught:
        forecast.prepare({"days": "many", "cty": "Oslo", "unit": "K", "place": {"name": "x", "lines": ["a"]}})
    issues = {issue.split(":")[0]: issue for issue in caught.value.errors}
    assert issues["city"] == "city: required and not given"
    assert "'many' was given" in issues["days"]
    assert "integer" in issues["days"]
    assert "'C' or 'F'" in issues["unit"]
    assert "'a' was given" in issues["place.lines[0]"]
    assert "Did you mean 'city'?" in issues["cty"]


async def test_refused_arguments_are_a_result_for_the_model():
    result = await forecast.call({"city": 5}, tool_context())
    assert result.error is not None
    assert result.error.code == "INVALID_PARAM"
    assert "city: 5 was given" in result.text
    assert "Call forecast again" in result.text


def test_a_secret_in_a_refused_argument_is_masked():
    with pytest.raises(ArgumentsRefused) as caught:
        forecast.prepare({"city": "x", "days": "api_key=abcdef123456"})
    assert "abcdef123456" not in str(caught.value)


async def test_context_is_injected_by_annotation_or_by_the_name_ctx():
    @tool
    def by_annotation(where: ToolContext, city: str) -> str:
        return f"{where.run_id} {city}"

    @tool
    def by_name(city: str, ctx: Any) -> str:
        return f"{ctx.run_id} {city}"

    for each in (by_annotation, by_name):
        assert list(each.parameters["properties"]) == ["city"]
        assert (await each.call({"city": "x"}, tool_context())).text == "run-1 x"


async def test_parameter_names_that_models_reserve_work():
    @tool
    def odd(json: int, schema: str, copy: bool, _hidden: int = 1, model_config: int = 2) -> list[Any]:
        return [json, schema, copy, _hidden, model_config]

    assert list(odd.parameters["properties"]) == ["json", "schema", "copy", "_hidden", "model_config"]
    result = await odd.call({"json": 1, "schema": "s", "copy": True, "_hidden": 5}, tool_context())
    assert result.data == {"result": [1, "s", True, 5, 2]}


async def test_a_function_with_open_keywords_takes_any_argument():
    @tool
    def anything(first: int, **more: Any) -> dict[str, Any]:
        return {"first": first, **more}

    assert anything.parameters["additionalProperties"] is True
    assert (await anything.call({"first": 1, "x": [2]}, tool_context())).data == {"first": 1, "x": [2]}


def test_parameters_that_cannot_be_named_are_refused_at_once():
    with pytest.raises(TypeError, match="can't be given by name"):

        @tool
        def bad(*values: int) -> None: ...

    with pytest.raises(TypeError, match="can't be given by name"):
        tool(lambda value, /: value)


def test_names_that_providers_refuse_are_refused_at_once():
    with pytest.raises(ValueError, match="letters, digits"):
        tool(name="no spaces please")(lambda: None)


def test_an_annotation_that_is_unknown_at_run_time_says_what_to_do():
    @tool
    def bad(value: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821 - that is the point
        ...

    with pytest.raises(TypeError, match="'Nowhere' is not known at run time"):
        _ = bad.parameters


def test_a_default_that_is_no_json_is_left_out_of_the_schema():
    marker = object()

    @tool
    def function(value: Any = marker) -> None: ...

    assert function.prepare({}) == {"value": marker}
    assert "default" not in function.parameters["properties"]["value"]


async def test_a_given_schema_takes_the_place_of_pydantic():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    @tool(parameters=schema)
    def function(n: Any) -> Any:
        return n

    assert function.parameters == schema
    with pytest.raises(ArgumentsRefused, match="n: expected a whole number, not '3'"):
        function.prepare({"n": "3"})


def test_a_secret_in_the_wrong_argument_is_not_repeated():
    secret = "sk-abcdefghijklmnopqrstuvwxyz"
    flat = {"type": "object", "properties": {"n": {"type": "integer"}}}
    beyond = {**flat, "properties": {"n": {"anyOf": [{"type": "integer"}]}}}
    for schema in (flat, beyond):
        for given in (secret, {"x": "a" * 40, "y": secret}):
            with pytest.raises(ArgumentsRefused) as caught:
                tool(name="t", parameters=schema)(lambda n: n).prepare({"n": given})
            assert "sk-a" not in str(caught.value)


async def test_sync_functions_run_in_a_thread_and_async_ones_on_the_loop():
    loop_thread = threading.get_ident()

    @tool
    def in_thread() -> bool:
        return threading.get_ident() != loop_thread

    @tool
    async def on_loop() -> bool:
        await asyncio.sleep(0)
        return threading.get_ident() == loop_thread

    assert (await in_thread.call({}, tool_context())).data == {"result": True}
    assert (await on_loop.call({}, tool_context())).data == {"result": True}


async def test_each_yield_of_a_generator_is_progress_and_the_last_one_the_result():
    @tool
    async def counts() -> AsyncIterator[dict[str, int]]:
        for n in range(3):
            yield {"n": n}

    @tool
    def counts_in_thread() -> Iterator[dict[str, int]]:
        yield from ({"n": n} for n in range(3))

    for each in (counts, counts_in_thread):
        progress: list[Any] = []
        result = await each.call({}, tool_context(progress=progress))
        assert progress == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert result.data == {"n": 2}


async def test_a_generators_return_value_is_the_result():
    @tool
    def works() -> Generator[str, None, dict[str, bool]]:
        yield "half"
        return {"done": True}

    progress: list[Any] = []
    assert (await works.call({}, tool_context(progress=progress))).data == {"done": True}
    assert progress == ["half"]


async def test_a_stop_iteration_in_a_sync_tool_does_not_hang():
    @tool
    def stops() -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await stops.call({}, tool_context())


@dataclass
class Point:
    x: int
    when: datetime


async def test_every_plain_return_value_is_wrapped():
    values: list[tuple[Any, dict[str, Any], str]] = [
        (None, {}, "OK"),
        ("hello", {}, "hello"),
        ("", {}, "OK (no output)"),
        ({"a": 1}, {"a": 1}, '{"a":1}'),
        ([1, 2], {"result": [1, 2]}, '{"result":[1,2]}'),
        (False, {"result": False}, '{"result":false}'),
        (Place(name="x"), {"name": "x", "lines": []}, '{"name":"x","lines":[]}'),
        (
            Point(1, datetime(2024, 1, 1, tzinfo=timezone.utc)),  # noqa: UP017 - as users write it
            {"x": 1, "when": "2024-01-01T00:00:00Z"},
            '{"x":1,"when":"2024-01-01T00:00:00Z"}',
        ),
    ]
    for value, data, text in values:
        result = await tool(name="gives")(lambda value=value: value).changed(schema=None).call({}, tool_context())
        assert (result.status, result.data, result.text) == ("success", data, text)


async def test_a_tool_result_passes_as_it_is():
    @tool
    def partly() -> ToolResult:
        return ToolResult(status="partial", data={"truncated": True}, text="cut", sources=[{"url": "https://x"}])

    result = await partly.call({}, tool_context())
    assert (result.status, result.text, result.sources) == ("partial", "cut", [{"url": "https://x"}])


def test_a_result_has_an_error_exactly_when_its_status_says_so():
    with pytest.raises(ValueError, match="both or neither"):
        ToolResult(status="error")


def test_docstrings_with_field_lists_are_understood():
    said = parse_docstring("Does it.\n\n:param city: where\n    to go\n:param int days: how long\n:returns: nothing\n")
    assert said.description == "Does it."
    assert said.parameters == {"city": "where to go", "days": "how long"}


def test_an_absent_docstring_gives_the_name_as_description():
    assert tool(name="bare")(lambda: None).spec.description == "bare"


def test_changed_gives_another_tool_and_leaves_the_first():
    other = forecast.changed(description="new")
    assert isinstance(other, Tool)
    assert other.spec.description == "new"
    assert forecast.spec.description != "new"


@pytest.mark.parametrize("wrong", [{"effects": "writes"}, {"undo": "nope"}])
def test_a_word_that_effects_or_undo_does_not_have_is_refused_where_the_tool_is_made(wrong: dict[str, Any]) -> None:
    def pay() -> None:
        """Pays."""

    (name, value) = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=f"tool 'pay': {name} is {value!r}"):
        tool(**wrong)(pay)
    with pytest.raises(TypeError, match="got undo=5, of type int; undo takes text or None"):
        tool(undo=5)  # type: ignore[call-overload]
