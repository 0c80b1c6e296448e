"""Characters beyond the basic plane that a provider cut in two halves, put together again."""

from __future__ import annotations

from graphflow.json_data import whole_characters


class HalvesJoiner:
    r"""Joins half surrogate pairs over the pieces of each text of a turn.

    Some servers escape an emoji as `\ud83d\ude00` and send the halves in two events. Strict decoders
    refuse both; only what they refused comes here. A half that is followed by another character becomes U+FFFD,
    one at the very end is dropped.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, str] = {}

    def join(self, channel: str, text: str) -> str:
        """The next piece of a text, in whole characters; a first half at its end waits for the piece after it."""
        text = self._held.pop(channel, "") + text
        # Only a first half can be completed by the next piece; a lone second half never can.
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held[channel] = text[-1]
            text = text[:-1]
        whole: str = whole_characters(text)
        return whole
