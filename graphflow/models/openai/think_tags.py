"""Reasoning that a model writes between `<think>` and `</think>` inside its content, taken out as it streams."""

from __future__ import annotations

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkSplitter:
    """Splits text into answer and reasoning, tags cut over several deltas included.

    Opt-in per provider profile (`think_tags`), because an answer may speak about the tag itself. Only
    a tail that may be the beginning of a tag is held back, until the next delta shows what it is.
    """

    __slots__ = ("_held", "_inside")

    def __init__(self, *, inside: bool = False) -> None:
        """`inside`: the chat template has already opened the tag, so the text begins with reasoning."""
        self._inside = inside
        self._held = ""

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """`(is_reasoning, text)` pieces in order, none empty."""
        text = self._held + text
        self._held = ""
        pieces: list[tuple[bool, str]] = []
        while text:
            tag = _CLOSE if self._inside else _OPEN
            before, found, after = text.partition(tag)
            if not found:
                # The end of the text may be the beginning of the tag; the next delta shows whether it is.
                before, self._held = _split_tail(before, tag)
            if before:
                pieces.append((self._inside, before))
            if found:
                self._inside = not self._inside
            text = after
        return pieces

    def close(self) -> list[tuple[bool, str]]:
        """What was held back and turned out to be no tag."""
        held, self._held = self._held, ""
        return [(self._inside, held)] if held else []


def _split_tail(text: str, tag: str) -> tuple[str, str]:
    """`text` without the longest tail that begins `tag`, and that tail."""
    # Longest first: a shorter tail that fits as well would give out a part of the tag as text.
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return text[:-size], text[-size:]
    return text, ""
