"""Where tool calls are logged: structlog where the process has set it up, else the standard library's logger.

structlog without a set-up writes every line to stdout, which belongs to the program that uses graphflow.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

_standard = logging.getLogger("graphflow.tools")


def logs_info() -> bool:
    """Whether `log_info` writes anything; callers check first, because masking the facts is costly."""
    return _structlog() is not None or _standard.isEnabledFor(logging.INFO)


def log_info(event: str, **facts: Any) -> None:
    """Writes one line for operators; values must be masked already."""
    if (logger := _structlog()) is not None:
        logger.info(event, **facts)
    else:
        _standard.info("%s %s", event, facts)


def log_exception(event: str, error: BaseException, **facts: Any) -> None:
    """Writes one line with the full traceback of `error`; the model and the wire never get it."""
    if (logger := _structlog()) is not None:
        logger.error(event, exc_info=error, **facts)
    else:
        _standard.error("%s %s", event, facts, exc_info=error)


def _structlog() -> Any:
    # Looked up, not imported: an application that configured structlog has loaded it.
    structlog: Any = sys.modules.get("structlog")
    return structlog.get_logger() if structlog is not None and structlog.is_configured() else None
