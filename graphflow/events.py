"""The event vocabulary (spec 3.3): every event is made once, here, in the shape that goes over the wire.

An event is a mutable struct only so that the run's log can number it (`seq`) when it is sent.
Optional fields that are `None` are left out of the JSON.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Literal, get_args

import msgspec

from graphflow.json_data import decode_json, encode_json

Family = Literal["contract", "graph", "always"]


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", tag_field="type", gc=False):
    """Base of all events: `seq` (1.. within the run), `type` and `timestamp` (epoch ms)."""

    seq: int = 0
    timestamp: int = 0

    family: ClassVar[Family] = "contract"
    type: ClassVar[str] = ""
    """The event's name; set below as a class attribute, because readers of a stream access it for every event."""


class _GraphEvent(Event):
    family: ClassVar[Family] = "graph"


# --- input and chat ------------------------------------------------------------------------------


class RequestQuery(Event, tag="request.query"):
    request_id: str
    chat_id: str
    message: str
    role: str
    agent_key: str | None = None
    references: list[Any] | None = None
    params: dict[str, Any] | None = None
    scene: Any = None
    stream: bool | None = None
    message_id: str | None = None
    """By which the message is edited and answered anew."""


class RequestUpload(Event, tag="request.upload"):
    request_id: str
    upload: dict[str, Any]
    chat_id: str | None = None


class RequestSubmit(Event, tag="request.submit"):
    request_id: str
    chat_id: str
    run_id: str
    tool_id: str
    payload: Any
    view_id: str | None = None


class ChatStart(Event, tag="chat.start"):
    chat_id: str
    chat_name: str | None = None


# --- plan, run, task -----------------------------------------------------------------------------


class PlanCreate(Event, tag="plan.create"):
    plan_id: str
    chat_id: str
    plan: Any


class PlanUpdate(Event, tag="plan.update"):
    plan_id: str
    chat_id: str
    plan: Any


class RunStart(Event, tag="run.start"):
    run_id: str
    chat_id: str


class RunComplete(Event, tag="run.complete"):
    run_id: str
    finish_reason: str | None = None


class RunCancel(Event, tag="run.cancel"):
    run_id: str


class RunError(Event, tag="run.error"):
    run_id: str
    error: dict[str, Any]


class RunWaiting(Event, tag="run.waiting"):
    """A pause, not a terminal: the response ends, the log goes on after the answer (E1)."""

    run_id: str
    interrupts: list[dict[str, Any]]
    family: ClassVar[Family] = "always"


class RunResume(Event, tag="run.resume"):
    run_id: str
    chat_id: str
    checkpoint_id: str
    family: ClassVar[Family] = "always"


class TaskStart(Event, tag="task.start"):
    task_id: str
    run_id: str
    task_name: str | None = None
    description: str | None = None


class TaskComplete(Event, tag="task.complete"):
    task_id: str


class TaskCancel(Event, tag="task.cancel"):
    task_id: str


class TaskFail(Event, tag="task.fail"):
    task_id: str
    error: dict[str, Any]


# --- blocks: reasoning, content, tools, actions, sources -----------------------------------------


class ReasoningStart(Event, tag="reasoning.start"):
    reasoning_id: str
    run_id: str
    task_id: str | None = None
    node_run_id: str | None = None


# Deltas hold texts only, and a process keeps very many: the garbage collector need not look at them.
class ReasoningDelta(Event, tag="reasoning.delta", gc=False):
    reasoning_id: str
    delta: str


class ReasoningEnd(Event, tag="reasoning.end"):
    reasoning_id: str


class ReasoningSnapshot(Event, tag="reasoning.snapshot"):
    reasoning_id: str
    text: str
    task_id: str | None = None
    node_run_id: str | None = None


class ContentStart(Event, tag="content.start"):
    content_id: str
    run_id: str
    task_id: str | None = None
    node_run_id: str | None = None


class ContentDelta(Event, tag="content.delta", gc=False):
    content_id: str
    delta: str


class ContentEnd(Event, tag="content.end"):
    content_id: str


class ContentSnapshot(Event, tag="content.snapshot"):
    content_id: str
    text: str
    task_id: str | None = None
    node_run_id: str | None = None


class ToolStart(Event, tag="tool.start"):
    tool_id: str
    run_id: str
    task_id: str | None = None
    tool_name: str | None = None
    tool_type: str | None = None
    tool_api: str | None = None
    tool_params: Any = None
    description: str | None = None
    node_run_id: str | None = None


class ToolArgs(Event, tag="tool.args", gc=False):
    tool_id: str
    delta: str
    chunk_index: int | None = None


class ToolEnd(Event, tag="tool.end"):
    tool_id: str


class ToolResultEvent(Event, tag="tool.result"):
    tool_id: str
    result: str


class ToolProgress(_GraphEvent, tag="tool.progress"):
    tool_id: str
    data: Any


class ToolSnapshot(Event, tag="tool.snapshot"):
    tool_id: str
    tool_name: str | None = None
    task_id: str | None = None
    tool_type: str | None = None
    tool_api: str | None = None
    tool_params: Any = None
    description: str | None = None
    arguments: str | None = None
    node_run_id: str | None = None


