"""LangGraph as its documentation shows it: `StateGraph`, its message classes, its savers (SQLite: WAL, `synchronous=FULL`).

Variants: `sync` sets `durability="sync"` (default `async`); `delta` keeps messages in the beta `DeltaChannel`; `react` uses
`create_react_agent` in place of LangChain's `create_agent`. Routers and nodes are async: LangGraph sends a sync one to a
thread. Rows named `lg_*` are LangGraph's own benchmarks, run as those are: `astream` read to the end.
"""

from __future__ import annotations

PACKAGES = [
    "langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "langgraph-prebuilt", "langchain",
    "langchain-core",
]  # fmt: skip
HOMES = {
    "engine": ["chain", "loop", "route", "sequential"],
    "branches": ["fanout", "nested", "subfan", "wide"],
    "talk": ["react", "agent"],
    "growth": ["growth"],
    "streams": ["stream", "model_stream", "slow"],
    "questions": ["pause", "cold"],
}
