"""The `<think>` splitter: where the deltas are cut makes no difference to what is said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from graphflow.models.openai.think_tags import ThinkSplitter

TEXT = "Hm <think>one < two </thin </think>\n\nYes <thin <think>again</think>."
SAID = ("Hm \n\nYes <thin .", "one < two </thin again")


def split(*deltas: str, inside: bool = False) -> tuple[str, str]:
    splitter = ThinkSplitter(inside=inside)
    pieces = [piece for delta in deltas for piece in splitter.feed(delta)] + splitter.close()
    assert all(text for _, text in pieces)
    answer = "".join(text for thought, text in pieces if not thought)
    return answer, "".join(text for thought, text in pieces if thought)


@given(st.lists(st.integers(0, len(TEXT)), max_size=20).map(sorted))
def test_any_cut_of_the_text_gives_the_same_answer_and_reasoning(cuts: list[int]) -> None:
    assert split(*(TEXT[a:b] for a, b in zip([0, *cuts], [*cuts, len(TEXT)], strict=True))) == SAID


def test_a_delta_that_holds_both_is_split_inside() -> None:
    assert ThinkSplitter().feed("<think>a</think>b") == [(True, "a"), (False, "b")]


def test_only_a_tail_that_may_be_a_tag_is_held_back() -> None:
    splitter = ThinkSplitter()
    assert splitter.feed("a <") == [(False, "a ")]
    assert splitter.feed("b") == [(False, "<b")]
    assert splitter.feed("<thi") == []
    assert splitter.close() == [(False, "<thi")]


def test_text_may_begin_inside_the_reasoning() -> None:
    assert split("first", "</think>then", inside=True) == ("then", "first")
