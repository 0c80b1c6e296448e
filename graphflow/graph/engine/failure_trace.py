"""Where in Python a node failed: a short trace for the store, and one log line with the whole of it."""

from __future__ import annotations

import logging
import traceback
from pathlib import PurePath
from types import FrameType

from graphflow.errors import text_of

log = logging.getLogger("graphflow.nodes")

_RUNNERS = frozenset({"graphflow", "asyncio", "concurrent", "contextlib"})
"""Packages that call a node's code, or are called by it: their frames say nothing about it."""
MOST_FRAMES = 12
MOST_CHARACTERS = 300
"""Of an exception's text."""


def trace_of(error: BaseException) -> list[str] | None:
    """`file:line in function` of each call, the innermost last, then the exception; None if no code of a user is in it.

    Files are relative to their package, so no path of this machine gets into the store; secrets are masked. An exception
    that this one came from stands before it.
    """
    chain = [(one, _calls(one)) for one in _chain(error)]
    if not any(calls for _, calls in chain):
        return None
    lines: list[str] = []
    for number, (one, calls) in enumerate(chain):
        lines += [*(["which led to"] if number else []), *calls, _text(one)]
    from graphflow.masking import mask_text  # its patterns take milliseconds, and most runs do not fail

    return [mask_text(line) for line in lines]


def log_failure(error: BaseException, node: str, thread_id: str, run_id: str) -> None:
    """Logs an exception of a node's code, with its trace."""
    if log.isEnabledFor(logging.ERROR):
        from graphflow.masking import mask_text

        # Formatted here and not by the handler, which knows nothing of secrets.
        text = mask_text("".join(traceback.format_exception(error)).rstrip())
        log.error("node %r of thread %r failed in run %r\n%s", node, thread_id, run_id, text)


def release_frames(error: BaseException) -> BaseException:
    """The exception without the engine's frames, and without the locals of the others.

    A result keeps it, and frames keep what they worked on: the run would stay until the garbage collector came.
    """
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        seen.add(id(one))
        trace = one.__traceback__
        while trace is not None and _module(trace.tb_frame).startswith("graphflow."):
            trace = trace.tb_next
        traceback.clear_frames(trace)
        one.__traceback__ = trace
        inner = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        left += [
            other for other in (*inner, one.__cause__, one.__context__) if other is not None and id(other) not in seen
        ]
    return error


def _chain(error: BaseException) -> list[BaseException]:
    """The exceptions that led to this one, the first one first; of a group its first member."""
    out: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in out and len(out) < 3:
        out.append(at)
        if isinstance(at, BaseExceptionGroup):
            at = at.exceptions[0]
        else:
            at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return out[::-1]


def _calls(error: BaseException) -> list[str]:
    """The calls but for those of the runners; none where only graphflow itself was running."""
    lines = [
        f"{_file(frame)}:{line} in {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _module(frame).partition(".")[0] not in _RUNNERS
    ]
    if len(lines) > MOST_FRAMES:
        left_out = len(lines) - MOST_FRAMES
        lines[MOST_FRAMES // 2 : -MOST_FRAMES // 2] = [f"… {left_out} more"]
    return lines


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "")


def _file(frame: FrameType) -> str:
    """The file below its package, from the name of the module: its path says where this machine keeps it."""
    name = PurePath(frame.f_code.co_filename).name
    parents = _module(frame).split(".")
    return "/".join([*(parents if name == "__init__.py" else parents[:-1]), name])


def _text(error: BaseException) -> str:
    text = " ".join(text_of(error).split())
    shown = text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__
