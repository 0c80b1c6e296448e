"""The codec: values as bytes and back, with their types, and no pickle (spec 4.3).

A blob is one format byte and a body. In format 1 the body is msgpack: what msgpack has by itself (str, int, float,
bool, None, bytes, list, dict with str keys) is plain, everything else is an extension whose code stands in
`EXTENSIONS`. msgspec would write datetimes, sets, tuples, enums and structs by itself, but as plain text, lists and
maps, so they are turned into extensions before it sees them.

Types of the user's own are stored under a registered name, never under an import path, with a version and upgrade
functions (`register`, in `type_registry.py`), so that code may move and change under stored data.

Reading a value calls no constructor of the user's and validates nothing: what was stored is what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn, TypeVar
from uuid import UUID

import msgspec
from msgspec.msgpack import Ext

from graphflow.checkpoints import timestamps, type_registry
from graphflow.checkpoints.type_registry import register
from graphflow.content import MEDIA_TYPES, PART_TYPES, Content
from graphflow.errors import CodecError
from graphflow.graph.core.immutable import FrozenDict, FrozenList, ListView, State
from graphflow.json_data import MAX_BITS
from graphflow.messages import (
    MESSAGE_TYPES,
    AIMessage,
    HumanMessage,
    Message,
    ProviderState,
    SystemMessage,
    ToolCall,
    ToolMessage,
    misfit,
)
from graphflow.value_size import HiddenFields

__all__ = ["EXTENSIONS", "FORMATS", "decode", "encode", "encode_parts", "register", "storable"]

PLAIN = 1
FORMATS = {
    PLAIN: "msgpack",
    2: "never used",
    3: "never used",
    4: "never used",
}
"""First byte of a blob → what follows. A number is never used for something else; those of encrypted blobs (`encryption/cipher.py`) are
from 248 on."""
ENCRYPTED_FROM = 0xF8

INTEGER, TUPLE, SET, FROZENSET, PAIRS, TEXT = 1, 2, 3, 4, 5, 6
DATETIME, DATE, TIME, TIMEDELTA, DECIMAL, UUID_ = 10, 11, 12, 13, 14, 15
MESSAGE, TOOL_CALL = 20, 21
REGISTERED = 30

EXTENSIONS = {
    INTEGER: "integer",  # decimal text, beyond 64 bits
    TUPLE: "tuple",  # an array
    SET: "set",  # an array, sorted by its bytes
    FROZENSET: "frozenset",  # the same
    PAIRS: "map",  # an array of [key, value], where a key is not a str
    TEXT: "text",  # UTF-8 with surrogates passed, where a str has lone ones
    DATETIME: "datetime",  # [ISO 8601, zone key or None, fold]
    DATE: "date",  # ISO 8601
    TIME: "time",  # [ISO 8601, zone key or None, fold]
    TIMEDELTA: "timedelta",  # [days, seconds, microseconds]
    DECIMAL: "decimal",  # text
    UUID_: "uuid",  # 16 bytes
    MESSAGE: "message",  # the struct as a map, told apart by `role`
    TOOL_CALL: "tool_call",  # the struct as a map
    REGISTERED: "type",  # [name, version, content]
}
"""Extension code → its name in JSON. Codes and names are never reused; msgpack keeps the negative ones for itself."""

MAX_DEPTH = 100
"""Containers in containers; a deeper value is refused, as is one that contains itself."""


def _inside(value: Any) -> Any:
    """The fields of an opaque value: they are shown to nobody, but stored."""
    if type(value) is HiddenFields:
        return value.fields
    raise TypeError(f"{type(value).__name__} can't be packed")  # never: the walk has looked at every value


_encoder = msgspec.msgpack.Encoder(enc_hook=_inside)
_pack = _encoder.encode
_SCALARS = frozenset({str, float, bool, type(None), bytes, int})
_TEXTS = frozenset({str})


def encode(value: Any, *, channel: str = "") -> bytes:
    """The value as a blob.

    Args:
        channel: the state key or place that the value is for; errors name it.

    Raises:
        CodecError: a value in it has a type that is not registered, contains itself, or is nested too deeply.
    """
    try:
        return b"\x01" + _pack(_walk(value, 0))
    except (OverflowError, UnicodeEncodeError):
        pass  # an integer beyond 64 bits or a lone surrogate: rare, so only looked for when met
    except _Refused as refused:
        _refuse(refused, channel)
    try:
        return b"\x01" + _pack(_Careful().walk(value, 0))
    except _Refused as refused:
        _refuse(refused, channel)


def storable(value: Any, *, channel: str = "") -> Any:
    """The value as a part of data that `encode_parts` writes: walked once, the data around it not at all.

    Raises:
        CodecError: as `encode`.
    """
    if type(value) in _SCALARS:
        return value
    try:
        return _walk(value, 0)
    except (OverflowError, UnicodeEncodeError):
        pass
    except _Refused as refused:
        _refuse(refused, channel)
    try:
        return _Careful().walk(value, 0)
    except _Refused as refused:
        _refuse(refused, channel)


def encode_parts(data: Any) -> bytes:
    """Plain lists and maps of scalars and `storable` parts as a blob; `decode` reads it."""
    try:
        return b"\x01" + _pack(data)
    except (OverflowError, UnicodeEncodeError):
        pass
    try:
        return b"\x01" + _pack(_Careful().walk(data, 0))
    except _Refused as refused:
        _refuse(refused, "")


def decode(data: bytes) -> Any:
    """The value that was encoded; frozen mappings and lists come back as plain ones.

    Raises:
        CodecError: the bytes are damaged, of a format or type that this process does not know, or of a newer version.
    """
    if not data or data[0] != PLAIN:
        raise _unknown_format(data)
    return _decoded(memoryview(data)[1:])


# --- writing: plain data and extensions ----------------------------------------------------------


class _Refused(Exception):
    """Why a value can't be stored; `encode` adds the channel."""


