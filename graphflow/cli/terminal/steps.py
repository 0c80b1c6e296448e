"""The checkpoints of a thread as a table of steps, and the path that its run took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphflow.cli.terminal.console import Bar, columns, put, say_table, shown_on_terminal, tokens_of

if TYPE_CHECKING:
    from graphflow.graph.definition.document import GraphDefinition
    from graphflow.graph.drawing.render import PathTaken
    from graphflow.runtime.thread import CheckpointInfo, Thread


def step_dict(row: CheckpointInfo, cost: dict[str, Any], *, is_head: bool = False) -> dict[str, Any]:
    """One line of `threads show`, as data."""
    import msgspec

    out: dict[str, Any] = {**msgspec.to_builtins(row), **cost}
    if is_head:
        out["head"] = True
    return {key: value for key, value in out.items() if value is not None}


def say_steps(steps: list[dict[str, Any]], *, lineages: bool = False) -> None:
    """The step table: one line per checkpoint, time as a bar."""
    longest = max((step.get("durationMs", 0) for step in steps), default=0) or 1
    branches = {number: index for index, number in enumerate(dict.fromkeys(step["lineage"] for step in steps))}
    rows = []
    for step in steps:
        ms = step.get("durationMs")
        rows.append(
            (
                "▶" if step.get("head") else "",
                *([branches[step["lineage"]]] if lineages else []),
                step["step"],
                step["node"] or "-",
                step["source"] + (f" ✗ {step['error']}" if step.get("error") else ""),
                "" if ms is None else f"{ms} ms",
                Bar(None if ms is None else ms / longest),
                step.get("tokens") or "",
                short_id(step["id"]),
                ", ".join(step["next"]),
            )
        )
    head = ["", *(["branch"] if lineages else []), "step", "node", "source", "time", "", "tokens", "checkpoint", "next"]
    say_table(head, rows, right=(4 + lineages, 6 + lineages))


def say_drawing(document: GraphDefinition, path: PathTaken | None = None) -> None:
    """Prints a graph as a list of its nodes, fitted to the terminal."""
    from graphflow.graph.drawing.render import draw_text

    put(draw_text(document, path, columns() if shown_on_terminal() else None))


def short_id(checkpoint_id: str) -> str:
    """The end of an id that people copy; `checkpoint_named` finds it again."""
    return checkpoint_id[-8:]


async def step_costs(thread: Thread, rows: list[CheckpointInfo]) -> dict[str, dict[str, Any]]:
    """Checkpoint → time and tokens of the node that ended in it, from the stored events of each run."""
    from graphflow.events import NodeEnd

    costs: dict[str, dict[str, Any]] = {}
    for run_id in dict.fromkeys(row.run_id for row in rows if row.run_id):
        # A node's end is sent before its commit is durable, so events and checkpoints are paired by their order.
        ends = [event for event, _ in await thread.events(run_id, whole=False) if isinstance(event, NodeEnd)]
        for row in _finished([row for row in rows if row.run_id == run_id]):
            end = next((end for end in ends if end.node == row.node.rpartition("/")[2]), None)
            if end is not None:
                ends.remove(end)
                costs[row.id] = {"durationMs": end.duration_ms, "tokens": tokens_of(end.usage) or None}
    return costs


def _finished(rows: list[CheckpointInfo]) -> list[CheckpointInfo]:
    """The checkpoints of one run, oldest first, in which a node finished: there the step count grows."""
    before = [None, *rows[:-1]]
    return [
        row for row, last in zip(rows, before, strict=True) if row.step > (last.step if last else 0) and not row.error
    ]


async def path_taken(thread: Thread) -> PathTaken:
    """The nodes that finished since the thread's newest input, in order, and where it stands."""
    from graphflow.graph.drawing.render import PathTaken

    state = await thread.state()
    rows: list[CheckpointInfo] = []
    for row in await thread.history():
        rows.insert(0, row)
        if row.source == "input":
            break
    unfinished = state.status in ("running", "waiting", "stopped", "failed")
    return PathTaken(nodes=tuple(row.node for row in _finished(rows)), current=tuple(state.next) if unfinished else ())
