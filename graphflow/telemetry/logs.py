"""Logs: structlog on stderr, for people by default, with secrets masked.

`set_up_logs` is called once by a process that owns its terminal (the command line, the server);
as a library graphflow configures nothing, and code anywhere logs by `structlog.get_logger()`.
Imported lazily: structlog is not part of `import graphflow`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Literal, TextIO

import structlog

from graphflow.masking import mask, mask_text

if TYPE_CHECKING:
    from structlog.typing import Processor

Level = Literal["debug", "info", "warning", "error"]


def set_up_logs(
    level: Level = "info",
    *,
    form: Literal["console", "json"] = "console",
    masked: bool = True,
    stream: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Sends structlog's and the standard library's lines of at least `level` to `stream`.

    A call below the level costs one branch: its method does nothing. Calling again replaces the set-up.

    Args:
        form: `console` is one readable line, coloured where `stream` is a terminal and `NO_COLOR` is not set;
            `json` is one JSON object a line.
        masked: Replace keys, tokens and passwords, at any depth, also inside texts and tracebacks.
        stream: Default: standard error as it is when a line is written, so that stdout stays the command's own.
        environ: Default: `os.environ`; read for `NO_COLOR`.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    coloured = _coloured(stream or sys.stderr, os.environ if environ is None else environ)
    structlog.configure(
        processors=[*_shared(masked), _renderer(form, coloured)],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_LineFactory(stream),
        cache_logger_on_first_use=False,  # a second set-up must reach loggers that modules hold
    )
    _carry_standard_library(number)


def mask_secrets(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: the line with secrets replaced by `***`."""
    return {key: value if key == "exc_info" else _masked_value(key, value) for key, value in line.items()}


def _masked_value(key: str, value: Any) -> Any:
    if isinstance(value, BaseException):
        # An exception's text may quote a header or URL with a secret.
        return mask_text(f"{type(value).__name__}: {value}")
    masked: dict[str, Any] = mask({key: value})
    return masked[key]


def _shared(masked: bool) -> list[Processor]:
    chain: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    return [*chain, mask_secrets] if masked else chain


def _renderer(form: str, coloured: bool) -> Processor:
    if form == "json":
        return structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    # Tracebacks are text by now, so that the masker has seen them.
    formatter = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=coloured, sort_keys=False, exception_formatter=formatter)


def _coloured(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Colour only for a terminal, and not where https://no-color.org asks for none."""
    return not environ.get("NO_COLOR") and stream.isatty()


class _LineFactory:
    """Makes loggers that write to `stream`, or to whatever `sys.stderr` is at the time of the line."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def __call__(self, *_names: Any) -> _Lines:
        return _Lines(self._stream)


class _Lines:
    """Writes one line a call; a stream that takes no more ends the lines, not the run."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        stream = self._stream or sys.stderr
        with contextlib.suppress(OSError, ValueError):  # no reader, no room, or closed by the interpreter's end
            try:
                stream.write(line + "\n")
            except UnicodeEncodeError as error:  # half a character, or a stream that has few of them
                stream.write(line.encode(error.encoding, "backslashreplace").decode(error.encoding) + "\n")
            stream.flush()

    log = debug = info = warn = warning = error = critical = fatal = exception = failure = msg


class _Carry(logging.Handler):
    """Hands lines of libraries (uvicorn, httpx) on to structlog, so that there is one form and one masker.

    A line of ours may bring fields along: `log.info("request", extra={"facts": {…}})`.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            facts: dict[str, Any] = {"logger": record.name, **getattr(record, "facts", {})}
            if record.exc_info:
                facts["exc_info"] = record.exc_info
            structlog.get_logger().log(_standard(record.levelno), record.getMessage(), **facts)
        except Exception:  # noqa: BLE001 - a line that its library got wrong must not reach what the library does
            self.handleError(record)


def _standard(level: int) -> int:
    """The level as structlog knows it: libraries make some of their own between."""
    return max(number for number in (0, *_LEVELS) if number <= level)


_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_QUIET = {
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "asyncio": logging.WARNING,
    "watchfiles": logging.WARNING,
}
"""Libraries whose lower lines say what ours say already, or hold whole requests."""


def _carry_standard_library(number: int) -> None:
    root = logging.getLogger()
    # Calling again replaces the handler, or every line would be written twice.
    for handler in [h for h in root.handlers if isinstance(h, _Carry)]:
        root.removeHandler(handler)
    root.addHandler(_Carry())
    # Debug lines of libraries may hold whole requests.
    root.setLevel(max(number, logging.INFO))
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(least)
