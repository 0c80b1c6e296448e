"""The certificates that clients of tests trust: one, since no test calls a stranger."""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from pathlib import Path

import certifi

_ONE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", re.DOTALL)


def use_one_certificate() -> None:
    """For this process and its children; a client of httpx takes 20 ms to read all of them. `SSL_CERT_FILE` wins."""
    if "SSL_CERT_FILE" in os.environ:
        return
    found = _ONE.search(Path(certifi.where()).read_text(encoding="utf-8"))
    assert found is not None
    number, name = tempfile.mkstemp(prefix="gfca-", suffix=".pem")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(found[0])
    atexit.register(_remove, Path(name), os.getpid())
    os.environ["SSL_CERT_FILE"] = name


def _remove(file: Path, owner: int) -> None:
    if os.getpid() == owner:
        file.unlink(missing_ok=True)
