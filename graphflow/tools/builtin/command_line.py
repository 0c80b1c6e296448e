"""Reads a command line without a shell: words, quotes and wildcards, and a refusal of everything else.

No shell ever sees the text, so this is not what keeps commands apart; it is what tells the model that pipes,
chaining, redirection and substitution do not exist here, instead of passing them on as strange file names.
"""

from __future__ import annotations

from dataclasses import dataclass

_FORBIDDEN = {
    ";": "chaining", "&": "chaining", "|": "pipes", "<": "redirection", ">": "redirection", "(": "subshells",
    ")": "subshells", "`": "command substitution", "$": "variables and substitution",
}  # fmt: skip
# The characters that a shell still interprets inside double quotes.
_IN_DOUBLE_QUOTES = frozenset("`$")
# Refused in quotes as well: no path here needs them, and a program would see another line than the person approved.
_NEVER = {"\n": "several lines", "\r": "several lines", "\0": "NUL bytes"}
WILDCARDS = frozenset("*?[")


class CommandRefused(ValueError):
    """A command line that is not run, and why; `code` is the error code of the tool's result."""

    def __init__(self, message: str, code: str = "INVALID_PARAM") -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Word:
    """One word of a command line, its quotes removed."""

    text: str
    wild: bool
    """Whether it has a wildcard outside of quotes."""


def split_words(line: str) -> list[Word]:
    """The words of a command line.

    Raises:
        CommandRefused: the line uses more than words, quotes and wildcards.
    """
    words: list[Word] = []
    text: list[str] = []  # joined once: a word that grows as a string is copied for each of its characters
    wild, begun, quote = False, False, ""
    characters = iter(line)
    for character in characters:
        if character in _NEVER:
            raise CommandRefused(f"a command has one line and no {_NEVER[character]}")
        if quote == "'":
            if character == "'":
                quote = ""
            else:
                text.append(character)
        elif character in _FORBIDDEN and (not quote or character in _IN_DOUBLE_QUOTES):
            raise CommandRefused(f"{character!r}: {_FORBIDDEN[character]} can't be used here")
        # Escapes work in double quotes too, and never in single ones, as in a shell.
        elif character == "\\":
            text.append(_escaped(next(characters, "")))
            begun = True
        elif quote:
            if character == quote:
                quote = ""
            else:
                text.append(character)
        # Only at the beginning of a word: elsewhere a shell takes it as a letter.
        elif character == "~" and not begun:
            raise CommandRefused("'~': home folders can't be used here")
        elif character in "'\"":
            # `begun` by the quote itself: `""` is an empty word, not none.
            quote, begun = character, True
        elif character.isspace():
            if begun:
                words.append(Word("".join(text), wild))
            text, wild, begun = [], False, False
        else:
            text.append(character)
            begun, wild = True, wild or character in WILDCARDS
    if quote:
        raise CommandRefused(f"the quote {quote} is not closed")
    return [*words, Word("".join(text), wild)] if begun else words


def _escaped(character: str) -> str:
    if not character or character in _NEVER:
        raise CommandRefused("a backslash at the end of the line")
    return character
