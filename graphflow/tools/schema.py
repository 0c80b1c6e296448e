"""JSON Schema for tools: the checks of `graph/definition/json_schema.py`, with their errors as texts for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphflow.errors import Issue
from graphflow.graph.definition.json_pointer import unescape
from graphflow.graph.definition.json_schema import check_schema, compile_schema
from graphflow.graph.definition.types import show
from graphflow.suggestions import nearest
from graphflow.tools.result import ArgumentsRefused

MOST_ERRORS = 50
"""Errors in arguments that are put into words; a call may have tens of thousands."""


def taken_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """The arguments as the schema takes them: `2.0` is `2` where it asks for an integer.

    Raises:
        ArgumentsRefused: with everything that breaks the schema: the field, the value and the rule.
    """
    # Compiled for each call: a flat schema needs no compiling, and the validators of others are cached by their text.
    checker = compile_schema(schema)
    if issues := checker.errors(arguments):
        raise ArgumentsRefused([_text(issue) for issue in issues])
    return checker.taken(arguments)


def parameters_issues(schema: Any) -> list[Issue]:
    """The errors of a parameters schema itself, with pointers relative to it; tools take an object."""
    if isinstance(schema, Mapping) and schema.get("type", "object") == "object":
        return check_schema(schema)
    given = schema.get("type") if isinstance(schema, Mapping) else schema
    return [Issue(pointer="", message=f"parameters are {show(given)}; a tool takes an object", kind="type")]


def argument_place(path: Sequence[str | int]) -> str:
    """The place of an argument in words of code: `lines[0].text`."""
    place = ""
    for part in path:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    return place or "arguments"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """` Did you mean 'x'?` with a leading space, or an empty string."""
    near = nearest(word, known)
    return "" if near is None else f" Did you mean {near!r}?"


def _text(issue: Issue) -> str:
    tokens = map(unescape, issue.pointer.split("/")[1:])
    # A pointer does not tell an index from a key of digits; an index is by far the likelier one.
    place = argument_place([int(token) if token.isdecimal() else token for token in tokens])
    return f"{place}: {issue.message}" + (f" ({issue.hint})" if issue.hint else "")
