"""The log of model calls: what it says at which level, and what it never says."""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import structlog

from graphflow.content import ImagePart, TextPart
from graphflow.errors import ModelError
from graphflow.messages import AIMessage, HumanMessage, Message, ProviderState
from graphflow.models.chat_model import ChatOptions, ToolSpec, Usage, complete
from graphflow.models.logs.call_context import set_call_context
from graphflow.models.logs.interaction_log import LoggedModel
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script, ScriptedCall, ScriptedError, ScriptTurn
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.models.turns import ASK

USAGE = Usage(prompt_tokens=11, completion_tokens=7)
TURN = ScriptTurn(
    reasoning="hm", text="hi", tool_calls=(ScriptedCall(name="f", arguments={"x": 1}),), piece=10, usage=USAGE
)


@pytest.fixture
def lines() -> list[dict[str, Any]]:
    return []


def logged(lines: list[dict[str, Any]], level: str, turn: ScriptTurn = TURN, **options: Any) -> LoggedModel:
    def keep(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        lines.append(dict(line))
        raise structlog.DropEvent

    def logger() -> Any:
        wrapper = structlog.make_filtering_bound_logger(level)
        return structlog.wrap_logger(
            structlog.PrintLogger(), processors=[structlog.stdlib.add_log_level, keep], wrapper_class=wrapper
        )

    ticks = iter(range(1000))
    clock = lambda: next(ticks) / 1000  # noqa: E731
    return LoggedModel(ScriptedModel(Script(turns=(turn,))), logger=logger, clock=clock, **options)


async def test_at_info_there_are_two_summaries_and_no_delta(lines: list[dict[str, Any]]) -> None:
    await complete(logged(lines, "info"), ASK, [ToolSpec(name="f")], ChatOptions(temperature=0.2))
    request, response = lines
    assert request == {
        "event": "model.request",
        "level": "info",
        "provider": "scripted",
        "model": "scripted",
        "messages": 1,
        "tools": ["f"],
        "temperature": 0.2,
    }
    assert response["event"] == "model.response"
    assert (response["finishReason"], response["promptTokens"], response["completionTokens"]) == ("tool_calls", 11, 7)
    assert response["ms"] >= response["firstMs"] > 0


async def test_at_debug_every_delta_is_a_line_with_its_parts(lines: list[dict[str, Any]]) -> None:
    await complete(logged(lines, "debug"), ASK)
    deltas = [
        {k: v for k, v in line.items() if k not in ("provider", "model", "level", "event")}
        for line in lines
        if line["event"] == "model.delta"
    ]
    assert deltas == [
        {"reasoning": "hm"},
        {"content": "hi"},
        {"tool": "f", "call": 0, "arguments": ""},
        {"tool": "f", "call": 0, "arguments": '{"x":1}'},
        {"finishReason": "tool_calls", "rawReason": "tool_calls"},
    ]
    assert [line["event"] for line in lines][:2] == ["model.request", "model.messages"]


async def test_every_line_has_the_trace_and_stage_of_its_node(lines: list[dict[str, Any]]) -> None:
    set_call_context("run_1", "reason")
    await complete(logged(lines, "debug"), ASK)
    assert {(line["traceId"], line["stage"]) for line in lines} == {("run_1", "reason")}


async def test_secrets_are_masked_in_nested_json_too(lines: list[dict[str, Any]]) -> None:
    secret = "sk-abcdefghijklmnop"
    messages = [HumanMessage(content=f'{{"a": {{"apiKey": "{secret}"}}}} and password=hunter22')]
    turn = ScriptTurn(
        text=f"the key is {secret}", tool_calls=(ScriptedCall(name="f", arguments={"token": secret}),), piece=200
    )
    options = ChatOptions(extra={"tracing": {"Authorization": "Bearer abcdefgh"}})
    await complete(logged(lines, "debug", turn), messages, options=options)
    assert not [word for word in (secret, "hunter22", "abcdefgh") if word in str(lines)]


async def test_a_secret_that_is_spread_over_deltas_is_masked_in_each(lines: list[dict[str, Any]]) -> None:
    call = ScriptedCall(name="f", arguments={"deep": {"password": "hunter22hunter"}})
    turn = ScriptTurn(text="the password: hunter22hunter, as asked", tool_calls=(call,), piece=3)
    await complete(logged(lines, "debug", turn), ASK)
    for block in ("content", "arguments"):
        said = "".join(line.get(block, "") for line in lines if line["event"] == "model.delta")
        assert "***" in said and "hun" not in said and "ter" not in said


async def test_masking_can_be_switched_off(lines: list[dict[str, Any]]) -> None:
    await complete(logged(lines, "debug", ScriptTurn(text="password=hunter22", piece=50), mask_sensitive=False), ASK)
    assert "hunter22" in str(lines)


async def test_a_failed_call_is_a_warning_with_code_and_status(lines: list[dict[str, Any]]) -> None:
    with pytest.raises(ModelError):
        await complete(logged(lines, "info", ScriptTurn(error=ScriptedError(status=429, message="slow"))), ASK)
    last = lines[-1]
    assert (last["event"], last["level"], last["code"], last["status"]) == (
        "model.failed",
        "warning",
        "rate_limit",
        429,
    )


async def test_a_call_that_its_consumer_left_is_told_as_such(lines: list[dict[str, Any]]) -> None:
    async with aclosing(logged(lines, "info").stream(ASK)) as deltas:
        await anext(deltas)
    assert [line["event"] for line in lines] == ["model.request", "model.abandoned"]


async def test_with_warnings_only_a_good_call_says_nothing(lines: list[dict[str, Any]]) -> None:
    await complete(logged(lines, "warning"), ASK)
    assert lines == []


@pytest.mark.parametrize(("said", "logged"), [(None, True), ("false", False)])
async def test_the_log_is_on_unless_it_is_switched_off(
    tmp_path: Path, said: str | None, logged: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {} if said is None else {"AGENT_LLM_INTERACTION_LOG_ENABLED": said}
    async with Application(load_settings(tmp_path, environ=environ)) as app:
        await complete(app.models("scripted", None), ASK)
    assert ("model.response" in capsys.readouterr().err) is logged


async def test_without_a_set_up_the_lines_go_to_stderr_by_the_level_of_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await complete(LoggedModel(ScriptedModel(Script(turns=(TURN,)))), ASK)
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "model.response" in seen.err
    assert "model.delta" not in seen.err
    monkeypatch.setenv("GRAPHFLOW_LOG_LEVEL", "debug")
    await complete(LoggedModel(ScriptedModel(Script(turns=(TURN,)))), ASK)
    assert "model.delta" in capsys.readouterr().err


async def test_a_set_up_of_structlog_is_followed(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    try:
        await complete(LoggedModel(ScriptedModel(Script(turns=(TURN,)))), ASK)
    finally:
        structlog.reset_defaults()
    assert capsys.readouterr() == ("", "")


async def test_neither_the_bytes_of_media_nor_provider_state_are_logged(lines: list[dict[str, Any]]) -> None:
    state = ProviderState(provider="p", model="m", data={"signature": "EtsBCkgI"})
    image = ImagePart(data=b"\x89PNG" * 100, media_type="image/png", name="cat.png")
    asked: list[Message] = [
        HumanMessage(content=(TextPart(text="see"), image)),
        AIMessage(content="hm", provider_state=state),
    ]
    await complete(logged(lines, "debug"), asked)
    (shown,) = [line["content"] for line in lines if line["event"] == "model.messages"]
    assert shown[0]["content"][1] == {"type": "image", "mediaType": "image/png", "name": "cat.png", "size": 400}
    assert "EtsBCkgI" not in str(lines) and "iVBORw" not in str(lines) and "PNG" not in str(lines)
