"""What every test may rely on: no setting or key of the developer's machine reaches a test."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.postgres import Schemas
from tests.streams import watched_streams

_OURS = re.compile(
    r"^(GRAPHFLOW|AGENT|MEMORY_CHAT|LLM|TRACE|CIRCUIT)_|_(API_KEY|BASE_URL|MODEL)$"
    r"|^(SERVER_PORT|MCP_SERVERS|BASH_ALLOW_NETWORK|ENABLE_LEGACY_ADAPTER|NO_COLOR|FORCE_COLOR)$"
)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes every environment variable that graphflow would read."""
    for name in list(os.environ):
        if _OURS.search(name):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _streams_keep_their_grammar(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test whose runs send an event that the grammar of streams forbids (spec 3.3)."""
    with watched_streams(monkeypatch) as watch:
        yield
    assert not watch.broken, "\n".join(watch.broken)


@pytest.fixture(scope="session")
def schemas() -> Iterator[Schemas]:
    """A PostgreSQL for the whole session, started by the first test that asks, and empty schemas on it."""
    with Schemas() as made:
        yield made
