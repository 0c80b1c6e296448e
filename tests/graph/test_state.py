"""State values: frozen all through when they are written, and refused where they can't be (E22)."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow import Graph, MemoryCheckpointer, append
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import StateError
from graphflow.graph.core.immutable import FrozenDict, ListView, freeze


def holding_itself() -> dict[str, Any]:
    out: dict[str, Any] = {}
    out["self"] = [out]
    return out


def nested(levels: int) -> list[Any]:
    out: list[Any] = []
    for _ in range(levels):
        out = [out]
    return out


def joined(old: Any, new: Any) -> Any:
    """A reducer of a user's, which takes text only."""
    return str(old) + "".join(new)


def only_once(old: Any, new: Any) -> Any:
    if old:
        raise ValueError("written already")
    return new


class Kept:
    value: Any = None
    log: Annotated[list[Any], append]
    text: Annotated[str, joined] = ""
    first: Annotated[str, only_once] = ""


STORES: list[Callable[[], Checkpointer | None]] = [lambda: None, MemoryCheckpointer]


@pytest.mark.parametrize(
    "made", [OrderedDict(a=[1]), defaultdict(list, a=[1]), Counter(a=1)], ids=lambda m: type(m).__name__
)
@pytest.mark.parametrize("store", STORES, ids=["no store", "store"])
async def test_a_dict_of_any_standard_class_is_frozen_when_it_is_written(
    made: Any, store: Callable[[], Checkpointer | None]
) -> None:
    graph = Graph(Kept)

    @graph.node(next="change")
    async def write(state: Any) -> dict[str, Any]:
        return {"value": made}

    @graph.node
    async def change(state: Any) -> None:
        state["value"]["b"] = 1

    result = await graph.compile(checkpointer=store()).run({}, "t")
    assert result.error is not None
    assert "read-only" in result.error["message"]
    assert result.state["value"] == dict(made)


def test_a_frozen_value_passes_by_identity_and_a_class_of_the_users_keeps_its_own() -> None:
    class Own(dict[str, int]):
        pass

    frozen, own = freeze({"a": [1, {"b": 2}]}), Own(a=1)
    assert freeze(frozen) is frozen
    assert freeze(own) is own
    assert type(freeze(OrderedDict(a={}))["a"]) is FrozenDict


@pytest.mark.parametrize("value", [holding_itself(), nested(5000), (nested(5000),), ListView([holding_itself()])], ids=["dict", "deep", "tuple", "view"])  # fmt: skip
def test_what_holds_itself_or_is_nested_without_end_is_refused(value: Any) -> None:
    with pytest.raises(StateError, match="contains itself, or is nested too deeply; keep references by id"):
        freeze(value)


@pytest.mark.parametrize("store", STORES, ids=["no store", "store"])
@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ({"value": holding_itself()}, "contains itself"),
        ({"log": [holding_itself()]}, "contains itself"),
        ({"text": [1]}, "state key 'text': its reducer 'fn:joined' failed: TypeError"),
    ],
    ids=["replaced", "appended", "reduced"],
)
async def test_what_can_not_be_written_fails_its_node_and_not_the_engine(
    updates: dict[str, Any], message: str, store: Callable[[], Checkpointer | None]
) -> None:
    graph = Graph(Kept)

    @graph.node
    async def write(state: Any) -> dict[str, Any]:
        return updates

    result = await graph.compile(checkpointer=store()).run({}, "t")
    assert result.error is not None
    assert (result.status, result.error["code"], result.error["node"]) == ("failed", "state_error", "write")
    assert message in result.error["message"]


async def test_a_reducer_that_fails_at_a_join_fails_the_node_that_opened_the_branches() -> None:
    graph = Graph(Kept)
    graph.map("fan", "[1, 2]", "write")

    @graph.node
    async def write(state: Any) -> dict[str, Any]:
        return {"first": "mine"}

    result = await graph.compile().run()
    assert result.error is not None
    assert (result.status, result.error["code"], result.error["node"]) == ("failed", "state_error", "fan")
    assert "its reducer 'fn:only_once' failed: ValueError: written already" in result.error["message"]


@pytest.mark.parametrize("step", [None, 1, 2, 7, -1, -2])
def test_a_view_is_sliced_as_the_list_that_it_shows_though_another_has_grown_it(step: int | None) -> None:
    view = ListView([0, 1, 2, 3, 4, 5])
    view.appended([6, 7, 8])
    shown, ends = [0, 1, 2, 3, 4, 5], [None, -9, -7, -6, -3, -1, 0, 1, 3, 5, 6, 8, 20]
    assert all(view[a:b:step] == shown[a:b:step] for a in ends for b in ends)


def test_a_list_that_branches_go_on_from_is_shared_and_not_copied() -> None:
    """Thousands of branches that append to a long list would otherwise hold it thousands of times."""
    before = ListView(list(range(1000)))
    first, *others = [before.appended([n]) for n in range(100)]
    assert [view[1000] for view in (first, *others)] == list(range(100))
    assert all(len(view) == 1001 and view[:3] == [0, 1, 2] and view[999:] == [999, view[-1]] for view in others)
    own = {id(view._items): len(view._items) for view in others}
    assert max(own.values()) == 1


@given(st.lists(st.tuples(st.integers(0, 200), st.lists(st.integers(), max_size=40)), max_size=40))
def test_views_that_go_on_from_any_earlier_one_are_as_lists_would_be(steps: list[tuple[int, list[int]]]) -> None:
    views: list[tuple[ListView, list[int]]] = [(ListView([]), [])]
    for place, new in steps:
        view, items = views[place % len(views)]
        views.append((view.appended(new), [*items, *new]))
    for view, items in views:
        assert view == items and len(view) == len(items) and list(reversed(view)) == items[::-1]
        assert [view[n] for n in range(-len(items), len(items))] == items * 2
        for part in (slice(1, None), slice(None, -1), slice(-3, None), slice(2, 90, 3), slice(None, None, -1)):
            assert view[part] == items[part]
        for other, older in views:
            grown = view.since(other)
            assert grown is None or [*older, *grown] == items


ODD: list[Any] = [1, 1.0, True, 0, False, "1", None, float("nan"), b"1", [1], (1,), [1.0], {"a": 1}, {"a": True}, {"b": [1, {"c": 2.0}]}, {"b": [1, {"c": 2}]}]  # fmt: skip


@given(st.lists(st.sampled_from(ODD), max_size=30), st.lists(st.sampled_from(ODD), max_size=30))
def test_a_union_takes_what_equals_nothing_before_it_however_many_they_are(old: list[Any], new: list[Any]) -> None:
    before = ListView([freeze(item) for item in old])
    seen, expected = list(before), list[Any]()
    for item in map(freeze, new):
        if item not in seen:
            seen.append(item)
            expected.append(item)
    assert list(map(repr, before.lacking([freeze(item) for item in new]))) == list(map(repr, expected))


def test_a_union_of_many_costs_no_more_for_each() -> None:
    class Counted(int):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    texts = ListView([f"a{number}" for number in range(20_000)])
    begun = time.thread_time()
    assert len(texts.lacking([f"b{number}" for number in range(20_000)])) == 20_000
    assert len(texts.lacking([{"n": number} for number in range(20_000)])) == 20_000
    assert time.thread_time() - begun < 5  # CPU time; one by one it is a minute
    assert texts.lacking([Counted(7)] * 20) == [7] and Counted.compared > 0, "somebody's class is asked itself"
