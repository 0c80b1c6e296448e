"""What must be true of a thread whose processes were killed, told from the diary and from the store."""

from __future__ import annotations

import base64
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec

from graphflow.checkpoints.loading import load_thread
from graphflow.checkpoints.media.large_bytes import CHANNEL, checked_bytes, read_bytes, stored_media
from graphflow.events import LIVE_ONLY
from graphflow.runtime.compiled_graph import CompiledGraph
from tests.crash.lives import final
from tests.crash.scenarios import PICTURES, World

Lines = list[dict[str, Any]]
_LIVE_ONLY = {kind.__struct_config__.tag for kind in LIVE_ONLY}
_BLOCKS = ("content", "reasoning", "tool", "action")


async def broken_promises(app: CompiledGraph, store: Any, lines: Lines, expected: Any, *, truthful: bool) -> list[str]:
    """Every promise that does not hold, in words; none is what we want.

    Args:
        expected: what the same seed leaves when nobody kills it.
        truthful: people told the truth about cut-off writes, so nothing may happen twice or be missing.
    """
    out = [f"a life failed: {line['text']}" for line in lines if line["kind"] == "error"]
    if out:
        return out
    out += _ran_again(lines)
    out += _happened_twice(lines)
    out += await _lost(store, lines)
    out += await _without_bytes(store)
    out += await _log_differs(app, lines)
    if truthful:
        out += await _said_otherwise(app, lines)
        left = await final(store) | {"world": world_of(lines)}
        left["usage"] = _but_called_again(left["usage"], expected["usage"], lines)
        if left != expected:
            out.append(f"the end differs: {_differences(expected, left)}")
    return out


def world_of(lines: Lines) -> Counter[str]:
    """What happened in the world, by what it was; idempotent effects count once."""
    once = {(line["what"], line["key"]) for line in lines if line["kind"] == "effect" and line["idempotent"]}
    out = Counter(what for what, _ in once)
    out.update(line["what"] for line in lines if line["kind"] == "effect" and not line["idempotent"])
    return out


def _ran_again(lines: Lines) -> list[str]:
    """No acknowledged step begins again and no acknowledged operation is done again (E5)."""
    out = []
    steps: set[str] = set()
    operations: set[str] = set()
    for line in lines:
        match line["kind"]:
            case "durable":
                if "step" in line:
                    steps.add(repr(line["step"]))
                if line.get("state") in ("done", "answered"):
                    operations.add(repr(line["operation"]))
            case "start" if repr(line["place"]) in steps:
                out.append(f"life {line['life']}: the finished node {line['place']} ran again")
            case "effect" | "read" if line.get("operation"):
                if repr(line["operation"]) in operations:
                    out.append(f"life {line['life']}: the recorded operation {line['operation']} was done again")
    return out


def _happened_twice(lines: Lines) -> list[str]:
    """No `write` that is not idempotent happens twice, unless a person was asked and said `retry` (E6)."""
    allowed: Counter[str] = Counter()
    for line in lines:
        if line["kind"] == "answers":
            for key, answer in line["given"].items():
                if line["kinds"][key] == "outcome_unknown" and answer["decision"] == "retry":
                    allowed.update(line["keys"][key])
    counts = Counter(line["key"] for line in lines if line["kind"] == "effect" and not line["idempotent"])
    return [f"{key} happened {n} times" for key, n in counts.items() if n > 1 + allowed[key]]


async def _lost(store: Any, lines: Lines) -> list[str]:
    """Everything acknowledged is in the store, and of each life's records a prefix is (E7)."""
    loaded = await load_thread(store, World.thread)
    assert loaded is not None
    kept = []
    for lineage, upto in loaded.chain:
        kept += [r.id for r in await store.read_records(World.thread, lineage=lineage, after=0, upto=upto)]
    there = set(kept)
    out = [
        f"life {line['life']}: the acknowledged record {line['id']} is gone"
        for line in lines
        if line["kind"] == "durable" and line["id"] not in there
    ]
    by_life: dict[int, list[str]] = {}
    for line in lines:
        if line["kind"] == "queued":
            by_life.setdefault(line["life"], []).append(line["id"])
    for life, queued in by_life.items():
        of_life = [record in there for record in queued]
        if of_life != sorted(of_life, reverse=True):
            out.append(f"life {life}: the store has a gap in {list(zip(queued, of_life, strict=True))}")
    in_order = [record for queued in by_life.values() for record in queued if record in there]
    if in_order != kept:
        out.append("the records are in another order than they were made")
    return out


