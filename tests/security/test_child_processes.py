"""Child processes: one module starts those that a model asks for, and each gets nothing and leaves nothing."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from graphflow.tools.builtin.process import run_program
from graphflow.tools.workspace import ProtectedFiles
from graphflow.tools.workspace.sandbox import Sandboxes, sandboxed
from tests.docs.blocks import ROOT
from tests.needs import need
from tests.patience import PATIENCE_S
from tests.security.workspace_folder import SECRET

STARTS = re.compile(
    r"\b(?:subprocess\.[a-z]\w*|os\.(?:exec|spawn|posix_spawn|fork|popen|system)\w*|create_subprocess_\w+"
    r"|from (?:subprocess|pty|multiprocessing)\b|import (?:pty|multiprocessing)\b|ProcessPoolExecutor)"
)
"""What a process could begin with."""
STARTERS = {
    "graphflow/tools/builtin/process.py": {"create_subprocess_exec"},
    "graphflow/tools/workspace/sandbox.py": {"subprocess.run"},
    "graphflow/tools/workspace/program_launcher.py": {"os.execv"},
}
"""The only places that start a process: the runner, the probe of the sandbox, the launcher that becomes the program."""


def test_no_other_place_starts_a_process():
    files = sorted((ROOT / "graphflow").rglob("*.py"))
    found = {str(file.relative_to(ROOT)): set(STARTS.findall(file.read_text(encoding="utf-8"))) for file in files}
    assert {file: calls for file, calls in found.items() if calls} == STARTERS


NONE = Sandboxes(bubblewrap=lambda: None, landlock=lambda: False)


def launched(*argv: str) -> tuple[str, ...]:
    """The command line of a program without a sandbox."""
    box = sandboxed(argv, "off", setting="x", network=False, protected=ProtectedFiles(), machine=NONE)
    return box.argv


async def test_a_program_gets_no_environment_and_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (tmp_path / "secret").write_text(SECRET, encoding="utf-8")
    handle = os.open(tmp_path / "secret", os.O_RDONLY)
    os.set_inheritable(handle, True)
    try:
        code = "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}), os.listdir('/dev/fd'))"
        argv = launched(sys.executable, "-I", "-c", code)
        ended = await run_program(argv, cwd=tmp_path, env={"A": "1"}, timeout_s=60, max_chars=999)
    finally:
        os.close(handle)
    # The last one is the listing's own.
    assert ended.stdout == "['A'] ['0', '1', '2', '3']\n"


async def has_ended(pid: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return
            if state in "ZX":
                return
            await asyncio.sleep(0)


LEAVES_A_CHILD = """
import os, subprocess, sys
kept = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(kept.pid, flush=True)
"""


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path):
    need(Path("/proc/self").exists(), "/proc")
    argv = [sys.executable, "-c", LEAVES_A_CHILD]
    ended = await run_program(argv, cwd=tmp_path, env={}, timeout_s=60, max_chars=99)
    assert ended.exit_code == 0
    await has_ended(int(ended.stdout))


SERVER = """
import asyncio, sys
from pathlib import Path
from graphflow.tools.builtin.process import run_program
from graphflow.tools.workspace import ProtectedFiles
from graphflow.tools.workspace.sandbox import sandboxed
code = "import os, time; print(os.getpid(), file=open('pid', 'w')); os.rename('pid', 'ready'); time.sleep(600)"
box = sandboxed([sys.executable, "-c", code], "off", setting="x", network=False, protected=ProtectedFiles())
asyncio.run(run_program(box.argv, cwd=Path(sys.argv[1]), env={}, timeout_s=600, max_chars=9))
"""


async def test_a_program_ends_with_the_server_however_that_ends(tmp_path: Path):
    need(sys.platform == "linux", "Linux")
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, str(tmp_path), cwd=ROOT)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (tmp_path / "ready").exists():
                assert server.returncode is None
                await asyncio.sleep(0)
    finally:
        server.send_signal(signal.SIGKILL)
        await server.wait()
    await has_ended(int((tmp_path / "ready").read_text(encoding="utf-8")))


async def test_output_is_bounded_and_the_program_still_ends(tmp_path: Path):
    argv = launched(sys.executable, "-c", "import sys; [sys.stdout.write('x' * 99_999) for _ in range(99)]")
    ended = await run_program(argv, cwd=tmp_path, env={}, timeout_s=60, max_chars=100)
    assert (ended.stdout, ended.cut, ended.exit_code) == ("x" * 100, True, 0)
