"""The text of a tool result that the wire and the model get (spec 3.3), cut to a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.tools.envelope import json_text, to_envelope
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolFailure, ToolResult


def wire_text(result: ToolResult, tool: Tool | None) -> str:
    """What `tool.result.result` and the model get (spec 3.3): a string.

    `"OK"` for an action, the whole envelope for a coding tool, the data (or text) for others; an error says code,
    message and next step.

    Args:
        result: of one call.
        tool: None when no such tool exists.
    """
    # The cut is made once; cutting a cut text again would add a second notice.
    if result.cut_text:
        return result.cut_text
    # Before the error: a coding tool's envelope carries its error inside.
    if tool is not None and tool.whole_envelope:
        envelope = to_envelope(result)
        context = envelope["context"]
        # The model wrote the arguments, and need not read all of them again.
        return json_text({**envelope, "context": {**context, "params_input": _shortened(context["params_input"])}})
    if result.error is not None:
        return _error_text(result, result.error)
    if tool is not None and tool.kind == "action":
        return "OK"
    return json_text(result.data) if result.data else result.text or "OK"


LONGEST_ARGUMENT = 1_000
"""Characters of an argument that an envelope repeats."""


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_ARGUMENT:
        return f"{value[:200]}… [{len(value)} characters]"
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_shortened(item) for item in value[:20]]
        return items if len(value) <= 20 else [*items, f"… [{len(value)} items]"]
    return value


def cut_to(result: ToolResult, tool: Tool | None, max_chars: int) -> ToolResult:
    """The result with a `cut_text` when its text for the model is longer than `max_chars`.

    Such a result is `partial` and says so; its data stays whole.
    """
    whole = wire_text(result, tool)
    if len(whole) <= max_chars:
        return result
    notice = f"{max_chars} of {len(whole)} characters shown, the whole is kept; ask for less, or for a part"
    cut_text = f"{whole[:max_chars]}\n[CUT: {notice}]"
    if result.error is not None:
        return msgspec.structs.replace(result, cut_text=cut_text, whole_text=whole)
    # The text is replaced by the notice, so a result of text alone keeps it as data.
    data = {**(result.data or {"text": result.text}), "truncated": True}
    return msgspec.structs.replace(
        result, status="partial", data=data, text=f"Cut for the model: {notice}.", cut_text=cut_text, whole_text=whole
    )


def _error_text(result: ToolResult, error: ToolFailure) -> str:
    # `failed` repeats the message in the text; results of other makers need not.
    text = result.text if error.message in result.text else f"{error.message} {result.text}".strip()
    head = f"Error {error.code}: {text}"
    return f"{head}\n{json_text(result.data)}" if result.data else head
