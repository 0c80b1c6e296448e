"""The published JSON Schema takes what the parser takes, and knows no more and no fewer keys (spec 2.1 rule 11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings

from graphflow.graph.definition.document import Branch, GraphDefinition, GraphRef, Join, NodeDefinition, document_schema
from graphflow.graph.definition.struct_validation import check_shape
from graphflow.modes.definition import agent_schema
from tests.campaign import size
from tests.graph.random_documents import RandomDocument, random_documents
from tests.graph.test_regions import NESTED

SCHEMA = document_schema()
VALIDATOR = jsonschema_rs.validator_for(json.dumps(SCHEMA))


@given(random_documents(asks=True))
@pytest.mark.campaign
@settings(max_examples=size(40, long=3_000))
def test_the_schema_takes_every_random_document(made: RandomDocument):
    for document in (made.document, *made.graphs.values()):
        assert VALIDATOR.is_valid(document)
        assert check_shape(document, GraphDefinition) == []


@pytest.mark.parametrize("struct", [NodeDefinition, Branch, GraphRef, Join])
def test_each_part_has_the_keys_of_its_struct_and_no_others(struct: type[msgspec.Struct]):
    part = SCHEMA["$defs"][struct.__name__]
    assert set(part["properties"]) == {field.encode_name for field in msgspec.structs.fields(struct)}
    assert part["additionalProperties"] is False


@pytest.mark.parametrize("schema", [document_schema, agent_schema])
def test_every_key_says_what_it_means(schema: Callable[[], dict[str, Any]]):
    """Editors show it while a person writes, and the reference of agent files is made from it."""
    silent = [
        f"{name}.{key}"
        for name, part in schema()["$defs"].items()
        for key, value in part["properties"].items()
        if "description" not in value
    ]
    assert silent == []


def changed(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(NESTED))
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("nodes", "fan", "dos"), "work"),
        (("nodes", "fan", "do"), 5),
        (("nodes", "fan", "do"), {"graphs": "x"}),
        (("nodes", "fan", "join"), {"onError": "ignore"}),
        (("nodes", "fan", "join"), {"waits": "all"}),
        (("nodes", "fan", "max"), "four"),
        (("nodes", "both", "parallel"), ["first"]),
        (("nodes", "both", "parallel", "a"), {"do": "first", "before": ["b"]}),
        (("nodes", "both", "parallel", "a"), {"after": ["b"]}),
        (("nodes", "both", "parallel", "b"), {"do": "second", "after": "a"}),
    ],
)
def test_the_schema_and_the_parser_refuse_the_same_shapes(path, value):
    document = changed(path, value)
    assert not VALIDATOR.is_valid(document)
    assert check_shape(document, GraphDefinition) != []
