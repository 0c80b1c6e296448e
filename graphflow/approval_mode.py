"""The approval modes of tool calls: one list for settings, agent files and the tool runner (spec 8.5)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

# At the bottom of the package: settings may import nothing above them, and the runner must not load the settings.
ApprovalMode = Literal["AUTO", "REQUIRE_APPROVAL", "DISABLED"]
"""`AUTO` asks about tools that have an approval hint, `REQUIRE_APPROVAL` about each, `DISABLED` about none."""


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How calls of a tool are approved: when, by whom, and by how many."""

    mode: ApprovalMode = "REQUIRE_APPROVAL"
    """When a person is asked. Default: always."""
    by: Literal["anyone", "other"] = "anyone"
    """`other`: not by who asked for the run."""
    count: Annotated[int, msgspec.Meta(ge=1, le=10)] = 1
    """So many different people approve; one who rejects is enough to reject."""

    @property
    def is_special(self) -> bool:
        """Whether not just anybody alone approves."""
        return self.by == "other" or self.count > 1
