"""A crash in the midst of every mode: what goes on ends as if nothing had happened, and hardly costs more (E1, E3)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphflow.errors import GraphflowError
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.service.application import Application
from graphflow.settings import load_settings
from graphflow.tools.port import tool
from tests.launching import resume
from tests.service.clients import Events, begin, query_of
from tests.service.conftest import at_event, copy_store
from tests.service.test_rejoin import followed, stored

ASK = query_of(message="How is the weather in Beijing?", chat_id="t", agent_key="agent")
LOOK = {
    "reasoning": "I look.",
    "text": "One moment. ",
    "tool_calls": [{"name": "look", "arguments": {"city": "Beijing"}}],
}
ANSWER = {"reasoning": "It is clear.", "text": "It is sunny in Beijing, and warm.", "piece": 6}
SUMMARY = {"text": json.dumps({"reasoningSummary": "I looked it up.", "finalText": "It is sunny."}), "piece": 5}
SECOND = {"text": "It is sunny in Beijing, and very warm.", "piece": 6}
DONE = {"tool_calls": [{"name": "task_done", "arguments": {"finishContent": "It is sunny."}}]}
PROMPT = {"systemPrompt": "Help."}

MODES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "PLAIN": ({"mode": "PLAIN", "plain": PROMPT}, [ANSWER]),
    "PLAIN, verified": ({"mode": "PLAIN", "plain": PROMPT, "verify": "SECOND_PASS_FIX"}, [ANSWER, SECOND]),
    "THINKING": ({"mode": "THINKING", "thinking": PROMPT}, [SUMMARY]),
    "PLAIN_TOOLING": ({"mode": "PLAIN_TOOLING", "plainTooling": PROMPT}, [LOOK, ANSWER]),
    "THINKING_TOOLING": ({"mode": "THINKING_TOOLING", "thinkingTooling": PROMPT}, [LOOK, SUMMARY]),
    "REACT": ({"mode": "REACT", "react": PROMPT}, [LOOK, LOOK, ANSWER]),
    "REACT, verified": (
        {"mode": "REACT", "react": PROMPT, "verify": "SECOND_PASS_FIX"},
        [LOOK, ANSWER, SECOND],
    ),
    "PLAN_EXECUTE": (
        {"mode": "PLAN_EXECUTE", "planExecute": {"planSystemPrompt": "Plan.", "executeSystemPrompt": "Do."}},
        [{"text": '{"steps": ["Look", "Say"]}'}, LOOK, {"text": "Looked."}, {"text": "Said."}, ANSWER, SECOND],
    ),
    "REACT_TEAM": (
        {"mode": "REACT_TEAM", "reactTeam": {"exposeReasoningToUser": True}},
        [{"text": "Look."}, LOOK, {"text": "Seen."}, {"text": "Done."}, DONE, ANSWER],
    ),
}
"""Name → the agent, and the turns of its model."""
CRASHES = 9
"""How many moments of each run are tried."""


class Calls:
    """Counts what the models and the tool of one application are asked."""

    def __init__(self) -> None:
        self.models = self.tools = 0


def application(folder: Path, mode: str) -> tuple[Application, Calls]:
    agent, turns = MODES[mode]
    calls = Calls()
    if agent["mode"] not in ("PLAIN", "THINKING"):
        agent = {**agent, "tools": ["look"]}
    (folder / "graphs").mkdir(exist_ok=True)
    (folder / "graphs" / "agent.json").write_text(json.dumps({"providerKey": "scripted", **agent}), encoding="utf-8")
    script = msgspec.convert({"turns": turns}, Script)

    class Counted(ScriptedModel):
        async def stream(self, *given: Any, **options: Any) -> AsyncGenerator[Any, None]:
            calls.models += 1
            async for delta in super().stream(*given, **options):
                yield delta

    @tool(effects="read")
    async def look(city: str) -> str:
        """Looks out of the window.

        Args:
            city: where.
        """
        calls.tools += 1
        return f"sunny in {city}"

    settings = load_settings(folder, environ={"GRAPHFLOW_STORE_DURABILITY": "sync"})
    return Application(settings, models=lambda provider, model: Counted(script), tools=[look]), calls


@contextmanager
def suppress_refusal(code: str) -> Iterator[None]:
    """Lets a refusal with this code pass."""
    try:
        yield
    except GraphflowError as refusal:
        if refusal.code != code:
            raise


def said(log: Events) -> list[tuple[str, str]]:
    """What people saw, whatever the ids."""
    return [
        (e["type"], e.get("text") or e.get("result") or "") for e in log if e["type"].endswith((".snapshot", ".result"))
    ]


@pytest.mark.parametrize("mode", MODES)
async def test_a_run_that_crashed_anywhere_goes_on_to_the_same_end(mode: str, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    app, calls = application(tmp_path / "whole", mode)
    async with app:
        whole = await followed(await begin(app, ASK))
        log = await stored(app, whole.events[2]["runId"])
    assert log[-1]["type"] == "run.complete", log[-1]
    last = len(whole.events)
    for number in sorted({round(4 + (last - 5) * n / (CRASHES - 1)) for n in range(CRASHES)}):
        await _crash_and_go_on(tmp_path / f"crash{number}", mode, number, log, calls)


async def _crash_and_go_on(folder: Path, mode: str, number: int, log: Events, whole: Calls) -> None:
    """Ends a run at its event `number` as a `kill -9` would, and goes on from what was durable by then."""
    (folder / "dead").mkdir(parents=True)
    (folder / "left").mkdir()
    dead, before = application(folder / "dead", mode)
    spent = Calls()

    def crash() -> None:
        copy_store(dead, folder / "left")
        spent.models, spent.tools = before.models, before.tools

    async with dead:
        begun = await begin(dead, ASK)
        at_event(begun.run, number, crash)
        had = await followed(begun)
    app, after = application(folder / "left", mode)
    async with app:
        with suppress_refusal("nothing_to_resume"):  # its last commit was durable
            await followed(await resume(app, "t"))
        gone_on = await stored(app, had.events[2]["runId"])
    place = f"crashed at event {number} of {len(had.events)}"
    assert said(gone_on) == said(log), place
    ends = [e["type"] for e in gone_on if e["type"] in ("run.complete", "run.error", "run.cancel")]
    assert ends == ["run.complete"] and gone_on[-1]["type"] == "run.complete", place
    assert spent.models + after.models <= whole.models + 1, place
    assert spent.tools + after.tools <= whole.tools + 1, place
    results = Counter(e["toolId"] for e in gone_on if e["type"] == "tool.result")
    assert set(results.values()) <= {1}, place
