"""How texts are searched, the same in every store: without regard to case and form, word by word, anywhere in a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def folded(text: str) -> str:
    """The text as it is searched: compatibility forms and case make no difference."""
    return unicodedata.normalize("NFKC", text).casefold().replace("\0", " ")


def words_of(query: str) -> list[str]:
    """The words of a query, as they are searched; each must be found, in whatever place."""
    return list(dict.fromkeys(folded(query).split()))


def patterns_of(query: str) -> list[str]:
    """The words as patterns of SQL's `LIKE … ESCAPE '!'`."""
    return ["%" + "".join(f"!{c}" if c in "!%_" else c for c in word) + "%" for word in words_of(query)]


def texts_of(value: Any) -> Iterator[str]:
    """Every text inside a JSON value, without the keys of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from texts_of(each)
    elif isinstance(value, Iterable):
        for each in value:
            yield from texts_of(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def folded_texts(*values: Any) -> str:
    """All texts of these values as one that is searched."""
    return folded("\n".join(text for value in values for text in texts_of(value)))
