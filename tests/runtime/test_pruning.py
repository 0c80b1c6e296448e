"""Pruned threads of real graphs: what is left is right, and what is gone is said to be gone (spec 4.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from graphflow import Graph, append
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.encryption.checkpointer import EncryptedCheckpointer
from graphflow.checkpoints.event_log import was_checkpoint
from graphflow.checkpoints.record_decoder import decode_body
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.errors import CheckpointNotFound, EffectsNeedChoice, GraphflowError
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.runs.live_runs import registry_of
from tests.runtime.conftest import Compile
from tests.runtime.graphs import asking, chain
from tests.runtime.test_effects import Post, build


class Notes(TypedDict):
    n: int
    page: str
    log: Annotated[list[str], append]


def writer(pages: int = 30) -> Graph:
    """A loop that rewrites a page of a kilobyte and notes it: snapshots come every dozen steps."""
    graph = Graph(Notes, input={"type": "object"}, budget={"maxSteps": 10_000})

    @graph.node(next=[{"if": f"state.n % {pages} == 0", "to": "end"}, {"to": "write"}])
    async def write(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1, "page": f"{state.n + 1:04}" * 250, "log": [f"page {state.n + 1}"]}

    return graph


async def three_runs(compile_graph: Compile) -> CompiledGraph:
    app = compile_graph(writer())
    for _ in range(3):
        await app.run({}, "t")
    return app


def forget(app: CompiledGraph) -> None:
    """What this process keeps of the thread, so that it is read from the store."""
    runs = app.host.runs
    assert runs is not None
    runs.forget("t")


async def test_every_checkpoint_that_is_left_has_the_state_that_it_had(compile_graph: Compile) -> None:
    app = await three_runs(compile_graph)
    thread = app.thread("t")
    rows = await thread.history()
    fork = await thread.fork(rows[50].id, thread_id="fork")
    states = {row.id: await thread.state(row.id) for row in rows}
    forked = await fork.state()
    pruned = await thread.prune(newest=10)
    assert (pruned.checkpoints, pruned.kept) == (len(rows) - 11, 11)
    assert pruned.records > 50
    left = await thread.history()
    assert [row.id for row in left] == [*[row.id for row in rows[:10]], rows[50].id]
    for row in left:
        assert await thread.state(row.id) == states[row.id]
    assert await thread.states() == [states[row.id] for row in left]  # across what is missing between them
    assert (await fork.state()).values == forked.values
    with pytest.raises(CheckpointNotFound):
        await thread.state(rows[20].id)


async def test_a_pruned_thread_goes_on_rewinds_forks_and_takes_new_input(compile_graph: Compile) -> None:
    app = await three_runs(compile_graph)
    thread = app.thread("t")
    rows = await thread.history()
    await thread.prune(newest=5)
    forget(app)
    done = await app.run({}, "t")
    assert done.state.n == 120
    assert done.state.log[-1] == "page 120"
    assert len(done.state.log) == 120
    await thread.rewind(rows[3].id)
    resumed = await app.resume("t")
    assert (resumed.state.n, len(resumed.state.log)) == (90, 90)
    fork = await thread.fork(rows[4].id)
    assert (await fork.state()).values.n == (await thread.state(rows[4].id)).values.n == 86


async def test_the_log_of_a_pruned_run_is_refused_and_not_told_in_part(compile_graph: Compile) -> None:
    app = await three_runs(compile_graph)
    thread = app.thread("t")
    rows = await thread.history()
    first, last = rows[-1].run_id, rows[0].run_id
    assert first is not None
    whole = await thread.events(last)
    for keep, known in ((40, True), (10, False)):  # the newest run has 31 checkpoints
        await thread.prune(newest=keep)
        forget(app)
        with pytest.raises(CheckpointNotFound, match="pruned") as caught:
            await thread.events(first)
        assert caught.value.detail["pruned"] is True
        assert await thread.events(first, whole=False) == []
        if known:
            assert await thread.events(last) == whole
            continue
        with pytest.raises(CheckpointNotFound, match="pruned"):
            await thread.events(last)
        tail = await thread.events(last, whole=False)
        numbered = [(event.type, seq) for event, seq in whole]
        assert [entry for entry in numbered if entry in [(e.type, seq) for e, seq in tail]] == [
            (event.type, seq) for event, seq in tail
        ]
        assert tail[-1] == whole[-1]
        assert 20 < len(tail) < len(whole)
    assert await thread.events("no run of this thread") == []


async def test_what_can_only_be_told_from_pruned_records_is_said_to_be_pruned(compile_graph: Compile) -> None:
    app = await three_runs(compile_graph)
    thread = app.thread("t")
    rows = await thread.history()
    before = await thread.blame("log[-1]"), await thread.why(rows[1].id)
    await thread.prune(newest=3)
    assert (await thread.blame("log[-1]"), await thread.why(rows[1].id)) == before
    with pytest.raises(CheckpointNotFound, match="pruned"):
        await thread.blame("log[0]")
    assert (await thread.cost()).total == {}


async def test_write_effects_behind_a_checkpoint_that_is_left_still_need_a_choice(
    compile_graph: Compile,
) -> None:
    post = Post()
    app, world = build(compile_graph, post)
    await app.run(thread_id="t")
    thread = app.thread("t")
    rows = await thread.history()
    early = rows[-1].id
    await thread.fork(early, thread_id="fork", effects="rerun")  # its fork point keeps that checkpoint
    effects = await thread.effects(early)
    assert len(effects) == 2
    await thread.prune(newest=1)
    forget(app)
    assert [row.id for row in await thread.history()] == [rows[0].id, early]
    assert await thread.effects(early) == effects
    with pytest.raises(EffectsNeedChoice):
        await thread.rewind(early)
    await thread.rewind(early, effects="reuse")
    await thread.prune(newest=1)  # the branch that was left goes, but not the results that are taken up again
    forget(app)
    done = await app.resume("t")
    assert done.state.n == 10
    assert (len(post.sent), len(world)) == (1, 1)  # nothing was done twice


async def test_an_undo_is_possible_after_a_prune(compile_graph: Compile) -> None:
    post = Post()
    app, _ = build(compile_graph, post)
    await app.run(thread_id="t")
    thread = app.thread("t")
    early = (await thread.history())[-1].id
    await thread.fork(early, thread_id="fork", effects="rerun")
    await thread.prune(newest=1)
    await thread.rewind(early, effects="undo")
    assert post.recalled[0]["result"] == 1
    assert post.recalled[1]["arguments"] == {"text": "mail 1"}


async def test_an_open_question_survives_any_prune_and_is_answered(compile_graph: Compile) -> None:
    graph, ran = asking()
    app = compile_graph(graph)
    for _ in range(3):
        waiting = await app.run(thread_id="t")
        (question,) = waiting.interrupts
        await app.answer("t", {question.id: 1})
    waiting = await app.run(thread_id="t")
    (question,) = waiting.interrupts
    await app.thread("t").prune(newest=0)
    forget(app)
    assert question.id.rpartition(".")[0] in {row.id for row in await app.thread("t").history()}
    ran.clear()
    done = await app.answer("t", {question.id: 5})
    assert (done.status, done.state.n, ran) == ("completed", 16, ["after"])


async def test_a_checkpoint_can_be_deleted_and_the_last_takes_the_thread_along(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b", "c")[0])
    await app.run(thread_id="t")
    thread = app.thread("t")
    rows = await thread.history()
    state = await thread.state(rows[1].id)
    await thread.delete_checkpoint(rows[2].id)
    assert [row.id for row in await thread.history()] == [rows[0].id, rows[1].id, rows[3].id]
    assert await thread.state(rows[1].id) == state
    with pytest.raises(GraphflowError, match="stands on it"):
        await thread.delete_checkpoint(rows[0].id)
    await thread.delete_checkpoint(rows[1].id)
    await thread.delete_checkpoint(rows[3].id)
    await thread.delete_checkpoint(rows[0].id)
    assert await registry_of(app.host.store).here(app.host.clock).store.threads() == []  # type: ignore[arg-type] # it has one


async def test_what_was_a_checkpoint_is_known_of_records_that_history_hides(
    compile_graph: Compile, store: Checkpointer
) -> None:
    """What followed the last commits is told from records; a pruned checkpoint's own event keeps its number (E1)."""
    post = Post()
    mails, _ = build(compile_graph, post)
    await mails.run(thread_id="mails")
    early = (await mails.thread("mails").history())[-1].id
    await mails.thread("mails").rewind(early, effects="undo")
    await mails.resume("mails")
    questions = compile_graph(asking()[0], ids=mails.host.ids)
    waiting = await questions.run(thread_id="questions")
    await questions.answer("questions", {waiting.interrupts[0].id: 1})
    kinds = set()
    for name in ("mails", "questions"):
        for lineage in {line.lineage for line in await store.list_checkpoints(name, all_lineages=True)}:
            for record in await store.read_records(name, lineage=lineage, after=0, upto=1000):
                body = decode_body(record.data)
                kinds.add((body.source, record.checkpoint))
                hidden = msgspec.structs.replace(record, checkpoint=False)
                assert was_checkpoint(hidden, body) == record.checkpoint, body.source
    assert {("operation", False), ("undo", False), ("answer", True), ("node", True), ("rewind", True)} <= kinds


