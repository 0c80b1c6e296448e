"""Fixtures of the Gemini tests: the native client against the fake service, with no waiting in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from graphflow.models.gemini.model import GeminiModel
from tests.models.turns import OpenClient, native_clients


@pytest.fixture
async def opened(pauses: list[float]) -> AsyncIterator[OpenClient]:
    async with native_clients(
        GeminiModel, pauses, key="gemini", model="gemini-3.8-flash", api_key="AIza-secret-0123456789"
    ) as make:
        yield make
