"""Tools and viewports as clients see them, and whole results of calls (spec 3.1, 8.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphflow.checkpoints.loading import load_thread
from graphflow.errors import GraphflowError, Issue
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.machine import ROOT
from graphflow.messages import ToolMessage
from graphflow.service.context import ServiceContext
from graphflow.service.live_threads import flush_live
from graphflow.service.requests import bad_argument, unknown_chat
from graphflow.tools.port import Tool


def tools(context: ServiceContext) -> list[dict[str, Any]]:
    """Every tool with its kind and schema, by name; a refused description with its first error, as `invalid`.

    A tool that stays active, in an older or in its registered form, has the first error of its name in its line; any
    other refused description is a line of its own.
    """
    lines = {tool.name: _tool(tool) for tool in context.tools}
    others = []
    for refused in context.toolbox.files.invalid:
        issue = issue_dict(refused.errors[0], context.settings.folder)
        line = lines.get(refused.name)
        if line is not None and "invalid" not in line:
            line["invalid"] = issue
        # A second refused description of the same name would hide behind the first.
        else:
            others.append({**_missing(refused.name, refused.kind), "invalid": issue})
    # A server that can't be reached is a line of its own, as its tools are unknown.
    for server, reason in context.tools.unreachable.items():
        text = f"the MCP server {server!r} can't be reached: {reason}"
        issue = {"file": None, "line": None, "column": None, "pointer": f"/mcp/{server}", "message": text}
        others.append({**_missing(f"mcp:{server}", "backend"), "invalid": issue})
    return sorted([*lines.values(), *others], key=lambda line: str(line["name"]))


def tool(context: ServiceContext, name: str) -> dict[str, Any]:
    """One tool.

    Raises:
        GraphflowError: `invalid_input` for an unknown name.
    """
    found = next((line for line in tools(context) if line["name"] == name), None)
    if found is None:
        raise bad_argument("toolName", f"no tool {name!r}; {context.tools.hint(name)}")
    return found


def issue_dict(issue: Issue, folder: Path) -> dict[str, Any]:
    """`{file, line, column, pointer, message}`; the file below the settings' `folder`, or its name."""
    text = issue.message if issue.hint is None else f"{issue.message} ({issue.hint})"
    return {
        "file": None if issue.file is None else shown_file(issue.file, folder),
        "line": issue.line,
        "column": issue.column,
        "pointer": issue.pointer,
        "message": text,
    }


def shown_file(file: str, folder: Path) -> str:
    """A file as clients see it: relative to the settings' folder if it is in there, else its name."""
    path = Path(file)
    if not path.is_absolute():
        return file
    base = folder.resolve()
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.name


def _tool(found: Tool) -> dict[str, Any]:
    line = {
        "name": found.name,
        "kind": found.kind,
        "description": found.description,
        "parameters": dict(found.parameters),
        "effects": found.effects,
        "idempotent": found.idempotent,
        "capabilities": list(found.capabilities),
    }
    optional = {
        "prompt": found.prompt,
        "afterCallHint": found.after_call_hint,
        "toolType": found.viewport_type,
        "viewportKey": found.viewport,
        "holdMs": found.hold_ms,
        "payload": found.payload,
    }
    return line | {key: value for key, value in optional.items() if value is not None}


def _missing(name: str, kind: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "description": "",
        "parameters": {},
        "effects": None,
        "idempotent": None,
        "capabilities": [],
    }


def viewport(context: ServiceContext, key: str) -> Any:
    """What a client renders: `{"html": text}`, or the JSON of any other kind.

    Raises:
        GraphflowError: `not_found`, with the keys that exist.
    """
    found = context.toolbox.viewports.get(key)
    if found is None:
        known = ", ".join(sorted(context.toolbox.viewports.by_key)) or "none"
        raise GraphflowError(f"no viewport has the key {excerpt_of(key, 160)}; keys are {known}", code="not_found")
    return {"html": found.content} if found.type == "html" else found.content


async def tool_result(context: ServiceContext, chat_id: str, tool_id: str) -> dict[str, Any]:
    """The whole result of a call, also where the model was shown a part of it.

    Raises:
        GraphflowError: `thread_not_found`; `not_found` when the chat has no such call.
    """
    await context.runs.ready()
    await flush_live(context, chat_id)
    loaded = await load_thread(context.store, chat_id)
    if loaded is None or loaded.row.head is None:
        raise unknown_chat(chat_id)
    # Only the root's: the messages of a subgraph are gone once it ends.
    messages = loaded.machine.frames[ROOT].state.get("messages", ())
    for message in reversed(messages):
        if isinstance(message, ToolMessage) and message.tool_call_id == tool_id:
            result = message.text if message.whole is None else message.whole
            return {"toolId": tool_id, "toolName": message.name, "result": result, "cut": message.whole is not None}
    raise GraphflowError(f"chat {chat_id!r} has no result of a call {excerpt_of(tool_id, 160)}", code="not_found")
