"""Hints: the word that was meant, and the ones that are allowed (spec 2.3)."""

from __future__ import annotations

import pytest

from graphflow.suggestions import choose, listed, meant, nearest

NODES = ("approve", "judge", "plan")


def test_a_hint_names_what_was_meant_and_what_is_allowed():
    assert choose("jugde", NODES) == "did you mean 'judge'? one of approve, judge, plan"
    assert choose("zzz", NODES) == "one of approve, judge, plan"


def test_the_only_word_is_not_told_twice():
    assert choose("jugde", ["judge"]) == "did you mean 'judge'?"
    assert choose("jugde", []) == "none is known"


def test_where_the_message_lists_them_only_what_was_meant_is_told():
    assert meant("jugde", NODES) == "did you mean 'judge'?"
    assert meant("zzz", NODES) is None


@pytest.mark.parametrize(
    ("wrong", "allowed", "right"),
    [("strat", ("start", "state"), "start"), ("aks", ("as", "ask"), "ask"), ("PLAN", NODES, "plan"), ("plant", NODES, "plan")],
)  # fmt: skip
def test_swapped_letters_and_other_cases_are_seen_through(wrong, allowed, right):
    assert nearest(wrong, allowed) == right


def test_a_long_list_is_cut_and_says_so():
    assert listed([f"n{i}" for i in range(30)], limit=2) == "one of n0, n1, … (30 in all)"


def test_among_many_words_the_meant_one_is_found_by_its_beginning_or_its_end():
    """Only a few are compared in full: a document of thousands of nodes must not take minutes to refuse."""
    many = [f"node_{number}" for number in range(3_000)]
    assert nearest("nodr_1257", many) == "node_1257"
    assert nearest("node_1257x", many) == "node_1257"
