"""JSON Schema: flat ones by our own few lines, others by jsonschema-rs (E20)."""

from __future__ import annotations

import enum
import math
import sys

import jsonschema_rs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphflow.graph.core.immutable import FrozenDict, FrozenList, ListView
from graphflow.graph.definition import json_schema
from graphflow.graph.definition.json_schema import check_schema, check_sketch, compile_schema, has_holes
from graphflow.graph.definition.types import Hole
from tests.campaign import size
from tests.printed import printed_by

DECISION = {
    "type": "object",
    "required": ["decision"],
    "properties": {
        "decision": {"enum": ["approve", "edit", "reject"]},
        "note": {"type": "string", "description": "What to change", "maxLength": 5},
        "n": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}, "maxItems": 2},
    },
    "additionalProperties": False,
}


def found(schema, value):
    return [(issue.pointer, issue.message) for issue in compile_schema(schema).errors(value)]


def test_a_fitting_value_has_no_errors():
    assert found(DECISION, {"decision": "edit", "note": "ok", "n": 1.0, "tags": ["a", None]}) == []


def test_all_errors_of_a_value_are_told_at_once():
    value = {"decision": "aprove", "note": "longer", "n": True, "tags": [1, "a", "b"], "x": 1}
    assert found(DECISION, value) == [
        ("/decision", "expected one of 'approve', 'edit', 'reject', not 'aprove'"),
        ("/note", "at most 5 characters, not 6"),
        ("/n", "expected a whole number, not true"),
        ("/tags", "at most 2 items, not 3"),
        ("/tags/0", "expected text or null, not 1"),
        ("/x", "unknown key 'x'"),
    ]


def test_a_missing_key_says_what_it_is():
    (issue,) = compile_schema({**DECISION, "required": ["note"]}).errors({})
    assert issue.message == "'note' is missing"
    assert issue.hint == "it is text: What to change"


def test_frozen_and_lazy_collections_count_as_what_they_stand_for():
    value = FrozenDict(decision="edit", tags=ListView(["a"]))
    assert found(DECISION, value) == []
    union = {"oneOf": [{"type": "object", "properties": {"l": {"type": "array"}}}]}
    assert found(union, FrozenDict(l=FrozenList([ListView([])]))) == []


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"const": 1}, 1.0, True),
        ({"enum": [{"a": [1]}]}, {"a": [1.0]}, {"a": [True]}),
        ({"type": "integer"}, 2.0, 2.5),
        ({"type": "number"}, 2, "2"),
        ({"type": "boolean"}, False, 0),
        ({"type": ["null", "string"]}, None, 0),
        ({"additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "x"}),
        ({"properties": {"a": False}}, {}, {"a": 1}),
        ({"exclusiveMinimum": 1}, 2, 1),
        ({"minProperties": 1}, {"a": 1}, {}),
        (True, 1, None),
    ],
)
def test_flat_schemas_mean_what_the_standard_says(schema, good, bad):
    assert compile_schema(schema).is_flat
    assert found(schema, good) == []
    if schema is not True:
        assert found(schema, bad) != []


