"""Breakpoints of a run inside subgraphs, named by path (spec 2.4)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import CompiledGraph, GraphflowError, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer

STATE = {
    "type": "object",
    "properties": {"log": {"type": "array", "default": [], "x-reducer": "append"}},
}


def _document(**nodes: Any) -> dict[str, Any]:
    return {"graphflow": "1", "state": STATE, "start": next(iter(nodes)), "nodes": nodes}


def _step(next_node: str) -> dict[str, Any]:
    return {"use": "node:note", "next": next_node}


INNER = _document(first=_step("second"), second=_step("end"))
OUTER = _document(opening=_step("deep"), deep={"graph": INNER, "set": {"log": "['deep']"}, "next": "end"})
WHOLE = _document(
    begin=_step("sub"),
    sub={"graph": OUTER, "set": {"log": "['sub']"}, "next": "fan"},
    fan={"map": "[1, 2]", "as": "item", "do": {"graph": INNER}, "next": "wide"},
    wide={"map": "[1]", "as": "item", "do": "inside", "next": "end"},
    inside={"graph": INNER, "next": "end"},
)


@pytest.fixture
def app(store: Checkpointer) -> CompiledGraph:
    async def note(state: Any, ctx: Any) -> dict[str, Any]:
        return {"log": [ctx.node]}

    return load_graph(WHOLE, nodes={"note": note}, checkpointer=store)


async def stops_of(app: CompiledGraph, **breakpoints: Any) -> list[str]:
    """Where the run stops, one after the other, until it is completed."""
    result = await app.run({}, "t", **breakpoints)
    stops = []
    while result.status == "waiting":
        stops += [asked.node for asked in result.interrupts]
        result = await app.answer("t", {asked.id: {"decision": "continue"} for asked in result.interrupts})
    assert result.status == "completed"
    return stops


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sub/opening", 1),
        ("sub/deep", 1),
        ("sub/deep/first", 1),
        ("sub/deep/*", 2),
        ("sub/*", 2),
        ("fan/second", 2),
        ("fan#1[1]/second", 1),
        ("fan[0]/first", 1),
        ("inside/first", 1),
        ("wide/inside/first", 1),
        ("wide/inside", 1),
        ("wide#1[0]/inside#1/second", 1),
        ("sub#1/deep#1/second", 1),
        ("inside", 1),
        ("*", 5),
    ],
)
@pytest.mark.parametrize("when", ["interrupt_before", "interrupt_after"])
async def test_a_run_stops_at_the_nodes_that_a_path_names_and_at_no_others(
    app: CompiledGraph, name: str, expected: int, when: str
) -> None:
    assert len(await stops_of(app, **{when: [name]})) == expected


@pytest.mark.parametrize(
    "name",
    ["deep", "first", "sub/first", "sub/nope", "begin/first", "sub//deep", "/begin", "sub/", "nope/*", "begin/*"],
)
async def test_a_path_that_names_no_node_is_refused_before_anything_runs(app: CompiledGraph, name: str) -> None:
    with pytest.raises(GraphflowError) as refused:
        await app.run({}, "t", interrupt_before=[name])
    assert refused.value.code == "invalid_input" and name in refused.value.message
    assert app.host.store is not None
    assert await app.host.store.thread("t") is None
