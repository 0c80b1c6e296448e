"""Characters beyond the basic plane that a provider cut in two halves, put together again."""

from __future__ import annotations

from graphflow.json_data import whole_characters
from graphflow.models.openai.chunks import Chunk, FunctionPart


class SurrogateJoiner:
    r"""Joins half surrogate pairs over the chunks of one turn.

    Some servers escape an emoji as `\ud83d\ude00` and send the halves in two chunks. Strict decoders
    refuse both chunks; only refused chunks come here. A half that is followed by another character becomes U+FFFD,
    one at the very end is dropped.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, str] = {}

    def chunk(self, chunk: Chunk) -> Chunk:
        """`chunk` with whole characters only; a first half at its end waits for the next one."""
        for choice in chunk.choices or ():
            delta = choice.delta
            # Other candidates are never read, and their texts would mix into the channels of the first.
            if delta is None or choice.index:
                continue
            if isinstance(delta.content, str):
                delta.content = self._mend("content", delta.content)
            if delta.reasoning_content is not None:
                delta.reasoning_content = self._mend("reasoning_content", delta.reasoning_content)
            if isinstance(delta.reasoning, str):
                delta.reasoning = self._mend("reasoning", delta.reasoning)
            for position, call in enumerate(delta.tool_calls or ()):
                if call.function is not None:
                    # By index where there is one: a call may stand at another position in the next chunk.
                    self._function(f"call {call.index if call.index is not None else position}", call.function)
            if delta.function_call is not None:
                self._function("function_call", delta.function_call)
        return chunk

    def _function(self, channel: str, function: FunctionPart) -> None:
        if isinstance(function.arguments, str):
            function.arguments = self._mend(channel, function.arguments)

    def _mend(self, channel: str, text: str) -> str:
        text = self._held.pop(channel, "") + text
        # Only a first half can be completed by the next chunk; a lone second half never can.
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held[channel] = text[-1]
            text = text[:-1]
        whole: str = whole_characters(text)
        return whole
