"""What a thread has used: tokens, calls, money and time by run, node and model, from its records (spec 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.record_decoder import RecordBody, beside_loop, decode_meta
from graphflow.checkpoints.rows import Record
from graphflow.graph.core.budget import add_usage, known_usage, usage_between
from graphflow.runtime.history.walk import walk_back

Usage = dict[str, Any]


class Cost(msgspec.Struct, kw_only=True):
    """Figures of the present branch: `promptTokens`, `completionTokens`, `modelCalls`, `toolCalls`, `costUsd`, `activeMs`, …

    A `costUsd` of None is not known: a call has no known price, or its provider reported no tokens (then those are None
    too).
    """

    total: Usage = msgspec.field(default_factory=dict)
    runs: dict[str, Usage] = msgspec.field(default_factory=dict)
    """By run, the newest first."""
    nodes: dict[str, Usage] = msgspec.field(default_factory=dict)
    models: dict[str, Usage] = msgspec.field(default_factory=dict)
    """By `provider/model`."""


async def cost_of(store: Checkpointer, loaded: Loaded) -> Cost:
    """What was used on this branch, failed attempts included; reads its whole history, or what is left of it."""
    rows = [
        row async for row in walk_back(store, loaded.row.thread_id, loaded.chain, whole=False) if "usage" in row[1].patch.machine
    ]  # fmt: skip
    return await beside_loop(rows, _cost, rows)


def _cost(rows: list[tuple[Record, RecordBody]]) -> Cost:
    cost = Cost()
    # Increments are found oldest first; runs are listed newest first.
    for record, body, usage in reversed(list(increments(reversed(rows)))):
        model = (body.facts or {}).get("model")
        cost.total = add_usage(cost.total, usage)
        _count(cost.runs, decode_meta(record.meta, record.id).run_id, usage)
        if body.node:
            _count(cost.nodes, body.node, usage)
        if model:
            _count(cost.models, "/".join(model), usage)
    cost.total = known_usage(cost.total)
    for table in (cost.runs, cost.nodes, cost.models):
        for name, usage in table.items():
            table[name] = known_usage(usage)
    rows.clear()  # thousands of records are freed here and not by the event loop
    return cost


def increments(rows: Iterable[tuple[Record, RecordBody]]) -> Iterator[tuple[Record, RecordBody, Usage]]:
    """The records of one branch, oldest first, that added to the usage, with what each added."""
    before: Usage = {}
    for record, body in rows:
        after = body.patch.machine.get("usage")
        if after is None:
            continue
        # Usage begins again with each input (E9).
        if body.source == "input":
            before = {}
        if added := usage_between(before, after):
            yield record, body, added
        before = after


def _count(table: dict[str, Usage], name: str, usage: Usage) -> None:
    table[name] = add_usage(table.get(name, {}), usage)
