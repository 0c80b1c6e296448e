"""Why a run failed, as every command says it: where, the code, what was wrong, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphflow.cli.terminal.console import note, one_line_json
from graphflow.cli.terminal.exit_codes import next_step
from graphflow.faces import spoken


def shown_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """A stored error as JSON of the command line: without secrets, its message in the words of the commands."""
    from graphflow.masking import mask  # its patterns would slow down every `--help`

    shown: dict[str, Any] = mask(dict(error))
    return {**shown, "code": _code(error), "message": _message(error)}


def error_text(error: Mapping[str, Any]) -> str:
    """`CODE: MESSAGE`."""
    return f"{_code(error)}: {_message(error)}"


def failure_text(error: Mapping[str, Any]) -> str:
    """`the run failed at node 'NODE' with CODE: MESSAGE`, and a line for each further error."""
    at = f" at node {error['node']!r}" if isinstance(error.get("node"), str) else ""
    detail = error.get("detail")
    further = detail.get("errors") if isinstance(detail, Mapping) else None
    lines = [f"the run failed{at} with {error_text(error)}"]
    # The first is in the message.
    for each in further[1:] if isinstance(further, list | tuple) else ():
        if isinstance(each, Mapping):
            lines.append(f"  {each.get('pointer') or '/'}: {_message(each)}")
    return "\n".join(lines)


def say_failure(
    error: Mapping[str, Any] | None, thread_id: str, say: Callable[[str], None] = note, *, lead: str = ""
) -> None:
    """Prints why the run of a thread failed, and, to stderr, the next step.

    Args:
        say: prints the reason.
        lead: stands before it.
    """
    error = error or {}
    say(lead + failure_text(error))
    detail = error.get("detail")
    hint = next_step(_code(error), dict(detail) if isinstance(detail, Mapping) else {}, thread_id)
    note(f"next: {hint or f'`graphflow threads resume {thread_id}` retries from the last finished node'}")


def _code(error: Mapping[str, Any]) -> str:
    code = error.get("code")
    return code if isinstance(code, str) and code else "internal"


def _message(error: Mapping[str, Any]) -> str:
    from graphflow.masking import mask_text

    message = error.get("message")
    if message is None or message == "":
        return "no reason was recorded"
    return spoken(mask_text(message if isinstance(message, str) else one_line_json(message)), "cli")
