"""Functions that block run in threads of which each person has a share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from graphflow.tools.port import Tool, tool
from graphflow.tools.run_in_thread import EACH, SharedThreads
from tests.patience import PATIENCE_S
from tests.tools.fakes import tool_context


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What blocked functions wait for; open after the test, so that no thread stays."""
    gate = threading.Event()
    yield gate
    gate.set()


def blocking_tool(gate: threading.Event) -> Tool:
    @tool
    def answer(wait: bool) -> str:
        """Waits, or does not."""
        if wait:
            gate.wait()
        return "here"

    return answer


async def test_one_person_s_blocked_tools_leave_threads_to_everybody_else(gate: threading.Event):
    answer = blocking_tool(gate)
    ann, bob = (replace(tool_context(), starter={"by": [name]}) for name in ("ann", "bob"))
    async with asyncio.TaskGroup() as group:
        stuck = [group.create_task(answer.body.run({"wait": True}, bob)) for _ in range(5 * EACH)]
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert await answer.body.run({"wait": False}, ann) == "here"
                assert await answer.body.run({"wait": False}, tool_context()) == "here"
                # What serves everybody, uploads for one, is not behind them either.
                assert await asyncio.to_thread(lambda: "read") == "read"
        finally:
            gate.set()
    assert [task.result() for task in stuck] == ["here"] * len(stuck)


def test_an_owner_s_further_functions_begin_as_its_own_end(gate: threading.Event):
    threads = SharedThreads(most=4, each=2)
    begun = [threading.Event() for _ in range(3)]

    def work(number: int) -> int:
        begun[number].set()
        gate.wait()
        return number

    futures = [threads.submit("bob", partial(work, number)) for number in range(3)]
    assert begun[0].wait(PATIENCE_S)
    assert begun[1].wait(PATIENCE_S)
    assert threads.submit("ann", lambda: "ann").result(PATIENCE_S) == "ann"
    assert not begun[2].is_set()
    gate.set()
    assert [future.result(PATIENCE_S) for future in futures] == [0, 1, 2]


def test_a_function_that_is_cancelled_while_it_waits_never_begins(gate: threading.Event):
    threads = SharedThreads(most=2, each=1)
    begun: list[str] = []
    first = threads.submit("bob", gate.wait)
    cancelled = threads.submit("bob", lambda: begun.append("cancelled"))
    last = threads.submit("bob", lambda: begun.append("last"))
    assert cancelled.cancel()
    gate.set()
    assert first.result(PATIENCE_S)
    last.result(PATIENCE_S)
    assert begun == ["last"]


def test_a_function_that_fails_gives_its_thread_back():
    threads = SharedThreads(most=1, each=1)

    def fail() -> None:
        raise SystemExit("no")

    with pytest.raises(SystemExit):
        threads.submit("bob", fail).result(PATIENCE_S)
    assert threads.submit("bob", lambda: 1).result(PATIENCE_S) == 1
