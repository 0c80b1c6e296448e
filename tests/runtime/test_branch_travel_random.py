"""Random documents with branches: forked anywhere they come to where an uninterrupted run comes to (T1, T3, T10, B9)."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphflow import MemoryCheckpointer, SqliteCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import GraphflowError
from graphflow.graph.core.immutable import thaw
from graphflow.graph.validation.validate import check_document
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.history.blame import Blame
from graphflow.runtime.thread import Thread
from tests.campaign import size
from tests.graph.random_documents import SLOTS, RandomDocument, random_documents
from tests.runtime.test_branches_against_the_reference import WorkingKinds


async def told(thread: Thread) -> list[Any]:
    """Everything that a history shows, and the state at each of its checkpoints."""
    rows = await thread.history()
    return [(row, thaw((await thread.state(row.id)).values)) for row in rows]


async def sound(thread: Thread, result: Any) -> None:
    """What is read back is what ran, and what the nodes say of themselves in their texts is what the records say."""
    state = await thread.state()
    assert thaw(state.values) == thaw(result.state)
    for key in state.values:
        await thread.blame(f"state.{key}")
    for index, text in enumerate(state.values.get("log", ())):
        await true_to(await thread.blame(f"state.log[{index}]"), text)
    for slot in SLOTS:
        if text := state.values.get(slot):
            await true_to(await thread.blame(f"state.{slot}"), text)
    tree = await thread.tree()
    assert await thread.states(all_lineages=True) == [await thread.state(row.id) for row in tree]
    for row in await thread.history():
        await thread.why(row.id)


async def true_to(found: Blame, text: str) -> None:
    """`text` was written by the node that `found` names on its innermost level."""
    while found.branches:
        found = found.branches[-1]
    assert found.value == text
    node = found.node or ""
    if node.startswith(("sub", "map")):  # passed on from a state of its own, or made of what the branches gave
        return
    assert text.startswith((f"{found.path}/{node}#{found.visit}:", f"{found.path}/{node}#{found.visit}?"))


@pytest.mark.campaign
@pytest.mark.parametrize("stored", ["memory", "sqlite"])
@given(made=random_documents(), draw=st.randoms(use_true_random=False))
@settings(
    max_examples=size(12, long=1_500),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_a_fork_at_any_checkpoint_ends_as_the_run_did_and_leaves_it_untouched(
    stored: str, made: RandomDocument, draw: random.Random
) -> None:
    async def run(store: Checkpointer) -> None:
        kinds = WorkingKinds(made)
        app = CompiledGraph(check_document(made.document, kinds), kinds=kinds, checkpointer=store)
        done = await app.run({}, "t")
        thread = app.thread("t")
        before = await told(thread)
        row = draw.choice(before)[0]
        fork = await thread.fork(row.id)
        try:
            again = await app.resume(fork.id)
        except GraphflowError as refused:
            if refused.code != "nothing_to_resume" or row.next:
                raise
            again = await fork.result()
        assert again.status == done.status
        if done.error is None:
            assert thaw(again.state) == thaw(done.state)
        after = await told(thread)
        assert after == before
        await sound(fork, again)

    async def go() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store: Checkpointer = (
                MemoryCheckpointer() if stored == "memory" else SqliteCheckpointer(Path(folder) / "t.db")
            )
            try:
                await run(store)
            finally:
                await store.close()

    asyncio.run(go())
