"""Exit codes (spec 10), and which error has which."""

from __future__ import annotations

from typing import Any

from graphflow.errors import GraphflowError

OK = 0
FAILED = 1
"""The run failed, or an unexpected error."""
USAGE = 2
"""Wrong usage, or an invalid definition: retrying does not help."""
TRANSIENT = 3
"""The provider, the network, or a busy thread: try again."""
WAITING = 4
"""Waits for a person, or a person (or `--approve deny`) said no."""
LIMIT = 5
"""A budget or limit is exceeded."""
INTERRUPTED = 130

_USAGE = frozenset(
    "invalid_definition invalid_input agent_not_found thread_exists thread_not_found run_not_found checkpoint_not_found interrupt_not_found "
    "answer_stale answer_invalid answer_ambiguous effects_need_choice nothing_to_resume state_incompatible migration_refused".split()
)
_TRANSIENT = frozenset({"thread_busy", "fenced", "rate_limit", "connection", "stream_truncated"})
_BY_CODE = {
    **dict.fromkeys(_USAGE, USAGE),
    **dict.fromkeys(_TRANSIENT, TRANSIENT),
    "thread_waiting": WAITING,
    "answer_forbidden": WAITING,
    "rejected": WAITING,
    "budget_exceeded": LIMIT,
    "limit_exceeded": LIMIT,
    "cancelled": INTERRUPTED,
}


def exit_code(code: str, retryable: bool = False) -> int:
    """The exit code of an error code; `retryable` tells transient provider errors from lasting ones."""
    return _BY_CODE.get(code, TRANSIENT if retryable else FAILED)


def exit_code_of(error: GraphflowError) -> int:
    """The exit code of an error that refuses a command: a value that does not fit the state was then given, not written by a node."""
    # Inside a run the same code is a node's failure (1); here no run has begun.
    return USAGE if error.code == "state_error" else exit_code(error.code, error.retryable)


def next_step(code: str, detail: dict[str, Any], thread_id: str | None = None) -> str | None:
    """What to do about an error: a command to copy, or a sentence. None if the message says it."""
    thread = thread_id or detail.get("threadId") or "THREAD"
    match code:
        case "thread_busy" | "fenced":
            return f"try again in {_seconds(detail.get('retryAfterMs'))}; `graphflow threads show {thread}` shows its progress"
        case "thread_waiting":
            return _answer_hint(detail, thread)
        case "agent_not_found":
            if detail.get("known") == []:
                return "`graphflow new NAME` creates an agent"
            return "`graphflow agents list` shows all agents, including rejected ones"
        case "thread_not_found":
            return "`graphflow threads list`"
        case "checkpoint_not_found":
            return f"`graphflow threads show {thread} --all`"
        case "effects_need_choice":
            return _choice_hint(detail)
        case "invalid_definition":
            return "fix the places above, then `graphflow validate`"
        case "answer_forbidden":
            return f"another person answers with `graphflow inbox answer {detail.get('interruptId', 'ID')} … --as NAME`"
        case "interrupt_not_found" | "answer_stale" | "answer_ambiguous":
            return "`graphflow inbox list` shows what is open"
        case "limit_exceeded":
            setting = detail.get("setting")
            return f"raise {setting} in graphflow.toml, then `graphflow threads resume {thread}` continues"
        case "budget_exceeded":
            return f"`graphflow threads resume {thread} --budget {_limit(detail)}=VALUE` continues with a higher limit"
        case "store_failed" | "store_version_unsupported":
            return "`graphflow doctor`"
    return None


def _choice_hint(detail: dict[str, Any]) -> str:
    """What can be chosen, and each effect with the id that a choice of its own names."""
    choices = detail.get("choices") or ["reuse", "rerun"]
    lines = [f"repeat with --effects {'|'.join(choices)}, or per effect --effects ID=CHOICE,…,*=CHOICE:"]
    for effect in (detail.get("effects") or [])[:20]:
        marks = [str(effect.get("outcome")), *([f"undo {effect['undo']}"] if effect.get("undo") else [])]
        if effect.get("undone"):
            marks.append("undone" if effect["undone"] == "done" else "undo was interrupted")
        where = f"{effect['path']}/{effect['node']}" if effect.get("path") else effect["node"]
        lines.append(f"  {effect['id']}  {where}#{effect['visit']}  {effect['key']}  ({', '.join(marks)})")
    return "\n".join(lines)


def _limit(detail: dict[str, Any]) -> str:
    """The limit by the name that a budget gives it: `maxModelCalls` for `modelCalls`."""
    name = str(detail.get("figure") or "LIMIT")
    plain = name[:1].islower() and name != "timeoutMs" and not name.startswith("max")
    return f"max{name[:1].upper()}{name[1:]}" if plain else name


def _seconds(ms: Any) -> str:
    return f"{max(1, round(ms / 1000))} s" if isinstance(ms, int | float) else "a moment"


def _answer_hint(detail: dict[str, Any], thread: str) -> str:
    # Nobody has been asked yet about a write that was cut off: the inbox is empty until the thread goes on.
    if detail.get("writes"):
        return f"`graphflow threads resume {thread}` asks what became of it"
    open_ = detail.get("interrupts") or []
    if len(open_) == 1:
        return f"`graphflow inbox answer {open_[0]['interruptId']}`"
    return "`graphflow inbox list`, then `graphflow inbox answer ID`"
