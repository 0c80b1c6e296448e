"""Whether the arguments of a signed call are still those that were signed: a person may have edited them since."""

from __future__ import annotations

import hashlib
from typing import Any

SIGNED = "arguments"
"""Where the state of a call keeps the fingerprint."""
_LENGTH = 16


def fingerprint(arguments: str) -> str:
    """A digest of the text of arguments: each request asks for those of all signed calls, so it does not read the JSON."""
    # What some providers write for "no arguments", which the message has as an object.
    text = "{}" if arguments.strip() in ("", "null") else arguments
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def unchanged(arguments: str, signed: Any) -> bool:
    """Whether these are the arguments of that fingerprint; of state that was kept without one, nothing is known."""
    return signed is None or fingerprint(arguments) == signed
