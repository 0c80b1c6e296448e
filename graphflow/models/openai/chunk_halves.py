"""Where a chunk of chat completions may have half a character, and what joins the halves over the chunks of a turn."""

from __future__ import annotations

from graphflow.models.openai.chunks import Chunk, FunctionPart
from graphflow.models.remote.surrogate_pairs import HalvesJoiner


class ChunkHalvesJoiner(HalvesJoiner):
    """Joins half surrogate pairs over the chunks of one turn."""

    __slots__ = ()

    def chunk(self, chunk: Chunk) -> Chunk:
        """`chunk` with whole characters only; a first half at its end waits for the next one."""
        for choice in chunk.choices or ():
            delta = choice.delta
            # Other candidates are never read, and their texts would mix into the channels of the first.
            if delta is None or choice.index:
                continue
            if isinstance(delta.content, str):
                delta.content = self.join("content", delta.content)
            if delta.reasoning_content is not None:
                delta.reasoning_content = self.join("reasoning_content", delta.reasoning_content)
            if isinstance(delta.reasoning, str):
                delta.reasoning = self.join("reasoning", delta.reasoning)
            for position, call in enumerate(delta.tool_calls or ()):
                if call.function is not None:
                    # By index where there is one: a call may stand at another position in the next chunk.
                    self._function(f"call {call.index if call.index is not None else position}", call.function)
            if delta.function_call is not None:
                self._function("function_call", delta.function_call)
        return chunk

    def _function(self, channel: str, function: FunctionPart) -> None:
        if isinstance(function.arguments, str):
            function.arguments = self.join(channel, function.arguments)
