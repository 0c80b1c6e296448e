"""The OpenAPI document as a contract: each answer and each event that a test sees is held to what it says (spec 3).

Stricter than the document: what it does not name is an error here, so a new field is never sent without its type.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs

from graphflow.server.app import create_app
from graphflow.service.application import Application
from graphflow.settings import load_settings


@cache
def document() -> dict[str, Any]:
    """The document, with every object closed that is open only so that clients tolerate later fields."""
    with tempfile.TemporaryDirectory() as folder:
        page: dict[str, Any] = create_app(Application(load_settings(Path(folder), environ={}))).openapi()
    closed: dict[str, Any] = _closed(page)
    return closed


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(item) for item in value]
    if not isinstance(value, dict):
        return value
    out = {key: _closed(item) for key, item in value.items()}
    if isinstance(value.get("properties"), dict) and value.get("type") == "object":
        out.setdefault("additionalProperties", False)
    return out


@cache
def _check(pointer: str) -> Callable[[Any], None]:
    page = document()
    schema: dict[str, Any] = {"$ref": f"#{pointer}", "components": page["components"], "paths": page["paths"]}
    validate: Callable[[Any], None] = jsonschema_rs.validator_for(schema).validate
    return validate


def check_event(event: Any) -> None:
    """Fails when the event is not one of the document's union."""
    kind = document()["components"]["schemas"]["Event"]["discriminator"]["mapping"].get(event["type"])
    assert kind is not None, f"{event['type']} is not in the document"
    _check(kind.removeprefix("#"))(event)  # of the whole union an error would list every member


async def check_answer(response: httpx.Response) -> None:
    """Fails when a JSON answer of a documented route differs from the document: its status, or its form."""
    path, method = response.request.url.path, response.request.method.lower()
    route = next((known for known in document()["paths"] if _fits(known, path)), None)
    if route is None or method not in document()["paths"][route]:
        return
    status = str(response.status_code)
    answers = document()["paths"][route][method]["responses"]
    assert status in answers or status == "499", f"{method} {path} answers {status}, which the document does not name"
    if not response.headers.get("content-type", "").startswith("application/json"):
        return
    await response.aread()
    schema = answers[status]["content"]["application/json"]["schema"]
    pointer = f"/paths/{route.replace('/', '~1')}/{method}/responses/{status}/content/application~1json/schema"
    # Pointers of paths hold braces, which a URI reference must not.
    pointer = schema["$ref"].removeprefix("#") if "$ref" in schema else pointer.replace("{", "%7B").replace("}", "%7D")
    _check(pointer)(response.json())


def _fits(known: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", known), path) is not None
