"""Fixtures of the Responses tests: the native client against the fake service, with no waiting in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from graphflow.models.responses.model import ResponsesModel
from tests.models.turns import OpenClient, native_clients


@pytest.fixture
async def opened(pauses: list[float]) -> AsyncIterator[OpenClient]:
    async with native_clients(ResponsesModel, pauses, key="openai", model="gpt-5.5") as make:
        yield make
