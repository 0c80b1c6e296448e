"""A client of the HTTP API that can lose its connection: it joins the run again and drops what was voided.

    graphflow serve &
    python examples/http_client.py demo_react "What time is it in Beijing?"

A node that died in the middle runs again, and its blocks come again under new ids. `stream.reset {keepSeq}` says from
where on what a client has is void. Keeping events by their `seq` makes dropping them one line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

ENDS = {"run.complete", "run.error", "run.cancel", "run.waiting"}


@dataclass
class Transcript:
    """What a client knows of one run."""

    events: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By `seq`, so that an event that comes twice is kept once."""
    last_id: str | None = None
    """The SSE id to go on from."""
    run_id: str | None = None

    def take(self, event: dict[str, Any], event_id: str | None = None) -> None:
        """One event as it came."""
        if event["type"] == "stream.reset":  # no part of the log: it has no seq and no id
            self.events = {seq: kept for seq, kept in self.events.items() if seq <= event["keepSeq"]}
            return
        self.events[event["seq"]] = event
        self.last_id = event_id or self.last_id
        self.run_id = event.get("runId", self.run_id)

    @property
    def ended(self) -> bool:
        """Whether the newest event ends the run, or leaves it waiting for a person."""
        return bool(self.events) and self.events[max(self.events)]["type"] in ENDS

    def blocks(self) -> list[dict[str, str]]:
        """The text blocks that hold, in order: of the parts that were sent, or the snapshot that stands for them."""
        texts: dict[str, str] = {}
        for _, event in sorted(self.events.items()):
            if event["type"] == "content.delta":
                texts[event["contentId"]] = texts.get(event["contentId"], "") + event["delta"]
            elif event["type"] == "content.snapshot":
                texts[event["contentId"]] = event["text"]
        return [{"contentId": key, "text": text} for key, text in texts.items()]


def lines_of(parts: Iterable[str]) -> Iterator[str]:
    """The lines of a text that comes in parts. Only a line feed ends one: httpx's `iter_lines` cuts at U+2028 and others too,
    which a text inside an event may hold.
    """
    rest = ""
    for part in parts:
        *whole, rest = (rest + part).split("\n")
        yield from whole


def sse(lines: Iterable[str]) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """`(id, event)` for each frame of a server-sent event stream."""
    event_id, data = None, ""
    for line in lines:
        if line.startswith("id:"):
            event_id = line[3:].strip()
        elif line.startswith("data:"):
            data += line[5:].strip()
        elif not line and data:
            yield event_id, json.loads(data)
            event_id, data = None, ""


def ask(client: httpx.Client, agent: str, message: str, retries: int = 5) -> Transcript:
    """Runs a query to its end, joining again whenever the connection breaks."""
    transcript = Transcript()
    request: dict[str, Any] = {"method": "POST", "url": "/api/query", "json": {"agentKey": agent, "message": message}}
    while True:
        try:
            with client.stream(**request) as response:
                if response.status_code == 204:  # the run rests, and all of its events are here
                    return transcript
                if response.status_code != 200:
                    raise SystemExit(response.read().decode())
                for event_id, event in sse(lines_of(response.iter_text())):
                    transcript.take(event, event_id)
                    show(event)
        except httpx.TransportError as error:
            print(f"\n(the connection broke: {error})", file=sys.stderr)
        if transcript.ended or transcript.run_id is None or retries == 0:
            return transcript
        retries -= 1
        headers = {"Last-Event-ID": transcript.last_id} if transcript.last_id else {}
        request = {"method": "GET", "url": f"/api/runs/{transcript.run_id}/events", "headers": headers}


def show(event: dict[str, Any]) -> None:
    """Prints text as it comes, tool calls as lines."""
    match event["type"]:
        case "content.delta":
            sys.stdout.write(event["delta"])
            sys.stdout.flush()
        case "content.end":
            print()
        case "tool.start":
            print(f"[{event.get('toolName')}]")
        case "stream.reset":
            print("\n(what was shown after this point is void and comes again)")
        case "run.waiting":
            print(f"(waits for an answer: {', '.join(i['interruptId'] for i in event['interrupts'])})")
        case "run.error":
            print(f"(failed: {event['error']['message']})")


def main(arguments: list[str]) -> None:
    agent, message, base_url = [*arguments, *("demo_plain", "Hello!", "http://127.0.0.1:8080")[len(arguments) :]][:3]
    with httpx.Client(base_url=base_url, timeout=httpx.Timeout(10, read=60)) as client:
        transcript = ask(client, agent, message)
    print(f"\n{len(transcript.events)} events; the text that holds:")
    for block in transcript.blocks():
        print(block["text"])


if __name__ == "__main__":
    main(sys.argv[1:])
