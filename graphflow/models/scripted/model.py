"""The scripted model: deterministic, offline, in process; the default when no key is set.

What it answers is a function of the request and the script alone (`player.py`); here a turn becomes a
stream of small deltas like a real provider's. `server.py` puts the same model behind HTTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from graphflow.json_data import encode_json
from graphflow.messages import Message, SystemMessage, to_wire
from graphflow.models.chat_model import Capabilities
from graphflow.models.deltas import Delta, Finish, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.remote.failures import Masker, failure, http_failure, in_band_failure
from graphflow.models.remote.finish_reasons import finish_reason
from graphflow.models.scripted.player import answer
from graphflow.models.scripted.script import (
    Script,
    ScriptedError,
    ScriptTurn,
    default_script,
    load_script,
    parse_script,
)
from graphflow.models.tokens import estimate_message_tokens

_WORDS = re.compile(r"\s*[A-Za-z0-9_\-./°%]{1,12}|[\u3400-\u9fff]{1,2}|\s+|.", re.DOTALL)
_ARGUMENT_PIECE = 6


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """One turn ready to be played: its deltas, and how it ends."""

    deltas: tuple[Delta, ...]
    """Without the `Finish`."""
    finish: Finish
    error: ScriptedError | None = None
    """Comes after the deltas, instead of the finish."""
    hang: bool = False
    cut: bool = False
    """The connection is cut after the deltas."""
    delay_s: float = 0.0
    """Before each delta."""


class ScriptedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a scripted model was asked in one call."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: ChatOptions = ChatOptions()

    @property
    def prompt(self) -> str:
        """The text of the last message."""
        return self.messages[-1].text if self.messages else ""

    @property
    def system(self) -> str:
        """The system prompt; empty if there is none."""
        return "\n\n".join(m.text for m in self.messages if isinstance(m, SystemMessage))


INLINE_CHARACTERS = 256 * 1024
"""Longer conversations take milliseconds."""
MOST_REQUESTS = 1_000
"""A model of a server must not keep every conversation for ever."""


class ScriptedModel:
    """A `ChatModel` that plays a script."""

    def __init__(
        self,
        script: Script | Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        model: str = "scripted",
        provider: str = "scripted",
        delay_s: float = 0.0,
        fallback: Sequence[str] = (),
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        """A model that plays `script`; default: the embedded one.

        Args:
            script: a script as data (see `script`), or one that was read before.
            delay_s: the pause before each delta, where the turn names none; 0 does not even yield.
            fallback: models (`PROVIDER/MODEL`) that are asked where a turn of the script fails before its first delta.

        Raises:
            ScriptError: the script breaks a rule of its form.
        """
        if script is None:
            self._script = default_script()
        else:
            self._script = script if isinstance(script, Script) else parse_script(script)
        self._model = model
        self._provider = provider
        self._delay_s = delay_s
        self._sleep = sleep
        self._fallback = tuple(fallback)
        self.requests: deque[ScriptedRequest] = deque(maxlen=MOST_REQUESTS)
        """What it was asked, in order: the newest thousand calls."""

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> ScriptedModel:
        """The model of a script file (see `script`).

        Raises:
            ScriptError: the file can't be read or breaks a rule.
        """
        return cls(load_script(path), **options)

    @property
    def provider(self) -> str:
        return self._provider

    @property
    def model(self) -> str:
        return self._model

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(fallback=self._fallback)

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return estimate_message_tokens(messages)

    async def aclose(self) -> None:
        """There is nothing to free."""

    def perform(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions | None = None
    ) -> Performance:
        """The turn that answers this request; the same for the same request, always."""
        options = options or ChatOptions()
        turn = answer(self._script, messages, tools, options)
        deltas = list(_deltas(turn, _call_prefix(messages)))
        raw_reason = turn.finish or ("tool_calls" if turn.tool_calls else "stop")
        deltas, cut_reason = _limited(deltas, options)
        # One delta counts as one token, so that budgets and `max_tokens` can be tested exactly.
        usage = turn.usage or Usage(
            prompt_tokens=estimate_message_tokens(messages),
            completion_tokens=len(deltas),
            reasoning_tokens=sum(isinstance(d, ThinkingDelta) for d in deltas),
        )
        # A cut changes the reason and may remove calls, so the reason follows from what is left.
        raw_reason = cut_reason or raw_reason
        reason = finish_reason(raw_reason, has_calls=any(isinstance(d, ToolCallDelta) for d in deltas))
        return Performance(
            deltas=tuple(deltas if turn.cut is None else deltas[: turn.cut]),
            finish=Finish(reason, raw_reason, usage),
            error=turn.error,
            hang=turn.hang,
            cut=turn.cut is not None,
            delay_s=self._delay_s if turn.delay_ms is None else turn.delay_ms / 1000,
        )

    async def performed(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions | None = None
    ) -> Performance:
        """As `perform`; what is long is looked through in a thread."""
        if sum(len(message.text) for message in messages) <= INLINE_CHARACTERS:
            return self.perform(messages, tools, options)
        return await asyncio.to_thread(self.perform, messages, tools, options)

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        self.requests.append(ScriptedRequest(messages=tuple(messages), tools=tuple(tools), options=options))
        play = await self.performed(messages, tools, options)
        for delta in play.deltas:
            if play.delay_s:
                await self._sleep(play.delay_s)
            yield delta
        if play.hang:
            await self._hang(options)
        if play.cut:
            raise failure(
                f"the scripted connection of provider {self._provider!r} was cut after {len(play.deltas)} deltas",
                "connection",
                self._provider,
            )
        if play.error is not None:
            raise self._failure(play.error, begun=bool(play.deltas))
        yield play.finish

    async def _hang(self, options: ChatOptions) -> None:
        """Waits until cancelled, or until the call's own time limit."""
        try:
            async with asyncio.timeout(options.timeout_s):
                await asyncio.Event().wait()
        except TimeoutError:
            raise failure(
                f"provider {self._provider!r} was not done after {options.timeout_s:g} s",
                "timeout",
                self._provider,
                limit="total",
                seconds=options.timeout_s,
            ) from None

    def _failure(self, error: ScriptedError, *, begun: bool) -> Exception:
        payload = error_payload(error)
        # As at a provider: after the first delta the status has been sent, so the error can only come in-band.
        if begun:
            return in_band_failure(self._provider, payload, Masker(), progress="in mid-stream")
        return http_failure(self._provider, error.status, error.headers, msgspec.json.encode(payload), Masker())


