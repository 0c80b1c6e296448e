"""Other models that are asked where one fails before its first delta.

A list of models (`options.fallback`, or `fallback` of a provider's table) is asked in its order; the list of the model that was
asked first counts, not those of the others, so two providers may stand in for each other. `fallback = true` of a provider is
the other client of the same provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing

import msgspec

from graphflow.content import MEDIA_TYPES, TextPart, content_of, media_of
from graphflow.errors import ModelError
from graphflow.messages import AIMessage, Message
from graphflow.models.chat_model import Capabilities, ChatModel
from graphflow.models.deltas import Delta, FallbackDelta
from graphflow.models.logs.log import notice
from graphflow.models.model_data import model_data
from graphflow.models.options import CallLimits, ChatOptions, ToolSpec
from graphflow.models.sendable import apart, refusal_of

_SAME_ACCOUNT = frozenset({401, 402, 403, 429})
"""Statuses that are about the user's account, so they are the same with both clients of a provider."""
_JUDGED = ("content_filter", "content_policy", "moderation", "safety")
"""Kinds of errors by which a provider refuses what was said: to ask another one would be a way around its rules."""
_FOR_ONE_PROVIDER = ("headers", "extra")

OpenNamed = Callable[[str], ChatModel]
"""Opens a model by `PROVIDER/MODEL` or `PROVIDER`."""


class FallbackModel:
    """A `ChatModel` that asks others in its place, each opened when it is first needed.

    Args:
        names: asked in this order by calls that name none themselves.
        same_account: they are other ways to the same model, for every call.
    """

    def __init__(
        self, first: ChatModel, open_named: OpenNamed, names: Sequence[str] = (), *, same_account: bool = False
    ) -> None:
        self.first = first
        # Attributes, as they are read for each call.
        self.provider, self.model = first.provider, first.model
        self.same_account = same_account
        self._open_named, self.names = open_named, tuple(names)
        self._opened: dict[str, ChatModel] = {}

    @property
    def capabilities(self) -> Capabilities:
        known = self.first.capabilities
        # The others are asked here; a wrapper around this one must not ask them again.
        return msgspec.structs.replace(known, fallback=()) if self.names else known

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return self.first.count_tokens(messages)

    async def aclose(self) -> None:
        opened, self._opened = list(self._opened.values()), {}
        await self.first.aclose()
        for model in opened:
            await model.aclose()

    def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        names = self.names if self.same_account or options.fallback is None else options.fallback
        # Without others there is no layer between the caller and the model.
        if not names:
            return self.first.stream(messages, tools, options)
        return self._stream_of(_Attempts(self, tuple(names), messages, options), tools)

    async def _stream_of(self, call: _Attempts, tools: Sequence[ToolSpec]) -> AsyncGenerator[Delta, None]:
        begun = False
        while True:
            try:
                async with aclosing(call.model.stream(call.messages, tools, call.options)) as deltas:
                    async for delta in deltas:
                        # Text that was streamed can't be taken back.
                        begun = begun or type(delta) is not FallbackDelta
                        yield delta
                return
            except ModelError as error:
                if begun:
                    raise
                call.failed(call.model.provider, call.model.model, error)
                if not self._passes_on(error):
                    if (told := call.error()) is error:
                        raise
                    raise told from error
            # Outside the handler: opening another model is no part of handling the failure.
            if (fallback := call.next()) is None:
                raise call.error()
            # Before the other is asked: who reads the deltas counts the calls, and may end the call here.
            yield fallback

    def _passes_on(self, error: ModelError) -> bool:
        """Whether another one may be asked: not where the provider refused what was said, or its user."""
        kind = str(error.detail.get("kind", "")).lower()
        if any(word in kind for word in _JUDGED):
            return False
        return not (self.same_account and error.detail.get("status") in _SAME_ACCOUNT)

    def named(self, name: str) -> ChatModel:
        """The model of this name, opened once."""
        if name not in self._opened:
            self._opened[name] = self._open_named(name)
        return self._opened[name]