class ActionStart(Event, tag="action.start"):
    action_id: str
    run_id: str
    task_id: str | None = None
    action_name: str | None = None
    description: str | None = None
    node_run_id: str | None = None


class ActionArgs(Event, tag="action.args", gc=False):
    action_id: str
    delta: str


class ActionEnd(Event, tag="action.end"):
    action_id: str


class ActionParam(Event, tag="action.param"):
    action_id: str
    param: Any


class ActionResult(Event, tag="action.result"):
    action_id: str
    result: Any


class ActionSnapshot(Event, tag="action.snapshot"):
    action_id: str
    action_name: str | None = None
    task_id: str | None = None
    description: str | None = None
    arguments: str | None = None
    node_run_id: str | None = None


class SourceSnapshot(Event, tag="source.snapshot"):
    source_id: str
    run_id: str | None = None
    task_id: str | None = None
    icon: str | None = None
    title: str | None = None
    url: str | None = None


# --- the graph family ----------------------------------------------------------------------------


class NodeStart(_GraphEvent, tag="node.start", gc=False):
    node: str
    node_run_id: str
    step: int
    attempt: int
    path: str | None = None


class NodeEnd(_GraphEvent, tag="node.end", gc=False):
    node: str
    node_run_id: str
    duration_ms: int
    writes: list[str] | None = None
    """Keys that the node wrote, never values (E14)."""
    usage: dict[str, Any] | None = None


class NodeError(_GraphEvent, tag="node.error"):
    node: str
    node_run_id: str
    error: dict[str, Any]
    will_retry: bool


class NodeProgress(_GraphEvent, tag="node.progress"):
    """Live only, like deltas."""

    node_run_id: str
    data: Any


class CheckpointCreate(_GraphEvent, tag="checkpoint.create", gc=False):
    """Sent when the commit is durable (E7)."""

    checkpoint_id: str
    step: int
    next: list[str]
    parent_id: str | None = None


class InterruptRequest(_GraphEvent, tag="interrupt.request"):
    interrupt_id: str
    kind: str
    run_id: str
    node: str
    payload: Any
    schema: dict[str, Any]
    path: str | None = None
    tool_id: str | None = None
    tool_name: str | None = None
    arguments: Any = None
    owner: str | None = None
    role: str | None = None
    expires_at: int | None = None
    reissue_of: str | None = None
    # Whoever asked for one family only must learn all the same that a person is asked, or that it is over.
    family: ClassVar[Family] = "always"


class InterruptResolve(_GraphEvent, tag="interrupt.resolve"):
    interrupt_id: str
    decision: str
    family: ClassVar[Family] = "always"


class ContextCompact(_GraphEvent, tag="context.compact"):
    before: int
    after: int
    summary: str | None = None


class StreamReset(Event, tag="stream.reset"):
    """Drop everything after `keep_seq`; no part of the log: no `seq`, no `id` (E1)."""

    keep_seq: int
    family: ClassVar[Family] = "always"


Delta = ReasoningDelta | ContentDelta | ToolArgs | ActionArgs | NodeProgress | ToolProgress
LIVE_ONLY: tuple[type[Event], ...] = get_args(Delta)
"""Events that live in the ring of the process that runs them and are never stored."""
TERMINAL: tuple[type[Event], ...] = (RunComplete, RunCancel, RunError)
STREAM_ENDS: tuple[type[Event], ...] = (*TERMINAL, RunWaiting)
"""What a stream ends with: the end of the run, or its pause for an answer."""


def _concrete(base: type[Event]) -> dict[str, type[Event]]:
    out: dict[str, type[Event]] = {}
    # From the classes themselves, so that a new event can't be forgotten in a second list.
    for cls in base.__subclasses__():
        tag = cls.__struct_config__.tag
        if isinstance(tag, str) and not cls.__name__.startswith("_"):
            out[tag] = cls
        out.update(_concrete(cls))
    return out


EVENT_TYPES: dict[str, type[Event]] = _concrete(Event)
"""Wire name → class, all of them."""
for _tag, _class in EVENT_TYPES.items():
    _class.type = _tag

encode_event = encode_json
"""One event as one line of JSON bytes. It never fails, whatever a node has put into it: a stream must not end for one event."""


def in_families(event: Event, families: Collection[str] | None) -> bool:
    """Whether a reader who chose these families gets the event; None chose all."""
    return families is None or event.family == "always" or event.family in families


def event_dict(event: Event) -> dict[str, Any]:
    """The event as the plain dict that its JSON decodes to."""
    out: dict[str, Any] = decode_json(encode_event(event))
    return out


def decode_event(data: bytes | str | dict[str, Any]) -> Event:
    """An event from its JSON; raises `ValueError` for an unknown type."""
    # By hand, not as a union of msgspec: the message then names the unknown type and not the whole union.
    raw = data if isinstance(data, dict) else msgspec.json.decode(data)
    cls = EVENT_TYPES.get(raw.get("type", ""))
    if cls is None:
        raise ValueError(f"unknown event type {raw.get('type')!r}")
    return msgspec.convert(raw, cls)
