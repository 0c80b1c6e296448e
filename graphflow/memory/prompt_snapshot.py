"""What an agent's model is told before any message: its system prompt and its tools (spec 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphflow.tools.selection import offered_tools

if TYPE_CHECKING:
    from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
    from graphflow.tools.port import Tool
    from graphflow.tools.registry import ToolRegistry

ModelName = Callable[[str | None, str | None], str | None]
"""`(provider key, model) → the model's name`, as far as it is known."""


SPEAKING = ("model", "task", "stage")
"""Kinds of nodes whose system prompt says what an agent is for."""

SUMMARY_FORM = (
    "Write each answer as one JSON object, with nothing around it:\n"
    '{"reasoningSummary": "…", "finalText": "…"}\n'
    "reasoningSummary tells in a few sentences how you came to the answer; finalText is the whole answer. Both are texts, "
    "in the language of the request. Where you call a tool instead, call it and write no such object."
)
"""What `output: REASONING_SUMMARY` asks of the model (spec 1.3)."""


def system_prompt(prompt: str, tools: Sequence[Tool], output: str | None = None) -> str:
    """The system prompt with the tools' notes, their hints for after a call, and the form of the answer at its end."""
    parts = [
        prompt,
        _listed("Tool notes:", ((tool.name, tool.prompt) for tool in tools)),
        _listed("After a tool was called:", ((tool.name, tool.after_call_hint) for tool in tools)),
    ]
    if output == "REASONING_SUMMARY":
        parts.append(SUMMARY_FORM)
    return "\n\n".join(part for part in parts if part)


def _listed(heading: str, notes: Iterable[tuple[str, str | None]]) -> str:
    """A heading with one line per note; empty without any."""
    lines = [f"- {name}: {' '.join(note.split())}" for name, note in notes if note and note.strip()]
    return "\n".join([heading, *lines]) if lines else ""


def noted_tools(document: GraphDefinition, tools: ToolRegistry, prompt: str, offered: Iterable[str]) -> list[Tool]:
    """The tools whose notes follow a system prompt: the same for every turn with that prompt.

    A mode's last turn offers no tools but keeps the prompt of the turns before it.

    Args:
        prompt: as the model gets it.
        offered: the names that this turn offers.
    """
    names = dict.fromkeys(offered)
    for node in document.nodes.values() if prompt else ():
        given = node.with_ if node.use == "model" and isinstance(node.with_, Mapping) else {}
        written = given.get("systemPrompt")
        if isinstance(written, str) and written.replace("$${", "${") == prompt:
            names |= dict.fromkeys(offered_tools(tools, document, given))
    return _known(tools, names)


def _known(tools: ToolRegistry, names: Iterable[str]) -> list[Tool]:
    return [tool for tool in map(tools.get, names) if tool is not None]


def system_of(document: GraphDefinition, tools: ToolRegistry, model_name: ModelName) -> dict[str, Any] | None:
    """The `system` of a chat record: `model, messages, tools, stream` of the graph's first model node.

    Expressions in a prompt are kept as written. None for a graph without a model.
    """
    node = _first_model(document)
    if node is None:
        return None
    given: Mapping[str, Any] = node.with_ if isinstance(node.with_, Mapping) else {}
    offered = _known(tools, offered_tools(tools, document, given))
    written = str(given.get("systemPrompt") or "").replace("$${", "${")
    noted = noted_tools(document, tools, written, (tool.name for tool in offered))
    prompt = system_prompt(written, noted, given.get("output"))
    provider, model = given.get("providerKey", document.provider_key), given.get("model", document.model)
    return {
        "model": model_name(provider, model),
        "messages": [{"role": "system", "content": prompt}] if prompt else [],
        "tools": [
            {
                "type": "function",
                "name": tool.spec.name,
                "description": tool.spec.description,
                "parameters": tool.spec.parameters,
            }
            for tool in offered
        ],
        "stream": True,
    }


def _first_model(document: GraphDefinition) -> NodeDefinition | None:
    """The first model node from the start, following the routes in their written order."""
    waiting, seen = [document.start], {document.start}
    while waiting:
        node = document.nodes.get(waiting.pop(0))
        if node is None:
            continue
        if node.use in SPEAKING:
            return node
        for name in _ways(node):
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return None


def _ways(node: NodeDefinition) -> list[str]:
    after = node.next
    if after is None or isinstance(after, str):
        return [after] if after else []
    return [route.to for route in after] if isinstance(after, tuple) else list(after.choose)
