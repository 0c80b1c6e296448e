"""The gateway's envelope `{code, msg, data}` and the form of every error in it (spec 3)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from graphflow.errors import GraphflowError
from graphflow.excerpts import excerpt_of
from graphflow.faces import spoken, spoken_fields
from graphflow.graph.definition.old_words import QUERY_FIELDS
from graphflow.graph.definition.types import json_type, show
from graphflow.json_data import encode_json
from graphflow.public_text import public_text, public_value
from graphflow.server.public_failures import public_error
from graphflow.suggestions import choose

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from pydantic import BaseModel

STATUS: dict[str, int] = {
    "invalid_input": 400,
    "agent_not_found": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "thread_not_found": 404,
    "run_not_found": 404,
    "message_not_found": 404,
    "checkpoint_not_found": 404,
    "interrupt_not_found": 404,
    "not_found": 404,
    "route_not_found": 404,
    "method_not_allowed": 405,
    "thread_busy": 409,
    "thread_exists": 409,
    "thread_waiting": 409,
    "nothing_to_resume": 409,
    "answer_stale": 409,
    "request_id_reused": 409,
    "effects_need_choice": 409,
    "undo_failed": 409,
    "state_incompatible": 409,
    "migration_refused": 409,
    "fenced": 409,
    "cancelled": 409,
    "rejected": 409,
    "too_large": 413,
    "limit_exceeded": 413,
    "host_not_allowed": 421,
    "invalid_definition": 422,
    "answer_invalid": 422,
    "answer_forbidden": 403,
    "answer_ambiguous": 422,
    "state_error": 422,
    "validation": 422,
    "expression": 422,
    "not_serializable": 422,
    "budget_exceeded": 422,
    "too_many_requests": 429,
    "provider_error": 502,
    "stream_truncated": 502,
    "overloaded": 503,
    "shutting_down": 503,
    "store_failed": 503,
    "store_version_unsupported": 503,
    "rate_limit": 503,  # of a provider; a client's own requests are `too_many_requests`
    "connection": 503,
    "timeout": 504,
}
"""Error code → HTTP status; every other code is 500."""
_BY_STATUS = {
    404: ("route_not_found", "the server has no such route; /docs lists all"),
    405: ("method_not_allowed", "the route has other methods; /docs lists all"),
}
"""What the framework itself refuses, as code and rule; any other refusal of it is `invalid_input`."""
_QUOTES = frozenset({"invalid_input", "forbidden", "host_not_allowed", "route_not_found", "method_not_allowed"})
"""Codes whose texts hold paths and addresses only as the client has sent them."""
_HIDDEN = {
    "internal": "Internal server error",
    "store_failed": "the store can't be used now; the server's log says why",
    "store_version_unsupported": "the store was made by a newer version; the server's log says by which",
}
"""Code → the text for clients where the error's own may hold paths, addresses and SQL; that goes to the log."""

log = logging.getLogger("graphflow.server")


