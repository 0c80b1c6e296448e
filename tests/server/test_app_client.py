"""`graphflow.testing.app_client`: a user's test of the HTTP face of an application."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow import Application
from graphflow.errors import GraphflowError
from graphflow.settings import load_settings
from graphflow.testing import ScriptedModel, app_client
from tests.service.conftest import write_agents


async def test_a_client_talks_to_a_served_application_until_the_block_ends(tmp_path: Path) -> None:
    write_agents(tmp_path)
    model = ScriptedModel([{"text": "Hello."}])
    application = Application(load_settings(tmp_path, environ={}), models=lambda provider, name: model)
    async with app_client(application) as client:
        body = {"agentKey": "plain", "message": "hi"}
        async with client.stream("POST", "/api/query", json=body) as response:
            lines = [line async for line in response.aiter_lines()]
    assert any('"delta":"Hello' in line.replace(" ", "") for line in lines)
    assert model.requests[0].prompt == "hi"
    assert client.is_closed


async def test_a_server_that_can_not_start_is_an_error_and_no_wait(tmp_path: Path) -> None:
    write_agents(tmp_path)
    application = Application(load_settings(tmp_path, environ={}))
    (tmp_path / "checkpoints").write_text("a file, where the store's folder must be", encoding="utf-8")
    with pytest.raises(GraphflowError, match="a file stands where its folder should be"):
        async with app_client(application):
            pytest.fail("it was served")
