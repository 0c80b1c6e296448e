"""Frozen values: what states are made of, shared by reference between machines, nodes and checkpoints (E22).

Nothing that a machine holds may change in place: the machine before a tick is still read (by a replay, a fork, the
journal that encodes it) while the next one runs. So mappings and lists are frozen when they are written, and a frozen
value passes by identity. An append channel is a `ListView`: a window on a list that only grows.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from itertools import chain, islice
from typing import Any, Generic, NoReturn, TypeVar, overload

import msgspec

from graphflow.errors import StateError
from graphflow.messages import MESSAGE_TYPES

ATOMS: frozenset[type] = frozenset({str, int, float, bool, type(None), bytes, *MESSAGE_TYPES})


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError("state is read-only: return the new value from the node instead of changing it in place")


class FrozenDict(dict[str, Any]):
    """A dict whose mutators raise `TypeError`."""

    __slots__ = ()
    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)  # a copy is the copier's own, and may be changed

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class FrozenList(list[Any]):
    """A list whose mutators raise `TypeError`."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = _refuse
    pop = remove = reverse = sort = _refuse

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, (list(self),)


class FrozenSet(set[Any]):
    """A set whose mutators raise `TypeError`: what nodes get where their class declares a `set`."""

    __slots__ = ()
    __iand__ = __ior__ = __isub__ = __ixor__ = add = clear = difference_update = discard = _refuse
    intersection_update = pop = remove = symmetric_difference_update = update = _refuse

    def __reduce_ex__(self, protocol: Any) -> Any:
        return set, (list(self),)


class State(FrozenDict):
    """The values of one frame: `state["k"]` or `state.k`, read-only."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the state has no key {name!r}; it has {', '.join(sorted(self)) or 'none'}") from None

    def evolve(self, changes: Mapping[str, Any]) -> State:
        """A new state with these keys replaced."""
        out = State(self)
        dict.update(out, changes)
        return out


FROZEN = ATOMS | {FrozenDict, FrozenList, State}
"""Types whose values cannot change, at any depth."""


_DICTS: frozenset[type] = frozenset({dict, OrderedDict, defaultdict, Counter})
"""What becomes a `FrozenDict`; other classes of the users' keep theirs."""


SHARED = 32
"""Items beyond which a view that goes on from the middle of a list shares them instead of copying them."""
MOST_HEADS = 4
"""Views that may stand before one another; the next copies, so that a look at an item takes no longer with each join."""


class ListView(Sequence[Any]):
    """The first `length` items of a shared list that only grows (E22).

    `ordinals` counts the log entries that made it: it is larger than the length once items were
    replaced or removed.
    """

    __slots__ = ("_cut", "_head", "_items", "_length", "ordinals")

    def __init__(
        self,
        items: list[Any],
        length: int | None = None,
        ordinals: int | None = None,
        *,
        head: ListView | None = None,
    ) -> None:
        self._head = head
        """What comes before `items`: thousands of branches that append to one long list share what they began with."""
        self._cut = 0 if head is None else head._length
        self._items = items
        self._length: int = self._cut + len(items) if length is None else length
        self.ordinals = self._length if ordinals is None else ordinals

    @property
    def _own(self) -> int:
        """How many of `_items` are seen."""
        return self._length - self._cut

    def _depth(self) -> int:
        view, depth = self._head, 0
        while view is not None:
            view, depth = view._head, depth + 1
        return depth

    def _all(self) -> list[Any]:
        """A list of what is seen."""
        own = self._items[: self._own]
        return own if self._head is None else self._head._all() + own

    def appended(self, new: Sequence[Any]) -> ListView:
        """A view with `new` at its end; grows the list in place when this view owns its tail."""
        items, head = self._items, self._head
        # Another view has appended to the list: this one goes on with a list of its own, so that both branches of history
        # stay right.
        if len(items) != self._length - self._cut:
            if self._own > SHARED and self._depth() < MOST_HEADS:
                items, head = [], self
            else:
                items, head = self._all(), None
        items.extend(new)
        return ListView(items, self._length + len(new), self.ordinals + len(new), head=head)

    def since(self, older: ListView) -> Sequence[Any] | None:
        """What was appended after `older`; None when this list did not grow out of it."""
        if self._items is older._items and older._length <= self._length:
            return self._items[older._own : self._own]
        return self._items[: self._own] if self._head is older else None

    def changed(self, entries: Sequence[LogEntry]) -> ListView:
        """A view after any log entries (E4): `+` appends, `=` replaces, `-` removes, `*` is the list anew."""
        # Pure appends share the list; a correction copies it, because older views still show the old item.
        if _APPENDED.issuperset([entry[0] for entry in entries]):
            return self.appended([entry[1] for entry in entries])
        items = self._all()
        for entry in entries:
            fold(items, entry)
        return ListView(items, len(items), self.ordinals + len(entries))

    def lacking(self, items: Sequence[Any]) -> list[Any]:
        """The items that equal no item of this list and none before them, in order."""
        return _not_among(self, items)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step > 0 and start >= self._cut:  # copies what is asked for and not the list
                return self._items[start - self._cut : max(stop - self._cut, 0) : step]
            return self._all()[index]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"index {index} of a list of {self._length}")
        if self._head is not None and index < self._cut:
            return self._head[index]
        return self._items[index - self._cut]

    def __iter__(self) -> Any:
        # The list may grow during the iteration; the view ends at its length.
        own = islice(self._items, self._length - self._cut)
        return own if self._head is None else chain(self._head, own)

    def __reversed__(self) -> Any:
        return reversed(self._all())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ListView | list | tuple):
            return len(other) == self._length and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ListView({self._all()!r})"


