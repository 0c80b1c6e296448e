"""What a tool gives back that no JSON, no model or no log could take as it is."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from graphflow.content import ImagePart
from graphflow.masking import SHOWN_CHARS, mask_excerpt
from graphflow.tools.port import Tool, ToolResult, tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.arguments import parse_arguments
from graphflow.tools.running.runner import ToolRunner
from graphflow.tools.schema import MOST_ERRORS
from tests.tools.fakes import FakeContext, call


@dataclass
class Reading:
    value: float


async def result_of(value: Any) -> ToolResult:
    @tool
    async def read() -> Any:
        return value

    return await run(read)


async def run(one: Tool | Callable[..., Any], **arguments: Any) -> ToolResult:
    runner = ToolRunner(ToolRegistry((one,), builtins=()))
    name = one.name if isinstance(one, Tool) else one.__name__
    return await runner.run(call(name, arguments), FakeContext())


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"x": math.nan}, {"x": "NaN"}),
        (math.inf, {"result": "Infinity"}),
        ([1, 2.5, [{"deep": [-math.inf, None]}]], {"result": [1, 2.5, [{"deep": ["-Infinity", None]}]]}),
        (Reading(math.nan), {"value": "NaN"}),
        (ToolResult(data={"a": (math.nan, 1.0)}), {"a": ["NaN", 1.0]}),
        ({"x": None, "y": [1.5]}, {"x": None, "y": [1.5]}),
    ],
)
async def test_a_number_that_json_has_not_is_a_text_that_says_so(value: Any, data: dict[str, Any]):
    result = await result_of(value)
    assert (result.status, result.data) == ("success", data)


async def test_a_wrong_part_is_the_mistake_of_the_tool_and_the_log_says_why(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, logger="graphflow.tools"):
        result = await result_of(ImagePart(data="aGVsbG8=", media_type="image/png"))  # type: ignore[arg-type]
    assert result.error is not None
    assert result.error.code == "INTERNAL_ERROR"
    assert "the data of ImagePart must be bytes" in result.text
    assert "Change the arguments" not in result.text
    (end,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("tool.end")]
    assert "the data of ImagePart must be bytes" in end


async def test_of_thousands_of_wrong_arguments_a_few_are_named_and_the_others_counted():
    @tool
    async def echo(text: str, numbers: list[int] = []) -> str:  # noqa: B006 - never changed
        return text

    many = {f"k{number}": number for number in range(60_000)}
    for arguments in (many, {"numbers": ["a"] * 60_000}):
        result = await run(echo, text="x", **arguments)
        assert result.error is not None
        assert (result.error.code, f"and {60_000 - MOST_ERRORS} more errors" in result.text) == ("INVALID_PARAM", True)
        assert len(result.text) < 10_000


def test_a_long_text_that_is_no_json_is_shown_by_its_ends_without_secrets():
    with pytest.raises(ValueError, match="not valid JSON") as caught:
        parse_arguments('{"password": "hunter2", "text": "' + "x" * 5_000_000 + " api_key=hunter2")
    assert "hunter2" not in str(caught.value)
    assert "password" in str(caught.value)


def test_of_large_arguments_a_log_shows_a_masked_beginning():
    shown = mask_excerpt({"text": "x" * 5_000_000, "password": "hunter2" * 1_000, "list": list(range(60_000))})
    assert shown["text"].startswith("x" * SHOWN_CHARS + "…")
    assert shown["password"] == "***"
    assert (shown["list"][0], shown["list"][-1]) == (0, "… 59900 more")
    assert len(repr(mask_excerpt([[["x" * 500] * 100] * 100] * 100))) < 1_000_000
    assert mask_excerpt({"a": [1, {"token": "abc"}]}) == {"a": [1, {"token": "***"}]}
