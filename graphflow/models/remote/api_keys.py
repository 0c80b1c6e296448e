"""Keys that a function gives: tokens of Entra, Vertex or STS that end after an hour."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

from graphflow.errors import ModelError
from graphflow.http_headers import can_be_sent
from graphflow.models.provider import Provider
from graphflow.models.remote.failures import Masker
from graphflow.settings.function_reference import FunctionReference

LIMIT_S = 30.0
"""Of one call of the function."""
EARLY_S = 60.0
"""A token is replaced this long before it ends: a request takes its time too."""


class ApiKeys:
    """The present key of one provider.

    The function gives a text, which is asked for with each request, or a text and the time of its end (a pair, or an object with
    `token` and `expires_on`, in seconds since 1970), which is kept until then. Requests at the same time share one call.

    Args:
        function: plain or asynchronous; a plain one is called in a thread.
        name: for error texts.
        mask: learns each key, so that no text of the provider shows it.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        name: str,
        provider: str,
        mask: Masker,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._function, self._name, self._provider = function, name, provider
        self._mask, self._clock = mask, clock
        self._kept: tuple[str, float] | None = None
        self._given = 0
        """How many keys the function has given."""
        self._last = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = asyncio.Lock()

    async def present(self) -> str:
        """The key for a request.

        Raises:
            ModelError: the function failed.
        """
        if self._kept is not None and self._clock() < self._kept[1] - EARLY_S:
            return self._kept[0]
        loop = asyncio.get_running_loop()
        # A lock belongs to the loop in which somebody waited for it.
        if self._loop is not loop:
            self._loop, self._turn = loop, asyncio.Lock()
        before = self._given
        async with self._turn:
            # Given while this request waited: it is as new as one that was asked for now.
            if self._given == before:
                await self._ask()
        return self._last

    def refused(self, key: str) -> None:
        """The provider refused this key: it is not used again, whatever its end."""
        if self._kept is not None and self._kept[0] == key:
            self._kept = None

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                given = await self._called()
        except TimeoutError as error:
            raise self._failed(f"did not answer within {LIMIT_S:g} s", retryable=True) from error
        except Exception as error:
            said = self._mask(str(error))
            # What failed on the way to a token service may pass; everything else is an error of the function.
            raise self._failed(
                f"failed: {type(error).__name__}{f': {said}' if said else ''}", retryable=isinstance(error, OSError)
            ) from error
        key, end = _key_and_end(given)
        if key is None or not key.strip() or not can_be_sent("authorization", key.strip()):
            raise self._failed(f"gave {_kind(given)}, which is no key; it gives a text, or a text and when it ends")
        self._last, self._given = key.strip(), self._given + 1
        self._mask.learn(self._last)
        self._kept = None if end is None else (self._last, end)

    async def _called(self) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function()
        given = await asyncio.to_thread(self._function)
        return await given if inspect.isawaitable(given) else given

    def _failed(self, what: str, *, retryable: bool = False) -> ModelError:
        return ModelError(
            f"provider {self._provider!r} can't be used: its key function {self._name} {what}",
            code="provider_error",
            retryable=retryable,
            provider=self._provider,
            kind="authentication",
        )


def _key_and_end(given: Any) -> tuple[str | None, float | None]:
    if isinstance(given, tuple) and len(given) == 2:
        key, end = given
    else:
        key, end = getattr(given, "token", given), getattr(given, "expires_on", None)
    fits = end is None or (isinstance(end, int | float) and not isinstance(end, bool))
    return (key, None if end is None else float(end)) if isinstance(key, str) and fits else (None, None)


def _kind(given: Any) -> str:
    # Its type alone: the value may be the key in a form of its own.
    return "an empty text" if given == "" else f"a value of type {type(given).__name__}"


def keys_of(provider: Provider, mask: Masker) -> ApiKeys | None:
    """The keys of a provider whose profile names a function; None for others.

    Raises:
        ValueError: there is no such function.
    """
    given = provider.profile.api_key_function
    if given is None:
        return None
    if callable(given):
        return ApiKeys(given, getattr(given, "__qualname__", type(given).__name__), provider.key, mask)
    reference = given if isinstance(given, FunctionReference) else FunctionReference(str(given))
    return ApiKeys(reference.load(), str(reference), provider.key, mask)
