"""The approval modes of tool calls: one list for settings, agent files and the tool runner (spec 8.5)."""

from __future__ import annotations

from typing import Literal

# At the bottom of the package: settings may import nothing above them, and the runner must not load the settings.
ApprovalMode = Literal["AUTO", "REQUIRE_APPROVAL", "DISABLED"]
"""`AUTO` asks about tools that have an approval hint, `REQUIRE_APPROVAL` about each, `DISABLED` about none."""
