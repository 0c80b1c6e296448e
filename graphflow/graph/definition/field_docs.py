"""Descriptions for published JSON Schemas: the docstring under each field of a struct, which msgspec leaves out."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, pairwise
from typing import Any

import msgspec


def describe_fields(parts: dict[str, Any], *documents: type[msgspec.Struct]) -> None:
    """Adds a `description` to every property whose struct is defined in a module of `documents`.

    Args:
        parts: schemas by the name of their struct; changed in place.
    """
    for struct in chain.from_iterable(vars(inspect.getmodule(document)).values() for document in documents):
        if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct) and struct.__name__ in parts):
            continue
        names = dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))
        for owner in reversed(struct.__mro__[: struct.__mro__.index(msgspec.Struct)]):
            for field, text in _field_docs(owner):
                parts[struct.__name__]["properties"][names[field]]["description"] = text


def allow_schema(parts: dict[str, Any], *documents: type[msgspec.Struct]) -> None:
    """Lets files name the schema that they are checked by (`plain_data.without_schema` takes it out)."""
    for document in documents:
        text = "The JSON Schema that an editor checks the file by."
        parts[document.__name__]["properties"]["$schema"] = {"type": "string", "description": text}


def _field_docs(owner: type) -> Iterator[tuple[str, str]]:
    # An installation may come without sources; its schemas then lack descriptions and are otherwise the same.
    with suppress(OSError):
        definition = ast.parse(inspect.getsource(owner)).body[0]
        assert isinstance(definition, ast.ClassDef)
        for field, doc in pairwise(definition.body):
            match field, doc:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    yield name, " ".join(text.split())
