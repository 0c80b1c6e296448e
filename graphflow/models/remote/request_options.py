"""What the options of a call mean for the request of any protocol: compute and effort, the form of the answer, a schema in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphflow.models.logs.log import notice
from graphflow.models.options import ChatOptions, Compute, Effort, OneTool, ResponseFormat, ToolSpec
from graphflow.models.profiles import Knobs, knows_compute
from graphflow.models.replay.replay import Replay

_COMPUTE: Mapping[Effort, Compute] = {
    "none": "LOW", "minimal": "LOW", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "xhigh": "HIGH", "max": "HIGH",
}  # fmt: skip
"""What an effort is for providers that have no field for it."""


def compute_fields(knobs: Knobs, model: str, tools: Sequence[ToolSpec], options: ChatOptions) -> dict[str, Any]:
    """The provider's fields for `reasoning_effort`, else for `compute`; none where neither is set or known."""
    forced = bool(tools) and (options.tool_choice == "required" or isinstance(options.tool_choice, OneTool))
    # Some providers refuse a forced call while the model thinks.
    refused = forced and knobs.when_forced is not None
    effort = options.reasoning_effort
    if effort is not None and knobs.effort is not None and not refused:
        return {knobs.effort: effort}
    compute = knobs.when_forced if refused else options.compute if effort is None else _COMPUTE[effort]
    fields: dict[str, Any] = getattr(knobs, compute) if compute is not None and knows_compute(knobs, model) else {}
    return fields


def cache_mark(options: ChatOptions, tools: Sequence[ToolSpec]) -> dict[str, str] | None:
    """Claude's mark behind what is kept in the cache; None where nothing is: without tools a prompt is seldom sent again."""
    kept = options.prompt_cache or ("5m" if tools else "off")
    if kept == "off":
        return None
    return {"type": "ephemeral"} | ({"ttl": kept} if kept != "5m" else {})


def note_unmarked(options: ChatOptions, replay: Replay) -> None:
    """Reports that `prompt_cache` changes nothing: the service keeps prompts by itself, or not at all."""
    if options.prompt_cache not in (None, "off"):
        notice("model.option_ignored", provider=replay.provider, model=replay.model, option="promptCache")


def answer_form(options: ChatOptions) -> ResponseFormat | None:
    """The form that the answer must have."""
    # Who reads the answer says by `schema` what it needs, so that wins over the form that an agent asks for.
    return options.response_format if options.schema is None else ResponseFormat(schema=options.schema)


def schema_rule(schema: Mapping[str, Any] | None) -> str:
    """The schema in words, for models that can't be bound to one."""
    text = "Answer with one JSON object and nothing else."
    return text if schema is None else f"{text} It must fit this JSON Schema:\n{msgspec.json.encode(schema).decode()}"
