"""The kernel's view of processes: it shows the server's environment and open files, so no tool sees any of it."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from graphflow.settings import Settings
from graphflow.tools.builtin import BashPolicy
from graphflow.tools.builtin.bash import run_command
from graphflow.tools.builtin.output import Output
from graphflow.tools.builtin.readers import read_files
from graphflow.tools.envelope import to_envelope
from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace
from graphflow.tools.workspace.system import System
from tests.needs import need
from tests.security.workspace_folder import SECRET, code_of, settings_in, system

__all__ = ["system"]

FILES = [
    "/proc/self/environ", "/proc/thread-self/environ", "/proc/{pid}/environ", "/proc/{pid}/task/{pid}/environ", "/proc/1/environ",
    "/proc/self/cmdline", "/proc/{pid}/cmdline", "/proc/self/maps", "/proc/self/mem", "/proc/self/status", "/proc/kcore",
    "/proc/self/fd/{file}", "/proc/{pid}/fd/{file}", "/dev/fd/{file}", "/proc/self/fd/{folder}/.env", "/dev/fd/{folder}/.env",
    "/proc/self/root{home}/.env", "/proc/{pid}/root{home}/.env", "/proc/self/cwd/.env", "/proc/self/root/proc/self/environ",
    "/proc/../proc/self/environ", "//proc//self//environ", "{home}/link/self/environ", "{home}/environ",
]  # fmt: skip


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    need(Path("/proc/self/environ").exists(), "/proc")
    (tmp_path / ".env").write_text(SECRET, encoding="utf-8")
    (tmp_path / "link").symlink_to("/proc")
    (tmp_path / "environ").symlink_to("/proc/self/environ")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    return tmp_path


@pytest.mark.parametrize("root", ["/", "/proc", "/proc/self"])
@pytest.mark.parametrize("path", FILES)
def test_no_root_opens_them(server: Path, system: System, path: str, root: str):
    file, folder = os.open(server / ".env", os.O_RDONLY), os.open(server, os.O_RDONLY)
    try:
        name = path.format(pid=os.getpid(), file=file, folder=folder, home=server)
        workspace = Workspace(Path(root), protected=ProtectedFiles.of(settings_in(server)), system=system)
        for step in (
            lambda: workspace.read(name, 99),
            lambda: workspace.stat(name),
            lambda: workspace.write(name, b""),
        ):
            assert code_of(step) in ("ACCESS_DENIED", "NOT_FOUND", "PERMISSION_DENIED")
    finally:
        os.close(file)
        os.close(folder)


@pytest.mark.parametrize(
    "command", ["ls /proc", "ls -la /proc/self/fd", "ls -d /proc/*", "cat /proc/*/environ", "df /proc"]
)
async def test_bash_shows_none_of_them(server: Path, command: str):
    policy = BashPolicy(working_directory="/", allowed_paths=("/proc", "/dev"), protected=ProtectedFiles.of(Settings()))
    result = to_envelope(await run_command(command, policy))
    assert result["status"] == "error"
    assert result["error"]["code"] in ("ACCESS_DENIED", "INVALID_PARAM")  # a pattern that matches nothing
    assert str(os.getpid()) not in str(result)


def test_they_are_known_wherever_they_are_mounted(server: Path, system: System):
    """By their device, as in a container that has the host's `/proc` at `/host/proc`."""
    facts = Path("/proc/self/status").stat()
    guard = ProtectedFiles(names=False).guard(Path("/host"))
    assert guard.knows(facts)
    assert not guard.knows(server.stat())


class _Broken(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise OSError(5, "Input/output error")


class _BrokenDisk(Workspace):
    def open(self, path: str) -> io.BytesIO:
        return _Broken()


def test_a_file_whose_reading_fails_is_a_line_of_the_output(tmp_path: Path):
    workspace = _BrokenDisk(tmp_path)
    out = Output(999, 60)
    read_files("cat", [], ["a.txt"], workspace, out)
    assert out.stderr == "cat: 'a.txt' can't be used: Input/output error\n"
    with pytest.raises(FileRefused, match="Input/output error"):
        workspace.read("a.txt", 9)
