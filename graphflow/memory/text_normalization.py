"""Normalization for searches, the same in every store: case and form are ignored, words match anywhere in a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphflow.json_data import whole_characters


def folded(text: str) -> str:
    """The text normalized for the search: without differences of case and compatibility forms."""
    # Half of a surrogate pair can be stored by neither database, and NUL not by PostgreSQL.
    whole = text if text.isascii() else whole_characters(text)
    # In Python, since the databases fold case differently.
    return unicodedata.normalize("NFKC", whole).casefold().replace("\0", " ")


def words_of(query: str) -> list[str]:
    """The normalized words of a query; each must be found, anywhere."""
    return list(dict.fromkeys(folded(query).split()))


def patterns_of(query: str) -> list[str]:
    """The words as patterns of SQL's `LIKE … ESCAPE '!'`."""
    # `!`, because the backslash is special in PostgreSQL only.
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
    # Numbers can be searched; `true` and `null` would be found everywhere.
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def folded_texts(*values: Any) -> str:
    """All texts of these values as one normalized text."""
    return folded("\n".join(text for value in values for text in texts_of(value)))