async def test_a_waiting_runs_numbers_go_on_after_a_prune(compile_graph: Compile) -> None:
    each = compile_graph(asking()[0])
    numbers = []
    for name in ("pruned", "whole"):
        for _ in range(2):
            waiting = await each.run(thread_id=name)
            (question,) = waiting.interrupts
            if name == "pruned":
                await each.thread(name).prune(newest=0)
            runs = each.host.runs
            assert runs is not None
            runs.forget(name)
            await each.answer(name, {question.id: 1})
        events = await each.thread(name).events(whole=False)
        numbers.append({(event.type, event.seq) for event, _ in events})
    assert numbers[0] <= numbers[1]
    assert max(seq for _, seq in numbers[0]) == max(seq for _, seq in numbers[1])


async def test_a_prune_while_the_thread_runs_changes_nothing_for_the_run(
    compile_graph: Compile, store: Checkpointer
) -> None:
    app = compile_graph(writer())
    await app.run({}, "t")
    seen = 0
    async for event in app.stream({}, "t"):
        if event.type == "checkpoint.create":
            seen += 1
            if seen % 5 == 0:
                await app.thread("t").prune(newest=1)
    forget(app)
    state = await app.thread("t").state()
    assert (state.values.n, len(state.values.log)) == (60, 60)


