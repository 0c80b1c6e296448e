"""The front door of tools: `Tool`, the `@tool` decorator, and the types that a tool and its caller share.

Importing this loads neither pydantic nor structlog.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypedDict, Unpack, get_args, overload

from graphflow.arguments import checked
from graphflow.capabilities import GUARDED, unknown_capability
from graphflow.models.options import ToolSpec
from graphflow.tools.context import RunnerContext, Terminated, ToolContext
from graphflow.tools.docstring import parse_docstring
from graphflow.tools.envelope import completed, wrap
from graphflow.tools.function import FunctionBody
from graphflow.tools.result import ArgumentsRefused, ToolFailure, ToolResult, ToolStatus, failed
from graphflow.tools.schema import taken_arguments
from graphflow.tools.signature import FunctionSignature, SchemaSignature

ToolKind = Literal["backend", "action", "frontend"]
Effects = Literal["none", "read", "write"]
ViewportType = Literal["html", "qlc", "dqlc"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}([.:][^\s\x00-\x1f]{1,256})?", re.ASCII)
"""A name that providers take, or one with an owner (`SERVER.TOOL`, `agent:KEY`), which they get in another form."""
_UNDO = re.compile(r"(tool|fn):.+")


class ToolFields(TypedDict, total=False):
    """The fields of `Tool` that `@tool` takes beside its name, description and parameters."""

    effects: Effects
    idempotent: bool
    undo: str | None
    prompt: str | None
    after_call_hint: str | None
    approval_hint: str | None
    approval_warning: Callable[[Mapping[str, Any], str | None], str | None] | None
    capabilities: Sequence[str]
    timeout_s: float | None
    hold_ms: int | None
    version: str | None
    templates: bool
    kind: ToolKind
    viewport: str | None
    viewport_type: ViewportType | None
    payload: Mapping[str, Any] | None
    whole_envelope: bool
    schema: Mapping[str, Any] | None


class ToolRecovery(Protocol):
    """What a write tool keeps before it acts: to take it back, and to know after a crash what happened."""

    async def before(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        """JSON-able, bytes as parts of a message; recorded with the intent, and shown to nobody."""

    async def outcome(self, arguments: Mapping[str, Any], kept: Any, ctx: ToolContext) -> ToolResult | bool | None:
        """After a crash: the result of the call, False where it surely did nothing, None where nobody knows."""


class ToolBody(Protocol):
    """The executable part of a tool."""

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""

    def prepare(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Checked and converted arguments; raises `ArgumentsRefused` with every error."""

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        """The raw value of one call with prepared arguments."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool: what the model sees, how it is treated, and the body that does the work."""

    name: str
    body: ToolBody
    description: str = ""
    kind: ToolKind = "backend"
    effects: Effects = "write"
    """What it does to the world (E6); a `write` is recorded and never run twice."""
    idempotent: bool = False
    """A `write` that may be repeated under the same idempotency key."""
    undo: str | None = None
    """`tool:NAME` of the tool that takes this one's effect back."""
    recovery: ToolRecovery | None = None
    """Of a write: what is kept before it acts."""
    prompt: str | None = None
    """Added to the system prompt of agents that have the tool."""
    after_call_hint: str | None = None
    """Added for the model after a call of the tool."""
    approval_hint: str | None = None
    """Why a person should look first; a tool that has one is asked about in approval mode AUTO."""
    approval_warning: Callable[[Mapping[str, Any], str | None], str | None] | None = None
    """What the person who is asked has to know about one call: a sentence, or None, from its arguments and the key of the
    agent that makes it. It may look at files. Where it says something else once the call is
    approved, the person is asked again."""
    capabilities: Sequence[str] = ()
    """What it does to the world beside its work: `agents:write`, `rules:write`, `files:write`, `net`, `shell`. A call needs
    them of the agent, which grants them by listing the tool, and of who started the run. A tool that changes what agents may
    do (`agents:write`, `rules:write`) is always asked about, and only a person with the scope `admin` answers."""
    hold_ms: int | None = None
    """How long a live stream waits for a person; None: the default of the edge (E12)."""
    viewport: str | None = None
    """Key of the viewport that a frontend tool renders."""
    viewport_type: ViewportType | None = None
    """What kind of viewport that is; given exactly for frontend tools."""
    payload: Mapping[str, Any] | None = None
    """JSON Schema of what a person submits to a frontend tool; other data is rejected. None: anything."""
    timeout_s: float | None = None
    """None: the runner's default."""
    version: str | None = None
    """Declared by the author; enters the hash of documents that use the tool (E23)."""
    asks: bool = False
    """Whether a call may return `InputNeeded`: it goes on after people have answered."""
    fingerprint: str | None = None
    """Of a tool that others describe: changes with its description and schema. A standing `allow` holds for one of them only."""
    whole_envelope: bool = False
    """The model and the wire get the whole envelope (coding tools)."""
    templates: bool = True
    """Whether `{{tool.field}}` in arguments is resolved; off for tools that take source text."""
    schema: Mapping[str, Any] | None = None
    """Replaces the body's schema for the model; arguments must fit both."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"tool name {self.name!r}: use 1 to 64 letters, digits, `_` and `-`, as providers demand")
        # A word that is taken for another one is found when a write has been done twice, or can't be taken back.
        if self.effects not in get_args(Effects):
            raise ValueError(
                f"tool {self.name!r}: effects is {self.effects!r}; use one of {', '.join(get_args(Effects))}"
            )
        if self.undo is not None and not _UNDO.fullmatch(str(self.undo)):
            raise ValueError(
                f"tool {self.name!r}: undo is {self.undo!r}; name what takes its effect back as `tool:NAME`"
            )

        if isinstance(self.capabilities, str) or (wrong := unknown_capability(self.capabilities)):
            wrong = f"{self.capabilities!r} is a text; write a list" if isinstance(self.capabilities, str) else wrong
            raise ValueError(f"tool {self.name!r}: capabilities: {wrong}")
        object.__setattr__(self, "capabilities", tuple(dict.fromkeys(self.capabilities)))

    @property
    def is_guarded(self) -> bool:
        """Whether it changes what agents may do, so that a person with the scope `admin` is asked about each call."""
        return not GUARDED.isdisjoint(self.capabilities)

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, as the model gets it."""
        return dict(self.schema) if self.schema is not None else self.body.parameters

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description or self.name, parameters=self.parameters)

    @property
    def start_facts(self) -> dict[str, Any]:
        """The facts of `tool.start` or `action.start` besides the name: description, type, viewport."""
        facts: dict[str, Any] = {"description": self.description or None}
        if self.kind != "action":
            facts["tool_type"] = self.viewport_type or "function"
        if self.viewport is not None:
            facts["tool_api"] = self.viewport
        return facts

    def prepare(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Checked arguments for `run`.

        Raises:
            ArgumentsRefused: with every error: which field, what value, what rule.
        """
        # The model saw this schema, so its errors come first, in the words that it knows.
        return self.body.prepare(arguments if self.schema is None else taken_arguments(arguments, self.schema))

    async def call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        """Checks the arguments and runs the tool once, without approval, record or time limit."""
        try:
            prepared = self.prepare(arguments)
        except ArgumentsRefused as refused:
            return completed(refused_result(self.name, refused), arguments)
        return completed(wrap(await self.body.run(prepared, ctx), tool=self.name), arguments)

    def changed(self, **fields: Any) -> Tool:
        """A copy of the tool with these fields changed."""
        return dataclasses.replace(self, **fields)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the decorated function as it is, for tests and other code."""
        if not isinstance(self.body, FunctionBody):
            raise TypeError(f"tool {self.name!r} is not a Python function; use its `call`")
        return self.body.function(*args, **kwargs)


def refused_result(name: str, refused: ArgumentsRefused) -> ToolResult:
    """The error result that tells the model exactly which arguments are wrong."""
    return failed(
        "INVALID_PARAM",
        f"the arguments of {name} do not fit: {refused}",
        f"Call {name} again with every one of these fixed.",
    )


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    **fields: Unpack[ToolFields],
) -> Callable[[Callable[..., Any]], Tool]: ...
@checked
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    **fields: Unpack[ToolFields],
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a tool of a typed function: `@tool`, or `@tool(effects="read", …)`.

    The schema comes from the signature and the docstring, arguments are checked by pydantic, and a parameter that
    is annotated `ToolContext` or named `ctx` gets the context. A sync function runs in a thread. A generator sends
    each yield as progress; its return value, else its last yield, is the result. The tool can still be called as
    the function it was.

    Args:
        function: the function; given by bare `@tool`.
        name: default: the function's name.
        description: default: the docstring up to its first section.
        parameters: a JSON Schema that replaces the signature's; pydantic is then not used.
        **fields: other fields of `Tool`.

    Raises:
        TypeError: for a parameter that can't be given by name.
    """

    def make(made: Callable[..., Any]) -> Tool:
        said = parse_docstring(inspect.getdoc(made))
        signature = FunctionSignature(made, said.parameters) if parameters is None else SchemaSignature(parameters)
        return Tool(
            name=name or made.__name__,
            description=said.description if description is None else description,
            body=FunctionBody(made, signature),
            **fields,
        )

    return make if function is None else make(function)


__all__ = [
    "ArgumentsRefused", "Effects", "RunnerContext", "Terminated", "Tool", "ToolBody", "ToolContext", "ToolFailure",
    "ToolKind", "ToolResult", "ToolStatus", "failed", "tool",
]  # fmt: skip
