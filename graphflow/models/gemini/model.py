"""The native client of the Gemini API, streamed by `streamGenerateContent`."""

from __future__ import annotations

from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from graphflow.models.chat_model import Capabilities
from graphflow.models.gemini.request import request_body, thinks
from graphflow.models.gemini.stream_reader import GeminiReader
from graphflow.models.remote.native_model import NativeModel


class GeminiModel(NativeModel):
    """A `ChatModel` behind `<base_url>/models/MODEL:streamGenerateContent`."""

    write = staticmethod(request_body)
    reader_type = GeminiReader

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
