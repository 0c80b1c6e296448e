"""What people can see of a thread, as JSON: the expectation beside each frozen thread."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.runtime.thread import ThreadState
from tests.codec_json import to_json
from tests.corpus.scenarios import Stage, newer

LARGE = 2_000


async def picture(store: Checkpointer, thread_id: str) -> dict[str, Any]:
    """History, state at every checkpoint, and the log of every run."""
    thread = newer(Stage(store)).thread(thread_id)
    tree = await thread.tree()
    present = {info.id for info in await thread.history()}
    runs = dict.fromkeys(info.run_id for info in reversed(tree) if info.run_id is not None and info.id in present)
    row = await store.thread(thread_id)
    assert row is not None
    return {
        "status": (await thread.state()).status,
        "document": row.facts.document,
        "head": (await thread.state()).checkpoint_id,
        "checkpoints": [
            {
                "id": info.id, "parent": info.parent, "step": info.step, "node": info.node, "next": info.next, "source": info.source,
                "createdAt": info.created_at, "runId": info.run_id, "error": info.error, "present": info.id in present,
                "state": state_of(await thread.state(info.id)),
            }
            for info in reversed(tree)
        ],
        "events": {
            run_id: [msgspec.json.decode(msgspec.json.encode(event, enc_hook=str)) for event, _ in await thread.events(run_id)] for run_id in runs
        },
    }  # fmt: skip


def state_of(state: ThreadState) -> dict[str, Any]:
    return {
        "values": {key: plain(value) for key, value in state.values.items()},
        "frames": {path: {key: plain(value) for key, value in values.items()} for path, values in state.frames.items()},
        "next": state.next,
        "interrupts": [
            {name: plain(value) for name, value in msgspec.structs.asdict(asked).items() if value not in (None, "", ())}
            for asked in state.interrupts
        ],
        "usage": state.usage,
        "runId": state.run_id,
    }


def plain(value: Any) -> Any:
    """The value as JSON, types kept; a large one by its hash."""
    found = to_json(value)
    data = msgspec.json.encode(found)
    return found if len(data) < LARGE else {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
