"""Runs whose model fails before its first delta: each attempt counts and is priced by itself, readers are told, nothing is asked twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import msgspec
import pytest

from graphflow import (
    CompiledGraph,
    Context,
    DefinitionError,
    Graph,
    GraphflowError,
    HumanMessage,
    MemoryCheckpointer,
    load_graph,
)
from graphflow.events import NodeProgress
from graphflow.models.chat_model import complete
from graphflow.settings import load_settings
from graphflow.testing import collect
from tests.models.raw_server import DONE, STOP, Answer, RawServer, body, delta, event, raw_server, stream

USAGE = event({"choices": [], "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 0}})
FINE = stream(delta(content="well"), STOP, USAGE, DONE)
BUSY = body(503, b'{"error": {"message": "overloaded"}}')
AGENT: dict[str, Any] = {
    "key": "a", "mode": "PLAIN", "providerKey": "one", "options": {"fallback": ["two"]}, "plain": {"systemPrompt": "Be brief."},
}  # fmt: skip


class Said(TypedDict, total=False):
    said: str


@asynccontextmanager
async def servers(folder: Path, first: Answer = BUSY, second: Answer = FINE, more: str = "") -> AsyncIterator[Any]:
    """Two providers and the settings that name them."""
    async with raw_server(first) as one, raw_server(second) as two:
        tables = "".join(
            f'[providers.{key}]\nbase_url = "{server.url}"\nmodel = "m-{key}"\n[prices."{key}/*"]\nprompt = {price}\n'
            "completion = 1\n"
            for key, server, price in (("one", one, 1), ("two", two, 3))
        )
        (folder / "graphflow.toml").write_text(tables + more, encoding="utf-8")
        yield [one, two], load_settings(folder, environ={"LLM_MAX_RETRIES": "0"})


def counts(asked: list[RawServer]) -> list[int]:
    return [len(server.requests) for server in asked]


def warnings(events: list[Any]) -> list[dict[str, Any]]:
    return [e.data["warning"] for e in events if isinstance(e, NodeProgress) and "warning" in e.data]


async def test_each_attempt_is_a_call_and_the_one_that_answered_is_paid(tmp_path: Path) -> None:
    async with servers(tmp_path) as (asked, settings):
        app = load_graph(AGENT, settings=settings, checkpointer=MemoryCheckpointer())
        events = await collect(app.stream({"query": "hi"}, "t"))
        result, cost = await app.thread("t").result(), await app.thread("t").cost()
        assert counts(asked) == [1, 1]
    assert (result.output, result.usage["modelCalls"], result.usage["costUsd"]) == ("well", 2, 3.0)
    assert "cutOffCalls" not in result.usage
    assert {name: used["modelCalls"] for name, used in cost.models.items()} == {"one/m-one": 1, "two/m-two": 1}
    (told,) = warnings(events)
    assert (told["code"], told["failed"], told["provider"], told["model"]) == (
        "model_fallback",
        "one/m-one",
        "two",
        "m-two",
    )
    assert told["errorCode"] == "provider_error" and "overloaded" in told["message"]


@pytest.mark.parametrize("opened", [False, True])
async def test_calls_of_a_python_node_count_each_attempt_too(tmp_path: Path, opened: bool) -> None:
    graph: Graph[Any] = Graph(Said, result="state.said")

    @graph.node
    async def ask(state: Any, ctx: Context) -> dict[str, Any]:
        if opened:
            done = await complete(ctx.open_model("one"), [HumanMessage(content="hi")])
            return {"said": f"{done.message.content} of {done.fallbacks[0].model}"}
        return {"said": (await ctx.call_model("hi", provider_key="one")).content}

    async with servers(tmp_path) as (asked, settings):
        text = (tmp_path / "graphflow.toml").read_text(encoding="utf-8")
        (tmp_path / "graphflow.toml").write_text(
            text.replace('model = "m-one"', 'model = "m-one"\nfallback = ["two"]'), encoding="utf-8"
        )
        settings = load_settings(tmp_path, environ={"LLM_MAX_RETRIES": "0"})
        app = graph.compile(settings=settings, checkpointer=MemoryCheckpointer())
        events = await collect(app.stream({}, "t"))
        result = await app.thread("t").result()
        assert counts(asked) == [1, 1]
    assert result.state["said"].startswith("well") and result.usage["modelCalls"] == 2
    assert [told["code"] for told in warnings(events)] == ["model_fallback"]


async def test_a_call_that_is_recorded_is_not_made_again_by_its_fallback_either(tmp_path: Path) -> None:
    graph: Graph[Any] = Graph(Said)

    @graph.node
    async def ask(state: Any, ctx: Context) -> dict[str, Any]:
        draft = await ctx.call_model("hi", provider_key="one", options={"fallback": ["two"]})
        await ctx.ask("Send?", schema={"type": "boolean"})
        return {"said": draft.content}

    async with servers(tmp_path) as (asked, settings):
        app = graph.compile(settings=settings, checkpointer=MemoryCheckpointer())
        waiting = await app.run({}, "t")
        result = await app.answer("t", {waiting.interrupts[0].id: True})
        assert counts(asked) == [1, 1]
    assert (result.state["said"], result.usage["modelCalls"], result.usage["costUsd"]) == ("well", 2, 3.0)


@pytest.mark.parametrize(("budget", "code"), [({"maxModelCalls": 1}, "budget_exceeded"), ({"maxModelCalls": 2}, None)])
async def test_a_limit_of_calls_ends_the_run_before_the_fallback_is_asked(
    tmp_path: Path, budget: dict[str, Any], code: str | None
) -> None:
    async with servers(tmp_path) as (asked, settings):
        result = await load_graph({**AGENT, "budget": budget}, settings=settings).run({"query": "hi"})
        assert counts(asked) == ([1, 0] if code else [1, 1])
    assert (result.error or {}).get("code") == code
    assert result.usage["modelCalls"] == (1 if code else 2)


async def test_a_limit_in_money_needs_the_price_of_the_fallback_too(tmp_path: Path) -> None:
    async with servers(tmp_path) as (asked, _):
        text = (tmp_path / "graphflow.toml").read_text(encoding="utf-8").replace('[prices."two/*"]', '[prices."x/y"]')
        (tmp_path / "graphflow.toml").write_text(text, encoding="utf-8")
        agent = {**AGENT, "budget": {"maxCostUsd": 9}}
        with pytest.raises(Exception, match="two/m-two"):
            load_graph(agent, settings=load_settings(tmp_path, environ={}))
        assert counts(asked) == [0, 0]


@pytest.mark.parametrize("place", ["provider", "options"])
async def test_the_price_of_a_fallback_is_missed_at_load_wherever_it_is_named(tmp_path: Path, place: str) -> None:
    async with servers(tmp_path) as (asked, _):
        text = (tmp_path / "graphflow.toml").read_text(encoding="utf-8").replace('[prices."two/*"]', '[prices."x/y"]')
        agent = {**AGENT, "budget": {"maxCostUsd": 9}}
        if place == "provider":
            del agent["options"]
            text = text.replace('model = "m-one"', 'model = "m-one"\nfallback = ["two"]')
        (tmp_path / "graphflow.toml").write_text(text, encoding="utf-8")
        with pytest.raises(DefinitionError) as refused:
            load_graph(agent, settings=load_settings(tmp_path, environ={}))
        (issue,) = refused.value.errors
        assert issue.pointer == "/budget/maxCostUsd" and "that of two/m-two is not known" in issue.message
        assert issue.hint is not None and '[prices."two/m-two"] into graphflow.toml' in issue.hint
        # A node that asks another model than its document's provider would, or no other at all, needs no price of it.
        alone = {**agent, "options": {"fallback": []}}
        assert isinstance(load_graph(alone, settings=load_settings(tmp_path, environ={})), CompiledGraph)
        assert counts(asked) == [0, 0]


@pytest.mark.parametrize("use", ["model", "plan", "task", "summary", "stage", "verify"])
async def test_every_kind_of_node_that_asks_a_model_needs_its_price(use: str) -> None:
    from graphflow.graph.definition.document import GraphDefinition
    from graphflow.graph.validation.model_prices import unpriced

    document = msgspec.convert(
        {
            "graphflow": "1", "start": "ask", "providerKey": "one", "model": "m",
            "nodes": {"ask": {"use": use, "with": {"model": "other"}}, "answer": {"use": "model"}},
        },
        GraphDefinition,
    )  # fmt: skip
    kinds: Any = SimpleNamespace(unpriced=lambda *asked: [str(asked)])
    assert unpriced([document], kinds) == ["('one', 'other', None)", "('one', 'm', None)"]


async def test_the_price_of_a_model_that_only_a_subgraph_or_a_request_names_is_missed_at_load(tmp_path: Path) -> None:
    inner = {
        "graphflow": "1", "start": "ask", "providerKey": "two", "nodes": {"ask": {"use": "model", "next": "end"}},
    }  # fmt: skip
    outer = {
        "graphflow": "1", "start": "inner", "budget": {"maxCostUsd": 9}, "nodes": {"inner": {"graph": inner, "next": "end"}},
    }  # fmt: skip
    asking = {**AGENT, "options": {}, "budget": {"maxCostUsd": 9}, "perRequest": {"models": ["dear"]}}
    async with servers(tmp_path) as (_, __):
        text = (tmp_path / "graphflow.toml").read_text(encoding="utf-8")
        text = text.replace('[prices."two/*"]', '[prices."x/y"]').replace('"one/*"', '"one/m-one"')
        (tmp_path / "graphflow.toml").write_text(text, encoding="utf-8")
        settings = load_settings(tmp_path, environ={})
        with pytest.raises(DefinitionError, match="that of two/m-two is not known"):
            load_graph(outer, settings=settings)
        with pytest.raises(DefinitionError, match="that of one/dear is not known"):
            load_graph(asking, settings=settings)
        # A budget of one run is no way around it.
        with pytest.raises(GraphflowError, match="the price of two/m-two is not known") as refused:
            await load_graph({**outer, "budget": {}}, settings=settings).run({"query": "hi"}, budget={"maxCostUsd": 1})
    assert refused.value.code == "invalid_input"


async def test_a_key_that_is_not_set_yet_does_not_hide_a_known_price(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environ={})
    agent = {**AGENT, "options": {}, "budget": {"maxCostUsd": 9}, "providerKey": "deepseek"}
    assert isinstance(load_graph({**agent, "model": "deepseek-flash"}, settings=settings), CompiledGraph)
    with pytest.raises(DefinitionError, match=r"that of deepseek/none-such is not known"):
        load_graph({**agent, "model": "none-such"}, settings=settings)
    with pytest.raises(
        DefinitionError, match=r"that of deepseek/its default model \(provider 'deepseek' can't be used: "
    ):
        load_graph(agent, settings=settings)


async def test_the_log_has_each_attempt_and_the_fallback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with servers(tmp_path) as (_, settings):
        await load_graph(AGENT, settings=settings).run({"query": "hi"})
    lines = [line for line in capsys.readouterr().err.splitlines() if "model." in line]
    found = [(line.split("model.")[1].split()[0], "model=m-one" in line) for line in lines]
    assert all("traceId=" in line and "stage=" in line for line in lines), "each line names the run and the node"
    assert found == [("request", True), ("failed", True), ("fallback", True), ("request", False), ("response", False)]


@pytest.mark.parametrize("name", ["tow", "one"])
def test_a_wrong_name_is_refused_with_the_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "graphflow.toml").write_text('[providers.one]\nbase_url = "http://127.0.0.1:9/v1"\n[providers.two]\n'
        'base_url = "http://127.0.0.1:9/v1"\n', encoding="utf-8")  # fmt: skip
    with pytest.raises(
        Exception, match=r"/options/fallback/0|is the model itself|no provider is named 'tow'"
    ) as caught:
        load_graph({**AGENT, "options": {"fallback": [name]}}, settings=load_settings(tmp_path, environ={}))
    assert "two" in str(caught.value) or name == "one"
