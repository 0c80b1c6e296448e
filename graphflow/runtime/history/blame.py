"""Who wrote a value: the checkpoint, node, visit, frame and model call behind any part of the state (spec 2.5)."""

from __future__ import annotations

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.record_decoder import decode_entry
from graphflow.checkpoints.rows import Log
from graphflow.errors import StateError
from graphflow.graph.core.immutable import ListView
from graphflow.graph.core.machine import Frame, all_frames
from graphflow.graph.core.plan import Plan
from graphflow.runtime.history.provenance import Blame, Tracer
from graphflow.runtime.history.state_paths import MISSING, Place, origins, parse, read


async def blame(store: Checkpointer, plan: Plan, loaded: Loaded, expression: str, path: str = "") -> Blame:
    """Who wrote the value that the thread has where it was loaded.

    For a whole key, the last write counts; for a part of a value, the last write that changed the part; for an item of
    a list that grows, the write that added it. A join's write is its node's; `branches` has the writes that it reduced.

    Args:
        plan: the version that the thread runs.
        expression: `state.KEY`, then `.name`, `[index]` or `["name"]`; `state.` may be left out.
        path: the frame whose state is meant, of those that are open or wait for their join; default the root.

    Raises:
        StateError: no such frame, key or part.
    """
    tracer = Tracer(store, plan, loaded, expression)
    key, parts = tracer.key, tracer.parts
    frame = _frame(loaded, path)
    value = read(frame.state, (key, *parts))
    if value is MISSING:
        raise StateError(
            f"{expression!r} names nothing in the state of {path or 'the root'}; keys are {', '.join(frame.state) or 'none'}",
            code="invalid_input",
            keys=list(frame.state),
        )
    found = await _trace(tracer, loaded, frame, value)
    if found is None:
        raise StateError(f"what wrote {expression!r} was pruned from the history", code="invalid_input")
    return found


async def _trace(tracer: Tracer, loaded: Loaded, frame: Frame, value: object) -> Blame | None:
    """Who wrote a frame's value: in it, or when it is a branch that has not touched it, in the frame that it came from."""
    key, parts, chain = tracer.key, tracer.parts, loaded.chain
    above = loaded.machine.frames.get(frame.parent) if frame.branch is not None else None
    above = above if above is not None and above.graph == frame.graph else None
    if isinstance(frame.state.get(key), ListView):
        if parts and isinstance(parts[0], int):
            places = await _places(tracer, loaded, frame)
            number, ordinal = places[parts[0]]
            holder = next(f for f in all_frames(loaded.machine) if f.number == number)
            return await tracer.entry(chain, loaded.counts, holder, ordinal, value)
        if count := loaded.counts.get((frame.number, key), 0):
            return await tracer.entry(chain, loaded.counts, frame, count - 1, value)
    elif (found := await tracer.value(chain, frame, value)) is not None:
        return found
    # A branch that did not write the key shows its parent's value.
    if above is not None:
        return await _trace(tracer, loaded, above, value)
    return await tracer.beginning(chain, frame, value)


async def _places(tracer: Tracer, loaded: Loaded, frame: Frame) -> list[Place]:
    """(frame, ordinal) of the entry behind each item of the frame's list."""
    parent = loaded.machine.frames.get(frame.parent) if frame.branch is not None else None
    shares = parent is not None and parent.graph == frame.graph
    above = await _places(tracer, loaded, parent) if shares and parent is not None else []
    count = loaded.counts.get((frame.number, tracer.key), 0)
    rows = (await tracer.store.read_logs(loaded.chain, [Log(frame.number, tracer.key, count)]))[0] if count else []
    return origins([decode_entry(row) for row in rows], above, frame.number)


def _frame(loaded: Loaded, path: str) -> Frame:
    open_ = {frame.path: frame for frame in all_frames(loaded.machine)}
    if path not in open_:
        listed = ", ".join(repr(p) for p in open_)
        why = f"no frame {path!r} is open there; open are ('' is the root): {listed}"
        raise StateError(why, code="invalid_input", paths=list(open_))
    return open_[path]


__all__ = ["Blame", "blame", "parse"]
