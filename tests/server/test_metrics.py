"""What operators see: `/metrics`, one log line for each request, and the request's id (spec 3.2, 3.5)."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from graphflow.runtime.loop_watch import LoopWatch, watch_loop
from graphflow.server import app
from graphflow.telemetry.logs import _Carry, set_up_logs
from graphflow.telemetry.metrics import Counter, Gauge, Histogram, render
from tests.forked import python
from tests.server.conftest import ask, frames, serving
from tests.server.test_users import OPS, with_tokens
from tests.service.conftest import Gate, make_application

SERVED = """
import gc, os, signal
from graphflow.runtime.collector import LEAST
from graphflow.server.run import serve
from graphflow.settings import load_settings

def started(url):
    print(gc.get_threshold()[0] == LEAST)
    os.kill(os.getpid(), signal.SIGTERM)

serve(load_settings(environ={}), port=0, on_start=started)
"""
SAMPLE = re.compile(r"([a-z_]+)(?:\{([a-z]+=\"[^\"]*\"(?:,[a-z]+=\"[^\"]*\")*)\})? (\S+)")


def read(text: str) -> dict[str, float]:
    """The samples of a page; every line is a comment or a sample."""
    out = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            out[line.rpartition(" ")[0]] = float(match[3])
    return out


def test_the_page_is_prometheus_text() -> None:
    runs, here = Counter("runs_total", "Runs.", ("status",)), Gauge("here", "Now.")
    took = Histogram("took_seconds", "Time.", (0.1, 1.0))
    runs.add(1, 'odd "name"\\\n')
    runs.add(2, "done")
    here.add(3)
    here.add(-1)
    for value in (0.05, 0.1, 0.5, 7):
        took.observe(value)
    assert render([runs, here, took]) == (
        "# HELP runs_total Runs.\n# TYPE runs_total counter\n"
        'runs_total{status="done"} 2\nruns_total{status="odd \\"name\\"\\\\\\n"} 1\n'
        "# HELP here Now.\n# TYPE here gauge\nhere 2\n"
        "# HELP took_seconds Time.\n# TYPE took_seconds histogram\n"
        'took_seconds_bucket{le="0.1"} 2\ntook_seconds_bucket{le="1"} 3\ntook_seconds_bucket{le="+Inf"} 4\n'
        "took_seconds_sum 7.65\ntook_seconds_count 4\n"
    )


@pytest.mark.parametrize(("own_process", "expected"), [(True, ["collector", "watch"]), (False, ["watch"])])
async def test_the_collector_is_set_before_anybody_looks_who_blocks_the_loop(
    folder: Path, monkeypatch: pytest.MonkeyPatch, own_process: bool, expected: list[str]
) -> None:
    """It holds the loop for a moment: the first start on a slow machine would report that."""
    order: list[str] = []

    def watched() -> LoopWatch:
        order.append("watch")
        return watch_loop()

    monkeypatch.setattr(app, "relax_collector", lambda store: order.append("collector"))
    monkeypatch.setattr(app, "watch_loop", watched)
    async with serving(make_application(folder), own_process=own_process):
        assert order == expected


def test_graphflow_serve_sets_the_collector_of_its_process(tmp_path: Path) -> None:
    server = python("-c", SERVED, cwd=tmp_path, pipes=("stdout", "stderr"))
    out, err = server.communicate()
    assert out == "True\n", err


async def test_metrics_tell_of_runs_calls_streams_and_queues(folder: Path, gate: Gate) -> None:
    async with serving(make_application(folder, gate=gate)) as (client, _):
        first = read((await client.get("/metrics")).text)
        assert first["graphflow_runs_active"] == 0 and first["graphflow_first_delta_seconds_count"] == 0
        assert first["graphflow_loop_blocked_seconds"] >= 0
        await ask(client, agentKey="story")
        await client.post("/api/query", json={"message": "x", "agentKey": "ask", "stream": False})
        gate.close()
        async with client.stream("POST", "/api/query", json={"message": "x", "agentKey": "plain"}) as open_:
            events = frames(open_)  # kept: one that is dropped closes its connection
            while (await anext(events))[1]["type"] != "node.start":
                pass
            now = read((await client.get("/metrics")).text)
            gate.open()
        assert now["graphflow_runs_active"] == 1 and now["graphflow_sse_clients"] == 1
        assert now["graphflow_threads_waiting"] == 1 and now["graphflow_queue_inputs"] == 0
        assert (
            now['graphflow_runs_total{status="completed"}'] == 1 and now['graphflow_runs_total{status="waiting"}'] == 1
        )
        assert now["graphflow_model_calls_total"] == 2 and now['graphflow_tokens_total{kind="completion"}'] > 0
        assert now["graphflow_first_delta_seconds_count"] == 1 and now["graphflow_node_seconds_count"] == 3
        assert now['graphflow_http_requests_total{method="POST",route="/api/query",status="200"}'] == 2
        assert (await client.get("/metrics")).headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Log lines as JSON; the set-up is taken back."""
    root, ours, out = logging.getLogger(), logging.getLogger("graphflow"), io.StringIO()
    levels = root.level, ours.level
    ours.setLevel(logging.NOTSET)  # a command that ran in this process may have silenced it
    set_up_logs("info", form="json", stream=out)
    yield out
    structlog.reset_defaults()
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    for handler in [handler for handler in root.handlers if isinstance(handler, _Carry)]:
        root.removeHandler(handler)


async def test_each_request_is_one_line_with_its_token_and_without_a_secret(folder: Path, lines: io.StringIO) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        own = await client.get("/api/agents?q=hidden-thing", headers={**OPS, "X-Request-Id": "abc-1"})
        assert own.headers["x-request-id"] == "abc-1"
        made = await client.get(
            "/api/agents", headers={"X-Request-Id": "with space\x7f", "Authorization": "Bearer wrong-one"}
        )
        assert re.fullmatch(r"[0-9a-f]{32}", made.headers["x-request-id"])
        await client.post("/api/query", json={"message": "x", "agentKey": "plain"}, headers=OPS)
    logged = [json.loads(line) for line in lines.getvalue().splitlines()]
    requests = [line for line in logged if line.get("logger") == "graphflow.access"]
    assert [(r["method"], r["path"], r["status"], r["by"]) for r in requests] == [
        ("GET", "/api/agents", 200, "ops"), ("GET", "/api/agents", 401, None), ("POST", "/api/query", 200, "ops"),
    ]  # fmt: skip
    assert requests[0]["bytes"] == len(own.content) and requests[0]["request_id"] == "abc-1"
    assert all(isinstance(r["ms"], float) and r["level"] == "info" for r in requests)
    assert requests[2]["bytes"] > 500, "a stream's line comes at its end and counts all of it"
    for secret in ("ops-secret", "wrong-one", "hidden-thing"):
        assert secret not in lines.getvalue()


async def test_nothing_that_a_path_holds_reaches_the_log_as_a_control_character(
    folder: Path, lines: io.StringIO
) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        await client.get("/api/threads/%1b[31mx%0a%00", headers=OPS)
        await client.get("/api/threads/雨", headers=OPS)
    logged = [json.loads(line) for line in lines.getvalue().splitlines()]
    paths = [line["path"] for line in logged if line.get("logger") == "graphflow.access"]
    assert paths == ["/api/threads/%1B%5B31mx%0A%00", "/api/threads/雨"]
