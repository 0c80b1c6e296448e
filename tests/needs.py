"""What a test needs from the machine that it runs on."""

from __future__ import annotations

import os
import re

import pytest

_OTHER_NAMES = {"bwrap": "bubblewrap", "chrome": "chromium"}


def required(variable: str | None = os.environ.get("GRAPHFLOW_REQUIRE")) -> frozenset[str]:
    """What `GRAPHFLOW_REQUIRE` names, as in `node,bwrap,rg`; read before any test, as no test sees the machine's settings."""
    words = (word.strip().lower() for word in (variable or "").split(","))
    return frozenset(_OTHER_NAMES.get(word, word) for word in words if word)


def need(found: object, name: str, *, named: frozenset[str] = required()) -> None:
    """Skips the test if the machine lacks what it needs; in CI (`CI` is set), and where it is required, that is a failure.

    The only way to skip a test, so no promise is kept by nobody: whatever a developer's machine lacks, CI has.
    """
    if found:
        return
    # Not `pytest.skip` alone: a skipped test is green, and nobody would see that CI has stopped to run it.
    assert not os.environ.get("CI"), f"CI runs every test, and this one needs {name}"
    missing = named.intersection(re.findall(r"[a-z0-9]+", name.lower()))
    assert not missing, f"GRAPHFLOW_REQUIRE names {', '.join(missing)}, and this test needs {name}"
    pytest.skip(f"needs {name}")
