"""Answers to a run of this process that holds its questions: the same promises as for a thread that nobody drives (E13)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphflow.service.application import Application
from tests.launching import resume
from tests.service.clients import begin, query_of
from tests.service.conftest import Opened

ASK = {"message": "Who?", "schema": {"type": "string"}}
EITHER: dict[str, Any] = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {"who": {"type": "array", "default": []}}},
    "start": "both",
    "nodes": {
        "both": {"parallel": {"a": "a", "b": "b"}, "join": {"wait": "any"}, "next": "end"},
        "a": {"ask": ASK, "next": "end"},
        "b": {"ask": ASK, "next": "end"},
    },
}


async def held(open_application: Opened, folder: Path) -> Application:
    """An application that holds the two questions of a run on thread `t`, of which one answer suffices."""
    (folder / "graphs" / "either.json").write_text(json.dumps(EITHER), encoding="utf-8")
    app = await open_application()
    started = await begin(app, query_of(message="Who?", chat_id="t", agent_key="either"))
    async for event in started.run.log.follow(0):  # type: ignore[union-attr]
        if len(started.run.executor.machine.interrupts) == 2 and event.type == "interrupt.request":
            break
    return app


async def test_an_answer_that_another_answer_of_the_same_call_makes_needless_is_dropped(
    open_application: Opened, folder: Path
) -> None:
    app = await held(open_application, folder)
    live = app.runs.by_thread["t"]
    first, second = live.executor.machine.interrupts
    await resume(app, "t", answers={first: "Ada", second: "Bob"})
    await live.over.wait()
    assert live.executor.machine.status == "idle"
