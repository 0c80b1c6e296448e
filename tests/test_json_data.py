"""What people and clients get of values that JSON has no form for."""

from __future__ import annotations

from pathlib import PurePosixPath as Path

import msgspec
import pytest

from graphflow.graph.core.immutable import FrozenDict, ListView
from graphflow.json_data import deeper_than, encode_json, plain, unreadable


def test_an_append_channel_is_a_list_in_json() -> None:
    value = {"texts": ListView(["a", {"b": ListView([1])}]), "path": Path("a/b"), "map": FrozenDict({"n": 1})}
    assert msgspec.json.decode(msgspec.json.encode(value, enc_hook=plain)) == {
        "texts": ["a", {"b": [1]}],
        "path": "a/b",
        "map": {"n": 1},
    }


def test_a_text_of_a_class_of_its_own_is_that_text_in_json() -> None:
    class Hint(str):
        __slots__ = ()

    assert msgspec.to_builtins({"hint": Hint("did you mean 'judge'?")}, enc_hook=plain) == {
        "hint": "did you mean 'judge'?"
    }
    assert encode_json(Hint("judge")) == b'"judge"'


@pytest.mark.parametrize("value", [1, "text", [], {}, [1], {"a": 1}, [{}], {"a": [1, {"b": "c"}]}, [[[]], 1]])
def test_levels_are_those_of_lists_and_objects(value: object) -> None:
    levels = next(levels for levels in range(9) if not deeper_than(value, levels))

    def naive(each: object) -> int:
        inner = each.values() if isinstance(each, dict) else each if isinstance(each, list) else None
        return 0 if inner is None else 1 + max(map(naive, inner), default=0)

    assert levels == naive(value)


def test_a_depth_beyond_pythons_stack_is_found() -> None:
    deep: list[object] = []
    for _ in range(50_000):
        deep = [deep]
    assert deeper_than(deep, 90)


def test_the_number_that_no_double_holds_is_found_among_a_million_digits() -> None:
    error = msgspec.DecodeError("why")
    assert unreadable(b"[" + b"9" * 1_000_000 + b"]", error) == "not valid JSON: why"
    assert unreadable(b'["1e999", 12.5E2, -1' + b"0" * 1_000_000 + b"e99]", error).startswith("the number -1000")
