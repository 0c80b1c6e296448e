"""graphflow by its public names, all default features on: events, ids, limits, checks, a checkpoint a step, FULL sync.

Variants: `stream` consumes every event of the run through `app.stream` (by default `app.run`, which makes the same events
and has nobody to hand them to); `sync` commits every step before the next one starts.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

PACKAGES = ["graphflow", "msgspec", "cel-expr-python", "psycopg"]
HOMES = {
    "engine": ["chain", "loop", "route", "sequential", "condition", "declared"],
    "branches": ["fanout", "nested", "subfan", "wide"],
    "talk": ["react", "agent"],
    "growth": ["growth"],
    "streams": ["stream", "model_stream", "slow"],
    "questions": ["pause", "cold"],
}
