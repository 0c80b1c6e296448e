"""A server that asks a person: a durable question, in both forms of the protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from graphflow.messages import ToolMessage
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.service.access import LOCAL
from graphflow.service.runs.submit import answer_live
from graphflow.tools.context import ToolContext
from graphflow.tools.input_needed import ToolQuestion
from graphflow.tools.port import tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.policy import ANY_TOOL
from graphflow.tools.running.runner import ToolRunner
from tests.launching import crash, launch
from tests.mcp.folders import called, mcp_folder, opened, own_server, react
from tests.patience import PATIENCE_S
from tests.tools.fakes import FakeContext, call


def folder_with(tmp_path: Path, server: str, more: str = "") -> Path:
    agent = react(f"mcp:{server}", approval="DISABLED")
    return mcp_folder(tmp_path, own_server(server, str(tmp_path)) + more, asker=agent)


def result(done: Any) -> ToolMessage:
    assert done.status == "completed", done
    return next(m for m in done.state["messages"] if isinstance(m, ToolMessage))


def lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("answer", "said", "sent"),
    [
        ({"name": "Ann"}, "accept: {'name': 'Ann'}", "state-1 {'name': 'Ann'}"),
        ({"action": "decline"}, "decline: None", "state-1 no"),
    ],
)
async def test_a_server_of_2026_goes_on_after_a_restart_with_the_state_that_was_recorded(
    tmp_path: Path, answer: Any, said: str, sent: str
) -> None:
    folder = folder_with(tmp_path, "modern")
    async with opened(folder) as app:
        graph = await app.ready_graph("asker")
        waiting = await graph.run(called("modern__ask", text="x"), "t1")
        (question,) = waiting.interrupts
        assert "Who are you?" in str(question.payload)
    async with opened(folder) as app:
        done = await (await app.graph_of_thread("t1")).answer("t1", answer)
    assert result(done).text == said
    assert lines(tmp_path, "calls") == ["None None", sent]


async def test_an_answered_write_of_2026_that_is_cut_off_is_not_sent_again(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path, "modern")) as app:
        graph = await app.ready_graph("asker")
        await graph.run(called("modern__ask_and_die"), "t1")
        assert (await graph.answer("t1", {"name": "Ann"})).status == "failed"
        asked = await graph.resume("t1")
        assert [question.kind for question in asked.interrupts] == ["outcome_unknown"]
    assert len(lines(tmp_path, "calls")) == 2


async def test_a_server_of_2025_asks_again_after_the_answer_if_its_tool_only_reads(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "plain", 'effects = "read"\n')
    async with opened(folder) as app:
        graph = await app.ready_graph("asker")
        waiting = await graph.run(called("plain__ask", text="x"), "t1")
        assert [question.kind for question in waiting.interrupts] == ["ask"]
    async with opened(folder) as app:
        done = await (await app.graph_of_thread("t1")).answer("t1", {"name": "Ann"})
    assert '"Ann"' in result(done).text
    assert lines(tmp_path, "asked") == ["x", "x"]


async def test_a_write_of_2025_that_nobody_keeps_open_has_an_unknown_outcome(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path, "plain")) as app:
        graph = await app.ready_graph("asker")
        assert (await graph.run(called("plain__ask", text="x"), "t1")).status == "failed"
        asked = await graph.resume("t1")
        assert [question.kind for question in asked.interrupts] == ["outcome_unknown"]
    assert lines(tmp_path, "asked") == ["x"]


HOLD_MS = 600_000


async def until_asked(live: LiveRun) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not live.executor.machine.interrupts:
            await asyncio.sleep(0.01)


async def test_a_write_of_2025_goes_on_in_its_open_call_while_the_run_is_held(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path, "plain")) as app:
        graph = await app.ready_graph("asker")
        live = await launch(graph, {"query": called("plain__ask", text="x")}, "t1", hold_ms=HOLD_MS)
        await until_asked(live)
        (interrupt_id,) = live.executor.machine.interrupts
        answer_live(live, interrupt_id, {"name": "Ann"}, None, LOCAL)
        await live.over.wait()
        messages = (await graph.thread("t1").state()).values["messages"]
    assert any(isinstance(m, ToolMessage) and '"Ann"' in m.text for m in messages)
    assert lines(tmp_path, "asked") == ["x"]


async def test_a_crash_while_a_person_is_asked_loses_nothing_with_a_server_of_2026(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "modern")
    async with opened(folder) as app:
        graph = await app.ready_graph("asker")
        live = await launch(graph, {"query": called("modern__ask", text="x")}, "t1", hold_ms=HOLD_MS)
        await until_asked(live)
        await crash(live)
    async with opened(folder) as app:
        done = await (await app.graph_of_thread("t1")).answer("t1", {"name": "Ann"})
    assert result(done).text == "accept: {'name': 'Ann'}"
    assert len(lines(tmp_path, "calls")) == 2


async def test_the_time_limit_of_a_tool_pauses_while_a_person_answers() -> None:
    class Slow(FakeContext):
        async def ask(self, message: str, **question: Any) -> Any:
            await asyncio.wait([asyncio.create_task(over.wait())])  # noqa: TID251 - it ends with the test's event
            return {"name": "Ann"}

    @tool(effects="read", timeout_s=0.2)
    async def greet(ctx: ToolContext) -> str:
        asyncio.get_running_loop().call_later(0.5, over.set)
        return f"hello {await ctx.ask(ToolQuestion(message='Who?', schema={'type': 'object'}), 1)}"

    over = asyncio.Event()
    runner = ToolRunner(ToolRegistry([greet], builtins=()))
    done = await runner.run(call("greet"), Slow(), policy=ANY_TOOL)
    assert done.text == "hello {'name': 'Ann'}"