async def _without_bytes(store: Any) -> list[str]:
    """What a message names is there, and no bytes are there that the record which brought them does not name."""
    loaded = await load_thread(store, World.thread)
    assert loaded is not None
    out = []
    for name, number in stored_media(loaded.machine).items():
        data = await read_bytes(store, loaded.chain, name, number)
        if data not in PICTURES:
            out.append(f"the bytes {name} are not those that were given")
    async for line in store.export_thread(World.thread):
        if line["kind"] != "record":
            continue
        rows = [base64.b64decode(item["data"]) for item in line["row"]["items"] if item["channel"] != CHANNEL]
        told = b"".join([*rows, base64.b64decode(line["row"]["data"])])
        for item in line["row"]["items"]:
            if item["channel"] == CHANNEL:
                name, _ = checked_bytes(base64.b64decode(item["data"]))
                if name.encode() not in told:
                    out.append(f"record {line['row']['id']} brings the bytes {name} for nobody")
        if any(picture[:100] in told for picture in PICTURES):
            out.append(f"record {line['row']['id']} has bytes in a message")
    return out


async def _log_differs(app: CompiledGraph, lines: Lines) -> list[str]:
    """The stored log is what clients have who obeyed every `stream.reset`, but for what no client was ever sent (E1)."""
    stored = [msgspec.to_builtins(event) for event, _ in await app.thread(World.thread).events()]
    numbers = [event["seq"] for event in stored]
    if any(a >= b for a, b in pairwise(numbers)):
        return [f"the numbers of the stored log do not increase: {numbers}"]
    told, unheard = _heard([line for line in lines if line["kind"] in ("begin", "sent", "killed")])
    heard = _folded(told)
    kept = [event for event in stored if event["seq"] not in unheard]
    if lines[-1]["kind"] == "killed" or not told:
        kept = [event for event in kept if told and event["seq"] <= told[-1]["seq"]]
    if heard == kept:
        return []
    extra = [event for event in heard if event not in kept]
    missing = [event for event in kept if event not in heard]
    return [f"the stored log is not what was sent: sent only {extra[:3]}, stored only {missing[:3]}"]


def _heard(lines: Lines) -> tuple[Lines, set[int]]:
    """The events of one client through all lives, and the numbers that its process died before it could hear.

    What is beyond a new life's mark is dropped.
    """
    out: Lines = []
    unheard: set[int] = set()
    for line in lines:
        if line["kind"] == "begin":
            mark = line["mark"]
            out = [event for event in out if event["seq"] <= mark]
            last = out[-1]["seq"] if out else 0
            unheard = {number for number in unheard if number <= mark} | set(range(last + 1, mark + 1))
        elif line["kind"] == "sent":
            out.append(line["event"])
    return out, unheard


def _folded(events: Lines) -> Lines:
    """Blocks as their snapshots, live-only events and blocks that were cut off left out."""
    out: Lines = []
    open_: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for event in events:
        block, _, part = event["type"].partition(".")
        key = str(event.get(f"{block}Id"))
        if event["type"] in _LIVE_ONLY and part not in ("delta", "args"):
            continue
        if block in _BLOCKS and part == "start":
            open_[key] = (event, [])
        elif block in _BLOCKS and part in ("delta", "args"):
            open_[key][1].append(event["delta"])
        elif block in _BLOCKS and part == "end":
            start, texts = open_.pop(key)
            fields = {k: v for k, v in start.items() if k not in ("type", "runId", "seq", "timestamp")}
            name = "text" if block in ("content", "reasoning") else "arguments"
            times = {"seq": event["seq"], "timestamp": event["timestamp"]}
            out.append({"type": f"{block}.snapshot", **fields, name: "".join(texts), **times})
        else:
            out.append(event)
    return out


async def _said_otherwise(app: CompiledGraph, lines: Lines) -> list[str]:
    """The log has the text of each call of a model once and whole, and nothing of a call that is not shown."""
    asked = {line["what"]: line["shown"] for line in lines if line["kind"] == "read" and "shown" in line}
    stored = [event for event, _ in await app.thread(World.thread).events()]
    texts = Counter(getattr(event, "text", None) for event in stored if event.type == "content.snapshot")
    return [f"{text!r} is {texts[text]} times in the log" for text, shown in asked.items() if texts[text] != shown]


def _but_called_again(usage: dict[str, Any], expected: dict[str, Any], lines: Lines) -> dict[str, Any]:
    """The usage without the tool calls that people had made again: the one that was cut off has counted, too."""
    again = sum(
        line["kinds"][key] == "outcome_unknown" and answer["decision"] == "retry"
        for line in lines
        if line["kind"] == "answers"
        for key, answer in line["given"].items()
    )
    more = usage.get("toolCalls", 0) - expected.get("toolCalls", 0)
    return {**usage, "toolCalls": expected["toolCalls"]} if 0 < more <= again else usage


def _differences(expected: dict[str, Any], left: dict[str, Any]) -> str:
    return "; ".join(f"{key}: {expected[key]!r} became {left[key]!r}" for key in expected if expected[key] != left[key])
