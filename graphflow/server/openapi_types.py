"""JSON Schemas of answers and events for the OpenAPI page, from the types that the code has (spec 3)."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from graphflow.events import EVENT_TYPES
from graphflow.server.answers.parts import InterruptRef, RunFailure, UploadFacts, UsageFigures
from graphflow.server.answers.runs import ACCEPTED
from graphflow.server.answers.table import ANSWERS

Schema = dict[str, Any]
REF = "#/components/schemas/"
_PARTS: dict[tuple[str, str], Schema] = {
    ("RunError", "error"): {"$ref": f"{REF}{RunFailure.__name__}"},
    ("TaskFail", "error"): {"$ref": f"{REF}{RunFailure.__name__}"},
    ("NodeError", "error"): {"$ref": f"{REF}{RunFailure.__name__}"},
    ("NodeEnd", "usage"): {"$ref": f"{REF}{UsageFigures.__name__}"},
    ("RunWaiting", "interrupts"): {"type": "array", "items": {"$ref": f"{REF}{InterruptRef.__name__}"}},
    ("RequestUpload", "upload"): {"$ref": f"{REF}{UploadFacts.__name__}"},
    ("ChatHistory", "events"): {"type": "array", "items": {"$ref": f"{REF}Event"}},
}
"""Fields that are plain dicts in the code, because they are stored and sent as they are."""


def components() -> Schema:
    """Every type by its name, `Event` among them: the union of all events, told apart by `type`."""
    models = [kind for kind in _parts() if issubclass(kind, BaseModel)]
    shared = (RunFailure, UsageFigures, InterruptRef, UploadFacts)
    wanted: Any = [(kind, "serialization") for kind in (*models, *shared)]
    _, made = models_json_schema(wanted, ref_template=REF + "{model}")
    schemas: Schema = {name: _tidied(schema) for name, schema in made["$defs"].items()}
    for figure in schemas[UsageFigures.__name__]["properties"].values():
        figure["type"] = [figure["type"], "null"]
    structs = [kind for kind in _parts() if not issubclass(kind, BaseModel)]
    schemas |= _of_structs([*structs, *EVENT_TYPES.values()])
    for (name, field), schema in _PARTS.items():
        schemas[name]["properties"][field] = schema
    schemas["Event"] = {
        "title": "Event",
        "description": "One event of a run, told apart by `type`.",
        "oneOf": [{"$ref": REF + kind.__name__} for kind in EVENT_TYPES.values()],
        "discriminator": {
            "propertyName": "type",
            "mapping": {tag: REF + kind.__name__ for tag, kind in EVENT_TYPES.items()},
        },
    }
    return schemas


def data_of(method: str, path: str, *, accepted: bool = False) -> Schema:
    """The schema of `data` in the route's answer; `accepted`: in that with status 202."""
    kind = (ACCEPTED if accepted else ANSWERS)[f"{method} {path}"]
    if kind is Any:
        return {}
    if isinstance(kind, type):
        return {"$ref": REF + kind.__name__}
    return {"type": "array", "items": {"$ref": REF + kind.__args__[0].__name__}}


def _parts() -> list[type[Any]]:
    known = (*ANSWERS.values(), *ACCEPTED.values())
    kinds = (kind if isinstance(kind, type) else kind.__args__[0] for kind in known if kind is not Any)
    return list(dict.fromkeys(kinds))


def _of_structs(kinds: list[type[Any]]) -> Schema:
    _, made = msgspec.json.schema_components(kinds, ref_template=REF + "{name}")
    keeps_null = {kind.__name__ for kind in kinds if not kind.__struct_config__.omit_defaults}
    for name, schema in made.items():
        if name not in keeps_null:
            _tidied(schema)
    for kind in EVENT_TYPES.values():
        _number(made[kind.__name__])
    return made


def _number(schema: Schema) -> None:
    """`seq` and `timestamp` are always sent, but for `stream.reset`, which is no part of the log."""
    properties = schema["properties"]
    tag = properties["type"].pop("enum")[0]
    properties["type"] |= {"type": "string", "const": tag}
    for name in ("seq", "timestamp"):
        del properties[name]["default"]
    if tag == "stream.reset":
        del properties["seq"], properties["timestamp"]
    else:
        schema["required"] += ["seq", "timestamp"]


def _tidied(schema: Schema) -> Schema:
    """The schema of a type whose optional fields are left out when they are None, without generated titles."""
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
        # A generator of clients refuses an array that does not say what it holds.
        for kind in (field, *field.get("anyOf", ())):
            if kind.get("type") == "array":
                kind.setdefault("items", {})
        if field.get("default", 0) is not None:
            continue
        del field["default"]
        kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1:
            del field["anyOf"]
            field |= kinds[0]
        elif kinds:
            field["anyOf"] = kinds
    return schema
