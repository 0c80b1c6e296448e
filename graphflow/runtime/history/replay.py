"""Replay: every run is a cassette, played back up to a node and run again from there on (spec 2.5)."""

from __future__ import annotations

import re

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.event_log import was_checkpoint
from graphflow.checkpoints.record_decoder import RecordBody
from graphflow.checkpoints.rows import Record
from graphflow.errors import GraphflowError
from graphflow.excerpts import count
from graphflow.graph.definition.document import END
from graphflow.runtime.history.walk import Chain, machine_before, walk_back

SHOWN = 20
"""Nodes that a refusal names."""
_WITH_VISIT = re.compile(r"(?P<name>.+)#(?P<visit>[0-9]+)")


async def moment_of(store: Checkpointer, thread_id: str, chain: Chain, until: str | None) -> str:
    """Id of the checkpoint from which a replay runs again: the one in which the newest run came to a node.

    Args:
        until: the node that is the first to run again: `NODE`, `NODE#VISIT` for a later time, with its frame's path
            before it if the name alone fits several: `fan#1[2]/work`. None: the run's first.

    Raises:
        GraphflowError: `invalid_input` when the newest run never came to that node, `nothing_to_resume` without a run.
        CheckpointNotFound: records of the run were pruned.
    """
    run = await _newest_run(store, thread_id, chain)
    if until is None:
        return run[0][0].id
    match = _WITH_VISIT.fullmatch(until)
    name, visit = (match["name"], int(match["visit"])) if match is not None else (until, 1)
    came = await _arrivals(store, thread_id, chain, run)
    fitting = [checkpoint for checkpoint, place in came if place == name or place.rpartition("/")[2] == name]
    if not 1 <= visit <= len(fitting):
        places = list(dict.fromkeys(place for _, place in came))
        reached = ", ".join(places[:SHOWN]) + (", …" if len(places) > SHOWN else "")
        raise GraphflowError(
            f"the newest run {_came(len(fitting), name, visit)}; it came to {reached or 'no node'}",
            code="invalid_input",
        )
    return fitting[visit - 1]


def _came(times: int, name: str, visit: int) -> str:
    return (
        f"has no visit {visit} of {name!r}: it came there {count(times, 'time')}"
        if times
        else f"did not come to {name!r}"
    )


Run = list[tuple[Record, RecordBody]]


async def _newest_run(store: Checkpointer, thread_id: str, chain: Chain) -> Run:
    """The records since the newest input, oldest first."""
    records: Run = []
    async for record, body in walk_back(store, thread_id, chain):
        records.append((record, body))
        if body.source == "input":
            return records[::-1]
    raise GraphflowError("the thread has no run yet; send it an input first", code="nothing_to_resume")


async def _arrivals(store: Checkpointer, thread_id: str, chain: Chain, run: Run) -> list[tuple[str, str]]:
    """(checkpoint, node with its frame's path) for every time that a frame of the run came to stand on a node."""
    before = await machine_before(store, thread_id, chain, run[0][0])
    at = {number: (frame.path, frame.node) for number, frame in before.frames.items()}
    out: list[tuple[str, str]] = []
    # A dict, not a set: arrivals keep their order.
    came: dict[int, None] = {}
    for record, body in run:
        for number, change in body.patch.frames.items():
            if change is None:
                came.pop(number, None)
                continue
            fields = change.fields
            path, node = at.get(number, ("", ""))
            at[number] = path, node = fields.get("path", path), fields.get("node", node)
            if "visit" in fields or "node" in fields:
                came[number] = None
        if was_checkpoint(record, body):
            out += [
                (record.id, f"{path}/{node}" if path else node)
                for path, node in map(at.__getitem__, came)
                if node != END
            ]
            came.clear()
    return out
