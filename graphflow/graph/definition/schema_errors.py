"""What the schema library finds, in the words that flat schemas have: one set of texts, whichever of the two checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphflow.graph.definition.types import show


def said(found: Any) -> str:
    """One error of `jsonschema-rs` in our words; its own where it has a rule that is not known here."""
    tell = _WORDS.get(type(found.kind).__name__)
    if tell is not None:
        return tell(found.kind, found.instance)
    from graphflow.masking import mask_text  # the library quotes the value whole

    return mask_text(found.message)


def _bound(rule: str) -> Callable[[Any, Any], str]:
    return lambda kind, value: f"must be {rule} {kind.limit}, not {show(value)}"


def _size(rule: str, what: str) -> Callable[[Any, Any], str]:
    return lambda kind, value: f"{rule} {kind.limit} {what}, not {len(value)}"


def _listed(values: Any) -> str:
    return ", ".join(show(value) for value in values)


def _unexpected(kind: Any, value: Any) -> str:
    names = ", ".join(map(repr, kind.unexpected))
    return f"unknown key {names}" if len(kind.unexpected) == 1 else f"unknown keys {names}"


def _forms(kind: Any, value: Any) -> str:
    """Why each of the allowed forms does not fit."""
    reasons = dict.fromkeys(_placed(form[0]) for form in kind.context if form)
    listed = " or ".join(list(reasons)[:5])
    return f"{show(value)} fits none of the allowed forms" + (f": {listed}" if listed else "")


def _placed(found: Any) -> str:
    place = "/".join(map(str, found.instance_path))
    return f"{place}: {said(found)}" if place else said(found)


_WORDS: Mapping[str, Callable[[Any, Any], str]] = {
    "AdditionalProperties": _unexpected,
    "AnyOf": _forms,
    "Constant": lambda kind, value: f"expected {show(kind.expected_value)}, not {show(value)}",
    "Contains": lambda kind, value: "no item is of the kind that the list must contain",
    "Enum": lambda kind, value: f"expected one of {_listed(kind.options)}, not {show(value)}",
    "ExclusiveMaximum": _bound("below"),
    "ExclusiveMinimum": _bound("above"),
    "FalseSchema": lambda kind, value: "nothing is allowed here",
    "Format": lambda kind, value: f"must have the format {kind.format}, not {show(value)}",
    "MaxItems": _size("at most", "items"),
    "MaxLength": _size("at most", "characters"),
    "MaxProperties": _size("at most", "keys"),
    "Maximum": _bound("at most"),
    "MinItems": _size("at least", "items"),
    "MinLength": _size("at least", "characters"),
    "MinProperties": _size("at least", "keys"),
    "Minimum": _bound("at least"),
    "MultipleOf": lambda kind, value: f"must be a multiple of {kind.multiple_of}, not {show(value)}",
    "Not": lambda kind, value: f"{show(value)} is of the kind that is excluded here",
    "OneOfMultipleValid": lambda kind, value: f"{show(value)} fits several of the forms of which only one may fit",
    "OneOfNotValid": _forms,
    "Pattern": lambda kind, value: f"must match the pattern {kind.pattern}, not {show(value)}",
    "PropertyNames": lambda kind, value: f"a key does not fit: {said(kind.error)}",
    "Required": lambda kind, value: f"{kind.property!r} is missing",
    "Type": lambda kind, value: f"expected {' or '.join(kind.types)}, not {show(value)}",
    "UnevaluatedProperties": _unexpected,
    "UniqueItems": lambda kind, value: "holds an item more than once",
}
"""Kind of error → its text, from the facts of the kind and the value."""
