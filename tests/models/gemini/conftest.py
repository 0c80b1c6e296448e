"""Fixtures of the Gemini tests: the native client against the fake service, with no waiting in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from graphflow.models.gemini.model import GeminiModel
from graphflow.models.profiles import PROFILES, Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from tests.models.turns import OpenClient


@pytest.fixture
def pauses() -> list[float]:
    """The pauses before retries, in seconds; nobody slept them."""
    return []


@pytest.fixture
async def opened(pauses: list[float]) -> AsyncIterator[OpenClient]:
    """Makes clients: `opened(url, model="gemini-3.8-flash", retries=0, **profile fields)`; closes them at the end."""
    made: list[GeminiModel] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def make(url: str, model: str = "gemini-3.8-flash", *, retries: int = 0, **fields: Any) -> GeminiModel:
        base = PROFILES["gemini"]
        profile = Profile(**{name: getattr(base, name) for name in base.__struct_fields__} | fields)
        tokens = (f"token{n:03}" for n in range(1000))
        made.append(
            GeminiModel(
                Provider(key="gemini", profile=profile, base_url=url, api_key="AIza-secret-0123456789"),
                model,
                limits=Limits(first_data_s=5, idle_s=5, total_s=600, max_retries=retries),
                sleep=sleep,
                draw=lambda: 0.0,
                new_token=lambda: next(tokens),
            )
        )
        return made[-1]

    yield make
    for model in made:
        await model.aclose()
