"""Text on a grid of columns: how wide it is, how it wraps, and which characters a terminal must not be sent."""

from __future__ import annotations

import re
import unicodedata

# Control characters but for line breaks and tabs, directional overrides, separators, and lone halves of pairs.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
# A command in backticks is copied as one piece; a wide character is a word of its own, as East Asian text has no spaces.
_WORDS = re.compile(r"\s+|`[^`\n]*`[^\s`]*|[^\s`]+|`")


def units(text: str) -> int:
    """Width of a text in letters; wide and full-width characters (CJK) count two, marks on a letter none."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in ("Mn", "Me", "Cf") else 1


def visible(text: str) -> str:
    """The text with `�` for each character that could move the cursor, change what is shown, or hide."""
    return _UNSAFE.sub("�", text)


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """The lines of a text, each at most `width` columns; never empty.

    A line that continues another begins with `indent` and with the spaces that its own line begins with. Words are not
    broken: one that is wider than a line has a line of its own.
    """
    return [piece for line in text.expandtabs(4).split("\n") for piece in _wrapped(line, width, indent)]


def _wrapped(line: str, width: int, indent: str) -> list[str]:
    if units(line) <= width:
        return [line]
    own = line[: len(line) - len(line.lstrip(" "))]
    head = own + indent
    # Deep in a narrow terminal an indent would leave no room for words.
    if units(head) > width // 2:
        head = ""
    out, current, gap, begun = [], own, "", False
    for word in _words(line[len(own) :]):
        if word.isspace():
            gap = word
            continue
        if begun and units(current) + units(gap) + units(word) > width:
            out.append(current)
            current, gap = head, ""
        current, gap, begun = current + gap + word, "", True
    return [*out, current]


def _words(text: str) -> list[str]:
    out: list[str] = []
    for found in _WORDS.finditer(text):
        word = found[0]
        if word.isascii():
            out.append(word)
            continue
        start = 0
        for at, character in enumerate(word):
            # Punctuation that closes stays with what it closes.
            if (
                at > start
                and (_breaks(word[at - 1]) or _breaks(character))
                and character not in "，。、；：！？）」』】》…—”’,.;:!?)"
            ):
                out.append(word[start:at])
                start = at
        out.append(word[start:])
    return out


def _breaks(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def longest_word(text: str) -> int:
    """The least width that breaks no word of the text."""
    return max(map(units, _words(text)), default=0)
