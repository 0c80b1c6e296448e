"""Ids, names and titles as they are stored.

A UUID in its canonical form takes 16 bytes, which is less than half. An id or name that one of the stores could not keep is
refused by all of them; a title is cleaned.
"""

from __future__ import annotations

import functools
from typing import Any

from graphflow.checkpoints import errors


@functools.lru_cache(maxsize=2048)
def short_id(text: str | None) -> str | bytes | None:
    """The id as it is stored; `long_id` gives the same text back. Remembered: each id comes several times in a row."""
    # Anything but the canonical form is kept as text, so that `long_id` gives back exactly what was stored.
    if text is None:
        return None
    # Here and not by each caller: every id passes, and most are remembered from the last check.
    check_text(text)
    if len(text) != 36 or not text[8] == text[13] == text[18] == text[23] == "-":
        return text
    digits = text.replace("-", "")
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return text
    return raw if len(digits) == 32 and raw.hex() == digits else text


def long_id(stored: Any) -> Any:
    """The id that `short_id` was given."""
    if type(stored) is not bytes:
        return stored
    h = stored.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def check_text(*texts: str | None) -> None:
    """Refuses an id or a name that one of the stores could not keep.

    The same in every store: PostgreSQL has no NUL in its texts and neither database has lone surrogates, so a thread that
    began in memory or in SQLite could not move otherwise.

    Raises:
        StoreError: `invalid_input`.
    """
    for text in texts:
        # Most ids are ASCII, which costs no copy of the text; this is called for every row.
        if text and ("\0" in text or not (text.isascii() or _is_whole(text))):
            raise errors.not_a_text(text)


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean_title(title: str | None) -> str | None:
    """The title without NUL, and with `?` for each lone surrogate."""
    # Cleaned and not refused: a title is cut from what a person wrote, and a run must not fail for it.
    return title and title.encode("utf-8", "replace").decode().replace("\0", "")
