"""What people and clients get of values that JSON has no form for."""

from __future__ import annotations

from pathlib import PurePosixPath as Path

import msgspec

from graphflow.graph.core.immutable import FrozenDict, ListView
from graphflow.json_data import plain


def test_an_append_channel_is_a_list_in_json() -> None:
    value = {"texts": ListView(["a", {"b": ListView([1])}]), "path": Path("a/b"), "map": FrozenDict({"n": 1})}
    assert msgspec.json.decode(msgspec.json.encode(value, enc_hook=plain)) == {
        "texts": ["a", {"b": [1]}],
        "path": "a/b",
        "map": {"n": 1},
    }
