"""Chats are found by their names and by what was said in them, and the long-term store outlives threads (spec 5.2, 5.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from graphflow.errors import GraphflowError
from graphflow.memory.conversations import InMemoryConversations
from graphflow.service.application import Application
from graphflow.service.chats import search as conversations
from graphflow.service.chats.chats import chats
from graphflow.service.threads import delete, update
from tests.service.clients import begin, query_of

Opened = Callable[..., Awaitable[Application]]
KEYS = {"GRAPHFLOW_STORE_KEYS": "k1:" + "a2tr" * 10 + "a2s="}


async def say(app: Application, message: str, chat_id: str, agent: str = "plain") -> None:
    run = (await begin(app, query_of(message=message, chat_id=chat_id, agent_key=agent))).run
    await run.over.wait()


async def found(app: Application, query: str, **options: Any) -> list[str]:
    return [line["chatId"] for line in (await chats(app, query=query, **options))[0]]


async def test_chats_are_found_by_name_question_and_answer(open_application: Opened) -> None:
    app = await open_application()
    await say(app, "Green tea, please, and not too hot", "tea")
    await say(app, "北京的天气怎么样？", "weather")
    assert await found(app, "TEA hot") == ["tea"]
    assert await found(app, "天气") == ["weather"]
    assert await found(app, "upon a time") == ["weather", "tea"]  # the model tells both the same story
    assert await found(app, "coffee") == []
    assert await found(app, "  ") == ["weather", "tea"]


async def test_what_was_said_since_the_last_search_is_found(open_application: Opened) -> None:
    app = await open_application()
    await say(app, "one", "a")
    assert await found(app, "later") == []
    await say(app, "and later", "a")
    await say(app, "later too", "b")
    assert await found(app, "later") == ["b", "a"]


async def test_a_search_reads_again_only_what_has_changed(
    open_application: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await open_application()
    for chat_id in "abc":
        await say(app, "hello", chat_id)
    assert len(await found(app, "hello")) == 3
    taken: list[str] = []
    save = app.conversations.save

    async def counted(conversation: Any) -> None:
        taken.append(conversation.chat_id)
        await save(conversation)

    monkeypatch.setattr(app.conversations, "save", counted)
    await say(app, "hello again", "b")
    assert await found(app, "hello") == ["b", "c", "a"]
    other = await open_application()
    monkeypatch.setattr(other.conversations, "save", counted)
    assert await found(other, "hello") == ["b", "c", "a"]
    assert taken == ["b"]


async def test_a_chat_that_is_deleted_while_a_search_looks_through_the_threads_disturbs_nobody(
    open_application: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await open_application()
    for chat_id in "abcd":
        await say(app, "hello", chat_id)
    monkeypatch.setattr(conversations, "PAGE", 2)
    save = app.conversations.save

    async def deleting(conversation: Any) -> None:
        await save(conversation)
        if conversation.chat_id == "c":
            await delete(app, "c")  # the last of its page

    monkeypatch.setattr(app.conversations, "save", deleting)
    assert await found(app, "hello") == ["d", "b", "a"]


async def test_what_was_written_into_a_record_by_hand_breaks_no_search(open_application: Opened) -> None:
    app = await open_application()
    await say(app, "hello", "a")
    await say(app, "hello", "b")
    odd: list[Any] = [{"content": 7}, {"content": "x"}, {"tool_calls": 7}, {"tool_calls": [7, {"function": "f"}]}]
    line = {"chatId": "a", "runId": "by-hand", "messages": odd}
    with app.chat_record.files.path("a").open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")
    assert await found(app, "hello") == ["b", "a"]


async def test_a_record_that_can_not_be_read_hides_its_chat_alone_and_only_as_long(open_application: Opened) -> None:
    app = await open_application()
    await say(app, "hello", "a")
    await say(app, "hello", "b")
    path = app.chat_record.files.path("a")
    whole = path.read_bytes()
    path.unlink()
    path.mkdir()
    assert await found(app, "hello") == ["b"]
    path.rmdir()
    path.write_bytes(whole)
    assert await found(app, "hello") == ["b", "a"]


async def test_a_run_whose_line_a_crash_has_left_out_is_found(open_application: Opened) -> None:
    app = await open_application()
    app.registry.on_end.remove(app.chat_record.ended)
    await say(app, "lost and found", "a")
    app.registry.on_end.append(app.chat_record.ended)
    assert await found(app, "lost") == ["a"]


async def test_a_page_is_full_and_the_next_one_follows_it(open_application: Opened) -> None:
    app = await open_application()
    for chat_id in "abcde":
        await say(app, "hello", chat_id)
    pages, cursor = [], None
    while True:
        lines, cursor = await chats(app, query="hello", limit=2, cursor=cursor)
        pages.append("".join(line["chatId"] for line in lines))
        if cursor is None:
            break
    assert pages == ["ed", "cb", "a"]
    assert set(lines[0]) == {
        "chatId",
        "chatName",
        "metadata",
        "agentKey",
        "createdAt",
        "updatedAt",
        "status",
        "driven",
        "waiting",
    }


async def test_a_deleted_chat_is_found_no_more_and_leaves_no_hole_in_a_page(open_application: Opened) -> None:
    app = await open_application()
    for chat_id in "abc":
        await say(app, "hello", chat_id)
    assert len(await found(app, "hello")) == 3
    await delete(app, "b")
    lines, cursor = await chats(app, query="hello", limit=2)
    assert [line["chatId"] for line in lines] == ["c", "a"]
    assert cursor is not None
    assert await app.conversations.load("b") is None, "deleting takes what was indexed along"


async def test_a_search_can_be_of_one_agent_and_of_one_user(open_application: Opened) -> None:
    app = await open_application()
    await app.runs.ready()
    await app.store.assign("mine", "ann", now=app.clock.now_ms())
    await say(app, "hello", "mine")
    await say(app, "hello", "other", agent="react")
    assert await found(app, "hello", agent_key="react") == ["other"]
    assert await found(app, "hello", user="ann") == ["mine"]


async def test_a_cursor_of_another_list_is_refused(open_application: Opened) -> None:
    app = await open_application()
    with pytest.raises(GraphflowError) as refused:
        await chats(app, query="hello", cursor="some-thread")
    assert refused.value.code == "invalid_input"


async def test_where_threads_are_encrypted_nothing_that_was_said_is_indexed_on_disk(open_application: Opened) -> None:
    app = await open_application(environ=KEYS)
    await say(app, "very secret words", "a")
    assert isinstance(app.conversations, InMemoryConversations)
    assert await found(app, "secret") == ["a"]
    await app.long_term.put(("notes",), "k", "another secret thing")
    files = [path for path in app.settings.store.path.parent.iterdir() if path.is_file()]
    assert any(path.name == "memory.db" for path in files)
    assert all(b"secret" not in path.read_bytes() for path in files)


# --- the long-term store ---------------------------------------------------------------------------


async def test_a_node_reaches_the_store_of_its_application(open_application: Opened) -> None:
    app = await open_application()

    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        seen = await ctx.store.get(("counts",), "runs")
        await ctx.store.put(("counts",), "runs", 1 if seen is None else seen.value + 1)
        return {}

    app.kinds.node("work", work)
    for chat_id in ("a", "b"):
        await say(app, "go", chat_id, agent="story")
    item = await app.long_term.get(("counts",), "runs")
    assert item is not None
    assert item.value == 2


REMEMBERING = {
    "turns": (
        {"tool_calls": [{"id": "call_p", "name": "memory_put", "arguments": {"key": "tea", "value": "likes green"}}]},
        {"tool_calls": [{"id": "call_s", "name": "memory_search", "arguments": {"query": "GREEN"}}]},
        {"tool_calls": [{"id": "call_d", "name": "memory_delete", "arguments": {"key": "tea"}}]},
        {"tool_calls": [{"id": "call_g", "name": "memory_get", "arguments": {"key": "tea"}}]},
        {"text": "Done."},
    )
}


async def test_an_agent_keeps_finds_and_forgets_by_its_tools(open_application: Opened) -> None:
    import json

    app = await open_application(script=REMEMBERING)
    write_agent(app)
    await say(app, "remember", "a", agent="keeper")
    found = (await app.chat_record.read("a")).runs[0]["messages"]
    results = [json.loads(each["content"][0]["text"]) for each in found if each["role"] == "tool"]
    now = results[1]["items"][0].pop("updatedAt")
    assert isinstance(now, int)
    assert results == [
        {"kept": "tea"},
        {"items": [{"key": "tea", "value": "likes green"}]},
        {"key": "tea", "deleted": True},
        {"found": False, "key": "tea"},
    ]


async def test_what_was_kept_for_one_user_no_other_sees(open_application: Opened) -> None:
    app = await open_application(script={"turns": (*REMEMBERING["turns"][:1], {"text": "Kept."})})
    write_agent(app)
    await app.runs.ready()
    await app.store.assign("of-ann", "ann", now=app.clock.now_ms())
    await say(app, "remember", "of-ann", agent="keeper")
    assert [item.namespace for item in await app.long_term.search()] == [("users", "ann")]


def write_agent(app: Application) -> None:
    import json

    tools = ["memory_put", "memory_get", "memory_search", "memory_delete"]
    agent = {"mode": "REACT", "providerKey": "auto", "tools": tools, "react": {"systemPrompt": "Keep notes."}}
    (app.settings.agents.dir / "keeper.json").write_text(json.dumps(agent), encoding="utf-8")
    app.agents.reload()


async def test_a_search_for_rare_metadata_looks_so_far_and_then_by_cursor(
    open_application: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await open_application()
    for chat_id in "abcd":
        await say(app, "hello", chat_id)
    await update(app, "a", {"metadata": {"rare": True}})
    monkeypatch.setattr(conversations, "LOOK_AT", 2)
    wanted: dict[str, Any] = {"query": "hello", "limit": 2, "metadata": {"rare": "true"}}
    pages: list[list[str]] = []
    cursor = None
    while True:
        lines, cursor = await chats(app, cursor=cursor, **wanted)
        pages.append([line["chatId"] for line in lines])
        if cursor is None:
            break
    assert [chat_id for page in pages for chat_id in page] == ["a"]
    assert len(pages) > 1
