"""The second way to a model: a multi-provider library, for providers that do not speak the OpenAI protocol.

The library (`any-llm`, the extra `providers`) turns what each of them sends into OpenAI-shaped chunks; from there on a turn
is read, limited, retried and reported by the same code as on the native way. It is loaded with the first request.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from graphflow.errors import ModelError
from graphflow.messages import AIMessage, Message
from graphflow.models.anthropic.conversation import RequestTurns
from graphflow.models.deltas import Delta, Finish
from graphflow.models.library import bedrock, claude
from graphflow.models.logs.log import notice
from graphflow.models.openai.request import request_fields
from graphflow.models.openai.stream_reader import TurnReader
from graphflow.models.options import ChatOptions, OneTool, ToolSpec
from graphflow.models.provider import Provider
from graphflow.models.remote.failures import Masker, failure, http_failure, in_band_failure
from graphflow.models.remote.loose_json import encode_body, read_json
from graphflow.models.remote.remote_model import RemoteModel, random_token
from graphflow.models.remote.request_options import cache_mark
from graphflow.models.remote.retry import Limits
from graphflow.models.remote.sse_decoder import SseEvent
from graphflow.models.remote.timeouts import LimitReached, TurnTimeouts
from graphflow.models.remote.transport import tls_failure
from graphflow.models.replay.refusals import LeftOut, left_out_after, without_thinking
from graphflow.models.replay.replay import Replay
from graphflow.models.replay.rules import BEDROCK, CLAUDE_LIBRARY

INSTALL = "pip install 'graphflow[providers]'"
_DEEPEST = 5
_COMPLETED = {**dict.fromkeys(CLAUDE_LIBRARY, claude.complete_chunks), BEDROCK: bedrock.complete_chunks}
"""By the provider's key: what mends the library's client of it."""

T = TypeVar("T")


class AnyLlmModel(RemoteModel):
    """A `ChatModel` behind the library.

    The provider's key is the library's name of it (`anthropic`, `gemini`, `bedrock`); an unknown one
    with a base URL is taken as an OpenAI-compatible server.
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        *,
        limits: Limits | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,  # noqa: S311 - jitter, no secret
        new_token: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(provider, model, limits, sleep, draw)
        self._new_token = new_token or random_token
        self._mask = Masker([provider.api_key or "", *provider.headers.values()])
        self._loaded = False
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._life: AsyncGenerator[None, None] | None = None

    async def aclose(self) -> None:
        self._client, life, self._life = None, self._life, None
        # Sockets of another loop can't be closed from this one.
        if life is not None and self._loop is asyncio.get_running_loop():
            await life.aclose()

    def begin(
        self, watch: TurnTimeouts, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions
    ) -> _LibraryTurn:
        profile, key = self._provider.profile, self._provider.key
        if key in (*CLAUDE_LIBRARY, BEDROCK) and not tools:
            called = {call.name: None for m in messages if isinstance(m, AIMessage) for call in m.tool_calls}
            # "Requests which include `tool_use` or `tool_result` blocks must define tools."
            tools = [ToolSpec(name=name) for name in called]
            options = msgspec.structs.replace(options, tool_choice="none") if tools else options

        def fields(replay: Replay, options: ChatOptions) -> dict[str, Any]:
            out: dict[str, Any] = {"stream": True}
            if profile.usage == "stream_options":
                out["stream_options"] = {"include_usage": True}
            marks_itself = key == "anthropic"
            if marks_itself and (mark := cache_mark(options, tools)) is not None:
                # The service puts it behind the last block; the library has no place for marks in system prompt or tools.
                out["cache_control"] = mark
            if key == BEDROCK:
                choice = options.tool_choice
                out |= request_fields(profile, replay, (), tools, options)
                # Not the library's own form of the messages, which it makes of these.
                out["messages"] = [{"role": "user", "content": "-"}]
                out["tool"] = choice.name if isinstance(choice, OneTool) else None
                out["turns"] = bedrock.conversation(messages, replay)
            elif key in CLAUDE_LIBRARY:
                # The library gives Claude one block of thinking back; there may be several, and each has its place.
                out |= request_fields(profile, replay.bare, messages, tools, options, marks_itself=marks_itself)
                if any(isinstance(m, AIMessage) and replay.own(m.provider_state) for m in messages):
                    turns = RequestTurns(replay, messages, signed=True, warn=notice).turns
                    out["extra_body"] = read_json(encode_body({"messages": turns}))
            else:
                out |= request_fields(profile, replay, messages, tools, options)
            return out | ({"extra_headers": dict(options.headers)} if options.headers else {})

        # A reader holds the state of one stream, so each try needs a new one.
        reader = lambda: TurnReader(  # noqa: E731 - one per try
            self.provider,
            profile,
            messages,
            tools,
            self.replay,
            mask=self._mask,
            new_token=self._new_token,
            warn=notice,
        )
        bare = lambda error: fields(self.replay.bare, without_thinking(options, error))  # noqa: E731 - made only after a refusal
        return _LibraryTurn(self._opened, fields(self.replay, options), watch, reader, self._mask, self.provider, bare)

    async def _opened(self) -> Any:
        if not self._loaded:
            await asyncio.to_thread(_load, self._provider)
            self._loaded = True
        loop = asyncio.get_running_loop()
        # The SDK's sockets belong to the loop that opened them: on another one the first request would fail and be sent again.
        if self._client is None or self._loop is not loop:
            # In a thread: SDKs read certificates and descriptions of services for up to a second.
            client = await asyncio.to_thread(_open_client, self._provider, self._limits)
            if self._client is not None and self._loop is loop:
                return self._client  # another turn was first
            self._client, self._loop = client, loop
            if (complete := _COMPLETED.get(self._provider.key)) is not None:
                complete(self._client)
            self._life = _closed_with_its_loop(self._client)
            await anext(self._life)
        return self._client