class Json(Response):
    """JSON of whatever a state may hold."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode_json(content)


def success(
    data: Any, *, cursor: str | None = None, status: int = 200, headers: Mapping[str, str] | None = None
) -> Json:
    """`code` 0; `cursor` is where the next page begins."""
    body = {"code": 0, "msg": "success", "data": data}
    return Json(body if cursor is None else {**body, "cursor": cursor}, status, headers)


def refused(error: GraphflowError, headers: Mapping[str, str] | None = None) -> Json:
    """An error of ours: its status, and in `data.error` its code, its text and its facts; `data.fields` names arguments."""
    status = STATUS.get(error.code, 500)
    detail = {key: value for key, value in error.detail.items() if key != "fields"}
    fields, message = _fields(error.detail), spoken(error.message, "http")
    if error.code not in _QUOTES:
        detail, fields, message = public_value(detail), public_value(fields), public_text(message)
    if error.code in _HIDDEN:
        log.error("request failed: %s", error.message, exc_info=error)
        message, detail = _HIDDEN[error.code], {}
    data: dict[str, Any] = {"error": {"code": error.code, "message": message, "detail": detail}}
    if fields:
        data["fields"] = fields
    more = dict(headers or {})
    if error.code == "unauthorized":
        more["WWW-Authenticate"] = "Bearer"
    if (wait := error.detail.get("retryAfterMs")) is not None:
        # Rounded up: a client that comes back too early would be refused again.
        more["Retry-After"] = str(max(1, -(-int(wait) // 1000)))
    return Json({"code": status, "msg": message, "data": data}, status, more)


def rested(data: Mapping[str, Any]) -> Json:
    """The outcome of a run; that of a failed one has the status and the code of its error, beside all the rest."""
    if data.get("status") != "failed":
        return success(data)
    error = {"code": "internal", "message": "", "detail": {}, **public_error(data.get("error") or {})}
    status = STATUS.get(error["code"], 500)
    return Json({"code": status, "msg": error["message"], "data": {**data, "error": error}}, status)


def _fields(detail: Mapping[str, Any]) -> dict[str, str]:
    if "fields" in detail:
        return spoken_fields(detail["fields"])
    return {
        issue.get("pointer") or "input": issue["message"] for issue in detail.get("errors", ()) if "message" in issue
    }


def invalid(fields: Mapping[str, str], code: str = "invalid_input") -> GraphflowError:
    """A body or query that breaks its rules, with a message for each field."""
    first = "; ".join(f"{name}: {text}" for name, text in list(fields.items())[:3])
    return GraphflowError(f"Validation failed: {first}", code=code, fields=dict(fields))


_RULES = {
    "missing": "required and not given",
    "extra_forbidden": "unknown field",
    "string_type": "must be a string",
    "string_too_short": "must have {min_length} characters at least",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must not hold the character U+0000",  # the only pattern of a body
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "float_type": "must be a number",
    "greater_than": "must be above {gt}",
    "finite_number": "must be a number",
    "dict_type": "must be an object",
    "list_type": "must be an array",
    "literal_error": "must be {expected}",
    "too_long": "must have at most {max_length:,} entries",
    "model_type": "must be an object",
    "reference": "needs an `id` or a `url`",
    "changes": "needs a `title` or `metadata`",
}
"""pydantic's error type → the rule in the words of JSON; its own texts speak of Python's types and show patterns."""
_VALUELESS = frozenset({"missing", "extra_forbidden", "string_too_short", "string_too_long", "string_pattern_mismatch"})
"""Errors whose value is absent, or says no more than the rule."""


def fields_of(errors: Sequence[Any], model: type[BaseModel] | None = None) -> dict[str, str]:
    """The errors of pydantic as `{field: message}`; the place is the wire name, nested ones with dots.

    For a field that may have several forms, the first form's error is given.

    Args:
        model: of the whole body; of an unknown field the hint then names those that there are.
    """
    unknown = sum(error["type"] == "extra_forbidden" for error in errors)
    out: dict[str, str] = {}
    for error in errors:
        parts = (str(part) for part in error["loc"] if part not in ("body", "query", "path", "header"))
        place = [part for part in parts if "[" not in part]  # what is left out names a form, as `dict[str,int]`
        name = ".".join(place) or "body"
        rule = _RULES.get(error["type"], "is not valid").format_map(error.get("ctx", {}))
        if error["type"] == "extra_forbidden" and name in QUERY_FIELDS:
            rule = f"unknown field: it is called {QUERY_FIELDS[name]!r} now"
        # Each hint compares the name with all fields.
        elif error["type"] == "extra_forbidden" and unknown <= _MOST_HINTS:
            known = _fields_at(model, [part for part in error["loc"] if isinstance(part, str)][:-1])
            rule = f"{rule}; {choose(place[-1], known)}" if known else rule
        out.setdefault(name, rule if error["type"] in _VALUELESS else f"{rule}, not {shown(error['input'])}")
    return out


_MOST_HINTS = 20


def _fields_at(model: Any, names: Sequence[str]) -> list[str]:
    """The wire names of the fields of the object at a place; none if only the value tells its form."""
    for name in names:
        fields = getattr(model, "model_fields", {})
        found = next((field for key, field in fields.items() if name in (key, field.alias)), None)
        models = [] if found is None else list(_models_in(found.annotation))
        model = models[0] if len(models) == 1 else None
    return [field.alias or key for key, field in getattr(model, "model_fields", {}).items()]


def _models_in(form: Any) -> Iterator[Any]:
    """The models in the form of a field: `Reference` in `list[Reference] | None`."""
    if hasattr(form, "model_fields"):
        yield form
    for part in get_args(form):
        yield from _models_in(part)


def shown(value: Any) -> str:
    """A wrong value for an error text; of one that has parts only what it is, since it may be as large as a body."""
    return f"an {json_type(value)}" if isinstance(value, dict | list) else show(value)


def install(app: FastAPI) -> None:
    """Every way in which a request can fail answers in the envelope."""

    async def ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, GraphflowError)
        return refused(error)

    async def query(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return refused(invalid(fields_of(error.errors())))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code, rule = _BY_STATUS.get(error.status_code, ("invalid_input", error.detail))
        return refused(
            GraphflowError(f"{request.method} {excerpt_of(request.url.path, 160)}: {rule}", code=code), error.headers
        )

    async def left(_: Request, __: Exception) -> Response:
        return Response(status_code=499)  # in the middle of its body: nobody reads this but the access log

    async def defect(_: Request, error: Exception) -> Response:
        return refused(GraphflowError(f"{type(error).__name__}: {error}"))

    app.add_exception_handler(GraphflowError, ours)
    app.add_exception_handler(RequestValidationError, query)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(ClientDisconnect, left)
    app.add_exception_handler(Exception, defect)
