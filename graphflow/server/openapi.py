"""The OpenAPI page: what FastAPI finds out, with the envelope, the errors and the bodies as they really are (spec 3)."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi

from graphflow.errors import ERROR_CODES

if TYPE_CHECKING:
    from fastapi import FastAPI

Schema = dict[str, Any]
WRITES = ("post", "put", "patch", "delete")
ABOUT = """\
Every answer that is no stream is `{"code": 0, "msg": "success", "data": …}`, with `cursor` where another page follows.
A failure has the HTTP status as its `code`, a text for people in `msg`, and `data`: `error` names the rule by its code, with
the facts in `detail`; `fields` says what is wrong with which field. Bodies are JSON whatever the content type says."""
_MEANINGS = {
    400: "An argument breaks a rule; `data.fields` names it.",
    401: "No token, or none that is known.",
    403: "The token lacks the scope, or the page's origin is not allowed.",
    404: "There is no such thing, or it is another user's.",
    409: "Busy, waiting, stale, taken, or a choice is missing; `data.error` says which.",
    413: "The body is larger than the limit.",
    421: "The server does not serve this host name; see `server.allowed_hosts`.",
    422: "The answer, the values or the document do not fit; `data.error` says how.",
    429: "Too many requests with this token; `Retry-After` says when to come back.",
    500: "A defect; the server's log has it.",
    502: "The run failed because its provider did.",
    503: "Stopping, full, or the store can't be used; `Retry-After` may say when to come back.",
    504: "It took longer than its limit.",
}


def install(app: FastAPI) -> None:
    """Has the page made when it is first asked for."""

    def page() -> Schema:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
            app.openapi_schema = _completed(made)
        return app.openapi_schema

    app.openapi = page  # type: ignore[method-assign] # FastAPI's own way to replace it


def _completed(page: Schema) -> Schema:
    schemas = page.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's own answer, which is never given
        schemas.pop(unused, None)
    # Imported here: only the page needs the types of answers.
    from graphflow.server.openapi_types import components, data_of

    schemas |= components() | {"Failure": _failure(), "Frame": _FRAME}
    for path, method, operation in _operations(page):
        _name_the_body(operation, schemas)
        # Generated clients name their functions by it: "Start a run" is `start_run`.
        words = operation["summary"].lower().split()
        operation["operationId"] = "_".join(word for word in words if word not in ("a", "an", "the"))
        responses = operation["responses"]
        # FastAPI's own 422 is never given; the envelope's is added below.
        responses.pop("422", None)
        success = responses["200"]["content"]
        if "application/json" in success and not success["application/json"].get("schema"):
            success["application/json"]["schema"] = _success(data_of(method, path), paged=_is_paged(operation))
        if "202" in responses:
            responses["202"]["content"] = {
                "application/json": {"schema": _success(data_of(method, path, accepted=True))}
            }
        if "text/plain" in success:
            success["text/plain"] = {"schema": {"type": "string"}}
        if "text/event-stream" in success:
            success["text/event-stream"] = {"schema": {"$ref": "#/components/schemas/Frame"}}
        for status in _failures_of(method, operation):
            responses.setdefault(str(status), _answer(status))
    return page


def _operations(page: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, operations in page["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation


def _name_the_body(operation: Schema, schemas: Schema) -> None:
    """Bodies are components, so that generated clients have a name for them."""
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = content["schema"]
        if name := schema.get("title"):
            schemas |= schema.pop("$defs", {})
            schemas[name] = schema
            content["schema"] = {"$ref": f"#/components/schemas/{name}"}


def _failures_of(method: str, operation: Schema) -> Iterator[int]:
    yield 400
    if "security" in operation:
        yield from (401, 403, 404, 421, 429)
    if method in WRITES:
        yield from (409, 422, 502, 504)
    if "requestBody" in operation:
        yield 413
    yield from (500, 503)


def _answer(status: int) -> Schema:
    answer: Schema = {
        "description": _MEANINGS.get(status, HTTPStatus(status).phrase),
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}},
    }
    if status in (409, 429, 503):
        answer["headers"] = {
            "Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}, "required": status == 429}
        }
    return answer


def _is_paged(operation: Schema) -> bool:
    return any(parameter["name"] == "cursor" for parameter in operation.get("parameters", ()))


def _success(data: Schema, *, paged: bool = False) -> Schema:
    properties: Schema = {
        "code": {"const": 0, "type": "integer"},
        "msg": {"const": "success", "type": "string"},
        "data": data,
    }
    if paged:
        properties["cursor"] = {"type": "string", "description": "Where the next page begins; absent on the last."}
    required = ["code", "msg", "data"]
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


_FRAME: Schema = {
    "title": "Frame",
    "description": "One frame of the stream.",
    "type": "object",
    "required": ["data"],
    "properties": {
        "id": {
            "type": "string",
            "pattern": r"^\d+-\d+$",
            "description": "For `Last-Event-ID`; `stream.reset` has none.",
        },
        "event": {"const": "message"},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": "#/components/schemas/Event"},
            "description": "One event (docs/reference/events.md).",
        },
        "retry": {"type": "integer", "description": "ms; with the comment that tells to rejoin."},
    },
}


def _failure() -> Schema:
    error: Schema = {
        "type": "object",
        "required": ["code", "message", "detail"],
        "properties": {
            "code": {"type": "string", "enum": list(ERROR_CODES)},
            "message": {"type": "string"},
            "detail": {"type": "object"},
            "node": {"type": "string", "description": "Of a failed run: the node that failed."},
            "retryable": {"type": "boolean", "description": "Of a failed run: whether the same may succeed later."},
        },
    }
    return {
        "title": "Failure",
        "type": "object",
        "required": ["code", "msg", "data"],
        "properties": {
            "code": {"type": "integer", "minimum": 400, "description": "The HTTP status."},
            "msg": {"type": "string", "minLength": 1},
            "data": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "fields": {"type": "object", "additionalProperties": {"type": "string"}},
                    "error": error,
                    # A run that failed and is returned as one body.
                    **{
                        name: {"type": "string"}
                        for name in ("runId", "requestId", "chatId", "checkpointId", "finishReason")
                    },
                    "status": {"const": "failed", "type": "string"},
                    "usage": {"$ref": "#/components/schemas/UsageFigures"},
                    "answer": {"description": "Any JSON value."},
                },
            },
        },
        "additionalProperties": False,
    }
