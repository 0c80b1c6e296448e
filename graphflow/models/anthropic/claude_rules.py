"""What each Claude model accepts, as data: requests that break one of these rules are refused with status 400."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Thinking = Literal["budget", "adaptive", "none"]


class ClaudeRule(msgspec.Struct, frozen=True, kw_only=True):
    """One family of models."""

    models: str
    """Pattern, searched in the model's name without regard to case; the first rule that fits is used."""
    thinking: Thinking
    """How thinking is asked for: by a budget of tokens, by an effort (`adaptive`), or not at all."""
    can_stop_thinking: bool = True
    """Whether `thinking: disabled` is accepted."""
    top_efforts: tuple[str, ...] = ()
    """Efforts above `high` that are accepted."""
    sampling: Literal["both", "one", "none"] = "one"
    """Of temperature and top_p: both, one of them, or none."""
    forced_calls: bool = True
    """Whether a call may be forced by the tool choice."""
    signed: bool = True
    """Thinking without a signature is refused in the history."""
    checked: str
    """The day, `YYYY-MM-DD`."""
    source: str


RULES: tuple[ClaudeRule, ...] = (
    ClaudeRule(
        models=r"claude-(fable|mythos)",
        thinking="adaptive",
        can_stop_thinking=False,
        top_efforts=("xhigh", "max"),
        sampling="none",
        forced_calls=False,
        checked="2026-11-23",
        source="https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-adaptive-thinking.html",
    ),
    ClaudeRule(
        # The budget form: '"thinking.type.enabled" is not supported for this model'; "`temperature` is deprecated for this model".
        models=r"claude-(opus|sonnet|haiku)-(4-[7-9]\b|[5-9]|\d\d)",
        thinking="adaptive",
        top_efforts=("xhigh", "max"),
        sampling="none",
        checked="2026-11-23",
        source="https://platform.claude.com/docs/en/models/haiku-5-5/migration-guide",
    ),
    ClaudeRule(
        models=r"claude-(opus|sonnet)-4-6",
        thinking="adaptive",
        top_efforts=("max",),
        checked="2026-11-23",
        source="https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking",
    ),
    ClaudeRule(
        models=r"claude-3-(opus|sonnet|haiku|5)",
        thinking="none",
        sampling="both",
        checked="2026-11-23",
        source="https://platform.claude.com/docs/en/build-with-claude/extended-thinking",
    ),
    ClaudeRule(
        # "`temperature` and `top_p` cannot both be specified for this model."
        models="claude",
        thinking="budget",
        checked="2026-11-23",
        source="https://github.com/langchain-ai/langchain/issues/32578",
    ),
    ClaudeRule(
        # Other models behind servers of this protocol.
        models="",
        thinking="budget",
        sampling="both",
        signed=False,
        checked="2026-11-23",
        source="https://api-docs.deepseek.com/guides/anthropic_api",
    ),
)


def rule_of(model: str) -> ClaudeRule:
    """The rule for a model, under whatever name a platform has it (`anthropic.claude-…`, `claude-…@20250929`)."""
    return next(rule for rule in RULES if re.search(rule.models, model, re.IGNORECASE))
