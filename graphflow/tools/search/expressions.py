r"""The regular expressions of `Grep`: those that ripgrep and RE2 read alike, so that both find the same lines.

What only one of them knows, or what they read differently, is refused before either runs: a pattern that works on one
machine works on all. RE2 knows only ASCII in `\d`, `\w` and `\s`, so it gets their Unicode meaning spelled out; its `\b`
stays ASCII, the one difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

MAX_EXPRESSION = 4_000
MAX_REPEATS = 1_000
"""The most that RE2 repeats."""
_WORD = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}"
_SPACE = r"\t-\r\x{85}\p{Z}"
_NO_SPACE = (
    r"\x{0}-\x{8}\x{e}-\x{1f}!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
    r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_OUTSIDE: Mapping[str, str] = MappingProxyType(
    {"d": r"\p{Nd}", "D": r"\P{Nd}", "w": f"[{_WORD}]", "W": f"[^{_WORD}]", "s": f"[{_SPACE}]", "S": f"[^{_SPACE}]",
     "b": r"\b", "B": r"\B", "t": r"\t", "f": r"\f", "v": r"\v", "a": r"\a"}
)  # fmt: skip
_IN_SET: Mapping[str, str] = MappingProxyType(
    {
        "d": r"\p{Nd}",
        "D": r"\P{Nd}",
        "w": _WORD,
        "s": _SPACE,
        "S": _NO_SPACE,
        "t": r"\t",
        "f": r"\f",
        "v": r"\v",
        "a": r"\a",
    }
)
_REPEAT = re.compile(r"\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}")
_GROUP = re.compile(r"\((?:\?(?:P?<[A-Za-z_][A-Za-z0-9_]*>|[is]*(?:-[is]+)?[:)]))?")
_PROPERTY = re.compile(r"\\[pP](?:\{[A-Za-z_]+\}|[A-Z])")
_HEX = re.compile(r"\\x(?:[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]{1,6}\})")
_POSIX = re.compile(r"\[:\^?[a-z]+:\]")


class NoExpression(ValueError):
    """A text that is no regular expression of both engines; the message names the place and what to write."""


def re2_expression(expression: str) -> str:
    """The expression for RE2 that finds what ripgrep finds.

    Raises:
        NoExpression: it is too long, has a line end, or a part that the engines don't read alike.
    """
    check_text(expression)
    out: list[str] = []
    at = 0
    while at < len(expression):
        char = expression[at]
        if char == "\\":
            part, at = _escaped(expression, at, _OUTSIDE)
        elif char == "[":
            part, at = _set(expression, at)
        elif char == "(":
            group = _GROUP.match(expression, at)
            if group is None or (group[0] == "(" and expression.startswith("(?", at)):
                raise _wrong(expression, at, "of the groups with ?, (?:…), (?i), (?s) and (?P<name>…) work here")
            part, at = group[0], group.end()
        elif char == "{":
            repeat = _REPEAT.match(expression, at)
            if repeat is None:
                raise _wrong(expression, at, r"a brace that repeats nothing is written \{")
            if max(int(number) for number in repeat.groups() if number) > MAX_REPEATS:
                raise _wrong(expression, at, f"a part may be repeated {MAX_REPEATS} times")
            part, at = repeat[0], repeat.end()
        else:
            part, at = char, at + 1
        out.append(part)
    return "".join(out)


def check_text(text: str) -> None:
    """Refuses what no line holds.

    Raises:
        NoExpression: it is empty, too long, or has a line end or NUL.
    """
    if not text:
        raise NoExpression("it is empty")
    if len(text) > MAX_EXPRESSION:
        raise NoExpression(f"it has {len(text):,} characters; the limit is {MAX_EXPRESSION:,}")
    if any(end in text for end in "\n\r\0"):
        raise NoExpression("it has a line end or a NUL, and a match lies in one line; search for a part of it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NoExpression("it holds half a character") from None


def _escaped(expression: str, at: int, known: Mapping[str, str]) -> tuple[str, int]:
    char = expression[at + 1 : at + 2]
    for form in (_PROPERTY, _HEX):
        if (found := form.match(expression, at)) is not None:
            return found[0], found.end()
    if char in known:
        return known[char], at + 2
    # `\<` and `\>` are edges of words in one engine, and signs in the other.
    if char and char.isascii() and not char.isalnum() and char.isprintable() and char not in "<>":
        return f"\\{char}" if char != " " else " ", at + 2
    raise _wrong(expression, at, "this escape does not work here")


def _set(expression: str, at: int) -> tuple[str, int]:
    """`[…]`, and where the expression goes on."""
    begin = at
    at += 1
    out = "["
    if expression.startswith("^", at):
        out, at = "[^", at + 1
    first = at
    while True:
        char = expression[at : at + 1]
        if not char:
            raise _wrong(expression, begin, "the set is not closed by ]")
        if char == "]" and at > first:
            return f"{out}]", at + 1
        if char == "\\":
            part, at = _escaped(expression, at, _IN_SET)
        elif char == "[":
            posix = _POSIX.match(expression, at)
            if posix is None:
                raise _wrong(expression, at, r"in a set a bracket is written \[")
            part, at = posix[0], posix.end()
        elif expression[at : at + 2] in ("&&", "--", "~~"):
            raise _wrong(expression, at, rf"in a set two of these are written \{char}\{char}")
        else:
            part, at = (r"\]" if char == "]" else char), at + 1
        out += part


def _wrong(expression: str, at: int, rule: str) -> NoExpression:
    return NoExpression(f"at character {at + 1}, {expression[at : at + 12]!r}: {rule}")