def error_payload(error: ScriptedError) -> dict[str, Any]:
    """The error as an OpenAI-compatible server words it."""
    return {"error": {"message": error.message, "type": error.code or "scripted_error", "code": error.status}}


def _deltas(turn: ScriptTurn, prefix: str) -> Iterator[Delta]:
    for piece in _pieces(str(turn.reasoning), turn.piece):
        yield ThinkingDelta(piece)
    for piece in _pieces(str(turn.text), turn.piece):
        yield TextDelta(piece)
    for position, call in enumerate(turn.tool_calls):
        arguments = call.arguments if isinstance(call.arguments, str) else _json(call.arguments)
        yield ToolCallDelta(position, call.id or f"call_{prefix}{position}", call.name, "")
        size = turn.piece or _ARGUMENT_PIECE
        for start in range(0, len(arguments), size):
            yield ToolCallDelta(position, None, None, arguments[start : start + size])


def _pieces(text: str, size: int | None) -> Iterator[str]:
    if size is None:
        yield from _WORDS.findall(text)
    else:
        yield from (text[start : start + size] for start in range(0, len(text), size))


def _limited(deltas: list[Delta], options: ChatOptions) -> tuple[list[Delta], str | None]:
    """The deltas within `stop` and `max_tokens` (one delta counts as one token), and the reason of a cut."""
    reason = None
    if options.stop:
        deltas, reason = _stopped(deltas, options.stop)
    if options.max_tokens is not None and len(deltas) > options.max_tokens:
        return deltas[: options.max_tokens], "length"
    return deltas, reason


def _stopped(deltas: list[Delta], stop: Sequence[str]) -> tuple[list[Delta], str | None]:
    text = "".join(d.text for d in deltas if isinstance(d, TextDelta))
    places = [place for word in stop if (place := text.find(word)) >= 0]
    if not places:
        return deltas, None
    # Calls are dropped with what follows the stop word: the real model would not have written them.
    left = min(places)
    kept: list[Delta] = []
    for delta in deltas:
        if isinstance(delta, ThinkingDelta):
            kept.append(delta)
        # `left` counts down the characters before the stop word; at 0 the rest of the text is gone.
        elif isinstance(delta, TextDelta) and left > 0:
            kept.append(TextDelta(delta.text[:left]))
            left -= len(delta.text)
    return kept, "stop"


def _call_prefix(messages: Sequence[Message]) -> str:
    """What makes the ids of a turn's calls unique in the conversation, and the same for the same request."""
    digest = hashlib.sha256(encode_json([to_wire(m) for m in messages])).hexdigest()
    return f"{digest[:10]}_"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
