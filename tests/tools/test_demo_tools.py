"""The built-in actions and the invented lookups (spec 8.1): deterministic, and honest about what they are."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.tools.port import ToolResult
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import ToolRunner
from tests.tools.fakes import FakeContext, call

RUNNER = ToolRunner(ToolRegistry())


async def run(name: str, **arguments: Any) -> ToolResult:
    return await RUNNER.run(call(name, arguments), FakeContext())


@pytest.mark.parametrize(
    ("name", "arguments", "fits"),
    [
        ("switch_theme", {"theme": "dark"}, True),
        ("switch_theme", {"theme": "blue"}, False),
        ("switch_theme", {}, False),
        ("launch_fireworks", {"durationMs": 1000}, True),
        ("launch_fireworks", {"durationMs": 30_000}, True),
        ("launch_fireworks", {}, True),
        ("launch_fireworks", {"durationMs": 999}, False),
        ("launch_fireworks", {"durationMs": 30_001}, False),
        ("show_modal", {"title": "T", "content": "C", "closeText": "X"}, True),
        ("show_modal", {"title": "T"}, False),
    ],
)
async def test_an_action_with_fitting_arguments_is_ok_and_with_others_says_what_is_wrong(
    name: str, arguments: dict[str, Any], fits: bool
):
    ctx = FakeContext()
    await RUNNER.run(call(name, arguments), ctx)
    kind, _, param, text = ctx.events[0]
    assert kind == "action"
    assert (param, text) == (arguments, "OK") if fits else text.startswith("Error INVALID_PARAM")


@pytest.mark.parametrize(
    ("name", "arguments", "others"),
    [
        ("mock_logistics_status", {"trackingNo": "SF1234567890"}, {"trackingNo": "SF1234567891"}),
        ("mock_logistics_status", {"trackingNo": "A1", "carrier": "EMS"}, {"trackingNo": "A2", "carrier": "EMS"}),
        ("mock_ops_runbook", {"message": "disk is full"}, {"message": "site is slow"}),
    ],
)
async def test_the_same_arguments_give_the_same_result_and_others_another(
    name: str, arguments: dict[str, Any], others: dict[str, Any]
):
    first, second, other = await run(name, **arguments), await run(name, **arguments), await run(name, **others)
    assert first.data == second.data
    assert first.data != other.data
    assert first.data["mockTag"] == "mock"


async def test_a_parcel_has_a_track_that_ends_where_it_is():
    for number in range(20):
        parcel = (await run("mock_logistics_status", trackingNo=f"N{number}", carrier="EMS")).data
        assert parcel["track"][-1]["status"] == parcel["status"]
        assert parcel["track"][-1]["place"] == parcel["place"]
        assert (parcel["etaDays"] == 0) == (parcel["status"] == "delivered")
        assert parcel["carrier"] == "EMS"


@pytest.mark.parametrize(
    ("message", "command", "risk"),
    [
        ("the disk is full", "df -h", "high"),
        ("磁盘告警", "df -h", "high"),
        ("memory is getting low", "free -h", "low"),
        ("requests are slow", "top -b -n 1", "medium"),
        ("what is going on?", "ls", "low"),
    ],
)
async def test_a_runbook_recommends_a_command_that_only_looks(message: str, command: str, risk: str):
    runbook = (await run("mock_ops_runbook", message=message, city="Paris")).data
    assert (runbook["recommendedCommand"], runbook["riskLevel"], runbook["city"]) == (command, risk, "Paris")
    assert runbook["message"] == message
    assert "Paris" in runbook["steps"][0]


@pytest.mark.parametrize(("name", "field"), [("mock_logistics_status", "trackingNo"), ("mock_ops_runbook", "message")])
async def test_a_blank_question_is_refused(name: str, field: str):
    result = await run(name, **{field: "  "})
    assert result.error is not None
    assert field in result.error.message


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("call me on 13812345678 please", "phone number"),
        ("ring +86 138-1234-5678", "phone number"),
        ("ring +49 30 1234 5678", "phone number"),
        ("mail li.wei+x@mail.example.com", "e-mail address"),
        ("身份证 11010519491231002X", "national id"),
        ("ssn 123-45-6789", "national id"),
        ("card 4111 1111 1111 1111", "bank card"),
        ("use sk-abcdefghijklmnop", "key"),
        ("AKIAIOSFODNN7EXAMPLE", "key"),
        ("-----BEGIN RSA PRIVATE KEY-----", "key"),
    ],
)
async def test_sensitive_data_is_found_and_never_repeated(text: str, kind: str):
    found = (await run("mock_sensitive_data_detector", text=text)).data
    assert found["hasSensitiveData"] is True
    assert found["description"] == f"The text holds 1 × {kind}."
    shown = str(found)
    assert not any(part in shown for part in text.split() if any(c.isdigit() or c in "@-" for c in part))


async def test_a_text_full_of_addresses_is_counted_in_full():
    found = (await run("mock_sensitive_data_detector", text="a@b.c " * 16_000)).data
    assert "16000 × e-mail address" in found["description"]


@pytest.mark.parametrize(
    "text",
    ["", "Version 1.2.3 of 2024-01-31", "order 1234567890123456", "12345678901", "a@b", "skip-this", "十三亿八千万"],
)
async def test_ordinary_text_holds_no_sensitive_data(text: str):
    found = (await run("mock_sensitive_data_detector", text=text)).data
    assert found["hasSensitiveData"] is False
    assert found["result"] == "no sensitive data found"


def test_effects_of_the_lookups_are_read_and_of_the_actions_none():
    effects = {tool.name: tool.effects for tool in RUNNER.registry}
    assert {effects[name] for name in effects if name.startswith("mock_")} == {"read"}
    assert {effects[name] for name in ("switch_theme", "launch_fireworks", "show_modal")} == {"none"}
    assert effects["http_request"] == "write"
