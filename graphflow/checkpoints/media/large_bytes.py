"""Large bytes of messages, stored once beside them: a log of one entry for each, in the lineage of the record that brings it.

A message then names them by their hash and by the number of their log. The logs are rows like any other entry of a list: a
fork shares them, and an encryption, an export, a prune and a deletion treat them as they treat messages. Their numbers are
drawn at random, so a store tells nobody that two threads hold the same bytes, and a hash alone opens nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from graphflow.checkpoints import codec
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.record_decoder import decode_entry
from graphflow.checkpoints.rows import Log, LogItem
from graphflow.content import LARGE_BYTES, MEDIA_TYPES, MediaPart, bytes_in, part_from_wire
from graphflow.errors import StoreError
from graphflow.graph.core.immutable import FrozenDict, FrozenList, ListView, State
from graphflow.graph.core.machine import BranchState, Frame, Interrupt, Machine, Opened, Operation, all_frames
from graphflow.graph.core.ticks import Tick
from graphflow.messages import AIMessage, HumanMessage, ToolMessage

FIRST = 1 << 51
"""Numbers of these logs begin here, above every frame's; below 2⁵², so that JSON readers of any language keep them whole."""
CHANNEL = "bytes"

_WITH_PARTS = (HumanMessage, AIMessage, ToolMessage)
_WALKED = (Tick, Operation, Interrupt, Frame, BranchState, Opened)
"""Structs of the core that hold values of nodes and people."""
_DICTS: tuple[type, ...] = (dict, FrozenDict, State)
_LISTS: tuple[type, ...] = (list, FrozenList, tuple, ListView)
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of values with nothing inside: many of them are passed over at once."""

T = TypeVar("T")
Found = dict[str, int]
"""SHA-256 → the number of the log that has the bytes."""


def named_parts(machine: Machine) -> dict[str, MediaPart]:
    """SHA-256 → a part of the machine's messages that names the bytes, with their number if any has it."""
    named = _Named()
    for value in (*all_frames(machine), *machine.interrupts.values(), machine.kept):
        named.value(value)
    return named.found


def stored_media(machine: Machine) -> Found:
    """What the machine's messages name."""
    return {name: part.stored for name, part in named_parts(machine).items() if part.stored is not None}


def names_bytes(value: Any) -> bool:
    """Whether messages in a value name bytes that are stored beside them."""
    named = _Named()
    named.value(value)
    return bool(named.found)


class _Changed:
    """A walk through a value that changes the media of its messages."""

    def _part(self, part: MediaPart) -> MediaPart:
        raise NotImplementedError

    def value(self, value: Any, depth: int = 0) -> Any:
        """The value, itself where nothing in it changes."""
        kind = type(value)
        if isinstance(value, _WITH_PARTS):
            return self._message(value)
        if depth > codec.MAX_DEPTH:  # of a node's output, which is stored in parts only
            return value
        if kind in _DICTS:
            if _PLAIN.issuperset(map(type, value.values())):
                return value
            changed = {key: new for key, item in value.items() if (new := self.value(item, depth + 1)) is not item}
            if "role" in value and isinstance(value.get("content"), list | tuple):
                content = [self._wire(part) for part in value["content"]]
                if any(new is not old for new, old in zip(content, value["content"], strict=True)):
                    changed["content"] = content if kind is dict else FrozenList(content)
            return kind({**value, **changed}) if changed else value
        if kind in _LISTS:
            if _PLAIN.issuperset(map(type, value)):
                return value
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
        parts = tuple([self._part(part) if isinstance(part, MEDIA_TYPES) else part for part in message.content])
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
        named = self._part(part) if isinstance(part, MEDIA_TYPES) else part
        return given if named is part else FrozenDict(msgspec.to_builtins(named))


class TakenBytes(_Changed):
    """Takes the large bytes out of a value, which then names them.

    Args:
        found: gives what the thread has stored; called where a part of a message is met, since it looks through all of the
            machine.
    """

    def __init__(self, found: Callable[[], Found]) -> None:
        self._found = found
        self.new: Found = {}
        self.items: list[LogItem] = []
        """The bytes that the thread did not have."""

    def _part(self, part: MediaPart) -> MediaPart:
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
        return None if name is None else self._found().get(name, self.new.get(name))


class _Named(_Changed):
    """Notes which bytes a value names."""

    def __init__(self) -> None:
        self.found: dict[str, MediaPart] = {}
        self._seen: set[int] = set()

    def value(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if kind in _LISTS or kind in _DICTS:  # thousands of branches share what their parent has
            if id(value) in self._seen:
                return value
            self._seen.add(id(value))
        return super().value(value, depth)

    def _part(self, part: MediaPart) -> MediaPart:
        if part.blob is not None and (part.stored is not None or part.blob not in self.found):
            self.found[part.blob] = part
        return part


class _PutBack(_Changed):
    """Puts bytes in the place of references to them."""

    def __init__(self, data: Mapping[str, bytes]) -> None:
        self._data = data

    def _part(self, part: MediaPart) -> MediaPart:
        data = self._data.get(part.blob or "")
        return part if data is None else msgspec.structs.replace(part, data=data, blob=None, stored=None)


async def with_bytes(
    store: Checkpointer, chain: Sequence[tuple[int, int]], machine: Machine, value: T, known: Found | None = None
) -> T:
    """The value with its bytes, for where it goes to a past that does not have them.

    Args:
        machine: where the thread is that has them, at the end of the chain.
        known: what the thread has to which the value goes.
    """
    named = _Named()
    named.value(value)
    if not (missing := named.found.keys() - (known or {}).keys()):
        return value
    found = stored_media(machine)
    data = {name: await read_bytes(store, chain, name, found[name]) for name in sorted(missing & found.keys())}
    changed: T = _PutBack(data).value(value)
    return changed


async def with_all_bytes(store: Checkpointer, chain: Sequence[tuple[int, int]], value: T) -> T:
    """The value with the bytes that its messages name, read where it was stored.

    Raises:
        StoreError: they are missing or damaged.
    """
    named = _Named()
    named.value(value)
    stored = {name: part.stored for name, part in named.found.items() if part.stored is not None}
    data = {name: await read_bytes(store, chain, name, number) for name, number in stored.items()}
    changed: T = _PutBack(data).value(value)
    return changed


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
