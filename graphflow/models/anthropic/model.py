"""The native client of Anthropic's Messages protocol, streamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from graphflow.errors import ModelError
from graphflow.messages import Message
from graphflow.models.anthropic.bound_thinking import BoundThinking
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
from graphflow.models.replay.refusals import without_thinking
from graphflow.models.replay.remembered import knows_unfit
from graphflow.models.replay.replay import Replay

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

        def fields(replay: Replay, refused: ModelError | None = None) -> dict[str, Any]:
            asked = options if refused is None else without_thinking(options, refused)
            return self._writer.fields(messages, tools, asked, replay)

        reader = partial(self.reader, messages, tools)
        bound = BoundThinking(dropped=knows_unfit(messages, self.replay))
        return _PausingTurn(self._endpoint.for_call(options), watch, fields, self.replay, reader, bound)

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
        self,
        endpoint: Endpoint,
        watch: TurnTimeouts,
        fields: Callable[..., dict[str, Any]],
        replay: Replay,
        reader: Callable[..., MessageReader],
        bound: BoundThinking,
    ) -> None:
        self._fields = fields(replay)
        super().__init__(endpoint, watch, b"", reader, bare_body=lambda error: self._bare(fields(replay.bare, error)))
        self._plain_endpoint, self._bound, self._make_reader = endpoint, bound, reader
        self._pauses = 0
        self._write()

    def _write(self) -> None:
        self._body = encode_body(self._bound.fields(self._fields))
        self._endpoint = replace(self._plain_endpoint, headers=self._bound.headers(self._plain_endpoint.headers))

    def _bare(self, fields: dict[str, Any]) -> bytes:
        self._fields, self._endpoint = fields, self._plain_endpoint
        return encode_body(fields)

    def without_state(self, error: ModelError) -> bool:
        # The service knows best which blocks no longer fit; only where it can't be asked all of them stay behind.
        if not self._is_bare and self._bound.learn(error, self._fields):
            self._write()
            self.left_out = ("unfit",)
            return True
        if not self._is_bare and self._bound.is_refused(error):
            self.left_out, self._body = ("state",), self._bare_body(error)
            return True
        return super().without_state(error)

    @property
    def _is_bare(self) -> bool:
        return self.left_out not in ((), ("unfit",))

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
        self._fields = self._fields | {"messages": [*self._fields["messages"], turn]} | place
        self._body = encode_body(self._fields if self._is_bare else self._bound.fields(self._fields))
        self._new_reader = partial(self._make_reader, paused=paused)
        await self.open()


def _facts(provider: str, model: str) -> ModelFacts | None:
    """What is known of a model, also of a dated version of it, and behind another address."""
    data = model_data()
    names = (model, re.sub(r"-\d{8}$", "", model))
    return next((found for key in (provider, "anthropic") for name in names if (found := data.find(key, name))), None)
