"""The response envelope (spec 8.3): whatever a tool returns becomes a `ToolResult`.

`record_of` and `from_record` are the form that a thread records; it leaves out what can be derived.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from graphflow.content import MEDIA_TYPES, PART_TYPES, MediaPart, media_of, part_misfit, text_of
from graphflow.json_data import plain as in_json
from graphflow.messages import ToolMessage
from graphflow.tools.legacy import is_legacy, read_legacy
from graphflow.tools.result import ToolResult, failed

_STATUSES = frozenset({"success", "partial", "error"})
# Read from the struct, so a new field can't be forgotten here.
_FIELDS = frozenset(ToolResult.__struct_fields__)

_ATOMS = frozenset({str, int, float, bool, type(None)})
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")
SOURCE_FIELDS = frozenset({"sourceId", "source_id", "title", "url", "icon"})

_encoder = msgspec.json.Encoder(enc_hook=in_json)


def json_text(value: Any) -> str:
    """Compact JSON; what JSON does not know becomes a list, an object, or its `str`."""
    return _encoder.encode(value).decode()


class NoJson(TypeError):
    """A value that JSON has no form for, and that can't say in words what it is."""


def plain(value: Any) -> Any:
    """A JSON-able copy of a value: models, dataclasses, structs, dates, sets, bytes, and what has a text of its own.

    Raises:
        NoJson: part of it is none of these.
    """
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_foreign)


