"""The document: a graph as data (spec 2.1), as frozen msgspec structs.

These structs are the one definition of the format. The published JSON Schema is generated from
them, `struct_validation.py` checks what people wrote against them and reports every error, and a stored
document is decoded into them without a second validation (E20).
Wire names are camelCase; the few that Python reserves (`if`, `as`, `map`) are renamed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from graphflow.approval_mode import ApprovalRule

END, FAIL = "end", "fail"
RESERVED_NODES = (END, FAIL)

DEFAULT_INPUT_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"query": {"type": "string"}}}
"""The input of a document that declares none (E9)."""


# Strict: a misspelt key that is ignored would silently change what an agent does. Without defaults: the hash covers
# what was written, so a new key with a default leaves every stored hash as it is (E23).
class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Base of every part of a document: strict, immutable, written without defaults."""


class Route(_Part, frozen=True):
    """One entry of `next`: the first whose condition holds is taken; the last has none."""

    to: str
    """The next node, `end` or `fail`."""
    when: str | None = msgspec.field(name="if", default=None)
    """CEL condition over the state after the node, `out` or `answer`, `visits`, `limits` and more. Absent: always."""


class Choose(_Part, frozen=True):
    """Nodes among which a Python node chooses by returning `Goto`."""

    choose: tuple[str, ...]
    """The nodes that the function may return in `Goto`; `end` and `fail` are allowed."""


class ErrorRoute(_Part, frozen=True):
    """Where a failure with one of these codes goes."""

    to: str
    """The node that handles the failure, `end` or `fail`."""
    on: tuple[str, ...] = ("any",)
    """Error codes; `any` is every code."""


class Retry(_Part, frozen=True):
    """How often and when a failed attempt of a node is repeated."""

    max: int = 3
    """Number of attempts, including the first."""
    on: tuple[str, ...] = ("timeout", "rate_limit", "provider_error", "connection")
    """Error codes after which another attempt is made; `any` is every code."""
    backoff_ms: int = 500
    """Milliseconds before the second attempt."""
    factor: float = 2.0
    """Each further delay is this many times the one before."""
    max_backoff_ms: int = 30_000
    """Longest delay, in milliseconds."""
    jitter: float = 0.2
    """Random share of the delay, 0 to 1."""


class Join(_Part, frozen=True):
    """When a `map` or `parallel` node is complete, and what a failed branch means."""

    wait: str | int = "all"
    """`all`, `any`, or how many branches must finish; then the others are cancelled."""
    on_error: Literal["fail", "collect", "skip"] = "fail"
    """`fail`: the first failed branch fails the node. `collect`: it counts as finished and appears in `out` with its
    error. `skip`: it does not count and is left out."""


class GraphRef(_Part, frozen=True):
    """A branch that runs a subgraph."""

    graph: str | dict[str, Any]
    """Key of a graph or agent, or a graph in place."""
    with_: Any = msgspec.field(name="with", default=None)
    """Input of the subgraph. Absent: the `with` of the `map` or `parallel` node, else `{AS: item}` in a map and `{}`
    in a parallel."""


class Branch(_Part, frozen=True):
    """A named branch of a `parallel` node."""

    do: str | GraphRef
    """The first node of the branch, or a subgraph."""
    after: tuple[str, ...] = ()
    """Branches that must finish before this one begins; it sees their writes."""


class Ask(_Part, frozen=True):
    """A question to a person."""

    message: str
    """What the person reads; `${…}` inserts values."""
    show: str | None = None
    """CEL expression; its value is sent with the question."""
    schema: dict[str, Any] = msgspec.field(default_factory=dict)
    """JSON Schema of the answer."""
    owner: str | None = None
    """Who should answer; the inbox filters by it."""
    role: str | None = None
    """Role that should answer; the inbox filters by it."""
    hold_ms: int | None = None
    """Milliseconds that a live stream waits for the answer before it ends with `run.waiting`."""
    expires: str | None = None
    """When the question expires: an ISO 8601 duration (`P2D`, `PT15M`)."""
    on_expire: str | None = None
    """The node to go to when the question expires. Absent: the node fails with `timeout`."""


class Budget(_Part, frozen=True):
    """Limits of one run; absent means no limit."""

    max_rounds: int | None = None
    """Rounds; conditions read it as `limits.rounds`."""
    max_steps: int | None = None
    """Finished nodes."""
    max_model_calls: int | None = None
    """Model calls, including retries and verification."""
    max_tool_calls: int | None = None
    """Tool calls."""
    max_tokens: int | None = None
    """Prompt and completion tokens."""
    max_cost_usd: float | None = None
    """Cost in USD; needs a price for each model."""
    timeout_ms: int | None = None
    """Active time in milliseconds; waiting for people does not count."""
    on_exceeded: str | None = None
    """The node that wraps up when a limit is used up. Absent: the run fails with `budget_exceeded`."""


