"""Which calls the readers of a run have been told of, so that none begins twice and none has two results (spec 3.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from graphflow.events import ActionResult, ActionSnapshot, Event, ToolResultEvent, ToolSnapshot

Recall = Callable[[], Awaitable[Iterable[Event]]]
"""The events of the run that are stored."""


class AnnouncedCalls:
    """The calls of one run that its readers know.

    A later epoch knows those of the epochs before it once it has asked the run's log (`learn`), which only nodes that run
    calls do.

    Args:
        complete: this epoch sends the run's log from its beginning.
    """

    __slots__ = ("answered", "complete", "recall", "started")

    def __init__(self, *, complete: bool) -> None:
        self.complete = complete
        self.started: dict[str, bool] = {}
        """Id → whether the call is of an action."""
        self.answered: dict[str, Any] = {}
        """Those whose result was told, with it."""
        self.recall: Recall | None = None

    def knows(self, call_id: str) -> bool:
        """Whether readers have been told that the call begins, as far as this epoch can say."""
        return call_id in self.started or not self.complete

    async def learn(self) -> None:
        """Knows all calls of earlier epochs too, from now on."""
        if not self.complete and self.recall is not None:
            self.note(await self.recall())
            self.complete = True

    def settle(self, text: str) -> Iterator[Event]:
        """Gives every call that was told of and has no result this one."""
        for call_id, action in self.started.items():
            if call_id not in self.answered:
                self.answered[call_id] = text
                if action:
                    yield ActionResult(action_id=call_id, result=text)
                else:
                    yield ToolResultEvent(tool_id=call_id, result=text)

    def note(self, events: Iterable[Event]) -> None:
        """These events of the run were sent in an earlier epoch."""
        for event in events:
            if isinstance(event, ToolSnapshot):
                self.started[event.tool_id] = False
            elif isinstance(event, ActionSnapshot):
                self.started[event.action_id] = True
            elif isinstance(event, ToolResultEvent):
                self.answered[event.tool_id] = event.result
            elif isinstance(event, ActionResult):
                self.answered[event.action_id] = event.result
