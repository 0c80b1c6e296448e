"""A Python node that fails says where: the exception in this process, one line in the log, a short trace in the store."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from graphflow import Context, Graph, GraphflowError
from graphflow.graph.engine.failure_trace import MOST_FRAMES, trace_of
from graphflow.runtime.compiled_graph import CompiledGraph
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter

HERE = "tests/runtime/test_failure_traces.py"


def _decode(text: str) -> Any:
    return json.loads(text)


async def reads_badly(state: Any) -> dict[str, Any]:
    return {"n": _decode("{no JSON}")}


def reads_badly_in_a_thread(state: Any) -> dict[str, Any]:
    return {"n": _decode("{no JSON}")}


async def reads_badly_in_a_step(state: Any, ctx: Context) -> dict[str, Any]:
    return {"n": await ctx.step("read", lambda: _decode("{no JSON}"))}


async def reads_badly_in_a_group(state: Any) -> None:
    async def read() -> None:
        _decode("{no JSON}")

    async with asyncio.TaskGroup() as group:
        group.create_task(read())


async def reads_badly_and_explains(state: Any) -> None:
    try:
        _decode("{no JSON}")
    except ValueError as error:
        raise LookupError("the answer has no score; token=abcdefghijklmnop") from error


READERS = [
    reads_badly,
    reads_badly_in_a_thread,
    reads_badly_in_a_step,
    reads_badly_in_a_group,
    reads_badly_and_explains,
]


def failing(work: Callable[..., Any], compile_graph: Compile, **keys: Any) -> CompiledGraph:
    graph = Graph(Counter)
    graph.node(name="work", **keys)(work)
    return compile_graph(graph)


@pytest.mark.parametrize("work", READERS, ids=lambda work: work.__name__)
async def test_the_trace_is_stored_short_and_relative_to_the_package(
    compile_graph: Compile, work: Callable[..., Any]
) -> None:
    app = failing(work, compile_graph)
    assert (await app.run({}, "t")).status == "failed"
    trace = (await app.thread("t").why()).trace
    assert trace is not None
    assert any(line.startswith(f"{HERE}:") and line.endswith(" in _decode") for line in trace)
    assert any(line.startswith("json/decoder.py:") for line in trace)
    assert not any(line.startswith(("/", "graphflow/", "asyncio/", "concurrent/")) for line in trace)


async def test_what_it_came_from_stands_before_it_and_secrets_are_masked(compile_graph: Compile) -> None:
    app = failing(reads_badly_and_explains, compile_graph)
    await app.run({}, "t")
    trace = (await app.thread("t").why()).trace
    assert trace is not None
    assert trace.index("which led to") > 0
    assert trace[-1] == "LookupError: the answer has no score; token=***"


@pytest.mark.parametrize("work", READERS, ids=lambda work: work.__name__)
async def test_in_the_live_process_the_exception_is_chained(compile_graph: Compile, work: Callable[..., Any]) -> None:
    result = await failing(work, compile_graph).run({}, "t")
    with pytest.raises(GraphflowError) as caught:
        result.raise_for_error()
    assert caught.value.__cause__ is result.cause
    assert result.cause is not None
    assert result.cause.__traceback__ is not None


async def test_a_branch_that_fails_the_run_is_its_cause(compile_graph: Compile) -> None:
    graph = Graph(Counter)
    graph.map("fan", "[1, 2]", "work", max=1)
    graph.node(name="work")(reads_badly)
    result = await compile_graph(graph.start("fan")).run({}, "t")
    assert type(result.cause) is json.JSONDecodeError


async def test_a_run_that_handled_the_failure_has_no_cause(compile_graph: Compile) -> None:
    app = failing(reads_badly, compile_graph, error=[{"on": ["node_error"], "to": "end"}])
    result = await app.run({}, "t")
    assert (result.status, result.cause) == ("completed", None)
    assert (await app.thread("t").why()).trace is not None


async def test_a_failure_is_logged_once_with_its_trace_and_without_secrets(
    compile_graph: Compile, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        result = await failing(reads_badly_and_explains, compile_graph).run({}, "t")
    (record,) = [r for r in caplog.records if r.name == "graphflow.nodes"]
    assert f"node 'work' of thread 't' failed in run {result.run_id!r}" in record.getMessage()
    assert "_decode(" in record.getMessage()
    assert "abcdefghijklmnop" not in record.getMessage()


async def test_a_failure_of_graphflow_itself_has_no_trace(
    compile_graph: Compile, caplog: pytest.LogCaptureFixture
) -> None:
    """Its message says what to do; where graphflow found it is of no use to anybody."""

    async def writes_a_stranger(state: Any) -> dict[str, Any]:
        return {"stranger": 1}

    app = failing(writes_a_stranger, compile_graph)
    await app.run({}, "t")
    assert (await app.thread("t").why()).trace is None
    assert not [r for r in caplog.records if r.name == "graphflow.nodes"]


def test_a_deep_recursion_and_a_long_text_are_shortened() -> None:
    def fall(depth: int) -> None:
        if not depth:
            raise ValueError("x" * 10_000)
        fall(depth - 1)

    with pytest.raises(ValueError, match="x") as caught:
        fall(200)
    trace = trace_of(caught.value)
    assert trace is not None
    assert len(trace) == MOST_FRAMES + 2
    assert f"… {202 - MOST_FRAMES} more" in trace
    assert len(trace[-1]) < 400


async def test_an_exception_that_cannot_be_shown_fails_its_node_and_nothing_else(compile_graph: Compile) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    async def work(state: Any) -> None:
        raise Mute

    result = await failing(work, compile_graph).run({}, "t")
    assert result.error is not None
    assert result.error["code"] == "node_error"
