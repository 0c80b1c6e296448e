"""JSON Schema: flat ones by our own few lines, others by jsonschema-rs (E20)."""

from __future__ import annotations

import subprocess
import sys

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.graph.core.immutable import FrozenDict, FrozenList, ListView
from graphflow.graph.definition.json_schema import check_schema, check_sketch, compile_schema, has_holes
from graphflow.graph.expressions.templates import Hole

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
    return [(fault.pointer, fault.message) for fault in compile_schema(schema).faults(value)]


def test_a_fitting_value_has_no_faults():
    assert found(DECISION, {"decision": "edit", "note": "ok", "n": 1.0, "tags": ["a", None]}) == []


def test_all_faults_of_a_value_are_told_at_once():
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
    (fault,) = compile_schema({**DECISION, "required": ["note"]}).faults({})
    assert fault.message == "'note' is missing"
    assert fault.hint == "it is text: What to change"


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
    assert checker.faults(good) == []
    (fault,) = checker.faults(bad)
    assert fault.pointer == pointer


def test_a_value_that_is_no_json_is_a_fault_of_a_library_schema_too():
    assert compile_schema({"anyOf": [{"type": "string"}]}).faults(object())


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
    (fault,) = check_schema(schema)
    assert fault.pointer == pointer
    assert hint in (fault.hint or "")


def test_keywords_of_others_are_allowed():
    assert check_schema({"type": "string", "x-widget": "area", "enumNames": ["a"]}) == []


def test_holes_are_checked_by_their_type_alone():
    sketch = {"decision": Hole("string", "out.text"), "n": Hole("string", "out.text"), "tags": Hole("dyn", "out.tags")}
    assert has_holes(sketch)
    (fault,) = check_sketch(sketch, DECISION)
    assert (fault.pointer, fault.message) == ("/n", "expected a whole number, and expression 'out.text' gives string")
    assert check_sketch({"a": Hole("string", "x")}, {"oneOf": [{"type": "integer"}]}) == []


SCHEMA = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(
                ["string", "integer", "number", "object", "array", "boolean", "null", ["string", "null"]]
            ),
            "enum": st.lists(st.sampled_from([1, 1.0, "a", None, True, [], {}]), min_size=1, max_size=3),
            "minimum": st.integers(-2, 2),
            "minLength": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
        },
    ),
    lambda below: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), below, max_size=2),
            "items": below,
            "additionalProperties": st.booleans() | below,
        },
    ),
    max_leaves=4,
)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 0.5, "", "a", "abc"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=5,
)


@given(SCHEMA, VALUE)
def test_our_lines_and_the_library_agree_on_flat_schemas(schema, value):
    checker = compile_schema(schema)
    assert checker.is_flat
    assert check_schema({key: item for key, item in schema.items() if key != "required"}) == []
    assert (checker.faults(value) == []) == jsonschema_rs.is_valid(schema, value)


def test_flat_schemas_load_no_library():
    script = (
        "import sys\n"
        "from graphflow.graph.definition.json_schema import check_schema, compile_schema\n"
        "schema = {'type': 'object', 'required': ['a'], 'properties': {'a': {'enum': [1]}}}\n"
        "assert not check_schema(schema) and compile_schema(schema).faults({})\n"
        "assert 'jsonschema_rs' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
