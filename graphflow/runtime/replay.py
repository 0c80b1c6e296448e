"""Replay: every run is a cassette, played back up to a node and run again from there on (spec 2.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphflow.checkpoints.journal import was_checkpoint
from graphflow.checkpoints.port import Checkpointer
from graphflow.errors import GraphflowError
from graphflow.graph.document import END
from graphflow.runtime.past import Chain, machine_before, walk_back

if TYPE_CHECKING:
    from graphflow.runtime.thread import CheckpointInfo

SHOWN = 20
"""Nodes that a refusal names."""


def newest_run(rows: Sequence[CheckpointInfo]) -> list[CheckpointInfo]:
    """The checkpoints since the newest input, oldest first.

    Args:
        rows: a branch of the history, newest first.

    Raises:
        GraphflowError: there is none.
    """
    out: list[CheckpointInfo] = []
    for row in rows:
        out.append(row)
        if row.source == "input":
            break
    if not out:
        raise GraphflowError("the thread has no run yet; send it an input first", code="nothing_to_resume")
    return out[::-1]


async def moment_of(store: Checkpointer, thread_id: str, chain: Chain, until: str) -> str:
    """The checkpoint from which a replay runs again: the one in which the newest run came to a node.

    Args:
        until: the node that is the first to run again: `NODE`, `NODE#VISIT` for a later time, with its frame's path
            before it if the name alone fits several: `fan#1[2]/work`.

    Raises:
        GraphflowError: `invalid_input` when the newest run never came to that node.
    """
    name, _, visit = until.rpartition("#") if _ends_in_visit(until) else (until, "", "1")
    came = await _arrivals(store, thread_id, chain)
    fitting = [checkpoint for checkpoint, place in came if place == name or place.rpartition("/")[2] == name]
    if len(fitting) < int(visit):
        places = list(dict.fromkeys(place for _, place in came))
        reached = ", ".join(places[:SHOWN]) + (", …" if len(places) > SHOWN else "")
        raise GraphflowError(
            f"the newest run came {len(fitting)} time(s) to {name!r}, not {visit}; it came to {reached or 'no node'}",
            code="invalid_input",
        )
    return fitting[int(visit) - 1]


async def _arrivals(store: Checkpointer, thread_id: str, chain: Chain) -> list[tuple[str, str]]:
    """(checkpoint, node with its frame's path) for every time that a frame of the newest run came to stand on a node."""
    records = []
    async for record, body in walk_back(store, thread_id, chain):
        records.append((record, body))
        if body.source == "input":
            break
    if not records:
        return []
    before = await machine_before(store, thread_id, chain, records[-1][0])
    at = {number: (frame.path, frame.node) for number, frame in before.frames.items()}
    out: list[tuple[str, str]] = []
    came: dict[int, None] = {}
    for record, body in reversed(records):
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


def _ends_in_visit(until: str) -> bool:
    return until.rpartition("#")[2].isdigit() and "/" not in until.rpartition("#")[2] and "#" in until
