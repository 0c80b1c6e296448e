"""The response envelope, what of it reaches the wire, and the older dict format (spec 8.3)."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from graphflow.errors import TOOL_ERROR_CODES
from graphflow.testing.tool_envelope_conformance import assert_envelope, check_envelope
from graphflow.tools.envelope import completed, from_record, record_of, to_envelope, wrap
from graphflow.tools.port import Tool, ToolResult, failed, tool
from graphflow.tools.running.result_text import cut_to, wire_text

GOOD: dict[str, Any] = {
    "status": "success",
    "data": {},
    "text": "all is well",
    "stats": {"time_ms": 3},
    "context": {"cwd": ".", "params_input": {}},
}
BAD: dict[str, Any] = {**GOOD, "status": "error", "error": {"code": "TIMEOUT", "message": "too slow"}}


@tool
def backend() -> None: ...


ACTION = backend.changed(kind="action")
CODING = backend.changed(whole_envelope=True)


def wire(value: Any, of: Tool | None = backend) -> str:
    return wire_text(completed(wrap(value), {}), of)


def test_the_validator_accepts_one_valid_envelope_of_each_status():
    for envelope in (GOOD, {**GOOD, "status": "partial", "data": {"truncated": True}}, BAD):
        assert check_envelope(envelope).ok
        assert_envelope(envelope)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": None}, "status"),
        ({"status": "fine"}, "status is 'fine'"),
        ({"data": None}, "data is None"),
        ({"text": " "}, "text is"),
        ({"stats": {}}, "time_ms"),
        ({"stats": {"time_ms": True}}, "time_ms"),
        ({"context": {"params_input": {}}}, "cwd"),
        ({"context": {"cwd": "."}}, "params_input"),
        ({"error": {"code": "TIMEOUT", "message": "x"}}, "does not belong"),
        ({"extra": 1}, "does not belong"),
        ({"status": "error"}, "error is None"),
        ({"status": "error", "error": {"code": "OOPS", "message": "x"}}, "error.code"),
        ({"status": "error", "error": {"code": "TIMEOUT", "message": ""}}, "error.message"),
        ({"data": {"truncated": True}}, "status must be partial"),
        ({"data": {"fallback_used": True}}, "status must be partial"),
    ],
)
def test_the_validator_names_every_break_of_the_protocol(change: dict[str, Any], words: str):
    report = check_envelope({**GOOD, **change})
    assert any(words in error for error in report.errors), report
    with pytest.raises(AssertionError, match=re.escape(words)):
        assert_envelope({**GOOD, **change})


def test_the_validator_names_missing_keys_and_what_is_no_object():
    assert check_envelope([]).errors
    assert any("'text' is missing" in error for error in check_envelope({"status": "success"}).errors)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("LS", {"entries": [{"path": "a", "type": "dir"}]}, {"entries": [{"path": "a", "type": "door"}]}),
        ("Glob", {"paths": ["a"]}, {"paths": [1]}),
        (
            "Grep",
            {"matches": [{"file": "a", "line": 1, "text": "x"}]},
            {"matches": [{"file": "a", "line": True, "text": ""}]},
        ),
        ("Read", {"content": ""}, {"content": None}),
        ("Edit", {"applied": True}, {}),
        ("LS", {"entries": []}, {}),
    ],
)
def test_the_data_of_coding_tools_has_a_shape(name: str, good: dict[str, Any], bad: dict[str, Any]):
    assert check_envelope({**GOOD, "data": good}, tool=name).ok
    assert not check_envelope({**GOOD, "data": bad}, tool=name).ok


def test_the_validator_warns_of_what_is_allowed_and_unhelpful():
    assert any("short" in warning for warning in check_envelope({**GOOD, "text": "ok"}).warnings)
    assert any("next step" in w for w in check_envelope({**BAD, "text": "too slow"}).warnings)
    assert any("does not say why" in w for w in check_envelope({**GOOD, "status": "partial"}).warnings)
    assert check_envelope(GOOD).warnings == ()


@pytest.mark.parametrize(
    "value", [None, "text", "", {"a": 1}, [], 0, failed("TIMEOUT", "slow", "Wait."), {"error": "no"}]
)
def test_everything_that_is_wrapped_is_a_valid_envelope(value: Any):
    assert_envelope(to_envelope(wrap(value)))


def test_text_that_no_json_can_hold_is_mended():
    for value in ("a\ud800", {"na\udcffme": ["\udcff", 1]}, ToolResult(text="x\ud800", sources=[{"title": "\ud800"}])):
        result = wrap(value)
        assert "?" in msgspec.json.encode(to_envelope(result)).decode() + str(result.sources)


def test_an_envelope_that_a_tool_returns_is_taken_as_such():
    result = wrap({**GOOD, "status": "partial", "data": {"truncated": True}})
    assert (result.status, result.data) == ("partial", {"truncated": True})


def test_a_dict_that_only_has_a_status_is_the_tools_own_data():
    assert wrap({"status": "success", "order": 5}).data == {"status": "success", "order": 5}


def test_the_codes_of_error_results_are_one_closed_list():
    with pytest.raises(ValueError, match="not a tool error code"):
        failed("OOPS", "x")
    for code in TOOL_ERROR_CODES:
        assert_envelope(to_envelope(failed(code, "It failed.", "Do this next.")))


def test_the_wire_gets_ok_data_text_or_the_whole_envelope():
    assert wire({"any": "thing"}, ACTION) == "OK"
    assert wire({"a": [1, "ü"]}) == '{"a":[1,"ü"]}'
    assert wire("words") == "words"
    assert wire(None) == "OK"
    assert_envelope(msgspec.json.decode(wire({"a": 1}, CODING)))


def test_an_error_on_the_wire_says_code_message_and_next_step():
    result = failed("NOT_FOUND", "there is no x", "Ask for y.")
    for of in (backend, ACTION, None):
        assert wire_text(result, of) == "Error NOT_FOUND: there is no x. Ask for y."


def test_a_result_that_is_too_long_is_cut_says_so_and_stays_whole():
    cut = cut_to(wrap({"text": "x" * 500}), backend, 100)
    shown = wire_text(cut, backend)
    assert shown.startswith('{"text":"xxx')
    assert "100 of 511 characters shown" in shown
    assert cut.status == "partial"
    assert cut.data == {"text": "x" * 500, "truncated": True}
    assert_envelope(to_envelope(cut))
    assert cut_to(cut_to(wrap("y" * 500), backend, 100), backend, 500).data["text"] == "y" * 500


def test_an_error_that_is_too_long_stays_an_error():
    cut = cut_to(failed("TIMEOUT", "x" * 500), backend, 50)
    assert cut.error is not None
    assert len(wire_text(cut, backend)) < 150


def test_a_record_gives_the_same_result_back():
    for value in (
        {"a": 1},
        "text",
        None,
        failed("TIMEOUT", "slow"),
        ToolResult(sources=[{"url": "u"}], stats={"time_ms": 1}),
    ):
        result = wrap(value)
        assert from_record(msgspec.json.decode(msgspec.json.encode(record_of(result)))) == result


def test_a_record_holds_neither_arguments_nor_what_can_be_derived():
    assert record_of(wrap({"a": 1})) == {"status": "success", "data": {"a": 1}}


def test_what_a_person_gives_for_an_unknown_outcome_becomes_the_result():
    assert from_record({"order": 7}).data == {"order": 7}
    assert from_record("sent").text == "sent"
    skipped = from_record(None)
    assert skipped.error is not None
    assert skipped.error.code == "CANCELLED"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("File not found: x", "NOT_FOUND"),
        ("access denied", "ACCESS_DENIED"),
        ("permission refused", "PERMISSION_DENIED"),
        ("limit must be positive", "INVALID_PARAM"),
        ("timed out", "TIMEOUT"),
        ("boom", "INTERNAL_ERROR"),
    ],
)
def test_an_older_error_dict_gets_its_code_from_its_words(text: str, code: str):
    result = wrap({"error": text, "tool": "x"})
    assert result.error is not None
    assert (result.error.code, result.error.message) == (code, text)
    assert_envelope(to_envelope(result))


def test_an_older_error_dict_that_names_one_of_our_codes_gets_that_one():
    for code, kept in (("CONFLICT", "CONFLICT"), ("X42", "NOT_FOUND"), (404, "NOT_FOUND")):
        result = wrap({"error": "file not found", "code": code})
        assert result.error is not None
        assert (result.error.code, result.data) == (kept, {"code": code})


def test_older_listings_are_renamed_and_flags_become_the_status():
    result = wrap({"items": ["a"], "root_resolved": "/r", "flags": {"truncated": True}})
    assert result.status == "partial"
    assert result.data == {"entries": ["a"], "truncated": True}
    assert result.context["path_resolved"] == "/r"
    assert wrap({"matches": ["a"], "flags": {}}).data == {"paths": ["a"]}
    assert wrap({"matches": [{"file": "a"}], "flags": {}}).data == {"matches": [{"file": "a"}]}
    assert "time_limit" in wrap({"matches": [], "aborted_reason": "time_limit"}).text


def test_plain_dicts_are_not_mistaken_for_older_ones():
    for data in (
        {"items": [1]},
        {"matches": ["a"]},
        {"error": None},
        {"error": "", "x": 1},
        {"ok": True, "error": "none"},
    ):
        assert wrap(data).data == data


def test_without_the_adapter_older_dicts_are_plain_data():
    assert wrap({"error": "not found"}, legacy=False).data == {"error": "not found"}
