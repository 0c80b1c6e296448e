"""The contract of the port, for the scripted model in process, with its log, and behind each protocol over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from graphflow.models.anthropic.model import AnthropicModel
from graphflow.models.chat_model import ChatModel
from graphflow.models.gemini.model import GeminiModel
from graphflow.models.logs.interaction_log import LoggedModel
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from graphflow.models.responses.model import ResponsesModel
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.models.scripted.server import serve_scripted
from graphflow.testing.chat_model_conformance import ChatModelConformance, OpenModel
from tests.models.raw_server import raw_server
from tests.models.scripted_protocols import (
    AnthropicWriter,
    GeminiWriter,
    ResponsesWriter,
    read_anthropic,
    read_gemini,
    read_responses,
    scripted,
)


class TestScriptedModelInProcess(ChatModelConformance):
    @pytest.fixture
    async def open_model(self) -> OpenModel:
        async def make(script: Script) -> ChatModel:
            return ScriptedModel(script)

        return make


class TestLoggedModel(ChatModelConformance):
    @pytest.fixture
    async def open_model(self) -> OpenModel:
        async def make(script: Script) -> ChatModel:
            return LoggedModel(ScriptedModel(script))

        return make


class TestNativeClientOverHttp(ChatModelConformance):
    @pytest.fixture
    async def open_model(self) -> AsyncIterator[OpenModel]:
        async with AsyncExitStack() as stack:

            async def make(script: Script) -> ChatModel:
                server = await stack.enter_async_context(serve_scripted(ScriptedModel(script)))
                provider = Provider(key="over_http", profile=Profile(), base_url=server.url)
                model = OpenAICompatibleModel(provider, "scripted", limits=Limits(max_retries=0))
                stack.push_async_callback(model.aclose)
                return model

            yield make


def over_protocol(
    stack: AsyncExitStack, key: str, kind: Any, read: Any, writer: Any, model: str = "scripted"
) -> OpenModel:
    """Opens clients of a protocol, each with a script behind it."""

    async def make(script: Script) -> ChatModel:
        server = await stack.enter_async_context(raw_server(scripted(ScriptedModel(script), read, writer)))
        profile = Profile(protocol=kind.__name__.removesuffix("Model").lower())
        provider = Provider(key=key, profile=profile, base_url=server.url, api_key="key")
        client: ChatModel = kind(provider, model, limits=Limits(max_retries=0))
        stack.push_async_callback(client.aclose)
        return client

    return make


class TestAnthropicOverHttp(ChatModelConformance):
    raw_calls = "tool_use"

    @pytest.fixture
    async def open_model(self) -> AsyncIterator[OpenModel]:
        async with AsyncExitStack() as stack:
            yield over_protocol(stack, "over_anthropic", AnthropicModel, read_anthropic, AnthropicWriter)


class TestGeminiOverHttp(ChatModelConformance):
    raw_calls = "STOP"
    whole_calls = True

    @pytest.fixture
    async def open_model(self) -> AsyncIterator[OpenModel]:
        async with AsyncExitStack() as stack:
            yield over_protocol(stack, "over_gemini", GeminiModel, read_gemini, GeminiWriter)


class TestResponsesOverHttp(ChatModelConformance):
    raw_calls = "completed"
    least_max_tokens = 16
    takes_stop = False

    @pytest.fixture
    async def open_model(self) -> AsyncIterator[OpenModel]:
        async with AsyncExitStack() as stack:
            yield over_protocol(stack, "over_responses", ResponsesModel, read_responses, ResponsesWriter)


class TestLibraryOverHttp(ChatModelConformance):
    @pytest.fixture
    async def open_model(self) -> AsyncIterator[OpenModel]:
        from graphflow.models.library.model import AnyLlmModel

        async with AsyncExitStack() as stack:

            async def make(script: Script) -> ChatModel:
                server = await stack.enter_async_context(serve_scripted(ScriptedModel(script)))
                profile = Profile(protocol="library")
                provider = Provider(key="over_library", profile=profile, base_url=server.url, api_key="key")
                model = AnyLlmModel(provider, "scripted", limits=Limits(max_retries=0))
                stack.push_async_callback(model.aclose)
                return model

            yield make