async def _closed_with_its_loop(client: Any) -> AsyncGenerator[None, None]:
    """Closes the client at the latest when its event loop ends, which closes the generators that are still open."""
    try:
        yield
    finally:
        # The library has no close of its own; the SDK's client behind it may have one, plain or asynchronous.
        close = getattr(getattr(client, "client", None), "close", None)
        if close is not None:
            closing = close()
            if asyncio.iscoroutine(closing):
                await closing


def _load(provider: Provider) -> None:
    """Imports the library and the SDK behind it: a second or two, so it runs in a thread and no other run waits."""
    try:
        from any_llm import AnyLLM
    except ImportError as error:
        raise _not_usable(
            provider.key, f"its protocol is `library`, and the library is not installed: {INSTALL}"
        ) from error
    key = provider.key if _is_known(provider.key) else "openai"
    try:
        missing = AnyLLM.get_provider_class(key).MISSING_PACKAGES_ERROR
    except ImportError as error:
        missing = error
    if missing is not None:
        hint = f"the SDK behind it is not installed ({missing}): pip install 'any-llm-sdk[{key}]'"
        raise _not_usable(provider.key, hint) from missing


def _is_known(key: str) -> bool:
    from any_llm.constants import LLMProvider

    return key in {known.value for known in LLMProvider}


def _open_client(provider: Provider, limits: Limits) -> Any:
    """The library's client of a provider, without its own retries: `LLM_MAX_RETRIES` counts all of them."""
    from any_llm import AnyLLM

    options: dict[str, Any] = {
        "api_key": provider.api_key,
        "api_base": provider.base_url or None,
        "unified_exceptions": True,
    }
    if provider.headers:
        options["default_headers"] = dict(provider.headers)
    if provider.key == BEDROCK:
        options |= bedrock.client_options(limits)
    try:
        if _is_known(provider.key):
            return _without_retries(lambda **more: AnyLLM.create(provider.key, **options, **more))
        if provider.base_url:
            # The library insists on a key; a server of one's own needs none.
            options["api_key"] = provider.api_key or "none"
            return AnyLLM.create_openai_compatible(provider.key, max_retries=0, timeout=limits.total_s, **options)
    except Exception as error:  # the library's own errors have no common ground with those of the SDKs behind it
        raise _not_usable(provider.key, f"the library refuses it: {error}") from error
    raise _not_usable(provider.key, "the library does not know it; set base_url, or name one that it knows")


def _without_retries(create: Callable[..., Any]) -> Any:
    from any_llm import UnsupportedParameterError

    try:
        return create(max_retries=0)
    # Not every SDK behind the library has retries to switch off.
    except UnsupportedParameterError:
        return create()


def _not_usable(key: str, text: str) -> ModelError:
    return ModelError(f"provider {key!r} can't be used: {text}", code="provider_error", retryable=False, provider=key)


