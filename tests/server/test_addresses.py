"""A server that can't start says why in one error, before it has changed anything."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphflow.cli.terminal.exit_codes import exit_code_of
from graphflow.errors import DefinitionError, GraphflowError
from graphflow.server.listening import listen_on
from graphflow.server.run import make_server
from tests.cli.processes import Command
from tests.server.conftest import serving
from tests.service.conftest import make_application


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


async def test_a_taken_port_is_one_error_and_the_store_is_left_alone(
    folder: Path, taken: int, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(GraphflowError, match="another process listens there") as refused,
    ):
        await make_server(make_application(folder), port=taken).serve()
    assert f"127.0.0.1:{taken}" in str(refused.value) and "--port 0" in str(refused.value)
    assert exit_code_of(refused.value) == 2
    assert not [line for line in caplog.messages if "uvicorn" in line or "Errno" in line]
    assert not list((folder / "checkpoints").glob("*.db"))


def test_the_command_prints_one_line_and_exits_with_2(tmp_path: Path, taken: int) -> None:
    done = Command(tmp_path, {})("serve", "--port", str(taken))
    assert done.code == 2 and done.out == ""
    assert done.err.splitlines() == [
        line for line in done.err.splitlines() if line.startswith("graphflow: can't listen on")
    ]


@pytest.mark.parametrize("host", ["10.9.8.7", "no.such.host.invalid", "a" * 300, "fe80::1:2"])
def test_a_host_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(GraphflowError, match=r"127\.0\.0\.1") as refused:
        listen_on(host, 0)
    assert refused.value.code == "invalid_input"


def test_a_port_without_permission_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Guarded(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("graphflow.server.listening.socket.socket", Guarded)
    with pytest.raises(GraphflowError, match="above 1023"):
        listen_on("127.0.0.1", 80)


@pytest.mark.parametrize("host", ["::1", "[::1]", "localhost"])
async def test_ipv6_is_served_with_and_without_brackets(folder: Path, host: str) -> None:
    if not socket.has_ipv6:
        pytest.fail("this machine has no IPv6 in its Python")
    async with serving(make_application(folder), host=host) as (client, server):
        assert (await client.get("/api/health")).status_code == 200
        ports = {each.getsockname()[1] for one in server.servers for each in one.sockets}
        assert len(ports) == 1, "every address of a host has the same port"


@pytest.mark.parametrize(
    ("place", "said"),
    [("folder", "is a folder; it must be a file"), ("file/store.db", "is a file; it must be a folder")],
)
async def test_a_store_that_can_not_be_opened_ends_the_start_with_one_error(
    folder: Path, place: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "folder").mkdir()
    (folder / "file").touch()
    with caplog.at_level(logging.DEBUG), pytest.raises(DefinitionError, match=f"setting store.path: .*{said}"):
        await make_server(
            make_application(folder, environ={"GRAPHFLOW_STORE_PATH": str(folder / place)}), port=0
        ).serve()
    assert "Traceback" not in caplog.text


async def test_a_port_is_free_again_after_a_start_that_failed(folder: Path) -> None:
    (folder / "no.db").write_text("no database", encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    application = make_application(folder, environ={"GRAPHFLOW_STORE_PATH": str(folder / "no.db")})
    with pytest.raises(GraphflowError, match="not a SQLite database"):
        await make_server(application, port=port).serve()
    for each in listen_on("127.0.0.1", port):
        each.close()
