"""The calls announced to the readers of a run, so that none begins twice and none has two results (spec 3.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from graphflow.events import ActionResult, ActionSnapshot, Event, ToolResultEvent, ToolSnapshot
from graphflow.messages import AIMessage, Message

Recall = Callable[[], Awaitable[Iterable[Event]]]
"""The events of the run that are stored."""


class AnnouncedCalls:
    """The calls of one run that were announced to its readers.

    A later epoch reads the calls of earlier ones from the run's log (`learn`); only nodes that run calls pay for that.

    Args:
        complete: this epoch sends the run's log from its beginning.
    """

    __slots__ = ("_last", "_read", "answered", "complete", "given", "recall", "started")

    def __init__(self, *, complete: bool) -> None:
        self.complete = complete
        self.started: dict[str, bool] = {}
        """Id → whether the call is of an action."""
        self.answered: dict[str, Any] = {}
        """Call id → its result, if that was sent."""
        self.given: set[str] = set()
        """Ids of the calls of whole turns of this epoch, those that readers are not shown too, and of what they answered."""
        self.recall: Recall | None = None
        self._read = 0
        self._last: Message | None = None
        """How many messages of the last conversation were read, and the last of them."""

    def knows(self, call_id: str) -> bool:
        """Whether the call was announced, or may have been in an earlier epoch."""
        return call_id in self.started or not self.complete

    async def learn(self, messages: Sequence[Message] = ()) -> None:
        """Loads the calls of earlier epochs from the run's log, once, and takes those of a conversation as given."""
        if not self.complete and self.recall is not None:
            self.note(await self.recall())
            self.complete = True
        if messages:
            self._read_on(messages)

    def _read_on(self, messages: Sequence[Message]) -> None:
        # A conversation mostly goes on from the last one, and then only what is new in it is looked at.
        known = self._read if 0 < self._read <= len(messages) and messages[self._read - 1] is self._last else 0
        self._read, self._last = len(messages), messages[-1]
        for message in islice(messages, known, None):
            if isinstance(message, AIMessage):
                self.given.update([call.id for call in message.tool_calls])

    def settle(self, text: str) -> Iterator[Event]:
        """Result events with this text for every announced call without a result."""
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
