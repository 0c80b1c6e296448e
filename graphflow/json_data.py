"""What JSON has no form for, as something that it has: the hook of every encoder that writes for people and clients."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

MAX_DEPTH = 128
"""Levels that are told of a value which has to be looked through piece by piece; no state has as many."""
MAX_PIECES = 10_000
"""Pieces that are still told of a value once it was found to contain itself: the ways through it may have no end."""
_ATOMS = frozenset({str, int, float, bool, type(None)})
MAX_BITS = 14_000
"""A number that is longer has no decimal form in Python (`sys.set_int_max_str_digits`)."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_EXPONENT = re.compile(rb"(?<![\d.])-?+\d[\d.]*+[eE]\+?\d++")
_WIDE = re.compile(rb"\d{20,}")
SLICE_BYTES = 256 * 1024
"""Searched in one call, which lets no other thread run."""


def plain(value: Any) -> Any:
    """A list for any sequence (an append channel's view) but a text's own class, a dict for any mapping, else its text."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


_encode = msgspec.json.Encoder(enc_hook=plain).encode


def encode_json(value: Any) -> bytes:
    """Any value as one line of JSON.

    It never fails. Half a character (a lone surrogate) goes out as its escape, keys that are no text as their text, what
    contains itself only once, and what can't even say what it is as the name of its class.
    """
    try:
        return _encode(value)
    except Exception:  # noqa: BLE001 - a value's own `__str__` may raise anything
        import json  # for odd values alone, and they pay for it: nothing else of the graph API needs it

        return json.dumps(_Teller().told(value), separators=(",", ":")).encode()


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        return plain(value)
    raise TypeError(f"it holds a value of type {type(value).__module__}.{type(value).__qualname__}")


_encode_strictly = msgspec.json.Encoder(enc_hook=_listed).encode


def json_misfit(value: Any) -> str | None:
    """Why JSON has no form for a value; `encode_json` would tell it by its text."""
    try:
        _encode_strictly(value)
    except TypeError as error:
        return str(error)
    except (OverflowError, RecursionError, UnicodeEncodeError):  # has a form, see `encode_json`
        pass
    return None


def decode_json(data: bytes) -> Any:
    """What `encode_json` was given, half characters too."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        import json

        return json.loads(data)


def whole_characters(value: Any) -> Any:
    """`value` with every half of a surrogate pair, at any depth, as U+FFFD: no encoder takes halves."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [whole_characters(item) for item in value]
    if isinstance(value, dict):
        return {whole_characters(name): whole_characters(item) for name, item in value.items()}
    return value


class _Teller:
    """Looks through one value piece by piece."""

    def __init__(self) -> None:
        self._within: set[int] = set()
        """Identities of the values that the piece at hand stands in."""
        self._left = math.inf
        """Pieces that may still be told."""

    def told(self, value: Any, depth: int = 0) -> Any:
        identity = id(value)
        if identity in self._within:
            self._left = min(self._left, MAX_PIECES)
        self._left -= 1
        # A value that holds itself ends at its second appearance; a deep or an endless one at a bound.
        if identity in self._within or depth > MAX_DEPTH or self._left < 0:
            return "…"
        self._within.add(identity)
        try:
            return self._form(value, depth + 1)
        except Exception:  # noqa: BLE001 - as in `encode_json`
            return f"<{type(value).__name__}>"
        finally:
            self._within.discard(identity)

    def _form(self, value: Any, deeper: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, int):
            return int(value) if value.bit_length() <= MAX_BITS else "…"
        # JSON has no infinity and no NaN; null is what msgspec writes for them too.
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, Mapping):
            return {str(key): self.told(item, deeper) for key, item in value.items()}
        if isinstance(value, msgspec.Struct):
            return self._fields(value, deeper)
        if isinstance(value, Sequence | AbstractSet) and not isinstance(value, bytes | bytearray):
            return [self.told(item, deeper) for item in value]
        return self.told(msgspec.to_builtins(value, enc_hook=str), deeper)

    def _fields(self, value: msgspec.Struct, deeper: int) -> dict[str, Any]:
        config = value.__struct_config__
        out: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
        for field in msgspec.structs.fields(value):
            item = getattr(value, field.name)
            if not (type(item) is type(field.default) and item == field.default):
                out[field.encode_name] = self.told(item, deeper)
        return out


def values_in(data: bytes, most: int) -> int:
    """About how many values a JSON text has; counting ends once they are more than `most`.

    Each count is a few milliseconds in C: what is refused was never read. An integer that is wider than 64 bits counts as
    many values, since reading and writing its digits takes as long.
    """
    count = _separators(data) + _wide_integers(data)
    if count <= most:
        return count
    # Some of these may stand in texts: those are taken out.
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    # An entry has a name and a value, each of which may be a text.
    if (texts := plain.count(b'"') // 2) > 2 * most:
        return texts // 2
    bare = b" ".join(plain.split(b'"')[::2])
    return _separators(bare) + _wide_integers(bare)


def _separators(data: bytes) -> int:
    return 1 + data.count(b",") + data.count(b"[") + data.count(b"{")


def _wide_integers(data: bytes) -> int:
    """The values as which the wide integers count; one that two slices share counts as two shorter ones."""
    count = 0
    for at in range(0, len(data), SLICE_BYTES):
        for found in _WIDE.finditer(data, at, at + SLICE_BYTES):
            digits = found.end() - found.start()
            count += 6 + digits * digits // 8_000  # measured beside the values of a list of short texts
    return count


def deeper_than(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested deeper than that: looked at level by level, so no depth is too much."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [each for each in layer if isinstance(each, Mapping | list | tuple)]
        if not layer:
            return False
        inner: list[Any] = []
        for each in layer:
            values = each.values() if isinstance(each, Mapping) else each
            if not _ATOMS.issuperset(map(type, values)):
                inner += values
        layer = inner
    return True


def unreadable(data: bytes, error: Exception) -> str:
    """Why the decoder did not take a JSON text."""
    wide = _infinite_number(data)
    if wide is not None:
        return f"{wide} is larger than a double can be; send it as text"
    # The decoder words it as if the body were cut.
    if "truncated" in str(error) and data.rstrip().endswith(b"}") and (half := _SURROGATE.search(data)) is not None:
        return f"not valid JSON: {half[0].decode()} may be half of a character; send both halves of a surrogate pair, or the character"
    return f"not valid JSON: {error}"


def _infinite_number(data: bytes) -> str | None:
    """The first number of a JSON text that no double holds."""
    for match in _EXPONENT.finditer(_TEXT.sub(b'""', data)):
        written = match[0].decode()
        try:
            if math.isinf(float(written)):
                return "the number " + (written if len(written) <= 40 else written[:39] + "…")
        except ValueError:
            return None  # `1.2.3e4`: that is what is wrong
    return None