def _refuse(refused: _Refused, channel: str) -> NoReturn:
    place = f"the value of {channel!r}" if channel else "the value"
    raise CodecError(f"{place} can't be stored: {refused}", channel=channel) from None


def _walk(value: Any, depth: int) -> Any:
    """The value as what msgspec encodes without loss; untouched parts come back as they are."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    writer = _WRITERS.get(kind)
    if writer is not None:
        return writer(value, depth, _walk)
    return _registered(value, depth, _walk)


_Walk = Callable[[Any, int], Any]
Stateful = TypeVar("Stateful", AIMessage, ToolCall)


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise _Refused(
            f"it is nested deeper than {MAX_DEPTH} levels, or contains itself: store references by id instead"
        )
    return depth + 1


def _list(value: Any, depth: int, walk: _Walk) -> Any:
    if walk is _walk and _SCALARS.issuperset(map(type, value)):
        return value  # early outs in C: most values are leaves
    depth = _deeper(depth)
    return [walk(item, depth) for item in value]


def _dict(value: Any, depth: int, walk: _Walk) -> Any:
    if walk is not _walk or not _TEXTS.issuperset(map(type, value)):
        return _pairs(value, _deeper(depth), walk)
    if _SCALARS.issuperset(map(type, value.values())):
        return value
    depth = _deeper(depth)
    return {key: walk(item, depth) for key, item in value.items()}


def _pairs(value: Mapping[Any, Any], depth: int, walk: _Walk) -> Any:
    """A map whose keys need a walk of their own."""
    # After the walk, since a str key with lone surrogates has become an extension by now.
    pairs = [(walk(key, depth), walk(item, depth)) for key, item in value.items()]
    if all(type(key) is str for key, _ in pairs):
        return dict(pairs)
    return Ext(PAIRS, _pack(pairs))


def _array(code: int) -> Callable[[Any, int, _Walk], Any]:
    def write(value: Any, depth: int, walk: _Walk) -> Ext:
        depth = _deeper(depth)
        return Ext(code, _pack([walk(item, depth) for item in value]))

    return write


def _bag(code: int) -> Callable[[Any, int, _Walk], Any]:
    def write(value: Any, depth: int, walk: _Walk) -> Ext:
        # Sorted, because a set of strings has another order in each process, and equal values have to give equal bytes.
        depth = _deeper(depth)
        return Ext(code, _pack(sorted((walk(item, depth) for item in value), key=_pack)))

    return write


def _packed(code: int, form: Callable[[Any], Any]) -> Callable[[Any, int, _Walk], Any]:
    return lambda value, depth, walk: Ext(code, _pack(form(value)))


def _whole(value: Message | ToolCall) -> None:
    if (wrong := misfit(value)) is not None:
        raise _Refused(f"{wrong}; it could not be read again")


media_met = [object()]
"""Another object for each message with media that is encoded in this process, in any thread: the journal takes large bytes out of
those that are new."""


def _note_media(content: Content) -> None:
    if any(isinstance(part, MEDIA_TYPES) for part in content):
        media_met[0] = object()


def _message(value: Message, depth: int, walk: _Walk) -> Ext:
    _whole(value)
    if type(value.content) is not str:
        _note_media(value.content)
    return Ext(MESSAGE, _pack(value))


def _tool_call(value: ToolCall, depth: int, walk: _Walk) -> Ext:
    _whole(value)
    return Ext(TOOL_CALL, _pack(_with_state(value, depth, walk)))


def _ai_message(value: AIMessage, depth: int, walk: _Walk) -> Ext:
    _whole(value)
    if type(value.content) is not str:
        _note_media(value.content)
    if value.reasoning_details:
        details = tuple(walk(item, _deeper(depth)) for item in value.reasoning_details)
        value = msgspec.structs.replace(value, reasoning_details=details)
    if value.provider_state is not None:
        value = _with_state(value, _deeper(depth), walk)
    if any(call.provider_state is not None for call in value.tool_calls):
        calls = tuple(_with_state(call, _deeper(depth), walk) for call in value.tool_calls)
        value = msgspec.structs.replace(value, tool_calls=calls)
    return Ext(MESSAGE, _pack(value))


def _with_state(value: Stateful, depth: int, walk: _Walk) -> Stateful:
    """The message or call with provider state that can be packed: what providers send is plain, what users put in need not be."""
    state = value.provider_state
    if state is None:
        return value
    state = msgspec.structs.replace(state, data=_dict(state.data.fields, depth, walk))
    return msgspec.structs.replace(value, provider_state=state)


def _human_message(value: HumanMessage, depth: int, walk: _Walk) -> Ext:
    _whole(value)
    if type(value.content) is not str:
        _note_media(value.content)
    if value.references:
        depth = _deeper(depth)
        value = msgspec.structs.replace(value, references=tuple(walk(item, depth) for item in value.references))
    return Ext(MESSAGE, _pack(value))


def _registered(value: Any, depth: int, walk: _Walk) -> Ext:
    kind = type(value)
    entry = type_registry.entry_of(kind)
    if entry is None:
        raise _Refused(
            f"it holds a value of type {kind.__module__}.{kind.__qualname__}, which is not registered: call"
            f' graphflow.checkpoints.codec.register({kind.__qualname__}, "a name that never changes"),'
            " or give plain data: text, numbers, true and false, None, lists and mappings of them"
        )
    depth = _deeper(depth)
    # `dump` may be the user's code, and a half-built value may lack fields.
    try:
        content = entry.dump(value)
    except (AttributeError, TypeError, ValueError) as error:
        raise _Refused(f"its {entry.name!r} can't be taken apart: {error}") from error
    return Ext(REGISTERED, _pack([entry.name, entry.version, walk(content, depth)]))


class _Careful:
    """The walk that also looks at integers and texts, which `encode` takes when msgspec could not write one."""

    def walk(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is int:
            # msgpack's integers: int64 and uint64.
            return value if -(2**63) <= value < 2**64 else _wide_integer(value)
        if kind is str:
            return value if _is_clean(value) else Ext(TEXT, value.encode("utf-8", "surrogatepass"))
        if kind in _TEXTED:
            if kind not in _INNER:
                _whole(value)
                if type(getattr(value, "content", "")) is not str:
                    _note_media(value.content)
            # A text in a struct's field has no room for an extension: the fields become a map of their own.
            code = TOOL_CALL if kind is ToolCall else MESSAGE
            # A state that isn't there is left out, as msgspec leaves it out: what has none keeps its bytes.
            fields = {
                name: part
                for name in value.__struct_fields__
                if (part := getattr(value, name)) is not None or name != "provider_state"
            }
            return Ext(code, _pack([kind.__name__, self.walk(fields, _deeper(depth))]))
        if kind in _SCALARS:
            return value
        if kind is HiddenFields:
            return self.walk(value.fields, depth)
        writer = _WRITERS.get(kind)
        return _registered(value, depth, self.walk) if writer is None else writer(value, depth, self.walk)


def _wide_integer(value: int) -> Ext:
    if value.bit_length() > MAX_BITS:
        bits = value.bit_length()
        raise _Refused(f"it holds an integer of {bits:,} bits, and {MAX_BITS:,} are the most: keep it as text or bytes")
    return Ext(INTEGER, _pack(str(value)))


def _is_clean(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_INNER = {*PART_TYPES, ProviderState}
"""Stand in messages and calls only, which are checked with them."""
_TEXTED = {*MESSAGE_TYPES, ToolCall, *_INNER}
_WRITERS: dict[type, Callable[[Any, int, _Walk], Any]] = {
    dict: _dict,
    FrozenDict: _dict,
    State: _dict,
    list: _list,
    FrozenList: _list,
    ListView: lambda value, depth, walk: _list(list(value), depth, walk),
    tuple: _array(TUPLE),
    set: _bag(SET),
    frozenset: _bag(FROZENSET),
    datetime: _packed(DATETIME, timestamps.dump_zoned),
    date: _packed(DATE, date.isoformat),
    time: _packed(TIME, timestamps.dump_zoned),
    timedelta: _packed(TIMEDELTA, lambda value: (value.days, value.seconds, value.microseconds)),
    Decimal: _packed(DECIMAL, str),
    UUID: lambda value, depth, walk: Ext(UUID_, value.bytes),
    Ext: lambda value, depth, walk: value,  # walked before, see `storable`
    SystemMessage: _message,
    ToolMessage: _message,
    HumanMessage: _human_message,
    AIMessage: _ai_message,
    ToolCall: _tool_call,
}


# --- reading -------------------------------------------------------------------------------------


MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, msgspec.MsgspecError)
"""What Python raises where damaged data does not have the shape that its reader takes for granted."""


def unreadable(error: Exception, place: str) -> CodecError:
    """The error to raise for one of `MISFITS`, or for a `CodecError` that does not say yet where the value stands."""
    known = error if isinstance(error, CodecError) else _damaged(f"{type(error).__name__}: {error}")
    return CodecError(f"{place} can't be read: {known.message}", code=known.code, **known.detail)


def _damaged(why: object) -> CodecError:
    return CodecError(f"a stored value is damaged ({why}): load an earlier checkpoint", code="store_failed")


def _unknown_format(data: bytes) -> CodecError:
    if not data:
        return _damaged("it is empty")
    # Only encrypted blobs begin so; without this check they would be reported as damage.
    if data[0] >= ENCRYPTED_FROM:
        return CodecError(
            "a stored value is encrypted: open the store with its keys (`store.keys`, `EncryptedCheckpointer`)",
            code="store_failed",
        )
    known = FORMATS.get(data[0])
    if known is not None:
        text = f"a stored value has format {data[0]} ({known}), which this version can't read: update graphflow"
        return CodecError(text, code="store_version_unsupported")
    return _damaged(f"its format byte is {data[0]}")


def _decoded(data: memoryview) -> Any:
    try:
        return _unpack(data)
    except MISFITS as error:
        raise _damaged(error) from error
    # `encode` refuses such depth, so only damaged data gets here.
    except RecursionError as error:
        raise _damaged("it is nested too deeply") from error


_TWO_ENTRIES = b"\x92"
"""msgpack's mark of an array of two: `[class, fields]`, what the careful walk wrote."""


