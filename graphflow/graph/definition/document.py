"""The document: a graph as data (spec 2.1), as frozen msgspec structs.

These structs are the one definition of the format. The published JSON Schema is generated from
them, `struct_validation.py` checks what people wrote against them and reports every error, and a stored
document is decoded into them without a second validation (E20).
Wire names are camelCase; the few that Python reserves (`if`, `as`, `map`) are renamed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

END, FAIL = "end", "fail"
RESERVED_NODES = (END, FAIL)

DEFAULT_INPUT_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"query": {"type": "string"}}}
"""The input of a document that declares none (E9)."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Base of every part of a document: strict, immutable, written without defaults."""


class Route(_Part, frozen=True):
    """One entry of `next`: go `to` a node `if` the condition holds; the last entry has no `if`."""

    to: str
    when: str | None = msgspec.field(name="if", default=None)


class Choose(_Part, frozen=True):
    """A Python node picks one of these by returning `Goto` (E19)."""

    choose: tuple[str, ...]


class ErrorRoute(_Part, frozen=True):
    """Where a failure of one of these codes goes; no `on` means any."""

    to: str
    on: tuple[str, ...] = ("any",)


class Retry(_Part, frozen=True):
    """How often and when a failed attempt is repeated."""

    max: int = 3
    """Attempts in all, the first included."""
    on: tuple[str, ...] = ("timeout", "rate_limit", "provider_error", "connection")
    backoff_ms: int = 500
    factor: float = 2.0
    max_backoff_ms: int = 30_000
    jitter: float = 0.2
    """Share of the delay that is drawn at random, 0 to 1."""


class Join(_Part, frozen=True):
    """What a `map` or `parallel` node waits for, and what a failed branch means to it (E10)."""

    wait: str | int = "all"
    """`all`, `any`, or how many branches must finish; the others are cancelled then."""
    on_error: Literal["fail", "collect", "skip"] = "fail"
    """`fail`: the first failed branch fails the node; `collect`: it counts as finished and stands in `out` with its
    error; `skip`: it does not count and is left out."""


class GraphRef(_Part, frozen=True):
    """A body that is a whole subgraph: its key, or a document in place."""

    graph: str | dict[str, Any]
    with_: Any = msgspec.field(name="with", default=None)
    """The subgraph's input; without it the `with` of the `map` or `parallel` node, else `{AS: item}` in a map and `{}`
    in a parallel."""


class Branch(_Part, frozen=True):
    """A named branch of a `parallel` node."""

    do: str | GraphRef
    """The node at which it begins, or a subgraph."""
    after: tuple[str, ...] = ()
    """Branches that must have finished before this one opens; it sees their writes."""


class Ask(_Part, frozen=True):
    """A question to a person; `show` is an expression whose value goes into the payload."""

    message: str
    show: str | None = None
    schema: dict[str, Any] = msgspec.field(default_factory=dict)
    owner: str | None = None
    role: str | None = None
    hold_ms: int | None = None
    expires: str | None = None
    """ISO 8601 duration (`P2D`, `PT15M`)."""
    on_expire: str | None = None


class Budget(_Part, frozen=True):
    """Limits of one run; `None` is no limit. `onExceeded` names the node that wraps up."""

    max_rounds: int | None = None
    max_steps: int | None = None
    max_model_calls: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    timeout_ms: int | None = None
    on_exceeded: str | None = None


class NodeDefinition(_Part, frozen=True):
    """One node: exactly one of `use`, `map`, `parallel`, `graph`, `ask`."""

    use: str | None = None
    map: str | None = None
    parallel: dict[str, str | Branch] | None = None
    graph: str | dict[str, Any] | None = None
    stream: Literal["content"] | None = None
    """Of a `graph`: what its models say goes to the reader, as at the root; by itself it is hidden (E10)."""
    ask: Ask | None = None
    with_: Any = msgspec.field(name="with", default=None)
    set: dict[str, str] = msgspec.field(default_factory=dict)
    next: str | tuple[Route, ...] | Choose | None = None
    error: tuple[ErrorRoute, ...] = ()
    retry: Retry | None = None
    timeout_ms: int | None = None
    effects: Literal["none", "read", "write"] | None = None
    idempotent: bool | None = None
    undo: str | None = None
    description: str | None = None
    as_: str | None = msgspec.field(name="as", default=None)
    do: str | GraphRef | None = None
    max: int | None = None
    join: Join | None = None


class GraphDefinition(_Part, frozen=True):
    """A whole document. Agent fields may stand beside these and are hashed with them (E23)."""

    graphflow: Literal["1"]
    start: str
    nodes: dict[str, NodeDefinition]
    version: str | None = None
    description: str | None = None
    input: dict[str, Any] | None = None
    result: str | None = None
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    budget: Budget = Budget()
    invariants: tuple[str, ...] = ()
    interrupt_before: tuple[str, ...] = ()
    interrupt_after: tuple[str, ...] = ()
    # Agent fields, defaults of the `model` and `tools` nodes:
    key: str | None = None
    name: str | None = None
    icon: str | dict[str, Any] | None = None
    provider_key: str | None = None
    model: str | None = None
    options: dict[str, Any] | None = None
    tools: tuple[str, ...] | None = None
    keywords: tuple[str, ...] | None = None
    approval: str | dict[str, str] | None = None
    compute: str | None = None
    output: str | None = None
    tool_policy: str | None = None
    verify: str | None = None
    context: dict[str, Any] | None = None


NODE_FORMS = ("use", "map", "parallel", "graph", "ask")
AGENT_FIELDS = frozenset(
    "key name icon description providerKey model options tools keywords approval compute output toolPolicy verify "
    "context budget".split()
)
"""Wire names that an agent file may have in either form (E23)."""


def document_schema() -> dict[str, Any]:
    """The JSON Schema of a graph file, generated from the structs above."""
    schema = msgspec.json.schema(GraphDefinition)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "graphflow graph"
    return schema


def decode_document(data: bytes | dict[str, Any]) -> GraphDefinition:
    """A document that was validated before (E20); raises `msgspec.ValidationError` for any other."""
    if isinstance(data, dict):
        return msgspec.convert(data, GraphDefinition)
    return msgspec.json.decode(data, type=GraphDefinition)


def encode_document(document: GraphDefinition) -> dict[str, Any]:
    """The document as plain JSON data, defaults left out."""
    out: dict[str, Any] = msgspec.to_builtins(document)
    return out
