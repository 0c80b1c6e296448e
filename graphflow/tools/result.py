"""What a tool call gives back (spec 8.3), as a frozen struct that passes by reference and encodes in C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from graphflow.content import AudioPart, FilePart, ImagePart
from graphflow.errors import TOOL_ERROR_CODES

ToolStatus = Literal["success", "partial", "error"]


class ToolFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a failed call."""

    code: str
    """One of `graphflow.errors.TOOL_ERROR_CODES`."""
    message: str


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one call. `success`: all as asked; `partial`: usable but cut or part failed; `error`: nothing usable.

    The JSON form of this struct is what a thread records; `envelope.to_envelope` gives the form of spec 8.3.
    """

    status: ToolStatus = "success"
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    """What programs and argument templates read; never None."""
    text: str = ""
    """What people and the model read. Blank means "the data says it all"; the runner fills it in."""
    stats: dict[str, Any] = msgspec.field(default_factory=dict)
    """Measurements; the runner adds `time_ms`."""
    context: dict[str, Any] = msgspec.field(default_factory=dict)
    """`cwd` (relative to the root), `params_input`, `path_resolved`; the runner fills in the first two."""
    error: ToolFailure | None = None
    """Given exactly when `status` is `error`."""
    sources: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """Sources of the result, `{sourceId?, icon?, title?, url?}` each, shown as `source.snapshot`."""
    parts: tuple[ImagePart | AudioPart | FilePart, ...] = ()
    """What the model is shown after the text: images, audio, files."""
    cut_text: str = ""
    """What the model gets instead of the whole; set by the runner when that is too long."""
    whole_text: str = ""
    """The uncut text; kept with the message that answers the call."""

    def __post_init__(self) -> None:
        if (self.status == "error") != (self.error is not None):
            raise ValueError(f"a tool result with status {self.status!r} has error {self.error!r}; both or neither")

    @property
    def ok(self) -> bool:
        """Whether the result is usable, at least in part."""
        return self.status != "error"


def failed(
    code: str,
    message: str,
    next_step: str = "",
    *,
    data: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> ToolResult:
    """An error result for the model: what is wrong, with the value, and what to do next.

    Raises:
        ValueError: for a code outside the closed list.
    """
    if code not in TOOL_ERROR_CODES:
        raise ValueError(f"{code!r} is not a tool error code; codes are {', '.join(sorted(TOOL_ERROR_CODES))}")
    # Sentence and next step are read as one text.
    stop = "" if message.endswith((".", "!", "?", ":")) else "."
    text = f"{message}{stop} {next_step}" if next_step else message
    error = ToolFailure(code=code, message=message)
    return ToolResult(status="error", text=text, error=error, data=dict(data or {}), context=dict(context or {}))


class ArgumentsRefused(ValueError):
    """Arguments that do not fit a tool; each error names the field, the value and the rule."""

    def __init__(self, errors: Sequence[str], more: int = 0) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join([*self.errors, *([f"and {more} more errors"] if more else [])]))
