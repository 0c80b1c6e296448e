"""The version hash of documents: RFC 8785 canonical JSON under SHA-256, Merkle-wise (E23)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any


def digest(data: Any) -> str:
    """`sha256:` and the hash of the data's canonical JSON.

    Raises:
        ValueError: something that JSON has no form for.
    """
    return f"sha256:{hashlib.sha256(canonical_json(data)).hexdigest()}"


def version_hash(document: Any, *, graphs: Mapping[str, str], names: Mapping[str, Any]) -> str:
    """The hash of a document and of everything that it refers to.

    Args:
        document: the compiled document, no defaults filled in.
        graphs: reference → hash of each graph that it refers to (`graph:KEY`, `agent:KEY`).
        names: registered name → what identifies its version, for names that have one.

    Returns:
        For a document that refers to nothing, just the hash of its canonical JSON.
    """
    if not graphs and not names:
        return digest(document)
    return digest({"document": document, "graphs": dict(graphs), "names": dict(names)})


def canonical_json(data: Any) -> bytes:
    """RFC 8785: keys in UTF-16 order, numbers as ECMAScript writes them, no white space.

    Whole numbers beyond 2^53 are outside that RFC; they are written in full, so that two of them never
    hash alike.

    Raises:
        ValueError: NaN, infinity, half a surrogate pair, or a type that is not JSON's.
    """
    out: list[str] = []
    _write(data, out)
    return "".join(out).encode("utf-8")


def _write(value: Any, out: list[str]) -> None:
    if value is None:
        out.append("null")
    elif value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif isinstance(value, str):
        out.append(encode_basestring(value))
    elif isinstance(value, int):
        # `int` first: the text of an `IntEnum` member is its name in some versions of Python.
        out.append(str(int(value)))
    elif isinstance(value, float):
        out.append(_number(value))
    elif isinstance(value, Mapping):
        _write_object(value, out)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        out.append("[")
        for index, item in enumerate(value):
            if index:
                out.append(",")
            _write(item, out)
        out.append("]")
    else:
        raise ValueError(f"{type(value).__name__} is not a JSON type")


def _write_object(value: Mapping[Any, Any], out: list[str]) -> None:
    if not all(isinstance(key, str) for key in value):
        raise ValueError("an object's keys are text")
    out.append("{")
    # UTF-16 order, not code points: RFC 8785 follows ECMAScript, and beyond U+FFFF the two differ.
    for index, key in enumerate(sorted(value, key=_utf16)):
        if index:
            out.append(",")
        out.append(encode_basestring(key))
        out.append(":")
        _write(value[key], out)
    out.append("}")


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _number(value: float) -> str:
    """ECMAScript's Number::toString: Python finds the same shortest digits but formats them differently."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len((whole + fraction).lstrip("0")))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    power = point - 1
    shown = f"{digits[0]}.{digits[1:]}" if count > 1 else digits
    return f"{sign}{shown}e{'+' if power > 0 else '-'}{abs(power)}"
