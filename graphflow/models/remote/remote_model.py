"""What every remote model does with a turn, however it is reached: tries, retries, and deltas as they come.

Retries happen only while no delta has been given out.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Protocol

from graphflow.errors import ModelError
from graphflow.messages import Message
from graphflow.models.chat_model import Capabilities
from graphflow.models.deltas import Delta
from graphflow.models.logs.log import notice
from graphflow.models.model_data import model_data
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.profiles import knows_compute
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits, backoff_s, limits_of_call
from graphflow.models.remote.timeouts import TurnTimeouts
from graphflow.models.replay.call_ids import TOKEN_LENGTH
from graphflow.models.replay.pairing import repaired
from graphflow.models.replay.refusals import LeftOut
from graphflow.models.replay.remembered import marked, remembered
from graphflow.models.replay.replay import Replay
from graphflow.models.sendable import sendable
from graphflow.models.tokens import estimate_message_tokens

_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


class OneTurn(Protocol):
    """One turn with a provider: `open` (again for a retry), `read` until `ended`, then `drain` and `aclose`."""

    watch: TurnTimeouts
    ended: bool
    left_out: tuple[LeftOut, ...]
    """What its request leaves out since it was refused."""

    async def open(self) -> None:
        """Sends the request."""

    def without_state(self, error: ModelError) -> bool:
        """After a refusal: takes the provider state out of the request if it was refused; whether that changed the request."""

    async def read(self) -> list[Delta]:
        """The deltas that came next; the last ones end with `Finish` and set `ended`."""

    async def drain(self) -> None:
        """Reads the rest of the answer, if it has already arrived."""

    async def aclose(self) -> None: ...


class RemoteModel:
    """The part of a `ChatModel` that remote ones share; `begin` makes a turn."""

    def __init__(
        self,
        provider: Provider,
        model: str,
        limits: Limits | None,
        sleep: Callable[[float], Awaitable[Any]],
        draw: Callable[[], float],
    ) -> None:
        self._provider = provider
        self._model = model
        self._limits = limits_of_call(limits or Limits(), provider.profile.limits)
        self._sleep = sleep
        self._draw = draw
        self.replay = Replay(
            provider.stamp,
            model,
            key=provider.key,
            protocol=provider.protocol,
            more=provider.profile.replay_rules,
        )
        """What of the conversation's provider state goes back to this model, and in which form its call ids."""

    @property
    def provider(self) -> str:
        return self._provider.key

    @property
    def model(self) -> str:
        return self._model

    @property
    def capabilities(self) -> Capabilities:
        knobs = self._provider.profile.knobs
        facts = model_data().find(self._provider.key, self._model)
        return Capabilities(
            input=None if facts is None else frozenset(facts.input),
            structured=knobs.structured,
            fallback=() if isinstance(self._provider.profile.fallback, bool) else self._provider.profile.fallback,
            compute=knows_compute(knobs, self._model),
            parallel_tool_calls=knobs.parallel_tool_calls,
        )

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return estimate_message_tokens(messages, self.replay.own)

    def begin(
        self, watch: TurnTimeouts, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions
    ) -> OneTurn:
        raise NotImplementedError

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        messages = sendable(repaired(messages), self.provider, https_only=self._provider.protocol == "anthropic")
        messages, options = remembered(messages, options, self.replay)
        limits = limits_of_call(self._limits, options.limits, options.timeout_s)
        watch = TurnTimeouts(limits, limits.total_s)
        turn = self.begin(watch, messages, tools, options)
        try:
            # Retries end with the first delta: a retry after it would repeat text that readers have seen.
            for delta in self._marked(turn, await self._first_deltas(turn)):
                yield delta
            while not turn.ended:
                for delta in self._marked(turn, await turn.read()):
                    yield delta
            # Before the close, which would end the connection together with an unread body.
            await turn.drain()
        finally:
            watch.close()
            await turn.aclose()

    def _marked(self, turn: OneTurn, deltas: Sequence[Delta]) -> Sequence[Delta]:
        return marked(deltas, turn.left_out, self.replay) if turn.left_out else deltas

    async def _first_deltas(self, turn: OneTurn) -> list[Delta]:
        """The first deltas of the turn, after as many tries as it takes and the limits allow."""
        attempt = 0
        while True:
            # A turn counts as begun with its first delta, not with the head: a stream may fail with nothing said.
            try:
                await turn.open()
                while not turn.ended:
                    deltas = await turn.read()
                    if deltas:
                        return deltas
                return []
            except ModelError as error:
                # No retry of the same: another request, at once, which the limit of retries does not count.
                changed = turn.without_state(error)
                pause = 0.0 if changed else self._pause_s(error, attempt, turn.watch)
                if pause is None:
                    raise
                facts = {} if changed else {"retry": attempt + 1, "pause_s": round(pause, 3)}
                notice(
                    "model.state_left_out" if changed else "model.retry",
                    provider=self.provider,
                    model=self._model,
                    **facts,
                    code=error.code,
                    error=error.message,
                )
            # Outside the handler: the failed answer is closed before the pause, not held open through it.
            await turn.aclose()
            if not changed:
                await self._sleep(pause)
                attempt += 1
            # The pause is the client's own time; the limits of silence begin anew with the next try.
            turn.watch.restart()

    def _pause_s(self, error: ModelError, attempt: int, watch: TurnTimeouts) -> float | None:
        """Seconds to wait before the next try; `None` when there is none."""
        if not error.retryable or attempt >= self._limits.max_retries:
            return None
        asked = error.detail.get("retry_after_s")
        if asked is None:
            pause = backoff_s(self._limits, attempt, self._draw())
        elif asked > self._limits.max_retry_after_s:
            return None
        else:
            pause = asked * (1 + self._draw() / 10)  # never earlier than asked, and not all at once
        # A pause that outlasts the call's total would only delay the same error.
        return pause if pause < watch.remaining_s() else None


def random_token() -> str:
    """For ids of calls."""
    return "".join(secrets.choice(_LETTERS) for _ in range(TOKEN_LENGTH))
