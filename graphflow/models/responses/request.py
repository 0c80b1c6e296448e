"""The body of a Responses request: stateless, with the provider's own reasoning in it.

https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.errors import ModelError
from graphflow.messages import Message
from graphflow.models.families import family_of, fit_effort
from graphflow.models.options import ChatOptions, OneTool, ToolSpec, fits_strict
from graphflow.models.profiles import Knobs, Profile, knows_compute
from graphflow.models.remote.loose_json import encode_body
from graphflow.models.remote.request_options import answer_form, compute_fields, note_unmarked, schema_rule
from graphflow.models.replay.replay import Replay
from graphflow.models.responses.conversation import input_items, split_instructions

ENCRYPTED = "reasoning.encrypted_content"
_FEWEST_TOKENS = 16
"""Smaller limits are refused."""
_OWN = frozenset({"input", "instructions", "store", "previous_response_id", "conversation", "background"})
"""Fields that decide what the service keeps, and what this client must read: no option sets them."""


def request_body(
    profile: Profile,
    replay: Replay,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    options: ChatOptions,
    warn: Callable[..., None],
) -> bytes:
    """The request as JSON bytes; always a streaming one.

    Raises:
        ModelError: `options.extra` has a field that is the client's own.
    """
    if taken := _OWN & options.extra.keys():
        text = f"extra has {sorted(taken)!r}; these fields of a Responses request are set by the client, leave them out"
        raise ModelError(text, code="provider_error", retryable=False, provider=replay.provider)
    knobs, family = _knobs(profile.knobs), family_of(replay.model)
    told = functools.partial(warn, provider=replay.provider, model=replay.model)
    body = {"model": replay.model, "stream": True, "store": False} | _conversation(knobs, replay, messages, options)
    # Models that don't reason refuse a request that asks for their reasoning; of unknown ones it is asked.
    if knows_compute(knobs, replay.model) if family is None else family.reasons:
        body["include"] = [ENCRYPTED]
    if options.max_tokens is not None:
        body["max_output_tokens"] = max(options.max_tokens, _FEWEST_TOKENS)
    for name in ("temperature", "top_p"):
        if (value := getattr(options, name)) is not None:
            body[name] = value
    if tools:
        body |= _offer(knobs, tools, options)
    # The order is the precedence: the profile's fixed fields, then compute, then what the caller wrote as `extra`.
    effort = compute_fields(knobs, replay.model, tools, options)
    fit_effort(effort, "reasoning_effort", replay.model, told)
    for fields in (knobs.always, effort, options.extra):
        _merge(body, _renamed(fields))
    note_unmarked(options, replay)
    reasons = family.reasons if family is not None else knows_compute(profile.knobs, replay.model)
    for option in _leave_out(body, options, reasons=reasons):
        told("model.option_ignored", option=option)
    return encode_body(body)


def _knobs(given: Knobs) -> Knobs:
    """Of a server that is known by its address only: the protocol itself has a field for the effort."""
    if given.effort is not None or given.LOW or given.MEDIUM or given.HIGH:
        return given
    efforts = {level: {"reasoning_effort": level.lower()} for level in ("LOW", "MEDIUM", "HIGH")}
    return msgspec.structs.replace(given, effort="reasoning_effort", **efforts)


def _conversation(knobs: Knobs, replay: Replay, messages: Sequence[Message], options: ChatOptions) -> dict[str, Any]:
    instructions, rest = split_instructions(messages)
    fields: dict[str, Any] = {}
    if (asked := answer_form(options)) is not None:
        if knobs.structured == "json_schema" and asked.schema is not None:
            strict = asked.strict or (options.schema is not None and fits_strict(asked.schema))
            form = {"type": "json_schema", "name": asked.name, "schema": asked.schema, "strict": strict}
            fields["text"] = {"format": form}
        else:
            instructions = "\n\n".join(filter(None, (instructions, schema_rule(asked.schema))))
            if knobs.structured == "json_object":
                fields["text"] = {"format": {"type": "json_object"}}
    items = input_items(rest, replay)
    if not items:
        # A request needs an input; then the instructions are it.
        return fields | {"input": [{"type": "message", "role": "developer", "content": instructions}]}
    return fields | ({"instructions": instructions} if instructions else {}) | {"input": items}


def _offer(knobs: Knobs, tools: Sequence[ToolSpec], options: ChatOptions) -> dict[str, Any]:
    body: dict[str, Any] = {"tools": [_tool(tool) for tool in tools]}
    choice = options.tool_choice
    if isinstance(choice, OneTool):
        body["tool_choice"] = {"type": "function", "name": choice.name}
    elif choice is not None:
        body["tool_choice"] = choice
    if options.parallel_tool_calls is not None and knobs.parallel_tool_calls:
        body["parallel_tool_calls"] = options.parallel_tool_calls
    return body


def _tool(tool: ToolSpec) -> dict[str, Any]:
    # "object schema missing properties": the service refuses an object without them.
    parameters = {"type": "object", "properties": {}} | tool.parameters
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
        # Said in any case: left out it means strict, which a schema with optional arguments can't be.
        "strict": fits_strict(parameters),
    }


def _renamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of chat completions, as profiles have them, under their names here."""
    out = dict(fields)
    if (effort := out.pop("reasoning_effort", None)) is not None:
        _merge(out, {"reasoning": {"effort": effort}})
    if (verbosity := out.pop("verbosity", None)) is not None:
        _merge(out, {"text": {"verbosity": verbosity}})
    return out


def _merge(body: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Adds fields; those of an object to the object, entries of `include` to the list."""
    for name, value in fields.items():
        known = body.get(name)
        if isinstance(known, dict) and isinstance(value, Mapping):
            body[name] = {**known, **value}
        elif name == "include" and isinstance(known, list) and isinstance(value, list):
            body[name] = [*known, *(entry for entry in value if entry not in known)]
        else:
            body[name] = value


def _leave_out(body: dict[str, Any], options: ChatOptions, *, reasons: bool) -> Iterator[str]:
    """Drops what the model would refuse the request for, and names it."""
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    yield from [*(["stop"] if options.stop else ()), *(["seed"] if options.seed is not None else ())]
    # A model that reasons has no sampling; one whose reasoning is switched off does.
    if reasons and effort != "none":
        yield from [name for name in ("temperature", "top_p") if body.pop(name, None) is not None]
