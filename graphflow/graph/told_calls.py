"""Which calls the readers of a run have been told of, so that none begins twice and none has two results (spec 3.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from graphflow.events import ActionResult, ActionSnapshot, Event, ToolResultEvent, ToolSnapshot

Recall = Callable[[], Awaitable[Iterable[Event]]]
"""The events of the run that are stored."""


class ToldCalls:
    """The calls of one run that its readers know.

    A later life knows those of the lives before it once it has asked the run's log (`learn`), which only nodes that run
    calls do.

    Args:
        complete: this life sends the run's log from its beginning.
    """

    __slots__ = ("answered", "complete", "recall", "started")

    def __init__(self, *, complete: bool) -> None:
        self.complete = complete
        self.started: set[str] = set()
        self.answered: dict[str, Any] = {}
        """Those whose result was told, with it."""
        self.recall: Recall | None = None

    def knows(self, call_id: str) -> bool:
        """Whether readers have been told that the call begins, as far as this life can say."""
        return call_id in self.started or not self.complete

    async def learn(self) -> None:
        """Knows all calls of earlier lives too, from now on."""
        if not self.complete and self.recall is not None:
            self.note(await self.recall())
            self.complete = True

    def note(self, events: Iterable[Event]) -> None:
        """These events of the run were sent in an earlier life."""
        for event in events:
            if isinstance(event, ToolSnapshot):
                self.started.add(event.tool_id)
            elif isinstance(event, ActionSnapshot):
                self.started.add(event.action_id)
            elif isinstance(event, ToolResultEvent):
                self.answered[event.tool_id] = event.result
            elif isinstance(event, ActionResult):
                self.answered[event.action_id] = event.result
