"""Checks the arguments of public calls when they are called: names that there are not, and values of another kind.

The kinds are read from the annotations, so that a type checker and a running program hold callers to the same.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, TypeVar, overload

from graphflow.errors import ArgumentRefused, GraphflowError
from graphflow.excerpts import excerpt_of
from graphflow.suggestions import choose

F = TypeVar("F", bound=Callable[..., Any])

_LEAST: Mapping[str, float] = {
    "hold_ms": 0, "interval_s": 0, "limit": 1, "max_concurrency": 1, "newest": 0, "since": 0,
}  # fmt: skip
"""The least value of a number, wherever a parameter has this name."""
_MOST: Mapping[str, int] = {"limit": (1 << 63) - 1}
"""The greatest value, likewise: what a store can count to."""
_ABOVE = ("interval_s",)
"""Of those, the ones that must lie above it."""
_ALIASES = {
    "By": "str | Person | None",
    "Effects": "Literal['none', 'read', 'write']",
    "Opener": "Callable[[str | None, str | None], ChatModel]",
}


class ValueKind(NamedTuple):
    """One kind of values that a parameter takes."""

    words: str
    """What it takes, as in `it takes text or None`."""
    takes: Callable[[Any], bool]
    types: frozenset[type] = frozenset()
    """Types all of whose values it takes: one look-up instead of a call."""


@overload
def checked(function: F, /) -> F: ...
@overload
def checked(*, shows: Callable[..., Any]) -> Callable[[F], F]: ...
def checked(function: Any = None, /, *, shows: Callable[..., Any] | None = None) -> Any:
    """The same call, which refuses wrong arguments before anything else happens.

    Args:
        shows: the public form of the call, whose options alone are suggested.

    Raises:
        ArgumentRefused: an argument that there is not, with the name that is probably meant; or a value of another kind.
        GraphflowError: `invalid_input` for a number outside its range.
    """
    if function is None:
        return functools.partial(_checked, shows=shows)
    return _checked(function, shows)


def _checked(function: Callable[..., Any], shows: Callable[..., Any] | None) -> Callable[..., Any]:
    arguments = Arguments(function, shows)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        arguments.check(args, kwargs)
        return function(*args, **kwargs)

    call.__arguments__ = arguments  # type: ignore[attr-defined] # for the sync twin
    if inspect.iscoroutinefunction(function):
        if mark := getattr(inspect, "markcoroutinefunction", None):  # Python 3.12
            mark(call)
        else:
            call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return call


def arguments_of(call: Callable[..., Any]) -> Arguments | None:
    """The checks of a `checked` call."""
    return getattr(call, "__arguments__", None)


class Arguments:
    """What a function takes, by name; read from its annotations when it is first called."""

    __slots__ = ("_first", "_function", "_kinds", "_names", "_open", "_required", "_shows", "_types")

    def __init__(self, function: Callable[..., Any], shows: Callable[..., Any] | None = None) -> None:
        self._function, self._shows = function, shows
        self._kinds: dict[str, tuple[ValueKind, ...]] | None = None
        self._types: dict[str, frozenset[type]] = {}
        """Parameter → types all of whose values it takes."""
        self._names: list[str] = []
        """Of positional parameters."""
        self._required: set[str] = set()
        self._first = 0
        self._open = False
        """Whether any name is taken."""

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any], call: str | None = None) -> None:
        """Raises `GraphflowError` for the first wrong argument.

        Args:
            call: how the caller named it; default: the function's name.
        """
        kinds, types = self.kinds(), self._types
        for name, value in kwargs.items():
            if type(value) in types.get(name, ()):
                continue
            allowed = kinds.get(name)
            if allowed is not None:
                self._check(name, value, allowed, call)
            elif not self._open:
                public = kinds if self._shows is None else inspect.signature(self._shows).parameters
                shown = [known for known in public if known not in self._names[: self._first]]
                raise ArgumentRefused(f"{self._called(call)} has no option {name!r}; {choose(name, shown)}")
        for name, value in zip(self._names[self._first :], args[self._first :], strict=False):
            if type(value) not in types[name]:
                self._check(name, value, kinds[name], call)

    def kinds(self) -> dict[str, tuple[ValueKind, ...]]:
        """The kinds that each parameter takes; none where any value will do."""
        return self._read() if self._kinds is None else self._kinds

    def _check(self, name: str, value: Any, allowed: tuple[ValueKind, ...], call: str | None) -> None:
        if allowed and not any(kind.takes(value) for kind in allowed):
            taken = " or ".join(dict.fromkeys(kind.words for kind in allowed))
            raise ArgumentRefused(
                f"{self._called(call)} got {name}={shown(value)}, of type {type(value).__name__}; {name} takes {taken}:"
                f" {self._next(name, value, allowed)}",
                fields={name: f"takes {taken}"},
            )
        least = _LEAST.get(name)
        if least is not None and isinstance(value, int | float):
            above = name in _ABOVE
            if not (value > least if above else value >= least):
                rule = f"above {least}" if above else f"at least {least}"
                raise GraphflowError(
                    f"{self._called(call)} got {name}={value}; it must be {rule}", code="invalid_input"
                )
            most = _MOST.get(name)
            if most is not None and value > most:
                raise GraphflowError(
                    f"{self._called(call)} got {name}={shown(value)}; it must be at most {most}", code="invalid_input"
                )

    def _next(self, name: str, value: Any, allowed: tuple[ValueKind, ...]) -> str:
        words = {kind.words for kind in allowed}
        if isinstance(value, str) and "a whole number" in words and re.fullmatch(r"\s*\d+\s*", value):
            return f"write {name}={int(value)}"
        if isinstance(value, int) and not isinstance(value, bool) and words <= {"text", "None"}:
            return f"write {name}={str(value)!r}"
        if isinstance(value, str) and any(word.startswith("a list") for word in words):
            return f"write {name}=[{shown(value)}]"
        hint = next((hint for kind in allowed if (hint := _HINTS.get(kind.words))), None)
        if hint is not None:
            return hint
        return "give one" if name in self._required else "give one, or leave it out"

    def _called(self, call: str | None) -> str:
        owner, _, name = self._function.__qualname__.rpartition(".")
        return f"{owner.rpartition('.')[2] if name == '__init__' else call or name}()"

    def _read(self) -> dict[str, tuple[ValueKind, ...]]:
        kinds: dict[str, tuple[ValueKind, ...]] = {}
        for parameter in inspect.signature(self._function).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                options = _unpacked(parameter.annotation, self._function)
                self._open = options is None
                kinds |= {name: _kinds(text) for name, text in (options or {}).items()}
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                kinds[parameter.name] = _kinds(parameter.annotation)
                if parameter.kind is not parameter.KEYWORD_ONLY:
                    self._names.append(parameter.name)
                if parameter.default is parameter.empty:
                    self._required.add(parameter.name)
        self._types = {
            name: frozenset() if name in _LEAST else frozenset[type]().union(*(kind.types for kind in allowed))
            for name, allowed in kinds.items()
        }
        self._first = 1 if self._names[:1] in (["self"], ["cls"]) else 0
        self._kinds = kinds
        return kinds


def shown(value: Any) -> str:
    """A value for an error: short, and without secrets."""
    text = excerpt_of(value, 61)
    return text if len(text) <= 60 else f"{text[:60]}…"


# --- annotations


def _unpacked(annotation: Any, function: Callable[..., Any]) -> dict[str, Any] | None:
    """The options of `**options: Unpack[Options]`; None where any name is taken."""
    match = re.fullmatch(r"Unpack\[(\w+)\]", str(annotation))
    options = None if match is None else function.__globals__.get(match[1])
    if options is None:
        return None
    return {name: getattr(kind, "__forward_arg__", kind) for name, kind in options.__annotations__.items()}


@functools.cache
def _kinds(annotation: Any) -> tuple[ValueKind, ...]:
    """The kinds of an annotation; empty where anything goes, or only a type checker knows."""
    if not isinstance(annotation, str):
        return ()
    atoms: list[ValueKind] = []
    for atom in _atoms(_ALIASES.get(annotation, annotation)):
        known = _kinds(_ALIASES[atom]) if atom in _ALIASES else _kind(atom)
        if not known:
            return ()
        atoms += known
    return tuple(atoms)


def _atoms(annotation: str) -> list[str]:
    """`str | dict[str, int | None]` → `str`, `dict[str, int | None]`."""
    out, depth, begun = [], 0, 0
    for at, character in enumerate(annotation):
        depth += (character in "[(") - (character in "])")
        if character == "|" and depth == 0:
            out.append(annotation[begun:at].strip())
            begun = at + 1
    return [*out, annotation[begun:].strip()]


def _kind(atom: str) -> tuple[ValueKind, ...]:
    head, _, inner = atom.partition("[")
    if head == "Literal":
        values = ast.literal_eval(f"({inner.removesuffix(']')},)")
        # Which words are right is checked where a wrong one has its own error (`invalid_input`, or one of the document).
        words = f"one of {', '.join(map(repr, values))}"
        return (ValueKind(words, lambda value: isinstance(value, str), frozenset({str})),)
    if head == "Sequence" and inner == "str]":
        return (
            ValueKind(
                "a list of texts", lambda value: _is_list(value) and all(isinstance(item, str) for item in value)
            ),
        )
    found = _KINDS.get(head.rpartition(".")[2])
    return () if found is None else (found,)


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping)


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and (isinstance(value, int) or hasattr(type(value), "__index__"))


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and (isinstance(value, int | float) or hasattr(type(value), "__float__"))


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in names)


_KINDS: Mapping[str, ValueKind] = {
    "Choices": ValueKind(
        "one word for all effects, a mapping of effect id to word, or None",
        lambda value: value is None or isinstance(value, str | Mapping),
    ),
    "None": ValueKind("None", lambda value: value is None, frozenset({type(None)})),
    "str": ValueKind("text", lambda value: isinstance(value, str), frozenset({str})),
    "bytes": ValueKind("bytes", lambda value: isinstance(value, bytes)),
    "bool": ValueKind("True or False", lambda value: isinstance(value, bool), frozenset({bool})),
    "int": ValueKind("a whole number", _is_whole, frozenset({int})),
    "float": ValueKind("a number", _is_number, frozenset({int, float})),
    "Mapping": ValueKind("a mapping", lambda value: isinstance(value, Mapping)),
    "dict": ValueKind("a mapping", lambda value: isinstance(value, Mapping)),
    "Sequence": ValueKind("a list", _is_list),
    "list": ValueKind("a list", _is_list),
    "Iterable": ValueKind("a list", _is_list),
    "Callable": ValueKind("a function", callable),
    "MediaPart": ValueKind("an ImagePart, AudioPart or FilePart", _has("url", "data", "blob")),
    "Person": ValueKind("a Person", _has("name", "admin", "capabilities")),
    "PathLike": ValueKind("a path", lambda value: isinstance(value, PathLike)),
    "Checkpointer": ValueKind("a checkpointer", _has("commit", "take", "load")),
    "ChatModel": ValueKind("a ChatModel", _has("stream", "provider", "model")),
    "Clock": ValueKind("a clock", _has("now_ms", "monotonic")),
    "Ids": ValueKind("a source of ids", _has("new_id", "random")),
    "Settings": ValueKind("settings", _has("agents", "store", "tools")),
    "Bounds": ValueKind("a Bounds", _has("value_bytes", "document_bytes")),
    "Thread": ValueKind("a Thread", _has("history", "id")),
}
_HINTS = {
    "a checkpointer": "give an object such as SqliteCheckpointer('threads.db') or MemoryCheckpointer()",
    "a ChatModel": (
        "give an object, such as graphflow.testing.ScriptedModel(…); the name of a model stands in the document, with its"
        ' provider: {"providerKey": "openai", "model": "gpt-6-luna"}'
    ),
    "a Bounds": "write graphflow.Bounds(NAME=NUMBER), or leave it out for the defaults",
    "True or False": "write True or False",
    "settings": "give graphflow.settings.load_settings(), or leave it out",
}
