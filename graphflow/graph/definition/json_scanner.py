"""The scanner behind `source.py`: one pass over the text that collects every error it can recover from."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from graphflow.graph.definition.json_pointer import escape

# Whatever walks the data later recurses as deep as the text is nested.
MAX_NESTING = 100
# One broken place often makes many errors; of more than these nobody reads the rest.
MAX_ISSUES = 50
_QUOTES = '"""'
_WHERE_THREE_QUOTED = "three quotation marks are for keys whose name contains systemPrompt; write \\n for a line break"

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
# Takes in more than any JSON word, so that `None`, `0x1F` and `1_000` are reported whole and not letter by letter.
_WORD = re.compile(r"[-+]?[A-Za-z_$][A-Za-z0-9_$]*|[-+.]?[0-9][-+.0-9A-Za-z_]*")
_CLEAN = re.compile(r'[^"\\\x00-\x1f]*')
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"true": True, "false": False, "null": None}
_NOT_A_NUMBER = {"NaN", "Infinity", "-Infinity", "+Infinity", "-NaN"}
_PYTHON_WORDS = {
    "True": "true",
    "False": "false",
    "None": "null",
    "undefined": "null",
    "TRUE": "true",
    "FALSE": "false",
}


class Scanned:
    """What the scanner found; offsets are by JSON pointer."""

    __slots__ = ("data", "errors", "keys", "unreadable", "values")

    def __init__(self) -> None:
        self.data: Any = None
        self.values: dict[str, int] = {}
        self.keys: dict[str, int] = {}
        self.errors: list[tuple[int, str, str, str | None]] = []
        """Offset, pointer, message, hint."""
        self.unreadable = False
        """The scan ended before the text did."""


class _Stop(Exception):
    """Nothing sensible can be read after this."""


