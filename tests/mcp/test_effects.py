"""What calls of servers' tools do to the world: the settings say it, hints make it stricter, with `trust` also laxer."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.tools.mcp.config import ServerConfig
from graphflow.tools.mcp.listing import McpTool
from graphflow.tools.mcp.tools import effects_of

READ, CHANGES, AGAIN = {"readOnlyHint": True}, {"readOnlyHint": False}, {"idempotentHint": True}


@pytest.mark.parametrize(
    ("settings", "hints", "effects", "idempotent"),
    [
        ({}, {}, "write", False),
        ({}, READ, "write", False),
        ({"trust": True}, READ, "read", False),
        ({"trust": True}, {**CHANGES, **AGAIN}, "write", True),
        ({}, AGAIN, "write", False),
        ({"effects": {"*": "read"}}, {}, "read", False),
        ({"effects": {"*": "read"}}, CHANGES, "write", False),
        ({"effects": {"*": "read"}}, {"destructiveHint": True}, "write", False),
        ({"effects": {"look": "read"}}, CHANGES, "read", False),
        ({"effects": {"look": "none", "*": "write"}}, {}, "none", False),
        ({"idempotent": ("*",)}, {}, "write", True),
        ({"idempotent": ("*",)}, {"idempotentHint": False}, "write", False),
        ({"idempotent": ("look",)}, {"idempotentHint": False}, "write", True),
    ],
)
def test_effects_of_a_tool(settings: dict[str, Any], hints: dict[str, bool], effects: str, idempotent: bool) -> None:
    config = ServerConfig(name="s", command="x", **settings)
    assert effects_of(config, McpTool(name="look", annotations=hints)) == (effects, idempotent)
