"""Thinking that is bound to the prompt before it: what to ask for after the service refused some that no longer fits.

https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.errors import ModelError
from graphflow.models.replay.refusals import BOUND, refuses_state

_BETA = "thinking-binding-controls-2026-08-01"
_DROP = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}


class BoundThinking:
    """Of one turn: whether its requests ask the service to leave out what no longer fits.

    They do so once some was refused in the thread, which still has it. An account that refuses nothing is never
    asked: there thinking counts whatever stands before it.
    """

    def __init__(self, *, dropped: bool) -> None:
        self.dropped = dropped

    def learn(self, error: ModelError, fields: Mapping[str, Any]) -> bool:
        """Whether a refused request is to be sent again with the setting."""
        # Without thinking in the request there is nothing to set it on.
        kind = fields.get("thinking", {"type": "adaptive"}).get("type")
        if self.dropped or kind != "adaptive" or not refuses_state(error, BOUND):
            return False
        self.dropped = True
        return True

    def is_refused(self, error: ModelError) -> bool:
        """Whether the setting itself was refused, as by gateways that pass on no beta header; it is not tried again."""
        said = str(error.detail.get("excerpt"))
        if not self.dropped or not any(word in said for word in ("block_binding", "anthropic-beta", _BETA)):
            return False
        self.dropped = False
        return True

    def fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a request with the setting, if it is asked for."""
        thinking = fields.get("thinking", {"type": "adaptive"})
        if not self.dropped or thinking.get("type") != "adaptive":
            return fields
        return fields | {"thinking": thinking | _DROP}

    def headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of a request likewise: the setting needs a beta header."""
        if not self.dropped:
            return headers
        asked = [name for name in (headers.get("anthropic-beta"), _BETA) if name]
        return {**headers, "anthropic-beta": ",".join(asked)}
