"""How each face names what an error tells its caller to use: the one place that translates.

Errors speak Python: `on_waiting='cancel'`, `thread.history()`. Their boundary gives them to a caller over HTTP or at the
command line in the words of that face.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

Face = Literal["http", "cli"]

OPTIONS = (
    "checkpoint_id", "hold_ms", "interrupt_after", "interrupt_before", "on_busy", "on_waiting", "run_id", "thread_id",
)  # fmt: skip
"""Options of calls in Python that errors name; each face spells them in its own way."""
CALLS: dict[str, tuple[str, str]] = {
    "app.threads()": ("GET /api/threads", "graphflow threads list"),
    "thread.history()": ("GET /api/threads/ID/checkpoints", "graphflow threads show THREAD --all"),
    "list_checkpoints()": ("GET /api/threads/ID/checkpoints", "graphflow threads show THREAD --all"),
    "app.recover()": ("graphflow serve", "graphflow serve"),
    "None for no limit": ("null for no limit", "left out for no limit"),
}
"""Call in Python → the same over HTTP and at the command line."""

# `effects` is a word of its own in every face; with a value it is the option.
_OPTION = re.compile(rf"(?<![\w'\"])({'|'.join(OPTIONS)}|effects(?==))(?:='(\w+)')?(?![\w'\"])")
_CALL = re.compile("|".join(map(re.escape, CALLS)))


def spoken(message: str, face: Face) -> str:
    """The message in the words of a face; what stands in quotes is somebody's value, and stays."""
    write: Callable[[str, str | None], str] = _http if face == "http" else _cli
    told = _OPTION.sub(lambda found: write(found[1], found[2]), message)
    return _CALL.sub(lambda found: CALLS[found[0]][face == "cli"], told)


def spoken_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """What an error says of each argument, for HTTP: its names are those of the body."""
    return {http_name(name) if name in OPTIONS else name: spoken(rule, "http") for name, rule in fields.items()}


def http_name(option: str) -> str:
    """`on_waiting` → `onWaiting`."""
    head, *rest = option.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _http(option: str, value: str | None) -> str:
    return http_name(option) if value is None else f'"{http_name(option)}": "{value}"'


def _cli(option: str, value: str | None) -> str:
    name = "--thread" if option == "thread_id" else f"--{option.replace('_', '-')}"
    return name if value is None else f"{name} {value}"
