"""What importing a file loads: the port is light, the rest loads what it needs when it needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("httpx", "structlog", "pydantic", "networkx", "fastapi", "h11")


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import graphflow.models.chat_model", ()),
        ("import graphflow.models.providers", ()),
        ("import graphflow.models.scripted.model", ()),
        ("import graphflow.models.logs.interaction_log", ()),
        ("from graphflow.models.providers import open_model; open_model()", ()),
        ("from graphflow.models.providers import open_model; open_model('ollama')", ()),
        ("import graphflow.models.scripted.server", ("h11",)),
    ],
)
def test_importing_loads_no_heavy_module(statement: str, allowed: tuple[str, ...]) -> None:
    code = f"{statement}; import sys; print(*[m for m in {HEAVY!r} if m in sys.modules and m not in {allowed!r}])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "."}
    )
    assert done.stdout.strip() == ""
