"""Writes the corpus: `python -m tests.corpus.make`, by hand, when what is stored gets a new version: records, or the words of documents.

Each version has a folder `format-N` of its own: `NAME.jsonl` is the export of a thread, `NAME.json` what must be seen of it.
`threads.db` is a SQLite store in which all of them were played once more, after a clean end; where the order of branches, or a time,
came out another way, `threads.json` says what must be seen. A folder never changes again: what a later version writes goes into
a new one, and old folders are read for ever.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from graphflow import MemoryCheckpointer, SqliteCheckpointer
from tests.corpus import kinds
from tests.corpus.picture import picture, plain, state_of
from tests.corpus.scenarios import GOES_ON, SCENARIOS, Stage, newer

HERE = Path(__file__).parent
NEWEST = HERE / "format-2"
LATER = 90_000
"""Ids of what goes on from a frozen thread begin here."""


async def make(folder: Path) -> None:
    """Writes every scenario anew."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    database = folder / "threads.db"
    for name, play in SCENARIOS.items():
        store = MemoryCheckpointer()
        await play(staged(store, name))
        for row in await store.threads():
            lines = [line async for line in store.export_thread(row.thread_id)]
            _write_lines(folder / f"{row.thread_id}.jsonl", lines)
        for row in await store.threads():
            seen: dict[str, Any] = {"scenario": name, **await picture(store, row.thread_id)}
            if row.thread_id in GOES_ON:
                seen["goesOn"] = await after(store, row.thread_id)
            (folder / f"{row.thread_id}.json").write_bytes(_pretty(seen))
        await store.close()
    sqlite = SqliteCheckpointer(database)
    await sqlite.setup()
    for name, play in SCENARIOS.items():
        await play(staged(sqlite, name))
    own = {}
    for row in await sqlite.threads(limit=500):
        seen = msgspec.json.decode(msgspec.json.encode(await picture(sqlite, row.thread_id)))
        if seen != {key: value for key, value in _read(folder, row.thread_id).items() if key in seen}:
            own[row.thread_id] = seen
    await sqlite.close()
    (folder / "threads.json").write_bytes(_pretty(own))
    for left in folder.glob("threads.db[-.]*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def staged(store: Any, name: str) -> Stage:
    """The stage of a scenario: all of them may play on one store."""
    return Stage(store, first_id=1000 * (1 + list(SCENARIOS).index(name)))


async def after(store: Any, thread_id: str) -> dict[str, Any]:
    """What comes of the thread when it goes on."""
    stage = Stage(store, first_id=LATER)
    result = await GOES_ON[thread_id](stage)
    state = await newer(stage).thread(thread_id).state()
    return {"status": result.status, "output": plain(result.output), "state": state_of(state)}


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _read(folder: Path, thread_id: str) -> dict[str, Any]:
    seen: dict[str, Any] = msgspec.json.decode((folder / f"{thread_id}.json").read_bytes())
    return seen


def _write_lines(path: Path, lines: list[Any]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def main() -> None:
    kinds.register()
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else NEWEST
    asyncio.run(make(folder))
    sys.stdout.write(f"{len(SCENARIOS)} scenarios are in {folder}\n")


if __name__ == "__main__":
    main()
