"""Words that documents and errors had before, each with the word that took its place. No other module knows them.

Authored documents that use an old word are refused with the new one. What a store or an export holds is read as if it
had the new words; the version hash of a stored document stays that of the text that was compiled.

Three old words need no translation. Recorded operations keep the kind `once` in the store: the idempotency key of one
without a name hashes it. The effect choice `undone`, fields of requests and commands are never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

DOCUMENT_KEYS = {"always": "invariants"}
BUDGET_KEYS = {"then": "onExceeded"}
STATE_KEYWORDS = {"x-reduce": "x-reducer", "x-life": "x-scope"}
SCOPES = {"frame": "thread"}
"""Values of `x-scope`."""
EFFECT_CHOICES = {"undone": "assume_undone"}
QUERY_FIELDS = {"maxSteps": "maxRounds"}
"""Of `POST /api/query`, where it limited the rounds of the agent."""
ERROR_CODES = {
    "throttled": "too_many_requests",
    "answer_unmatched": "interrupt_not_found",
    "not_encodable": "not_serializable",
    "stopping": "shutting_down",
    "store_newer": "store_version_unsupported",
}


def old_words(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Every old word of a document: the steps to its place, the word, and what to write instead."""
    for key in DOCUMENT_KEYS.keys() & document.keys():
        yield (key,), key, DOCUMENT_KEYS[key]
    budget = document.get("budget")
    if isinstance(budget, Mapping):
        for key in BUDGET_KEYS.keys() & budget.keys():
            yield ("budget", key), key, BUDGET_KEYS[key]
    for name, schema in _state_keys(document).items():
        if not isinstance(schema, Mapping):
            continue
        place = ("state", "properties", name)
        for key in STATE_KEYWORDS.keys() & schema.keys():
            yield (*place, key), key, STATE_KEYWORDS[key]
        if (scope := _scope(schema)) in SCOPES:
            yield (*place, "x-scope"), scope, SCOPES[scope]


def renewed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with new words for its old ones; itself if it has none."""
    if next(old_words(document), None) is None:
        return document
    out = {DOCUMENT_KEYS.get(key, key): value for key, value in document.items()}
    if isinstance(budget := out.get("budget"), Mapping):
        out["budget"] = {BUDGET_KEYS.get(key, key): value for key, value in budget.items()}
    if keys := _state_keys(document):
        renewed_keys = {name: _renewed_key(schema) for name, schema in keys.items()}
        out["state"] = {**document["state"], "properties": renewed_keys}
    return out


def renewed_code(code: str) -> str:
    """The error code of today."""
    return ERROR_CODES.get(code, code)


def renewed_error(error: Any) -> Any:
    """A stored error (`{code, message, …}`) with its code of today; itself if it has that."""
    if isinstance(error, Mapping) and error.get("code") in ERROR_CODES:
        return {**error, "code": ERROR_CODES[error["code"]]}
    return error


def _state_keys(document: Mapping[str, Any]) -> Mapping[str, Any]:
    state = document.get("state")
    properties = state.get("properties") if isinstance(state, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _scope(schema: Mapping[str, Any]) -> str:
    scope = schema.get("x-scope")
    return scope if isinstance(scope, str) else ""


def _renewed_key(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    out = {STATE_KEYWORDS.get(key, key): value for key, value in schema.items() if key != "x-scope"}
    # A key had a life and a scope: one of a branch alone is reset by no input, so `branch` says all of it.
    if (scope := schema.get("x-scope")) is not None and SCOPES.get(_scope(schema)) != "thread":
        out["x-scope"] = scope
    elif scope is not None and "x-life" not in schema:
        out["x-scope"] = "thread"
    return out
