"""The official SDK, loaded when a server is first asked: it is large, and processes without servers never pay for it."""

from __future__ import annotations

import functools
from types import ModuleType


@functools.cache
def sdk() -> ModuleType:
    """The SDK's package, with its client loaded; call it off the event loop the first time, it takes a second.

    Raises:
        ImportError: the extra is not installed.
    """
    import uvicorn

    # A library of the SDK puts a hook of its own into uvicorn while it is imported; this process decides by itself how
    # its server ends.
    kept = uvicorn.Server.handle_exit
    try:
        import mcp
    finally:
        uvicorn.Server.handle_exit = kept  # type: ignore[method-assign]
    return mcp
