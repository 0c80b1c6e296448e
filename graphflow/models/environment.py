"""The one place where the models look at the process environment."""

from __future__ import annotations

import os
from collections.abc import Mapping


def environment(given: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """`given`, or the process environment."""
    return os.environ if given is None else given
