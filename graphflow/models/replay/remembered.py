"""What a provider refused of a thread, kept in the thread: in the state of the answer that came without it.

So later turns send one request, after a restart too; a rewind or a fork to before the refusal does not know of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from graphflow.messages import AIMessage, HumanMessage, Message
from graphflow.models.deltas import Delta, Finish, StateDelta
from graphflow.models.options import ChatOptions
from graphflow.models.replay.refusals import LeftOut, thoughtless
from graphflow.models.replay.replay import Replay

_KEY = "left_out"


def marked(deltas: Sequence[Delta], left_out: Sequence[LeftOut], replay: Replay) -> Sequence[Delta]:
    """The last deltas of a turn with what was left out of its request; others as they are."""
    if not deltas or not isinstance(finish := deltas[-1], Finish):
        return deltas
    said = next((d for d in deltas if isinstance(d, StateDelta) and d.call is None), None)
    data = {} if said is None else said.state.data.fields
    state = StateDelta(replay.stamped({**data, _KEY: list(left_out)}))
    return [*(delta for delta in deltas[:-1] if delta is not said), state, finish]


def remembered(
    messages: Sequence[Message], options: ChatOptions, replay: Replay
) -> tuple[Sequence[Message], ChatOptions]:
    """The messages without the state that was refused, and the options without thinking where that was."""
    asked_since = False
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if type(message) is HumanMessage:
            asked_since = True
        elif isinstance(message, AIMessage) and message.provider_state is not None:
            left_out = _left_out(message, replay)
            # A loop of calls that began without thinking ends with the next thing that the user says.
            quiet = "thinking" in left_out and not asked_since
            if quiet or "state" in left_out:
                bare = [*(_bare(m, replay) for m in messages[:place]), *messages[place:]]
                return bare, thoughtless(options) if quiet else options
    return messages, options


def knows_unfit(messages: Sequence[Message], replay: Replay) -> bool:
    """Whether thinking of this thread once no longer fitted its prompt."""
    return any("unfit" in _left_out(m, replay) for m in messages if isinstance(m, AIMessage))


def _left_out(message: AIMessage, replay: Replay) -> Sequence[str]:
    words = (replay.own(message.provider_state) or {}).get(_KEY, ())
    return words if isinstance(words, list) else ()


def _bare(message: Message, replay: Replay) -> Message:
    if not isinstance(message, AIMessage):
        return message
    calls = tuple(
        msgspec.structs.replace(call, provider_state=None) if replay.wrote(call.provider_state) else call
        for call in message.tool_calls
    )
    state = None if replay.wrote(message.provider_state) else message.provider_state
    return msgspec.structs.replace(message, tool_calls=calls, provider_state=state)