def _read_fields(data: memoryview) -> Any:
    name, fields = _unpack(data)
    for kind in _TEXTED:
        if kind.__name__ == name:
            return kind(**fields)
    raise ValueError(f"{name!r} is not a message")


_READERS: dict[int, Callable[[memoryview], Any]] = {
    INTEGER: lambda data: int(_unpack(data)),
    TUPLE: lambda data: tuple(_unpack(data)),
    SET: lambda data: set(_unpack(data)),
    FROZENSET: lambda data: frozenset(_unpack(data)),
    PAIRS: lambda data: {key: value for key, value in _unpack(data)},  # noqa: C416 – pairs are lists, dict() takes them too, but says less
    TEXT: lambda data: bytes(data).decode("utf-8", "surrogatepass"),
    DATETIME: lambda data: timestamps.load_datetime(*_unpack(data)),
    DATE: lambda data: date.fromisoformat(_unpack(data)),
    TIME: lambda data: timestamps.load_time(*_unpack(data)),
    TIMEDELTA: lambda data: timedelta(*_unpack(data)),
    DECIMAL: lambda data: Decimal(_unpack(data)),
    UUID_: lambda data: UUID(bytes=bytes(data)),
    MESSAGE: lambda data: _read_fields(data) if data[:1] == _TWO_ENTRIES else _messages.decode(data),
    TOOL_CALL: lambda data: _read_fields(data) if data[:1] == _TWO_ENTRIES else _tool_calls.decode(data),
    REGISTERED: lambda data: type_registry.restore(*_unpack(data)),
}


def _read(code: int, data: memoryview) -> Any:
    reader = _READERS.get(code)
    if reader is None:
        raise CodecError(
            f"a stored value has the unknown extension {code}: a newer version wrote it, update graphflow",
            code="store_version_unsupported",
        )
    return reader(data)


_unpack: Callable[[Any], Any] = msgspec.msgpack.Decoder(ext_hook=_read).decode
_messages: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Message, ext_hook=_read)
_tool_calls: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ToolCall, ext_hook=_read)