class _Attempts:
    """One call: who is asked now, with what, and who has failed."""

    def __init__(
        self, owner: FallbackModel, names: tuple[str, ...], messages: Sequence[Message], options: ChatOptions
    ) -> None:
        self._owner, self._names = owner, iter(names)
        self._given = (messages, options)
        self.model, self.messages = owner.first, messages
        self.options = options
        self._failures: list[tuple[str, str, ModelError]] = []
        total_s = (options.limits and options.limits.total_s) or options.timeout_s
        self._end = None if total_s is None else asyncio.get_running_loop().time() + total_s

    def failed(self, provider: str, model: str, error: ModelError) -> None:
        self._failures.append((provider, model, error))

    def next(self) -> FallbackDelta | None:
        """Takes the next model that can be asked; None when there is none, or no time is left."""
        for name in self._names:
            remaining_s = None if self._end is None else self._end - asyncio.get_running_loop().time()
            if remaining_s is not None and remaining_s <= 0:
                return None
            try:
                model = self._owner.named(name)
                if self._is_tried(model):
                    continue
                self.messages = _messages_for(model, self._given[0])
            except ModelError as error:  # no key, or a part that it does not take
                self.failed(name, "", error)
                notice("model.fallback_skipped", fallback=name, code=error.code, error=error.message)
                continue
            ignored = () if self._owner.same_account else tuple(_ignored(self.model, model, self._given[1]))
            self.options = _options_for(model, self._given[1], ignored, remaining_s)
            return self._told(model, ignored)
        return None

    def _is_tried(self, model: ChatModel) -> bool:
        tried = {(provider, name) for provider, name, _ in self._failures}
        return not self._owner.same_account and (model.provider, model.model) in tried

    def _told(self, model: ChatModel, ignored: tuple[str, ...]) -> FallbackDelta:
        provider, name, error = next(one for one in reversed(self._failures) if one[1])
        notice(
            "model.fallback",
            provider=provider,
            model=name,
            fallback=f"{model.provider}/{model.model}",
            code=error.code,
            error=error.message,
            **({"ignored": list(ignored)} if ignored else {}),
        )
        self.model = model
        return FallbackDelta(
            provider=model.provider,
            model=model.model,
            failed=f"{provider}/{name}",
            code=error.code,
            message=error.message,
            ignored=ignored,
        )

    def error(self) -> ModelError:
        """The failure of the model that was asked for, with those of the others."""
        _, _, first = self._failures[0]
        others = [(f"{provider}/{name}" if name else provider, error) for provider, name, error in self._failures[1:]]
        # With both clients of one provider the second failure explains nothing.
        if not others or self._owner.same_account:
            return first
        told = "; ".join(f"fallback {name} failed too: {error.message}" for name, error in others)
        attempts = [{"model": name, "code": error.code, "message": error.message} for name, error in others]
        retryable = any(error.retryable for _, _, error in self._failures)
        detail = {**first.detail, "fallbacks": attempts}
        return ModelError(f"{first.message}; {told}", code=first.code, retryable=retryable, **detail)


def _messages_for(model: ChatModel, messages: Sequence[Message]) -> Sequence[Message]:
    """The messages as the model takes them: media that it does not take are named as text.

    Raises:
        ModelError: it does not take a part of the newest turn, and its answer would be about something else.
    """
    if all(type(message.content) is str for message in messages):
        return messages
    takes = model.capabilities.input
    last = max((i for i, message in enumerate(messages) if isinstance(message, AIMessage)), default=-1)
    out: list[Message] = []
    for position, message in enumerate(messages):
        wrong = {
            id(part): why
            for part in media_of(message.content)
            if (why := refusal_of(part, model.provider, model.model, takes)) is not None
        }
        if wrong and position > last:
            why = next(iter(wrong.values()))
            raise ModelError(f"it can't be sent the newest message: {why}", retryable=False, provider=model.provider)
        if wrong:
            given = [part for part in message.content if not isinstance(part, str)]
            parts = [
                TextPart(text=f"[{part.type}: {part.name or part.url or part.media_type or 'unnamed'}]")
                if isinstance(part, MEDIA_TYPES) and id(part) in wrong
                else part
                for part in given
            ]
            message = msgspec.structs.replace(message, content=content_of(apart(parts, given)))
        out.append(message)
    return out


def _ignored(first: ChatModel, other: ChatModel, options: ChatOptions) -> Iterator[str]:
    """Options that were written for another provider, or that the model refuses."""
    # `extra` and `headers` may hold what only one provider knows, or should know.
    if other.provider != first.provider:
        yield from (name for name in _FOR_ONE_PROVIDER if getattr(options, name))
    most = _most_tokens(other)
    if most is not None and options.max_tokens is not None and options.max_tokens > most:
        yield "maxOutputTokens"


def _options_for(
    model: ChatModel, options: ChatOptions, ignored: Sequence[str], remaining_s: float | None
) -> ChatOptions:
    changes: dict[str, object] = {name: {} for name in ignored if name in _FOR_ONE_PROVIDER}
    if "maxOutputTokens" in ignored:
        changes["max_tokens"] = _most_tokens(model)
    if remaining_s is not None:
        limits = msgspec.structs.replace(options.limits or CallLimits(), total_s=remaining_s)
        changes |= {"limits": limits, "timeout_s": None}
    return msgspec.structs.replace(options, **changes) if changes else options


def _most_tokens(model: ChatModel) -> int | None:
    facts = model_data().find(model.provider, model.model)
    return None if facts is None else facts.max_output_tokens
