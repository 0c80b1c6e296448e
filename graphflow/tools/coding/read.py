"""`Read`: lines of a text file with their numbers, or an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from graphflow.content import ImagePart, media_type_of
from graphflow.tools.coding.file_tool import PATH, coding_tool, existing, find, resolved
from graphflow.tools.coding.locks import forget_content, known_digest, note_content
from graphflow.tools.coding.snapshot import Snapshot, take_snapshot
from graphflow.tools.coding.text import HEAD_BYTES, FileText, text_of
from graphflow.tools.context import ThreadNotes, ToolContext
from graphflow.tools.envelope import json_text
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.workspace import FileRefused, Workspace
from graphflow.tools.workspace.homes import Workspaces
from graphflow.tools.workspace.resolving import FoundPath

DEFAULT_LINES, MAX_LINES = 500, 2_000
MAX_LINE_CHARS = 2_000
MAX_CHARS = 40_000
"""Of the content in JSON: the rest of the envelope fits beside it into what a model gets."""
MAX_IMAGE_BYTES = 5 * 1024 * 1024
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def read_tool(workspaces: Workspaces, encodings: Sequence[str] = ()) -> Tool:
    """The tool `Read`.

    Args:
        workspaces: the workspace of each thread.
        encodings: of files that are not UTF-8, tried in this order.
    """

    def work(workspace: Workspace, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        notes = ctx.notes or ThreadNotes()
        path = arguments["path"]
        try:
            found = existing(workspace, path)
        except FileRefused:
            _forget(workspace, path, notes)
            raise
        return _read(workspace, found, arguments, encodings, notes)

    return coding_tool(
        workspaces,
        work,
        name="Read",
        description=f"Reads a file of the workspace: text as numbered lines, at most {MAX_LINES} at once, or an image. "
        "A file must be read before it is changed.",
        properties={
            "path": PATH,
            "start_line": {"type": "integer", "minimum": 1, "description": "The first line; default 1"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LINES,
                "description": f"How many lines; default {DEFAULT_LINES}",
            },
        },
        required=("path",),
        effects="read",
    )


def _forget(workspace: Workspace, path: str, notes: ThreadNotes) -> None:
    """A file that is gone may be written anew."""
    with suppress(FileRefused):
        found = find(workspace, path)
        if found.facts is None:
            forget_content(notes, resolved(workspace, found))


def _read(
    workspace: Workspace, found: FoundPath, arguments: Mapping[str, Any], encodings: Sequence[str], notes: ThreadNotes
) -> ToolResult:
    path, name = arguments["path"], resolved(workspace, found)
    context = {"path_resolved": name}
    snapshot = take_snapshot(workspace, path)
    known = known_digest(notes, name)
    result = _shown(snapshot, found, arguments, encodings, context)
    if result.ok:
        note_content(notes, name, snapshot.facts, snapshot.digest)
        if known not in (None, snapshot.digest):
            return msgspec.structs.replace(result, data={**result.data, "modified_externally": True})
    return result


def _shown(
    snapshot: Snapshot,
    found: FoundPath,
    arguments: Mapping[str, Any],
    encodings: Sequence[str],
    context: Mapping[str, Any],
) -> ToolResult:
    path = arguments["path"]
    text = text_of(snapshot.data, encodings)
    if text is None or not text.exact:
        kind = media_type_of(None, None, snapshot.data[:HEAD_BYTES])
        if kind in _IMAGES:
            return _image(snapshot, kind, found.parts[-1], context)
    if text is None:
        message = f"{path!r} is a binary file of {len(snapshot.data):,} bytes"
        return failed("BINARY_FILE", message, "Only text and images can be read.", context=context)
    return _lines(snapshot, text, arguments, context)


def _image(snapshot: Snapshot, kind: str, name: str, context: Mapping[str, Any]) -> ToolResult:
    if len(snapshot.data) > MAX_IMAGE_BYTES:
        message = f"{name!r} is an image of {len(snapshot.data):,} bytes; the limit is {MAX_IMAGE_BYTES:,}"
        return failed("INVALID_PARAM", message, "Make it smaller first.", context=context)
    return ToolResult(
        data={"content": "", "media_type": kind},
        text=f"The image {name!r} ({kind}, {len(snapshot.data):,} bytes) is shown.",
        stats=_stats(snapshot),
        context=dict(context),
        parts=(ImagePart(data=snapshot.data, media_type=kind, name=name),),
    )


def _lines(snapshot: Snapshot, text: FileText, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
    start, limit = arguments.get("start_line", 1), arguments.get("limit", DEFAULT_LINES)
    total = line_count(text.text)
    if start > max(total, 1):
        message = f"start_line is {start}, and the file has {total} lines; use 1 to {max(total, 1)}"
        return failed("INVALID_PARAM", message, "Read from an earlier line.", context=context)
    shown, cut_lines = _numbered(text.text, start, limit)
    content = "\n".join(shown)
    last = start + len(shown) - 1
    data: dict[str, Any] = {"content": content}
    notes = [f"Lines {start} to {last} of {total}." if shown else "The file is empty."]
    if last < total and shown:
        notes.append(f"Truncated: read on with start_line={last + 1}.")
    if cut_lines:
        notes.append(f"{cut_lines} long lines are cut at {MAX_LINE_CHARS} characters; Grep shows parts of them.")
    if cut_lines or (last < total and shown):
        data["truncated"] = True
    if not text.exact:
        data |= {"fallback_used": True, "fallback_encoding": "utf-8 with replacement"}
        notes.append("Fallback: it is not valid UTF-8, so some characters are replaced; it is not editable as text.")
    return ToolResult(
        status="partial" if data.keys() & {"truncated", "fallback_used"} else "success",
        data=data,
        text=" ".join(notes),
        stats={
            "lines_read": len(shown),
            "chars_read": len(content),
            "total_lines": total,
            "encoding": text.encoding + ("-sig" if text.mark and text.encoding == "utf-8" else ""),
            **_stats(snapshot),
        },
        context=dict(context),
    )


def _stats(snapshot: Snapshot) -> dict[str, Any]:
    return {"file_size_bytes": len(snapshot.data), "file_mtime_ms": snapshot.facts.st_mtime_ns // 1_000_000}


def line_count(text: str) -> int:
    """Lines as `grep -n` and editors count them: by newlines, and a last one without."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


def _numbered(text: str, start: int, limit: int) -> tuple[list[str], int]:
    """The lines as they are shown, as many as there is room for, and how many of them were cut."""
    at = 0
    for _ in range(start - 1):
        at = text.index("\n", at) + 1
    shown: list[str] = []
    cut, room = 0, MAX_CHARS
    while at < len(text) and len(shown) < limit:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at : min(end, at + MAX_LINE_CHARS + 1)]
        if len(line) > MAX_LINE_CHARS and not (len(line) == end - at and line.endswith("\r")):
            line = f"{line[:MAX_LINE_CHARS]} … [the line has {end - at} characters]"
            cut += 1
        line = f"{start + len(shown):4d} | {line.removesuffix(chr(13))}"
        room -= len(json_text(line))
        if room < 0 and shown:
            break
        shown.append(line)
        at = end + 1
    return shown, cut
