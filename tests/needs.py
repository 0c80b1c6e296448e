"""What a test needs from the machine that it runs on."""

from __future__ import annotations

import os

import pytest


def need(found: object, name: str) -> None:
    """Skips the test if the machine lacks what it needs; in CI (`CI` is set) that is a failure.

    The only way to skip a test, so no promise is kept by nobody: whatever a developer's machine lacks, CI has.
    """
    if found:
        return
    # Not `pytest.skip` alone: a skipped test is green, and nobody would see that CI has stopped to run it.
    assert not os.environ.get("CI"), f"CI runs every test, and this one needs {name}"
    pytest.skip(f"needs {name}")
