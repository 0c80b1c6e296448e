"""The curl command of every route in docs/http.md works against a served project."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from docs.generators import http_api
from tests.docs.blocks import ROOT, blocks_of, environment, working_copy
from tests.needs import need
from tests.patience import PATIENCE_S

ORDER = {"POST": 1, "PUT": 1, "GET": 2, "PATCH": 4, "DELETE": 5}
LATE = {
    "POST /api/threads/{thread_id}/fork": 3, "POST /api/threads/{thread_id}/rewind": 5,
    "PATCH /api/threads/{thread_id}/state": 6, "POST /api/threads/{thread_id}/resume": 7,
    "DELETE /api/threads/{thread_id}/queue/{run_id}": 8, "POST /api/submit": 9,
    "POST /api/threads/{thread_id}/messages/{message_id}/regenerate": 4,
    "POST /api/threads/{thread_id}/messages/{message_id}/edit": 4,
    "POST /api/threads/{thread_id}/cancel": 9, "DELETE /api/threads/{thread_id}": 10,
}  # fmt: skip
"""What changes the threads runs after what reads them."""
ORDERED = sorted(http_api.EXAMPLES, key=lambda name: LATE.get(name, ORDER[name.partition(" ")[0]]))
SHIPMENT = {
    "graphflow": "1",
    "start": "pay",
    "nodes": {
        "pay": {"use": "wait", "with": {"signal": "paid"}, "next": "pack"},
        "pack": {"use": "wait", "with": {"signal": "packed"}, "next": "end"},
    },
}


SLOW = """
import asyncio
from graphflow import node

@node
async def nap(state, ctx):
    await asyncio.Event().wait()
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    need(shutil.which("curl"), "curl")
    folder = working_copy(tmp_path)
    (folder / "graphs" / "shipment.json").write_text(json.dumps(SHIPMENT), encoding="utf-8")
    slow = {"graphflow": "1", "start": "nap", "nodes": {"nap": {"use": "node:nap", "next": "end"}}}
    (folder / "graphs" / "slow.json").write_text(json.dumps(slow), encoding="utf-8")
    (folder / "slow_nodes.py").write_text(SLOW, encoding="utf-8")
    (folder / "graphflow.toml").write_text('[tools]\nmodules = ["slow_nodes"]\n', encoding="utf-8")
    (folder / "notes.txt").write_text("Tokyo", encoding="utf-8")
    command = [sys.executable, "-m", "graphflow", "serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), folder
        finally:
            server.terminate()


def data(url: str, **query: Any) -> Any:
    return httpx.get(url, params=query).json()["data"]


def test_every_curl_command_works(served: tuple[str, Path]) -> None:
    url, folder = served
    ids: dict[str, str] = {}
    background: list[subprocess.Popen[bytes]] = []

    def start(body: dict[str, Any], until: str = '"type":"interrupt.request"') -> None:
        """Starts a run and returns once its response has a line with `until`; the run goes on without its client."""
        command = ["curl", "-siN", "-m", str(PATIENCE_S), f"{url}/api/query", "-d", json.dumps(body)]
        background.append(call := subprocess.Popen(command, stdout=subprocess.PIPE))
        assert call.stdout is not None
        # curl ends by itself some time, so a response that never says it fails here instead of hanging.
        assert any(until.encode() in line for line in call.stdout), until

    try:
        for name in ORDERED:
            if name == ORDERED[1]:  # the first has made the thread `trip`
                start({"agentKey": "demo_form", "chatId": "leave", "message": "I need sick leave"})
                start({"agentKey": "shipment", "chatId": "order", "message": "one book"})
                slow = {"agentKey": "slow", "chatId": "report"}
                start({**slow, "message": "go"}, until='"type":"node.start"')
                start({**slow, "message": "again", "onBusy": "enqueue"}, until="graphflow-queue-position")
                ids |= found_ids(url) | {"SHA256": shown_picture(url)}
            method, _, path = name.partition(" ")
            told = run(http_api.curl(method, path), url, folder, chosen(name, ids, url))
            if name == "POST /api/rules":
                ids["RULE"] = json.loads(told)["data"]["id"]
    finally:
        for call in background:
            call.kill()
            call.communicate()


def shown_picture(url: str) -> str:
    """The hash of a picture in the thread `album`."""
    picture = bytes(5_000)
    part = {"type": "image", "data": base64.b64encode(picture).decode(), "mediaType": "image/png"}
    said = {"agentKey": "demo_react", "chatId": "album", "message": "hello", "stream": False}
    assert httpx.post(f"{url}/api/query", json=said, timeout=PATIENCE_S).status_code == 200
    values = {"messages": [{"role": "user", "content": [part]}]}
    edited = httpx.patch(f"{url}/api/threads/album/state", json={"values": values}, timeout=PATIENCE_S)
    assert edited.status_code == 200, edited.text
    return hashlib.sha256(picture).hexdigest()


def shown_commands() -> list[str]:
    """Each curl command that README and docs show, but those of the reference."""
    pages = [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [
        block for page in pages if page.name != "http.md" or page.parent.name == "start" for block in blocks_of(page)
    ]
    lines = [line for block in blocks if block.info == "sh" for line in block.body.splitlines()]
    return list(dict.fromkeys(line for line in lines if line.startswith("curl ")))


def test_every_curl_command_of_the_other_pages_works(served: tuple[str, Path]) -> None:
    url, folder = served
    first = [command for command in shown_commands() if "/api/query" in command]
    assert len(first) >= 2
    order = '{"agentKey": "shipment", "chatId": "order", "message": "one book", "stream": false}'
    run(f"curl localhost:8080/api/query -d '{order}'", url, folder, {})
    for command in first:
        run(command, url, folder, {})
    for command in shown_commands():
        if command not in first:
            name = "POST /api/submit" if "/api/submit" in command else ""
            run(command, url, folder, chosen(name, found_ids(url), url))


def found_ids(url: str) -> dict[str, str]:
    rows = data(f"{url}/api/threads/trip/checkpoints", limit=20)
    events = data(f"{url}/api/chat", chatId="trip")["events"]
    earlier = next(row for row in rows if row["source"] == "node")
    return {
        "RUN": rows[0]["runId"],
        "CHECKPOINT": rows[0]["id"],
        "EARLIER": earlier["id"] if earlier["id"] != rows[0]["id"] else rows[-1]["id"],
        "MESSAGE": next(row["messageId"] for row in data(f"{url}/api/threads/trip/messages") if row["role"] == "user"),
        "TOOL": next(event["toolId"] for event in events if event["type"] == "tool.result"),
    }


def chosen(name: str, ids: dict[str, str], url: str) -> dict[str, str]:
    """The ids of the command's own thread."""
    if name == "POST /api/submit":
        waiting = data(f"{url}/api/inbox", threadId="leave")[0]
        return ids | {"RUN": waiting["runId"], "INTERRUPT": waiting["interruptId"], "TOOL": waiting["toolId"]}
    if name.startswith("DELETE /api/threads/{thread_id}/queue"):
        return ids | {"QUEUED": data(f"{url}/api/threads/report/queue")[0]["runId"]}
    return ids


def run(command: str, url: str, folder: Path, ids: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.replace("curl ", f"curl -sS --fail-with-body -m {PATIENCE_S} ", 1).replace("localhost:8080", url)],
        cwd=folder, env=environment(folder) | ids, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert '"code":4' not in done.stdout[:10]
    return done.stdout
