"""Bedrock through the library, made whole: the library drops the signatures of thinking, in answers and in requests, and what makes
a result an error, and waits for the provider on the event loop.

The conversation is written as for Anthropic's Messages protocol, which is as strict about order, and put into the form of Converse.
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
"""

from __future__ import annotations

import asyncio
import base64
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from graphflow.messages import Message
from graphflow.models.anthropic.conversation import RequestTurns
from graphflow.models.logs.log import notice
from graphflow.models.remote.retry import Limits
from graphflow.models.replay.replay import Replay

_TEXTLESS = "(no output)"
"""In a result without text: "The text field in the ContentBlock object is blank"."""
_READ = frozenset({"messageStart", "contentBlockStart", "contentBlockDelta", "messageStop", "metadata"})
_STATUS = {
    "validationException": 400,
    "throttlingException": 429,
    "modelStreamErrorException": 424,
    "internalServerException": 500,
    "serviceUnavailableException": 503,
}
"""Of the errors that come in a stream, which have no status of their own."""


def client_options(limits: Limits) -> dict[str, Any]:
    """Options of a client that tries once and waits as long as a call may take: retries and limits are the caller's."""
    from botocore.config import Config

    # boto3's own limit of silence, a minute, is less than a model may think.
    once = {"total_max_attempts": 1}
    return {"config": Config(retries=once, connect_timeout=limits.connect_s, read_timeout=limits.total_s)}


def conversation(messages: Sequence[Message], replay: Replay) -> dict[str, Any]:
    """The fields `messages` and `system` of a request."""
    talk = RequestTurns(replay, messages, signed=True, warn=notice)
    turns = [{"role": turn["role"], "content": _blocks(turn["content"], replay)} for turn in talk.turns]
    return {"messages": turns} | ({"system": [{"text": talk.system}]} if talk.system else {})


def _blocks(blocks: Sequence[Mapping[str, Any]], replay: Replay) -> list[dict[str, Any]]:
    out = [written for block in blocks for written in _block(block, replay)]
    if any("document" in block for block in out) and not any("text" in block for block in out):
        # A document without a text beside it is refused.
        out.insert(0, {"text": "See the document."})
    return out


