"""What a thread has used: tokens and calls by run, node and model, from its records (spec 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.checkpoints.journal import Loaded, decode_meta
from graphflow.checkpoints.port import Checkpointer
from graphflow.graph.scope import add_usage
from graphflow.runtime.past import node_ends, walk_back

Usage = dict[str, Any]


class Cost(msgspec.Struct, kw_only=True):
    """Figures of the present branch: `promptTokens`, `completionTokens`, `modelCalls`, `toolCalls`, …"""

    total: Usage = msgspec.field(default_factory=dict)
    runs: dict[str, Usage] = msgspec.field(default_factory=dict)
    """By run, the newest first."""
    nodes: dict[str, Usage] = msgspec.field(default_factory=dict)
    models: dict[str, Usage] = msgspec.field(default_factory=dict)
    """By `provider/model`."""


async def cost_of(store: Checkpointer, loaded: Loaded) -> Cost:
    """What the nodes that finished on this branch have used; reads its whole history, or what is left of it."""
    cost = Cost()
    async for record, body in walk_back(store, loaded.row.thread_id, loaded.chain, whole=False):
        model = (body.facts or {}).get("model")
        for end in node_ends(body):
            if end.usage:
                called = model if end.node == body.node else None
                _count(cost, decode_meta(record.meta).run_id, end.node, called, end.usage)
    return cost


def _count(cost: Cost, run_id: str, node: str, model: Any, usage: Mapping[str, Any]) -> None:
    cost.total = add_usage(cost.total, usage)
    places = [(cost.runs, run_id), (cost.nodes, node)]
    if model:
        places.append((cost.models, "/".join(model)))
    for table, name in places:
        table[name] = add_usage(table.get(name, {}), usage)
