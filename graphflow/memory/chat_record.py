"""One line of the chat record: a run as Chat Memory V2 writes it (spec 5.1).

`record_of` is pure: it reads what the journal says of the run (`RunFacts`) and nothing else, so that a line can be
made again at any time. The messages that the run appended to the thread are its base; its stored events give them
ids and times, and add what was streamed but joined no message.

Each call is one assistant message, directly followed by its result, so that ids have a place and a reader of OpenAI
messages finds every call paired.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from graphflow.content import Content, described
from graphflow.events import (
    ActionResult,
    ActionSnapshot,
    ContentSnapshot,
    NodeEnd,
    ReasoningSnapshot,
    RequestQuery,
    event_dict,
)
from graphflow.graph.core.immutable import thaw
from graphflow.memory.run_reader import Call, RunFacts, RunPart, Streamed, Text, block_id, call_id_of
from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolCall, ToolMessage


def record_of(run: RunFacts, *, action_tools: Collection[str] = ()) -> dict[str, Any]:
    """The run's line without `system`: whether that is needed depends on the file.

    Args:
        action_tools: names of tools whose calls get an `_actionId`, besides those of kind action.
    """
    out: dict[str, Any] = {
        "chatId": run.chat_id,
        "runId": run.run_id,
        "transactionId": run.run_id,
        "updatedAt": run.parts[-1].at if run.parts else 0,
    }
    if run.status != "completed":
        out["_status"] = run.status
    out["query"] = _query(run)
    out["messages"] = _Messages(run, action_tools).made()
    return out


_NOT_KEPT = ("type", "seq", "timestamp", "messageId")
"""Of a query; its message's id is `runId` of the line."""


def _query(run: RunFacts) -> dict[str, Any]:
    """The whole query; for a run without one, the facts of its input."""
    if (event := run.query) is not None:
        return {k: v for k, v in event_dict(event).items() if k not in _NOT_KEPT}
    out: dict[str, Any] = {"chatId": run.chat_id, "agentKey": run.agent_key}
    if (given := run.input) is not None:
        out |= {"role": given.get("role", "user"), "message": given.get("query")}
        out |= {key: thaw(given.get(key)) or None for key in ("references", "params", "scene")}
    return {key: value for key, value in out.items() if value is not None}


