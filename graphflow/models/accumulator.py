"""A turn put together from its deltas: the message so far, and which of its calls may run."""

from __future__ import annotations

import msgspec

from graphflow.content import Content, Part, TextPart, content_of
from graphflow.messages import AIMessage, ProviderState, ToolCall
from graphflow.models.deltas import (
    Delta,
    FallbackDelta,
    Finish,
    FinishReason,
    PartDelta,
    StateDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One whole turn of a model."""

    message: AIMessage
    finish_reason: FinishReason
    raw_reason: str | None = None
    usage: Usage | None = None
    served_model: str | None = None
    """See `Finish.served_model`."""
    request_id: str | None = None
    fallbacks: tuple[FallbackDelta, ...] = ()
    """Why another model than the one that was asked for answered: the last one is about the one that did."""


class _OpenCall:
    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []


class TurnAccumulator:
    """Builds a message from deltas; can be read at any time."""

    __slots__ = ("_calls", "_parts", "_reasoning", "_states", "_text", "fallbacks", "finish")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _OpenCall] = {}
        self._parts: list[tuple[int, Part]] = []
        """(how many texts stand before it, part)."""
        self._states: dict[int | None, ProviderState] = {}
        """By the position of the call; `None` is the message."""
        self.fallbacks: tuple[FallbackDelta, ...] = ()
        self.finish: Finish | None = None
        """Set once the turn is whole."""

    def feed(self, delta: Delta) -> None:
        # Text and reasoning are nearly all deltas, so their exact types are compared before the slower `isinstance`.
        if type(delta) is TextDelta:
            self._text.append(delta.text)
        elif type(delta) is ThinkingDelta:
            self._reasoning.append(delta.text)
        elif isinstance(delta, ToolCallDelta):
            self._feed_call(delta)
        elif isinstance(delta, StateDelta):
            self._states[delta.call] = delta.state
        elif isinstance(delta, PartDelta):
            self._parts.append((len(self._text), delta.part))
        elif isinstance(delta, FallbackDelta):
            self.fallbacks += (delta,)
        elif isinstance(delta, Finish):
            self.finish = delta

    def _feed_call(self, delta: ToolCallDelta) -> None:
        call = self._calls.get(delta.index)
        if call is None:
            call = self._calls[delta.index] = _OpenCall(delta.id or "", delta.name or "")
        # The name comes again, whole, when the provider sent it in pieces.
        elif delta.name is not None:
            call.name = delta.name
        if delta.restart:
            call.arguments.clear()
        if delta.arguments:
            call.arguments.append(delta.arguments)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def content(self) -> Content:
        """The text, or texts and other parts as they came."""
        if not self._parts:
            return self.text
        out: list[Part] = []
        begin = 0
        for end, part in self._parts:
            if text := "".join(self._text[begin:end]):
                out.append(TextPart(text=text))
            out.append(part)
            begin = end
        if text := "".join(self._text[begin:]):
            out.append(TextPart(text=text))
        return content_of(out)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def empty(self) -> bool:
        """Whether no delta with content has arrived; `Finish` does not count."""
        return not (self._text or self._reasoning or self._calls or self._parts or self._states)

    def message(self, *, message_id: str | None = None, status: str | None = None) -> AIMessage:
        """The message so far.

        Calls are left out until the turn is whole: a call that was cut off must neither run nor stand
        unanswered in the thread. `status` marks partial text (`cancelled`, `error`, `timeout`; E15).
        """
        calls = self._calls if self.finish is not None else {}
        return AIMessage(
            id=message_id,
            content=self.content,
            reasoning=self.reasoning,
            tool_calls=tuple(
                ToolCall(
                    id=c.id,
                    name=c.name,
                    arguments=_arguments("".join(c.arguments)),
                    provider_state=self._states.get(position),
                )
                # In the order of positions, not of arrival: providers interleave the pieces of several calls.
                for position, c in sorted(calls.items())
            ),
            status=status,
            provider_state=self._states.get(None),
        )

    def completion(self, *, message_id: str | None = None) -> Completion:
        """The whole turn.

        Raises:
            ValueError: while `finish` has not come.
        """
        if self.finish is None:
            raise ValueError("the turn is not finished; ask for message() instead")
        end = self.finish
        return Completion(
            message=self.message(message_id=message_id),
            finish_reason=end.reason,
            raw_reason=end.raw_reason,
            usage=end.usage,
            served_model=end.served_model,
            request_id=end.request_id,
            fallbacks=self.fallbacks,
        )


def arguments_error(arguments: str) -> str | None:
    """What is wrong with a call's arguments as a JSON object, or `None`."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return f"the arguments are not JSON ({error}); call again with a JSON object"
    if not isinstance(value, dict):
        return f"the arguments are a JSON {type(value).__name__}, not an object; call again with a JSON object"
    return None


def _arguments(text: str) -> str:
    # `null` and nothing at all are how some providers write "no arguments".
    return text if text.strip() not in ("", "null") else "{}"
