"""States saved by hand: the names that people know from other libraries, over any store (spec 4.1)."""

from __future__ import annotations

import pytest

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import CodecError, GraphflowError, ThreadWaiting
from graphflow.runtime.travel.saved_states import SavedStates
from tests.runtime.conftest import Compile
from tests.runtime.graphs import asking, chain


async def test_what_was_saved_is_loaded_by_id_and_the_newest_without(store: Checkpointer) -> None:
    states = SavedStates(store)
    first = await states.save("t", {"n": 1, "messages": ["a"], "deep": {"list": [1, {"x": None}]}})
    second = await states.save("t", {"n": 2, "messages": ["a", "b"]})
    assert await states.list("t") == [second, first]
    assert await states.load("t", first) == {"n": 1, "messages": ["a"], "deep": {"list": [1, {"x": None}]}}
    assert await states.load_latest("t") == {"n": 2, "messages": ["a", "b"], "deep": {"list": [1, {"x": None}]}}


async def test_what_is_unknown_is_empty(store: Checkpointer) -> None:
    states = SavedStates(store)
    await states.save("t", {"n": 1})
    assert (await states.load("t", "nothing"), await states.load_latest("u"), await states.list("u")) == ({}, {}, [])


async def test_deleting_the_last_one_removes_the_thread(store: Checkpointer) -> None:
    states = SavedStates(store)
    ids = [await states.save("t", {"n": n}) for n in range(3)]
    with pytest.raises(GraphflowError, match="stands on it"):
        await states.delete("t", ids[2])
    for each in ids:
        await states.delete("t", each)
    assert await store.threads() == []


async def test_a_value_that_can_not_be_stored_changes_nothing(store: Checkpointer) -> None:
    states = SavedStates(store)
    await states.save("t", {"n": 1})
    with pytest.raises(CodecError, match="'n'"):
        await states.save("t", {"n": object()})
    assert await states.load_latest("t") == {"n": 1}
    await states.save("t", {"n": 2})
    assert len(await states.list("t")) == 2


async def test_unchanged_values_are_not_stored_again(store: Checkpointer) -> None:
    states = SavedStates(store)
    await states.save("t", {"text": "x" * 5000, "n": 0})
    await states.save("t", {"text": "x" * 5000, "n": 1})
    sizes = [line.size for line in await store.list_checkpoints("t")]
    assert sizes[0] < 200
    assert sizes[1] > 5000


@pytest.mark.parametrize(("old", "new"), [(1, True), (True, 1), ([1], [True]), ({"x": 0}, {"x": False}), (1, 1.0)])
async def test_a_value_that_python_takes_for_the_old_one_is_stored_all_the_same(
    store: Checkpointer, old: object, new: object
) -> None:
    states = SavedStates(store)
    await states.save("t", {"value": old})
    await states.save("t", {"value": new})
    assert repr(await states.load_latest("t")) == repr({"value": new})


async def test_a_graphs_thread_is_read_and_edited(compile_graph: Compile, store: Checkpointer) -> None:
    app = compile_graph(chain("a", "b")[0])
    await app.run(thread_id="t")
    states = SavedStates(store)
    assert await states.load_latest("t") == {"n": 2, "log": ["a", "b"]}
    await states.save("t", {"log": ["by hand"]})
    runs = app.host.runs
    assert runs is not None
    runs.forget("t")
    assert (await app.thread("t").state()).values.log == ["by hand"]
    done = await app.run(thread_id="t")
    assert done.state.log == ["by hand", "a", "b"]


async def test_a_thread_that_waits_for_a_person_is_left_alone(compile_graph: Compile, store: Checkpointer) -> None:
    app = compile_graph(asking()[0])
    await app.run(thread_id="t")
    with pytest.raises(ThreadWaiting):
        await SavedStates(store).save("t", {"n": 9})
    waiting = (await app.thread("t").state()).interrupts[0]
    assert (await app.answer("t", {waiting.id: 1})).status == "completed"