async def test_a_run_is_stored_encrypted_and_comes_back(tmp_path: Path) -> None:
    key = "k:" + "A" * 43 + "="
    store = EncryptedCheckpointer(SqliteCheckpointer(tmp_path / "t.db"), [key], compression=True)
    app = writer().compile(checkpointer=store)
    await app.run({}, "t")
    await app.run({}, "t")
    forget(app)
    rows = await app.thread("t").history()
    assert (await app.thread("t").state(rows[40].id)).values.n == 21
    await app.thread("t").prune(newest=20)
    await app.thread("t").fork(rows[10].id)
    assert (await app.thread("t").state()).values.n == 60
    assert len(await app.thread("t").events(whole=False)) > 0
    await store.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"page 1" not in content
    assert b"0042004200420042" not in content


async def test_a_replay_from_what_was_pruned_is_refused_and_runs_nothing(compile_graph: Compile) -> None:
    graph, ran = chain("a", "b", "c", "d")
    app = compile_graph(graph)
    await app.run(thread_id="t")
    await app.thread("t").prune(newest=2)
    ran.clear()
    for until in (None, "a", "b", "c"):
        with pytest.raises(CheckpointNotFound, match="pruned") as caught:
            await app.replay("t", until)
        assert caught.value.detail["pruned"] is True
    assert ran == []
    assert (await app.replay("t", "d")).state.n == 4
    assert ran == ["d"]
