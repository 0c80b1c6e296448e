"""The log of model calls, through structlog: summaries at `info`, each delta at `debug`.

Lines: `model.request`, `model.delta`, `model.response`, `model.failed`, `model.abandoned`, all with
provider, model, and (where a node set them, see `call_context`) traceId and stage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from graphflow.content import described
from graphflow.errors import GraphflowError
from graphflow.masking import StreamMasker, mask
from graphflow.messages import Message, to_wire
from graphflow.models.chat_model import ChatModel, WrappedModel
from graphflow.models.deltas import (
    Delta,
    FallbackDelta,
    Finish,
    PartDelta,
    StateDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from graphflow.models.logs.call_context import call_context
from graphflow.models.logs.log import model_logger
from graphflow.models.options import ChatOptions, OneTool, ToolSpec


class LoggedModel(WrappedModel):
    """A `ChatModel` that logs what goes through it and changes nothing."""

    def __init__(
        self,
        model: ChatModel,
        *,
        mask_sensitive: bool = True,
        logger: Callable[[], Any] = model_logger,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`mask_sensitive` replaces keys, tokens and passwords, in nested JSON too.

        `logger` is called for each call, so that a later configuration of the logs is used.
        """
        super().__init__(model)
        self._mask: Callable[[Any], Any] = mask if mask_sensitive else _as_is
        self._logger = logger
        self._clock = clock

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        call = _LoggedCall(self._bound(), self._mask, self._clock)
        # Read once: the check is made for every delta.
        debug = call.debug
        call.requested(messages, tools, options)
        delta: Delta | None = None
        try:
            async with aclosing(self._inner.stream(messages, tools, options)) as deltas:
                async for delta in deltas:
                    if debug:
                        call.delta(delta)
                    elif call.first_s is None:
                        call.first_s = self._clock()
                    yield delta
        except GraphflowError as error:
            call.failed(error)
            raise
        # Any exit of a generator: GeneratorExit when the consumer closes it, CancelledError, or a bug.
        except BaseException:
            # The consumer went away, or the task was cancelled: after the last delta that is no news.
            if not isinstance(delta, Finish):
                call.abandoned()
            raise
        # Here and not in the loop: a consumer that has its `Finish` may close the generator without asking for more.
        finally:
            if isinstance(delta, Finish):
                call.responded(delta)

    def _bound(self) -> Any:
        log = self._logger().bind(provider=self.provider, model=self.model)
        context = call_context()
        return log if context is None else log.bind(traceId=context.trace_id, stage=context.stage)


class _LoggedCall:
    """The lines of one call."""

    def __init__(self, log: Any, masked: Callable[[Any], Any], clock: Callable[[], float]) -> None:
        self._log = log
        self._mask = masked
        self._clock = clock
        self._names: dict[int, str] = {}
        self._maskers: dict[str | int, StreamMasker] = {}
        """By block: the text, the reasoning, each call's arguments."""
        self._start = clock()
        self.first_s: float | None = None
        """When the first delta came, by the clock."""
        # structlog's filtering loggers have this method; of any other logger all levels count as enabled.
        enabled = getattr(log, "is_enabled_for", None)
        self.debug: bool = enabled is None or enabled(logging.DEBUG)

    def requested(self, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions) -> None:
        facts: dict[str, Any] = {"messages": len(messages)}
        if tools:
            facts["tools"] = [tool.name for tool in tools]
        self._log.info("model.request", **facts, **self._mask(_told(options)))
        if self.debug:
            self._log.debug("model.messages", content=self._mask([_logged(m) for m in messages]))

    def delta(self, delta: Delta) -> None:
        if self.first_s is None:
            self.first_s = self._clock()
        if isinstance(delta, ToolCallDelta) and delta.name is not None:
            # Only the first delta of a call carries the name; the lines of the later ones need it too.
            self._names[delta.index] = delta.name
        self._log.debug("model.delta", **self._facts(delta))

    def _piece(self, block: str | int, text: str) -> str:
        """A piece of a block, masked: a secret may be spread over many pieces."""
        if self._mask is _as_is:
            return text
        masker = self._maskers.get(block)
        if masker is None:
            masker = self._maskers[block] = StreamMasker()
        return masker.feed(text)

    def _facts(self, delta: Delta) -> dict[str, Any]:
        match delta:
            case TextDelta(text):
                return {"content": self._piece("content", text)}
            case ThinkingDelta(text):
                return {"reasoning": self._piece("reasoning", text)}
            case StateDelta(state, call):
                # Opaque, and often as secret as a token: only that it came.
                return {"providerState": str(state.data), "call": call}
            case PartDelta(part):
                return {"part": part.type}
            case ToolCallDelta(index=index, arguments=arguments):
                return {"tool": self._names.get(index, ""), "call": index, "arguments": self._piece(index, arguments)}
            case FallbackDelta():
                return {"fallback": f"{delta.provider}/{delta.model}"}
            case Finish(reason, raw_reason):
                return {"finishReason": reason, "rawReason": raw_reason}

    def responded(self, finish: Finish) -> None:
        facts: dict[str, Any] = {"finishReason": finish.reason, **self._times()}
        if finish.usage is not None:
            facts["promptTokens"] = finish.usage.prompt_tokens
            facts["completionTokens"] = finish.usage.completion_tokens
            facts["reasoningTokens"] = finish.usage.reasoning_tokens
            facts["cachedTokens"] = finish.usage.cached_tokens
            if finish.usage.cache_write_tokens:
                facts["cacheWriteTokens"] = finish.usage.cache_write_tokens
            if finish.usage.cost_usd is not None:
                facts["costUsd"] = finish.usage.cost_usd
        if finish.served_model is not None:
            facts["servedModel"] = finish.served_model
        if finish.request_id is not None:
            facts["requestId"] = finish.request_id
        self._log.info("model.response", **facts)

    def failed(self, error: GraphflowError) -> None:
        # A provider's error text may quote what it was sent.
        facts = {"code": error.code, "error": error.message, "status": error.detail.get("status"), **self._times()}
        self._log.warning("model.failed", **self._mask(facts))

    def abandoned(self) -> None:
        self._log.info("model.abandoned", **self._times())

    def _times(self) -> dict[str, Any]:
        times = {"ms": _ms(self._clock() - self._start)}
        if self.first_s is not None:
            times["firstMs"] = _ms(self.first_s - self._start)
        return times


def _told(options: ChatOptions) -> dict[str, Any]:
    """The options that are set."""
    told: dict[str, Any] = {
        name: value
        for name in (
            "temperature",
            "top_p",
            "max_tokens",
            "timeout_s",
            "seed",
            "compute",
            "reasoning_effort",
            "parallel_tool_calls",
        )
        if (value := getattr(options, name)) is not None
    }
    if options.tool_choice is not None:
        choice = options.tool_choice
        told["tool_choice"] = choice.name if isinstance(choice, OneTool) else choice
    if options.stop:
        told["stop"] = list(options.stop)
    if options.schema is not None:
        told["schema"] = True
    elif options.response_format is not None:
        told["response_format"] = options.response_format.name
    if options.headers:
        told["headers"] = sorted(options.headers)
    if options.extra:
        told["extra"] = msgspec.to_builtins(options.extra)
    return told


def _logged(message: Message) -> dict[str, Any]:
    """The message in OpenAI form, media as what they are and how large: their bytes would fill the log."""
    wire = to_wire(message)
    if not isinstance(message.content, str):
        wire["content"] = [described(part) for part in message.content]
    return wire


def _as_is(value: Any) -> Any:
    return value


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