class _Messages:
    """Builds the messages of one run."""

    def __init__(self, run: RunFacts, action_tools: Collection[str]) -> None:
        self.run, self.action_tools = run, action_tools
        self.streamed = Streamed(run)
        self.replies: dict[str, tuple[int, ToolMessage]] = {}
        for part in run.parts:
            for message in part.messages:
                if isinstance(message, ToolMessage):
                    self.replies.setdefault(message.tool_call_id, (part.at, message))
        self.placed: list[tuple[int, dict[str, Any]]] = []
        """(number of the event of the message, message), in the order of the conversation."""
        self.claimed: set[int] = set()
        """Numbers of blocks that are covered by a message."""
        self.paired: set[str] = set()
        """Calls that are in `placed`, with their results."""

    def made(self) -> list[dict[str, Any]]:
        for number, part in enumerate(self.run.parts):
            for message in part.messages:
                self._add(number, part, message)
        self._add_streamed()
        return [message for _, message in self.placed]

    def _add(self, number: int, part: RunPart, message: Message) -> None:
        match message:
            case HumanMessage():
                self._add_user(part, message)
            case AIMessage():
                self._add_turn(number, part, message)
            # A result follows its call at once; here only results remain whose call is in no message.
            case ToolMessage() if message.tool_call_id not in self.paired:
                self._put(self._result(message.tool_call_id, None))
            case SystemMessage():
                self._put((0, {"role": "system", "content": _text(message.content), "ts": part.at}))

    def _put(self, placed: tuple[int, dict[str, Any]]) -> None:
        """Appends a message; its place among the events never goes back."""
        seq, message = placed
        # What was never streamed has number 0 and takes the place of the message before it.
        before = self.placed[-1][0] if self.placed else 0
        self.placed.append((max(seq, before), message))

    # --- what the thread holds

    def _add_user(self, part: RunPart, message: HumanMessage) -> None:
        said = (event for event in part.events if isinstance(event, RequestQuery) and event.message == message.text)
        # Each query is claimed once: a person may send the same text twice.
        event = next((event for event in said if event.seq not in self.claimed), None)
        at = part.at if event is None else event.timestamp
        seq = 0 if event is None else event.seq
        self.claimed.add(seq)
        self._put((seq, {"role": "user", "content": _parts(message.content), "ts": at}))

    def _add_turn(self, number: int, part: RunPart, message: AIMessage) -> None:
        first = len(self.placed)
        node_run = None
        for text, kind in ((message.reasoning, ReasoningSnapshot), (message.text, ContentSnapshot)):
            if text:
                blocks = self._claim(number, kind, text)
                node_run = blocks[0].node_run_id if blocks else node_run
                self._put(self._block(kind, text, part.at, blocks))
        for call in message.tool_calls:
            event = self.streamed.calls.get(call.id)
            node_run = event.node_run_id if event is not None else node_run
            self._add_call(call, part.at, event)
        said = [m for _, m in self.placed[first:] if m["role"] == "assistant"]
        for entry in said:
            if message.status is not None:
                entry["_status"] = message.status
        usage = self._usage(part, node_run)
        if said and usage:
            # On the last message of the turn alone, so that a sum over the line counts each call once.
            said[-1]["_usage"] = usage

    def _claim(self, number: int, kind: type[Text], text: str) -> list[Text]:
        """The blocks that streamed this text: one, several in a row, or the other text of the same node run."""
        free = [(n, b) for n, b in self.streamed.texts if type(b) is kind and b.seq not in self.claimed]
        free = [(n, b) for n, b in free if not self.streamed.is_void(b.node_run_id)]
        # A failed attempt may have streamed the same text; the message belongs to the one that succeeded.
        ended_well = [(n, b) for n, b in free if b.node_run_id not in self.streamed.erred]
        free = ended_well or free
        here = [block for n, block in free if n == number]
        found = next(([block] for block in (*here, *(b for _, b in free)) if block.text == text), None)
        if found is None:  # in pieces; or the node has put its text into another form, which stands for it
            found = here
        self.claimed.update(block.seq for block in found)
        return found

    def _block(self, kind: type[Text], text: str, at: int, blocks: Sequence[Text]) -> tuple[int, dict[str, Any]]:
        reasoning = kind is ReasoningSnapshot
        out: dict[str, Any] = {"role": "assistant", "reasoning_content" if reasoning else "content": _text(text)}
        out["ts"] = blocks[-1].timestamp if blocks else at
        key, prefix = ("_reasoningId", "reasoning") if reasoning else ("_contentId", "content")
        out[key] = block_id(blocks[0]) if blocks else self._made_id(prefix)
        self._add_timing(out, sum(self.streamed.timing.get(block.seq, 0) for block in blocks))
        return (blocks[-1].seq if blocks else 0), out

    def _made_id(self, prefix: str) -> str:
        """An id for a message that was never streamed; the same each time the line is built."""
        name = f"{self.run.run_id}/{len(self.placed)}"
        return f"{prefix}_{uuid.uuid5(uuid.NAMESPACE_OID, name).hex[:8]}"

    def _usage(self, part: RunPart, node_run: str | None) -> dict[str, int] | None:
        usage = self.streamed.usage.get(node_run or "")
        if usage is None:  # streamed nothing: the node that ended with this record
            usage = next((event.usage for event in part.events if isinstance(event, NodeEnd) and event.usage), None)
        if not usage:
            return None
        taken, given = usage.get("promptTokens") or 0, usage.get("completionTokens") or 0
        if not taken and not given:
            return None
        return {"input_tokens": taken, "output_tokens": given, "total_tokens": taken + given}

    # --- calls

    def _add_call(self, call: ToolCall, at: int, event: Call | None) -> None:
        function = {"name": call.name, "arguments": call.arguments}
        out: dict[str, Any] = {
            "role": "assistant",
            "tool_calls": [{"id": call.id, "type": "function", "function": function}],
            "ts": at if event is None else event.timestamp,
            self._id_key(call.id, call.name): call.id,
        }
        if event is not None:
            self._add_timing(out, self.streamed.timing.get(event.seq, 0))
        self._put((0 if event is None else event.seq, out))
        self.paired.add(call.id)
        if call.id in self.replies or call.id in self.streamed.results:
            self._put(self._result(call.id, call.name))

    def _result(self, call_id: str, name: str | None) -> tuple[int, dict[str, Any]]:
        self.paired.add(call_id)
        event = self.streamed.results.get(call_id)
        at, reply = self.replies.get(call_id, (0, None))
        if reply is not None:
            content, name = reply.content, name or reply.name
        else:
            assert event is not None
            content = event.result if isinstance(event.result, str) else msgspec.json.encode(event.result).decode()
        out: dict[str, Any] = {
            "role": "tool",
            "name": name or "",
            "tool_call_id": call_id,
            "content": _parts(content),
            "ts": at if event is None else event.timestamp,
            self._id_key(call_id, name or ""): call_id,
        }
        if event is not None:
            self._add_timing(out, self.streamed.timing.get(event.seq, 0))
        return (0 if event is None else event.seq), out

    def _id_key(self, call_id: str, name: str) -> str:
        action = isinstance(self.streamed.calls.get(call_id), ActionSnapshot) or isinstance(
            self.streamed.results.get(call_id), ActionResult
        )
        return "_actionId" if action or name in self.action_tools else "_toolId"

    @staticmethod
    def _add_timing(message: dict[str, Any], milliseconds: int) -> None:
        if milliseconds > 0:
            message["_timing"] = milliseconds

    # --- what was streamed and is in no message

    def _add_streamed(self) -> None:
        spoken, self.placed = self.placed, []
        more: list[tuple[int, list[tuple[int, dict[str, Any]]]]] = []
        blocks: list[Text | Call] = [block for _, block in self.streamed.texts if block.seq not in self.claimed]
        calls = (call for call_id, call in self.streamed.calls.items() if call_id not in self.paired)
        blocks += [call for call in calls if call.node_run_id not in self.streamed.erred]
        for block in blocks:
            if not self.streamed.is_void(block.node_run_id):
                self.placed = []
                self._add_block(block)
                more.append((block.seq, self.placed))
        self.placed = spoken
        self._add_query()
        place = 0
        for seq, messages in sorted(more, key=lambda entry: entry[0]):
            place = self._insert(seq, messages, place)

    def _add_query(self) -> None:
        """Adds the person's message for a graph that keeps no messages."""
        run, query = self.run, self.run.query
        said = query.message if query is not None else (run.input or {}).get("query")
        if isinstance(said, str) and not any(message["role"] == "user" for _, message in self.placed):
            at = run.parts[0].at if query is None else query.timestamp
            self.placed.insert(0, (0, {"role": "user", "content": _text(said), "ts": at}))

    def _add_block(self, block: Text | Call) -> None:
        if isinstance(block, ContentSnapshot | ReasoningSnapshot):
            seq, message = self._block(type(block), block.text, block.timestamp, [block])
            if block.node_run_id in self.streamed.erred:
                message["_status"] = "error"
            self._put((seq, message))
            return
        name = block.action_name if isinstance(block, ActionSnapshot) else block.tool_name
        call = ToolCall(id=call_id_of(block), name=name or "", arguments=block.arguments or "{}")
        self._add_call(call, block.timestamp, block)

    def _insert(self, seq: int, messages: list[tuple[int, dict[str, Any]]], place: int) -> int:
        """Inserts messages by event number, but never between a call and its result.

        Args:
            place: nothing before it has a larger number; returns such a place for the next number.
        """
        spoken = self.placed
        while place < len(spoken) and spoken[place][0] <= seq:
            place += 1
        at = place
        while at < len(spoken) and spoken[at][1]["role"] == "tool":
            at += 1
        spoken[at:at] = [(seq, message) for _, message in messages]
        return place


def _parts(content: Content) -> list[dict[str, Any]]:
    """Content as the record has it: of media which, where it is and how large, never the bytes."""
    return _text(content) if isinstance(content, str) else [described(part) for part in content]


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]