@pytest.mark.parametrize(
    ("schema", "good", "bad", "pointer"),
    [
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "x", [], ""),
        ({"properties": {"a": {"pattern": "^x+$"}}}, {"a": "xx"}, {"a": "y"}, "/a"),
        ({"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}, {"a": 1}, {"a": "x"}, "/a"),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {}, {"a": 1}, ""),
        ({"items": {"multipleOf": 2}}, [2], [2, 3], "/1"),
    ],
)
def test_schemas_beyond_flat_go_to_the_library(schema, good, bad, pointer):
    checker = compile_schema(schema)
    assert not checker.is_flat
    assert checker.errors(good) == []
    (issue,) = checker.errors(bad)
    assert issue.pointer == pointer


def test_a_value_that_is_no_json_is_an_error_of_a_library_schema_too():
    assert compile_schema({"anyOf": [{"type": "string"}]}).errors(object())


@pytest.mark.parametrize(
    ("schema", "pointer", "hint"),
    [
        ({"type": "strin"}, "/type", "did you mean 'string'?"),
        ({"type": ["string", "none"]}, "/type/1", "did you mean 'null'?"),
        ({"requierd": ["a"]}, "/requierd", "did you mean 'required'?"),
        ({"required": True}, "/required", '"required": ["key"]'),
        ({"properties": {"a/b": 5}}, "/properties/a~1b", '"type": "string"'),
        ({"properties": [1]}, "/properties", "name → schema"),
        ({"items": "string"}, "/items", '"type": "string"'),
        ({"enum": "a"}, "/enum", ""),
        ({"minimum": "x"}, "/minimum", ""),
        ({"maxLength": -1}, "/maxLength", ""),
        ({"properties": {}, "required": ["a"], "additionalProperties": False}, "/required/0", ""),
        ({"oneOf": 5}, "", ""),
        ({"pattern": "("}, "", ""),
        ({"$ref": "https://example.com/schema"}, "", ""),
        ([], "", '"type": "string"'),
    ],
)
def test_a_schema_that_is_itself_wrong_is_told_with_its_place(schema, pointer, hint):
    (issue,) = check_schema(schema)
    assert issue.pointer == pointer
    assert hint in (issue.hint or "")


def test_keywords_of_others_are_allowed():
    assert check_schema({"type": "string", "x-widget": "area", "enumNames": ["a"]}) == []


def test_holes_are_checked_by_their_type_alone():
    sketch = {"decision": Hole("string", "out.text"), "n": Hole("string", "out.text"), "tags": Hole("dyn", "out.tags")}
    assert has_holes(sketch)
    (issue,) = check_sketch(sketch, DECISION)
    assert (issue.pointer, issue.message) == ("/n", "expected a whole number, and expression 'out.text' gives string")
    assert check_sketch({"a": Hole("string", "x")}, {"oneOf": [{"type": "integer"}]}) == []


NUMBERS = st.integers(-3, 3) | st.sampled_from([1.0, 0.5, -0.0, 2**53, 2**53 + 1, 2.0**53, 2**64, -(2**63), 1e300])
TEXTS = st.sampled_from(["", "a", "b", "abc", "ä", "😀😀", "a\0"])
LENGTHS = st.integers(0, 3)
KEYWORDS = {
    "type": st.sampled_from(
        ["string", "integer", "number", "object", "array", "boolean", "null", ["string", "null"], ["integer", "array"]]
    ),
    "enum": st.lists(st.sampled_from([1, 1.0, "a", None, True, [], {}, [1], {"a": [True]}]), min_size=1, max_size=3),
    "const": st.sampled_from([1, 0, "a", None, False, [1.0], {"a": 1}, 2**64]),
    "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
    "title": TEXTS,
    "format": st.sampled_from(["date", "email"]),
    "x-widget": st.booleans(),
    **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], NUMBERS),
    **dict.fromkeys("minLength maxLength minItems maxItems minProperties maxProperties".split(), LENGTHS),
}
SCHEMA = st.recursive(
    st.booleans() | st.fixed_dictionaries({}, optional=KEYWORDS),
    lambda below: st.fixed_dictionaries(
        {},
        optional={
            **KEYWORDS,
            "properties": st.dictionaries(st.sampled_from("ab"), below, max_size=2),
            "items": below,
            "additionalProperties": below,
        },
    ),
    max_leaves=4,
)
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=5,
)


class Colour(enum.Enum):
    RED = 1


PYTHON_VALUE = st.recursive(
    VALUE
    | st.floats()
    | st.sampled_from([Colour.RED, b"a", "\ud800", FrozenDict(a=1), FrozenList([1]), ListView(["a"]), (1, 2)]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXTS | st.just(1), below, max_size=3),
    max_leaves=4,
)


def alone(schema, value):
    """The errors by our own lines, as where the library is not loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "jsonschema_rs")
        return compile_schema(schema).errors(value)


@pytest.mark.campaign
@settings(max_examples=size(200, long=15_000))
@given(SCHEMA, VALUE)
def test_our_lines_and_the_library_agree_on_flat_schemas(schema, value):
    assert compile_schema(schema).is_flat
    assert "required" in repr(schema) or check_schema(schema) == []  # required and not allowed is an error
    assert (alone(schema, value) == []) == jsonschema_rs.is_valid(schema, value)


@pytest.mark.campaign
@settings(max_examples=size(200, long=15_000))
@given(SCHEMA, PYTHON_VALUE)
@example({"maximum": 0}, math.inf)
@example({"minimum": 0}, math.nan)
def test_a_flat_schema_finds_the_same_whether_the_library_is_loaded_or_not(schema, value):
    """Values that JSON can't hold included."""
    assert compile_schema(schema).errors(value) == alone(schema, value)


