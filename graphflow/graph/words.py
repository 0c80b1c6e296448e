"""Hints about words: the nearest allowed one, or all of them."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(wrong: str, allowed: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The allowed word that `wrong` most likely means, whatever its case; None when none is near."""
    import difflib

    folded: dict[str, str] = {}
    for word in sorted(allowed):
        folded.setdefault(word.casefold(), word)
    near = difflib.get_close_matches(wrong.casefold(), folded, n=1, cutoff=likeness)
    return folded[near[0]] if near else None


def choose(wrong: str, allowed: Iterable[str], *, none: str = "none is known", limit: int = 20) -> str:
    """A hint: `did you mean 'judge'?`, else the allowed words."""
    words = sorted(set(allowed))
    near = nearest(wrong, words)
    if near is not None:
        return f"did you mean {near!r}?"
    return listed(words, none=none, limit=limit)


def listed(words: Iterable[str], *, none: str = "none is known", limit: int = 20) -> str:
    """A hint: `one of a, b, c`."""
    shown = list(words)
    if not shown:
        return none
    more = f", … ({len(shown)} in all)" if len(shown) > limit else ""
    return f"one of {', '.join(shown[:limit])}{more}"


def escape(token: str) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")


def unescape(token: str) -> str:
    """The name behind one token of a JSON pointer."""
    return token.replace("~1", "/").replace("~0", "~")
