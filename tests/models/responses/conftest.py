"""Fixtures of the Responses tests: the native client against the fake service, with no waiting in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from graphflow.models.profiles import PROFILES, Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from graphflow.models.responses.model import ResponsesModel
from tests.models.turns import OpenClient


@pytest.fixture
def pauses() -> list[float]:
    """The pauses before retries, in seconds; nobody slept them."""
    return []


@pytest.fixture
async def opened(pauses: list[float]) -> AsyncIterator[OpenClient]:
    """Makes clients: `opened(url, model="gpt-5.5", retries=0, key="openai", **profile fields)`; closes them at the end."""
    made: list[ResponsesModel] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def make(
        url: str, model: str = "gpt-5.5", *, retries: int = 0, key: str = "openai", **fields: Any
    ) -> ResponsesModel:
        base = PROFILES.get(key, Profile())
        profile = Profile(**{name: getattr(base, name) for name in base.__struct_fields__} | fields)
        tokens = (f"token{n:03}" for n in range(1000))
        made.append(
            ResponsesModel(
                Provider(key=key, profile=profile, base_url=url, api_key="sk-secret-0123456789"),
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
