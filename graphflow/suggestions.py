"""Hints for misspelt words: the nearest allowed one, or all of them. Documents, settings and tools all give them."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from functools import lru_cache

MAX_COMPARED = 20
"""Words that one search compares in full; of more, those that begin or end most like the wrong one."""

MAX_LENGTH = 1_000
"""Characters of a word that can be misspelt; a longer text is no name, and to compare it takes seconds."""


def nearest(wrong: str, allowed: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The allowed word that `wrong` most likely means, whatever its case; None when none is near."""
    import difflib

    if len(wrong) > MAX_LENGTH:
        return None
    sought, words = wrong.casefold(), _words(tuple(allowed))
    folded = words.folded
    # A comparison takes 50 µs. A document of thousands of nodes with a wrong name in each would take minutes.
    if len(folded) > MAX_COMPARED:
        folded = {word: folded[word] for word in words.alike(sought)}
    near = difflib.get_close_matches(sought, folded, n=3, cutoff=likeness)
    if not near:
        return None
    swapped = [word for word in near if sorted(word) == sorted(sought)]  # the same letters in another order come first
    return folded[(swapped or near)[0]]


class _Words:
    """Allowed words, in the orders in which they are searched."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.sorted = sorted(set(words))
        self.folded: dict[str, str] = {}
        for word in self.sorted:
            self.folded.setdefault(word.casefold(), word)
        self._lined = [(turn, sorted(word[::turn] for word in self.folded)) for turn in (1, -1)]

    def alike(self, sought: str) -> list[str]:
        """The words that begin or end most like this one: its neighbours in the order of their letters, and from behind."""
        out: list[str] = []
        for turn, lined in self._lined:
            at, reach = bisect(lined, sought[::turn]), MAX_COMPARED // 4
            out += [word[::turn] for word in lined[max(0, at - reach) : at + reach]]
        return out


# Thousands of wrong names in one document are compared with the same words.
_words = lru_cache(maxsize=4)(_Words)


class Suggestion(str):  # noqa: SLOT000 - it has attributes
    """A hint that names the word to write instead; `suggestion_checks` tries it before anybody reads it."""

    wrong: str
    word: str
    rest: str | None
    """The hint without the word."""

    @classmethod
    def of(cls, wrong: str, word: str, rest: str | None = None) -> Suggestion:
        made = cls(f"did you mean {word!r}?" + (f" {rest}" if rest else ""))
        made.wrong, made.word, made.rest = wrong, word, rest
        return made


def meant(wrong: str, allowed: Iterable[str]) -> Suggestion | None:
    """A hint where the message itself lists the allowed words: `did you mean 'judge'?`; None when none is near."""
    near = nearest(wrong, allowed)
    return None if near is None else Suggestion.of(wrong, near)


def choose(wrong: str, allowed: Iterable[str], *, none: str = "none is known", limit: int = 20) -> str:
    """A hint: `did you mean 'judge'? one of approve, judge, plan`; without a near word the allowed ones alone."""
    words = _words(tuple(allowed)).sorted
    near = meant(wrong, words)
    listing = listed(words, none=none, limit=limit)
    if near is None:
        return listing
    return Suggestion.of(wrong, near.word, listing) if len(words) > 1 else near


def listed(words: Iterable[str], *, none: str = "none is known", limit: int = 20) -> str:
    """A hint: `one of a, b, c`."""
    shown = list(words)
    if not shown:
        return none
    more = f", … ({len(shown)} in all)" if len(shown) > limit else ""
    return f"one of {', '.join(shown[:limit])}{more}"
