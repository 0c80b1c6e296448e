"""Adapter of the CEL library: compiles, runs, converts values in and out, and reads its messages.

Nothing here knows environments or documents: variables come in named by type and ordinal (`f0` is the
first DOUBLE), so one environment serves every expression of the process. The library is imported
by the first compilation, never before (E20).
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from graphflow.value_size import HiddenFields

VARIABLE_LETTERS = {"dyn": "d", "int": "i", "double": "f", "string": "s", "bool": "b", "list": "l", "map": "m"}
"""CEL type → first letter of the variables that have it."""

_ARENA_USES = 64
"""Evaluations that share one arena; it keeps everything that they converted until it is dropped."""


class Unconvertible(ValueError):
    """A value that CEL can't hold."""


_LEAST, _MOST = -(2**63), 2**63 - 1


class NullCharacter(ValueError):
    """A text or bytes with U+0000 in it; the library's binding would cut it off there."""


class CelError(Exception):
    """The library refused or failed; the text is its own, without decoration."""


@dataclass(frozen=True)
class Complaint:
    """One message of the compiler: where in the text it was given, and what it says."""

    line: int
    column: int
    text: str


class CompileFailed(CelError):
    def __init__(self, complaints: Sequence[Complaint]) -> None:
        super().__init__("; ".join(complaint.text for complaint in complaints))
        self.complaints = tuple(complaints)


class Program:
    """A compiled expression: `run` gives the plain Python value."""

    __slots__ = ("_eval", "type")

    def __init__(self, compiled: Any) -> None:
        self._eval = compiled.eval
        self.type = type_word(compiled.return_type().name())
        """`bool`, `int`, `double`, `string`, `list`, `map`, `null`, `dyn`, `timestamp`, …"""

    def run(self, data: dict[str, Any]) -> Any:
        """The value for these variables; a variable that is left out fails only where it is needed.

        Raises:
            CelError: what the evaluation ended in.
        """
        try:
            # A shared arena keeps every value converted into it: a state full of messages must not stay behind.
            result = self._eval(data=data, arena=None if _holds_collection(data) else _arena())
        except RuntimeError as error:  # the library's C++ exceptions, as for text with half a surrogate pair
            raise CelError(_undecorated(str(error))) from None
        value = result.plain_value()
        kind = type(value)
        # Most results are one of these, and an error never is; asking for the type costs more than the rest.
        if kind is bool or kind is int or kind is float or value is None:
            return value
        return _result(result, value)


def _result(result: Any, value: Any) -> Any:
    """An error is a value of type ERROR, so the type decides and not the value (E16)."""
    name = result.type().name()
    if name in ("ERROR", "UNKNOWN", "*error*", "*unknown*"):
        raise CelError(_undecorated(str(value)))
    if name.startswith("TYPE"):
        raise CelError("the result is a type, not a value")
    return _plain(value)


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return [_plain(item) for item in value]
    if kind is dict:
        return {key: _plain(item) for key, item in value.items()}
    return bytes(value) if kind is bytearray else value


class _Arenas:
    current: Any = None
    uses = 0


def _holds_collection(data: dict[str, Any]) -> bool:
    return any(type(value) is list or type(value) is dict for value in data.values())


def _arena() -> Any:
    """The shared arena: making one for each evaluation costs a third of it. Large values stay out of it."""
    _Arenas.uses -= 1
    if _Arenas.uses < 0:
        _Arenas.current = _cel().Arena()
        _Arenas.uses = _ARENA_USES
    return _Arenas.current


@functools.cache
def _cel() -> Any:
    from cel_expr_python import cel

    return cel


@functools.lru_cache(maxsize=8)
def _environment(variables: int) -> Any:
    cel = _cel()
    of = {
        "dyn": cel.Type.DYN,
        "int": cel.Type.INT,
        "double": cel.Type.DOUBLE,
        "string": cel.Type.STRING,
        "bool": cel.Type.BOOL,
        "list": cel.Type.List(cel.Type.DYN),
        "map": cel.Type.Map(cel.Type.DYN, cel.Type.DYN),
    }
    names = {f"{letter}{n}": of[kind] for kind, letter in VARIABLE_LETTERS.items() for n in range(variables)}
    return cel.NewEnv(variables=names)


# Bounded: a server that loads documents for months must not keep the programs of all of them.
@functools.lru_cache(maxsize=4096)
def compile_program(text: str, variables: int) -> Program:
    """The program behind a text whose variables are `d0`, `i0`, …; at most `variables` of each type.

    Raises:
        CompileFailed: with every complaint of the type check.
    """
    # Few sizes, so that nearly all expressions share one environment: making one costs milliseconds.
    size = 8
    while size < variables:
        size *= 4
    try:
        return Program(_environment(size).compile(text))
    except RuntimeError as error:
        raise CompileFailed(list(_complaints(str(error)))) from None


def compile_with_literals(text: str, variables: int, literals: Mapping[str, str]) -> Program:
    """A program with the values of some variables in its source, for those that can't be passed as data.

    It is compiled for one evaluation and not cached. A comprehension over one item binds the variable.
    """
    for name, value in literals.items():
        text = f"[dyn({value})].map({name}, {text}\n)[0]"  # the line break ends a comment
    return compile_program.__wrapped__(text, variables)


