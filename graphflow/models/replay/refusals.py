"""How providers refuse the state in a request, as data: the request is then sent once more without it.

Where thinking is missing, it is sent without being asked to think.
State that is right may be refused all the same: after a change of the key, the account or the server behind a gateway, and by
Claude where the prompt before its thinking has changed. The thread would be lost for the provider.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from graphflow.errors import ModelError
from graphflow.models.options import ChatOptions


class StateRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """One wording of a refusal."""

    pattern: str
    """Searched in the error's kind and text, without regard to case."""
    checked: str
    """The day the page was read, or the date of the report, `YYYY-MM-DD`."""
    source: str


BOUND = StateRefusal(
    # The system prompt, the tools or a message before a thinking block is not what it was when the block was made.
    pattern="bound to a different conversation",
    checked="2026-11-23",
    source="https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/fix-bound-to-a-different-conversation",
)

UNTHOUGHT = StateRefusal(
    # Older models of Claude while they think, behind gateways: the calls of another model have no thinking before them.
    pattern="expected `?thinking`? or `?redacted_thinking`?, but found",
    checked="2025-11-21",
    source="https://github.com/OpenRouterTeam/ai-sdk-provider/issues/245",
)

STATE_REFUSALS: tuple[StateRefusal, ...] = (
    BOUND,
    UNTHOUGHT,
    StateRefusal(
        pattern=r"invalid_encrypted_content|encrypted content .{0,200}could not be (verified|decrypted)",
        checked="2025-12-16",
        source="https://github.com/openai/codex/issues/8145",
    ),
    StateRefusal(
        # Of Claude, by itself and behind gateways: also for thinking of another account.
        pattern="invalid `?signature`? in `?thinking`? block",
        checked="2026-07-07",
        source="https://github.com/agno-agi/agno/issues/8794",
    ),
    StateRefusal(
        pattern="`?redacted_thinking`? blocks in the latest assistant message cannot be modified",
        checked="2026-05-28",
        source="https://github.com/anthropics/claude-code/issues/63404",
    ),
    StateRefusal(
        pattern="(corrupted|invalid) thought signature",
        checked="2026-08-29",
        source="https://github.com/lbjlaq/Antigravity-Manager/pull/3342",
    ),
    StateRefusal(
        pattern="thought signature is not valid",
        checked="2026-01-12",
        source="https://github.com/RooCodeInc/Roo-Code/pull/10640",
    ),
)


def refuses_state(error: ModelError, *rows: StateRefusal) -> bool:
    """Whether the provider refused the state in the request (in one of these words)."""
    said = f"{error.detail.get('kind') or ''} {error.detail.get('excerpt') or ''}"
    return any(re.search(row.pattern, said, re.IGNORECASE) for row in rows or STATE_REFUSALS)


LeftOut = Literal["state", "thinking", "unfit"]
"""`state`: all that came before; `thinking`: likewise, and the model was not asked to think; `unfit`: what the service itself
found to fit its prompt no longer."""


def left_out_after(error: ModelError, before: tuple[LeftOut, ...]) -> tuple[LeftOut, ...]:
    """What the next request leaves out, after `before` was left out of the one that is refused; the same: there is none."""
    whole = tuple(word for word in before if word != "unfit")
    if not refuses_state(error) or "thinking" in whole:
        return before
    if refuses_state(error, UNTHOUGHT):
        return (*whole, "thinking")
    return whole or ("state",)


def thoughtless(options: ChatOptions) -> ChatOptions:
    """The options without asking for thinking."""
    return msgspec.structs.replace(options, compute=None, reasoning_effort=None)


def without_thinking(options: ChatOptions, error: ModelError) -> ChatOptions:
    """The options for the request after a refusal: of a request that lacked thinking, without asking for any."""
    return thoughtless(options) if refuses_state(error, UNTHOUGHT) else options
