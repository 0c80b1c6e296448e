"""What a fresh interpreter prints: for tests of what an import loads."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE_S


def printed_by(code: str) -> str:
    """It must end well, and write nothing to stderr."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
