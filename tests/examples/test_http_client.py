"""The HTTP client example keeps exactly what holds, however the connection broke."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "http_client.py"


@pytest.fixture(scope="module")
def client() -> Any:
    spec = importlib.util.spec_from_file_location("http_client_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = sys.modules["http_client_example"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["http_client_example"]


def _delta(seq: int, content_id: str, text: str) -> dict[str, Any]:
    return {"type": "content.delta", "seq": seq, "contentId": content_id, "delta": text}


def test_a_reset_drops_the_blocks_that_were_voided(client):
    transcript = client.Transcript()
    transcript.take({"type": "run.start", "seq": 1, "runId": "r"}, "1-1")
    for seq, text in enumerate(["Hel", "lo"], 2):
        transcript.take(_delta(seq, "first", text), f"1-{seq}")
    transcript.take({"type": "stream.reset", "keepSeq": 1})
    transcript.take(_delta(2, "second", "Hello"), "2-2")
    transcript.take({"type": "run.complete", "seq": 3, "runId": "r"}, "2-3")
    assert transcript.blocks() == [{"contentId": "second", "text": "Hello"}]
    assert transcript.ended and transcript.last_id == "2-3"


def test_an_event_that_comes_twice_counts_once(client):
    transcript = client.Transcript()
    for _ in range(2):
        transcript.take(_delta(1, "a", "once"))
    assert transcript.blocks() == [{"contentId": "a", "text": "once"}]


def test_a_snapshot_stands_for_its_block(client):
    transcript = client.Transcript()
    transcript.take(_delta(1, "a", "Hel"))
    transcript.take({"type": "content.snapshot", "seq": 5, "contentId": "a", "text": "Hello"})
    assert transcript.blocks() == [{"contentId": "a", "text": "Hello"}]


def test_frames_are_read_with_their_ids_and_comments_left_out(client):
    lines = [": beat", "", "id: 1-1", "event: message", 'data: {"type":"run.start","seq":1}', ""]
    assert list(client.sse(lines)) == [("1-1", {"type": "run.start", "seq": 1})]


def test_a_text_may_hold_what_other_readers_take_for_the_end_of_a_line(client):
    event = {"type": "content.delta", "seq": 1, "delta": "a\u2028b\x85c 🌧"}
    frame = f"id: 1-1\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
    blocks = (frame[at : at + 1] for at in range(len(frame)))
    parts = httpx.Response(200, content=blocks).iter_text()
    assert list(client.sse(client.lines_of(parts))) == [("1-1", event)]


def test_it_talks_to_a_served_agent(client, tmp_path, capsys):
    command = [sys.executable, "-m", "graphflow", "serve", "--port", "0"]
    shutil.copytree(ROOT / "graphs", tmp_path / "graphs")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            client.main(["demo_react", "What time is it in Beijing?", url])
        finally:
            server.terminate()
    shown = capsys.readouterr().out
    assert "[city_datetime]" in shown
    assert shown.partition("the text that holds:")[2].strip().startswith("Local time:")
