"""The contract of the port, for the scripted model in process, behind HTTP, and with its log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from graphflow.models.chat_model import ChatModel
from graphflow.models.logs.interaction_log import LoggedModel
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.models.scripted.server import serve_scripted
from graphflow.testing.chat_model_conformance import ChatModelConformance, OpenModel


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
