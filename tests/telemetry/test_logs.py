"""Logs: on stderr, masked, at their level (spec 7 "Logging", spec 10)."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

import pytest
import structlog

from graphflow.telemetry.logs import set_up_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_before():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_level_time_and_facts():
    stream = io.StringIO()
    set_up_logs("info", form="json", stream=stream)
    structlog.get_logger().info("model answered", tokens=12, text="北京")
    (line,) = lines(stream)
    assert line["event"] == "model answered"
    assert (line["level"], line["tokens"], line["text"]) == ("info", 12, "北京")
    assert line["timestamp"].endswith("Z")


def test_lines_below_the_level_are_not_written():
    stream = io.StringIO()
    set_up_logs("warning", form="json", stream=stream)
    log = structlog.get_logger()
    log.debug("a")
    log.info("b")
    log.warning("c")
    assert [line["event"] for line in lines(stream)] == ["c"]


def test_secrets_are_masked_at_any_depth_in_texts_and_in_tracebacks():
    stream = io.StringIO()
    set_up_logs("debug", form="json", stream=stream)
    log = structlog.get_logger()
    headers = {"Authorization": "Bearer abcdefghijkl", "n": [{"api_key": "sk-1234567890abcdef"}]}
    log.info("request token=abcdef", headers=headers, apiKey="plain", tokens=3, cause=ValueError("password=hunter22"))
    try:
        raise RuntimeError("Bearer abcdefghijkl refused")
    except RuntimeError:
        log.exception("failed")
    text = stream.getvalue()
    for secret in ("abcdef", "1234567890", '"plain"', "hunter22"):
        assert secret not in text
    assert lines(stream)[0]["tokens"] == 3
    assert "RuntimeError" in lines(stream)[1]["exception"]


def test_a_traceback_for_people_is_masked_text_too():
    stream = io.StringIO()
    set_up_logs(stream=stream)
    try:
        raise RuntimeError("Bearer abcdefghijkl refused")
    except RuntimeError:
        structlog.get_logger().exception("failed")
    assert "RuntimeError: Bearer *** refused" in stream.getvalue()


def test_masking_can_be_turned_off():
    stream = io.StringIO()
    set_up_logs(form="json", stream=stream, masked=False)
    structlog.get_logger().info("x", apiKey="plain")
    assert lines(stream)[0]["apiKey"] == "plain"


@pytest.mark.parametrize(
    ("environ", "stream", "coloured"),
    [({}, Terminal(), True), ({"NO_COLOR": "1"}, Terminal(), False), ({}, io.StringIO(), False)],
)
def test_colour_is_for_terminals_that_did_not_refuse_it(environ, stream, coloured):
    set_up_logs("info", stream=stream, environ=environ)
    structlog.get_logger().info("hello", node="reason")
    assert ("\x1b[" in stream.getvalue()) is coloured
    assert "hello" in stream.getvalue()


def test_lines_of_libraries_go_through_the_same_masker():
    stream = io.StringIO()
    set_up_logs("info", form="json", stream=stream)
    logging.getLogger("uvicorn.error").warning("bad token=%s", "abcdefgh")
    (line,) = lines(stream)
    assert (line["logger"], line["event"], line["level"]) == ("uvicorn.error", "bad token=***", "warning")


def test_a_logger_that_a_module_holds_follows_a_second_set_up():
    first, second = io.StringIO(), io.StringIO()
    log = structlog.get_logger()
    set_up_logs("info", form="json", stream=first)
    log.info("one")
    set_up_logs("debug", form="json", stream=second)
    log.debug("two")
    assert [line["event"] for line in lines(first)] == ["one"]
    assert [line["event"] for line in lines(second)] == ["two"]


def test_logs_go_to_stderr_and_leave_stdout_to_the_command():
    code = "from graphflow.telemetry.logs import set_up_logs; import structlog; set_up_logs(); structlog.get_logger().info('hi')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "hi" in done.stderr


def test_a_closed_stream_ends_the_lines_and_not_the_run():
    stream = io.StringIO()
    set_up_logs(stream=stream)
    stream.close()
    structlog.get_logger().info("nobody reads this")
    after = io.StringIO()
    set_up_logs("info", form="json", stream=after)
    structlog.get_logger().info("the run goes on")
    assert [line["event"] for line in lines(after)] == ["the run goes on"]


def test_a_character_that_the_stream_does_not_know_costs_no_line():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    set_up_logs(form="json", stream=stream)
    structlog.get_logger().info("北京", half="\ud83d")
    stream.seek(0)
    line = json.loads(stream.read())
    assert (line["event"], line["half"]) == ("北京", "\ud83d")


def test_a_stream_without_room_ends_the_lines_and_not_the_run():
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            tried.append(text)
            raise OSError(28, "No space left on device")

    tried: list[str] = []
    set_up_logs(stream=Full())
    structlog.get_logger().info("nobody reads this")
    assert "nobody reads this" in tried[0]


def test_a_line_that_a_library_got_wrong_harms_nobody_but_the_line(monkeypatch: pytest.MonkeyPatch):
    stream = io.StringIO()
    set_up_logs("info", form="json", stream=stream)
    monkeypatch.setattr(logging, "raiseExceptions", False)  # else the standard library tells of it on stderr
    log = logging.getLogger("some.library")
    log.warning("%d apples", "three")
    log.log(logging.INFO + 5, "between two levels")
    assert [(line["level"], line["event"]) for line in lines(stream)] == [("info", "between two levels")]
