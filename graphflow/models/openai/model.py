"""The native client: any server that speaks the OpenAI chat-completions protocol, streamed."""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.messages import Message
from graphflow.models.logs.log import notice
from graphflow.models.openai.request import request_body
from graphflow.models.openai.stream_reader import TurnReader
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.remote.native_model import NativeModel
from graphflow.models.replay.replay import Replay


class OpenAICompatibleModel(NativeModel):
    """A `ChatModel` behind `<base_url>/chat/completions`."""

    path = "/chat/completions"

    def body(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions, replay: Replay
    ) -> bytes:
        return request_body(self._provider.profile, replay, messages, tools, options)

    def reader(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> TurnReader:
        profile, mask = self._provider.profile, self._endpoint.mask
        return TurnReader(
            self.provider, profile, messages, tools, self.replay, mask=mask, new_token=self._new_token, warn=notice
        )
