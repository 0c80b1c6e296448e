"""The pieces that mode compilers put together: every mode speaks the same few node forms."""

from __future__ import annotations

from typing import Any

from graphflow.modes.policies import Policies

MESSAGES_STATE: dict[str, Any] = {
    "type": "object",
    "properties": {"messages": {"type": "array", "default": [], "x-reduce": "messages"}},
}
"""The state of every mode: the conversation."""

BEST_ANSWER = (
    "No more tools can be called. Give the best answer to my request that the conversation so far allows, "
    "in the language of my request. Say plainly what is missing or uncertain."
)
"""Asked of a mode's last node when a limit is met before there is an answer (spec 1.2)."""


def literal(text: str) -> str:
    """Text that a `with` renders back unchanged: a prompt may hold `${…}`, which is no expression there."""
    return text.replace("${", "$${")


def model_node(system_prompt: str, policies: Policies, **with_: Any) -> dict[str, Any]:
    """A `model` node whose message joins the conversation; provider, model and tools are the document's own (E23)."""
    arguments = {
        "systemPrompt": literal(system_prompt),
        **with_,
        "compute": policies.compute,
        "showReasoning": policies.show_reasoning,
    }
    return {"use": "model", "with": arguments, "set": {"messages": "[out.message]"}}
