"""The API docs as one HTML page, rendered from the OpenAPI document: every route, its parameters, body, responses and curl."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from graphflow.server.html import Markup, join, prose, table, tag
from graphflow.server.openapi import Schema

BASE = "http://HOST"
"""Stands in the commands for the server's address, so that one rendering serves every host name that leads here."""


def api_docs(document: Schema, *, needs_token: bool) -> Markup:
    """The body of the page; `needs_token` says whether the commands carry a token."""
    operations = list(_operations(document))
    schemas = document["components"]["schemas"]
    tags = dict.fromkeys(operation["tags"][0] for _, _, operation in operations)
    parts = [tag("h1", document["info"]["title"], " API"), tag("p", prose(document["info"]["description"]))]
    parts.append(tag("p", tag("a", "Start page", href="./"), " · ", tag("a", "OpenAPI document", href="openapi.json")))
    for name in tags:
        found = [(method, path) for method, path, operation in operations if operation["tags"][0] == name]
        links = [tag("li", tag("a", tag("code", f"{m} {p}"), href=f"#{_anchor(m, p)}")) for m, p in found]
        parts += [tag("h2", name), tag("ul", *links)]
    token = """ -H "Authorization: Bearer $GRAPHFLOW_TOKEN\"""" if needs_token else ""
    for method, path, operation in operations:
        command = curl(method, path, operation, schemas, token if "security" in operation else "")
        parts.append(_section(method, path, operation, schemas, command))
    parts.append(tag("h2", "Schemas"))
    for name, schema in schemas.items():
        about = tag("p", prose(schema.get("description", "")))
        parts.append(tag("section", tag("h3", tag("code", name)), about, _fields(schema), id=f"schema-{name}"))
    return join(*parts)


def curl(method: str, path: str, operation: Schema, schemas: Schema, token: str = "") -> str:
    """A command with every parameter and field that is required; words in capitals are for the reader to fill in.

    Of fields of which one is required, the command has the first.
    """
    parameters = operation.get("parameters", ())
    url = BASE + re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), path)
    query = [f"{p['name']}={_word(p['name'])}" for p in parameters if p["in"] == "query" and p["required"]]
    url += "?" + "&".join(query) if query else ""
    content = operation.get("requestBody", {}).get("content", {})
    streams = "text/event-stream" in operation["responses"]["200"]["content"]
    given = ""
    if "multipart/form-data" in content:
        given = " -F file=@FILE"
    elif content:
        schema = _resolved(content["application/json"]["schema"], schemas)
        needed = [*schema.get("required", ()), *schema.get("x-requires-one", ())[:1]]
        fields = {key: _sample(key, schema["properties"][key]) for key in needed}
        given = f" -d {shlex.quote(json.dumps(fields, ensure_ascii=False))}"
    word = "" if method == "GET" or (method == "POST" and given) else f" -X {method}"
    return f"curl{' -N' if streams else ''}{word} '{url}'{token}{given}"


def _operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _anchor(method: str, path: str) -> str:
    return re.sub(r"\W+", "-", f"{method} {path}").strip("-").lower()


def _section(method: str, path: str, operation: Schema, schemas: Schema, command: str) -> Markup:
    parts = [tag("h3", operation.get("summary", ""), " ", tag("code", f"{method} {path}"))]
    parts.append(tag("p", prose(operation.get("description", ""))))
    parts.append(tag("pre", command))
    rows = [
        (tag("code", p["name"]), p["in"], type_of(p["schema"]), _about(p, p["required"]))
        for p in operation.get("parameters", ())
    ]
    if rows:
        parts += [tag("h4", "Parameters"), table(("Name", "In", "Type", "Meaning"), rows)]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts += [tag("h4", f"Body ({kind})"), _fields(_resolved(content["schema"], schemas))]
    answers = [
        (tag("code", status), prose(answer["description"]), _content(answer.get("content", {})))
        for status, answer in sorted(operation["responses"].items())
    ]
    responses = table(("Status", "Meaning", "Content"), answers)
    parts.append(tag("details", tag("summary", "Responses"), responses))
    return tag("section", *parts, id=_anchor(method, path))


def _content(content: Schema) -> Markup:
    lines = [join(kind, ": ", type_of(entry["schema"])) for kind, entry in content.items() if "schema" in entry]
    return join(*(tag("div", line) for line in lines))


def _fields(schema: Schema) -> Markup:
    required = schema.get("required", ())
    rows = [
        (tag("code", name), type_of(field), _about(field, name in required))
        for name, field in schema.get("properties", {}).items()
    ]
    return table(("Field", "Type", "Meaning"), rows)


def _about(value: Schema, required: bool) -> Markup:
    default = value.get("default")
    parts = [tag("strong", "Required. ") if required else "", prose(value.get("description", ""))]
    if default is not None and default != []:
        parts += [" Default: ", tag("code", json.dumps(default)), "."]
    return join(*parts)


def type_of(schema: Schema) -> Markup:
    """A type as readers write it: `string`, `list of string`, `"a" | "b"`, a link to a schema."""
    if options := schema.get("anyOf") or schema.get("allOf"):
        names = dict.fromkeys(type_of(option) for option in options if option.get("type") != "null")
        return Markup((" | " if "anyOf" in schema else " with ").join(names))
    if reference := schema.get("$ref"):
        name = str(reference).rpartition("/")[2]
        return tag("a", name, href=f"#schema-{name}")
    if "enum" in schema or "const" in schema:
        choices = schema.get("enum") or [schema["const"]]
        return tag("code", " | ".join(json.dumps(choice) for choice in choices[:8]), " …" if choices[8:] else "")
    if schema.get("type") == "array":
        return join("list of ", type_of(schema.get("items", {})))
    if data := schema.get("properties", {}).get("data"):
        return join("data: ", type_of(data))
    return join(str(schema.get("format") or schema.get("type") or "any JSON value"))


def _resolved(schema: Schema, schemas: Schema) -> Schema:
    found: Schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _word(name: str) -> str:
    """A placeholder: `chatId` → `CHAT_ID`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _sample(name: str, schema: Schema) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    return {"object": {}, "array": [], "integer": 1, "boolean": True}.get(schema.get("type", ""), _word(name))
