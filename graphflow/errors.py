"""Every error of graphflow, in one shallow tree with stable codes.

```
GraphflowError
├── DefinitionError        a document or agent file that was refused; holds every error
├── NodeFailed             a node's failure that may be routed or retried
│   ├── NodeTimeout
│   ├── ExpressionFailed
│   ├── ModelError         a provider, the network, or a stream that ended early
│   ├── StreamBroken       an event that the grammar of a run's stream does not allow here
│   ├── BudgetExceeded
│   └── LimitExceeded     a bound of the settings
├── ArgumentRefused        an argument of a call in Python that there is not, or of another kind; a `TypeError` too
├── ThreadBusy             somebody else drives the thread
├── ThreadExists           a fork or an import names the id of a thread that exists
├── ThreadNotFound, CheckpointNotFound, AgentNotFound
├── AnswerRefused          an answer that changed nothing (unknown, stale, ill-typed, ambiguous)
├── ThreadWaiting          new input for a thread that waits for a person
├── EffectsNeedChoice      a rewind or re-run would pass over `write` effects
├── StateError             a key or value outside the state schema
└── StoreError             the store could not be read or written
    ├── Fenced             another process took the thread; this epoch must stop
    └── CodecError         a value that can't be stored
```

Codes cross processes and reach models, so they never change; texts may.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from graphflow.bounds import Bounds
from graphflow.json_data import plain
from graphflow.value_size import size_of

ERROR_CODES: dict[str, str] = {
    "invalid_definition": "A document or agent file breaks a rule; nothing of it runs.",
    "invalid_input": "The run's input does not fit the document's input schema.",
    "timeout": "A node, tool or run took longer than its limit.",
    "rate_limit": "The provider asked to slow down (HTTP 429).",
    "provider_error": "The provider answered with an error, or with something that is not a completion.",
    "stream_truncated": "The provider's stream ended without a finish reason.",
    "connection": "The provider or server could not be reached, or the connection broke.",
    "tool_error": "A tool failed where its failure fails the node.",
    "tool_required": "The agent must call a tool and the model did not.",
    "validation": "A value does not fit its schema.",
    "node_error": "A Python node raised an exception.",
    "node_not_deterministic": "A re-entered node asked for a recorded operation with other arguments.",
    "expression": "An expression failed while it was evaluated.",
    "budget_exceeded": "A limit of the budget is used up.",
    "limit_exceeded": "A value, the state, a fan-out or the events of a run go beyond a bound of the settings; `detail.setting` names it.",
    "property_violated": "Running the node would break a property of the document's `invariants`; it was not run.",
    "middleware_error": "A middleware hook failed. Reserved: this version has no middleware.",
    "cancelled": "The run was cancelled.",
    "rejected": "A person rejected what the run was about to do.",
    "state_error": "A node wrote a key or a type outside the state schema.",
    "state_incompatible": "A stored state key does not fit the new version of the graph.",
    "migration_refused": "The thread can't be moved to the new version as it is; `detail.problems` says all that stands against it.",
    "thread_busy": "Another run drives this thread.",
    "thread_exists": "A thread with this id exists already; a fork or an import does not replace it.",
    "thread_waiting": "The thread waits for an answer; new input is refused.",
    "thread_not_found": "No thread has this id.",
    "run_not_found": "No run has this id.",
    "message_not_found": "The thread has no message with this id, on any branch.",
    "checkpoint_not_found": "The thread has no checkpoint with this id.",
    "agent_not_found": "No agent has this key.",
    "not_found": "No tool result, viewport or rule has this id, or no message of the thread names bytes with this hash.",
    "route_not_found": "The server has no such URL.",
    "method_not_allowed": "The URL exists, but not for this HTTP method; the header `Allow` lists those that it has.",
    "unauthorized": "The request has no bearer token, or an unknown one.",
    "forbidden": "The token, or the page that sent the request, may not do this.",
    "host_not_allowed": "The request names a host that the server does not serve; see `server.allowed_hosts`.",
    "nothing_to_resume": "The thread has nothing unfinished to resume.",
    "interrupt_not_found": "No interrupt with this id is open on this thread.",
    "answer_stale": "The interrupt was answered, closed, or issued again.",
    "answer_invalid": "The answer does not fit the interrupt's schema.",
    "answer_forbidden": "This person may not decide about the call; another one has to.",
    "answer_ambiguous": "Several interrupts are open, and the answer does not say which one it is for.",
    "request_id_reused": "The `requestId` came within 24 hours with another body; a new request needs a new id.",
    "effects_need_choice": "Write effects lie behind the checkpoint; choose for all or for each: `reuse` their results, `rerun` or `undo` them.",
    "undo_failed": "Undoing a write effect failed; the thread stays where it was.",
    "store_failed": "The store could not be read or written.",
    "store_version_unsupported": "The store was made by a newer version.",
    "fenced": "Another process took this thread; the older epoch stopped.",
    "not_serializable": "A value can't be stored.",
    "overloaded": "The server has too many runs, or the thread too many queued inputs; retry after `retryAfterMs`.",
    "too_large": "A file is larger than the limit.",
    "too_many_requests": "The token has used up its requests for now; ask again after `retryAfterMs`.",
    "dead": "The run was taken over several times at one checkpoint, and each process that drove it ended.",
    "shutting_down": "The server is shutting down and starts no new runs.",
    "internal": "A defect of graphflow itself.",
}
"""Code → meaning: the closed list behind `error.code` everywhere."""

TOOL_ERROR_CODES = frozenset(
    "NOT_FOUND ACCESS_DENIED PERMISSION_DENIED INVALID_PARAM TIMEOUT INTERNAL_ERROR EXECUTION_ERROR "
    "IS_DIRECTORY BINARY_FILE CONFLICT CIRCUIT_OPEN CANCELLED REJECTED".split()
)
"""Closed list behind `envelope.error.code` (spec 8.3)."""

# Failures outside graphflow, which may pass by themselves; what an author did wrong comes back every time.
RETRYABLE_CODES = frozenset({"timeout", "rate_limit", "provider_error", "stream_truncated", "connection"})
ROUTABLE_CODES = (
    "timeout", "rate_limit", "provider_error", "connection", "tool_error", "validation",
    "node_error", "expression", "budget_exceeded", "any",
)  # fmt: skip
"""What `error` routes and `retry.on` may name (E19); `provider_error` includes `stream_truncated`."""


class GraphflowError(Exception):
    """Root of all errors: a stable `code`, a text with the value and the next step, and facts in `detail`."""

    # A subclass or a caller that names no code has forgotten it: that is a defect.
    code = "internal"

    def __init__(self, message: str, *, code: str | None = None, retryable: bool | None = None, **detail: Any) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        # The code gives the default; a provider may know better about one failure (a spent quota is a 429).
        self.retryable = self.code in RETRYABLE_CODES if retryable is None else retryable
        self.detail: dict[str, Any] = detail

    def as_dict(self, node: str | None = None) -> dict[str, Any]:
        """The wire form `{code, message, node?, retryable, detail?}` (spec 3.3)."""
        out: dict[str, Any] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        if node is not None:
            out["node"] = node
        if self.detail:
            out["detail"] = msgspec.to_builtins(self.detail, str_keys=True, enc_hook=plain)
        return out


class ArgumentRefused(GraphflowError, TypeError):
    """An argument of a call in Python that there is not, or whose value is of another kind; nothing has happened."""

    code = "invalid_input"


@dataclass(frozen=True, kw_only=True)
class Issue:
    """One error or warning in a document: its place, the value, the rule and a hint."""

    pointer: str
    """JSON pointer of the place, `""` for the whole document."""
    message: str
    """What is wrong, with the value."""
    hint: str | None = None
    """The next step: "did you mean", or the allowed values."""
    file: str | None = None
    line: int | None = None
    """1-based."""
    column: int | None = None
    """1-based."""
    severity: str = "error"
    """`error` or `warning`; a document with warnings only still runs."""
    kind: str = "shape"
    """Which step found it: `syntax`, `shape`, `reference`, `graph`, `type`, `property`."""

    def render(self) -> str:
        """`file:line:column: pointer: message (hint)`, the parts that are known."""
        place = ":".join(str(p) for p in (self.file, self.line, self.column) if p is not None)
        said = ": ".join(part for part in (place, self.pointer, self.message) if part)
        return said + (f" ({self.hint})" if self.hint else "")

    def as_dict(self) -> dict[str, Any]:
        """The issue as JSON data; what is not known is left out."""
        # Left out, not null: an error without a file has no place to point to.
        # A hint may be a subclass of text, which an encoder refuses.
        return {k: str(v) if k == "hint" else v for k, v in self.__dict__.items() if v is not None}


MAX_ALIKE = 20
"""Issues of one kind that are listed; of more nobody reads the rest."""
_NAMED = re.compile(r"""'[^']*'|"[^"]*"|/\S+|\d+""")


