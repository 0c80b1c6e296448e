"""Fixtures of the model tests: the native client against a raw server, with no waiting in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from tests.models.turns import OpenClient


@pytest.fixture
def pauses() -> list[float]:
    """The pauses before retries, in seconds; nobody slept them."""
    return []


@pytest.fixture
async def open_client(pauses: list[float]) -> AsyncIterator[OpenClient]:
    """Makes clients: `open_client(url, limits=…, api_key=…, **profile fields)`; closes them at the end."""
    clients: list[OpenAICompatibleModel] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def make(url: str, *, limits: Limits | None = None, api_key: str | None = None, **fields: Any) -> Any:
        tokens = (f"token{n:03}" for n in range(1000))
        client = OpenAICompatibleModel(
            Provider(key="fake", profile=Profile(**fields), base_url=url, api_key=api_key),
            "fake-model",
            limits=limits or Limits(first_data_s=5, idle_s=5, total_s=10, max_retries=0),
            sleep=sleep,
            draw=lambda: 0.0,
            new_token=lambda: next(tokens),
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.aclose()
