"""Messages by their ids: pages of them, answering one anew, putting other words in its place (spec 3.2, E8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphflow import Context, Graph, SqliteCheckpointer
from graphflow.errors import CheckpointNotFound, EffectsNeedChoice, GraphflowError
from graphflow.runtime.compiled_graph import CompiledGraph

STATE = {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}}


class Talk:
    """Answers each message with the message and a number; the first word `send` makes it write."""

    def __init__(self) -> None:
        self.said = 0
        self.sent: list[str] = []
        self.unsent: list[Any] = []

    def app(self, store: Any) -> CompiledGraph:
        graph = Graph(STATE, name="talk")

        async def act(state: Any, ctx: Context) -> None:
            query = ctx.input["query"]
            if query.startswith("send"):

                async def send() -> str:
                    self.sent.append(query)
                    return str(query)

                await ctx.step("send", send, arguments=query, effects="write")

        async def say(state: Any, ctx: Context) -> None:
            self.said += 1
            await ctx.content(f"{ctx.input['query']} {self.said}")

        graph.node(name="act", next="say")(act)
        graph.node(name="say", next="end")(say)
        return graph.compile(checkpointer=store)


async def shown(app: CompiledGraph, thread_id: str = "t") -> list[tuple[Any, str]]:
    found, _ = await app.thread(thread_id).messages()
    return [(message.role, message.content) for message in found][::-1]


async def test_a_message_is_answered_anew_and_the_former_answer_stays_reachable(store: Any) -> None:
    app = Talk().app(store)
    for query in ("a", "b"):
        await app.run(query, thread_id="t")
    found, _ = await app.thread("t").messages()
    assert [(m.role, m.content) for m in found] == [
        ("assistant", "b 2"),
        ("user", "b"),
        ("assistant", "a 1"),
        ("user", "a"),
    ]
    former = await app.thread("t").state()
    for message, number in ((found[0], 3), (found[1], 4), (found[0], 5)):
        again = await app.regenerate("t", message.message_id)
        assert again.status == "completed" and again.run_id != found[1].run_id
        assert await shown(app) == [("user", "a"), ("assistant", "a 1"), ("user", "b"), ("assistant", f"b {number}")]
    assert former.checkpoint_id in [row.id for row in await app.thread("t").tree()]
    await app.thread("t").rewind(former.checkpoint_id or "")
    assert (await shown(app))[-1] == ("assistant", "b 2")
    assert (await app.regenerate("t", found[3].message_id)).status == "completed"
    assert await shown(app) == [("user", "a"), ("assistant", "a 6")]


async def test_other_words_take_the_place_of_a_message_also_of_the_first_one(store: Any) -> None:
    app = Talk().app(store)
    for query in ("a", "b"):
        await app.run(query, thread_id="t")
    found, _ = await app.thread("t").messages()
    edited = await app.edit_message("t", found[1].message_id, "B")
    assert await shown(app) == [("user", "a"), ("assistant", "a 1"), ("user", "B"), ("assistant", "B 3")]
    assert (await app.thread("t").messages())[0][1].message_id == edited.run_id
    await app.edit_message("t", found[3].message_id, "A")
    assert await shown(app) == [("user", "A"), ("assistant", "A 4")]
    # Ids of a branch that was left still name what was said there.
    await app.edit_message("t", found[1].message_id, "bb")
    assert await shown(app) == [("user", "a"), ("assistant", "a 1"), ("user", "bb"), ("assistant", "bb 5")]


async def test_ids_are_the_same_in_events_in_a_fork_and_after_an_export(store: Any, tmp_path: Path) -> None:
    app = Talk().app(store)
    events: list[Any] = [event async for event in app.stream("a", thread_id="t")]
    block = next(event.content_id for event in events if event.type == "content.start")
    run = next(event.run_id for event in events if event.type == "run.start")
    assert [m.message_id for m in (await app.thread("t").messages())[0]] == [block, run]
    await app.thread("t").fork(thread_id="f")
    assert [m.message_id for m in (await app.thread("f").messages())[0]] == [block, run]
    await app.edit_message("f", run, "x")
    assert await shown(app, "f") == [("user", "x"), ("assistant", "x 2")]
    assert await shown(app) == [("user", "a"), ("assistant", "a 1")]
    other = SqliteCheckpointer(tmp_path / "other.db")
    await other.setup()
    await other.import_thread(store.export_thread("t"))
    copy = Talk().app(other)
    assert (await copy.regenerate("t", block)).status == "completed"


async def test_writes_behind_a_message_need_a_choice(store: Any) -> None:
    talk = Talk()
    app = talk.app(store)
    result = await app.run("send a", thread_id="t")
    for call in (app.regenerate("t", result.run_id), app.edit_message("t", result.run_id, "send b")):
        with pytest.raises(EffectsNeedChoice):
            await call
    with pytest.raises(GraphflowError, match="rerun, undo") as refused:
        await app.edit_message("t", result.run_id, "send b", effects="reuse")
    assert refused.value.code == "invalid_input"
    assert await shown(app) == [("user", "send a"), ("assistant", "send a 1")]
    await app.regenerate("t", result.run_id, effects="reuse")
    assert talk.sent == ["send a"]
    await app.regenerate("t", result.run_id, effects="rerun")
    assert talk.sent == ["send a"] * 2
    await app.edit_message("t", result.run_id, "send b", effects="rerun")
    assert talk.sent == ["send a", "send a", "send b"]


async def test_pages_of_messages_follow_each_other_whatever_their_size(store: Any) -> None:
    app = Talk().app(store)
    for number in range(7):
        await app.run(f"q{number}", thread_id="t")
    whole, end = await app.thread("t").messages()
    assert (len(whole), end) == (14, None)
    for size in (1, 2, 3, 5, 13, 14):
        pages, cursor = [], None
        while True:
            page, cursor = await app.thread("t").messages(size, cursor=cursor)
            pages.append(page)
            if cursor is None:
                break
        assert [message for page in pages for message in page] == whole
        assert {len(page) for page in pages[:-1]} <= {size}
    for wrong in ("x", "1.2", "1.2.3", "9" * 30):
        with pytest.raises(GraphflowError, match="cursor"):
            await app.thread("t").messages(cursor=wrong)


async def test_what_is_no_message_is_refused_and_nothing_changes(store: Any) -> None:
    app = Talk().app(store)
    await app.run("a", thread_id="t")
    head = (await app.thread("t").state()).checkpoint_id
    answer = (await app.thread("t").messages())[0][0].message_id
    for call in (app.regenerate("t", "nobody"), app.edit_message("t", "nobody", "x")):
        with pytest.raises(GraphflowError) as refused:
            await call
        assert refused.value.code == "message_not_found"
    with pytest.raises(GraphflowError, match="is an answer") as refused:
        await app.edit_message("t", answer, "x")
    assert refused.value.code == "invalid_input"
    with pytest.raises(TypeError, match="no option 'budgets'"):
        await app.edit_message("t", answer, "x", budgets={})  # type: ignore[call-arg]
    assert (await app.thread("t").state()).checkpoint_id == head


async def test_after_a_prune_the_message_is_refused_and_not_guessed(store: Any) -> None:
    app = Talk().app(store)
    first = await app.run("a", thread_id="t")
    await app.run("b", thread_id="t")
    await app.thread("t").prune(newest=1)
    for call in (app.regenerate("t", first.run_id), app.edit_message("t", first.run_id, "x")):
        with pytest.raises((CheckpointNotFound, GraphflowError)) as refused:
            await call
        assert refused.value.code in ("checkpoint_not_found", "message_not_found")
