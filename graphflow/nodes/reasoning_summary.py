"""Reads `{"reasoningSummary": …, "finalText": …}` while it is still arriving (spec 1.3, `output: REASONING_SUMMARY`).

Pure: text goes in, in pieces of any size, and what it adds to either field comes out at once. What each input means:

- The strings of the two fields, in either order, are decoded as they come; a half of a surrogate pair that stays alone,
  or an escape that is cut off, is U+FFFD. Raw control characters and unknown escapes, which strict JSON refuses, pass.
- White space, a Markdown fence (with `json` or nothing) around the object, and members of other names give nothing.
- A field that is no string gives its JSON text; `null` is as good as a missing one. A field given twice gives both.
- Anything else is prose: as soon as the text can't be the object, all of it goes through as `finalText`. Where the object
  breaks off later, or text follows it, the rest goes through as it stands.
- Without a `finalText`, the summary is the answer too; if there were other members, the raw text is. So no text is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from graphflow.nodes.json_string import JsonString

Field = Literal["reasoningSummary", "finalText"]
Piece = tuple[Field, str]

SCHEMA = {
    "type": "object",
    "properties": {"reasoningSummary": {"type": "string"}, "finalText": {"type": "string"}},
    "required": ["reasoningSummary", "finalText"],
    "additionalProperties": False,
}
"""The schema for the model; the reasoning first, so that it is streamed first."""

_SPACE = " \t\r\n"
_FENCE_SO_FAR = re.compile(r"`{1,3}|```[ \t]*(?:j|js|jso|json)|```[ \t]*(?:json)?\s+", re.IGNORECASE)
_FENCE = re.compile(r"```[ \t]*(?:json)?\s*", re.IGNORECASE)
_SCALAR_START = frozenset("-0123456789tfn")
_SCALAR = re.compile(r"[^ \t\r\n,}\]]+")
_NAME_CHARS = 32
"""Longer than both field names: a longer name is another member, and its rest need not be kept."""
_BRACKETS = re.compile(r'["{}\[\]]')


class SummaryReader:
    """Incremental reader of one answer."""

    def __init__(self) -> None:
        self._raw: list[str] = []
        # Lists, not strings that grow: an answer may come in one piece of a megabyte, or in a hundred thousand pieces.
        self._out: dict[Field, list[str]] = {}
        self._read: Callable[[str, int], int] = self._opening
        self._told: dict[Field, list[str]] = {"reasoningSummary": [], "finalText": []}
        self._given: set[str] = set()
        """Names of the members that were not `null`."""
        self._waiting: list[str] = []
        """Syntax since the last value, from its closing quote on; it becomes text if the object breaks off."""
        self._fence: str | None = None
        self._ticks = ""
        """The part of the closing fence read so far."""
        self._string = JsonString()
        self._name = ""
        self._word: str | None = ""
        """The part of a number or word not yet given out; `None` once it can't be `null`."""
        self._depth = 0

    def feed(self, text: str) -> list[Piece]:
        """The text that this piece adds: at most one for each field."""
        self._out = {}
        self._raw.append(text)
        at = 0
        while at < len(text):
            at = self._read(text, at)
        return self._pieces()

    def end(self) -> list[Piece]:
        """The rest when no more text comes."""
        self._out = {}
        if self._read == self._in_string:
            self._tell(self._string.end())
        elif self._read == self._in_scalar:
            self._end_scalar()
        # Prose has been given out already, and a closed object has settled its `finalText`.
        if self._read not in (self._prose, self._closed):
            self._without_final_text()
        self._read = self._prose
        return self._pieces()

    # --- what is said

    def _pieces(self) -> list[Piece]:
        return [(field, "".join(texts)) for field, texts in self._out.items()]

    def _add(self, field: Field, text: str) -> None:
        if text:
            self._out.setdefault(field, []).append(text)
            self._told[field].append(text)

    def _tell(self, text: str) -> None:
        """Gives out text of the current member; members with other names are dropped."""
        match self._name:
            case "finalText" | "reasoningSummary" as field:
                self._add(field, text)

    def _prose(self, text: str, at: int) -> int:
        self._add("finalText", text[at:])
        return len(text)

    def _break(self, text: str, at: int) -> int:
        """The object breaks off here: the rest is text, and if nothing was given out yet, all of it is."""
        self._read = self._prose
        if not any(self._told.values()):
            self._add("finalText", "".join(self._raw))
            return len(text)
        # The quotes and commas held as syntax were part of the prose.
        self._add("finalText", "".join(self._waiting))
        return self._prose(text, at)

    def _without_final_text(self, beyond: int = 0) -> bool:
        """Supplies a missing `finalText`; whether by the raw text, without its last `beyond` unread characters."""
        if "finalText" in self._given:
            return False
        summary = "".join(self._told["reasoningSummary"])
        # With other members the answer is probably among them, so the raw text is safer than the summary.
        if self._given == {"reasoningSummary"} and summary.strip():
            self._add("finalText", summary)
            return False
        raw = "".join(self._raw)
        self._add("finalText", raw[: len(raw) - beyond])
        return True

    # --- around the object

    def _opening(self, text: str, at: int) -> int:
        char = text[at]
        if char in _SPACE:
            return at + 1
        if char == "{":
            self._read = self._before_name
            return at + 1
        if char == "`":
            self._fence, self._read = "", self._in_fence
            return at
        return self._break(text, at)

    def _in_fence(self, text: str, at: int) -> int:
        assert self._fence is not None
        if text[at] == "{" and _FENCE.fullmatch(self._fence):
            self._read = self._before_name
            return at + 1
        # Only the first character of a run of white space is kept: matching the whole run again for each is quadratic.
        char, before = text[at], self._fence[-1:]
        if not (char.isspace() and before.isspace() and (char in " \t" or before not in " \t")):
            self._fence += char
        return at + 1 if _FENCE_SO_FAR.fullmatch(self._fence) else self._break(text, at)

    def _close(self, text: str, at: int) -> int:
        self._waiting, self._read = [], self._closed
        if self._without_final_text(beyond=len(text) - at - 1):
            self._read = self._prose
        return at + 1

    def _closed(self, text: str, at: int) -> int:
        """Reads what follows the object: white space, and the end of an open fence."""
        char = text[at]
        if char not in _SPACE:
            self._ticks += char
            if self._fence is None or not "```".startswith(self._ticks):
                return self._break(text, at)
        elif self._ticks:
            self._ticks = "```"  # white space ends the fence, so that one more backtick is text
        self._waiting.append(char)
        return at + 1

    # --- members

    def _syntax(self, text: str, at: int, ways: dict[str, Callable[[str, int], int]]) -> int:
        """Reads white space or an expected character; anything else breaks the object off."""
        char = text[at]
        if char not in _SPACE and char not in ways:
            return self._break(text, at)
        self._waiting.append(char)
        return ways[char](text, at) if char in ways else at + 1

    def _go(self, read: Callable[[str, int], int]) -> Callable[[str, int], int]:
        def go(text: str, at: int) -> int:
            self._read = read
            return at + 1

        return go

    def _before_name(self, text: str, at: int) -> int:
        return self._syntax(text, at, {'"': self._begin_name, "}": self._close})

    def _begin_name(self, text: str, at: int) -> int:
        self._string, self._name, self._read = JsonString(), "", self._in_name
        return at + 1

    def _in_name(self, text: str, at: int) -> int:
        piece, stop = self._string.read(text, at)
        self._name = (self._name + piece)[:_NAME_CHARS]
        self._waiting.append(text[at:stop])
        if self._string.closed:
            self._read = self._behind_name
        return stop

    def _behind_name(self, text: str, at: int) -> int:
        return self._syntax(text, at, {":": self._go(self._before_value)})

    def _behind_value(self, text: str, at: int) -> int:
        return self._syntax(text, at, {",": self._go(self._before_name), "}": self._close})

    # --- values

    def _before_value(self, text: str, at: int) -> int:
        char = text[at]
        if char in _SPACE:
            self._waiting.append(char)
            return at + 1
        if char == '"':
            self._string = JsonString()
            return self._begin(self._in_string, at + 1)
        if char in "{[":
            self._depth = 0
            return self._begin(self._in_nested, at)
        if char in _SCALAR_START:
            self._word = ""
            return self._begin(self._in_scalar, at, given=False)
        return self._break(text, at)

    def _begin(self, read: Callable[[str, int], int], at: int, *, given: bool = True) -> int:
        self._waiting, self._read = [], read
        if given:
            self._given.add(self._name)
        return at

    def _in_string(self, text: str, at: int) -> int:
        piece, stop = self._string.read(text, at)
        self._tell(piece)
        if self._string.closed:
            self._waiting, self._read = ['"'], self._behind_value
        return stop

    def _in_scalar(self, text: str, at: int) -> int:
        """Reads a number or a word; only a possible `null` is held until it is complete."""
        found = _SCALAR.match(text, at)
        if found is None:
            self._end_scalar()
            self._read = self._behind_value
            return at
        word = (self._word or "") + found[0]
        if self._word is not None and "null".startswith(word):
            self._word = word
        else:
            self._word = None
            self._given.add(self._name)
            self._tell(word)
        return found.end()

    def _end_scalar(self) -> None:
        """Ends a number or word: an incomplete `null` is text."""
        if self._word and self._word != "null":
            self._given.add(self._name)
            self._tell(self._word)

    def _in_nested(self, text: str, at: int) -> int:
        """Reads an object or list as its JSON text, up to the closing bracket."""
        # Brackets inside strings must not be counted.
        in_string = self._depth and not self._string.closed
        stop = self._string.read(text, at)[1] if in_string else self._brackets(text, at)
        self._tell(text[at:stop])
        if not self._depth:
            self._read = self._behind_value
        return stop

    def _brackets(self, text: str, at: int) -> int:
        """Counts brackets up to the last one or into a string; returns where it stopped."""
        while (found := _BRACKETS.search(text, at)) is not None:
            at = found.end()
            if found[0] == '"':
                self._string = JsonString()
                return at
            self._depth += 1 if found[0] in "{[" else -1
            if not self._depth:
                return at
        return len(text)
