"""Where a PostgreSQL store is: its URL, its name without the password, its owners' lock on this host."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from graphflow.checkpoints.postgres.pool import Target
from graphflow.checkpoints.process_lock import OwnerLock

DEFAULTS = {
    "fallback_application_name": "graphflow",
    "connect_timeout": 10,
    # A host that is gone without a word is noticed within the length of a lease.
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""Of the connection, where the URL says nothing else."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def target_of(
    url: str, schema: str, *, connections: int, patience_s: float, synchronous_commit: str | None
) -> Target:  # fmt: skip
    """Raises `ValueError` for what can't be; the URL is not repeated."""
    if not _NAME.fullmatch(schema):
        raise ValueError(f"schema={schema!r}: letters, digits and _ only, at most 63, and no digit first")
    if connections < 1:
        raise ValueError(f"connections={connections!r}: at least 1")
    parts = _parsed(url)
    options = [parts.get("options") or ""]
    if synchronous_commit is not None:
        options.append(f"-c synchronous_commit={synchronous_commit}")
    if any(options):
        parts["options"] = " ".join(filter(None, options))
    return Target(
        conninfo=make_conninfo(**{**DEFAULTS, **parts}),
        schema=f'"{schema}"',
        name=_without_password(parts, schema),
        patience_s=patience_s,
        connections=connections,
    )


def _parsed(url: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except ProgrammingError:
        # What is wrong is not said: it could be the password.
        raise ValueError(
            "the store's URL can't be read: write postgresql://user:password@host:port/database, with % before the codes of"
            " special characters (`%40` for @)"
        ) from None


def _without_password(parts: Mapping[str, Any], schema: str) -> str:
    """The store in messages: who, where, which."""
    host, port = str(parts.get("host") or parts.get("hostaddr") or ""), parts.get("port")
    user = f"{parts['user']}@" if parts.get("user") else ""
    place = f"{host}:{port}" if port else host
    folder = f"?host={place}" if place.startswith("/") else ""
    return f"postgresql://{user}{'' if folder else place}/{parts.get('dbname') or ''}{folder}#{schema}"


def owner_lock(name: str) -> OwnerLock:
    """The lock by which processes of this host see that an owner lives.

    Containers may share a host's name and boot id but not its folders, and users may not see each other's: there only the
    lease decides.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    shared = Path(tempfile.gettempdir())
    seen = shared.stat()
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return OwnerLock(
        shared / f"graphflow-{user}" / f"{digest}.owners", mark=f"{user}.{seen.st_dev:x}.{seen.st_ino:x}"
    )  # fmt: skip
