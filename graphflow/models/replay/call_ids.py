"""Ids of calls as a provider accepts them: the same id for the same call, in the call and in its result."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence

from graphflow.messages import AIMessage, Message
from graphflow.models.replay.rules import CallIdRule

TOKEN_LENGTH = 8
"""Length of the suffix that makes the id of a call unique."""
WIRE_ID_MARK = "~"
"""Separates a provider's id that was not unique from the suffix that makes it so: `call_0~k3f9x2ab`."""
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASHED = 9
"""Characters of the digest in a mapped id: 62**9 leaves no two calls of a thread the same one."""


def wire_id(call_id: str) -> str:
    """The id as the provider that sent it knows it, for the reply."""
    head, mark, tail = call_id.rpartition(WIRE_ID_MARK)
    # A provider's own id may contain the mark, so only a suffix of exactly our length is cut off.
    return head if mark and head and len(tail) == TOKEN_LENGTH else call_id


def accepted(call_id: str, rule: CallIdRule | None) -> str:
    """The id for a provider with this rule; one that it accepts stays as it is.

    A mapped id begins with what can be kept of the old one, for people, and ends with a digest of it.
    """
    if rule is None:
        return wire_id(call_id)
    if rule.shortest <= len(call_id) <= rule.longest and re.fullmatch(f"[{rule.alphabet}]*", call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).digest())
    digest = ""
    for _ in range(min(_HASHED, rule.longest)):
        number, letter = divmod(number, len(_LETTERS))
        digest += _LETTERS[letter]
    kept = re.sub(f"[^{rule.alphabet}]", "", call_id)[: max(rule.longest - _HASHED, 0)]
    return kept + digest


class UniqueCallIds:
    """Ids for the calls of one turn that no call of the conversation has."""

    def __init__(self, messages: Sequence[Message], new_token: Callable[[], str]) -> None:
        self._messages = messages
        self._new_token = new_token
        self._used: set[str] | None = None

    def unique(self, sent: str | None) -> str:
        """The provider's id, with a suffix where it is in use; a new one where it sent none."""
        # Collected when the first call comes: most turns have none, and the conversation may be long.
        if self._used is None:
            self._used = {call.id for m in self._messages if isinstance(m, AIMessage) for call in m.tool_calls}
        if sent is None:
            unique = f"call_{self._new_token()}"
        # Some providers number their calls anew in each turn; two calls of one id could not be paired with their results.
        elif sent in self._used:
            unique = f"{sent}{WIRE_ID_MARK}{self._new_token()}"
        else:
            unique = sent
        self._used.add(unique)
        return unique
