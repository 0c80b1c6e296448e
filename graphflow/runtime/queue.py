"""What waits in a thread's queue: inputs for their turn, signals, and requests to the owner of a life (spec 2.4, E2, E12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints import codec
from graphflow.checkpoints.rows import Queued


class QueuedRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that has been accepted and not begun: everything that beginning it needs."""

    run_id: str
    input: Any
    agent_key: str | None = None
    durability: str = "async"
    budget: Mapping[str, Any] | None = None
    interrupt_before: Sequence[str] = ()
    interrupt_after: Sequence[str] = ()
    params: Any = None
    on_waiting: str = "reject"
    """`cancel` closes questions that are open when its turn comes; else it waits until they are answered."""
    title: str | None = None
    hold_ms: int | None = None
    request: Mapping[str, Any] | None = None
    """Fields of `request.query`, when it came as a request."""
    holder: str | None = None
    """The owner of a caller that waits for the turn itself and drives the run (an attached one); None: whoever frees
    the thread begins it."""

    def options(self) -> dict[str, Any]:
        """What `CompiledGraph.launch` is given beside the input."""
        names = ("durability", "budget", "interrupt_before", "interrupt_after", "params", "run_id", "title")
        return {name: getattr(self, name) for name in names}


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal on its way to a thread."""

    name: str
    payload: Any = None


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Asks the owner of a life to end it. It means that life alone: under another fence it is void."""

    fence: int
    how: str = "cancel"
    """`cancel` the run, or `release` a thread that waits for people while its process holds it."""


Body = QueuedRun | Signal | Stop
_KINDS: dict[type, str] = {QueuedRun: "input", Signal: "signal", Stop: "stop"}
_TYPES: dict[str, type[Body]] = {"input": QueuedRun, "signal": Signal, "stop": Stop}


def kind_of(body: Body) -> str:
    """The `kind` under which the store keeps it."""
    return _KINDS[type(body)]


def encode_queued(body: Body) -> bytes:
    """The bytes that the store keeps.

    Raises:
        CodecError: the input or payload can't be stored.
    """
    return codec.encode(msgspec.structs.asdict(body), channel="input")


def decode_queued(queued: Queued) -> Any:
    """The body of a queue's entry; fields that a newer version wrote are left out."""
    cls = _TYPES[queued.kind]
    fields = codec.decode(queued.body)
    return cls(**{name: fields[name] for name in cls.__struct_fields__ if name in fields})
