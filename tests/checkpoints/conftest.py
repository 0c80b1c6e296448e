"""A schema for a test, and what a test of the PostgreSQL store needs beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import Schemas


@pytest.fixture
def schema(schemas: Schemas) -> Iterator[str]:
    """A schema of one's own."""
    yield schemas.take()
    schemas.empty()
