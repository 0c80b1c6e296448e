"""The native client of Anthropic's Messages protocol, streamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from graphflow.errors import ModelError
from graphflow.messages import Message
from graphflow.models.anthropic.claude_rules import rule_of
from graphflow.models.anthropic.request import RequestWriter
from graphflow.models.anthropic.stream_reader import MessageReader, wire_blocks
from graphflow.models.chat_model import Capabilities
from graphflow.models.deltas import Delta, Finish, StateDelta
from graphflow.models.logs.log import notice
from graphflow.models.model_data import ModelFacts, model_data
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.remote.exchange import Endpoint, Exchange
from graphflow.models.remote.loose_json import encode_body
from graphflow.models.remote.native_model import NativeModel
from graphflow.models.remote.timeouts import TurnTimeouts
from graphflow.models.replay.call_ids import UniqueCallIds

VERSION = "2023-06-01"
"""The header `anthropic-version`, which every request needs."""
_UNKNOWN_MAX_TOKENS = 8192
"""The protocol demands a limit; every model in use takes this one."""
_MOST_PAUSES = 10


class AnthropicModel(NativeModel):
    """A `ChatModel` behind `<base_url>/v1/messages`."""

    path = "/v1/messages"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        facts = _facts(self.provider, self.model)
        self._rule = rule_of(self.model)
        self._writer = RequestWriter(
            self._provider.profile,
            self.replay,
            self._rule,
            max_tokens=(facts and facts.max_output_tokens) or _UNKNOWN_MAX_TOKENS,
            structured=facts is not None and facts.schema == "json_schema",
            warn=notice,
        )

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities, compute=self._rule.thinking != "none")

    def begin(
        self, watch: TurnTimeouts, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions
    ) -> Exchange:
        fields = self._writer.fields(messages, tools, options)
        return _PausingTurn(self._endpoint.for_call(options), watch, fields, partial(self.reader, messages, tools))

    def url(self, base_url: str) -> str:
        parts = urlsplit(base_url)
        # People paste the address with and without the version.
        path = re.sub(r"(/v1)?(/messages)?/?$", "", parts.path)
        return urlunsplit(parts._replace(path=path + self.path))

    def key_headers(self, key: str) -> dict[str, str]:
        bearer = {"authorization": f"Bearer {key}"}
        return {"anthropic-version": VERSION} | (
            bearer if self._provider.profile.auth == "bearer" else {"x-api-key": key}
        )

    def reader(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), **more: Any) -> MessageReader:
        return MessageReader(
            self.provider,
            UniqueCallIds(messages, self._new_token),
            self.replay,
            mask=self._endpoint.mask,
            warn=notice,
            finish_optional=self._provider.profile.finish_optional,
            **more,
        )


class _PausingTurn(Exchange):
    """A turn that goes on by itself where the provider paused it: `pause_turn` asks for its blocks to be sent back."""

    def __init__(
        self, endpoint: Endpoint, watch: TurnTimeouts, fields: dict[str, Any], reader: Callable[..., MessageReader]
    ) -> None:
        super().__init__(endpoint, watch, encode_body(fields), reader)
        self._fields, self._make_reader = fields, reader
        self._pauses = 0

    async def read(self) -> list[Delta]:
        out = await super().read()
        if self.ended and isinstance(out[-1], Finish) and out[-1].raw_reason == "pause_turn":
            reader = self._reader
            assert isinstance(reader, MessageReader)
            if self._pauses < _MOST_PAUSES and not reader.call_count:
                out = [delta for delta in out if not isinstance(delta, Finish | StateDelta)]
                try:
                    await self._go_on(reader)
                except ModelError as error:
                    # As in every read: what came before the fault is the caller's.
                    if not out:
                        raise
                    self._failure = error
        return out

    async def _go_on(self, paused: MessageReader) -> None:
        self._pauses += 1
        await self.drain()
        await self.aclose()
        turn = {"role": "assistant", "content": wire_blocks(paused.blocks)}
        place = {"container": paused.container} if paused.container else {}
        self._body = encode_body(self._fields | {"messages": [*self._fields["messages"], turn]} | place)
        self._new_reader = partial(self._make_reader, paused=paused)
        await self.open()


def _facts(provider: str, model: str) -> ModelFacts | None:
    """What is known of a model, also of a dated version of it, and behind another address."""
    data = model_data()
    names = (model, re.sub(r"-\d{8}$", "", model))
    return next((found for key in (provider, "anthropic") for name in names if (found := data.find(key, name))), None)
