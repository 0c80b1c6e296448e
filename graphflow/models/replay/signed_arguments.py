"""Whether the arguments of a signed call are still those that were signed: a person may have edited them since."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

SIGNED = "arguments"
"""Where the state of a call keeps the fingerprint."""
_LENGTH = 16


def fingerprint(arguments: str) -> str:
    """A digest of arguments, the same however their JSON is spelt."""
    try:
        text = msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        text = arguments.encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:_LENGTH]


def unchanged(arguments: str, signed: Any) -> bool:
    """Whether these are the arguments of that fingerprint; of state that was kept without one, nothing is known."""
    return signed is None or fingerprint(arguments) == signed
