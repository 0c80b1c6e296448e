"""What OpenAI's models take is what they are sent, in both of its protocols and wherever it is served; what is left out is reported."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from graphflow.messages import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from graphflow.models.families import family_of, nearest_effort
from graphflow.models.model_data import model_data
from graphflow.models.options import EFFORTS
from graphflow.models.profiles import PROFILES, Profile
from graphflow.models.provider import Provider
from graphflow.models.providers import open_provider
from graphflow.models.remote.retry import Limits
from tests.models.raw_server import body, raw_server
from tests.models.turns import ASK, hear

REFUSED = body(400, b'{"error": {"message": "no"}}')
OPENAI = [name.partition("/")[2] for name in model_data().models if name.startswith("openai/")]


async def sent(
    protocol: Literal["openai", "responses"], key: str, model: str, *messages: Message, **options: Any
) -> Any:
    """The body of a request."""
    profile = PROFILES[key] if key in PROFILES and protocol == "openai" else Profile(protocol=protocol)
    async with raw_server(REFUSED) as server:
        provider = Provider(key=key, profile=profile, base_url=server.url, api_key="k-123456")
        client = open_provider(provider, model, {}, limits=Limits(max_retries=0))
        await hear(client, messages or ASK, **options)
        await client.aclose()
    return server.requests[0].json


def effort_in(request: dict[str, Any]) -> Any:
    return request.get("reasoning_effort") or request.get("reasoning", {}).get("effort")


@pytest.mark.parametrize("model", OPENAI)
def test_every_listed_model_of_openai_has_a_family_that_agrees_with_its_facts(model: str) -> None:
    family, facts = family_of(model), model_data().find("openai", model)
    assert family is not None and facts is not None
    assert family.reasons == facts.reasoning


@pytest.mark.parametrize("key", ["openai", "azure", "mine"])
@pytest.mark.parametrize(
    "model", ["gpt-4.1-mini", "o3", "gpt-5-mini", "gpt-5-pro", "gpt-5.1", "gpt-5.2", "gpt-6-luna", "gpt-5.2-chat"]
)
@pytest.mark.parametrize("effort", EFFORTS)
async def test_a_model_gets_an_effort_that_it_takes(
    key: str, model: str, effort: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`max` was sent as it was written, and any effort to models that do not reason."""
    request = await sent("responses" if key == "mine" else "openai", key, model, reasoning_effort=effort)
    family = family_of(model)
    assert family is not None
    assert effort_in(request) == (effort if effort in family.efforts else effort_in(request))
    assert effort_in(request) in (family.efforts or (None,))
    assert ("model.option_" in capsys.readouterr().err) == (effort not in family.efforts)


def test_the_nearest_effort_is_the_next_higher_one_else_the_highest() -> None:
    taken: Any = ["none", "low", "high"]
    assert {asked: nearest_effort(asked, taken) for asked in EFFORTS} == {
        "none": "none", "minimal": "low", "low": "low", "medium": "high", "high": "high", "xhigh": "high", "max": "high",
    }  # fmt: skip


@pytest.mark.parametrize("protocol", ["openai", "responses"])
@pytest.mark.parametrize(
    ("model", "given", "kept"),
    [
        ("gpt-5.2", {}, set()),
        ("o3", {}, set()),
        ("gpt-5.2", {"reasoning_effort": "none"}, {"temperature", "top_p"}),
        ("gpt-4.1", {}, {"temperature", "top_p"}),
        ("some-model", {}, {"temperature", "top_p"}),
    ],
)
async def test_sampling_goes_to_models_that_take_it(
    protocol: Any, model: str, given: dict[str, Any], kept: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A server of one's own that speaks Responses was sent what its models refuse."""
    key = "openai" if protocol == "openai" else "mine"
    options = {"temperature": 0.2, "top_p": 0.5, "stop": ("x",), **given}
    request = await sent(protocol, key, model, **options)
    assert {"temperature", "top_p"} & request.keys() == kept
    assert ("stop" in request) == (protocol == "openai" and bool(kept))
    reported = capsys.readouterr().err
    for name in {"temperature", "top_p", "stop"} - request.keys():
        assert f"{name}" in reported


async def test_an_effort_reaches_a_model_that_nothing_is_known_of_where_the_protocol_has_a_field_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert effort_in(await sent("responses", "mine", "some-model", reasoning_effort="high")) == "high"
    assert effort_in(await sent("responses", "mine", "some-model", compute="LOW")) == "low"
    assert capsys.readouterr().err == ""
    assert effort_in(await sent("openai", "mine", "some-model", reasoning_effort="high")) is None
    assert "model.option_ignored" in capsys.readouterr().err


async def test_ids_of_other_providers_fit_any_server_that_speaks_responses() -> None:
    call = ToolCall(id="toolu_" + "x" * 80, name="look")
    messages = (
        HumanMessage(content="hi"),
        AIMessage(tool_calls=(call,)),
        ToolMessage(tool_call_id=call.id, content="r"),
    )
    request = await sent("responses", "mine", "gpt-5.2", *messages)
    ids = {item["call_id"] for item in request["input"] if "call_id" in item}
    assert len(ids) == 1 and len(ids.pop()) <= 40
    assert call.id not in json.dumps(request)
