"""Types that a test registers with the codec, for its time only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphflow.checkpoints import type_registry as registry


@contextmanager
def own_types() -> Iterator[None]:
    """Forgets at the end what was registered inside."""
    before = dict(registry._by_type), dict(registry._by_name)
    try:
        yield
    finally:
        for known, kept in zip((registry._by_type, registry._by_name), before, strict=True):
            known.clear()  # type: ignore[attr-defined]
            known.update(kept)  # type: ignore[attr-defined]
