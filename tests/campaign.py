"""How much a campaign does: random programs, kills, cancels and requests, in numbers.

`make test` runs them short, all of them together within a minute; `make test-long` runs them long, with
`GRAPHFLOW_CAMPAIGN=long`. Nothing else decides a campaign's size: a campaign asks `size`, and bears the marker `campaign`.
"""

from __future__ import annotations

import os
from typing import Final

_MODES: Final = ("short", "long")
MODE: Final = os.environ.get("GRAPHFLOW_CAMPAIGN") or "short"
"""`short` or `long`; read before any test, because no test sees the settings of the developer's machine."""
if MODE not in _MODES:
    raise ValueError(f"GRAPHFLOW_CAMPAIGN is {MODE!r}; it is one of {_MODES}")


def size(short: int, *, long: int) -> int:
    """How many seeds, examples or rounds a campaign takes in this mode."""
    return long if MODE == "long" else short
