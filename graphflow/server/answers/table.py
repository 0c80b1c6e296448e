"""The answers of all routes."""

from __future__ import annotations

from typing import Any

from graphflow.server.answers.agents import AGENTS
from graphflow.server.answers.chats import CHATS
from graphflow.server.answers.decisions import DECISIONS
from graphflow.server.answers.memory import MEMORY
from graphflow.server.answers.operations import OPERATIONS
from graphflow.server.answers.runs import RUNS
from graphflow.server.answers.threads import THREADS

ANSWERS: dict[str, Any] = {**AGENTS, **DECISIONS, **CHATS, **RUNS, **THREADS, **MEMORY, **OPERATIONS}
"""Method and path → `data` of the answer; of what is streamed or JSON, the JSON."""
