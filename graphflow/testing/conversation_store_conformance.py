"""What every conversation store must keep (spec 5.2): a suite to run against one's own.

Make a subclass with `make`, in a module that pytest collects::

    class TestMine(ConversationStoreConformance):
        def make(self, folder):
            return MyConversations(folder / "conversations")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import GraphflowError
from graphflow.memory.conversations import Conversation, ConversationFilter, ConversationRun, ConversationStore
from graphflow.testing.existing import existing


def said(run_id: str, *texts: str) -> ConversationRun:
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]} for text in texts]
    return ConversationRun(run_id=run_id, messages=messages)


class ConversationStoreConformance:
    """The suite; `make` gives an empty store."""

    def make(self, folder: Path) -> ConversationStore:
        raise NotImplementedError

    @pytest.fixture
    async def store(self, tmp_path: Path) -> Any:
        store = self.make(tmp_path)
        yield store
        await store.close()

    async def fill(self, store: ConversationStore) -> None:
        """Five conversations, `e` the newest; two have the same time."""
        for at, (chat_id, agent, owner, name, text) in enumerate(
            [
                ("a", "plain", "ann", "Weather", "Is it raining in 北京?"),
                ("b", "plain", "bob", "Tea", "Green tea, please"),
                ("c", "react", "ann", "Deploy", "Deploy the GREEN branch 100%"),
                ("d", "react", None, "Straße", "a_b!c"),
                ("e", "plain", "ann", "Tea again", "Black this time"),
            ],
            1,
        ):
            # `min`: the last two share a time, so pages must break ties.
            await store.save(
                Conversation(
                    chat_id=chat_id, name=name, agent_key=agent, owner=owner, created_at=at, updated_at=min(at, 4),
                    runs=(said(f"r{chat_id}", text),),
                )
            )  # fmt: skip

    @staticmethod
    def ids(found: list[Conversation]) -> str:
        return "".join(each.chat_id for each in found)

    async def test_a_conversation_comes_back_as_it_was(self, store: ConversationStore) -> None:
        given = Conversation(
            chat_id="c", name="漢字 🎉", agent_key="k", owner="o", created_at=1, updated_at=2,
            runs=(said("r1", "one"), said("r2", "two", "three")),
        )  # fmt: skip
        await store.save(given)
        assert await store.load("c") == given

    async def test_what_is_not_there_is_none(self, store: ConversationStore) -> None:
        assert await store.load("c") is None
        assert await store.list() == []
        await store.delete("c")

    async def test_saving_again_adds_runs_and_replaces_those_of_the_same_id(self, store: ConversationStore) -> None:
        await store.save(
            Conversation(chat_id="c", name="old", updated_at=1, runs=(said("r1", "one"), said("r2", "two")))
        )
        await store.save(
            Conversation(chat_id="c", name="new", updated_at=5, runs=(said("r1", "won"), said("r3", "three")))
        )
        found = existing(await store.load("c"))
        assert (found.name, found.updated_at) == ("new", 5)
        assert found.runs == (said("r1", "won"), said("r2", "two"), said("r3", "three"))
        assert self.ids(await store.search("one")) == ""
        assert self.ids(await store.search("won three")) == "c"

    async def test_the_newest_come_first_without_their_runs(self, store: ConversationStore) -> None:
        await self.fill(store)
        found = await store.list()
        assert self.ids(found) == "edcba"
        assert all(each.runs == () for each in found)

    async def test_pages_follow_each_other_without_gap_or_repeat(self, store: ConversationStore) -> None:
        await self.fill(store)
        cursor, pages = None, []
        while page := await store.list(ConversationFilter(cursor=cursor, limit=2)):
            pages.append(self.ids(page))
            cursor = page[-1].cursor
        assert pages == ["ed", "cb", "a"]

    async def test_a_page_begins_where_the_last_ended_although_that_one_is_gone(self, store: ConversationStore) -> None:
        await self.fill(store)
        # So a cursor is a position, not a row.
        last = (await store.list(ConversationFilter(limit=2)))[-1]
        await store.delete(last.chat_id)
        assert self.ids(await store.list(ConversationFilter(cursor=last.cursor))) == "cba"

    async def test_lists_and_searches_can_be_of_one_agent_and_one_owner(self, store: ConversationStore) -> None:
        await self.fill(store)
        assert self.ids(await store.list(ConversationFilter(agent_key="plain"))) == "eba"
        assert self.ids(await store.list(ConversationFilter(owner="ann"))) == "eca"
        assert self.ids(await store.search("tea", ConversationFilter(agent_key="plain", owner="bob"))) == "b"

    @pytest.mark.parametrize(
        ("query", "found"),
        # `%`, `_` and `!` mean something in SQL's LIKE or its ESCAPE; `ß` folds to two letters; `user` and `text` stand in
        # the stored form of messages, and nobody said them.
        [
            ("tea", "eb"), ("TEA", "eb"), ("tea black", "e"), ("black tea green", ""), ("green", "cb"), ("ree", "cb"),
            ("北京", "a"), ("strasse", "d"), ("100%", "c"), ("%", "c"), ("a_b", "d"), ("_", "d"), ("b!c", "d"), ("!", "d"),
            ("", "edcba"), ("nothing", ""), ("user", ""), ("text", ""),
        ],
    )  # fmt: skip
    async def test_each_word_must_be_in_the_name_or_in_what_was_said(
        self, store: ConversationStore, query: str, found: str
    ) -> None:
        await self.fill(store)
        assert self.ids(await store.search(query)) == found

    async def test_a_search_looks_into_calls_but_not_into_reasoning(self, store: ConversationStore) -> None:
        call = {"id": "call_9", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "graph"}'}}
        messages = [
            {"role": "assistant", "reasoning_content": [{"type": "text", "text": "secretly"}]},
            {"role": "assistant", "tool_calls": [call]},
        ]
        await store.save(Conversation(chat_id="c", runs=(ConversationRun(run_id="r", messages=messages),)))
        assert self.ids(await store.search("look_up graph")) == "c"
        assert self.ids(await store.search("secretly")) == ""

    async def test_a_deleted_conversation_is_found_no_more(self, store: ConversationStore) -> None:
        await self.fill(store)
        await store.delete("b")
        assert await store.load("b") is None
        assert self.ids(await store.search("tea")) == "e"
        # A later conversation of the same id must not find the runs of the deleted one.
        await store.save(Conversation(chat_id="b", name="anew"))
        found = existing(await store.load("b"))
        assert found.runs == ()

    async def test_what_is_known_can_be_asked_for_many_at_once(self, store: ConversationStore) -> None:
        await self.fill(store)
        assert await store.updated(["a", "e", "z"]) == {"a": 1, "e": 4}
        assert await store.updated([]) == {}

    @pytest.mark.parametrize("bad", ["nul \x00", "half \ud83d"], ids=ascii)
    async def test_an_id_that_not_every_store_can_keep_is_refused_alike(
        self, store: ConversationStore, bad: str
    ) -> None:
        await store.save(Conversation(chat_id="c", name="kept"))
        for conversation in (
            Conversation(chat_id=bad),
            Conversation(chat_id="c", agent_key=bad),
            Conversation(chat_id="c", owner=bad),
            Conversation(chat_id="c", name="lost", runs=(said("r1", "one"), said(bad, "two"))),
        ):
            with pytest.raises(GraphflowError) as refused:
                await store.save(conversation)
            assert refused.value.code == "invalid_input"
        asked = (
            ConversationFilter(agent_key=bad),
            ConversationFilter(owner=bad),
            ConversationFilter(cursor=f"1:{bad}"),
        )
        for call in (
            store.load(bad),
            store.updated(["c", bad]),
            store.delete(bad),
            *(store.list(which) for which in asked),
        ):
            with pytest.raises(GraphflowError) as refused:
                await call
            assert refused.value.code == "invalid_input"
        assert await store.load("c") == Conversation(chat_id="c", name="kept")

    async def test_what_was_said_with_half_a_character_is_kept_and_found(self, store: ConversationStore) -> None:
        await store.save(
            Conversation(chat_id="c", name="Cut \ud83d\x00", runs=(said("r", "tea \ud83d and \x00 milk"),))
        )
        found = existing(await store.load("c"))
        assert (found.name, found.runs) == ("Cut ?", (said("r", "tea \ufffd and \x00 milk"),))
        for query in ("tea milk", "cut", "tea \ud83d", "\x00"):
            assert self.ids(await store.search(query)) == "c"

    @pytest.mark.parametrize("cursor", ["", "x", "1", "x:y", "-1:a"])
    async def test_a_cursor_that_is_none_is_refused(self, store: ConversationStore, cursor: str) -> None:
        with pytest.raises(GraphflowError) as refused:
            await store.list(ConversationFilter(cursor=cursor))
        assert refused.value.code == "invalid_input"
