"""What of a conversation's provider state goes to one model: its own, whole, where the rules say so; nobody else's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, TypeVar

import msgspec

from graphflow.messages import AIMessage, HumanMessage, Message, ProviderState
from graphflow.models.replay.call_ids import accepted
from graphflow.models.replay.rules import (
    CALL_ID_RULES,
    FIRST_CALL_ID,
    ORDER_RULES,
    REPLAY_RULES,
    CallIdRule,
    OrderRule,
    ReplayRule,
)
from graphflow.models.replay.signed_arguments import SIGNED, unchanged

AS_REASONING = True
"""In place of a text in the state: the message's own `reasoning`, which would be stored twice."""

_REASONING_TEXTS = frozenset({"reasoning_content", "reasoning", "thinking", "tagged_reasoning"})
Rule = TypeVar("Rule", ReplayRule, CallIdRule, OrderRule)


def rules_of(provider: str, model: str, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rows for a model: those of its provider, or if none is for this model those for all."""
    fitting = [rule for rule in rules if re.search(rule.models, model, re.IGNORECASE)]
    own = [rule for rule in fitting if provider in rule.providers]
    return tuple(own or (rule for rule in fitting if not rule.providers))


class Replay:
    """The rules for one model of one provider, applied to conversations.

    Args:
        provider: what state of this provider is stamped with, `Provider.stamp`.
        key: of the provider, which the rows are looked up by.
        protocol: that it speaks, for rows about all its servers.
        more: rows that a profile adds.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        key: str | None = None,
        protocol: str | None = None,
        more: Iterable[ReplayRule] = (),
    ) -> None:
        self.provider, self.model = provider, model
        self._keeps = True
        self._rules = (*more, *rules_of(key or provider, model, REPLAY_RULES))
        ids = rules_of(key or provider, model, CALL_ID_RULES) or [r for r in CALL_ID_RULES if protocol in r.protocols]
        self._ids = ids[0] if ids else None
        order = rules_of(key or provider, model, ORDER_RULES)
        self.bridge = order[0].bridge if order else None
        """What an assistant says between results and the next user message; None: they may stand together."""
        self.message_fields = frozenset(field for rule in self._rules for field in rule.message)
        """Fields of an assistant message that are kept."""
        self.call_fields = frozenset(field for rule in self._rules for field in rule.call)
        """Fields of a call that are kept."""

    @property
    def bare(self) -> Replay:
        """The same rules for a request that the provider gets none of its state back with: only what it asks for of strangers."""
        other = copy(self)
        other._keeps = False
        return other

    def stamped(self, data: Mapping[str, Any]) -> ProviderState:
        """State of this model."""
        return ProviderState(provider=self.provider, model=self.model, data=dict(data))

    def call_id(self, call_id: str) -> str:
        """The id as this provider accepts it."""
        return accepted(call_id, self._ids)

    def wrote(self, state: ProviderState | None) -> bool:
        """Whether it is of this provider, whatever its model."""
        return state is not None and state.provider == self.provider

    def own(self, state: ProviderState | None, *, scope: str = "model") -> Mapping[str, Any] | None:
        """The data of a state that this model may have back; None for another's, and for none."""
        if state is None or state.provider != self.provider or not self._keeps:
            return None
        fields: Mapping[str, Any] = state.data.fields
        return fields if scope == "provider" or state.model == self.model else None

    def fields(self, messages: Sequence[Message]) -> list[tuple[dict[str, Any], list[dict[str, Any]]] | None]:
        """For each message the fields that it and each of its calls get; None where there are none."""
        called = _turns_with_calls(messages)
        return [
            self._of(message, called[position]) if type(message) is AIMessage else None
            for position, message in enumerate(messages)
        ]

    def _of(self, message: AIMessage, called: bool) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
        if not self._rules:
            return None
        said: dict[str, Any] = {}
        calls: list[dict[str, Any]] = [{} for _ in message.tool_calls]
        for rule in self._rules:
            if rule.turns == "tools" and not called:
                continue
            own = self._fields(message.provider_state, rule.message, rule.scope, message.reasoning)
            # The other rows' fields must not hide what this one's provider refuses to do without.
            said |= own if own or not message.tool_calls else self._filler(rule.message_filler, message)
            for number, call in enumerate(message.tool_calls):
                own = self._fields(call.provider_state, rule.call, rule.scope, "", call.arguments)
                calls[number] |= own if own or number else rule.call_filler
        return said, calls

    def _filler(self, filler: Any, message: AIMessage) -> Any:
        if isinstance(filler, dict):
            return {name: self._filler(value, message) for name, value in filler.items()}
        if isinstance(filler, list):
            return [self._filler(value, message) for value in filler]
        return self.call_id(message.tool_calls[0].id) if filler == FIRST_CALL_ID else filler

    def _fields(
        self, state: ProviderState | None, names: tuple[str, ...], scope: str, reasoning: str, arguments: str = ""
    ) -> dict[str, Any]:
        data = self.own(state, scope=scope)
        # What was signed with other arguments is refused.
        if data is None or not unchanged(arguments, data.get(SIGNED)):
            return {}
        found = {name: data[name] for name in names if name in data}
        return {name: reasoning if value is AS_REASONING else value for name, value in found.items()}


def _turns_with_calls(messages: Sequence[Message]) -> list[bool]:
    """For each message whether a tool was called between the user messages around it."""
    out: list[bool] = []
    begin = 0
    for end in [*(i for i, m in enumerate(messages) if isinstance(m, HumanMessage)), len(messages)]:
        if end:
            called = any(isinstance(m, AIMessage) and m.tool_calls for m in messages[begin:end])
            out += [called] * (end - begin)
        begin = end
    return out


def with_reasoning(message: AIMessage, reasoning: str) -> AIMessage:
    """The message with another reasoning for people; what its provider wants back stays what it was."""
    state = message.provider_state
    if state is not None and reasoning != message.reasoning:
        data = state.data.fields
        same = [name for name in _REASONING_TEXTS & data.keys() if data[name] is AS_REASONING]
        if same:
            state = msgspec.structs.replace(state, data={**data, **dict.fromkeys(same, message.reasoning)})
    return msgspec.structs.replace(message, reasoning=reasoning, provider_state=state)
