"""What a model's stream is made of: frozen structs, one per thing that can arrive.

A stream is any number of deltas and then exactly one `Finish`. One chunk of a provider gives at most
one delta per semantic block, at once; nothing is merged, held back or cut again.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from graphflow.content import Part
from graphflow.messages import ProviderState

FinishReason = Literal["stop", "length", "content_filter", "tool_calls"]


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens of one model call, as the provider counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Everything the model wrote, reasoning included."""
    reasoning_tokens: int = 0
    """The part of `completion_tokens` that was reasoning; 0 also when the provider does not say."""
    cached_tokens: int = 0
    """The part of `prompt_tokens` that came from the provider's cache."""
    cache_write_tokens: int = 0
    """The part of `prompt_tokens` that was written to the provider's cache, where that costs extra."""
    cost_usd: float | None = None
    """What the call cost by the provider's own word; `None`: it does not say."""


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the answer; white space counts."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the model's reasoning."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of one tool call.

    The first delta of a call always has `id` and `name`; later ones have them as `None`, except that
    `name` comes again, whole, when the provider sent the name in pieces.
    """

    index: int
    """Position of the call in the turn, counted here from 0: stable, without holes."""
    id: str | None
    """Unique in the conversation; generated here when the provider sent none, or a used one."""
    name: str | None
    arguments: str
    """A fragment of the JSON text, possibly empty."""
    restart: bool = False
    """The arguments begin anew with this fragment: a provider sent a whole object and then another."""


class StateDelta(msgspec.Struct, frozen=True):
    """What the provider wants back with this turn, or with one of its calls: whole, so a later one replaces it.

    Comes before `Finish`. Never shown to anybody; see `graphflow.messages.ProviderState`.
    """

    state: ProviderState
    call: int | None = None
    """Position of the call; `None` is the message."""


class PartDelta(msgspec.Struct, frozen=True):
    """A part of the answer that is not text: an image, audio, a file or a citation; it follows the text so far."""

    part: Part


class FallbackDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A model failed before its first delta, and another one is asked in its place; what follows is that one's.

    Comes before the request to the other, so that whoever counts or limits calls may end the stream here.
    """

    provider: str
    model: str
    """Who is asked now."""
    failed: str
    """Who failed, as `PROVIDER/MODEL`."""
    code: str
    message: str
    """Why."""
    ignored: tuple[str, ...] = ()
    """Options of the call that are not for this model."""


class Finish(msgspec.Struct, frozen=True):
    """The end of the turn: comes exactly once, last."""

    reason: FinishReason
    raw_reason: str | None = None
    """The provider's own word; `None` when it sent none (see `finish_optional`)."""
    usage: Usage | None = None
    """`None` when the provider does not count."""
    served_model: str | None = None
    """The model that answered, by the provider's own word; gateways and aliases serve others than were asked for."""
    request_id: str | None = None
    """What the provider's support asks for."""


Delta = TextDelta | ThinkingDelta | ToolCallDelta | PartDelta | StateDelta | FallbackDelta | Finish
