"""What every test may rely on: no setting or key of the developer's machine reaches a test."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from graphflow import MemoryCheckpointer, PostgresCheckpointer, SqliteCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer
from tests.certificates import use_one_certificate
from tests.memory_folder import use_memory
from tests.postgres import Schemas
from tests.postgres_server import PostgresServer
from tests.streams import watched_streams

TESTS = Path(__file__).parent
OpenStore = Callable[[], Checkpointer]

use_memory()
use_one_certificate()

# A slow machine is no defect: nobody judges how long an example takes, and a failing one says how to have it again.
settings.register_profile("graphflow", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("graphflow")

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
def _no_set_up_of_logs_from_another_test() -> Iterator[None]:
    """What nobody has set up goes to stderr; `capture_logs` leaves structlog set up, too."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _streams_keep_their_grammar(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test whose runs send an event that the grammar of streams forbids (spec 3.3)."""
    with watched_streams(monkeypatch) as watch:
        yield
    assert not watch.broken, "\n".join(watch.broken)


# --- one PostgreSQL for all workers ----------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist, before it starts a worker: all get the same server, which ends with the process that starts them."""
    if not hasattr(node.config, "shared_postgres"):
        node.config.shared_postgres = server = PostgresServer()
        node.config.add_cleanup(server.close)
        server.start()
    node.workerinput["postgres"] = str(node.config.shared_postgres.folder)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """The server of the whole session. Others use it at the same time: take a database (`database()`) or a schema of it."""
    shared = getattr(request.config, "workerinput", {}).get("postgres")
    with PostgresServer(folder=Path(shared) if shared else None) as server:
        yield server


@pytest.fixture(scope="session")
def schemas(postgres: PostgresServer) -> Iterator[Schemas]:
    """A database of this process on the session's server, and empty schemas in it."""
    with postgres.database() as url, Schemas(url) as made:
        yield made


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Checkpointer]:
    """A fresh store of each kind: what is promised of threads is kept by all of them."""
    if request.param == "postgres":
        schemas: Schemas = request.getfixturevalue("schemas")
        made: Checkpointer = PostgresCheckpointer(schemas.url, schema=schemas.take())
    else:
        made = MemoryCheckpointer() if request.param == "memory" else SqliteCheckpointer(tmp_path / "t.db")
    yield made
    await made.close()
    if request.param == "postgres":
        schemas.empty()


@pytest.fixture(params=["sqlite", "postgres"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens one store again and again, as several processes do."""
    schemas: Schemas | None = request.getfixturevalue("schemas") if request.param == "postgres" else None
    schema = schemas.take() if schemas else ""
    made: list[Checkpointer] = []

    def open_again() -> Checkpointer:
        made.append(
            PostgresCheckpointer(schemas.url, schema=schema) if schemas else SqliteCheckpointer(tmp_path / "t.db")
        )
        return made[-1]

    yield open_again
    for store in made:
        await store.close()
    if schemas:
        schemas.empty()


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A server that nobody else uses, for tests that stop, restart or crash it."""
    with PostgresServer() as server:
        yield server


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: a worker waits while the processes that its test has started work or wait themselves."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """In a fresh clone each worker compiles a part of the tests, and finds the others' parts compiled: each begins elsewhere."""
    worker: dict[str, Any] = getattr(session.config, "workerinput", {})
    if worker and session.config.args == [TESTS.name]:
        parts = sorted(str(path) for path in TESTS.glob("[a-z]*") if path.is_dir() or path.name.startswith("test_"))
        begin = len(parts) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        session.config.args[:] = parts[begin:] + parts[:begin]


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def in_one_order(items: list[pytest.Item]) -> None:
    """Wherever a worker began to collect; before they are shuffled."""
    items.sort(key=lambda item: item.path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Campaigns come first: what takes long must not begin when the other workers are done."""
    items.sort(key=lambda item: item.get_closest_marker("campaign") is None)
