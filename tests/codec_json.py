"""Stored values as JSON without loss, for pictures that a person can review."""

from __future__ import annotations

import base64
import math
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from graphflow.checkpoints.codec import EXTENSIONS, PLAIN, TEXT, UUID_, decode, encode
from graphflow.errors import CodecError


def to_json(value: Any, *, channel: str = "") -> Any:
    """The value as JSON-able data without loss: what JSON has no word for becomes `{"$": name, "value": …}`.

    Raises:
        CodecError: as `encode`.
    """
    return _to_json(_unwrapped(memoryview(encode(value, channel=channel))[1:]))


def from_json(data: Any) -> Any:
    """The value that `to_json` was given.

    Raises:
        CodecError: a marked value is damaged, or of an unknown kind or type.
    """
    try:
        body = msgspec.msgpack.encode(_from_json(data))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CodecError(f"the JSON form of a value is damaged: {error}", code="store_failed") from error
    return decode(bytes([PLAIN]) + body)


_MARK = "$"

_RAW = {TEXT, UUID_}
"""Extensions whose content is bytes; that of all others is msgpack again."""

_CODES = {name: code for code, name in EXTENSIONS.items()}

_unwrapped = msgspec.msgpack.Decoder(ext_hook=lambda code, data: Ext(code, bytes(data))).decode
"""Plain data in which extensions stay what they are."""


def _to_json(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return [_to_json(item) for item in value]
    if kind is dict:
        out = {key: _to_json(item) for key, item in value.items()}
        return {_MARK: "dict", "value": out} if _MARK in out else out
    if kind is bytes:
        return {_MARK: "bytes", "value": base64.b64encode(value).decode()}
    if kind is float and not math.isfinite(value):
        return {_MARK: "float", "value": repr(value)}
    if kind is int and not -(2**53) <= value <= 2**53:
        return {_MARK: "int", "value": str(value)}  # beyond what a reader that has only doubles keeps
    if kind is Ext:
        content = value.data if value.code in _RAW else _unwrapped(value.data)
        return {_MARK: EXTENSIONS[value.code], "value": _to_json(content)}
    return value


def _from_json(data: Any) -> Any:
    if isinstance(data, list):
        return [_from_json(item) for item in data]
    if not isinstance(data, dict):
        return data
    if _MARK not in data:
        return {key: _from_json(item) for key, item in data.items()}
    return _from_mark(data[_MARK], data.get("value"))


def _from_mark(mark: Any, value: Any) -> Any:
    match mark:
        case "dict":
            return {key: _from_json(item) for key, item in value.items()}
        case "bytes":
            return base64.b64decode(value, validate=True)
        case "float":
            return float(value)
        case "int":
            return int(value)
    if mark not in _CODES:
        raise ValueError(f"a value is marked as {mark!r}; marks are {', '.join(sorted(_CODES))}")
    content = _from_json(value)
    return Ext(_CODES[mark], content if _CODES[mark] in _RAW else msgspec.msgpack.encode(content))
