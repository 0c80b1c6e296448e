"""The keys of a graph's state: their types and defaults, and the reducers that combine writes (spec 2.1, E4).

Values are frozen when they are written (`immutable.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from graphflow.bounds import DEFAULTS
from graphflow.errors import StateError, error_dict
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.immutable import ATOMS, FROZEN, FrozenDict, ListView, LogEntry, State, fold, freeze, thaw
from graphflow.graph.definition.whole_numbers import whole_numbers
from graphflow.graph.definition.written_sizes import WrittenSizes
from graphflow.messages import MESSAGE_TYPES, HumanMessage, address_misfit, kept_message, misfit
from graphflow.value_size import FIXED


class Update(msgspec.Struct, gc=False):
    """What a set of writes does to a frame's values, after reduction."""

    sets: dict[str, Any]
    """Key → the new value, for every channel that is not a log."""
    logs: dict[str, list[LogEntry]]
    """Key → new log entries."""
    merges: dict[str, dict[str, Any]]
    """Key → the changed entries of a `merge` map, so that a patch stores only those."""
    size: int = 0
    """About how many bytes were written; 0 for what has been counted before."""


class Rules(Protocol):
    """What the values of a state have to be, beyond the top-level types of their keys."""

    @property
    def converts(self) -> bool:
        """Whether `plain` changes anything."""

    @property
    def passes(self) -> Mapping[str, frozenset[type]]:
        """Key → types whose values fit as they are, of a log those of its items; a write of such values alone is not checked."""

    @property
    def leaves_alone(self) -> frozenset[str]:
        """Keys whose writes `checked` never looks at."""

    def plain(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Written values as a machine keeps them: instances of declared classes as plain data."""

    def checked(self, state: State, update: Update) -> Update:
        """The update with valid values; raises `StateError` for one that is refused."""

    def check(self, state: State) -> None:
        """Raises `StateError`, `state_incompatible`, for a loaded state that does not fit."""

    def reducer_values(self, key: str, old: Any, new: Any) -> tuple[Any, Any]:
        """The arguments of a reducer of the user's, as the key is declared."""


_SAYS_NOTHING = frozenset("type default title description examples $comment deprecated format $defs".split())


def schema_rules(properties: Mapping[str, Mapping[str, Any]]) -> SchemaRules | None:
    """The rules of a state that JSON Schema declares; None when no key has more than a type."""
    said = {
        key: {word: part for word, part in schema.items() if not word.startswith("x-")}
        for key, schema in properties.items()
    }
    more = {
        key: schema
        for key, schema in said.items()
        if not schema.keys() <= _SAYS_NOTHING and properties[key].get("x-reducer") != "messages"
    }
    return SchemaRules(more, properties) if more else None


class SchemaRules:
    """JSON Schemas of keys that say more than a type: bounds, items, properties."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]], properties: Mapping[str, Mapping[str, Any]]) -> None:
        # Not at the top: most states have no such key.
        from graphflow.graph.definition.json_schema import compile_items, compile_schema

        self._values = {key: compile_schema(schema) for key, schema in schemas.items()}
        lists = {key: schema for key, schema in schemas.items() if properties[key].get("x-reducer") in LOG_REDUCERS}
        self._items = {key: compile_items(schema) for key, schema in lists.items() if "items" in schema}
        self._bounded = {key for key, schema in lists.items() if not schema.keys() <= _SAYS_NOTHING | {"items"}}
        self.passes = dict.fromkeys(schemas, frozenset[type]())
        self.leaves_alone = frozenset(properties.keys() - schemas.keys())

    converts = False

    def plain(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return values

    def reducer_values(self, key: str, old: Any, new: Any) -> tuple[Any, Any]:
        return old, new

    def checked(self, state: State, update: Update) -> Update:
        for key, value in update.sets.items():
            update.sets[key] = self._taken(self._values.get(key), key, value)
        for key, changed in update.merges.items():
            after = self._taken(self._values.get(key), key, {**(state.get(key) or {}), **changed})
            update.merges[key] = {name: after[name] for name in changed}
        for key, entries in update.logs.items():
            if (items := self._items.get(key)) is not None:
                update.logs[key] = entries = [self._entry(items, key, entry) for entry in entries]
            if key in self._bounded:
                whole = list(state.get(key) or ())
                for entry in entries:
                    fold(whole, entry)
                self._taken(self._values[key], key, whole)
        return update

    def _entry(self, items: Any, key: str, entry: LogEntry) -> LogEntry:
        match entry[0]:
            case "-":
                return entry
            case "*":
                return "*", [self._taken(items, key, item) for item in entry[1]]
        return *entry[:-1], self._taken(items, key, entry[-1])

    def check(self, state: State) -> None:
        """Nothing: what is stored was checked under this schema, whose hash the thread keeps."""

    def _taken(self, checker: Any, key: str, value: Any) -> Any:
        """The value as its schema takes it; the very value, where nothing changes."""
        if checker is None:
            return value
        plain = thaw(value)
        if issues := checker.errors(plain):
            place = issues[0].pointer
            raise StateError(f"state key {key!r}: {issues[0].message}" + (f" (at {place})" if place else ""), key=key)
        return value if (taken := checker.taken(plain)) is plain else freeze(taken)


LOG_REDUCERS = frozenset({"append", "messages", "union"})

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple, ListView, frozenset, set),
    "object": (dict, *MESSAGE_TYPES),
    "null": (type(None),),
}


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """One state key: its type, default and reducer."""

    key: str
    reduce: str = "replace"
    default: Any = None
    types: tuple[type, ...] | None = None
    """Python types that its values may have; None accepts any."""
    boolean: bool = True
    """Whether a `bool` fits (it is an `int` for Python, not for JSON)."""
    declared: str = "any"
    scope: str = "thread"
    expose: str = "all"
    tasks: tuple[str, ...] | None = None
    """The nodes that work on the tasks of the plan that it holds; None: it holds none."""
    function: Callable[[Any, Any], Any] | None = None

    @property
    def is_log(self) -> bool:
        return self.reduce in LOG_REDUCERS

    def initial(self) -> Any:
        """The value before anything was written."""
        return ListView([freeze(v) for v in self.default or ()]) if self.is_log else freeze(self.default)

    def taken(self, value: Any, what: str = "value") -> Any:
        """The value as the key takes it: `2.0` is `2` where it is an integer.

        Raises:
            StateError: its top-level type is not the key's.
        """
        # No key of numbers: of `int` alone there is a `float` that fits, the one without a fraction.
        if type(value) is float and self.types is not None and float not in self.types and int in self.types:
            value = int(value) if value.is_integer() else value
        self.check(value, what)
        return value

    def check(self, value: Any, what: str = "value") -> None:
        """Raises `StateError` when the value's top-level type is not the key's."""
        if self.types is None:
            return
        if isinstance(value, self.types) and (self.boolean or not isinstance(value, bool)):
            return
        shown = repr(value)
        raise StateError(
            f"state key {self.key!r} takes {self.declared}, not the {what} {shown[:80]} of type "
            f"{type(value).__name__}; give such a value, or change the key's schema",
            key=self.key,
        )


def channel_of(key: str, schema: Mapping[str, Any], find_reducer: Callable[[str], Any] = lambda name: None) -> Channel:
    """The channel that a property of the state schema declares."""
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else list(declared or ())
    types = tuple(t for name in names for t in _JSON_TYPES.get(name, (object,))) or None
    reduce = schema.get("x-reducer", "replace")
    return Channel(
        key=key,
        reduce=reduce,
        default=None if (default := schema.get("default")) is None else whole_numbers(default, schema),
        types=None if types and object in types else types,
        boolean="boolean" in names or not names,
        declared=" or ".join(names) or "any",
        scope=schema.get("x-scope", "thread"),
        expose=schema.get("x-expose", "all"),
        tasks=None if (tasks := schema.get("x-tasks")) is None else tuple(tasks),
        function=find_reducer(reduce[3:]) if reduce.startswith("fn:") else None,
    )


class StateSchema:
    """The keys of one graph, and how writes to them combine."""

    __slots__ = ("_appended", "_plain", "_sizes", "_unchecked", "channels", "plain", "rules")

    def __init__(
        self, channels: Iterable[Channel], rules: Rules | None = None, value_bytes: int = DEFAULTS.value_bytes
    ) -> None:
        self._sizes = WrittenSizes(value_bytes)
        self.channels = {channel.key: channel for channel in channels}
        self.rules = rules
        """None: the top-level types say all, and a write costs no more."""
        self._plain = {c.key: _plain_types(c) for c in self.channels.values() if c.reduce == "replace"}
        """Key → types whose values replace the old one as they are."""
        self._appended = {c.key: FROZEN for c in self.channels.values() if c.reduce == "append"}
        """Key → types whose values become items of the log as they are."""
        for key, types in () if rules is None else rules.passes.items():
            for table in (self._plain, self._appended):
                if key in table:  # every other key has a reducer, which decides what is written
                    table[key] &= types
        self._unchecked = frozenset[str]() if rules is None else rules.leaves_alone
        self.plain = rules.plain if rules is not None and rules.converts else None
        """See `Rules.plain`; None where it changes nothing."""

    def initial(self) -> State:
        """Every key at its default."""
        return State({key: channel.initial() for key, channel in self.channels.items()})

    def reduce(self, state: State, writes: Mapping[str, Any], *, replace: Iterable[str] = ()) -> Update:
        """What these writes do to `state`; keys in `replace` are set instead of reduced.

        Raises:
            StateError: a key outside the schema, or a value of another type; nothing is written then.
            LimitExceeded: a value is larger than its bound.
        """
        update = Update({}, {}, {})
        rules: Rules | None = None
        size, short = 0, self._sizes.short
        for key, value in writes.items():
            kind = type(value)
            # Exact type, not isinstance: a `bool` would pass as an `int`.
            if kind in self._plain.get(key, ()):
                update.sets[key] = value
                if kind not in FIXED:
                    size += len(value) if kind is str and len(value) <= short else self._sizes.value(key, value)
                continue
            if key in self._appended and key not in replace and self._append(key, value, update):
                size += self._sizes.items(key, value)
                continue
            if key not in self._unchecked:
                rules = self.rules
            channel = self.channels.get(key)
            if channel is None:
                known = ", ".join(sorted(self.channels)) or "none"
                raise StateError(f"{key!r} is not a state key; the schema has {known}", key=key)
            if channel.reduce == "replace":
                frozen = update.sets[key] = freeze(channel.taken(value), channel.key)
                size += self._sizes.value(key, frozen)
                continue
            if key in replace:
                _replace(channel, value, update)
            else:
                _REDUCERS.get(channel.reduce, self._reduce_function)(channel, state.get(key), value, update)
            if channel.is_log:
                size += self._sizes.entries(key, update.logs.get(key, ()))
            elif key in update.merges:
                size += self._sizes.items(key, update.merges[key].values())
            elif key in replace:
                size += self._sizes.value(key, update.sets[key])
        if rules is not None:
            update = rules.checked(state, update)
        update.size += size
        return update

    def combine(self, state: State, writes: Mapping[str, Sequence[Any]]) -> Update:
        """What the writes of several branches do to `state`, in the order given.

        Args:
            writes: key → values written one after the other; to a log: its items.

        Raises:
            StateError: a value that its reducer refuses.
        """
        update = Update({}, {}, {})
        rules: Rules | None = None
        for key, values in writes.items():
            if key in self._appended and self._append(key, values, update):
                continue
            rules = self.rules
            channel = self.channels[key]
            if channel.is_log:
                _REDUCERS[channel.reduce](channel, state.get(key), values, update)
            elif channel.reduce == "replace":
                # Unordered parallel writers of a `replace` key are a load error: these values come from one branch,
                # or from branches that run `after` each other, and the last one counts.
                update.sets[key] = values[-1]
            elif channel.reduce == "merge":
                # Only the changed entries: a patch must not grow with the map.
                update.merges[key] = {k: v for value in values for k, v in value.items()}
            else:
                old = state.get(key)
                for value in values:
                    _REDUCERS.get(channel.reduce, self._reduce_function)(channel, old, value, update)
                    old = update.sets[key]
        return update if rules is None else rules.checked(state, update)

    def _append(self, key: str, values: Any, update: Update) -> bool:
        """Adds items that the log takes as they are; False, and nothing is done, where `_REDUCERS` has to look at them."""
        if type(values) is not list or not self._appended[key].issuperset(map(type, values)):
            return False
        if values:
            update.logs[key] = [("+", item) for item in values]
        return True

    def _reduce_function(self, channel: Channel, old: Any, value: Any, update: Update) -> None:
        if channel.function is None:
            raise StateError(f"state key {channel.key!r}: no reducer {channel.reduce!r} is registered", key=channel.key)
        try:
            # A thawed copy: user code may change what it is given, and the frozen value is shared with checkpoints.
            given = thaw(old), value
            new = channel.function(*(given if self.rules is None else self.rules.reducer_values(channel.key, *given)))
        except Exception as error:  # the boundary where a reducer's failure becomes that of the node that wrote
            why = error_dict(error)["message"]
            raise StateError(
                f"state key {channel.key!r}: its reducer {channel.reduce!r} failed: {why}", key=channel.key
            ) from error
        if self.rules is not None:
            new = self.rules.plain({channel.key: new})[channel.key]
        frozen = update.sets[channel.key] = freeze(channel.taken(new, "result of the reducer"))
        update.size += self._sizes.value(channel.key, frozen)


def _plain_types(channel: Channel) -> frozenset[type]:
    """Types that need no freezing and fit the channel."""
    fitting = (kind for kind in ATOMS if channel.types is None or issubclass(kind, channel.types))
    return frozenset(kind for kind in fitting if channel.boolean or kind is not bool)


def apply_update(state: State, update: Update) -> State:
    """The state after an update; the same function serves the live run and the loading of a patch."""
    if update.sets and not update.logs and not update.merges:
        return state.evolve(update.sets)
    changes: dict[str, Any] = dict(update.sets)
    for key, entries in update.logs.items():
        old = state.get(key)  # no log where the key is new, or a migration made it one
        changes[key] = (old if type(old) is ListView else ListView([])).changed(entries)
    for key, changed in update.merges.items():
        changes[key] = FrozenDict({**(state.get(key) or {}), **changed})
    return state.evolve(changes) if changes else state


def _replace(channel: Channel, value: Any, update: Update) -> None:
    value = channel.taken(value)
    if channel.is_log:
        update.logs[channel.key] = [("*", [_item(channel, v) for v in value])]
    else:
        update.sets[channel.key] = freeze(value, channel.key)


def _item(channel: Channel, value: Any, known: Any = ()) -> Any:
    if channel.reduce == "messages" and isinstance(value, Mapping):
        try:
            return kept_message(value, known)
        except ValueError as error:
            raise StateError(f"state key {channel.key!r}: {error}", key=channel.key) from None
    return freeze(value)


def _list(channel: Channel, value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple | ListView):
        return value
    raise StateError(
        f"state key {channel.key!r} ({channel.reduce}) takes a list and adds its items, not {excerpt_of(value)}; write [value]",
        key=channel.key,
    )


def _reduce_append(channel: Channel, old: Any, value: Any, update: Update) -> None:
    given = _list(channel, value)
    items = given if FROZEN.issuperset(map(type, given)) else freeze(list(given), channel.key)
    if items:
        update.logs[channel.key] = [("+", item) for item in items]


def _reduce_union(channel: Channel, old: Any, value: Any, update: Update) -> None:
    before = old if isinstance(old, ListView) else ListView(list(old or ()))
    if entries := [("+", item) for item in before.lacking([freeze(item) for item in _list(channel, value)])]:
        update.logs[channel.key] = entries


def _reduce_messages(channel: Channel, old: Any, value: Any, update: Update) -> None:
    messages = [_item(channel, v, old or ()) for v in _list(channel, value)]
    if not messages:
        return
    for message in messages:
        if not isinstance(message, MESSAGE_TYPES):
            raise StateError(f"state key {channel.key!r} takes messages, not {excerpt_of(message)}", key=channel.key)
        wrong = misfit(message)
        # What models and tools return may name other places: it is stored, and listed as text for the next model.
        if wrong is None and type(message) is HumanMessage and type(message.content) is not str:
            wrong = address_misfit(message)
        if wrong is not None:
            raise StateError(f"state key {channel.key!r}: {wrong}", key=channel.key)
    # Without ids nothing can be replaced: skip the index of the whole history.
    if all(message.id is None for message in messages):
        update.logs[channel.key] = [("+", message) for message in messages]
        return
    places = {message.id: place for place, message in enumerate(old or ()) if message.id is not None}
    # A message with a known id replaces the old one in place; ids repeat within one write too, so new ones are added
    # to `places` as they come.
    length, entries = len(old or ()), update.logs.setdefault(channel.key, [])
    for message in messages:
        if message.id is not None and message.id in places:
            entries.append(("=", places[message.id], message))
        else:
            places[message.id], length = length, length + 1
            entries.append(("+", message))


def _reduce_merge(channel: Channel, old: Any, value: Any, update: Update) -> None:
    if not isinstance(value, Mapping):
        raise StateError(f"state key {channel.key!r} (merge) takes an object, not {excerpt_of(value)}", key=channel.key)
    update.merges[channel.key] = {k: freeze(v, channel.key) for k, v in value.items()}


def _number(channel: Channel, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StateError(
            f"state key {channel.key!r} ({channel.reduce}) takes a number, not {excerpt_of(value)}", key=channel.key
        )
    return channel.taken(value)


def _reduce_sum(channel: Channel, old: Any, value: Any, update: Update) -> None:
    update.sets[channel.key] = (old or 0) + _number(channel, value)


def _reduce_min(channel: Channel, old: Any, value: Any, update: Update) -> None:
    update.sets[channel.key] = _number(channel, value) if old is None else min(old, _number(channel, value))


def _reduce_max(channel: Channel, old: Any, value: Any, update: Update) -> None:
    update.sets[channel.key] = _number(channel, value) if old is None else max(old, _number(channel, value))


_REDUCERS: dict[str, Callable[[Channel, Any, Any, Update], None]] = {
    "append": _reduce_append,
    "union": _reduce_union,
    "messages": _reduce_messages,
    "merge": _reduce_merge,
    "sum": _reduce_sum,
    "min": _reduce_min,
    "max": _reduce_max,
}


def initial_update(schema: StateSchema, state: State, run_keys: Sequence[str]) -> Update:
    """Defaults for keys that the state lacks, and for those that live for one run only (E9)."""
    update = Update({}, {}, {})
    for key, channel in schema.channels.items():
        if key in state and key not in run_keys:
            continue
        if channel.is_log:
            items = [freeze(value) for value in channel.default or ()]
            # A log that exists is set anew with `*`; a new one only gets its items.
            update.logs[key] = [("*", items)] if key in state else [("+", item) for item in items]
        else:
            update.sets[key] = freeze(channel.default)
    return update
