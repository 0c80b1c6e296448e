"""A fake of Bedrock's ConverseStream: its binary event stream, and the refusals that its pages and reports show."""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Callable
from typing import Any

from tests.models.raw_server import Answer, Connection, body


def event(name: str, payload: dict[str, Any], *, kind: str = "event") -> bytes:
    """One message of `application/vnd.amazon.eventstream`."""
    headers = b"".join(
        struct.pack("!B", len(key)) + key.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for key, value in ((f":{kind}-type", name), (":content-type", "application/json"), (":message-type", kind))
    )
    data = json.dumps(payload).encode()
    prelude = struct.pack("!II", len(headers) + len(data) + 16, len(headers))
    message = prelude + struct.pack("!I", crc32(prelude)) + headers + data
    return message + struct.pack("!I", crc32(message))


def said(index: int, **delta: Any) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})


def stop(index: int) -> bytes:
    return event("contentBlockStop", {"contentBlockIndex": index})


def called(index: int, call_id: str, name: str, *pieces: str) -> list[bytes]:
    begin = {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": call_id, "name": name}}}
    inputs = [said(index, toolUse={"input": piece}) for piece in pieces]
    return [event("contentBlockStart", begin), *inputs, stop(index)]


BEGIN = event("messageStart", {"role": "assistant"})


def end(reason: str) -> list[bytes]:
    usage = {"inputTokens": 9, "outputTokens": 12, "totalTokens": 21}
    return [event("messageStop", {"stopReason": reason}), event("metadata", {"usage": usage})]


def converse(*events: bytes, rule: Callable[[dict[str, Any]], str | None] = lambda _: None) -> Answer:
    """Streams `events` where the rule allows the request's body, and answers as the service where it does not."""

    async def answer(connection: Connection) -> None:
        why = refusal(connection.request.json) or rule(connection.request.json)
        if why is not None:
            await body(400, json.dumps({"message": why}).encode(), x_amzn_errortype="ValidationException")(connection)
            return
        await connection.head(200, "application/vnd.amazon.eventstream", x_amzn_requestid="req-7")
        for block in events:
            await connection.chunk(block)
        await connection.end()

    return answer


def refusal(request: dict[str, Any]) -> str | None:
    """What the service answers 400 to, whatever the model.

    https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-call.html
    """
    turns = request["messages"]
    if [turn["role"] for turn in turns] != (["user", "assistant"] * len(turns))[: len(turns)]:
        return "A conversation must alternate between user and assistant roles."
    asked: list[str] = []
    for turn in turns:
        blocks = turn["content"]
        if not blocks:
            return "The content field in the Message object is empty."
        if any("text" in block and not block["text"].strip() for block in blocks):
            return "The text field in the ContentBlock object is blank."
        given = [block["toolResult"] for block in blocks if "toolResult" in block]
        if sorted(result["toolUseId"] for result in given) != sorted(asked):
            return f"Expected toolResult blocks for the following Ids: {asked}"
        if any(not isinstance(part.get("json", {}), dict) for result in given for part in result["content"]):
            return "The format of the value at toolResult.content.0.json is invalid. Provide a json object."
        if any("text" in part and not part["text"].strip() for result in given for part in result["content"]):
            return "The text field in the ContentBlock object at toolResult is blank."
        asked = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
    if '"toolUse"' in json.dumps(turns) and "toolConfig" not in request:
        return "The toolConfig field must be defined when using toolUse and toolResult content blocks."
    return None