def scan(text: str) -> Scanned:
    """Everything that one pass finds; never raises."""
    scanner = _Scanner(text)
    out = scanner.out
    try:
        at = scanner.space(1 if text.startswith("\ufeff") else 0)
        if at == len(text):
            scanner.stop(at, "", "the text is empty", "a file holds one JSON object")
        out.data, at = scanner.value(at, "", 0, False)
        at = scanner.space(at)
        if at < len(text):
            scanner.issue(
                at, "", f"unexpected {_shown(text, at)} after the end", "remove what follows the last bracket"
            )
    except _Stop:
        out.unreadable = True
    out.errors.sort(key=lambda issue: issue[0])
    return out


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.out = Scanned()

    # --- errors

    def issue(self, at: int, pointer: str, message: str, hint: str | None = None) -> None:
        self.out.errors.append((at, pointer, message, hint))
        if len(self.out.errors) >= MAX_ISSUES:
            raise _Stop

    def stop(self, at: int, pointer: str, message: str, hint: str | None = None) -> NoReturn:
        self.out.errors.append((at, pointer, message, hint))
        raise _Stop

    # --- parts

    def space(self, at: int) -> int:
        """The offset after white space; a comment is reported and skipped."""
        match = _SPACE.match(self.text, at)
        at = match.end() if match else at
        while self.text.startswith(("//", "/*", "#"), at):
            self.issue(at, "", "JSON has no comments", "put it into a `description`, or remove it")
            closing = "*/" if self.text.startswith("/*", at) else "\n"
            end = self.text.find(closing, at + 1)
            at = len(self.text) if end < 0 else end + len(closing)
            match = _SPACE.match(self.text, at)
            at = match.end() if match else at
        return at

    def value(self, at: int, pointer: str, depth: int, prompt: bool) -> tuple[Any, int]:
        """The value that begins at `at`, and where it ends."""
        self.out.values[pointer] = at
        text = self.text
        character = text[at : at + 1]
        if character == '"':
            if text.startswith(_QUOTES, at):
                if not prompt:
                    self.issue(at, pointer, "three-quoted text is not allowed here", _WHERE_THREE_QUOTED)
                return self.three_quoted(at, pointer)
            return self.string(at, pointer)
        if character in ("{", "["):
            if depth >= MAX_NESTING:
                self.stop(at, pointer, f"nested deeper than {MAX_NESTING} levels", "flatten it")
            return self.object(at, pointer, depth) if character == "{" else self.array(at, pointer, depth)
        return self.scalar(at, pointer)

    def scalar(self, at: int, pointer: str) -> tuple[Any, int]:
        """A number, or one of the three words; a wrong word is an error and counts as null."""
        text = self.text
        word = _WORD.match(text, at)
        if word is None:
            self.no_value(at, pointer)
        found, end = word.group(), word.end()
        if found in _WORDS:
            return _WORDS[found], end
        number = _NUMBER.match(text, at)
        if number is not None and number.end() == end:
            return self.number(at, pointer, number), end
        self.issue(at, pointer, *_wrong_word(found))
        return None, end

    def no_value(self, at: int, pointer: str) -> NoReturn:
        text = self.text
        if at >= len(text):
            self.stop(at, pointer, "the text ends where a value should be", "close every bracket and quotation mark")
        if text[at] == "'":
            self.stop(at, pointer, "text must be in double quotation marks", "write \"…\" instead of '…'")
        self.stop(at, pointer, f"expected a value, found {_shown(text, at)}")

    def number(self, at: int, pointer: str, match: re.Match[str]) -> Any:
        fraction, exponent = match.groups()
        if fraction or exponent:
            value = float(match.group())
            if value in (float("inf"), float("-inf")):
                self.issue(at, pointer, f"{_short(match.group())} is too large for a number")
                return None
            return value
        # Before `int`, which takes quadratic time for long digits and refuses the longest with an error of its own.
        if len(match.group()) > 400:
            self.issue(at, pointer, f"a whole number of {len(match.group())} digits is too large")
            return None
        return int(match.group())

    def array(self, at: int, pointer: str, depth: int) -> tuple[list[Any], int]:
        text = self.text
        items: list[Any] = []
        at = self.space(at + 1)
        while not text.startswith("]", at):
            item, at = self.value(at, f"{pointer}/{len(items)}", depth + 1, False)
            items.append(item)
            at = self.separator(at, pointer, "]", '"{[0123456789-tfn')
        return items, at + 1

    def object(self, at: int, pointer: str, depth: int) -> tuple[dict[str, Any], int]:
        text = self.text
        out: dict[str, Any] = {}
        at = self.space(at + 1)
        while not text.startswith("}", at):
            begin = at
            if not text.startswith('"', at):
                self.no_key(at, pointer)
            key, at = self.string(at, pointer)
            below = f"{pointer}/{escape(key)}"
            if key in out:
                line, column = self.line_column(self.out.keys[below])
                self.issue(begin, below, f"key {key!r} is given twice", f"the first is at line {line}, column {column}")
            else:
                self.out.keys[below] = begin
            at = self.space(at)
            if not text.startswith(":", at):
                self.stop(at, below, f"expected ':' after key {key!r}, found {_shown(text, at)}")
            value, at = self.value(self.space(at + 1), below, depth + 1, "systemprompt" in key.lower())
            # The first of two equal keys wins: its place is the one that later errors point at.
            out.setdefault(key, value)
            at = self.separator(at, pointer, "}", '"')
        return out, at + 1

    def no_key(self, at: int, pointer: str) -> NoReturn:
        text = self.text
        if at >= len(text):
            self.stop(at, pointer, "the text ends inside an object", "close every bracket and quotation mark")
        if text[at] == "'" or text[at].isalpha() or text[at] == "_":
            self.stop(
                at, pointer, f"a key must be in double quotation marks, found {_shown(text, at)}", 'write "key": …'
            )
        self.stop(at, pointer, f"expected a key, found {_shown(text, at)}")

    def separator(self, at: int, pointer: str, closing: str, openers: str) -> int:
        """The offset after the comma, or of the closing bracket; a comma that is missing is reported and skipped."""
        text = self.text
        at = self.space(at)
        if text.startswith(closing, at):
            return at
        if text.startswith(",", at):
            after = self.space(at + 1)
            if text.startswith(closing, after):
                self.issue(at, pointer, f"unexpected comma before {closing!r}", "remove the comma")
            return after
        if at >= len(text):
            what = "an object" if closing == "}" else "a list"
            self.stop(at, pointer, f"the text ends inside {what}", "close every bracket and quotation mark")
        found = f"expected ',' or {closing!r}, found {_shown(text, at)}"
        if text[at] not in openers:
            self.stop(at, pointer, found)
        # A value follows, so only the comma is missing: the scan can go on and find more errors.
        self.issue(at, pointer, found, "put a comma before it")
        return at

    def string(self, at: int, pointer: str) -> tuple[str, int]:
        text, begin = self.text, at
        match = _CLEAN.match(text, at + 1)
        end = match.end() if match else at + 1
        if text.startswith('"', end):  # no escapes: nearly all
            return text[at + 1 : end], end + 1
        parts = [text[at + 1 : end]]
        while not text.startswith('"', end):
            if end >= len(text):
                self.stop(begin, pointer, "text without its closing quotation mark", "close it with a quotation mark")
            piece, end = self.escape(end, pointer) if text[end] == "\\" else self.control(end, pointer)
            parts.append(piece)
            match = _CLEAN.match(text, end)
            next_end = match.end() if match else end
            parts.append(text[end:next_end])
            end = next_end
        return "".join(parts), end + 1

    def control(self, at: int, pointer: str) -> tuple[str, int]:
        character = self.text[at]
        if character == "\n":
            # Usually the quotation mark is missing: every guess from here on would report errors that are none.
            self.stop(at, pointer, "a line break inside text", "close the text, or write \\n")
        self.issue(at, pointer, f"a control character {character!r} inside text", f"write \\u{ord(character):04x}")
        return character, at + 1

    def escape(self, at: int, pointer: str) -> tuple[str, int]:
        """One escape sequence, or a surrogate pair of two."""
        text = self.text
        letter = text[at + 1 : at + 2]
        if letter in _ESCAPES:
            return _ESCAPES[letter], at + 2
        if letter == "u":
            return self.unicode_escape(at, pointer)
        if not letter:
            return "", at + 1
        self.issue(at, pointer, f"\\{letter} is not an escape sequence", f"write \\\\{letter} for a backslash")
        return letter, at + 2

    def unicode_escape(self, at: int, pointer: str) -> tuple[str, int]:
        text = self.text
        digits = _UNICODE.match(text, at + 2)
        if digits is None:
            self.issue(
                at, pointer, f"{text[at : at + 6]!r} is not an escape sequence", "\\u takes four hexadecimal digits"
            )
            return "\ufffd", at + 2
        code = int(digits.group(), 16)
        if 0xD800 <= code < 0xDC00 and text.startswith("\\u", at + 6):
            low = _UNICODE.match(text, at + 8)
            if low is not None and 0xDC00 <= (second := int(low.group(), 16)) < 0xE000:
                return chr(0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00)), at + 12
        # Half a pair has no UTF-8 form: no store and no provider could take the text.
        if 0xD800 <= code < 0xE000:
            self.issue(
                at, pointer, f"\\u{digits.group()} is half of a surrogate pair", "write both halves, or the character"
            )
            return "\ufffd", at + 6
        return chr(code), at + 6

    def three_quoted(self, at: int, pointer: str) -> tuple[str, int]:
        """Text between three quotation marks: as it stands, less one line break at each end (spec 1.1)."""
        end = self.text.find(_QUOTES, at + 3)
        if end < 0:
            self.stop(at, pointer, "three-quoted text without its end", f"close it with {_QUOTES}")
        # A file saved on Windows must give the same prompt, and so the same version hash.
        body = self.text[at + 3 : end].replace("\r\n", "\n")
        body = body.removeprefix("\n").removesuffix("\n")
        return body, end + 3

    def line_column(self, at: int) -> tuple[int, int]:
        before = self.text[:at]
        return before.count("\n") + 1, at - before.rfind("\n")


def _wrong_word(found: str) -> tuple[str, str | None]:
    if found in _NOT_A_NUMBER:
        return f"{found} is not a JSON number", "leave the key out, or write null"
    if found in _PYTHON_WORDS:
        return f"{found} is not JSON", f"write {_PYTHON_WORDS[found]}"
    if found[0].isdigit() or found[0] in "+-.":
        return (
            f"{_short(found)} is not a JSON number",
            "no leading zero, plus or bare point; digits on both sides of a point",
        )
    return (
        f"{_short(found)} is not a JSON value",
        f"text must be in double quotation marks: {json.dumps(found[:20], ensure_ascii=False)}",
    )


def _shown(text: str, at: int) -> str:
    return "the end of the text" if at >= len(text) else repr(text[at])


def _short(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:29] + "…")
