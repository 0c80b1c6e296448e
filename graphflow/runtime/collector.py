"""A policy for Python's cyclic garbage collector in a process that drives many runs."""

from __future__ import annotations

import gc

from graphflow.arguments import checked
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.runtime.runs.live_runs import LiveRun, registry_of

LEAST = 5_000
"""New objects that bring a collection while few runs are live. Runs that have ended leave the collector next to nothing,
while it stops every stream for as long as it looks through those that flow."""
PER_RUN = 25
"""Objects that a live run holds between two steps. They come and go in waves, since a commit's objects live until it is
durable; with fewer to spare, each wave would have the collector look through all runs for garbage that is not there."""


@checked
def relax_collector(checkpointer: Checkpointer) -> None:
    """Makes the garbage collector run more rarely in this process, the more rarely the more runs are live over the store.

    What is loaded by now (modules, graphs) is left out of every later collection. `graphflow serve` calls it; a program
    that drives hundreds of runs at once may, after it has loaded its graphs. It lasts until the process ends.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(LEAST, 20, 20)
    registry = registry_of(checkpointer)

    def make_room(_: LiveRun) -> None:
        needed = PER_RUN * registry.live
        if needed > gc.get_threshold()[0]:
            gc.set_threshold(2 * needed, 20, 20)  # twice, so that it is set a few times and not for every run

    registry.on_begin.append(make_room)
