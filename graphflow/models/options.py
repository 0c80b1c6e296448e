"""What a caller asks of a model besides the messages: options, and the tools that are offered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec

from graphflow.excerpts import excerpt_of
from graphflow.http_headers import can_be_sent
from graphflow.models.fallback_names import names_of

Compute = Literal["LOW", "MEDIUM", "HIGH"]
PromptCache = Literal["off", "5m", "1h"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)
_CACHE_TIMES: tuple[str, ...] = get_args(PromptCache)

# The client reads its own stream and its own messages, and knows its own credentials: these fields are nobody else's.
_NOT_EXTRA = frozenset(
    "messages model stream stream_options tools functions function_call n".split()
    + "headers extra_headers default_headers extra_body extra_query authorization cookie api_key api_base base_url client"
    " client_args provider timeout max_retries".split()
)
_OWN_OPTION = {
    "temperature": "temperature", "top_p": "topP", "max_tokens": "maxOutputTokens", "max_completion_tokens": "maxOutputTokens",
    "stop": "stop", "seed": "seed", "random_seed": "seed", "tool_choice": "toolChoice", "reasoning_effort": "reasoningEffort",
    "parallel_tool_calls": "parallelToolCalls", "response_format": "responseFormat",
}  # fmt: skip
"""Fields of a request that have an option of their own."""
_NOT_HEADERS = frozenset(
    "authorization proxy-authorization api-key x-api-key x-goog-api-key cookie set-cookie host connection trailer upgrade"
    " content-type content-length content-encoding transfer-encoding accept accept-encoding expect".split()
)
"""Headers of ours: credentials, and what the connection and the body need."""
_DOCUMENT_NAMES = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "timeoutMs": "timeout_s",
    "stop": "stop",
    "seed": "seed",
    "reasoningEffort": "reasoning_effort",
    "promptCache": "prompt_cache",
    "toolChoice": "tool_choice",
    "parallelToolCalls": "parallel_tool_calls",
    "responseFormat": "response_format",
    "limits": "limits",
    "headers": "headers",
    "extra": "extra",
    "fallback": "fallback",
}
_ALIASES = {"maxTokens": "maxOutputTokens"}
OPTION_NAMES = frozenset(_DOCUMENT_NAMES) | frozenset(_ALIASES)
"""The fields of an `options` block."""
_MOST = 2**53


class OneTool(msgspec.Struct, frozen=True):
    """A tool choice: the model must call the tool of this name."""

    name: str


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it is offered to a model."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of the arguments."""


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the answer's text."""

    schema: dict[str, Any] | None = None
    """JSON Schema of the answer; `None`: any JSON object."""
    strict: bool = False
    """Whether the provider must enforce it; needs a schema of which `strict_misfit` finds nothing wrong."""
    name: str = "answer"


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of one call, in seconds; `None` leaves the provider's."""

    connect_s: float | None = None
    first_token_s: float | None = None
    idle_s: float | None = None
    total_s: float | None = None


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one model call; `None` leaves the choice to the provider.

    Raises:
        ValueError: for a value outside its range, naming option, value and range.
    """

    temperature: float | None = None
    """0 to 2."""
    top_p: float | None = None
    """Above 0, at most 1."""
    max_tokens: int | None = None
    """Most tokens that the model may write, reasoning included."""
    timeout_s: float | None = None
    """Ceiling of the whole call with its retries; `None`: the client's own (600 s)."""
    stop: tuple[str, ...] = ()
    seed: int | None = None
    """Makes answers repeatable, as far as the provider can."""
    tool_choice: Literal["none", "auto", "required"] | OneTool | None = None
    parallel_tool_calls: bool | None = None
    schema: dict[str, Any] | None = None
    """JSON Schema that the answer's text must fit (structured output); wins over `response_format`."""
    response_format: ResponseFormat | None = None
    compute: Compute | None = None
    """How hard the model may think; maps onto the provider's own knobs, ignored where it has none."""
    reasoning_effort: Effort | None = None
    """The same in the provider's words; wins over `compute`."""
    prompt_cache: PromptCache | None = None
    """How long the provider keeps the prompt, where that is asked for (Claude); `None`: 5 minutes where tools are offered."""
    limits: CallLimits | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Sent with the request; credentials and headers of the client's own are refused."""
    fallback: tuple[str, ...] | None = None
    """Models (`PROVIDER/MODEL`) that are asked in this order where one fails before its first delta; `None`: those of the
    provider's table."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """Fields added to the request as they are, for what only one provider knows."""

    def __post_init__(self) -> None:
        # Checked here and not at the provider: its refusal would come in the middle of a run.
        _range("temperature", self.temperature, 0, 2)
        _range("top_p", self.top_p, 0, 1, low_open=True)
        _range("max_tokens", self.max_tokens, 1, None, whole=True)
        _range("seed", self.seed, -_MOST, _MOST, whole=True)
        _range("timeout_s", self.timeout_s, 0, None, low_open=True)
        if self.compute not in (None, "LOW", "MEDIUM", "HIGH"):
            raise ValueError(f"compute is {self.compute!r}; it is LOW, MEDIUM or HIGH")
        if self.reasoning_effort is not None and self.reasoning_effort not in EFFORTS:
            raise ValueError(f"reasoning_effort is {self.reasoning_effort!r}; it is one of {', '.join(EFFORTS)}")
        if self.prompt_cache is not None and self.prompt_cache not in _CACHE_TIMES:
            raise ValueError(f"prompt_cache is {self.prompt_cache!r}; it is one of {', '.join(_CACHE_TIMES)}")
        if self.fallback is not None:
            names_of(self.fallback)
        stop: Any = self.stop
        # A string is a sequence of strings to Python, and would become stop words of one letter each.
        if isinstance(stop, str) or not all(isinstance(s, str) and s for s in stop):
            raise ValueError(f"stop is {self.stop!r}; it must be a list of texts that are not empty")
        if not isinstance(self.tool_choice, OneTool) and self.tool_choice not in (None, "none", "auto", "required"):
            raise ValueError(f"tool_choice is {self.tool_choice!r}; it is none, auto, required or {{name}}")
        if self.parallel_tool_calls not in (None, True, False):
            raise ValueError(f"parallel_tool_calls is {self.parallel_tool_calls!r}; it is true or false")
        if self.limits is not None and not isinstance(self.limits, CallLimits):
            raise ValueError(f"limits is {excerpt_of(self.limits)}; it is CallLimits(idle_s=…)")
        for name in CallLimits.__struct_fields__ if self.limits is not None else ():
            _range(f"limits.{name}", getattr(self.limits, name), 0, None, low_open=True)
        if self.extra != {} and (wrong := next(_extra_issues(self.extra), None)):
            raise ValueError(wrong)
        if self.headers != {} and (wrong := next(_header_issues(self.headers), None)):
            raise ValueError(wrong)


def options_from_document(*levels: Mapping[str, Any] | None, **given: Any) -> ChatOptions:
    """The options of `options` blocks (`topP`, `maxOutputTokens` …), the later ones over the earlier.

    `given` are fields of `ChatOptions` by their Python names; they win over all blocks.

    Raises:
        ValueError: for an unknown name or a value outside its range.
    """
    fields: dict[str, Any] = {}
    written: dict[str, str] = {}
    for level in levels:
        for name, value in (level or {}).items():
            known = _ALIASES.get(name, name)
            if known not in _DOCUMENT_NAMES:
                raise ValueError(f"unknown option {name!r}; options are {', '.join(_DOCUMENT_NAMES)}")
            written[_DOCUMENT_NAMES[known]] = name
            try:
                fields[_DOCUMENT_NAMES[known]] = _from_document(known, value)
            except (TypeError, AttributeError) as error:
                raise ValueError(f"{name} is {excerpt_of(value)}, which it can't be") from error
    try:
        return ChatOptions(**{**fields, **given})
    except ValueError as error:
        field = str(error).partition(" ")[0].partition(".")[0]
        name = written.get(field, field)
        raise ValueError(str(error) if name == field else f"{name}: {error}") from None


def _from_document(name: str, value: Any) -> Any:
    if value is None:
        # `null` in a file means "not set", which for these is empty rather than None.
        return {"stop": (), "extra": {}, "headers": {}}.get(name)
    match name:
        case "timeoutMs":
            _range(name, value, 0, None, low_open=True)
            return value / 1000
        case "stop":
            return (value,) if isinstance(value, str) else tuple(value)
        case "toolChoice":
            return _tool_choice(value)
        case "responseFormat":
            return response_format(value)
        case "limits":
            return _limits(value)
        case "fallback":
            return names_of(value)
        case "extra" | "headers" if isinstance(value, Mapping):
            return dict(value)
    return value


def _tool_choice(value: Any) -> Any:
    if isinstance(value, Mapping):
        return OneTool(str(value.get("name", "")))
    # Any other text is the name of a tool.
    return value if value in ("none", "auto", "required") or not isinstance(value, str) else OneTool(value)


def _limits(value: Any) -> CallLimits:
    fields: dict[str, float] = {}
    names = {"connectMs": "connect_s", "firstTokenMs": "first_token_s", "idleMs": "idle_s", "totalMs": "total_s"}
    for name, limit in dict(value).items():
        if name not in names:
            raise ValueError(f"unknown limit {name!r}; limits are {', '.join(names)}")
        _range(f"limits.{name}", limit, 0, None, low_open=True)
        if limit is not None:
            fields[names[name]] = limit / 1000
    return CallLimits(**fields)


def response_format(value: Any) -> ResponseFormat:
    """The form in a document: a JSON Schema, `{schema, strict, name}`, or as in OpenAI's requests.

    A bare schema is strict if it can be.

    Raises:
        ValueError: it is none of these, or strict and not of the strict subset.
    """
    if not isinstance(value, Mapping):
        raise ValueError(
            f"responseFormat is {excerpt_of(value)}; it is a JSON Schema of an object, or {{schema, strict}}"
        )
    form = dict(value)
    if form.get("type") == "json_object":
        return ResponseFormat()
    if isinstance(form.get("json_schema"), Mapping):
        form = dict(form["json_schema"])
    if not isinstance(form.get("schema"), Mapping):
        form = {"schema": form}
    if unknown := form.keys() - {"schema", "strict", "name", "description", "type"}:
        raise ValueError(f"responseFormat has {sorted(unknown)!r}; beside `schema` it has `strict` and `name`")
    schema, strict, name = dict(form["schema"]), form.get("strict"), form.get("name", "answer")
    if schema.get("type") != "object":
        raise ValueError(f"responseFormat must be of an object, not of type {excerpt_of(schema.get('type'))}")
    if strict not in (None, True, False):
        raise ValueError(f"responseFormat.strict is {excerpt_of(strict)}; it is true or false")
    if not isinstance(name, str) or not (0 < len(name) <= 64 and name.replace("-", "_").isidentifier()):
        raise ValueError(f"responseFormat.name is {excerpt_of(name)}; it has 1 to 64 letters, digits, _ and -")
    misfit = strict_misfit(schema)
    if strict and misfit:
        raise ValueError(f"responseFormat is strict, and {misfit}")
    return ResponseFormat(schema=schema, strict=fits_strict(schema) if strict is None else strict, name=name)


_STRICT = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "description", "title", "anyOf", "$ref",
    "$defs", "definitions", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minItems", "maxItems",
})  # fmt: skip
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_NO_SCHEMAS = frozenset({"enum", "const", "default", "examples", "required", "type", "additionalProperties"})
"""Keywords whose value is data or names."""


def strict_misfit(schema: Any) -> str | None:
    """Why providers refuse to enforce a schema, or None: every object must list all its properties, and no others.

    See https://platform.openai.com/docs/guides/structured-outputs#supported-schemas.
    """
    return next((wrong for is_open, wrong in _strict_issues(schema) if is_open), None)


def fits_strict(schema: Any) -> bool:
    """Whether OpenAI takes the schema as a strict one: only some keywords besides. Others it refuses as strict."""
    return next(_strict_issues(schema), None) is None


def _strict_issues(schema: Any, pointer: str = "") -> Iterator[tuple[bool, str]]:
    """`(whether an object is open, the error)` of each part that keeps a schema from being strict."""
    place = pointer or "/"
    if not isinstance(schema, Mapping) or not schema:
        yield False, f"{place} must be a schema that says something"
        return
    if more := schema.keys() - _STRICT:
        yield False, f"{place} has {sorted(map(str, more))!r}"
    if not pointer and schema.get("type") != "object":
        yield False, f"{place} must be of an object"
    if "format" in schema and schema["format"] not in _FORMATS:
        yield False, f"{place} has the format {excerpt_of(schema['format'])}"
    if schema.get("type") == "object" or "properties" in schema:
        names, required = schema.get("properties", {}), schema.get("required", ())
        if schema.get("additionalProperties") is not False:
            yield True, f"{place} needs additionalProperties: false"
        fits = isinstance(names, Mapping) and isinstance(required, list | tuple)
        if not fits or any(name not in required for name in names) or any(name not in names for name in required):
            yield True, f"{place} must require all its properties"
    for key, part in schema.items():
        if key in _NO_SCHEMAS:
            continue
        if key in ("properties", "$defs", "definitions") and isinstance(part, Mapping):
            inner = [(f"{pointer}/{key}/{name}", each) for name, each in part.items()]
        elif isinstance(part, list) and key != "items":
            inner = [(f"{pointer}/{key}/{position}", each) for position, each in enumerate(part)]
        elif isinstance(part, Mapping) or key == "items":
            inner = [(f"{pointer}/{key}", part)]
        else:
            continue
        for at, each in inner:
            yield from _strict_issues(each, at)


def _extra_issues(extra: Any) -> Iterator[str]:
    if not isinstance(extra, Mapping) or not all(isinstance(name, str) for name in extra):
        yield f"extra is {excerpt_of(extra)}; it must be an object of fields"
        return
    taken = sorted(name for name in extra if name.lower() in _NOT_EXTRA)
    if taken:
        yield f"extra has {taken!r}; these fields are set by the client, leave them out"
    own = {name: _OWN_OPTION[name] for name in sorted(extra) if name in _OWN_OPTION}
    if own:
        yield f"extra has {sorted(own)!r}; set the option {', '.join(dict.fromkeys(own.values()))} instead"
    try:
        msgspec.json.encode(extra)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        yield f"extra is not JSON: {error}"


def _header_issues(headers: Any) -> Iterator[str]:
    if not isinstance(headers, Mapping):
        yield f"headers is {excerpt_of(headers)}; it must be an object of texts"
        return
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or not can_be_sent(name, value):
            yield f"header {excerpt_of(name)} can't be sent; names and values of headers are plain ASCII"
        elif name.lower() in _NOT_HEADERS:
            yield f"header {name!r} is set by the client, which knows the credentials; leave it out"


def _range(
    name: str, value: Any, low: float, high: float | None, *, low_open: bool = False, whole: bool = False
) -> None:
    if value is None:
        return
    # `True` is an `int` to Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    too_low = value <= low if low_open else value < low
    # NaN passes every comparison, so it needs a check of its own; a float that no integer can be has none.
    if too_low or (isinstance(value, float) and not math.isfinite(value)) or (high is not None and value > high):
        lower = f"above {low}" if low_open else f"at least {low}"
        raise ValueError(f"{name} is {value!r}; it must be {lower}" + ("" if high is None else f" and at most {high}"))
    if whole and not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}; it must be a whole number")
