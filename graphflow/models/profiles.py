"""Providers as data: address, key variables, and deviations from the protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from graphflow.models.options import CallLimits
from graphflow.models.replay.rules import ReplayRule

Protocol = Literal["openai", "responses", "anthropic", "gemini", "library", "scripted"]


class Knobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of the request that only this provider has."""

    LOW: dict[str, Any] = msgspec.field(default_factory=dict)
    """Added for `compute: LOW`; likewise MEDIUM and HIGH."""
    MEDIUM: dict[str, Any] = msgspec.field(default_factory=dict)
    HIGH: dict[str, Any] = msgspec.field(default_factory=dict)
    models: str | None = None
    """Pattern (searched, case ignored) of the models that know the compute fields; `None`: all."""
    when_forced: Literal["LOW", "MEDIUM", "HIGH"] | None = None
    """The compute to use instead when a tool call is forced: some refuse that while thinking."""
    always: dict[str, Any] = msgspec.field(default_factory=dict)
    with_tools: dict[str, Any] = msgspec.field(default_factory=dict)
    """Added when tools are offered."""
    max_tokens: str = "max_tokens"
    """What the field for `ChatOptions.max_tokens` is called."""
    structured: Literal["json_schema", "json_object", "prompt"] = "json_schema"
    """See `Capabilities.structured`."""
    parallel_tool_calls: bool = True
    """Whether the field `parallel_tool_calls` is understood."""
    effort: str | None = None
    """What the field for `ChatOptions.reasoning_effort` is called; `None`: `compute` stands for it."""
    sampling_while_thinking: bool = True
    """Whether a model that reasons takes `temperature` and `top_p`; where not, they are left out."""
    families: bool = False
    """Whether the models are OpenAI's own: `families` of the model data say which efforts they take, and which take stop words."""
    tools_without_thinking: str | None = None
    """Pattern of the models that take tools on this protocol only with the effort `none`; `None`: no model."""
    cache_marks: str | None = None
    """Pattern of the models whose requests mark what is kept in the provider's cache (`cache_control` of a part); `None`: none."""
    seed: str = "seed"
    """What the field for `ChatOptions.seed` is called."""


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Certificates, as PEM files."""

    ca_file: str | None = None
    """Authorities that are trusted instead of the usual ones."""
    cert_file: str | None = None
    """The client's certificate with its chain; it may have the key too."""
    key_file: str | None = None
    key_password_env: str | None = None
    """The variable that has the password of the key."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider, before keys and addresses of the environment are filled in."""

    base_url: str = ""
    """Up to and without `/chat/completions` (`/v1/messages` for `anthropic`); `${NAME}` stands for a variable of the environment."""
    model: str = ""
    """Default model."""
    api_key_env: tuple[str, ...] = ()
    """Names of the variables that may hold the key, first wins; `<KEY>_API_KEY` is looked at before."""
    needs_key: bool = True
    auth: Literal["bearer", "api-key", "x-api-key"] | None = None
    """The header of the key: `authorization: Bearer KEY`, or `api-key: KEY`; None is the protocol's own, which is `bearer`
    but for `anthropic`."""
    hosts: tuple[str, ...] = ()
    """Endings of host names by which a base URL is recognised."""
    aliases: tuple[str, ...] = ()
    protocol: Protocol = "openai"
    finish_optional: bool = False
    """A stream that ends with `[DONE]` or usage but without a finish reason is whole."""
    think_tags: bool | Literal["open"] = False
    """Reasoning comes as `<think>…</think>` inside the content; `open`: without the opening tag."""
    replay_reasoning: Literal["never", "tool_turns"] = "never"
    """`tool_turns`: turns with tool calls must carry `reasoning_content` in the history. Of the providers that are known to
    ask for it, `models/replay/rules.py` says so."""
    usage: Literal["stream_options", "unasked"] = "stream_options"
    """Whether usage must be asked for by `stream_options`, which some servers refuse."""
    limits: CallLimits | None = None
    """Time limits of its calls, in seconds."""
    api_key_function: Any = None
    """A function that gives the key: `MODULE:NAME`, or in Python the function itself; see `remote.api_keys.ApiKeys`."""
    proxy: str | None = None
    """URL of the proxy, or `none`; `${NAME}` stands for a variable of the environment. Absent: as the environment says."""
    tls: Tls | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Sent with each request; `${NAME}` stands for a variable of the environment."""
    knobs: Knobs = msgspec.field(default_factory=Knobs)
    fallback: bool | tuple[str, ...] = False
    """Models (`PROVIDER/MODEL`) that are asked where one of this provider fails before its first delta; true: the same model by
    the other client, native or `library`."""
    script: str | None = None
    """`scripted` only: path of a script file; `None` is the embedded script."""

    @property
    def replay_rules(self) -> tuple[ReplayRule, ...]:
        """The rows that `replay_reasoning` and `think_tags` add to those for all providers."""
        replayed = () if self.replay_reasoning == "never" else (_REPLAYED,)
        return (*replayed, _TAGGED) if self.think_tags else replayed


_REPLAYED = ReplayRule(
    message=("reasoning_content",),
    turns="tools",
    scope="provider",
    message_filler={"reasoning_content": ""},
    checked="2026-11-23",
    source="https://api-docs.deepseek.com/guides/thinking_mode",
)


_TAGGED = ReplayRule(
    # Within a tool loop models go on from what they thought; templates drop it from turns before by themselves.
    message=("tagged", "tagged_reasoning"),
    turns="tools",
    checked="2026-11-23",
    source="https://platform.minimax.io/docs/guides/text-m2-function-call",
)


class _Providers(msgspec.Struct):
    """The part of the model data that is about providers."""

    providers: dict[str, Profile]


PROFILES: Mapping[str, Profile] = msgspec.json.decode(
    Path(__file__).with_name("model_data.json").read_bytes(), type=_Providers
).providers
"""Known out of the box, from `model_data.json`. Only differences without which a request would fail are listed."""

CUSTOM = Profile(needs_key=False)
"""A server that is known by its base URL only."""


def knows_compute(knobs: Knobs, model: str) -> bool:
    """Whether `compute` changes the request for this model."""
    # A provider without knobs never changes the request, whatever its pattern says.
    if not (knobs.LOW or knobs.MEDIUM or knobs.HIGH):
        return False
    return knobs.models is None or re.search(knobs.models, model, re.IGNORECASE) is not None
