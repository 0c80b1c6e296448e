"""Ids as they are stored: a UUID in its canonical form takes 16 bytes, which is less than half."""

from __future__ import annotations

import functools
from typing import Any

from graphflow.checkpoints.texts import check_text


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
