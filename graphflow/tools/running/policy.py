"""What an agent allows the calls of its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CallPolicy:
    """What the agent whose model made the calls may do."""

    tools: tuple[str, ...] | None = None
    """Names of the tools that the agent has; None: every registered one."""
    approval: str | Mapping[str, str] | None = None
    """The agent's `approval`: one word, or words by tool name and `*`."""
    disallow: bool = False
    """No tools were offered (`toolPolicy: DISALLOW`); a call that comes anyway gets an error result."""
    agent_key: str | None = None
    """The agent whose standing rules apply."""
    templates: bool = True
    """Whether a model wrote the arguments, so that `{{tool.field}}` in them is a reference; elsewhere it is just text."""


ANY_TOOL = CallPolicy()
