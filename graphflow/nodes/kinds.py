"""The table of node kinds: what a document's `use` may name, and where subgraphs and reducers come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from graphflow.nodes.functions import FunctionKind, NodeKind

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import Kind
    from graphflow.tools.registry import ToolRegistry


class AgentLookup(Protocol):
    """Lookup of documents for subgraphs and `agent:` nodes; the agents' layer provides it (E21)."""

    def document(self, key: str) -> Mapping[str, Any] | None:
        """The document of `KEY` or `KEY@VERSION` as plain JSON data, or None."""


@runtime_checkable
class ListedAgents(AgentLookup, Protocol):
    """An `AgentLookup` that can also list what it finds."""

    def keys(self) -> Sequence[str]:
        """The keys of all documents."""


_CALL_KINDS = ("agent_call", "agent_result", "turn_results")
_TOOL_KINDS = (*_CALL_KINDS, "model", "plan", "stage", "summary", "task", "tools", "verify")
"""Kinds that need the tool registry."""


class NodeKinds:
    """All node kinds that documents may use.

    Args:
        tools: the registry for `model`, `tools` and `tool:NAME`; None leaves those out.
        agents: where subgraphs are looked up.
        providers: provider keys that exist, for checking.
        unpriced: see the method of this name; without it no price is known.
        users: whether there are users, so that one can approve what another asked for; None if that is not known here.
    """

    def __init__(
        self,
        tools: ToolRegistry | Callable[[], ToolRegistry] | None = None,
        *,
        agents: AgentLookup | None = None,
        providers: Sequence[str] | Callable[[], Sequence[str]] | None = None,
        unpriced: Callable[[str | None, str | None, Sequence[str] | None], list[str]] | None = None,
        users: bool | None = None,
    ) -> None:
        self._tools = tools
        self._providers = providers
        if unpriced is not None:
            self.unpriced = unpriced
        self.agents = agents
        self.users = users
        self._nodes: dict[str, Callable[..., Any]] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._reducers: dict[str, Callable[[Any, Any], Any]] = {}
        self._kinds: dict[str, Kind] = {}
        self._states: dict[str, Any] = {}

    @property
    def tools(self) -> ToolRegistry | None:
        """The tool registry, created on first use."""
        if callable(self._tools):
            self._tools = self._tools()
        return self._tools

    @property
    def providers(self) -> Sequence[str] | None:
        """The provider keys that exist, listed on first use."""
        if callable(self._providers):
            self._providers = self._providers()
        return self._providers

    def with_tools(self, tools: ToolRegistry) -> NodeKinds:
        """The same kinds over other tools; later registrations on either apply to both."""
        # Shallow on purpose: functions registered after the copy must be known to both.
        other = copy(self)
        other._tools = tools
        return other

    def node(self, name: str, function: Callable[..., Any]) -> None:
        """Registers `node:NAME`."""
        self._nodes[name] = function

    def function(self, name: str, function: Callable[..., Any]) -> None:
        """Registers `fn:NAME`."""
        self._functions[name] = function

    def register_reducer(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        """Registers the pure function behind `"x-reducer": "fn:NAME"`."""
        self._reducers[name] = function

    def declare_state(self, key: str, cls: type) -> None:
        """Registers the class that declares the state of the graph at this key; `""` is the root."""
        self._states[key] = cls

    def state_class(self, key: str) -> Any:
        """See `DeclaresStates`."""
        cls = self._states.get(key)
        if isinstance(cls, type):
            from graphflow.graph.typed_state.state_class import StateClass  # only who declares a class loads it

            cls = self._states[key] = StateClass(cls)
        return cls

    def register(self, kind: Kind) -> None:
        """Registers a kind of one's own under its name."""
        self._kinds[kind.name] = kind

    def find(self, use: str) -> Kind | None:
        word, _, name = use.partition(":")
        if use in self._kinds:
            return self._kinds[use]
        if word == "node" and name in self._nodes:
            return NodeKind(self._nodes[name])
        if word == "fn" and name in self._functions:
            return FunctionKind(self._functions[name])
        if use == "wait":
            # Kinds are imported on first use: most graphs need few of them, and some pull in the models.
            from graphflow.nodes.wait import WaitKind

            return WaitKind()
        if word == "agent" and name:
            from graphflow.nodes.calls.branches import AgentKind

            data = self.graph(name)
            return None if data is None else AgentKind(data)
        if word in ("tool", *_TOOL_KINDS) and self.tools is not None:
            return self._tool_kind(word, name)
        return None

    def _tool_kind(self, word: str, name: str) -> Kind | None:
        from graphflow.nodes.model import ModelKind
        from graphflow.nodes.tools import ToolKind, ToolsKind

        assert self.tools is not None
        if word == "tool":
            return ToolKind(self.tools, name) if self.tools.declares(name) else None
        if name:
            return None
        if word in _CALL_KINDS:
            from graphflow.nodes.calls.branches import AgentCallKind, AgentResultKind, TurnResultsKind

            if word == "agent_call":
                return AgentCallKind(self.tools)
            return AgentResultKind() if word == "agent_result" else TurnResultsKind()
        if word == "verify":
            from graphflow.nodes.verify import VerifyKind

            return VerifyKind(self.tools, self.providers)
        if word == "stage":
            from graphflow.nodes.team import StageKind

            return StageKind(self.tools, self.providers)
        if word in ("plan", "task", "summary"):
            from graphflow.nodes.plan import PlanKind, SummaryKind, TaskKind

            made = {"plan": PlanKind, "task": TaskKind, "summary": SummaryKind}[word]
            return made(self.tools, self.providers)
        return ModelKind(self.tools, self.providers) if word == "model" else ToolsKind(self.tools)

    def names(self) -> list[str]:
        out = [*self._kinds, *(f"node:{n}" for n in self._nodes), *(f"fn:{n}" for n in self._functions), "wait"]
        if self.tools is not None:
            out += [*_TOOL_KINDS, *(f"tool:{n}" for n in self.tools.names())]
        return sorted(out)

    def graph(self, key: str) -> Mapping[str, Any] | None:
        return None if self.agents is None else self.agents.document(key)

    def identity(self, name: str) -> Any:
        """The part of a registered name that enters a version hash besides the name: a tool's schema (E23).

        Of a tool with an owner only the name does: what its server says of it may change between two runs.
        """
        word, _, rest = name.partition(":")
        owned = "." in rest or ":" in rest
        found = self.tools.get(rest) if word == "tool" and self.tools is not None and not owned else None
        return None if found is None else {"parameters": found.parameters}

    def graph_keys(self) -> Sequence[str]:
        """Keys that a document may refer to, for hints."""
        return self.agents.keys() if isinstance(self.agents, ListedAgents) else ()

    def reducer(self, name: str) -> Callable[[Any, Any], Any] | None:
        """The function of `"x-reducer": "fn:NAME"`: a registered reducer, or a registered function."""
        return self._reducers.get(name) or self._functions.get(name)
