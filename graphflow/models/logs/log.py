"""Where the models write their logs: structlog, loaded with the first line.

An application that configured structlog gets the lines its way. Otherwise they go to stderr (never to
stdout, which belongs to the program's output) from the level in `GRAPHFLOW_LOG_LEVEL`, default `info`.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

from graphflow.models.environment import environment
from graphflow.models.logs.call_context import call_context


def model_logger() -> Any:
    """A structlog logger named `graphflow.models`."""
    import structlog

    # Asked for each logger, not at import: an application may configure structlog after it imported graphflow.
    if structlog.is_configured():
        return structlog.get_logger("graphflow.models")
    return _stderr_logger(environment().get("GRAPHFLOW_LOG_LEVEL", "info"))


def notice(event: str, **facts: Any) -> None:
    """A warning about something odd that did not fail the call; it names the run and the node, as all lines do."""
    context = call_context()
    named = {} if context is None else {"traceId": context.trace_id, "stage": context.stage}
    model_logger().warning(event, **facts, **named)


@functools.lru_cache(maxsize=4)
def _stderr_logger(level: str) -> Any:
    import structlog

    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    return structlog.wrap_logger(
        _Stderr(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(colors=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
    )


class _Stderr:
    """Prints to the current `sys.stderr`, which tests and servers may replace."""

    def msg(self, message: str) -> None:
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()

    debug = info = warning = error = critical = msg
