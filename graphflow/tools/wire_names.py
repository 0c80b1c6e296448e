"""Names of tools as providers take them: `SERVER.TOOL` is sent as `SERVER__TOOL`, `agent:KEY` as `agent__KEY`.

Settings, approvals, events and records have the public names. Only the request to a provider has the others, and what
comes back is translated before anybody sees it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec

from graphflow.messages import AIMessage, Message, ToolMessage
from graphflow.models.deltas import ToolCallDelta
from graphflow.models.options import ChatOptions, OneTool, ToolSpec

MOST = 64
"""Characters of a name that every provider takes."""
_WIRE = re.compile(rf"[A-Za-z0-9_-]{{1,{MOST}}}", re.ASCII)
_OTHER = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_SEPARATOR = re.compile(r"[.:]")
_HASH = 8
"""Hex digits behind a name that does not fit as it is."""


AGENT = "agent:"
"""What the name of a tool begins with that is an agent."""


def agent_key(name: object) -> str | None:
    """The key of the agent that `agent:KEY` names; None of any other name."""
    return name[len(AGENT) :] if isinstance(name, str) and name.startswith(AGENT) and name != AGENT else None


def is_wire_name(name: str) -> bool:
    """Whether providers take the name as it is: 1 to 64 letters, digits, `_` and `-`."""
    return _WIRE.fullmatch(name) is not None


def wire_name(name: str) -> str:
    """The name that providers get for a public one; the same in every process.

    A name that fits is sent as it is. Another one has `__` for its first `.` or `:`. Where that does not fit, or may be
    read as another name, a hash of the whole name ends it.
    """
    if is_wire_name(name):
        return name
    owner, *rest = _SEPARATOR.split(name, maxsplit=1)
    joined = "__".join((owner, *rest))
    # With `__` in the owner, or `_` at the seam, two public names could give the same text.
    unsure = not rest or "__" in owner or owner.endswith("_") or rest[0].startswith("_")
    return joined if is_wire_name(joined) and not unsure else _hashed(name)


def _hashed(name: str) -> str:
    text = _OTHER.sub("_", _SEPARATOR.sub("__", name, count=1))
    return f"{text[: MOST - _HASH - 1]}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:_HASH]}"


class WireNames:
    """The names of one request to a provider.

    Args:
        offered: the public names of its tools, each once.
    """

    def __init__(self, offered: Iterable[str]) -> None:
        self._wire: dict[str, str] = {}
        self._public: dict[str, str] = {}
        # Names that are sent as they are come first: nobody can give those another form.
        for name in sorted(offered, key=lambda name: not is_wire_name(name)):
            sent = wire_name(name)
            if sent in self._public:
                sent = _hashed(name)
            self._wire[name], self._public[sent] = sent, name

    def sent(self, name: str) -> str:
        """The provider's form of a public name, also of a tool that this request does not offer."""
        return self._wire.get(name) or wire_name(name)

    def tools(self, tools: Sequence[ToolSpec]) -> list[ToolSpec]:
        """The tools under the provider's names."""
        return [msgspec.structs.replace(tool, name=self.sent(tool.name)) for tool in tools]

    def options(self, options: ChatOptions) -> ChatOptions:
        """The options, a choice of one tool by the provider's name."""
        choice = options.tool_choice
        if not isinstance(choice, OneTool):
            return options
        return msgspec.structs.replace(options, tool_choice=OneTool(self.sent(choice.name)))

    def messages(self, messages: Iterable[Message]) -> list[Message]:
        """The conversation with the provider's names in its calls and results."""
        return [self._message(message) for message in messages]

    def _message(self, message: Message) -> Message:
        if isinstance(message, AIMessage) and message.tool_calls:
            calls = tuple(msgspec.structs.replace(call, name=self.sent(call.name)) for call in message.tool_calls)
            return msgspec.structs.replace(message, tool_calls=calls)
        if isinstance(message, ToolMessage) and message.name is not None:
            return msgspec.structs.replace(message, name=self.sent(message.name))
        return message

    def heard(self, delta: ToolCallDelta) -> ToolCallDelta:
        """What the provider sent, with the public name."""
        name = self._public.get(delta.name or "")
        return delta if name is None or name == delta.name else msgspec.structs.replace(delta, name=name)
