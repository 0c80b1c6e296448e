"""Plain data against structs: all errors at once, each with its JSON pointer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.graph.definition.document import GraphDefinition
from graphflow.graph.definition.struct_validation import check_shape


class Part(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    size_kb: Annotated[int, msgspec.Meta(ge=1, le=10)]
    mode: Literal["fast", "slow"] = "fast"


class Whole(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    ratio: float = 1.0
    flag: bool | None = None
    part: Part | str | None = None
    parts: tuple[Part, ...] = ()
    by_name: dict[str, Part] = {}
    extra: Any = None


def found(data):
    return [(issue.pointer, issue.message) for issue in check_shape(data, Whole)]


def test_data_of_the_right_shape_has_no_errors():
    data = {
        "name": "x", "ratio": 1, "flag": None, "part": {"sizeKb": 3}, "parts": [{"sizeKb": 1, "mode": "slow"}],
        "byName": {"a/b": {"sizeKb": 2}}, "extra": [object],
    }  # fmt: skip
    assert found(data) == []
    assert found({"name": "x", "part": "text"}) == []


def test_all_errors_are_reported_at_once():
    data = {
        "nmae": "x", "ratio": "1", "flag": 1, "part": {"sizeKb": 1.5, "mod": "fast"}, "parts": {"sizeKb": 1},
        "byName": {"a/b": {"mode": "Slow"}},
    }  # fmt: skip
    assert found(data) == [
        ("/nmae", "unknown key 'nmae'"),
        ("/ratio", "expected a number, not '1'"),
        ("/flag", "expected true or false, not 1"),
        ("/part/sizeKb", "expected a whole number, not 1.5"),
        ("/part/mod", "unknown key 'mod'"),
        ("/parts", "expected a list, not {'sizeKb': 1}"),
        ("/byName/a~1b/mode", "expected one of fast, slow, not 'Slow'"),
        ("/byName/a~1b", "key 'sizeKb' is missing"),
        ("", "key 'name' is missing"),
    ]


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({"nmae": "x"}, "did you mean 'name'? one of byName, extra, flag, name, part, parts, ratio"),
        ({"name": "x", "part": {"sizeKb": 1, "mode": "Slow"}}, "did you mean 'slow'?"),
        ({"name": "x", "part": {}}, "it is a whole number"),
        ({"name": "x", "zzzzzz": 1}, "one of byName, extra, flag, name, part, parts, ratio"),
    ],
)
def test_an_error_says_the_next_step(data, hint):
    assert check_shape(data, Whole)[0].hint == hint


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "x", "part": 5}, "expected an object with sizeKb or text, not 5"),
        ({"name": "x", "part": {"sizeKb": 0}}, "must be at least 1, not 0"),
        ({"name": "x", "part": {"sizeKb": 11}}, "must be at most 10, not 11"),
        ({"name": ""}, "at least 1 characters, not 0"),
        ({"name": True}, "expected text, not true"),
        ({"name": "x", "ratio": True}, "expected a number, not true"),
        ({"name": "x", "parts": [None]}, "expected an object with sizeKb, not null"),
        ([], "expected an object with name, not []"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(data, message):
    assert check_shape(data, Whole)[0].message == message


def test_a_long_value_is_shortened():
    assert len(check_shape({"name": ["x" * 500]}, Whole)[0].message) < 100


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.sampled_from(["end", "fail", "1", "a"]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from("graphflow start nodes use next to if ask message budget retry max join a".split()),
            children,
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_what_has_no_errors_is_what_msgspec_converts(data):
    """`check_shape` and the decoder never disagree, so a checked document always decodes."""
    for candidate in (
        data,
        {"graphflow": "1", "start": "a", "nodes": data},
        {"graphflow": "1", "start": "a", "nodes": {"a": data}},
    ):
        try:
            msgspec.convert(candidate, GraphDefinition)
        except msgspec.ValidationError:
            assert check_shape(candidate, GraphDefinition)
        else:
            assert check_shape(candidate, GraphDefinition) == []
