"""`verify: SECOND_PASS_FIX`: a second pass behind any mode's answer (spec 1.3, E14)."""

from __future__ import annotations

from typing import Any

from graphflow.modes.parts import literal, output_of
from graphflow.modes.policies import Policies

CANDIDATE: dict[str, Any] = {"type": ["object", "null"], "default": None, "x-scope": "run", "x-expose": "state"}
"""The state key of the first answer: visible in checkpoints and the state endpoint only, reset by the next input."""


def append_verify(document: dict[str, Any], policies: Policies, system_prompt: str) -> dict[str, Any]:
    """The document with a `verify` node between its answer and its end, if the policies ask for a second pass.

    Every node with a route to `end` gives a candidate from now on: that route leads to `verify`, and what its model
    says is stored in the state key `candidate` instead of being streamed. `verify` is the mode's last node, so the
    budget's `onExceeded` names it: without a candidate it gives the forced answer itself, with the reserved model call.

    Args:
        document: a mode's graph as plain data, with `messages` in its state; it is not changed.
        system_prompt: of the node that answers; the second pass has the same.
    """
    if policies.verify == "NONE":
        return document
    state = document["state"]
    verify = {
        "use": "verify",
        "with": {
            "systemPrompt": literal(system_prompt),
            "candidate": "${state.candidate}",
            # A budget that is spent leaves one call in reserve: without a candidate it makes the answer, else none is made.
            "overBudget": "${error != null}",
            "compute": policies.compute,
            "showReasoning": policies.show_reasoning,
            **output_of(policies),
        },
        "set": {"messages": "out.messages"},
        "next": "end",
    }
    return {
        **document,
        "state": {**state, "properties": {**state["properties"], "candidate": CANDIDATE}},
        "budget": {**document["budget"], "onExceeded": "verify"},
        "nodes": {**{name: _with_candidate(node) for name, node in document["nodes"].items()}, "verify": verify},
    }


def _with_candidate(node: dict[str, Any]) -> dict[str, Any]:
    """The node with its route to `end` redirected to `verify`; other kinds than `model` set `candidate` themselves."""
    after = node["next"]
    if after == "end":
        redirected: Any = "verify"
    elif isinstance(after, list) and any(route["to"] == "end" for route in after):
        redirected = [{**route, "to": "verify"} if route["to"] == "end" else route for route in after]
    else:
        return node
    # Nodes of other kinds have it from their own compiler, which knows which of their turns is the answer.
    if node.get("use") != "model":
        return {**node, "next": redirected}
    return {
        **node,
        "with": {**node["with"], "stream": "candidate"},
        "set": {**node["set"], "candidate": "out.candidate"},
        "next": redirected,
    }
