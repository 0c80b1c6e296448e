"""What every coding tool shares: the parameter `path`, work beside the event loop, and refusals as results."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from graphflow.excerpts import excerpt_of
from graphflow.tools.context import ToolContext
from graphflow.tools.function import FunctionBody
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.run_in_thread import owner_of, run_in_thread
from graphflow.tools.signature import SchemaSignature
from graphflow.tools.workspace import FileRefused, Workspace
from graphflow.tools.workspace.homes import Workspaces
from graphflow.tools.workspace.resolving import FoundPath

Work = Callable[[Workspace, Mapping[str, Any], ToolContext], ToolResult]
"""`(workspace, checked arguments, context) → result`; blocks, so it runs in a thread, and may raise `FileRefused`."""

PATH: dict[str, Any] = {
    "type": "string",
    "description": "A path relative to the workspace, taken literally: no ~, no variables, no wildcards",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Sequences that a terminal would obey, and other control characters but tab and newline."""


def coding_tool(
    workspaces: Workspaces,
    work: Work,
    *,
    name: str,
    description: str,
    properties: Mapping[str, Any],
    required: tuple[str, ...] = (),
    **fields: Any,
) -> Tool:
    """A tool that does this work in the workspace of its thread.

    Args:
        workspaces: the workspace of each thread.
        work: the work itself.
        name: of the tool.
        description: for the model.
        properties: JSON Schemas of the arguments by name.
        required: the arguments that must be given.
        **fields: other fields of `Tool`.
    """

    async def run(ctx: ToolContext, **arguments: Any) -> ToolResult:
        try:
            place = await workspaces.of(ctx.thread_id)
            owner = owner_of(ctx.starter, ctx.thread_id)
            result: ToolResult = await run_in_thread(owner, work, place.workspace, arguments, ctx)
        except FileRefused as refused:
            data = getattr(refused, "data", None)
            result = failed(refused.code, str(refused), NEXT_STEPS.get(refused.code, ""), data=data)
        return msgspec.structs.replace(result, text=without_escapes(result.text))

    parameters = {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
    body = FunctionBody(run, SchemaSignature(parameters))
    return Tool(name=name, description=description, body=body, whole_envelope=True, templates=False, **fields)


NEXT_STEPS: Mapping[str, str] = {
    "NOT_FOUND": "Look with LS or Glob for what exists.",
    "ACCESS_DENIED": "Use a path inside the workspace.",
    "PERMISSION_DENIED": "Tell the person, or use another file.",
    "IS_DIRECTORY": "Use LS for a folder, or name a file in it.",
    "INVALID_PARAM": "Change the argument and call again.",
    "CONFLICT": "Read the file again, then repeat the change if it still fits.",
}
"""What to do about a refusal of the file port, by its code."""


def checked_path(path: str) -> str:
    """The path, if it is one that a file of a project may have.

    Raises:
        FileRefused: it is blank, or has control characters.
    """
    if not path.strip():
        raise FileRefused("INVALID_PARAM", f"path {path!r} is blank; name a file or a folder")
    if _CONTROL.search(path):
        raise FileRefused("INVALID_PARAM", f"path {excerpt_of(path)} has a control character; paths are plain text")
    return path


def find(workspace: Workspace, path: str) -> FoundPath:
    """Where the path leads; `facts` is None where nothing is there.

    Raises:
        FileRefused: it is no path, or leads nowhere that tools may go.
    """
    return workspace.find(checked_path(path))


def existing(workspace: Workspace, path: str) -> FoundPath:
    """Where the path leads, to something that exists.

    Raises:
        FileRefused: also `NOT_FOUND`, with a hint at a name that only looks like this one.
    """
    try:
        found = find(workspace, path)
    except FileRefused as refused:
        if refused.code == "NOT_FOUND":
            raise _not_found(workspace, path) from None
        raise
    if found.facts is None:
        raise _not_found(workspace, path)
    return found


def resolved(workspace: Workspace, found: FoundPath) -> str:
    """`path_resolved`: relative to the workspace, with `/`; absolute in a further folder."""
    if found.root.given == workspace.root:
        return printable("/".join(found.parts) or ".")
    return printable(str(found.path))


def in_context(workspace: Workspace, found: FoundPath) -> dict[str, Any]:
    """The `context` of a result about one path."""
    return {"path_resolved": resolved(workspace, found)}


def printable(name: str) -> str:
    r"""A name that JSON can hold: bytes that are no UTF-8 as `\xNN`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def without_escapes(text: str) -> str:
    """A text that a terminal shows and does not obey."""
    return _ESCAPES.sub("", text.replace("\r\n", "\n"))


def _not_found(workspace: Workspace, path: str) -> FileRefused:
    folder, _, name = path.rpartition("/")
    hint = ""
    try:
        entries, _more = workspace.entries(folder or ("/" if path.startswith("/") else "."), limit=10_000)
    except FileRefused:
        entries = []
    wanted = unicodedata.normalize("NFKC", name).casefold()
    for entry in entries:
        if entry.name != name and unicodedata.normalize("NFKC", printable(entry.name)).casefold() == wanted:
            hint = f"; {printable(entry.name)!a} exists, which is written with other characters"
            break
    return FileRefused("NOT_FOUND", f"{path!r} does not exist in {workspace.root}{hint}")
