"""Former words of documents and errors, each with the word that replaced it. No other module knows them.

Authored documents that use an old word are refused with the new one. What a store or an export holds is read as if it
had the new words; the version hash of a stored document stays that of the text that was compiled.

Three old words need no translation. Recorded operations keep the kind `once` in the store: the idempotency key of one
without a name hashes it. The effect choice `undone`, fields of requests and commands are never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
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


Found = list[tuple[tuple[str, ...], str, str]]
"""For each old word: the path to it, the word, and its replacement."""


def renewed(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], Found]:
    """The document with new words for its old ones (itself if it has none), and the old ones."""
    found: Found = []
    # Only where the format had these words: a state key, a node or an argument of the user may well be called `then`.
    out = _renamed(document, DOCUMENT_KEYS, (), found)
    if isinstance(budget := out.get("budget"), Mapping):
        out["budget"] = _renamed(budget, BUDGET_KEYS, ("budget",), found)
    state = out.get("state")
    if isinstance(state, Mapping) and isinstance(keys := state.get("properties"), Mapping):
        place = ("state", "properties")
        schemas = {name: _renewed_key(schema, (*place, name), found) for name, schema in keys.items()}
        out["state"] = {**state, "properties": schemas}
    return out if found else document, found


def renewed_code(code: str) -> str:
    """The current name of an error code."""
    return ERROR_CODES.get(code, code)


def renewed_error(error: Any) -> Any:
    """A stored error (`{code, message, …}`) with its code of today; itself if it has that."""
    if isinstance(error, Mapping) and error.get("code") in ERROR_CODES:
        return {**error, "code": ERROR_CODES[error["code"]]}
    return error


def _renamed(part: Mapping[str, Any], words: Mapping[str, str], place: tuple[str, ...], found: Found) -> dict[str, Any]:
    found += [((*place, key), key, words[key]) for key in part if key in words]
    return {words.get(key, key): value for key, value in part.items()}


def _renewed_key(schema: Any, place: tuple[str, ...], found: Found) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    scope = schema.get("x-scope")
    out = _renamed({k: v for k, v in schema.items() if k != "x-scope"}, STATE_KEYWORDS, place, found)
    if isinstance(scope, str) and scope in SCOPES:
        found.append(((*place, "x-scope"), scope, SCOPES[scope]))
        out.setdefault("x-scope", SCOPES[scope])
    elif (
        "x-scope" in schema
    ):  # a key had a life and a scope: no input resets one of a branch alone, so `branch` says all
        out["x-scope"] = scope
    return out
