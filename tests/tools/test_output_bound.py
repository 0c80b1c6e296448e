"""The output of a tool has a bound: more is cut, the result says so, and its form stays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from graphflow.tools.envelope import record_of
from graphflow.tools.port import ToolResult, tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.result import failed
from graphflow.tools.running.runner import ToolRunner
from graphflow.value_size import size_of
from tests.tools.fakes import FakeContext, call

MOST = 1_000


@dataclass
class Rows:
    rows: list[str] = field(default_factory=lambda: ["row"] * 1_000)


def shared() -> Any:
    """Small in memory, and without end where it is written out."""
    value: list[Any] = ["x"]
    for _ in range(60):
        value = [value, value]
    return value


LONG = {
    "text": "x" * 3_000,
    "wide text": "é" * 3_000,
    "data": {"a": 1, "rows": ["row"] * 1_000, "b": 2},
    "one large field": {"small": "s", "large": "x" * 5_000},
    "list": list(range(2_000)),
    "shared": shared(),
    "bytes": b"x" * 5_000,
    "dataclass": Rows(),
    "result": ToolResult(text="ok", data={"text": "x" * 5_000}),
    "sources": ToolResult(text="ok", data={"a": 1}, sources=[{"title": "t" * 100}] * 50),
    "text of a result": ToolResult(text="x" * 5_000),
    "error": failed("EXECUTION_ERROR", "x" * 5_000),
}


async def result_of(value: Any, most: int = MOST) -> ToolResult:
    @tool(effects="read")
    async def give() -> Any:
        """Gives a value."""
        return value

    runner = ToolRunner(ToolRegistry([give]), max_output_bytes=most)
    return await runner.run(call("give", {}), FakeContext())


@pytest.mark.parametrize("what", LONG)
async def test_a_longer_output_is_cut_and_says_so(what):
    result = await result_of(LONG[what])
    assert size_of(record_of(result), 10**6) < 2 * MOST + 1_000
    assert "bounds.tool_output_bytes" in result.text
    assert result.status == ("error" if what == "error" else "partial")
    if result.error is None:
        assert result.data["truncated"] is True
        assert next(iter(result.data)) == "note"


async def test_what_fits_of_the_data_keeps_its_form():
    result = await result_of(LONG["data"])
    assert result.data["a"] == 1
    assert set(result.data["rows"]) == {"row"}
    assert 0 < len(result.data["rows"]) < 1_000


@pytest.mark.parametrize("value", ["x" * 900, {"a": ["b"] * 50}, None, 5])
async def test_an_output_within_the_bound_passes_as_it_is(value):
    result = await result_of(value)
    assert (result.status, "bounds" in result.text) == ("success", False)


async def test_the_default_is_one_mebibyte():
    @tool(effects="read")
    async def give() -> str:
        """Gives a text."""
        return "x" * (2 * 1024 * 1024)

    result = await ToolRunner(ToolRegistry([give])).run(call("give", {}), FakeContext())
    assert result.status == "partial"
    assert 1_000_000 < len(result.data["text"]) <= 1024 * 1024
