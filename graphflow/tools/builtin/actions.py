"""Actions that every client may know: `switch_theme`, `launch_fireworks`, `show_modal` (spec 8.1)."""

from __future__ import annotations

from typing import Any

from graphflow.tools.frontend_body import FrontendBody
from graphflow.tools.port import Tool


def _action(name: str, description: str, required: list[str], **properties: dict[str, Any]) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(name=name, description=description, kind="action", effects="none", body=FrontendBody(parameters))


switch_theme = _action(
    "switch_theme",
    "Switch the client's colours to a light or a dark theme.",
    ["theme"],
    theme={"type": "string", "enum": ["light", "dark"], "description": "The theme to show."},
)
launch_fireworks = _action(
    "launch_fireworks",
    "Show fireworks in the client for a while.",
    [],
    durationMs={
        "type": "integer",
        "minimum": 1_000,
        "maximum": 30_000,
        "description": "How long, in milliseconds; the client chooses when it is left out.",
    },
)
show_modal = _action(
    "show_modal",
    "Show a dialogue with a title, a text and a button that closes it.",
    ["title", "content"],
    title={"type": "string", "description": "Headline."},
    content={"type": "string", "description": "The text."},
    closeText={"type": "string", "description": "Label of the button."},
)
