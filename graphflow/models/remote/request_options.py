"""What the options of a call mean for the request of any protocol: compute and effort, the form of the answer, a schema in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphflow.models.options import ChatOptions, Compute, Effort, OneTool, ResponseFormat, ToolSpec
from graphflow.models.profiles import Knobs, knows_compute

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


def answer_form(options: ChatOptions) -> ResponseFormat | None:
    """The form that the answer must have."""
    # Who reads the answer says by `schema` what it needs, so that wins over the form that an agent asks for.
    return options.response_format if options.schema is None else ResponseFormat(schema=options.schema)


def schema_rule(schema: Mapping[str, Any] | None) -> str:
    """The schema in words, for models that can't be bound to one."""
    text = "Answer with one JSON object and nothing else."
    return text if schema is None else f"{text} It must fit this JSON Schema:\n{msgspec.json.encode(schema).decode()}"
