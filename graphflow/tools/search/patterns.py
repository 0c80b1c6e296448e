"""Glob patterns as regular expressions that match a path in time linear in its length, whatever the pattern is.

A pattern comes from a model, or from a `.gitignore` that a model may write, and Python's matcher keeps every other thread
waiting. So each star takes the first place where what follows it fits, and never tries another one (an atomic group). That
is exact: what stands between two stars has a fixed length, so the first fit leaves the most for the rest. The same holds
for `**` and the folders between two of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

MAX_PATTERN = 1_000
"""Characters of a pattern."""
MAX_ALTERNATIVES = 1_000
"""Patterns that the braces of one may stand for."""
_NAME = "[^/]*"
_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": " \t", "cntrl": "\0-\x1f\x7f", "digit": "0-9", "graph": "!-~",
    "lower": "a-z", "print": " -~", "punct": "!-/:-@[-`{-~", "space": "\t-\r ", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


class NoPattern(ValueError):
    """A text that is no glob pattern; the message says which rule it breaks."""


@lru_cache(maxsize=4_096)
def compiled_path(pattern: str) -> re.Pattern[str]:
    """Matches a whole path; `*` and `?` stay in one name, and `**` stands for any number of folders.

    Raises:
        NoPattern: a bracket or an escape does not end.
    """
    return re.compile(path_expression(pattern), re.DOTALL)


@lru_cache(maxsize=4_096)
def compiled_name(pattern: str) -> re.Pattern[str]:
    """Matches a whole name.

    Raises:
        NoPattern: a bracket or an escape does not end.
    """
    return re.compile(_segment(pattern), re.DOTALL)


def compiled_glob(pattern: str) -> re.Pattern[str]:
    """Matches what a pattern with braces stands for: `src/**/*.{ts,tsx}`.

    Raises:
        NoPattern: it is too long, stands for too many, or has a bracket that does not end.
    """
    return re.compile("|".join(map(path_expression, expanded(pattern))), re.DOTALL)


def name_of_glob(pattern: str) -> re.Pattern[str] | None:
    """Matches the names of the paths that a valid pattern fits, if it is about names in any folder; else None."""
    name = pattern.removeprefix("**/")
    return None if name == pattern or {"/", "{", "\\"} & set(name) or name == "**" else compiled_name(name)


def path_expression(pattern: str) -> str:
    """The regular expression of a path's pattern.

    Raises:
        NoPattern: a bracket or an escape does not end.
    """
    runs: list[list[str]] = [[]]
    for segment in _segments(pattern):
        if segment == "**":
            # Two in a row stand for no more than one.
            if runs[-1] or len(runs) == 1:
                runs.append([])
        else:
            runs[-1].append(_segment(segment))
    if len(runs) == 1:
        return "/".join(runs[0])
    first, *between, last = ("/".join(run) for run in runs)
    skipped = "".join(f"(?>(?:[^/]*/)*?{run}/)" for run in between)
    # `a/**` is everything in `a`, and not `a` itself.
    end = rf"(?:[^/]*/)*{last}\Z" if last else r".+\Z"
    return (f"{first}/" if first else "") + skipped + end


def _segments(pattern: str) -> Iterator[str]:
    """The pattern's parts between slashes; one in a bracket is a member of it."""
    begin = at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "/":
            yield pattern[begin:at]
            begin = at + 1
        at = _bracket(pattern, at + 1)[1] if char == "[" else at + 1 + (char == "\\")
    yield pattern[begin:]


def _segment(pattern: str) -> str:
    """One name: matches up to the next slash or the end."""
    runs: list[str] = [""]
    for part in _tokens(pattern):
        if part == "*":
            if runs[-1] or len(runs) == 1:
                runs.append("")
        else:
            runs[-1] += part
    if len(runs) == 1:
        return rf"{runs[0]}(?=/|\Z)"
    first, *between, last = runs
    return rf"(?>{first}{''.join(f'(?>{_NAME}?{run})' for run in between)}{_NAME}{last}(?=/|\Z))"


def _tokens(pattern: str) -> Iterator[str]:
    """`*`, or the expression of one character."""
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            yield "*"
        elif char == "?":
            yield "[^/]"
        elif char == "[":
            expression, at = _bracket(pattern, at)
            yield expression
        elif char == "\\":
            if at == len(pattern):
                raise NoPattern("a backslash at its end escapes nothing")
            yield re.escape(pattern[at])
            at += 1
        else:
            yield re.escape(char) if char != "*" else char


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """The expression of `[…]`, and where the pattern goes on; a slash is in no set."""
    negated = pattern[at : at + 1] in ("!", "^")
    start = at = at + negated
    members, last = "", ""
    while True:
        if at >= len(pattern):
            raise NoPattern("a bracket [ is not closed by ]")
        char = pattern[at]
        if char == "]" and at > start:
            break
        named = re.compile(r"\[:([^\]]*):\]").match(pattern, at) if char == "[" else None
        if named is not None:
            if named[1] not in _CLASSES:
                raise NoPattern(f"there is no class [:{named[1]}:]")
            members += _ranges(_CLASSES[named[1]])
            at, last = named.end(), ""
        elif char == "-" and last and pattern[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(pattern, at + 1)
            if last <= high:
                members += f"{re.escape(last)}-{re.escape(high)}"
            last = ""
        else:
            last, at = _member(pattern, at)
            members += re.escape(last)
    if not members:
        return ("[^/]" if negated else "(?!)"), at + 1
    return (f"[^/{members}]" if negated else f"(?!/)[{members}]"), at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at] == "\\":
        at += 1
    if at >= len(pattern):
        raise NoPattern("a bracket [ is not closed by ]")
    return pattern[at], at + 1


def _ranges(members: str) -> str:
    return re.sub(r"(.)-(.)|(.)", lambda m: f"{re.escape(m[1])}-{re.escape(m[2])}" if m[1] else re.escape(m[3]), members,
                  flags=re.DOTALL)  # fmt: skip


# --- braces


def expanded(pattern: str) -> Sequence[str]:
    """The patterns without braces that one with braces stands for; a brace without a comma is itself.

    Raises:
        NoPattern: it is too long, or stands for too many.
    """
    if len(pattern) > MAX_PATTERN:
        raise NoPattern(f"it has {len(pattern):,} characters; the limit is {MAX_PATTERN:,}")
    done: list[str] = []
    left = [(pattern, 0)]
    while left:
        text, start = left.pop()
        group = _first_group(text, start)
        if group is None:
            done.append(text)
        else:
            begin, end, parts = group
            # The last one goes first: `left` is a stack.
            left += [(text[:begin] + part + text[end:], begin) for part in reversed(parts)]
        if len(done) + len(left) > MAX_ALTERNATIVES:
            raise NoPattern(f"its braces stand for more than {MAX_ALTERNATIVES:,} patterns")
    return list(dict.fromkeys(done))


def _first_group(text: str, start: int) -> tuple[int, int, list[str]] | None:
    """Begin, end and alternatives of the first brace with a comma that is closed."""
    opened: list[tuple[int, list[int]]] = []
    found: tuple[int, int, list[str]] | None = None
    at = start
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "{":
            opened.append((at, []))
        elif char == "," and opened:
            opened[-1][1].append(at)
        elif char == "}" and opened:
            begin, commas = opened.pop()
            if commas and (found is None or begin < found[0]):
                cuts = [begin, *commas, at]
                found = begin, at + 1, [text[a + 1 : b] for a, b in pairwise(cuts)]
            if not opened and found is not None:
                return found
        at += 1
    return found
