"""The native client of the OpenAI Responses API, streamed and stateless."""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.messages import Message
from graphflow.models.logs.log import notice
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.remote.native_model import NativeModel
from graphflow.models.replay.replay import Replay
from graphflow.models.responses.request import request_body
from graphflow.models.responses.stream_reader import ResponseReader


class ResponsesModel(NativeModel):
    """A `ChatModel` behind `<base_url>/responses`.

    The service keeps nothing (`store: false`): each request has the whole conversation, with the encrypted reasoning that this
    model wrote before its calls.
    """

    path = "/responses"

    def body(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions, replay: Replay
    ) -> bytes:
        return request_body(self._provider.profile, replay, messages, tools, options, notice)

    def reader(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ResponseReader:
        return ResponseReader(
            self.provider,
            messages,
            self.replay,
            finish_optional=self._provider.profile.finish_optional,
            mask=self._endpoint.mask,
            new_token=self._new_token,
            warn=notice,
        )