LogEntry = tuple[Any, ...]
"""`("+", item)`, `("=", position, item)`, `("-", position)` or `("*", items)`."""


_APPENDED = frozenset("+")


def fold(items: list[Any], entry: LogEntry) -> None:
    """Applies one log entry to a plain list."""
    match entry[0]:
        case "+":
            items.append(entry[1])
        case "=":
            items[entry[1]] = entry[2]
        case "-":
            del items[entry[1]]
        case "*":
            items[:] = entry[1]


def freeze(value: Any, key: str | None = None) -> Any:
    """The value with every dict and list in it frozen; a frozen value comes back as itself.

    Args:
        key: the state key that it is written to, for the message.

    Raises:
        StateError: it contains itself, or is nested too deeply to be looked through.
    """
    kind = type(value)
    if kind in FROZEN:
        return value
    try:
        return _frozen(value, kind)
    except RecursionError:
        place = f"state key {key!r}: " if key is not None else ""
        raise StateError(
            f"{place}a value of type {kind.__name__} contains itself, or is nested too deeply; keep references by id instead"
        ) from None


def _frozen(value: Any, kind: type) -> Any:
    if kind in FROZEN:
        return value
    if kind in _DICTS:
        if FROZEN.issuperset(map(type, value.values())):  # an early out in C: most values are leaves
            return FrozenDict(value)
        return FrozenDict({k: _frozen(v, type(v)) for k, v in value.items()})
    if kind is list or kind is ListView:
        return FrozenList(_frozen_items(value))
    if kind is tuple:
        return tuple([_frozen(v, type(v)) for v in value])
    if kind is set or kind is FrozenSet:
        return frozenset(value)
    return value


def _frozen_items(items: Sequence[Any]) -> Sequence[Any]:
    return items if FROZEN.issuperset(map(type, items)) else [_frozen(item, type(item)) for item in items]


def thaw(value: Any) -> Any:
    """A plain, mutable JSON-like copy: for people and other libraries."""
    if type(value) in ATOMS:  # most are, and the abstract classes cost more to ask for
        return value
    if isinstance(value, Mapping):
        return {k: thaw(v) for k, v in value.items()}
    if isinstance(value, ListView | list | tuple):
        return [thaw(v) for v in value]
    return value


FEW = 8
"""Items up to which looking through a list costs less than an index of it."""
_HASHABLE: frozenset[type] = frozenset({str, int, float, bool, type(None), bytes})


def _not_among(old: Sequence[Any], items: Sequence[Any]) -> list[Any]:
    """See `ListView.lacking`; many are found by an index of what is there."""
    out: list[Any] = []
    try:
        if len(items) <= FEW:
            raise TypeError
        index: dict[int, list[Any]] = {}
        for item in old:
            index.setdefault(_content_hash(item), []).append(item)
        hashes = list(map(_content_hash, items))
    except TypeError:  # few, or a class of somebody's, which may say of any value that it equals it
        seen = list(old)
        for item in items:
            if item not in seen:
                seen.append(item)
                out.append(item)
        return out
    for item, place in zip(items, hashes, strict=True):
        alike = index.setdefault(place, [])
        if item not in alike:
            alike.append(item)
            out.append(item)
    return out