def _block(block: Mapping[str, Any], replay: Replay) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            yield {"text": block["text"]}
        case "thinking":
            signed = {"text": block["thinking"], "signature": block["signature"]}
            yield {"reasoningContent": {"reasoningText": signed}}
        case "redacted_thinking":
            yield {"reasoningContent": {"redactedContent": base64.b64decode(block["data"])}}
        case "tool_use":
            given = msgspec.json.decode(block["input"])
            yield {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": given}}
        case "tool_result":
            yield {"toolResult": _result(block, replay)}
        case "image" | "document" as kind:
            yield _media(kind, block, replay)


def _result(block: Mapping[str, Any], replay: Replay) -> dict[str, Any]:
    content = block["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    written = [part for one in blocks for part in _block(one, replay) if part.get("text", "-").strip()]
    result = {"toolUseId": block["tool_use_id"], "content": written or [{"text": _TEXTLESS}]}
    return result | ({"status": "error"} if block.get("is_error") else {})


def _media(kind: str, block: Mapping[str, Any], replay: Replay) -> dict[str, Any]:
    source = block["source"]
    if source["type"] == "url":
        notice("model.part_as_text", provider=replay.provider, part=kind, why="the provider takes bytes and no URL")
        return {"text": f"[{kind} {source['url']} can't be shown to this model]"}
    data = source["data"].encode() if source["type"] == "text" else base64.b64decode(source["data"])
    if kind == "image":
        return {"image": {"format": source["media_type"].rpartition("/")[2], "source": {"bytes": data}}}
    # Letters, digits, single spaces, hyphens and brackets are what a name may have.
    name = re.sub(r"[^A-Za-z0-9()\[\]-]+", " ", block.get("title") or "").strip() or "document"
    form = "txt" if source["type"] == "text" else "pdf"
    return {"document": {"format": form, "name": name, "source": {"bytes": data}}}


# --- the answer ------------------------------------------------------------------------------------


def complete_chunks(client: Any) -> None:
    """Lets this client send what `conversation` wrote, and its chunks carry what the library drops."""

    async def converse(params: Any, *, turns: dict[str, Any], tool: str | None, **options: Any) -> Any:
        request = client._convert_completion_params(params, **options)
        request.pop("system", None)
        request |= turns
        if tool is not None:
            request["toolConfig"]["toolChoice"] = {"tool": {"name": tool}}
        answered = _in_a_thread(lambda: client.client.converse_stream(**request))
        request_id = (await anext(answered))["ResponseMetadata"].get("RequestId")
        return _chunks(client, params.model_id, request_id, answered)

    client._acompletion = converse


async def _chunks(
    client: Any, model: str, request_id: str | None, events: AsyncGenerator[Any, None]
) -> AsyncGenerator[Any, None]:
    calls: dict[int, int] = {}
    signature, redacted = "", b""
    try:
        async for event in events:
            if "contentBlockStop" in event and (signature or redacted):
                # In the form that blocks of Claude have when they come through the library from elsewhere.
                kept = {"redacted": base64.b64encode(redacted).decode()} if redacted else {"signature": signature}
                empty = {"contentBlockDelta": {"delta": {"text": ""}, "contentBlockIndex": 0}}
                chunk = client._convert_completion_chunk_response(empty, model=model, tool_index_map=calls)
                chunk.choices[0].delta.extra_content = {"anthropic": kept}
                signature, redacted = "", b""
                yield chunk
            thought = event.get("contentBlockDelta", {}).get("delta", {}).get("reasoningContent", {})
            signature += thought.get("signature", "")
            redacted += thought.get("redactedContent", b"")
            if not _READ.isdisjoint(event):
                chunk = client._convert_completion_chunk_response(event, model=model, tool_index_map=calls)
                chunk.request_id = request_id
                yield chunk
    finally:
        await events.aclose()


class BedrockRefusal(Exception):
    """An error of the service, with the attributes by which errors of other SDKs say theirs."""

    def __init__(self, error: Any) -> None:
        said = error.response.get("Error", {})
        code = str(said.get("Code", ""))
        super().__init__(str(error))
        metadata = error.response.get("ResponseMetadata", {})
        self.status_code: int | None = metadata.get("HTTPStatusCode")
        self.headers: Mapping[str, str] = metadata.get("HTTPHeaders", {})
        self.body = {"error": {"type": code, "message": said.get("Message", "")}}
        if self.status_code is None and code in _STATUS:
            self.body["error"]["code"] = _STATUS[code]

    @property
    def response(self) -> BedrockRefusal:
        return self


async def _in_a_thread(begin: Callable[[], dict[str, Any]]) -> AsyncGenerator[Any, None]:
    """The answer that `begin` gives, then the events of its `stream`, as they come.

    The SDK blocks. A thread of its own reads it, and none of the pool: a silent provider would hold that for minutes,
    after a cancellation too, and the process could not end.
    """
    loop = asyncio.get_running_loop()
    come: asyncio.Queue[Any] = asyncio.Queue()
    left = threading.Event()

    def give(item: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(come.put_nowait, item)

    def run() -> None:
        from botocore.exceptions import ClientError

        try:
            answer = begin()
            give(answer)
            stream = answer["stream"]
            try:
                for event in stream:
                    if left.is_set():
                        break
                    give(event)
            finally:
                stream.close()
            give(None)
        except ClientError as error:
            give(BedrockRefusal(error))
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises belongs to the turn that waits for it
            give(error)

    threading.Thread(target=run, name="graphflow-bedrock", daemon=True).start()
    try:
        while (item := await come.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        left.set()
