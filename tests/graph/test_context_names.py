"""The names that a node's code sees on its context: at most twenty, so that completion shows what matters."""

from __future__ import annotations

from graphflow import Context
from graphflow.graph.engine.node_run import NodeRun

PUBLIC = frozenset(
    """
    input params node path visit attempt thread_id run_id now random idempotency_key
    step ask content reasoning emit open_model call_model tool store
    """.split()
)


def test_a_context_has_these_names_and_no_others():
    assert {name for name in dir(Context) if not name.startswith("_")} == PUBLIC
    assert len(PUBLIC) == 20


def test_a_node_run_is_a_context_without_a_dict():
    assert issubclass(NodeRun, Context)
    assert not hasattr(NodeRun, "__dict__") or "__dict__" not in dir(NodeRun.__new__(NodeRun))