_COMPLAINT = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")


def _complaints(text: str) -> Iterable[Complaint]:
    found = False
    for match in _COMPLAINT.finditer(text):
        found = True
        yield Complaint(int(match[1]), int(match[2]), match[3].replace(" (in container '')", ""))
    if not found:
        yield Complaint(1, 1, _undecorated(text))


# The text may hold a model's words: white space is tried from its beginning only.
_DECORATION = re.compile(r"^(?:[A-Z_]++: )++|(?<!\s)\s*+\[[A-Z_]++\]$")


def _undecorated(text: str) -> str:
    """The library's message without its status word: `INVALID_ARGUMENT: divide by zero` → `divide by zero`."""
    return _DECORATION.sub("", text.strip())


def type_word(name: str) -> str:
    """The library's name of a type as one word: `LIST<DYN>` → `list`."""
    word = name.partition("<")[0].strip().lower()
    return {"": "dyn", "null_type": "null"}.get(word, word)


# --- values into CEL ------------------------------------------------------------------------------

_AS_IS = frozenset({float, bool, type(None)})


_whole: ContextVar[bool] = ContextVar("_whole", default=False)
"""Whether `to_cel` takes U+0000 and wide integers. A variable that only texts with it look up: an argument would cost every item."""


def to_cel(value: Any) -> Any:
    """The value in a form that CEL takes: frozen and lazy collections become plain ones, messages camelCase maps.

    Raises:
        Unconvertible: a type that CEL has no form for.
        NullCharacter: a text with U+0000.
    """
    kind = type(value)
    if kind is str:
        return value if "\0" not in value else _null(value)
    if kind in _AS_IS:
        return value
    if kind is int:
        return value if _LEAST <= value <= _MOST else _too_wide(value)
    if isinstance(value, msgspec.Struct):
        return {name: to_cel(item) for name, item in struct_items(value)}
    if isinstance(value, list | tuple):  # ABC checks come last: each costs as much as an item
        return [to_cel(item) for item in value]
    if isinstance(value, dict | Mapping):
        return {
            key if type(key) is not str or "\0" not in key else _null(key): to_cel(item) for key, item in value.items()
        }
    return _other(value)


def to_plain(value: Any) -> Any:
    """As `to_cel`, but U+0000 and integers of any width are kept: the result is for rendering and `literal`, not for the library."""
    token = _whole.set(True)
    try:
        return to_cel(value)
    finally:
        _whole.reset(token)


def _null(value: Any) -> Any:
    if _whole.get():
        return value
    raise NullCharacter("a text with the character U+0000")


def _other(value: Any) -> Any:
    match value:
        case enum.Enum():
            return to_cel(value.value)
        case str():  # these four: subclasses of the plain types
            return to_cel(str.__str__(value))
        case int():
            return to_cel(int(value))
        case float():
            return float(value)
        case bytes() | bytearray() | memoryview():
            out = bytes(value)
            return out if 0 not in out else _null(out)
        case Sequence() | AbstractSet():
            return [to_cel(item) for item in value]
        case Decimal():
            return float(value)
        case UUID() | HiddenFields():
            return str(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"  # what `duration(…)` reads
    if is_dataclass(value):
        return {field.name: to_cel(getattr(value, field.name)) for field in dataclass_fields(value)}
    raise Unconvertible(f"a value of type {type(value).__name__} can't be used in an expression")


def struct_items(value: msgspec.Struct) -> Iterable[tuple[str, Any]]:
    """Wire names and values of a struct, defaults included, its tag first."""
    config = value.__struct_config__
    if config.tag is not None:
        yield config.tag_field or "type", config.tag
    for wire, name in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True):
        yield wire, getattr(value, name)


def _too_wide(value: int) -> Any:
    if _whole.get():
        return value
    raise Unconvertible(
        f"{_shown(value)} is wider than the 64 bits that expressions count with ({_LEAST} to {_MOST}); "
        "keep it as text, or compute with it in a Python node"
    )


def _shown(value: int) -> str:
    # Of the longest ones Python itself makes no text.
    return str(value) if value.bit_length() <= 128 else f"an integer of {value.bit_length():,} bits"


def to_double(value: Any) -> Any:
    """A whole number as DOUBLE; anything else as it is, for CEL to refuse (E16).

    Raises:
        Unconvertible: also of an integer that no double is equal to: rounded, two ids would be one.
    """
    if type(value) is not int:
        return to_cel(value)
    try:
        double = float(value)
    except OverflowError:
        double = math.inf
    if double == value:
        return double
    raise Unconvertible(
        f"{_shown(value)} is a whole number that no double holds, and its schema says number; "
        "declare it as integer, keep it as text, or compute with it in a Python node"
    )


def literal(value: Any) -> str:
    """A converted value as CEL source, where the library reads U+0000 correctly."""
    match value:
        case dict():
            return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(literal, value)) + "]"
        case str():
            return '"' + "".join(_ESCAPED.get(character, character) for character in value) + '"'
        case bytes():
            return 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
        case float():
            # Through text: CEL has no literal for infinity and NaN.
            return f"double('{value!r}')"
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
    return str(value)


_ESCAPED = {"\0": "\\000", '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r"}
