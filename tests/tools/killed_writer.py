"""A process that reads a file by the coding tools, begins to change it, and is killed by itself between two system calls.

`python -m tests.tools.killed_writer FOLDER CALL NUMBER BEFORE|AFTER CHANGE`: it dies before or after that call's NUMBERth time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.tools.workspace.system import System
from tests.tools.coding_folder import CodingFolder


class Deadly(System):
    """Kills the process at one call, once it is armed."""

    def __init__(self, call: str, number: int, when: str) -> None:
        super().__init__()
        self.armed = False
        self._left = number
        real: Callable[..., Any] = getattr(self, call)

        def deadly(*given: Any, **options: Any) -> Any:
            if not self.armed:
                return real(*given, **options)
            self._left -= 1
            if self._left == 0 and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*given, **options)
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(self, call, deadly)


async def main(base: Path, call: str, number: int, when: str, change: list[Any]) -> None:
    system = Deadly(call, number, when)
    folder = CodingFolder(base, SqliteCheckpointer(base / "threads.db"), system)
    await folder.call("Read", {"path": "a.txt"})
    system.armed = True
    await folder.call(change[0], change[1])


if __name__ == "__main__":
    _, base, call, number, when, change = sys.argv
    asyncio.run(main(Path(base), call, int(number), when, json.loads(change)))
