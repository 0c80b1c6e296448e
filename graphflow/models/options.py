"""What a caller asks of a model besides the messages: options, and the tools that are offered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Compute = Literal["LOW", "MEDIUM", "HIGH"]

# The client reads its own stream and its own messages; overriding these fields would break its reading.
_NOT_EXTRA = frozenset({"messages", "model", "stream", "tools"})
_DOCUMENT_NAMES = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxTokens": "max_tokens",
    "timeoutMs": "timeout_s",
    "stop": "stop",
    "toolChoice": "tool_choice",
    "parallelToolCalls": "parallel_tool_calls",
    "extra": "extra",
}


class OneTool(msgspec.Struct, frozen=True):
    """A tool choice: the model must call the tool of this name."""

    name: str


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it is offered to a model."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of the arguments."""


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
    tool_choice: Literal["none", "auto", "required"] | OneTool | None = None
    parallel_tool_calls: bool | None = None
    schema: dict[str, Any] | None = None
    """JSON Schema that the answer's text must fit (structured output)."""
    compute: Compute | None = None
    """How hard the model may think; maps onto the provider's own knobs, ignored where it has none."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """Fields added to the request as they are, for what only one provider knows."""

    def __post_init__(self) -> None:
        # Checked here and not at the provider: its refusal would come in the middle of a run.
        _range("temperature", self.temperature, 0, 2)
        _range("top_p", self.top_p, 0, 1, low_open=True)
        _range("max_tokens", self.max_tokens, 1, None)
        _range("timeout_s", self.timeout_s, 0, None, low_open=True)
        if self.max_tokens is not None and not isinstance(self.max_tokens, int):
            raise ValueError(f"max_tokens is {self.max_tokens!r}; it must be a whole number")
        if self.compute not in (None, "LOW", "MEDIUM", "HIGH"):
            raise ValueError(f"compute is {self.compute!r}; it is LOW, MEDIUM or HIGH")
        stop: Any = self.stop
        # A string is a sequence of strings to Python, and would become stop words of one letter each.
        if isinstance(stop, str) or not all(isinstance(s, str) and s for s in stop):
            raise ValueError(f"stop is {self.stop!r}; it must be a list of texts that are not empty")
        if not isinstance(self.tool_choice, OneTool) and self.tool_choice not in (None, "none", "auto", "required"):
            raise ValueError(f"tool_choice is {self.tool_choice!r}; it is none, auto, required or {{name}}")
        taken = _NOT_EXTRA & self.extra.keys()
        if taken:
            raise ValueError(f"extra has {sorted(taken)!r}; these fields are set by the client, leave them out")


def options_from_document(data: Mapping[str, Any] | None, **given: Any) -> ChatOptions:
    """The options of an agent file's `options` block (`topP`, `maxTokens`, `timeoutMs` …).

    `given` are fields of `ChatOptions` by their Python names; they win over the block.

    Raises:
        ValueError: for an unknown name or a value outside its range.
    """
    fields: dict[str, Any] = {}
    for name, value in (data or {}).items():
        if name not in _DOCUMENT_NAMES:
            raise ValueError(f"unknown option {name!r}; options are {', '.join(_DOCUMENT_NAMES)}")
        fields[_DOCUMENT_NAMES[name]] = _from_document(name, value)
    return ChatOptions(**{**fields, **given})


def _from_document(name: str, value: Any) -> Any:
    if value is None:
        # `null` in a file means "not set", which for these two is empty rather than None.
        return {"stop": (), "extra": {}}.get(name)
    if name == "timeoutMs":
        _range(name, value, 0, None, low_open=True)
        return value / 1000
    if name == "stop":
        return (value,) if isinstance(value, str) else tuple(value)
    if name == "toolChoice" and isinstance(value, Mapping):
        return OneTool(str(value.get("name", "")))
    return value


def _range(name: str, value: Any, low: float, high: float | None, *, low_open: bool = False) -> None:
    if value is None:
        return
    # `True` is an `int` to Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    too_low = value <= low if low_open else value < low
    # NaN passes every comparison, so it needs a check of its own.
    if too_low or not math.isfinite(value) or (high is not None and value > high):
        lower = f"above {low}" if low_open else f"at least {low}"
        raise ValueError(f"{name} is {value!r}; it must be {lower}" + ("" if high is None else f" and at most {high}"))
