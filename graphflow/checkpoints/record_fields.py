"""The fields of stored records by the codes under which they are stored.

A record's `data` is `[format, tick source, node, frame, time, machine, frames, interrupts, facts]`, then
`[seq, tail, events]`: the first part is known, and known to be storable, before anything is sent.
State values are in it; entries of append channels are rows of their own and only counted here.
Field codes are part of the stored format: never reuse one.
"""

from __future__ import annotations

FORMAT = 1

MACHINE_CODES = {
    "status": "s", "run_id": "r", "limits": "l", "usage": "u", "before": "b", "after": "a", "params": "p", "steps": "n",
    "begun": "g", "frames_made": "f", "active_ms": "m", "wrapping": "w", "finish_reason": "y", "error": "e", "durability": "d",
    "reuse": "x", "signals": "k", "document": "h", "granted": "t", "chosen": "o", "origin": "q",
    "starter": "c", "tools": "i", "kept": "v",
}  # fmt: skip
"""`last_at` is the record's own time."""

FRAME_CODES = {
    "graph": "g", "parent": "q", "path": "p", "node": "n", "visit": "v", "attempt": "a", "status": "s", "visits": "c", "input": "i",
    "scope": "x", "error": "e", "operations": "o", "passed": "b", "until": "u", "opened": "d", "join": "k", "branch": "r",
    "spent": "m", "granted": "t",
}  # fmt: skip

INPUT_BY_REFERENCE = "j"
"""Instead of `i`: `[input without its query, ordinal of the query's message in the frame's log]`; see `inputs`."""

Starts = dict[str, int]
"""Channel of the root → ordinal of the entry that wrote its list anew last; what comes before it is dead."""

Counts = dict[tuple[int, str], int]
"""(frame, channel) → log entries so far."""


def forget_frames(counts: Counts, closed: set[int]) -> None:
    """Drops the counts of frames that are no more."""
    if len(closed) < len(counts) // 2:
        for key in [key for key in counts if key[0] in closed]:
            del counts[key]
    else:  # a join forgets most
        kept = {key: count for key, count in counts.items() if key[0] not in closed}
        counts.clear()
        counts.update(kept)
