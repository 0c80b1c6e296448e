"""A damaged export: what is accepted can be read in every part, and what is refused leaves nothing (spec 4.1).

The threads are those of the corpus, which have every kind of record. A damage flips, cuts or swaps one thing.
"""

from __future__ import annotations

import base64
import copy
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphflow import MemoryCheckpointer, SqliteCheckpointer
from graphflow.checkpoints import codec
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import StoreError
from graphflow.runtime.queue_codec import decode_queued
from tests.campaign import size
from tests.corpus import kinds
from tests.corpus.picture import picture
from tests.registered_types import own_types

FOLDER = Path(__file__).parent.parent / "corpus" / "format-2"
NAMES = ("asked", "chain", "forked", "mapped", "nested", "recovered", "reducers", "signalled", "tools", "travelled")
Lines = list[dict[str, Any]]
BLOBS = ("meta", "data", "snapshot", "body")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with own_types():
        kinds.register()
        yield


def exported(name: str) -> Lines:
    return [msgspec.json.decode(line) for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines()]


async def stream(lines: Lines) -> AsyncIterator[dict[str, Any]]:
    for line in lines:
        yield line


def rows_of(lines: Lines, draw: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row and the thing in it to damage: itself, or one of its items."""
    row = draw.choice([line["row"] for line in lines if "row" in line])
    return (row, draw.choice(row["items"])) if row.get("items") and draw.random() < 0.3 else (row, row)


def damaged(lines: Lines, seed: int) -> Lines:
    draw, lines = random.Random(seed), copy.deepcopy(lines)
    _, row = rows_of(lines, draw)
    key = draw.choice([name for name in row if row[name] is not None])
    value = row[key]
    how = draw.choice(("flip", "cut", "swap", "drop", "thread"))
    if how == "swap":
        others = [line["row"] for line in lines if "row" in line and line["row"].get(key) not in (None, value)]
        if others:
            other = draw.choice(others)
            row[key], other[key] = other[key], row[key]
    elif how == "drop":
        at = draw.randrange(1, len(lines) - 1)
        del lines[at]
        lines[-1] = {**lines[-1], "lines": len(lines)}
    elif how == "thread":
        thread = lines[0]["thread"]
        name = draw.choice([name for name in thread if name != "thread_id"])
        thread[name] = draw.choice((None, "x\0y", "\ud800", -1, 1 << 70, thread[name]))
    elif isinstance(value, str) and key in BLOBS:
        raw = bytearray(base64.b64decode(value))
        if how == "cut":
            del raw[draw.randrange(len(raw) or 1) :]
        elif raw:
            raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        row[key] = base64.b64encode(raw).decode()
    elif how == "cut":
        del row[key]
    else:
        row[key] = draw.choice((None, -1, 0, 1 << 64, "", "x\0y", [], {}, value))
    return lines


async def everything(store: Checkpointer, name: str) -> None:
    await picture(store, name)
    for asked in await store.open_interrupts(thread_id=name):
        codec.decode(asked.data)
    for queued in await store.queue(name):
        decode_queued(queued)
    assert [line async for line in store.export_thread(name)]


@pytest.mark.campaign
@pytest.mark.parametrize("name", NAMES)
async def test_what_is_accepted_is_readable_and_what_is_refused_leaves_nothing(name: str, tmp_path: Path):
    lines, accepted, refused = exported(name), 0, 0
    sqlite = SqliteCheckpointer(tmp_path / "threads.db")
    await sqlite.setup()
    for seed in range(size(60, long=5_000)):
        changed = damaged(lines, seed)
        for store in (MemoryCheckpointer(), sqlite):
            try:
                assert await store.import_thread(stream(changed)) == name
            except StoreError:
                refused += 1
                assert await store.threads() == [], f"seed {seed}"
                assert await store.open_interrupts() == [], f"seed {seed}"
            else:
                accepted += 1
                await everything(store, name)
                await store.delete_thread(name)
    assert refused > accepted > 0
    await sqlite.close()