class NodeDefinition(_Part, frozen=True):
    """A node has exactly one of `use`, `map`, `parallel`, `graph` and `ask`."""

    use: str | None = None
    """What the node runs: `model`, `tools`, `tool:NAME`, `wait`, `fn:NAME`, `node:NAME` and more; `graphflow schema
    nodes` lists them."""
    map: str | None = None
    """CEL expression of a list: a branch for each item."""
    parallel: dict[str, str | Branch] | None = None
    """Branch name to the first node of the branch, or to its definition."""
    graph: str | dict[str, Any] | None = None
    """Key of a graph or agent that runs as a subgraph, or a graph in place."""
    stream: Literal["content"] | None = None
    """Of a `graph`: the text of its models is streamed as at the root. Absent: it is hidden."""
    ask: Ask | None = None
    """A question to a person."""
    with_: Any = msgspec.field(name="with", default=None)
    """Arguments of `use`, or input of the subgraph. `${…}` inserts values; a string that is one `${…}` keeps the
    value's type."""
    set: dict[str, str] = msgspec.field(default_factory=dict)
    """State key to a CEL expression over `out` or `answer`, and the state before the node."""
    next: str | tuple[Route, ...] | Choose | None = None
    """Where the thread goes next: a node, `end`, `fail`, or a list of routes; the first one whose condition is true is taken."""
    error: tuple[ErrorRoute, ...] = ()
    """Where a failure goes after the last attempt. Absent: the run fails."""
    retry: Retry | None = None
    """When a failed attempt is repeated. Absent: never."""
    timeout_ms: int | None = None
    """Limit of each attempt, in milliseconds."""
    effects: Literal["none", "read", "write"] | None = None
    """What the node does to the outside."""
    idempotent: bool | None = None
    """The write may be repeated with the same key."""
    undo: str | None = None
    """`tool:NAME` or `fn:NAME` that takes the write back."""
    description: str | None = None
    """For readers and drawings."""
    as_: str | None = msgspec.field(name="as", default=None)
    """Of a `map`: the name of the item in expressions."""
    do: str | GraphRef | None = None
    """Of a `map`: the first node of the body, or a subgraph."""
    max: int | None = None
    """Of a `map`: how many branches work at once; one that waits for an answer, a signal or a time does not count. Absent: `bounds.map_max` of the settings."""
    join: Join | None = None
    """Of a `map` or `parallel`: when it is complete."""


class PerRequest(_Part, frozen=True):
    """What a request may choose for its run; everything else is refused."""

    models: tuple[str, ...] = ()
    """Models of the agent's provider that a request may name."""
    options: tuple[
        Literal["temperature", "topP", "maxOutputTokens", "maxTokens", "timeoutMs", "stop", "seed", "reasoningEffort"],
        ...,
    ] = ()
    """Options of model calls that a request may set."""
    variables: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Prompt variable to the JSON Schema of its value, with `default`; expressions read `input.variables.NAME`."""


class GraphDefinition(_Part, frozen=True):
    """A graph. Agent fields may be added; they are hashed with the rest."""

    graphflow: Literal["1"]
    """Version of the format."""
    start: str
    """The first node."""
    nodes: dict[str, NodeDefinition]
    """Node name to node."""
    version: str | None = None
    """A version for readers; runs do not use it."""
    description: str | None = None
    """What the graph is for; shown in lists."""
    input: dict[str, Any] | None = None
    """JSON Schema of the input. Absent: an object with `query`."""
    result: str | None = None
    """CEL expression for the run's output. Absent: with `messages` in the state the text of the last answer there, else the whole state."""
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    """JSON Schema of the state. Each property is a state key, with `default`, `x-reducer` and `x-scope`."""
    budget: Budget = Budget()
    """Limits of a run."""
    invariants: tuple[str, ...] = ()
    """Safety properties, proved when the graph is loaded."""
    interrupt_before: tuple[str, ...] = ()
    """Nodes before which every run stops for a person; `*` is all."""
    interrupt_after: tuple[str, ...] = ()
    """Nodes after which every run stops for a person; `*` is all."""
    # Agent fields, defaults of the `model` and `tools` nodes:
    key: str | None = None
    """Must equal the file's name, if given."""
    name: str | None = None
    """Name for people. Absent: the key."""
    icon: str | dict[str, Any] | None = None
    """For clients; passed on as it is."""
    provider_key: str | None = None
    """Default provider of `model` nodes."""
    model: str | None = None
    """Default model of `model` nodes."""
    options: dict[str, Any] | None = None
    """Default options of model calls."""
    tools: tuple[str, ...] | None = None
    """Names of the tools that `model` and `tools` nodes may use."""
    keywords: tuple[str, ...] | None = None
    """Adds the tools that are registered with one of these words."""
    approval: str | dict[str, str | ApprovalRule] | None = None
    """When a tool call needs a person: one word, or by tool name a word or `{mode, by, count}`, with `*` for the rest."""
    compute: str | None = None
    """How much the model should think: `LOW`, `MEDIUM` or `HIGH`."""
    output: str | None = None
    """`PLAIN` or `REASONING_SUMMARY`."""
    tool_policy: str | None = None
    """`ALLOW`, `DISALLOW` or `REQUIRE`."""
    verify: str | None = None
    """`NONE` or `SECOND_PASS_FIX`."""
    context: dict[str, Any] | None = None
    """Reserved; checked, and not used by this version."""
    per_request: PerRequest | None = None
    """What a request may choose for its run. Absent: nothing."""


NODE_FORMS = ("use", "map", "parallel", "graph", "ask")
AGENT_FIELDS = frozenset(
    "key name icon description providerKey model options tools keywords approval compute output toolPolicy verify "
    "context budget perRequest".split()
)
"""Wire names that an agent file may have in either form (E23)."""


def document_schema() -> dict[str, Any]:
    """The JSON Schema of a graph file, generated from the structs above."""
    from graphflow.graph.definition.field_docs import allow_schema, describe_fields

    schema = msgspec.json.schema(GraphDefinition)
    describe_fields(schema["$defs"], GraphDefinition)
    allow_schema(schema["$defs"], GraphDefinition)
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
