"""MCP servers of the variable `MCP_SERVERS` and of `.mcp.json`, in the form that other programs use too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from graphflow.authored_files import read_authored
from graphflow.errors import Issue
from graphflow.settings.table import MCP_FIELDS

FILE = ".mcp.json"
_TYPES = {"stdio": "stdio", "http": "http", "streamable-http": "http", "streamableHttp": "http", "sse": "sse"}
_RENAMED = {"type": "transport", "disabled": "enabled", "timeout": "timeoutMs"}
"""Field of other programs → field of `[mcp.NAME]`."""


def more_servers(base: Path, variable: str | None, issues: list[Issue]) -> dict[str, dict[str, Any]]:
    """The servers of `.mcp.json`, over them those of the variable; their errors are added to `issues`."""
    found: dict[str, dict[str, Any]] = {}
    try:
        found |= _servers(FILE, read_authored(base / FILE), issues)
    except FileNotFoundError:
        pass
    except OSError as error:
        issues.append(Issue(pointer="", message=f"can't be read: {error}", file=FILE, kind="syntax"))
    if variable:
        found |= _servers("MCP_SERVERS", variable.encode("utf-8", "replace"), issues)
    return found


def _servers(file: str, text: bytes, issues: list[Issue]) -> dict[str, dict[str, Any]]:
    try:
        data = msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError) as error:
        # Without the text, which may hold a secret.
        issues.append(Issue(pointer="", message=f"is not JSON: {error}", file=file, kind="syntax"))
        return {}
    servers = data.get("mcpServers", data) if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        hint = 'write {"mcpServers": {"NAME": {"command": …}}}'
        issues.append(Issue(pointer="", message="is no object with servers by name", hint=hint, file=file))
        return {}
    out: dict[str, dict[str, Any]] = {}
    for name, table in servers.items():
        if not isinstance(table, dict):
            issues.append(Issue(pointer=f"/{name}", message="is no object", hint="write an object", file=file))
            continue
        fields = dict(_fields(table))
        issues += [
            Issue(pointer=f"/{name}/{key}", message=_rule(key), file=file, kind="type")
            for key, value in fields.items()
            if key in MCP_FIELDS and type(value) not in MCP_FIELDS[key]
        ]
        out[name] = fields
    return out


def _fields(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What graphflow knows of a server; other programs may have fields of their own there, which are left out."""
    for key, value in table.items():
        if key == "type":
            yield "transport", _TYPES.get(value, value) if isinstance(value, str) else value
        elif key == "disabled":
            yield "enabled", not value if isinstance(value, bool) else value
        elif _RENAMED.get(key, key) in MCP_FIELDS:
            yield _RENAMED.get(key, key), value


def _rule(key: str) -> str:
    return f"{key} must be of type {' or '.join(kind.__name__ for kind in MCP_FIELDS[key])}"
