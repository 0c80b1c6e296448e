"""The pieces that mode compilers put together: every mode speaks the same few node forms."""

from __future__ import annotations

from typing import Any

from graphflow.modes.definition import AgentDefinition
from graphflow.modes.policies import Policies

MESSAGES_STATE: dict[str, Any] = {
    "type": "object",
    "properties": {"messages": {"type": "array", "default": [], "x-reducer": "messages"}},
}
"""The state of every mode: the conversation."""


def literal(text: str) -> str:
    """The text escaped for a `with`, which renders it unchanged: `${…}` in a prompt is not an expression."""
    return text.replace("${", "$${")


def answering_node(system_prompt: str, policies: Policies, **with_: Any) -> dict[str, Any]:
    """A `model` node whose turn joins the conversation, and is the answer if it calls no tool, in the form of `output`.

    Provider, model and tools are the document's own (E23).
    """
    # Policies are written out, presets included: the ejected document needs no mode, and a new default is a new version.
    arguments = {
        "systemPrompt": literal(system_prompt),
        **with_,
        **output_of(policies),
        "compute": policies.compute,
        "showReasoning": policies.show_reasoning,
    }
    return {"use": "model", "with": arguments, "set": {"messages": "out.messages"}}


def last_node(system_prompt: str, policies: Policies, **with_: Any) -> dict[str, Any]:
    """An answering node without tools and without a turn after it."""
    # `lastTurn` although there are no tools: a model may call one all the same, and the call then needs a result before the run ends.
    return answering_node(system_prompt, policies, **with_, tools=[], lastTurn=True)


def output_of(policies: Policies) -> dict[str, Any]:
    """The `output` argument of a node that answers; plain text needs none."""
    return {} if policies.output == "PLAIN" else {"output": policies.output}


CALLED = "size(out.toolCalls) > 0"
"""After a `model` node: its turn called a tool."""
NUDGE = "Call one of the tools before you answer."
"""Prompt of the corrective turn for `toolPolicy: REQUIRE` (spec 1.3)."""


def offers_tools(definition: AgentDefinition, policies: Policies) -> bool:
    """Whether the agent's model may call tools at all."""
    return policies.tool_policy != "DISALLOW" and bool(definition.tools or definition.keywords)


def calling_node(name: str, system_prompt: str, policies: Policies, *, offers: bool, **with_: Any) -> dict[str, Any]:
    """An answering node that may call tools: with a call it leads to `tools`, without one to `end`.

    Under `REQUIRE` the first turn without a call is followed by one corrective turn of the same node; that turn alone
    has `mustCall`, so without a call it fails the run as `tool_required`. Once a tool has run, calling is free.

    Args:
        name: of the node itself.
        offers: see `offers_tools`; without tools, a call that comes anyway is still answered by `tools`.
        with_: further arguments of a turn with tools.
    """
    to_tools = {"if": CALLED, "to": "tools"}
    if not offers:
        # The route stays: a call that nobody offered must get its error result, or the next request breaks the protocol.
        return {**answering_node(system_prompt, policies, tools=[]), "next": [to_tools, {"to": "end"}]}
    if policies.tool_policy == "ALLOW":
        return {**answering_node(system_prompt, policies, **with_), "next": [to_tools, {"to": "end"}]}
    # Conditions of the graph, not of this code: the compiled document shows and repeats them without the compiler.
    none_yet, again = "visits.tools == 0", f"visits.tools == 0 && visits.{name} > 1"
    return {
        **answering_node(
            system_prompt,
            policies,
            # Named, as a node with a prompt of its own sends no conversation by itself.
            messages="${state.messages}",
            prompt=f"${{{again} ? '{NUDGE}' : ''}}",
            toolChoice=f"${{{none_yet} ? 'required' : 'auto'}}",
            mustCall=f"${{{again}}}",
            **with_,
        ),
        "next": [to_tools, {"if": none_yet, "to": name}, {"to": "end"}],
    }
