"""What the model tests share: running one turn and looking at all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from graphflow.errors import ModelError
from graphflow.messages import HumanMessage, Message
from graphflow.models.chat_model import (
    ChatModel,
    ChatOptions,
    Delta,
    Finish,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
    TurnAccumulator,
)
from graphflow.models.profiles import PROFILES, Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits

OpenClient = Callable[..., ChatModel]
"""The fixture `open_client`."""
ASK = (HumanMessage(content="hi"),)


@asynccontextmanager
async def native_clients(
    client: Callable[..., ChatModel],
    pauses: list[float],
    *,
    key: str,
    model: str,
    api_key: str = "sk-secret-0123456789",
) -> AsyncIterator[OpenClient]:
    """Makes clients of one protocol: `opened(url, model, retries=0, key=…, **profile fields)`; closes them at the end."""
    made: list[ChatModel] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def make(url: str, name: str = model, *, retries: int = 0, key: str = key, **fields: Any) -> ChatModel:
        base = PROFILES.get(key, Profile())
        profile = Profile(**{field: getattr(base, field) for field in base.__struct_fields__} | fields)
        tokens = (f"token{n:03}" for n in range(1000))
        made.append(
            client(
                Provider(key=key, profile=profile, base_url=url, api_key=api_key),
                name,
                limits=Limits(first_data_s=5, idle_s=5, total_s=600, max_retries=retries),
                sleep=sleep,
                draw=lambda: 0.0,
                new_token=lambda: next(tokens),
            )
        )
        return made[-1]

    yield make
    for one in made:
        await one.aclose()


@dataclass
class Heard:
    """Every delta of a turn, and the error that ended it, if one did."""

    deltas: list[Delta]
    turn: TurnAccumulator
    error: ModelError | None = None

    @property
    def finish(self) -> Finish:
        assert self.error is None, self.error
        assert isinstance(self.deltas[-1], Finish)
        assert sum(isinstance(d, Finish) for d in self.deltas) == 1
        return self.deltas[-1]

    @property
    def texts(self) -> list[str]:
        return [d.text for d in self.deltas if isinstance(d, TextDelta)]

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """`(id, name, arguments)` of the finished turn."""
        assert self.finish.reason
        return [(c.id, c.name, c.arguments) for c in self.turn.message().tool_calls]

    @property
    def call_deltas(self) -> list[ToolCallDelta]:
        return [d for d in self.deltas if isinstance(d, ToolCallDelta)]

    @property
    def failure(self) -> ModelError:
        assert self.error is not None, f"no error; got {self.deltas}"
        return self.error


async def hear(
    model: ChatModel,
    messages: Sequence[Message] = ASK,
    tools: Sequence[ToolSpec] = (),
    **options: Any,
) -> Heard:
    """One turn to its end or error; checks that each call begins with id and name."""
    heard = Heard([], TurnAccumulator())
    try:
        async with aclosing(model.stream(messages, tools, ChatOptions(**options))) as deltas:
            async for delta in deltas:
                heard.deltas.append(delta)
                heard.turn.feed(delta)
    except ModelError as error:
        heard.error = error
    begun: set[int] = set()
    for delta in heard.call_deltas:
        assert (delta.id is not None) == (delta.index not in begun)
        assert delta.index in begun or delta.name is not None
        begun.add(delta.index)
    assert sorted(begun) == list(range(len(begun)))
    return heard


async def hear_something(model: ChatModel) -> Heard:
    """What is heard of a turn whose time ends after its first text: on a slow machine that takes a larger limit."""
    for timeout_s in (0.2, 2.0, 20.0):
        heard = await hear(model, timeout_s=timeout_s)
        if heard.texts:
            break
    return heard


def spec(*names: str) -> list[ToolSpec]:
    return [ToolSpec(name=name) for name in names]
