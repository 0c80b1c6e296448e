"""What people and clients get of values that JSON has no form for."""

from __future__ import annotations

from pathlib import PurePosixPath as Path

import msgspec

from graphflow.graph.core.immutable import FrozenDict, ListView
from graphflow.json_data import encode_json, plain


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
