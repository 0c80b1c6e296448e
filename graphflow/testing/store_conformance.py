"""What every long-term store must keep (spec 5.3): a suite to run against one's own.

Make a subclass with `make`, in a module that pytest collects::

    class TestMine(StoreConformance):
        def make(self, folder, clock):
            return MyStore(folder / "store", clock)
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import GraphflowError
from graphflow.memory.store import MemoryItem, Store
from graphflow.testing.existing import existing
from graphflow.testing.fakes import FakeClock

NOTES = ("notes", "ada")


class StoreConformance:
    """The suite; `make` gives a store. Two with the same folder and clock share what they keep if `durable`."""

    durable = True

    def make(self, folder: Path, clock: FakeClock) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    async def store(self, tmp_path: Path, clock: FakeClock) -> Any:
        store = self.make(tmp_path, clock)
        yield store
        await store.close()

    @staticmethod
    def places(items: list[MemoryItem]) -> list[str]:
        return ["/".join((*item.namespace, item.key)) for item in items]

    @pytest.mark.parametrize(
        "value", [None, True, 0, -1.5, "", "naïve 漢字 🎉 \x00", [], {"a": [1, {"b": None}]}], ids=repr
    )
    async def test_a_value_comes_back_as_it_was(self, store: Store, value: Any) -> None:
        await store.put(NOTES, "k", value)
        item = existing(await store.get(NOTES, "k"))
        assert (item.namespace, item.key, item.value, item.expires_at) == (NOTES, "k", value, None)

    async def test_what_is_not_there_is_none(self, store: Store) -> None:
        assert await store.get(NOTES, "k") is None
        assert await store.delete(NOTES, "k") is False
        assert await store.search(NOTES) == []

    async def test_a_second_value_takes_the_place_of_the_first_and_keeps_its_birth(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.put(NOTES, "k", "first words")
        born = clock.now_ms()
        clock.advance(5)
        await store.put(NOTES, "k", "second")
        (item,) = await store.search(NOTES)
        assert (item.value, item.created_at, item.updated_at) == ("second", born, born + 5000)
        assert await store.search(NOTES, query="first") == []

    async def test_a_deleted_value_is_gone(self, store: Store) -> None:
        await store.put(NOTES, "k", 1)
        assert await store.delete(NOTES, "k") is True
        assert await store.get(NOTES, "k") is None

    async def test_namespaces_keep_their_keys_apart(self, store: Store) -> None:
        # A store that joins the parts of a namespace, or folds case, would take some of these for one.
        for namespace in (("a",), ("a", "b"), ("ab",), ("a b",), ("A",)):
            await store.put(namespace, "k", list(namespace))
        for namespace in (("a",), ("a", "b"), ("ab",), ("a b",), ("A",)):
            item = existing(await store.get(namespace, "k"))
            assert item.value == list(namespace)

    async def test_a_search_sees_its_namespace_and_those_below(self, store: Store, clock: FakeClock) -> None:
        # `ab` begins with `a` as text, and is not below it.
        for namespace in (("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("b",), ("A",)):
            await store.put(namespace, "k", 1)
            clock.advance(1)
        assert self.places(await store.search(("a",))) == ["a/b/c/k", "a/b/k", "a/k"]
        assert self.places(await store.search(("a", "b"))) == ["a/b/c/k", "a/b/k"]
        assert len(await store.search()) == 6

    async def test_the_most_recently_written_comes_first_page_by_page(self, store: Store, clock: FakeClock) -> None:
        for key in ("one", "two", "three", "four"):
            await store.put(NOTES, key, key)
            clock.advance(1)
        await store.put(NOTES, "one", "again")
        pages = [self.places(await store.search(NOTES, limit=2, offset=offset)) for offset in (0, 2, 4)]
        assert pages == [["notes/ada/one", "notes/ada/four"], ["notes/ada/three", "notes/ada/two"], []]

    @pytest.mark.parametrize(
        ("query", "found"),
        # `%`, `!` and `_` mean something in SQL's LIKE or its ESCAPE; `ﬁ` and `ß` fold to two letters; `label` is a name
        # of a field, not a text.
        [
            ("tea", ["drink"]), ("TEA green", ["drink"]), ("green coffee", []), ("ree", ["drink"]), ("drink", ["drink"]),
            ("北京", ["city"]), ("STRASSE", ["city"]), ("ﬁne", ["odd"]), ("100%", ["odd"]), ("1!0", ["odd"]), ("1_0", []),
            ("tea \ud83d", []), ("tea \x00", ["drink"]), ("7", ["odd"]), ("", ["odd", "city", "drink"]), ("  ", ["odd", "city", "drink"]), ("label", []),
        ],
    )  # fmt: skip
    async def test_words_are_found_in_key_and_texts_in_any_case_and_place(
        self, store: Store, clock: FakeClock, query: str, found: list[str]
    ) -> None:
        values: dict[str, Any] = {
            "drink": {"label": ["Green", {"x": "tea"}]},
            "city": "北京 Straße",
            "odd": ["fine 100% 1!0", 7, "1x0"],
        }
        for key, value in values.items():
            await store.put(NOTES, key, value)
            clock.advance(1)
        assert [item.key for item in await store.search(NOTES, query=query)] == found

    async def test_a_value_lives_as_long_as_it_was_given(self, store: Store, clock: FakeClock) -> None:
        await store.put(NOTES, "brief", "word", ttl_s=10)
        await store.put(NOTES, "kept", "word")
        item = existing(await store.get(NOTES, "brief"))
        assert item.expires_at == clock.now_ms() + 10_000
        # On both sides of the limit: the value is gone at the very moment of its end.
        clock.advance(9.999)
        assert len(await store.search(NOTES, query="word")) == 2
        clock.advance(0.001)
        assert await store.get(NOTES, "brief") is None
        assert [item.key for item in await store.search(NOTES, query="word")] == ["kept"]
        assert await store.delete(NOTES, "brief") is False

    async def test_a_value_that_has_expired_is_born_anew(self, store: Store, clock: FakeClock) -> None:
        await store.put(NOTES, "k", 1, ttl_s=1)
        clock.advance(2)
        # The old one counts as gone, so this is a first value and not a second.
        await store.put(NOTES, "k", 2)
        item = existing(await store.get(NOTES, "k"))
        assert (item.value, item.created_at, item.expires_at) == (2, clock.now_ms(), None)

    @pytest.mark.parametrize(
        ("namespace", "key"),
        [
            ((), "k"),
            (("",), "k"),
            (("a\x1f",), "k"),
            (("a", "\x00"), "k"),
            (("a", "\ud83d"), "k"),
            (("a",), "half \ud83d"),
            (("a",), ""),
            (("a",), "k" * 513),
            ("a", "k"),
            (("a", 7), "k"),
            (("a",), None),
        ],
        ids=ascii,
    )
    async def test_what_can_be_no_place_is_refused(self, store: Store, namespace: Any, key: str) -> None:
        for call in (store.put(namespace, key, 1), store.get(namespace, key), store.delete(namespace, key)):
            with pytest.raises(GraphflowError) as refused:
                await call
            assert refused.value.code == "invalid_input"

    async def test_what_is_no_json_or_no_time_is_refused_and_changes_nothing(self, store: Store) -> None:
        await store.put(NOTES, "k", 1)
        for value, ttl_s, code in (
            (object(), None, "not_serializable"),
            ({"half": "\ud83d"}, None, "not_serializable"),
            (2, 0, "invalid_input"),
            (2, -1, "invalid_input"),
            (2, float("inf"), "invalid_input"),
            (2, 1e300, "invalid_input"),  # a moment that no column of a database holds
        ):
            with pytest.raises(GraphflowError) as refused:
                await store.put(NOTES, "k", value, ttl_s=ttl_s)
            assert refused.value.code == code
        item = existing(await store.get(NOTES, "k"))
        assert item.value == 1

    async def test_many_writers_lose_nothing(self, store: Store) -> None:
        await asyncio.gather(*(store.put(NOTES, f"k{n}", n) for n in range(40)))
        assert len(await store.search(NOTES, limit=100)) == 40

    async def test_what_is_kept_outlives_the_store_object(self, tmp_path: Path, clock: FakeClock) -> None:
        first = self.make(tmp_path, clock)
        await first.put(NOTES, "k", "kept")
        await first.close()
        second = self.make(tmp_path, clock)
        item = await second.get(NOTES, "k")
        await second.close()
        assert (item is not None) == self.durable
