"""Reasoning that a model writes between `<think>` and `</think>` inside its content, taken out as it streams."""

from __future__ import annotations

from collections.abc import Sequence

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkSplitter:
    """Splits text into answer and reasoning, tags cut over several deltas included.

    Opt-in per provider profile (`think_tags`), because an answer may speak about the tag itself. Only
    a tail that may be the beginning of a tag is held back, until the next delta shows what it is.
    """

    __slots__ = ("_held", "_inside", "pieces")

    def __init__(self, *, inside: bool = False) -> None:
        """`inside`: the chat template has already opened the tag, so the text begins with reasoning."""
        self._inside = inside
        self._held = ""
        self.pieces: list[tuple[bool, int]] = []
        """`(is_reasoning, characters)` of what was fed, neighbours of one kind as one."""

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
                self._count(before)
            if found:
                self._inside = not self._inside
            text = after
        return pieces

    def close(self) -> list[tuple[bool, str]]:
        """What was held back and turned out to be no tag."""
        held, self._held = self._held, ""
        if not held:
            return []
        self._count(held)
        return [(self._inside, held)]

    def _count(self, text: str) -> None:
        before = self.pieces.pop()[1] if self.pieces and self.pieces[-1][0] is self._inside else 0
        self.pieces.append((self._inside, before + len(text)))


def tagged(text: str, reasoning: str, pieces: Sequence[Sequence[int]]) -> str:
    """The content as the model wrote it; `text` alone where either was edited since."""
    sizes = [sum(size for kind, size in pieces if bool(kind) is inside) for inside in (False, True)]
    if sizes != [len(text), len(reasoning)]:
        return text
    out: list[str] = []
    for inside, size in pieces:
        if inside:
            out.append(f"{_OPEN}{reasoning[:size]}{_CLOSE}")
            reasoning = reasoning[size:]
        else:
            out.append(text[:size])
            text = text[size:]
    return "".join(out)


def _split_tail(text: str, tag: str) -> tuple[str, str]:
    """`text` without the longest tail that begins `tag`, and that tail."""
    # Longest first: a shorter tail that fits as well would give out a part of the tag as text.
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return text[:-size], text[-size:]
    return text, ""
