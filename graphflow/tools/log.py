"""Where tool calls are logged: structlog where the process has set it up, else the standard library's logger.

structlog without a set-up writes every line to stdout, which belongs to the program that uses graphflow.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

_standard = logging.getLogger("graphflow.tools")


def logs_info() -> bool:
    """Whether anybody reads `log_info`: the branch that guards the making of its facts."""
    return _structlog() is not None or _standard.isEnabledFor(logging.INFO)


def log_info(event: str, **facts: Any) -> None:
    """One line for operators; values must be masked already."""
    if (logger := _structlog()) is not None:
        logger.info(event, **facts)
    else:
        _standard.info("%s %s", event, facts)


def log_exception(event: str, error: BaseException, **facts: Any) -> None:
    """One line with the full trace of `error`, which goes nowhere else."""
    if (logger := _structlog()) is not None:
        logger.error(event, exc_info=error, **facts)
    else:
        _standard.error("%s %s", event, facts, exc_info=error)


def _structlog() -> Any:
    structlog: Any = sys.modules.get("structlog")
    return structlog.get_logger() if structlog is not None and structlog.is_configured() else None
