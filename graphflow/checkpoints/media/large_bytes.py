"""Large bytes of messages, stored once beside them: a log of one entry for each, in the lineage of the record that brings it.

A message then names them by their hash and by the number of their log. The logs are rows like any other entry of a list: a
fork shares them, and an encryption, an export, a prune and a deletion treat them as they treat messages. Their numbers are
drawn at random, so a store tells nobody that two threads hold the same bytes, and a hash alone opens nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints import codec
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.record_decoder import decode_entry
from graphflow.checkpoints.rows import Log, LogItem
from graphflow.content import LARGE_BYTES, MEDIA_TYPES, MediaPart, Part, bytes_in, part_from_wire
from graphflow.errors import StoreError
from graphflow.graph.core.immutable import FrozenDict, FrozenList, ListView
from graphflow.graph.core.machine import Interrupt, Machine, Operation, all_frames
from graphflow.graph.core.ticks import Tick
from graphflow.messages import AIMessage, HumanMessage, ToolMessage

FIRST = 1 << 51
"""Numbers of these logs begin here, above every frame's; below 2⁵², so that JSON readers of any language keep them whole."""
CHANNEL = "bytes"

_WITH_PARTS = (HumanMessage, AIMessage, ToolMessage)
_WALKED = (Tick, Operation, Interrupt)
"""Structs of the core that hold values of nodes and people."""

Found = dict[str, int]
"""SHA-256 → the number of the log that has the bytes."""


def stored_media(machine: Machine) -> Found:
    """What the machine's messages name."""
    found: Found = {}
    for value in (*all_frames(machine), *machine.interrupts.values()):
        for part in media_in(value):
            if part.blob is not None and part.stored is not None:
                found[part.blob] = part.stored
    return found


def media_in(value: Any, depth: int = 0) -> Iterator[MediaPart]:
    """Every media part of the messages in a value."""
    if isinstance(value, _WITH_PARTS):
        if type(value.content) is not str:
            yield from (part for part in value.content if isinstance(part, MEDIA_TYPES))
        return
    if depth > codec.MAX_DEPTH or isinstance(value, str | bytes):
        return
    inner: Any = ()
    if isinstance(value, msgspec.Struct):
        inner = msgspec.structs.astuple(value)
    elif isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, Sequence):
        inner = value
    for item in inner:
        yield from media_in(item, depth + 1)


class TakenBytes:
    """Takes the large bytes out of a value, which then names them.

    Args:
        found: what the thread has stored.
    """

    def __init__(self, found: Found) -> None:
        self._found = found
        self.new: Found = {}
        self.items: list[LogItem] = []
        """The bytes that the thread did not have."""

    def value(self, value: Any, depth: int = 0) -> Any:
        """The value, itself where nothing in it changes."""
        kind = type(value)
        if isinstance(value, _WITH_PARTS):
            return self._message(value)
        if depth > codec.MAX_DEPTH:  # of a node's output, which is stored in parts only
            return value
        if kind in (dict, FrozenDict):
            changed = {key: new for key, item in value.items() if (new := self.value(item, depth + 1)) is not item}
            if "role" in value and isinstance(value.get("content"), list | tuple):
                content = [self._wire(part) for part in value["content"]]
                if any(new is not old for new, old in zip(content, value["content"], strict=True)):
                    changed["content"] = FrozenList(content) if kind is FrozenDict else content
            return kind({**value, **changed}) if changed else value
        if kind in (list, FrozenList, tuple, ListView):
            items = [self.value(item, depth + 1) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items if kind is ListView else kind(items)
        if isinstance(value, _WALKED):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            changes = {name: new for name, item in fields.items() if (new := self.value(item, depth + 1)) is not item}
            return msgspec.structs.replace(value, **changes) if changes else value
        return value

    def _message(self, message: HumanMessage | AIMessage | ToolMessage) -> Any:
        if isinstance(message.content, str):
            return message
        parts = tuple([self._part(part) for part in message.content])
        if all(new is old for new, old in zip(parts, message.content, strict=True)):
            return message
        return msgspec.structs.replace(message, content=parts)

    def _wire(self, given: Any) -> Any:
        """A part of a message in its JSON form."""
        if not isinstance(given, Mapping):
            return given
        try:
            part = part_from_wire(given)
        except ValueError:  # refused where it becomes a message
            return given
        named = self._part(part)
        return given if named is part else FrozenDict(msgspec.to_builtins(named))

    def _part(self, part: Part) -> Part:
        if not isinstance(part, MEDIA_TYPES):
            return part
        data = bytes_in(part)
        if data is None or len(data) < LARGE_BYTES:
            # A number that the thread does not have is somebody else's, or invented.
            if data is not None or part.stored == (number := self._number(part.blob)):
                return part
            return msgspec.structs.replace(part, stored=number)
        digest = hashlib.sha256(data)
        name = digest.hexdigest()
        number = self._number(name)
        if number is None:
            number = self.new[name] = FIRST + secrets.randbelow(FIRST)
            self.items.append(LogItem(number, CHANNEL, 0, b"+" + codec.encode([digest.digest(), data])))
        return msgspec.structs.replace(
            part,
            data=None,
            url=None,
            blob=name,
            stored=number,
            size=len(data),
            media_type=part.media_type or _type_of(part.url),
        )

    def _number(self, name: str | None) -> int | None:
        return None if name is None else self._found.get(name, self.new.get(name))


def _type_of(url: str | None) -> str | None:
    return None if url is None else url[5:].partition(",")[0].partition(";")[0] or None


async def read_bytes(store: Checkpointer, chain: Sequence[tuple[int, int]], name: str, number: int) -> bytes:
    """The bytes of a hash.

    Raises:
        StoreError: they are missing or damaged.
    """
    [[entry]] = await store.read_logs(chain, [Log(number, CHANNEL, 1)])
    digest, data = checked_bytes(entry)
    if digest != name:
        raise StoreError(
            f"the bytes {number} of the thread are not those of hash {name}: restore the store from a backup"
        )
    return data


def checked_bytes(entry: bytes) -> tuple[str, bytes]:
    """Hash and bytes of an entry.

    Raises:
        StoreError: the entry is damaged.
    """
    operation, *rest = decode_entry(entry, CHANNEL)
    digest, data = rest[0] if operation == "+" and isinstance(rest[0], list) and len(rest[0]) == 2 else (None, None)
    if not isinstance(data, bytes) or hashlib.sha256(data).digest() != digest:
        raise StoreError("bytes of a message are damaged, their hash is another: restore the store from a backup")
    return hashlib.sha256(data).hexdigest(), data