@pytest.mark.parametrize("bound", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
@pytest.mark.parametrize("limit", [0, 1.5, 2**53 + 1, 2**64, -(10**400), 1e300])
@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, math.nan, 10**400, -(10**400), 2**53, 2.0**53, 2**64 + 1, 1e308, -0.0]
)
def test_bounds_hold_for_every_number_whether_the_library_is_loaded_or_not(bound, limit, value):
    """NaN is within none; the library alone would take it, and infinity, for null."""
    within = {
        "minimum": value >= limit,
        "maximum": value <= limit,
        "exclusiveMinimum": value > limit,
        "exclusiveMaximum": value < limit,
    }[bound]
    schema = {bound: limit}
    for held, rule in ((value, schema), ({"a": [value]}, {"additionalProperties": {"items": schema}})):
        assert compile_schema(rule).errors(held) == alone(rule, held)
        assert (alone(rule, held) == []) is within


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(
    "rule",
    [
        {"anyOf": [{"maximum": 0}]},
        {"allOf": [{"exclusiveMinimum": 0}]},
        {"multipleOf": 2},
        {"anyOf": [{"type": "number"}]},
    ],
)
def test_a_schema_with_other_keywords_names_a_number_that_json_can_not_hold(rule, value):
    (issue,) = compile_schema({"properties": {"a": {"items": rule}}}).errors(
        {"a": [1, value] if "type" in str(rule) else [value]}
    )
    assert issue.message == f"expected a number that JSON can hold, not {value!r}"
    assert issue.pointer.startswith("/a/")


def test_a_bound_is_a_number_that_json_can_hold():
    for bound in (math.inf, math.nan):
        assert [issue.pointer for issue in check_schema({"maximum": bound, "minLength": bound})] == [
            "/maximum",
            "/minLength",
        ]


def test_a_loaded_library_accepts_values_for_flat_schemas(monkeypatch):
    def refuse(*_):
        raise AssertionError("our own lines were asked")

    monkeypatch.setattr(json_schema, "_check", refuse)
    assert compile_schema(DECISION).errors({"decision": "edit", "note": "ok", "n": 1.0, "tags": ["a", None]}) == []


def test_flat_schemas_load_no_library():
    script = (
        "import sys\n"
        "from graphflow.graph.definition.json_schema import check_schema, compile_schema\n"
        "schema = {'type': 'object', 'required': ['a'], 'properties': {'a': {'enum': [1]}}}\n"
        "print(len(check_schema(schema)), len(compile_schema(schema).errors({})), 'jsonschema_rs' in sys.modules)\n"
    )
    assert printed_by(script) == "0 1 False\n"


def test_a_run_with_flat_schemas_loads_no_library():
    document = {
        "graphflow": "1",
        "start": "a",
        "input": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]},
        "state": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "nodes": {
            "a": {"use": "fn:double", "with": {"n": "${input.n}"}, "set": {"n": "out"}, "next": "b"},
            "b": {"ask": {"message": "Is it ${state.n}?", "schema": {"enum": ["yes", "no"]}}},
        },
        "result": "state.n",
    }
    script = (
        "import asyncio, sys\n"
        "from graphflow import MemoryCheckpointer, load_graph\n"
        "async def main():\n"
        f"    app = load_graph({document!r}, checkpointer=MemoryCheckpointer(), functions={{'double': lambda n: 2 * n}})\n"
        "    asked = await app.run({'n': 2})\n"
        "    done = await app.answer(asked.thread_id, 'yes')\n"
        "    print(done.output, 'jsonschema_rs' in sys.modules)\n"
        "asyncio.run(main())\n"
    )
    assert printed_by(script) == "4 False\n"
