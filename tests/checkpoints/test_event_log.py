"""The stored form of events: what is left out of it comes back."""

from __future__ import annotations

from graphflow.checkpoints.event_log import pack, unpack
from graphflow.checkpoints.ids import long_id, short_id
from graphflow.checkpoints.record_decoder import complete
from graphflow.events import Event, NodeEnd, NodeStart, RunComplete, RunStart
from graphflow.graph.core.commands import Commit
from graphflow.graph.core.machine import Machine, Patch

COMMIT = Commit("id", 100, "node", True, Patch({}, {}, {}), machine=Machine(run_id="run"))


def back(*events: Event) -> list[Event]:
    for number, event in enumerate(events, 1):
        event.seq, event.timestamp = number, 100
    packed = pack([(event, event.seq) for event in events], COMMIT, len(events), {})
    complete(packed)
    return [event for event, _ in unpack(packed, len(events), 100, "run", lambda ref: "")]


def test_node_runs_come_back_with_their_names() -> None:
    events = [
        NodeStart(node="a", node_run_id="1.1", step=1, attempt=1),
        NodeEnd(node="a", node_run_id="1.1", duration_ms=2, writes=["x"]),
        NodeStart(node="b", node_run_id="1.2", step=2, attempt=2, path="sub#1"),
        NodeEnd(node="c", node_run_id="1.0", duration_ms=3, usage={"toolCalls": 1}),
        NodeEnd(node="b", node_run_id="1.2", duration_ms=0),
    ]
    assert back(*events) == events


def test_events_of_the_record_s_run_and_of_another_keep_their_run() -> None:
    events = [RunStart(run_id="run", chat_id="chat"), RunComplete(run_id="earlier", finish_reason="stop")]
    assert back(*events) == events


def test_only_canonical_uuids_are_shortened() -> None:
    canonical = "01a1f9f2-c891-7000-b17d-964597a95fc6"
    assert short_id(canonical) == bytes.fromhex(canonical.replace("-", ""))
    for text in (canonical, canonical.upper(), canonical[:-1] + "x", "chat", "-" * 36, " " + canonical[1:], None):
        assert long_id(short_id(text)) == text