def _content_hash(value: Any) -> int:
    """The same for values that are equal, though they may be of different types, as `1` and `1.0`."""
    kind = type(value)
    if kind in _HASHABLE:
        return hash(value)
    if kind in (dict, FrozenDict, State):
        return hash(frozenset([(key, _content_hash(item)) for key, item in value.items()]))
    if kind in (list, tuple, FrozenList, ListView):
        return hash(tuple(map(_content_hash, value)))
    if kind in MESSAGE_TYPES:
        return hash((kind, value.id))
    raise TypeError


# --- the table of frames: every tick works on a copy of it

V = TypeVar("V")

CHUNK = 64
"""Entries of a chunk; numbers that follow each other share one."""
SMALL = 128
"""Entries up to which a plain dict is the faster table."""


class ChunkedTable(MutableMapping[int, V], Generic[V]):
    """A mapping from small integers whose copies share every chunk that neither has changed."""

    __slots__ = ("_chunks", "_own", "_size")

    def __init__(self, items: MutableMapping[int, V] | None = None) -> None:
        self._chunks: dict[int, dict[int, V]] = {}
        self._own: set[int] = set()
        self._size = 0
        for number, value in () if items is None else items.items():
            self._chunks.setdefault(number // CHUNK, {})[number] = value
        self._own.update(self._chunks)
        self._size = 0 if items is None else len(items)

    def copy(self) -> ChunkedTable[V]:
        """A table that can change without affecting this one; this one must not change any more."""
        out: ChunkedTable[V] = ChunkedTable()
        # `_own` starts empty: every chunk is shared until it is first written.
        out._chunks, out._size = dict(self._chunks), self._size
        return out

    def __getitem__(self, number: int) -> V:
        return self._chunks[number // CHUNK][number]

    def get(self, number: int, default: V | None = None) -> V | None:  # type: ignore[override]
        chunk = self._chunks.get(number // CHUNK)
        return default if chunk is None else chunk.get(number, default)

    def __setitem__(self, number: int, value: V) -> None:
        chunk = self._owned(number // CHUNK)
        if number not in chunk:
            self._size += 1
        chunk[number] = value

    def __delitem__(self, number: int) -> None:
        if number not in self:
            raise KeyError(number)
        place = number // CHUNK
        chunk = self._owned(place)
        del chunk[number]
        self._size -= 1
        if not chunk:
            del self._chunks[place]
            self._own.discard(place)

    def _owned(self, place: int) -> dict[int, V]:
        """The chunk, copied first if another table may hold it."""
        if place in self._own:
            return self._chunks[place]
        chunk = self._chunks[place] = dict(self._chunks.get(place, ()))
        self._own.add(place)
        return chunk

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number in self._chunks.get(number // CHUNK, ())

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks.values():
            yield from chunk

    def values(self) -> Iterator[V]:  # type: ignore[override]
        """All values in one pass over the chunks; the method of `Mapping` would look up every number."""
        for chunk in self._chunks.values():
            yield from chunk.values()

    def __len__(self) -> int:
        return self._size


def copied(table: MutableMapping[int, V]) -> MutableMapping[int, V]:
    """A copy to work on: a plain dict while small, chunked beyond that."""
    if type(table) is dict:
        return table.copy() if len(table) <= SMALL else ChunkedTable(table)
    if len(table) <= SMALL // 4:
        return dict(table)
    assert isinstance(table, ChunkedTable)
    return table.copy()


def digest_of(value: Any) -> str:
    """A short digest of JSON-like data, the same for equal data."""
    # Key order must not matter: a digest from before a crash is compared with one made after it.
    plain = thaw(value)
    try:
        data = msgspec.json.encode(plain, enc_hook=repr, order="deterministic")
    except UnicodeEncodeError:  # half of a character, which a state may hold
        import json  # for these alone

        data = json.dumps(msgspec.to_builtins(plain, enc_hook=repr), sort_keys=True).encode()
    return hashlib.blake2b(data, digest_size=12).hexdigest()
