"""What the compiler's checks share: the readable part of the document, and the list of errors.

An error of one part must not hide those of another, so every part whose shape is wrong is set aside
(`lost`) and the rest is read into the document's structs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from graphflow.errors import Issue
from graphflow.graph.definition.document import Budget, GraphDefinition, NodeDefinition
from graphflow.graph.definition.json_pointer import unescape
from graphflow.graph.definition.kinds import Kinds
from graphflow.graph.definition.regions import Survey, survey
from graphflow.graph.definition.struct_validation import MAX_ISSUES, check_shape
from graphflow.graph.expressions.environment import ANY_VARIABLE, Environment
from graphflow.suggestions import nearest

_NODE_KEYS = tuple(f.encode_name for f in msgspec.structs.fields(NodeDefinition))
_TOP_KEYS = tuple(f.encode_name for f in msgspec.structs.fields(GraphDefinition))
_BUDGET_KEYS = tuple(f.encode_name for f in msgspec.structs.fields(Budget))

STATE_KEYWORDS = frozenset(
    "type properties title description additionalProperties $schema $comment $defs required".split()
)
"""What may stand in `state` itself; its keys stand under `properties`."""

ALL = "*"
"""In `lost`: nothing of the node can be read."""


@dataclass
class ValidationContext:
    """One document under check."""

    data: Mapping[str, Any]
    document: GraphDefinition
    """What could be read; complete when there are no shape errors."""
    kinds: Kinds
    lost: Mapping[str, frozenset[str]]
    """Node → wire keys that could not be read, `*` for all of it."""
    lost_top: frozenset[str]
    """Top-level wire keys that could not be read, and `budget.KEY`."""
    state: dict[str, Mapping[str, Any]]
    """State key → schema, of those that are objects."""
    environment: Environment = field(default_factory=Environment)
    errors: list[Issue] = field(default_factory=list)

    @property
    def nodes(self) -> Mapping[str, NodeDefinition]:
        return self.document.nodes

    @functools.cached_property
    def survey(self) -> Survey:
        """The document's regions and who owns each node."""
        # Computed once: most checks ask for it, and the document does not change under them.
        return survey(self.document)

    def is_lost(self, node: str, *keys: str) -> bool:
        """Whether one of these keys of the node could not be read."""
        lost = self.lost.get(node, frozenset())
        return ALL in lost or not lost.isdisjoint(keys)

    @property
    def knows_state(self) -> bool:
        """Whether the state's keys could be read; otherwise names of keys can't be checked."""
        state = self.data.get("state", {})
        return "state" not in self.lost_top and isinstance(state, Mapping) and _tells_keys(state)

    def issue(
        self, pointer: str, message: str, hint: str | None = None, *, kind: str = "reference", warning: bool = False
    ) -> None:
        self.errors.append(
            Issue(pointer=pointer, message=message, hint=hint, kind=kind, severity="warning" if warning else "error")
        )

    def take(self, pointer: str, issues: Iterable[Issue]) -> None:
        """Errors with pointers relative to a place of this document."""
        self.errors += [replace(issue, pointer=pointer + issue.pointer) for issue in issues]


def _tells_keys(state: Mapping[str, Any]) -> bool:
    return isinstance(state.get("properties", {}), Mapping) and (
        "properties" in state or STATE_KEYWORDS.issuperset(state)
    )


def open_context(data: Mapping[str, Any], kinds: Kinds) -> ValidationContext:
    """The context of a document, its shape errors already in it."""
    issues = check_shape(data, GraphDefinition)
    lost_top, lost = _lost_parts(issues)
    if len(issues) >= MAX_ISSUES:  # there may be more anywhere, so no other check can rely on a part
        lost_top |= set(_TOP_KEYS)
        issues.append(
            Issue(pointer="", message=f"only the first {MAX_ISSUES} errors are reported", hint="fix these first")
        )
    # What is left always converts: each part with an error of shape was set aside above.
    document = _readable(data, lost_top, lost)
    properties = document.state.get("properties")
    state = {
        key: schema
        for key, schema in (properties.items() if isinstance(properties, Mapping) else ())
        if isinstance(schema, Mapping)
    }
    context = ValidationContext(
        data=data,
        document=document,
        kinds=kinds,
        lost={name: frozenset(keys) for name, keys in lost.items()},
        lost_top=frozenset(lost_top),
        state=state,
        errors=issues,
    )
    context.environment = Environment.of(document).loosely(*_unjudged(context))
    return context


def _unjudged(context: ValidationContext) -> Iterator[str]:
    """Variables whose fields are not checked: their declaration has an error of its own."""
    if not context.knows_state:
        yield "state"
    if not context.nodes:
        yield "visits"
    if "input" in context.lost_top:
        yield "input"
    if any(is_map_without(context, name, "as") for name in context.nodes):
        yield ANY_VARIABLE


def is_map_without(context: ValidationContext, name: str, key: Literal["as", "do"]) -> bool:
    """Whether the node is, or may be, a map whose `as` or `do` is not known."""
    node = context.nodes[name]
    if context.is_lost(name, key):
        return True
    # With `map` unreadable the node may be one: what its body could name is then not known.
    missing = node.as_ is None if key == "as" else node.do is None
    return missing and (node.map is not None or context.is_lost(name, "map"))


def _lost_parts(issues: Iterable[Issue]) -> tuple[set[str], dict[str, set[str]]]:
    top: set[str] = set()
    nodes: dict[str, set[str]] = {}
    for issue in issues:
        match [unescape(token) for token in issue.pointer.split("/")[1:]]:
            case []:
                pass  # a missing key: it is simply not there
            case ["nodes", name]:
                nodes.setdefault(name, set()).add(ALL)
            case ["nodes", name, key, *_]:
                nodes.setdefault(name, set()).update(_meant(key, _NODE_KEYS))
            case ["budget", key, *_]:
                top.update(f"budget.{meant}" for meant in _meant(key, _BUDGET_KEYS))
            case [key, *_]:
                top.update(_meant(key, _TOP_KEYS))
    return top, nodes


def _meant(key: str, known: tuple[str, ...]) -> set[str]:
    """A key and, if it is misspelt, the one that was meant: that one is lost too, not merely missing."""
    if key in known:
        return {key}
    near = nearest(key, known)
    return {key} if near is None else {key, near}


def _readable(data: Mapping[str, Any], lost_top: set[str], lost: Mapping[str, set[str]]) -> GraphDefinition:
    out = {key: value for key, value in data.items() if key not in lost_top and key in _TOP_KEYS}
    # The struct needs both to convert; if they are wrong or missing, that is reported already.
    out["graphflow"] = "1"
    out.setdefault("start", "")
    if isinstance(budget := out.get("budget"), Mapping):
        out["budget"] = {key: value for key, value in budget.items() if f"budget.{key}" not in lost_top}
    nodes = out.get("nodes")
    out["nodes"] = {
        name: _readable_node(node, lost.get(name, set()))
        for name, node in (nodes.items() if isinstance(nodes, Mapping) else ())
    }
    return msgspec.convert(out, GraphDefinition)


def _readable_node(node: Any, lost: set[str]) -> dict[str, Any]:
    if ALL in lost or not isinstance(node, Mapping):
        return {}
    return {key: value for key, value in node.items() if key not in lost}
