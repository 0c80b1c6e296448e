"""The body of a Messages request, with what the model's rule and the provider's profile make of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphflow.messages import Message
from graphflow.models.anthropic.claude_rules import ClaudeRule
from graphflow.models.anthropic.conversation import RequestTurns
from graphflow.models.anthropic.schema import input_schema, structured_schema
from graphflow.models.options import ChatOptions, OneTool, ToolSpec
from graphflow.models.profiles import Profile
from graphflow.models.remote.request_options import answer_form, cache_mark, schema_rule
from graphflow.models.replay.replay import Replay

_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32000, "max": 32000}
"""Tokens of thinking for an effort, for models that take no effort."""
_LEAST_BUDGET = 1024
_COMPUTE = {"LOW": "low", "MEDIUM": "medium", "HIGH": "high"}


class RequestWriter:
    """Writes the requests to one model."""

    def __init__(
        self,
        profile: Profile,
        replay: Replay,
        rule: ClaudeRule,
        *,
        max_tokens: int,
        structured: bool,
        warn: Callable[..., None],
    ) -> None:
        """`max_tokens` where the caller names none; `structured`: the model takes a JSON Schema."""
        self._profile, self._replay, self._rule = profile, replay, rule
        self._max_tokens, self._structured = max_tokens, structured
        self._warn = warn

    def fields(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions, replay: Replay
    ) -> dict[str, Any]:
        """The request's fields; `replay` says which provider state is in it."""
        talk = RequestTurns(replay, messages, signed=self._rule.signed, warn=self._warn)
        body: dict[str, Any] = {
            "model": self._replay.model,
            "max_tokens": options.max_tokens or self._max_tokens,
            "stream": True,
        }
        system = talk.system
        form = answer_form(options)
        if form is not None and not (form.schema is not None and self._ask_structure(form.schema, body)):
            system = f"{system}\n\n{schema_rule(form.schema)}".strip()
        if system:
            body["system"] = [{"type": "text", "text": system}]
        body["messages"] = talk.turns
        body |= self._offer(talk, tools, options)
        self._think(talk, options, body)
        self._sample(options, body)
        if (mark := cache_mark(options, tools)) is not None:
            _mark(body, mark)
        own = dict(self._profile.knobs.always)
        # Tools that the provider runs stand beside ours.
        if isinstance(own.get("tools"), list):
            own["tools"] = [*own["tools"], *body.get("tools", ())]
        return body | own | options.extra

    def _ask_structure(self, schema: dict[str, Any], body: dict[str, Any]) -> bool:
        closed = structured_schema(schema) if self._structured else None
        if closed is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": closed}}
        return closed is not None

    def _offer(self, talk: RequestTurns, tools: Sequence[ToolSpec], options: ChatOptions) -> dict[str, Any]:
        if not tools:
            if not talk.called:
                return {}
            # "Requests which include `tool_use` or `tool_result` blocks must define tools."
            named = [{"name": name, "input_schema": {"type": "object"}} for name in talk.called]
            return {"tools": named, "tool_choice": {"type": "none"}}
        body: dict[str, Any] = {"tools": [_tool(tool) for tool in tools]}
        choice: dict[str, Any] | None = None
        match options.tool_choice:
            case OneTool(name):
                choice = {"type": "tool", "name": name}
            case "required":
                choice = {"type": "any"}
            case str(word):
                choice = {"type": word}
        if choice is not None and choice["type"] in ("any", "tool") and not self._rule.forced_calls:
            self._ignored("toolChoice", "this model refuses a forced call; it may call the tool")
            choice = {"type": "auto"}
        if options.parallel_tool_calls is not None and (choice is None or choice["type"] != "none"):
            choice = (choice or {"type": "auto"}) | {"disable_parallel_tool_use": not options.parallel_tool_calls}
        return body if choice is None else body | {"tool_choice": choice}

    def _think(self, talk: RequestTurns, options: ChatOptions, body: dict[str, Any]) -> None:
        effort = options.reasoning_effort or _COMPUTE.get(options.compute or "")
        if effort is None or self._rule.thinking == "none":
            return
        if effort == "none" and (self._rule.thinking == "budget" or self._rule.can_stop_thinking):
            # The newest models think unless they are told not to; those before think only when they are asked to.
            body |= {"thinking": {"type": "disabled"}} if self._rule.thinking == "adaptive" else {}
            return
        # "Thinking may not be enabled when tool_choice forces tool use."
        forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
        if self._rule.thinking == "adaptive":
            if effort not in ("low", "medium", "high", *self._rule.top_efforts):
                effort = "low" if effort in ("none", "minimal") else "max"
            body["output_config"] = body.get("output_config", {}) | {"effort": effort}
            if not forced:
                # Newer models leave the text of their thinking out unless it is asked for.
                body["thinking"] = {"type": "adaptive", "display": "summarized"}
            return
        budget = min(_BUDGETS[effort], body["max_tokens"] * 3 // 4)
        if forced or talk.loops_without_thinking or budget < _LEAST_BUDGET:
            return
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}

    def _sample(self, options: ChatOptions, body: dict[str, Any]) -> None:
        stop = [word for word in options.stop if word.strip()]
        if len(stop) < len(options.stop):
            self._ignored("stop", "white space alone ends no turn here")
        if stop:
            body["stop_sequences"] = stop
        if options.seed is not None:
            self._ignored("seed", "the API has no such field")
        given = {"temperature": options.temperature, "top_p": options.top_p}
        asked = {name: value for name, value in given.items() if value is not None}
        if not asked:
            return
        thinks = body.get("thinking", {}).get("type", "disabled") != "disabled"
        if self._rule.sampling == "none" or thinks:
            self._ignored(" and ".join(asked), "the model thinks" if thinks else "this model takes none")
            return
        if len(asked) == 2 and self._rule.sampling == "one":
            self._ignored("topP", "this model takes either temperature or topP")
            del asked["top_p"]
        if asked.get("temperature", 0) > 1:
            self._ignored("temperature", "the highest here is 1")
            asked["temperature"] = 1.0
        body |= asked

    def _ignored(self, option: str, why: str) -> None:
        self._warn(
            "model.option_ignored", provider=self._replay.provider, model=self._replay.model, option=option, why=why
        )


def _tool(tool: ToolSpec) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": input_schema(tool.parameters)}


def _mark(body: dict[str, Any], mark: dict[str, str]) -> None:
    """Marks where the cached prompt ends: behind tools and system prompt, and behind the conversation."""
    places = [body["system"] if "system" in body else body.get("tools"), body["messages"][-1]["content"]]
    for place in places:
        if place:
            place[-1] = place[-1] | {"cache_control": mark}
