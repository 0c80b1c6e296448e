"""The native client of the OpenAI Responses API, streamed and stateless."""

from __future__ import annotations

from graphflow.models.remote.native_model import NativeModel
from graphflow.models.responses.request import request_body
from graphflow.models.responses.stream_reader import ResponseReader


class ResponsesModel(NativeModel):
    """A `ChatModel` behind `<base_url>/responses`.

    The service keeps nothing (`store: false`): each request has the whole conversation, with the encrypted reasoning that this
    model wrote before its calls.
    """

    path = "/responses"
    write = staticmethod(request_body)
    reader_type = ResponseReader
