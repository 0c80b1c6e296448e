"""What an HTTP header can carry."""

from __future__ import annotations

import re

_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)


def can_be_sent(name: str, value: str) -> bool:
    """Whether HTTP can carry the header (RFC 9110, 5.1 and 5.5): not a pasted line break, nor a typographic quotation mark."""
    return _NAME.fullmatch(name) is not None and value.isascii() and value.isprintable() and value == value.strip()
