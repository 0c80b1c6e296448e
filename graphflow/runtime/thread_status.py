"""The statuses of a thread (spec 3.2)."""

from __future__ import annotations

from typing import Literal, get_args

ThreadStatus = Literal["idle", "running", "waiting", "failed", "stopped"]
"""`running` only while a live process drives it; a thread whose process died is `stopped`."""
STATUSES: tuple[str, ...] = get_args(ThreadStatus)
