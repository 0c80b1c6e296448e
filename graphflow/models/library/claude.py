"""What the library leaves out of Claude's answers: redacted thinking, the model that served, the id of the request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any


def complete_chunks(client: Any) -> None:
    """Lets the chunks of this client carry what the library drops."""
    convert = getattr(client, "_convert_completion_chunk_response", None)
    if convert is None or not hasattr(client, "_stream_completion_async"):
        return

    async def streamed(**fields: Any) -> AsyncIterator[Any]:
        served: str | None = None
        async with client.client.messages.stream(**fields) as stream:
            async for event in stream:
                chunk = convert(event, model_id=fields.get("model", ""))
                served = served or getattr(getattr(event, "message", None), "model", None)
                # Without redacted thinking the next request is refused. The end of a block names it too.
                block: Any = getattr(event, "content_block", None) if event.type.endswith("_start") else None
                if getattr(block, "type", None) == "redacted_thinking" and chunk.choices:
                    chunk.choices[0].delta.extra_content = {"anthropic": {"redacted": block.data}}
                chunk.served_model, chunk.request_id = served, stream.request_id
                yield chunk

    client._stream_completion_async = streamed
