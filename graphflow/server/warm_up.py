"""What the first run would import, imported before the server is ready: imports hold the event loop."""

from __future__ import annotations

import importlib
from contextlib import suppress

FIRST_USED = (
    "structlog",
    "graphflow.models.fallback",
    "graphflow.models.logs.interaction_log",
    "graphflow.models.openai.model",
    "graphflow.models.remote.transport",
    # What httpx loads for its first request.
    "httpx",
    "httpcore._async.connection",
    "anyio._backends._asyncio",
    "idna",
)


def warm_up() -> None:
    """Imports what the first model call needs; blocks, so call it off the event loop."""
    for name in FIRST_USED:
        with suppress(ImportError):  # an HTTP client of another version is made of other modules
            importlib.import_module(name)
