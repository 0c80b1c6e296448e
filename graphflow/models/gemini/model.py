"""The native client of the Gemini API, streamed by `streamGenerateContent`."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from graphflow.messages import Message
from graphflow.models.chat_model import Capabilities
from graphflow.models.gemini.request import request_body, thinks
from graphflow.models.gemini.stream_reader import GeminiReader
from graphflow.models.logs.log import notice
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.remote.native_model import NativeModel
from graphflow.models.replay.replay import Replay


class GeminiModel(NativeModel):
    """A `ChatModel` behind `<base_url>/models/MODEL:streamGenerateContent`."""

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities, compute=thinks(self._model))

    def url(self, base_url: str) -> str:
        parts = urlsplit(base_url)
        name = quote(self._model.removeprefix("models/"), safe="-._~/@")
        # A host alone means the version that this protocol was written against.
        path = f"{parts.path.rstrip('/') or '/v1beta'}/models/{name}:streamGenerateContent"
        return urlunsplit(parts._replace(path=path, query="&".join(filter(None, (parts.query, "alt=sse")))))

    def key_headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def body(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions, replay: Replay
    ) -> bytes:
        return request_body(self._provider.profile, replay, messages, tools, options, notice)

    def reader(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> GeminiReader:
        return GeminiReader(
            self.provider,
            messages,
            self.replay,
            finish_optional=self._provider.profile.finish_optional,
            mask=self._endpoint.mask,
            new_token=self._new_token,
            warn=notice,
        )
