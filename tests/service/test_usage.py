"""Budgets bind and can be widened, and what was used is counted exactly: per run, thread, agent, model and day (spec 1.3)."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import GraphflowError, ModelError
from graphflow.models.deltas import Delta, Finish, TextDelta, Usage
from graphflow.models.scripted.model import ScriptedModel
from graphflow.service import threads
from graphflow.service.application import Application
from graphflow.service.usage import usage
from graphflow.settings import load_settings
from graphflow.testing import FakeClock
from tests.service.conftest import MESSAGES, SPEAK

DAY_MS = 86_400_000
NOON = 20_000 * DAY_MS + DAY_MS // 2
TODAY = (dt.date(1970, 1, 1) + dt.timedelta(20_000)).isoformat()
PER_CALL = Usage(prompt_tokens=100, completion_tokens=50, reasoning_tokens=20, cached_tokens=40)
PRICE = '[prices."scripted/*"]\nprompt = 2.0\ncached = 0.5\ncompletion = 10.0\nreasoning = 5.0\n'
COST = (60 * 2.0 + 40 * 0.5 + 30 * 10.0 + 20 * 5.0) / 1_000_000
CALLED = {"promptTokens": 100, "completionTokens": 50, "reasoningTokens": 20, "cachedTokens": 40, "modelCalls": 1}
STATE = {"type": "object", "properties": {"messages": MESSAGES}}


def spender(**fields: Any) -> dict[str, Any]:
    """Two model calls, with a node of the test between them."""
    nodes = {
        "one": {**SPEAK, "next": "between"},
        "between": {"use": "node:between", "next": "two"},
        "two": {**SPEAK, "next": "end"},
    }
    return {"graphflow": "1", "state": STATE, "start": "one", "nodes": nodes, **fields}


class Talker(ScriptedModel):
    """Says a word and tells what it used; a test may let calls fail or go uncounted."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Usage | Exception | None] = []

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[Delta, None]:
        turn = self.turns.pop(0) if self.turns else PER_CALL
        if isinstance(turn, ModelError) and turn.code == "rate_limit":
            raise turn
        yield TextDelta("word")
        if isinstance(turn, Exception):
            raise turn
        yield Finish("stop", "stop", turn)


class Setting:
    """An application over one store, and what the tests steer."""

    def __init__(self, folder: Path, store: Checkpointer | None = None, toml: str = PRICE, **agents: Any) -> None:
        (folder / "graphs").mkdir(exist_ok=True)
        (folder / "graphflow.toml").write_text(toml, encoding="utf-8")
        for key, data in {"spender": spender(), **agents}.items():
            (folder / "graphs" / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")
        self.clock, self.model = FakeClock(NOON), Talker()
        self.between: Callable[[Any], Any] = lambda ctx: None
        settings = load_settings(folder, environ={})
        self.app = Application(settings, checkpointer=store, models=lambda _, __: self.model, clock=self.clock)
        self.app.kinds.node("between", self._between)

    async def _between(self, state: Any, ctx: Any) -> dict[str, Any]:
        done = self.between(ctx)
        if asyncio.iscoroutine(done):
            await done
        return {}

    async def ledger(self, **asked: Any) -> dict[str, Any]:
        return await usage(self.app, **asked)


@pytest.fixture
async def setting(store: Checkpointer, tmp_path: Path) -> AsyncIterator[Setting]:
    made = Setting(tmp_path, store)
    async with made.app:
        yield made


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Setting]:
    made = Setting(tmp_path)
    async with made.app:
        yield made


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "tight", "wide", "name"),
    [
        ("maxModelCalls", 1, 2, "modelCalls"),
        ("maxToolCalls", 1, 3, "toolCalls"),
        ("maxSteps", 2, 3, "steps"),
        ("maxTokens", 150, 151, "tokens"),
        ("maxCostUsd", COST, COST * 1.01, "costUsd"),
    ],
)
async def test_a_used_up_figure_stops_the_run_and_a_larger_budget_lets_it_go_on(
    small: Setting, figure: str, tight: float, wide: float, name: str
) -> None:
    def call_tools(ctx: Any) -> None:
        ctx.charge_tool_call()
        if figure == "maxToolCalls":
            ctx.charge_tool_call()

    small.between = call_tools
    graph = small.app.graph("spender")
    result = await graph.run("go", thread_id="t", budget={figure: tight})
    assert result.status == "failed" and result.error is not None
    assert (result.error["code"], result.error["detail"]["figure"]) == ("budget_exceeded", name)
    assert (result.error["detail"]["limit"], result.error["detail"]["used"]) == (tight, tight)
    assert len((await graph.thread("t").state()).values["messages"]) == 2
    gone_on = await graph.resume("t", budget={figure: wide})
    assert gone_on.status == "completed"
    assert len(gone_on.state["messages"]) == 3


