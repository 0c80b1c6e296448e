"""Error texts for clients: without absolute paths and addresses of the machine that serves them.

Logs, checkpoints and the command line keep them; who reads an answer of the server can do nothing with them but learn how
the machine is set up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from graphflow.events import Event, NodeError, RunError, TaskFail

ADDRESS = "(address)"
FAILURES = frozenset({RunError, NodeError, TaskFail})
"""Events that bear an error."""
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>()\[\]{},;]+", re.IGNORECASE)
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\[^\s'\"<>|:*?]*")


@cache
def _path() -> re.Pattern[str]:
    """Only what begins with a folder of this machine's root is a path: JSON pointers and routes look the same."""
    roots = "|".join(re.escape(path.name) for path in sorted(Path("/").iterdir()))
    return re.compile(rf"(?<![\w.~/-])/(?:{roots})/[^\s'\"<>:,;()\[\]{{}}]*")


def public_text(text: str) -> str:
    """The text with the last part of each path, and `(address)` for each URL."""
    if "/" not in text and "\\" not in text:
        return text
    text = _URL.sub(ADDRESS, text)
    for path in (_path(), _WINDOWS_PATH):
        text = path.sub(lambda match: match[0].replace("\\", "/").rstrip("/").rpartition("/")[2], text)
    return text


def public_value(value: Any) -> Any:
    """The same for each text of an error's facts."""
    if isinstance(value, str):
        return public_text(value)
    if isinstance(value, Mapping):
        return {key: public_value(item) for key, item in value.items()}
    return [public_value(item) for item in value] if isinstance(value, list | tuple) else value


def public_failure(resource: Mapping[str, Any]) -> dict[str, Any]:
    """A run or a thread as clients get it, which may have failed."""
    return {key: public_value(value) if key in ("error", "trace") else value for key, value in resource.items()}


def public_event(event: Event) -> Event:
    """The event as clients get it."""
    if type(event) not in FAILURES:
        return event
    assert isinstance(event, RunError | NodeError | TaskFail)
    return replace(event, error=public_value(event.error))