class _LibraryTurn:
    """One turn: the library's chunks, read as those of the wire are."""

    def __init__(
        self,
        opened: Callable[[], Awaitable[Any]],
        fields: dict[str, Any],
        watch: TurnTimeouts,
        reader: Callable[[], TurnReader],
        mask: Masker,
        provider: str,
        bare: Callable[[ModelError], dict[str, Any]],
    ) -> None:
        self._opened, self._fields = opened, fields
        self._bare = bare
        self.left_out: tuple[LeftOut, ...] = ()
        self._new_reader = reader
        self._mask, self._provider = mask, provider
        self._chunks: AsyncIterator[Any] | None = None
        self.watch = watch
        self.ended = False

    async def open(self) -> None:
        self._reader = self._new_reader()
        self._failure: ModelError | None = None
        self._begun = False
        self._served: str | None = None
        self._request_id: str | None = None
        self.ended = False
        client = await self._opened()
        self._chunks = aiter(await self._heard(client.acompletion(**self._fields)))

    def without_state(self, error: ModelError) -> bool:
        left_out = left_out_after(error, self.left_out)
        if left_out == self.left_out:
            return False
        self.left_out = left_out
        sent, self._fields = self._fields, self._bare(error)
        return self._fields != sent

    async def read(self) -> list[Delta]:
        assert self._chunks is not None
        if self._failure is not None:
            raise self._failure
        out: list[Delta] = []
        try:
            chunk = await self._heard(anext(self._chunks))
        except StopAsyncIteration:
            self._reader.close(out)
            finish = out[-1]
            self.ended = isinstance(finish, Finish)
            if isinstance(finish, Finish):
                served, asked = (
                    self._mask(said) or None if said else None for said in (self._served, self._request_id)
                )
                out[-1] = msgspec.structs.replace(finish, served_model=served, request_id=asked)
            return out
        self._begun = True
        self._served = getattr(chunk, "served_model", None) or self._served
        self._request_id = getattr(chunk, "request_id", None) or self._request_id
        self.watch.data()
        try:
            # Back to JSON: the reader takes bytes of the wire, so its rules for odd chunks exist once.
            self._reader.feed(SseEvent(chunk.model_dump_json(exclude_none=True).encode()), out)
        except ModelError as error:
            # As on the native way: what was read before the fault is the caller's, the fault comes with the next read.
            if not out:
                raise
            self._failure = error
        if self._reader.finished:
            self.watch.finished()
        return out

    async def _heard(self, waited: Awaitable[Any]) -> Any:
        try:
            return await self.watch.guard(waited)
        except (ModelError, StopAsyncIteration):
            raise
        except LimitReached as error:
            # Silence after a finish reason ends the turn well, as the end of the chunks does.
            if error.limit == "after_finish":
                raise StopAsyncIteration from None
            failed = self._told(error, "timeout")
            # The provider works on the request, perhaps thinking, as on the native way.
            if self._chunks is not None and not self._reader.began:
                failed.retryable = False
            raise failed from error
        except Exception as error:  # whatever the SDK behind the library raises
            raise self._told(error) from error

    def _told(self, error: Exception, code: str | None = None) -> ModelError:
        """The `ModelError` for a raised exception: by what the provider reported, if it reported anything."""
        provider = self._provider
        status, body = _first(error, "status_code", int), _first(error, "body", dict)
        # A status says most (retryable or not, how long to wait), a body less, the exception's text least.
        # In a stream that began as a success the status is that of the success, and the body says what happened.
        if status is not None and not (200 <= status < 300 and body is not None):
            said = str(error).encode() if body is None else msgspec.json.encode(body)
            given = getattr(_first(error, "response", object), "headers", {})
            headers = {str(name).lower(): str(value) for name, value in given.items()}
            return http_failure(provider, status, headers, said, self._mask)
        if body is not None:
            return in_band_failure(provider, body, self._mask, progress=self._reader.progress)
        excerpt = self._mask(str(error)) or type(error).__name__
        text = f"provider {provider!r} failed {self._reader.progress}: {excerpt}"
        if not self._begun and _is_refusal(error):
            text = f"provider {provider!r} can't be asked so: {excerpt}; leave the option out"
            return failure(text, "provider_error", provider, retryable=False, excerpt=excerpt)
        if (tls_hint := tls_failure(error)) is not None:
            return failure(f"{text}; {tls_hint}", "connection", provider, retryable=False, excerpt=excerpt)
        return failure(text, code or "connection", provider, excerpt=excerpt)

    async def drain(self) -> None:
        """Nothing to do: the library reads its answers to their end."""

    async def aclose(self) -> None:
        chunks, self._chunks = self._chunks, None
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


def _is_refusal(error: BaseException) -> bool:
    """Whether the library or an SDK refused the request before it was sent: a parameter, or a value of one."""
    from any_llm import UnsupportedParameterError

    seen: BaseException | None = error
    for _ in range(_DEEPEST):
        # A body that is no JSON is the provider's failure.
        if seen is None or isinstance(seen, json.JSONDecodeError | UnicodeError):
            return False
        if isinstance(seen, UnsupportedParameterError | TypeError | ValueError | NotImplementedError):
            return True
        seen = getattr(seen, "original_exception", None) or seen.__cause__
    return False


def _first(error: BaseException, name: str, kind: type[T]) -> T | None:
    """This attribute of an error or of its causes: the library's own errors carry less than the SDKs'."""
    seen: BaseException | None = error
    for _ in range(_DEEPEST):
        if seen is None:
            break
        value = getattr(seen, name, None)
        if value is not None and isinstance(value, kind):
            return value
        seen = getattr(seen, "original_exception", None) or seen.__cause__
    return None