def summed_up(issues: Sequence[Issue]) -> list[Issue]:
    """The issues; of many that differ only in their names and numbers the first ones, and how many follow."""
    if len(issues) <= MAX_ALIKE:
        return list(issues)
    groups: dict[tuple[str, str, str | None, str], list[Issue]] = {}
    for issue in issues:
        alike = issue.severity, issue.kind, issue.file, _NAMED.sub("…", issue.message)
        groups.setdefault(alike, []).append(issue)
    # By identity: the same issue may be listed twice.
    left_out: dict[int, Issue | None] = {}
    for (*_, pattern), group in groups.items():
        rest = group[MAX_ALIKE:]
        if len(rest) > 1:
            message = f"{len(rest)} more like these, up to {rest[-1].pointer}: {pattern}"
            left_out |= {id(issue): None for issue in rest}
            left_out[id(rest[0])] = dataclasses.replace(rest[0], message=message, hint=None)
    listed = (left_out.get(id(issue), issue) for issue in issues)
    return [issue for issue in listed if issue is not None]


class DefinitionError(GraphflowError):
    """A rejected document, with all its errors at once."""

    code = "invalid_definition"

    def __init__(self, errors: Sequence[Issue]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(issue.render() for issue in summed_up(self.errors)))


class NodeFailed(GraphflowError):
    """A failure of one node; `error` routes and `retry` may handle it."""

    code = "node_error"