async def test_used_up_time_stops_the_run_and_a_larger_budget_lets_it_go_on(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    never = asyncio.Event()

    async def stands_still(ctx: Any) -> None:
        setting.clock.advance(1)
        await never.wait()

    async with setting.app:
        setting.between = stands_still
        graph = setting.app.graph("spender")
        result = await graph.run("go", thread_id="t", budget={"timeoutMs": 20})
        assert result.error is not None and result.error["code"] == "budget_exceeded"
        assert result.error["detail"]["figure"] == "timeoutMs" and result.usage["activeMs"] == 1_000
        setting.between = lambda ctx: None
        assert (await graph.resume("t", budget={"timeoutMs": 600_000})).status == "completed"


async def test_a_limit_in_money_without_a_price_is_refused_before_anything_runs(tmp_path: Path) -> None:
    costly = spender(budget={"maxCostUsd": 1})
    other = spender()
    other["nodes"]["two"]["with"] = {"model": "another"}
    setting = Setting(tmp_path, toml="", costly=costly, other=other)
    async with setting.app:
        issue = setting.app.agents.invalid()[0].errors[0]
        assert (issue.pointer, issue.kind) == (
            "/budget/maxCostUsd",
            "property",
        ) and "never counts as 0" in issue.message
        with pytest.raises(GraphflowError, match="scripted/scripted is not known") as refused:
            await setting.app.graph("other").run("go", budget={"maxCostUsd": 1})
        assert refused.value.code == "invalid_input" and not await setting.app.store.threads()


async def test_a_price_that_goes_missing_later_stops_the_next_call(tmp_path: Path) -> None:
    setting = Setting(tmp_path, costly=spender(budget={"maxCostUsd": 1}))
    async with setting.app:
        graph = setting.app.graph("costly")
        setting.between = lambda ctx: setting.app.prices._prices.clear()
        result = await graph.run("go", thread_id="t")
        assert result.error is not None and "the price of scripted/scripted is not known" in result.error["message"]
        assert result.usage["modelCalls"] == 1 and result.usage["costUsd"] == COST


async def test_a_limit_on_tokens_is_not_kept_by_guessing(small: Setting) -> None:
    small.model.turns = [None]
    result = await small.app.graph("spender").run("go", thread_id="t", budget={"maxTokens": 1_000})
    assert result.error is not None and result.error["detail"] == {"figure": "tokens", "limit": 1_000, "used": None}
    assert (result.usage["promptTokens"], result.usage["costUsd"]) == (None, None)


# --- counting -------------------------------------------------------------------------------------


async def test_a_run_tells_its_usage_in_events_result_thread_and_ledger(setting: Setting) -> None:
    setting.between = lambda ctx: setting.clock.advance(2)
    events = [event async for event in setting.app.graph("spender").stream("go", "t")]
    ends = [event.usage for event in events if event.type == "node.end"]  # type: ignore[attr-defined]
    assert ends == [{**CALLED, "costUsd": COST}, None, {**CALLED, "costUsd": COST}]
    twice = {name: 2 * value for name, value in CALLED.items()} | {"activeMs": 2_000, "costUsd": 2 * COST}
    assert (await threads.summary(setting.app, "t"))["usage"] == twice
    told = await threads.cost(setting.app, "t")
    assert told["total"] == twice and list(told["runs"].values()) == [twice]
    assert told["models"] == {"scripted/scripted": twice} and told["nodes"]["one"] == {**CALLED, "costUsd": COST}
    ledger = await setting.ledger()
    line = {**twice, "toolCalls": 0, "knownCostUsd": 2 * COST, "uncountedCalls": 0, "unpricedCalls": 0}
    assert ledger["total"] == told["spent"] == line
    assert ledger["lines"] == [{"day": TODAY, "agentKey": "spender", "model": "scripted/scripted", **line}]


async def test_failed_cut_off_and_uncounted_calls_are_told_apart(setting: Setting) -> None:
    graph = setting.app.graph("spender")
    setting.model.turns = [ModelError("no", code="rate_limit")]
    refused = await graph.run("go", thread_id="refused")
    assert refused.usage == {"modelCalls": 1, "costUsd": 0.0}
    setting.model.turns = [ModelError("cut", code="connection")]
    cut = await graph.run("go", thread_id="cut")
    assert cut.usage == {"modelCalls": 1, "cutOffCalls": 1, "costUsd": None}
    setting.model.turns = [None]
    silent = await graph.run("go", thread_id="silent")
    assert silent.usage["costUsd"] is silent.usage["promptTokens"] is silent.usage["completionTokens"] is None
    total = (await setting.ledger())["total"]
    assert (total["modelCalls"], total["promptTokens"], total["costUsd"]) == (4, 100, None)
    assert (total["knownCostUsd"], total["uncountedCalls"], total["unpricedCalls"]) == (COST, 2, 2)


async def test_a_call_that_a_cancel_cuts_off_is_counted(setting: Setting) -> None:
    async def hears_nothing(*_: Any, **__: Any) -> AsyncGenerator[Delta, None]:
        yield TextDelta("wo")
        live = setting.app.graph("spender").host.live("t")
        assert live is not None
        live.executor.cancel()
        yield TextDelta("rd")

    setting.model.stream = hears_nothing  # type: ignore[method-assign]
    result = await setting.app.graph("spender").run("go", thread_id="t")
    assert result.status == "cancelled" and result.usage == {"modelCalls": 1, "cutOffCalls": 1, "costUsd": None}
    assert (await setting.ledger())["total"]["modelCalls"] == 1


async def test_an_unknown_price_makes_the_cost_null_and_never_zero(tmp_path: Path) -> None:
    setting = Setting(tmp_path, toml="")
    async with setting.app:
        events = [event async for event in setting.app.graph("spender").stream("go", "t")]
        ends = [event.usage for event in events if event.type == "node.end"]  # type: ignore[attr-defined]
        assert ends == [CALLED, None, CALLED]
        assert (await threads.cost(setting.app, "t"))["total"]["costUsd"] is None
        assert (await setting.ledger())["lines"][0]["costUsd"] is None


async def test_a_second_pass_counts_like_any_other_call(tmp_path: Path) -> None:
    twice = {"mode": "PLAIN", "providerKey": "auto", "plain": {"systemPrompt": "x"}, "verify": "SECOND_PASS_FIX"}
    setting = Setting(tmp_path, twice=twice)
    async with setting.app:
        result = await setting.app.graph("twice").run("go", thread_id="t")
        assert (result.status, result.usage["modelCalls"], result.usage["costUsd"]) == ("completed", 2, 2 * COST)
        assert (await setting.ledger(agent_key="twice"))["total"]["modelCalls"] == 2
        stopped = await setting.app.graph("twice").run("go", thread_id="u", budget={"maxModelCalls": 1})
        assert (stopped.usage["modelCalls"], stopped.finish_reason) == (1, "budget"), "the candidate is the answer"


async def test_calls_in_branches_are_counted(setting: Setting) -> None:
    fan = {"map": "state.items", "as": "item", "do": "ask", "next": "end"}
    items = {"type": "array", "items": {"type": "string"}, "default": ["a", "b", "c"]}
    branches = {
        "key": "fan",
        "graphflow": "1",
        "state": {"type": "object", "properties": {"items": items}},
        "start": "fan",
        "nodes": {"fan": fan, "ask": {"use": "model", "with": {"prompt": "${item}"}, "next": "end"}},
    }
    result = await setting.app.compiled(setting.app.load(branches)).run(thread_id="t")
    assert (result.status, result.usage["modelCalls"], result.usage["costUsd"]) == ("completed", 3, 3 * COST)
    assert (await setting.ledger())["total"]["modelCalls"] == 3
    assert (await threads.cost(setting.app, "t"))["nodes"]["ask"]["modelCalls"] == 3


async def test_days_agents_and_other_branches_are_told_apart_and_nothing_is_counted_twice(setting: Setting) -> None:
    graph = setting.app.graph("spender")
    await graph.run("go", thread_id="t")
    first = (await graph.thread("t").history())[-1].id
    setting.clock.advance(86_400)
    fork = await graph.thread("t").fork(first, thread_id="fork")
    await graph.resume(fork.id)
    await graph.thread("t").rewind(first)
    await graph.resume("t")
    assert (await threads.cost(setting.app, "t"))["total"]["modelCalls"] == 2, "its present branch"
    assert (await threads.cost(setting.app, "t"))["spent"]["modelCalls"] == 4, "and the one that it left"
    assert (await threads.cost(setting.app, "fork"))["spent"]["modelCalls"] == 2
    by_day = (await setting.ledger(by=("day",)))["lines"]
    assert [line["modelCalls"] for line in by_day] == [2, 4] and by_day[0]["day"] == TODAY
    assert (await setting.ledger(since=by_day[1]["day"], until=by_day[1]["day"]))["total"]["modelCalls"] == 4
    assert (await setting.ledger(agent_key="nobody"))["lines"] == []
    await graph.thread("t").delete()
    assert (await setting.ledger())["total"]["modelCalls"] == 6, "what is deleted stays used"


async def test_a_process_that_was_killed_leaves_exact_figures_to_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DIES, str(tmp_path)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.returncode == 9, child.stderr
    setting = Setting(tmp_path)
    async with setting.app:
        assert (await setting.ledger())["total"]["modelCalls"] == 1
        result = await setting.app.graph("spender").resume("t")
        assert (result.status, result.usage["modelCalls"], result.usage["costUsd"]) == ("completed", 2, 2 * COST)
        total = (await setting.ledger())["total"]
        assert (total["modelCalls"], total["costUsd"]) == (2, 2 * COST)
        assert (await threads.cost(setting.app, "t"))["total"]["promptTokens"] == total["promptTokens"] == 200


ROOT = Path(__file__).parents[2]
DIES = """
import asyncio, os, sys
from pathlib import Path
from tests.service.test_usage import Setting

async def main():
    setting = Setting(Path(sys.argv[1]))
    setting.between = lambda ctx: os._exit(9)
    async with setting.app:
        await setting.app.graph("spender").run("go", thread_id="t", durability="sync")

asyncio.run(main())
"""


async def test_a_wrong_day_or_axis_is_refused_by_its_name(small: Setting) -> None:
    for asked, said in (({"since": "today"}, "2026-11-22"), ({"by": ("moon",)}, "day, agentKey, model")):
        with pytest.raises(GraphflowError, match=said):
            await small.ledger(**asked)
