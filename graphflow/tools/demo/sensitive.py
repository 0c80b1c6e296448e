"""`mock_sensitive_data_detector`: finds phone numbers, addresses and keys in a text; it never repeats them."""

from __future__ import annotations

import re
from typing import Any

from graphflow.tools.port import tool

# The patterns are tried at every place of the text: the limit keeps a call short.
MAX_CHARS = 100_000
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("e-mail address", re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}")),
    (
        "national id",
        re.compile(r"(?<!\d)[1-9]\d{5}(?:18|19|20)\d{2}(?:0\d|1[0-2])(?:[0-2]\d|3[01])\d{3}[\dXx](?![\dA-Za-z])"),
    ),
    ("national id", re.compile(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])")),
    ("phone number", re.compile(r"(?<![\d+])(?<!\d[ -])(?:\+?86[ -]?)?1[3-9]\d(?:[ -]?\d{4}){2}(?![ -]?\d)")),
    ("phone number", re.compile(r"(?<![\d+])\+[1-9]\d{0,2}(?:[ -]?\(?\d{2,4}\)?){2,4}(?!\d)")),
    ("key", re.compile(r"(?<![A-Za-z0-9])(?:sk-|pk-|ghp_|gho_|xox[abprs]-|AKIA|AIza|glpat-)[A-Za-z0-9_-]{8,}")),
    ("key", re.compile(r"-----BEGIN [A-Z ]{0,24}PRIVATE KEY-----")),
)
_CARD = re.compile(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)")


@tool(
    effects="read",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": MAX_CHARS, "description": "The text to look through."}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
def mock_sensitive_data_detector(text: str) -> dict[str, Any]:
    """Whether a text holds phone numbers, e-mail addresses, national ids, bank cards or keys. Simple, for demonstrations."""
    counts: dict[str, int] = {}
    for kind, spans in _found(text).items():
        counts[kind] = len(spans)
    listed = ", ".join(f"{count} × {kind}" for kind, count in counts.items())
    return {
        "hasSensitiveData": bool(counts),
        "result": "sensitive data found" if counts else "no sensitive data found",
        "description": f"The text holds {listed}." if counts else "None of the known kinds occurs in the text.",
    }


def _found(text: str) -> dict[str, list[tuple[int, int]]]:
    """Kind → places; a place counts for the first kind that it is."""
    found: dict[str, list[tuple[int, int]]] = {}
    taken = bytearray(len(text))  # by character: a list of places would be searched once for each place
    cards = [match.span() for match in _CARD.finditer(text) if _is_card(match[0])]
    groups = [(kind, [match.span() for match in pattern.finditer(text)]) for kind, pattern in _KINDS]
    groups.insert(4, ("bank card", cards))  # before numbers of other countries, whose digits may stand inside a card's
    for kind, spans in groups:
        for start, end in spans:
            if not any(taken[start:end]):
                taken[start:end] = b"\1" * (end - start)
                found.setdefault(kind, []).append((start, end))
    return found


def _is_card(text: str) -> bool:
    """Whether the check digit fits (Luhn)."""
    # Without it every order number of 13 digits would be reported as a card.
    digits = [int(character) for character in text if character.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) if index % 2 else digit for index, digit in enumerate(reversed(digits))]
    return len(set(digits)) > 1 and sum(doubled) % 10 == 0
