"""Absolute paths of the machine stand in its log, and in nothing that a client, a model or a thread gets (spec 3)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import described, error_dict
from graphflow.models.scripted.model import ScriptedModel
from graphflow.public_text import public_text
from graphflow.service.application import Application
from graphflow.settings import load_settings
from graphflow.tools.port import tool
from tests.server.conftest import ask, serving
from tests.service.conftest import make_application

AGENT = {"mode": "REACT", "providerKey": "auto", "tools": ["look_up"], "react": {"systemPrompt": "Look."}}
CALL = {"turns": [{"tool_calls": [{"name": "look_up", "arguments": {}, "id": "c1"}]}, {"text": "Not found."}]}
FAN_OUT = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {"found": {"default": None}}},
    "start": "fan",
    "nodes": {
        "fan": {
            "map": "[1]", "as": "x", "do": "work", "join": {"onError": "collect"}, "set": {"found": "out"}, "next": "again",
        },
        "work": {"use": "node:work", "next": "end"},
        "again": {"use": "node:work", "next": "end"},
    },
}  # fmt: skip


def private(folder: Path) -> FileNotFoundError:
    return FileNotFoundError(2, "No such file or directory", str(folder / "customers of ann" / "data.db"))


@pytest.mark.parametrize("effects", ["read", "write"])
async def test_the_text_of_a_tool_s_exception_names_no_folder_to_client_model_or_thread(
    folder: Path, effects: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(effects=effects)
    async def look_up() -> str:
        """Looks it up."""
        raise private(folder)

    (folder / "graphs" / "looker.json").write_text(json.dumps(AGENT), encoding="utf-8")
    model = ScriptedModel(CALL)
    app = Application(load_settings(folder, environ={}), models=lambda *_: model, tools=[look_up])
    with caplog.at_level(logging.ERROR, "graphflow.tools"):
        async with serving(app) as (client, _):
            seen = await ask(client, agentKey="looker", chatId="c")
            urls = ("/api/threads/c/messages", "/api/chat?chatId=c&includeRawMessages=true", "/api/threads/c/state")
            texts = [json.dumps(seen.events), *[(await client.get(url)).text for url in urls]]
    texts.append(repr([request.messages for request in model.requests]))
    assert "data.db" in texts[0] and "data.db" in texts[-1], "the name helps"
    for text in texts:
        assert str(folder) not in text and "customers of ann" not in text, text
    assert str(folder / "customers of ann" / "data.db") in caplog.text, "who runs the server reads it whole"


async def test_the_text_of_a_node_s_exception_names_no_folder_in_state_or_store(folder: Path) -> None:
    app = make_application(folder)

    async def work(state: Any, ctx: Any) -> None:
        raise private(folder)

    app.kinds.node("work", work)
    (folder / "graphs" / "fan.json").write_text(json.dumps(FAN_OUT), encoding="utf-8")
    async with serving(app) as (client, _):
        seen = await ask(client, agentKey="fan", chatId="c")
        texts = [json.dumps(seen.events)]
        for url in ("/api/threads/c/state", "/api/threads/c/why", "/api/threads/c/checkpoints"):
            texts.append((await client.get(url)).text)
    assert "data.db" in texts[1]
    for text in texts:
        assert str(folder) not in text and "customers of ann" not in text, text


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory", "/nowhere/of this/machine/data.db"),
        FileNotFoundError("/nowhere/of/this/machine/data.db"),
        IsADirectoryError(21, "Is a directory", "/nowhere/of this/machine/a", None, "/nowhere/of this/machine/data.db"),
        RuntimeError("no '/srv/of this/machine/data.db' here"),
        RuntimeError("/Users/of/this/machine/data.db: damaged"),
        RuntimeError("C:/Users/of/this/machine/data.db is damaged"),
        RuntimeError(r"\\host\of\this\machine\data.db is damaged"),
        ExceptionGroup("in /srv/of/this/machine/data.db", [ValueError()]),
    ],
)
def test_each_form_of_a_path_is_reduced_to_its_last_part(error: Exception) -> None:
    for text in (described(error), error_dict(error)["message"]):
        assert "data.db" in text and "machine" not in text, text
        assert type(error).__name__ in text


def test_graphflow_s_own_words_keep_routes_and_pointers() -> None:
    for text in ("/nodes/a/use: unknown", "GET /api/threads/x", "'/nodes/a/use' is unknown", "it's 1/2 of a/b"):
        assert public_text(text) == text
