"""A server's result as a tool result: texts, structured data, and images, audio and resources as parts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from graphflow.content import AudioPart, FilePart, ImagePart, MediaPart, part_misfit
from graphflow.excerpts import excerpt_of
from graphflow.tools.result import ToolFailure, ToolResult

_MEDIA: dict[str, type[ImagePart | AudioPart]] = {"image": ImagePart, "audio": AudioPart}


def result_of(raw: Mapping[str, Any]) -> ToolResult:
    """The result of one `tools/call`, in the JSON form of the protocol; what it can't hold is said in its text."""
    texts: list[str] = []
    parts: list[MediaPart] = []
    sources: list[dict[str, Any]] = []
    for block in raw.get("content") or ():
        read = _block(block if isinstance(block, Mapping) else {}, sources)
        if isinstance(read, str):
            texts.append(read)
        else:
            parts.append(read)
    structured = raw.get("structuredContent")
    data = dict(structured) if isinstance(structured, Mapping) else {} if structured is None else {"result": structured}
    text = "\n".join(text for text in texts if text)
    if raw.get("isError"):
        message = text or "the server reports an error and says nothing of it"
        failure = ToolFailure(code="EXECUTION_ERROR", message=message)
        return ToolResult(status="error", text=message, data=data, error=failure, parts=tuple(parts))
    return ToolResult(text=text, data=data, parts=tuple(parts), sources=sources)


def _block(block: Mapping[str, Any], sources: list[dict[str, Any]]) -> str | MediaPart:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind in _MEDIA:
        return _media(_MEDIA[kind], block.get("data"), block.get("mimeType"), None)
    if kind == "resource":
        return resource(block.get("resource"))
    if kind == "resource_link":
        uri, name = str(block.get("uri", "")), str(block.get("title") or block.get("name") or "")
        sources.append({"url": uri, "title": name or uri})
        return f"[resource: {name} {uri}]".replace(": ]", "]")
    return f"[content of the type {excerpt_of(kind, 40)}, which is not known here, is left out]"


def resource(given: Any) -> str | MediaPart:
    """A resource's content: its text, or its bytes as a part."""
    found = given if isinstance(given, Mapping) else {}
    if "text" in found:
        return str(found["text"])
    kind, uri = found.get("mimeType"), str(found.get("uri", ""))
    cls: type[MediaPart] = _MEDIA.get(str(kind).partition("/")[0], FilePart)
    return _media(cls, found.get("blob"), kind, uri.rpartition("/")[2] or uri or None)


def _media(cls: type[MediaPart], data: Any, kind: Any, name: str | None) -> str | MediaPart:
    try:
        content = base64.b64decode(data if isinstance(data, str) else "", validate=True)
    except binascii.Error:
        return "[content that is no base64 is left out]"
    part = cls(data=content, media_type=str(kind) if kind else None, name=name, size=len(content))
    wrong = part_misfit(part)
    return part if wrong is None else f"[content is left out: {wrong}]"