def _foreign(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    text = str(value)
    # The text of a class without one of its own (`<Order object at 0x…>`) tells nobody anything.
    if _ADDRESS.search(text):
        raise NoJson(f"a value of type {type(value).__module__}.{type(value).__qualname__}")
    return text


def wrap(value: Any, *, legacy: bool = True, tool: str = "the tool") -> ToolResult:
    """Any return value of a tool as a result: always wrapped, never an exception.

    An object is the data; a text is the text; nothing is `OK`; anything else is `data.result`.

    Args:
        value: what the tool returned; a `ToolResult` or an envelope passes.
        legacy: convert dicts of the older format too (`ENABLE_LEGACY_ADAPTER`).
        tool: its name, for the error result of a value that JSON has no form for.
    """
    if type(value) is str and value.isascii():
        return ToolResult(text=value)
    try:
        result = _wrapped(value, legacy)
    except NoJson as found:
        return unusable(
            tool,
            f"its result holds {found}, which has no JSON form; a tool returns text, numbers, true, false,"
            " null, lists and mappings of them, dataclasses, pydantic models, or a ToolResult",
        )
    try:
        # JSON has no infinity and no NaN: the encoder writes null.
        if b"null" in _encoder.encode(result) and not _is_finite(result):
            return msgspec.convert(_scrubbed(msgspec.to_builtins(result)), ToolResult)
    except UnicodeEncodeError:  # half a surrogate pair, as in names of files that are no UTF-8: no JSON can hold it
        return msgspec.convert(_scrubbed(msgspec.to_builtins(result)), ToolResult)
    return result


def unusable(tool: str, why: str) -> ToolResult:
    """The error result of a tool that ran, and whose result breaks a rule: its author's mistake, not that of the call."""
    return failed(
        "INTERNAL_ERROR", f"{tool} ran, and {why}", "Do not call it again for this result: it would be the same."
    )


def split_parts(value: Any) -> tuple[Any, tuple[MediaPart, ...]]:
    """What a tool returned without its images, audio and files, and these: one, a list of them and texts, or a result's.

    Raises:
        ValueError: one of them has a wrong field.
    """
    parts: tuple[MediaPart, ...] = ()
    kind = type(value)
    if kind in MEDIA_TYPES:
        value, parts = "", (value,)
    elif kind is ToolResult and value.parts:
        value, parts = msgspec.structs.replace(value, parts=()), tuple(value.parts)
    elif (kind is list or kind is tuple) and any(type(item) in PART_TYPES for item in value):
        if all(type(item) is str or type(item) in PART_TYPES for item in value):
            parts = tuple(item for item in value if type(item) in MEDIA_TYPES)
            value = "\n".join(item if type(item) is str else text_of((item,)) for item in value if item not in parts)
    for part in parts:
        if (wrong := part_misfit(part)) is not None:
            raise ValueError(wrong)
    return value, parts


def named_parts(parts: Iterable[MediaPart]) -> str:
    """The parts as a text, for where nobody sees them."""
    return ", ".join(f"[{part.type}: {part.name or part.url or part.media_type or 'unnamed'}]" for part in parts)


def _wrapped(value: Any, legacy: bool) -> ToolResult:
    if isinstance(value, ToolResult):
        return msgspec.structs.replace(value, data=plain(value.data), sources=plain(value.sources))
    # Nothing returned is success; an empty text would leave the model guessing.
    if value is None:
        return ToolResult(text="OK")
    if isinstance(value, str):
        # `str` of a subclass (an enum, say), so that the record holds a plain string.
        return ToolResult(text=str(value))
    data = plain(value)
    if not isinstance(data, dict):
        return ToolResult(data={"result": data})
    if is_envelope(data):
        return from_envelope(data)
    result = read_legacy(data) if legacy and is_legacy(data) else ToolResult(data=data)
    return msgspec.structs.replace(result, sources=_sources(data.get("sources")))


def _sources(given: Any) -> list[dict[str, Any]]:
    """The sources that a tool's own data names: texts, and objects with a field of a source."""
    if not isinstance(given, list):
        return []
    texts = [{"url" if "://" in source else "title": source} if isinstance(source, str) else source for source in given]
    return [source for source in texts if isinstance(source, dict) and not SOURCE_FIELDS.isdisjoint(source)]


def _is_finite(result: ToolResult) -> bool:
    rest: list[Any] = [result.data, result.stats, result.context, result.sources]
    while rest:
        value = rest.pop()
        items = value.values() if isinstance(value, Mapping) else value
        kinds = set(map(type, items))
        if float in kinds and not all(math.isfinite(item) for item in items if type(item) is float):
            return False
        if not _ATOMS.issuperset(kinds):
            rest += [item for item in items if isinstance(item, Mapping | list | tuple)]
    return True


def _scrubbed(value: Any) -> Any:
    """The value as JSON can hold it: `NaN` and `Infinity` as these texts, half a character as `?`."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_scrubbed(key): _scrubbed(item) for key, item in value.items()}
    return [_scrubbed(item) for item in value] if isinstance(value, list | tuple) else value


def is_envelope(data: Mapping[str, Any]) -> bool:
    """Whether a dict is a response envelope rather than a tool's own data."""
    return (
        isinstance(data.get("status"), str)
        and data["status"] in _STATUSES
        and isinstance(data.get("data"), Mapping)
        and isinstance(data.get("text"), str)
        # One further key makes it a tool's own data, which may well have a `status`.
        and _FIELDS.issuperset(data)
    )


def from_envelope(data: Mapping[str, Any]) -> ToolResult:
    """The result of an envelope; an envelope that breaks the protocol becomes an `INTERNAL_ERROR`."""
    try:
        return msgspec.convert(dict(data), ToolResult)
    except (msgspec.ValidationError, ValueError) as error:
        return failed("INTERNAL_ERROR", f"the tool's answer is not a valid envelope: {error}", "Try another way.")


def completed(result: ToolResult, arguments: Mapping[str, Any]) -> ToolResult:
    """The result with its derived parts filled in: text, time, working directory and arguments."""
    text = result.text
    if not text.strip():
        text = json_text(result.data) if result.data else named_parts(result.parts) or "OK (no output)"
    stats = result.stats if "time_ms" in result.stats else {"time_ms": 0, **result.stats}
    context = {"cwd": ".", "params_input": dict(arguments), **result.context}
    return msgspec.structs.replace(result, text=text, stats=stats, context=context)


def to_envelope(result: ToolResult) -> dict[str, Any]:
    """The envelope of spec 8.3: exactly `status, data, text, stats, context`, and `error` when it is one."""
    full = completed(result, result.context.get("params_input", {}))
    out = {"status": full.status, "data": full.data, "text": full.text, "stats": full.stats, "context": full.context}
    if full.error is not None:
        out["error"] = {"code": full.error.code, "message": full.error.message}
    return out


def record_of(result: ToolResult) -> dict[str, Any]:
    """The result as JSON data for the thread's record; defaults are left out, `status` never."""
    parts = result.parts
    if parts:
        result = msgspec.structs.replace(result, parts=())
    record: dict[str, Any] = msgspec.to_builtins(result)
    if parts:  # as a message, whose bytes the journal stores once
        record["parts"] = ToolMessage(tool_call_id="", content=parts)
    # `omit_defaults` drops `success`; without a status a record could not be told from a person's result.
    return {"status": result.status, **record}


def from_record(record: Any) -> ToolResult:
    """The result of a record, or of what a person gave for a call with an unknown outcome (E6)."""
    if record is None:
        return failed(
            "CANCELLED",
            "whether this call happened is unknown, and it was skipped",
            "Do not rely on it; check before you call it again.",
        )
    # A record of ours has only our fields; anything else is what a person gave as the result.
    if isinstance(record, Mapping) and "status" in record and _FIELDS.issuperset(record):
        if isinstance(kept := record.get("parts"), ToolMessage):
            result = from_envelope({name: value for name, value in record.items() if name != "parts"})
            return msgspec.structs.replace(result, parts=media_of(kept.content))
        return from_envelope(record)
    # A person's result is no tool's older format, whatever its keys.
    return wrap(record, legacy=False)
