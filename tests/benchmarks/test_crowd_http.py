"""The crowd over HTTP in small: every stream of fifty clients at once comes whole. Nothing here looks at how fast it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]


def test_every_stream_of_fifty_clients_is_complete_by_every_way() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "crowd_http.py")]
    command += ["--clients", "50", "--rounds", "2", "--tokens", "5", "--pause", "0.01"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout)
    ways = [*figures["paced"].values(), *figures["full_speed"].values()]
    assert [way["streams"] for way in ways] == [50, 100, 100, 50, 50]
    assert all(way["complete"] == way["streams"] for way in ways)
