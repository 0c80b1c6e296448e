"""Puts the nodes behind each `tools` node that offers agents: calls of agents run as branches of a map (decision 0056).

A pure function over a document, of a mode or written by hand. A `tools` node that has the nodes has `agents: true`, so a document
that was saved with them stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from graphflow.tools.wire_names import AGENT, agent_key


def with_agent_calls(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with the nodes for its calls of agents; the very same if it needs none.

    Args:
        document: of any shape: what is wrong with it is reported by the checks.
    """
    nodes = document.get("nodes")
    if not isinstance(nodes, Mapping):
        return document
    for name, node in nodes.items():
        if isinstance(node, Mapping) and (keys := _offered(node, document)):
            document = _Behind(document, name, keys).written()
    return document


def _offered(node: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Keys of the agents that a `tools` node offers and has no nodes for."""
    given = node.get("with", {})
    if node.get("use") != "tools" or not isinstance(given, Mapping) or "agents" in given or given.get("max") == 0:
        return []
    names = given.get("tools", document.get("tools"))
    found = map(agent_key, names if isinstance(names, list | tuple) else ())
    return list(dict.fromkeys(key for key in found if key is not None))


class _Behind:
    """What is written for one `tools` node."""

    def __init__(self, document: Mapping[str, Any], tools: str, keys: list[str]) -> None:
        self._document, self._tools, self._keys = document, tools, keys
        self._node: Mapping[str, Any] = document["nodes"][tools]
        self._given: Mapping[str, Any] = self._node.get("with", {})
        taken = {*document["nodes"], "end", "fail"}
        self._fan, self._call, self._result, self._results = (
            _free(name, taken) for name in ("agents", "call", "result", "results")
        )
        self._agents = {key: _free(f"agent_{_plain(key)}", taken) for key in keys}
        state = document.get("state")
        properties = state.get("properties") if isinstance(state, Mapping) else None
        keys_taken = set(properties) if isinstance(properties, Mapping) else set[str]()
        self._calls, self._given_key = _free("agent_calls", keys_taken), _free("agent_call", keys_taken)
        self._item = _free(
            "call", {str(node.get("as")) for node in document["nodes"].values() if isinstance(node, Mapping)}
        )

    def written(self) -> dict[str, Any]:
        """The document with the nodes."""
        nodes: dict[str, Any] = {}
        for name, node in self._document["nodes"].items():
            nodes |= self._nodes() if name == self._tools else {name: node}
        return {**self._document, "state": self._state(), "nodes": nodes}

    def _state(self) -> dict[str, Any]:
        state = self._document.get("state") or {"type": "object"}
        # `branch`: the map of one node must not write over another's that runs at the same time.
        marks = {"x-scope": "branch", "x-expose": "state"}
        own = {
            self._calls: {"type": "array", "default": [], **marks},
            self._given_key: {"type": "object", "default": {}, **marks},
        }
        return {**state, "properties": {**(state.get("properties") or {}), **own}}

    def _nodes(self) -> dict[str, dict[str, Any]]:
        return {
            self._tools: self._asked(),
            self._fan: self._map(),
            self._call: self._begun(),
            **{self._agents[key]: self._agent(key) for key in self._keys},
            self._result: self._ended(),
            self._results: self._joined(),
        }

    def _asked(self) -> dict[str, Any]:
        """The `tools` node itself: a turn that calls agents goes on at the map."""
        following = self._node.get("next", "end")
        routes = following if isinstance(following, list | tuple) else [{"to": following}]
        return {
            **self._node,
            "with": {**self._given, "agents": True},
            "set": {**self._node.get("set", {}), self._calls: "out.calls"},
            "next": [{"if": "size(out.calls) > 0", "to": self._fan}, *routes],
        }

    def _map(self) -> dict[str, Any]:
        # Its output, the results, takes the place of the calls.
        ends = {"set": {self._calls: "out"}, "next": self._results, **self._errors()}
        return {"map": f"state.{self._calls}", "as": self._item, "do": self._call, **ends}

    def _begun(self) -> dict[str, Any]:
        offered = {name: self._given[name] for name in ("tools", "keywords", "parallel") if name in self._given}
        leads = [{"if": f"out.agent == {json.dumps(key)}", "to": self._agents[key]} for key in self._keys]
        return {
            "use": "agent_call",
            "with": {"call": f"${{{self._item}}}", **offered},
            "set": {self._given_key: "out.given"},
            "next": [*leads, {"to": "end"}],
        }

    def _ended(self) -> dict[str, Any]:
        given = {"call": f"${{{self._item}}}", "given": f"${{state.{self._given_key}}}", "error": "${error}"}
        return {"use": "agent_result", "with": given, "next": "end"}

    def _joined(self) -> dict[str, Any]:
        """Gives what the `tools` node gives, and goes where that goes."""
        own = {"tools": self._given["tools"]} if "tools" in self._given else {}
        return {
            "use": "turn_results",
            "with": {"answers": f"${{state.{self._calls}}}", **own},
            "set": {**self._node.get("set", {}), self._calls: "[]"},
            **({"next": self._node["next"]} if "next" in self._node else {}),
            **self._errors(),
        }

    def _errors(self) -> dict[str, Any]:
        return {"error": self._node["error"]} if "error" in self._node else {}

    def _agent(self, key: str) -> dict[str, Any]:
        return {
            "use": f"{AGENT}{key}",
            "with": f"${{state.{self._given_key}}}",
            "set": {self._given_key: "{'output': out.output}"},
            # A limit of the run ends the run, or leads to its wrap-up; whatever else fails is the model's to deal with.
            "error": [{"on": ["budget_exceeded"], "to": "fail"}, {"on": ["any"], "to": self._result}],
            "next": self._result,
        }


def _plain(key: str) -> str:
    """The key in letters that names of nodes may have."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)


def _free(name: str, taken: set[str]) -> str:
    """The name, with a number if another has it; it is taken from now on."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free