class NodeTimeout(NodeFailed):
    code = "timeout"


class ExpressionFailed(NodeFailed):
    code = "expression"


class BudgetExceeded(NodeFailed):
    """A budget limit is used up; `detail` has `figure`, `limit` and `used`."""

    code = "budget_exceeded"


class LimitExceeded(NodeFailed):
    """A bound of the settings is exceeded (`graphflow.bounds`); `detail` has the name of the `setting` and its `limit`."""

    code = "limit_exceeded"

    def __init__(self, bound: str, limit: int, message: str, next_step: str = "make less, or raise it") -> None:
        """
        Args:
            bound: field of `graphflow.bounds.Bounds`.
            message: what exceeds it, and by how much if that is known.
        """
        setting = f"bounds.{bound}"
        super().__init__(
            f"{message}; the setting {setting} allows {limit:,}: {next_step}", setting=setting, limit=limit
        )


def check_size(value: Any, bounds: Bounds, what: str, next_step: str = "send less, or raise it") -> int:
    """The bytes of a value, as `value_bytes` counts them.

    Args:
        what: it and where it stands, for the message.

    Raises:
        LimitExceeded: there are more.
    """
    most = bounds.value_bytes
    # What holds itself many times over is not counted to its end.
    if (size := size_of(value, counted := 4 * most)) > most:
        told = f"{size:,}" if size <= counted else f"more than {counted:,}"
        raise LimitExceeded("value_bytes", most, f"{what} has {told} bytes", next_step)
    return size


class ModelError(NodeFailed):
    """A model call failed; `detail` has `status`, `provider` and an `excerpt` of the answer."""

    code = "provider_error"


class StreamBroken(NodeFailed):
    """A node tried to send an event that the stream's grammar does not allow here; it was not sent."""


class ThreadBusy(GraphflowError):
    """Another process or task drives the thread; `detail.retryAfterMs` says when to retry."""

    code = "thread_busy"


class ThreadExists(GraphflowError):
    code = "thread_exists"


class ThreadWaiting(GraphflowError):
    """The thread waits for answers; answer them, or pass `on_waiting`."""

    code = "thread_waiting"


class ThreadNotFound(GraphflowError):
    code = "thread_not_found"


class CheckpointNotFound(GraphflowError):
    code = "checkpoint_not_found"


class AgentNotFound(GraphflowError):
    code = "agent_not_found"


class AnswerRefused(GraphflowError):
    """A rejected answer; the interrupt is unchanged."""

    code = "interrupt_not_found"


class EffectsNeedChoice(GraphflowError):
    """`detail.effects` lists the `write` effects that a rewind or re-run would pass over."""

    code = "effects_need_choice"


class StateError(NodeFailed):
    code = "state_error"


class StoreError(GraphflowError):
    code = "store_failed"


class Fenced(StoreError):
    code = "fenced"


class CodecError(StoreError):
    code = "not_serializable"


def text_of(error: BaseException) -> str:
    """The text of any exception as models, clients and the store may have it; empty if it can't be shown.

    Without secrets, absolute paths and addresses: whoever logs the exception itself keeps these.
    """
    # Loaded when something has failed: their patterns would slow down every import of graphflow.
    from graphflow.masking import mask_text
    from graphflow.public_text import public_error_text

    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a foreign class may do anything here, and its failure would hide the error itself
        return ""
    return public_error_text(error, mask_text(text)).strip()


def described(error: BaseException) -> str:
    """The type of an exception with its text, as `text_of` gives it."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def error_dict(error: BaseException, node: str | None = None) -> dict[str, Any]:
    """The wire form of any exception without secrets; a foreign one, without paths and addresses, becomes `node_error` with its type and message."""
    if isinstance(error, GraphflowError):
        from graphflow.masking import mask

        masked: dict[str, Any] = mask(error.as_dict(node))
        return masked
    # A node's own timeout has the code that `retry.on` and `error.on` know.
    if isinstance(error, TimeoutError):
        return NodeTimeout(text_of(error) or "timed out").as_dict(node)
    return NodeFailed(described(error)).as_dict(node)
