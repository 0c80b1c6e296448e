"""What waits in a thread's queue: inputs for their turn, signals, and requests to the process that drives a run (spec 2.4, E2, E12)."""

from __future__ import annotations

from typing import Any

import msgspec

from graphflow.capabilities import By, Person, name_of, person_of
from graphflow.checkpoints import codec
from graphflow.checkpoints.rows import Queued
from graphflow.events import RequestQuery, RequestSubmit
from graphflow.runtime.run_request import RunRequest


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal on its way to a thread."""

    name: str
    payload: Any = None


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Asks the process that drives the thread to stop. It applies to one epoch; under another fence it is ignored."""

    fence: int
    how: str = "cancel"
    """`cancel` the run, or `release` a thread that waits for people while its process holds it."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send word of a run, each time it waits or ends. It stays until its last delivery."""

    run_id: str
    url: str
    attempts: int = 0
    """Failed ones of the present delivery."""
    not_before: int = 0
    """When to try again, epoch ms."""


class HandedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answers for the process that drives the thread, from one that does not."""

    answers: dict[str, Any]
    """By interrupt id."""
    by: str | None = None
    user: str | None = None
    admin: bool = False
    """Of who answers; what an older version handed over is no admin's."""
    event: RequestSubmit | None = None
    """Sent before the answers take effect."""

    @classmethod
    def of(cls, answers: dict[str, Any], by: By, event: RequestSubmit | None) -> HandedAnswer:
        """The message for answers that this person gives."""
        person = person_of(by)
        return cls(answers=answers, by=name_of(by), user=person.user, admin=person.admin, event=event)

    @property
    def person(self) -> Person:
        """Who answers."""
        return Person(name=self.by or Person().name, user=self.user, admin=self.admin)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why an answer was refused by who has the thread; for the caller that waits for it."""

    position: int
    """Of the answer."""
    code: str
    message: str
    detail: dict[str, Any]


Body = RunRequest | Signal | Stop | Webhook | HandedAnswer | Refusal
_KINDS: dict[type, str] = {
    RunRequest: "input",
    Signal: "signal",
    Stop: "stop",
    Webhook: "webhook",
    HandedAnswer: "answer",
    Refusal: "refusal",
}
_TYPES: dict[str, type[Body]] = {kind: cls for cls, kind in _KINDS.items()}

# The names of the fields are stored keys, and stay. What is left out has done its work when the input is queued, or is
# stored beside it or in another form.
_NOT_STORED = ("thread_id", "on_busy", "effects", "by", "query")
_INPUT_KEYS = tuple(name for name in RunRequest.__struct_fields__ if name not in _NOT_STORED)
_SUBMIT_KEYS = ("request_id", "chat_id", "run_id", "tool_id", "payload", "view_id")
_QUERY_KEYS = ("request_id", "message", "role", "agent_key", "references", "params", "scene", "stream", "message_id")


def kind_of(body: Body) -> str:
    """The `kind` under which the store keeps it."""
    return _KINDS[type(body)]


def encode_queued(body: Body) -> bytes:
    """The bytes that the store keeps.

    Raises:
        CodecError: the input or payload can't be stored.
    """
    if not isinstance(body, RunRequest):
        plain = msgspec.structs.asdict(body)
        if plain.get("event") is not None:
            plain["event"] = {name: getattr(plain["event"], name) for name in _SUBMIT_KEYS}
        return codec.encode(plain, channel="input")
    query = body.query
    fields = {name: getattr(body, name) for name in _INPUT_KEYS}
    fields["request"] = None if query is None else {name: getattr(query, name) for name in _QUERY_KEYS}
    return codec.encode(fields, channel="input")


def decode_queued(queued: Queued) -> Any:
    """The body of a queue's entry; fields that a newer version wrote are left out."""
    cls, fields = _TYPES[queued.kind], codec.decode(queued.body)
    if fields.get("event") is not None:
        fields["event"] = RequestSubmit(
            **{name: fields["event"][name] for name in _SUBMIT_KEYS if name in fields["event"]}
        )
    if cls is not RunRequest:
        return cls(**{name: fields[name] for name in cls.__struct_fields__ if name in fields})
    query = fields.get("request")
    # Another version may have queued it: missing fields get their defaults.
    known = {name: fields[name] for name in _INPUT_KEYS if name in fields}
    return RunRequest(
        **known,
        thread_id=queued.thread_id,
        query=None if query is None else _query_of(queued.thread_id, query),
    )


def _query_of(thread_id: str, stored: dict[str, Any]) -> RequestQuery:
    return RequestQuery(chat_id=thread_id, **{name: stored[name] for name in _QUERY_KEYS if name in stored})
