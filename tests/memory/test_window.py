"""The window of the last runs: what the model is shown, and that pairs stay pairs (spec 5.1)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.memory.window import last_runs
from graphflow.messages import AIMessage, HumanMessage, Message, ToolCall, ToolMessage


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Message]]:
    """Runs, each begun by a human message, each call answered before the run ends."""
    numbers = itertools.count()
    out: list[list[Message]] = []
    for _ in range(draw(st.integers(0, 8))):
        run: list[Message] = [HumanMessage(content=f"q{next(numbers)}")]
        for calls in draw(st.lists(st.integers(0, 3), max_size=3)):
            ids = [f"call_{next(numbers)}" for _ in range(calls)]
            run.append(AIMessage(content="", tool_calls=tuple(ToolCall(id=i, name="t") for i in ids)))
            run += [ToolMessage(tool_call_id=i, content="r") for i in draw(st.permutations(ids))]
        if draw(st.booleans()):
            run.append(AIMessage(content=f"a{next(numbers)}"))
        out.append(run)
    return out


def _unpaired(messages: Sequence[Message]) -> set[str]:
    called = {call.id for m in messages if isinstance(m, AIMessage) for call in m.tool_calls}
    answered = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    return called ^ answered


@given(conversations(), st.integers(1, 10))
def test_the_window_is_exactly_the_last_runs(runs: list[list[Message]], k: int) -> None:
    whole = [message for run in runs for message in run]
    assert list(last_runs(whole, k)) == [message for run in runs[-k:] for message in run]


@given(conversations(), st.integers(1, 10), st.data())
def test_the_window_never_parts_a_result_from_its_call(runs: list[list[Message]], k: int, data: st.DataObject) -> None:
    """Also where somebody spoke in the midst of a run, between a call and its result."""
    whole = [message for run in runs for message in run]
    if whole:
        whole.insert(data.draw(st.integers(0, len(whole))), HumanMessage(content="by the way"))
    shown = last_runs(whole, k)
    assert not _unpaired(shown)
    assert list(shown) == whole[len(whole) - len(shown) :]


class _Watched(Sequence[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items, self.read = items, set[int]()

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        assert isinstance(index, int), "a slice reads the whole list"
        self.read.add(index)
        return self.items[index]

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("iterating reads from the beginning")


def test_messages_before_the_window_are_not_touched() -> None:
    watched = _Watched([HumanMessage(content=str(i)) for i in range(10_000)])
    assert len(last_runs(watched, 3)) == 3
    assert watched.read == {9_997, 9_998, 9_999}


def test_a_short_conversation_is_shown_as_it_is() -> None:
    messages = [HumanMessage(content="hi"), AIMessage(content="hello")]
    assert last_runs(messages, 20) is messages
    assert last_runs((), 20) == ()


def test_messages_in_openai_form_count_too() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    assert last_runs(messages, 1) == messages[2:]


def test_a_window_of_no_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="window of 0 runs"):
        last_runs([], 0)
