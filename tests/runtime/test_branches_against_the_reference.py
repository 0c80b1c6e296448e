"""Random documents run as the naive reference interpreter says, with branches that really run at once (spec 2.1 rule 5)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from graphflow import Goto, MemoryCheckpointer, NodeFailed
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import Issue
from graphflow.graph.core.immutable import thaw
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.graph.validation.validate import check_document
from graphflow.runtime.compiled_graph import CompiledGraph
from tests.campaign import size
from tests.graph.random_documents import REDUCERS, RandomDocument, RandomKinds, random_documents
from tests.graph.reference import Call, Failure, interpret, number_of, work


class WorkKind:
    """Runs the behaviour of random documents; nodes overtake each other as the call's number has it."""

    effects = "none"
    with_schema: Mapping[str, Any] | None = None
    out_schema: Mapping[str, Any] | None = None

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        return ()

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Any:
        async def run(arguments: Any, ctx: NodeRun) -> Any:
            frame = ctx._run.machine.frames[ctx.frame]
            choices = ctx.plan_node.choose or ()
            call = Call(
                node=ctx.node, path=frame.path, visit=ctx.visit, attempt=ctx.attempt, state=thaw(frame.state),
                arguments={} if choices else thaw(arguments), choices=choices,
            )  # fmt: skip
            for _ in range(number_of(call) % 4):
                await asyncio.sleep(0)
            try:
                gave = work(call)
            except Failure as failure:
                raise NodeFailed(failure.message, code=failure.code) from None
            return Goto(gave.goto) if gave.goto is not None else gave.out

        return run


class WorkingKinds(RandomKinds):
    def __init__(self, made: RandomDocument) -> None:
        super().__init__(made.graphs)
        self.kinds: dict[str, Any] = {"work": WorkKind("work"), "node:choose": WorkKind("node")}


@pytest.mark.campaign
@pytest.mark.parametrize("stored", [False, True], ids=["without a store", "with a store"])
@given(made=random_documents())
@settings(
    max_examples=size(25, long=3_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_a_run_comes_to_what_the_reference_comes_to(stored: bool, made: RandomDocument):
    wanted = interpret(check_document(made.document, made.kinds), reducers=REDUCERS)
    kinds = WorkingKinds(made)

    async def run() -> tuple[bool, dict[str, Any]]:
        store: Checkpointer | None = MemoryCheckpointer() if stored else None
        result = await CompiledGraph(check_document(made.document, kinds), kinds=kinds, checkpointer=store).run({}, "t")
        if store is not None:
            await store.close()
        return result.error is None, thaw(result.state)

    ended_well, state = asyncio.run(run())
    assert ended_well == (wanted.status == "complete")
    if ended_well or wanted.exact:
        assert state == wanted.state
