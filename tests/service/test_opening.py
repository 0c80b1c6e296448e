"""Graphs without an application open models as an application does: settings, `.env`, profiles, limits, prices, the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypedDict

import pytest

from graphflow import Application, Context, Graph, load_graph
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script, ScriptTurn
from graphflow.models.scripted.server import serve_scripted
from graphflow.settings import Settings, load_settings

AGENT = {"key": "a", "mode": "PLAIN", "plain": {"systemPrompt": "Be brief."}}
TOML = """
[providers.mine]
base_url = "{url}"
model = "my-model"
{more}

[prices."mine/*"]
prompt = 1
completion = 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_settings(folder: Path, url: str, more: str = "") -> None:
    (folder / "graphflow.toml").write_text(TOML.format(url=url, more=more), encoding="utf-8")


class Said(TypedDict, total=False):
    said: str


def served(text: str) -> Any:
    return serve_scripted(ScriptedModel(Script(turns=(ScriptTurn(text=text),))))


async def of_load_graph(**options: Any) -> Any:
    return await load_graph(AGENT, **options).run({"query": "hi"})


async def of_compile(**options: Any) -> Any:
    graph: Graph[Any] = Graph(Said, result="state.said")

    @graph.node
    async def ask(state: Any, ctx: Context) -> dict[str, Any]:
        return {"said": (await ctx.call_model("hi")).content}

    return await graph.compile(**options).run({})


async def of_application(**options: Any) -> Any:
    async with Application(options.get("settings")) as app:
        (app.settings.agents.dir).mkdir(exist_ok=True)
        (app.settings.agents.dir / "a.json").write_text(json.dumps(AGENT), encoding="utf-8")
        app.agents.reload()
        return await app.graph("a").run({"query": "hi"})


FACES = [of_load_graph, of_compile]


@pytest.mark.parametrize("face", FACES)
async def test_a_model_is_opened_by_the_table_of_the_folder_and_the_key_of_its_env_file(
    face: Any, folder: Path
) -> None:
    async with served("fine") as server:
        write_settings(folder, server.url, 'api_key_env = "MY_KEY"')
        (folder / ".env").write_text("MY_KEY=from-the-file\n", encoding="utf-8")
        result = await face()
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer from-the-file"]
    assert result.output == "fine"
    assert result.usage["costUsd"] > 0, "the prices of the folder count"
    assert "standInCalls" not in result.usage


@pytest.mark.parametrize("face", FACES)
async def test_settings_that_are_given_win_over_those_of_the_folder(face: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "graphflow.toml").write_text("[nonsense]\n", encoding="utf-8")
    other = tmp_path / "other"
    other.mkdir()
    async with served("other") as server:
        write_settings(other, server.url)
        result = await face(settings=load_settings(other, environ={}))
    assert result.output == "other"


@pytest.mark.parametrize("face", FACES)
async def test_without_settings_neither_files_nor_environment_are_read(
    face: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "graphflow.toml").write_text("not toml", encoding="utf-8")
    monkeypatch.setenv("LLM_BASE_URL", "http://127.0.0.1:9/v1")
    result = await face(settings=False)
    assert result.status == "completed"
    assert result.usage["standInCalls"] == 1
    assert "no model provider is configured" in capsys.readouterr().err


@pytest.mark.parametrize("face", FACES)
async def test_nothing_is_read_before_a_model_is_called(face: Any, folder: Path) -> None:
    (folder / "graphflow.toml").write_text("not toml", encoding="utf-8")
    load_graph(AGENT)
    result = await face()
    assert result.status == "failed" and "graphflow.toml" in json.dumps(result.error)


async def test_a_provider_of_the_settings_may_be_named_in_a_document(folder: Path) -> None:
    """It was refused as unknown, because only built-in keys were looked at."""
    async with served("mine") as server:
        write_settings(folder, server.url)
        result = await load_graph({**AGENT, "providerKey": "mine"}).run({"query": "hi"})
    assert result.output == "mine"


async def test_the_folder_is_that_in_which_the_graph_was_made(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served("here") as server:
        write_settings(folder, server.url)
        graph = load_graph(AGENT)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        assert (await graph.run({"query": "hi"})).output == "here"


@pytest.mark.parametrize("face", [*FACES, of_application])
async def test_the_scripted_model_that_nobody_named_says_so_once(
    face: Any, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLM_PROVIDER", raising=False)
    result = await face()
    assert result.usage["standInCalls"] == result.usage["modelCalls"]
    assert capsys.readouterr().err.count("no model provider is configured") == 1


@pytest.mark.parametrize("face", [*FACES, of_application])
async def test_the_scripted_model_that_was_named_answers_without_a_word(
    face: Any, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_PROVIDER", "scripted")
    result = await face()
    assert result.status == "completed" and "standInCalls" not in result.usage
    assert "no model provider" not in capsys.readouterr().err


@pytest.mark.parametrize("face", FACES)
async def test_a_provider_that_is_configured_without_its_key_is_an_error_and_not_the_scripted_model(
    face: Any, folder: Path
) -> None:
    write_settings(folder, "https://llm.example.org/v1", 'api_key_env = "MY_KEY"')
    result = await face()
    assert result.status == "failed" and "MY_KEY" in json.dumps(result.error)


@pytest.mark.parametrize("face", FACES)
async def test_model_calls_are_logged_as_those_of_an_application(
    face: Any, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_PROVIDER", "scripted")
    await face()
    assert "model.request" in capsys.readouterr().err
    monkeypatch.setenv("AGENT_LLM_INTERACTION_LOG_ENABLED", "false")
    await face()
    assert "model.request" not in capsys.readouterr().err


def test_settings_are_settings_or_false() -> None:
    with pytest.raises(TypeError, match="settings"):
        load_graph(AGENT, settings="graphflow.toml")  # type: ignore[arg-type]
    assert load_graph(AGENT, settings=Settings()) is not None
