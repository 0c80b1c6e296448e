"""Request bodies: their shapes, and reading them within bounds (spec 3.1, 3.2, 3.5).

Whatever the content type says, a body is JSON: `curl -d` sends form headers with it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import Request  # noqa: TC002 - FastAPI reads the annotations
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from graphflow.errors import GraphflowError
from graphflow.events import RequestQuery
from graphflow.json_data import deeper_than, unreadable, values_in
from graphflow.runtime.run_request import RunRequest
from graphflow.server.envelope import fields_of, invalid, shown

DEPTH = 64
"""Nesting that a body may have: deep enough for any document, shallow enough for every recursive reader of it."""

MOST_LISTED = 10_000
"""Entries of a list or an object whose entries are checked one by one."""
MOST_ERRORS = 1_000
"""Errors of one body that are told; each takes longer to word than the value took to read."""
INLINE_BYTES = 64 * 1024
"""A larger body is parsed in a thread: beside the time that it takes, a thread costs nothing."""

M = TypeVar("M", bound="JsonBody")
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Name = Annotated[Text, Field(min_length=1)]
"""Of what is looked up, or made by `id_rule`. Without U+0000, which not every store can look for."""
Id = Annotated[Name, Field(max_length=256)]
EventFamily = Literal["contract", "graph"]
EffectChoice = Literal["reuse", "rerun", "undo", "assume_undone"]
EffectChoices = (
    EffectChoice
    | Annotated[
        dict[str, EffectChoice],
        Field(description="By the id that 409 `effects_need_choice` lists; `*` for every other."),
    ]
)
"""The choice for `write` effects that are passed over (E8)."""


class JsonBody(BaseModel):
    """Wire names are camelCase; an unknown field is refused, so that a misspelt option is never ignored."""

    # Strict: `"false"` as text would otherwise be taken for false, and a number for an id.
    # The docstring under a field is its description in OpenAPI.
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, strict=True, use_attribute_docstrings=True)


class Reference(JsonBody):
    """A file that a query refers to: an upload by its id alone, any other by what is known of it."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["id"]}, {"required": ["url"]}]})

    id: Id | int | None = None
    type: str | None = None
    name: str | None = None
    mime_type: str | None = None
    size_bytes: int | None = Field(None, ge=0)
    url: Id | None = None
    sha256: str | None = None
    meta: dict[str, Any] | None = None
    as_: Literal["part"] | None = Field(None, alias="as")
    """`part`: the model gets the content itself, or the run fails. Absent: it does where the model takes that type, else the
    reference is listed as text and a `node.progress` event warns."""

    @model_validator(mode="after")
    def _is_of_something(self) -> Reference:
        if self.id is None and self.url is None:
            raise PydanticCustomError("reference", "needs an `id` or a `url`")
        return self


def references_of(given: list[Reference] | None) -> list[dict[str, Any]] | None:
    """As they were sent."""
    return None if given is None else [one.model_dump(by_alias=True, exclude_unset=True) for one in given]


class StartsRun(JsonBody):
    """What every request takes that starts a run."""

    request_id: Id | None = None
    """An id of the client, returned in the events; absent: a new one. The same request again within 24 hours joins the run;
    another body is 409 `request_id_reused`."""
    stream: bool = True
    """`false` returns one JSON body."""
    events: list[EventFamily] | None = Field(None, max_length=MOST_LISTED)
    """Families to stream; default: all."""
    on_disconnect: Literal["keep", "cancel"] = "keep"
    """Whether the run continues when the client leaves. Default: `keep`."""
    background: bool = False
    """Answer 202 with the run's id at once; the run goes on by itself. `GET /api/runs/{id}` says what became of it."""
    webhook: str | None = Field(None, max_length=2048)
    """Of a run in the background: a URL that is sent the run each time it waits for a person or ends."""

    def hold_ms(self) -> int | None:
        """A run that nobody follows is not held open for answers, nor one that is returned as one body."""
        return None if self.stream and not self.background else 0


class QueryBody(StartsRun):
    """`POST /api/query`."""

    message: str = Field(min_length=1, description="What the user says.")
    chat_id: Text | None = Field(None, description="The thread; a new one when absent.")
    agent_key: Text | None = Field(None, description="Absent: the chat's own; `auto`: the first by key.")
    role: Literal["user", "assistant", "system", "developer"] = "user"
    """Who speaks, readable as `input.role`. Default: `user`."""
    references: list[Reference] | None = Field(None, max_length=MOST_LISTED)
    """Uploaded files, `{"id": …}` each, or files elsewhere; readable as `input.references`."""
    params: dict[str, Any] | None = None
    """Further input, readable as `input.params`."""
    scene: Any = None
    """Any value of the client, readable as `input.scene`."""
    model: str | None = Field(None, min_length=1, max_length=256)
    """A model that the agent's `perRequest` allows; recorded with the run."""
    options: dict[str, Any] | None = None
    """Options of model calls that it allows."""
    variables: dict[str, Any] | None = None
    """Prompt variables that it declares."""
    budget: dict[str, Any] | None = None
    """Limits that replace those of the agent."""
    max_rounds: int | None = Field(None, ge=1, le=1_000_000, description="Limit of the agent's rounds.")
    interrupt_before: list[str] = Field([], max_length=MOST_LISTED)
    """Nodes before which the run stops for a person; `*` is all."""
    interrupt_after: list[str] = Field([], max_length=MOST_LISTED)
    """Nodes after which the run stops for a person; `*` is all."""
    on_waiting: Literal["reject", "cancel", "answer"] = "reject"
    """What to do if the thread waits. Default: `reject`."""
    on_busy: Literal["reject", "enqueue", "interrupt", "rollback"] = "reject"
    """What to do if a run is active. Default: `reject`."""
    effects: EffectChoices | None = None
    """For `rollback`: the choice for writes that it passes over, `rerun` or `undo`."""

    def to_request(self) -> RunRequest:
        """The run that is asked for; a run that nobody follows is not held open for answers."""
        rounds = {} if self.max_rounds is None else {"maxRounds": self.max_rounds}
        return RunRequest(
            thread_id=self.chat_id or "",
            agent_key=self.agent_key,
            budget={**(self.budget or {}), **rounds} or None,
            interrupt_before=self.interrupt_before,
            interrupt_after=self.interrupt_after,
            model=self.model,
            options=self.options,
            variables=self.variables,
            params=self.params,
            on_waiting=self.on_waiting,
            on_busy=self.on_busy,
            effects=self.effects,
            hold_ms=self.hold_ms(),
            query=RequestQuery(
                request_id=self.request_id or "",
                chat_id="",
                message=self.message,
                role=self.role,
                agent_key=self.agent_key,
                references=references_of(self.references),
                params=self.params,
                scene=self.scene,
                stream=self.stream if "stream" in self.model_fields_set else None,
            ),
        )


class SubmitBody(JsonBody):
    """`POST /api/submit`."""

    # No `anyOf`: a generator of clients makes a union of it that has none of the fields.
    model_config = ConfigDict(json_schema_extra={"x-requires-one": ["interruptId", "toolId"]})

    chat_id: Name
    """The thread."""
    run_id: Name
    """The run that asked."""
    interrupt_id: Id | None = Field(None, description="The interrupt, or its tool call. Give this or `toolId`.")
    tool_id: Id | None = Field(None, description="The tool call, or its interrupt. Give this or `interruptId`.")
    payload: Any
    """The answer; must match `schema` of the `interrupt.request`."""
    request_id: Id | None = None
    """An id of the client, returned in `request.submit`. The same request again within 24 hours gets the same answer; another
    body is 409 `request_id_reused`."""
    view_id: Text | None = None
    """The view in which the person answered; passed on in `request.submit`."""


class SignalBody(JsonBody):
    """`POST /api/threads/{id}/signal`."""

    name: str = Field(min_length=1, max_length=256)
    """The name that the `wait` node gives."""
    payload: Any = None
    """Any JSON value; `out.payload` of the `wait` node."""


class EditBody(JsonBody):
    """`PATCH /api/threads/{id}/state`."""

    values: dict[str, Any]
    """State key to new value; goes through the reducers."""
    as_node: str | None = None
    """The node that counts as the writer; its routes decide what runs next."""
    path: str | None = None
    """The frame to edit, such as `fan#1[2]`; absent: the root."""
    replace: list[str] = Field([], max_length=MOST_LISTED)
    """Keys whose value is replaced instead of reduced."""
    checkpoint_id: Id | None = None
    """The checkpoint to edit; absent: the head."""
    effects: EffectChoices | None = None
    """The choice for writes behind the checkpoint."""
    cancel: bool = False
    """Cancel a live run first, instead of refusing with 409."""


class MemoryBody(JsonBody):
    """`PUT /api/memory/{key}`."""

    value: Any
    """Any JSON value, at most 64 KiB."""
    ttl_s: float | None = Field(None, gt=0, le=1_000_000_000)
    """Seconds after which it expires; absent: never."""


class ThreadBody(JsonBody):
    """`PATCH /api/threads/{id}`."""

    title: str | None = Field(None, min_length=1, max_length=200)
    """A title in the place of the automatic one; null gives that back."""
    metadata: dict[str, Any] | None = None
    """Merged by key, and null removes a key; at most 64 keys and 8 KiB. null instead of an object removes all."""

    @model_validator(mode="after")
    def _changes_something(self) -> ThreadBody:
        if not self.model_fields_set:
            raise PydanticCustomError("changes", "needs a `title` or `metadata`")
        return self


class RewindBody(JsonBody):
    """`POST /api/threads/{id}/rewind`."""

    checkpoint_id: Id
    """The checkpoint to continue from."""
    effects: EffectChoices | None = None
    """The choice for writes behind the checkpoint."""
    cancel: bool = False
    """Cancel a live run first, instead of refusing with 409."""


class ForkBody(JsonBody):
    """`POST /api/threads/{id}/fork`."""

    checkpoint_id: Id | None = None
    """The last checkpoint to share; absent: the head."""
    thread_id: Name | None = None
    """Id of the new thread; absent: a new one."""
    effects: EffectChoices | None = None
    """The choice for writes behind the checkpoint; `undo` is not allowed."""


class RegenerateBody(StartsRun):
    """`POST /api/threads/{id}/messages/{messageId}/regenerate`."""

    effects: EffectChoices | None = None
    """The choice for writes that came after the message."""
    cancel: bool = False
    """Cancel a live run first, instead of refusing with 409."""


class EditMessageBody(RegenerateBody):
    """`POST /api/threads/{id}/messages/{messageId}/edit`."""

    message: str = Field(min_length=1, description="What the user says instead.")
    references: list[Reference] | None = Field(None, max_length=MOST_LISTED)
    """Instead of those of the former message; absent: they stay."""
    params: dict[str, Any] | None = None
    """Instead of those of the former message; absent: they stay."""
    scene: Any = None
    """Instead of that of the former message; absent: it stays."""
    model: str | None = Field(None, min_length=1, max_length=256)
    """A model that the agent's `perRequest` allows; recorded with the run."""
    options: dict[str, Any] | None = None
    """Options of model calls that it allows."""
    variables: dict[str, Any] | None = None
    """Prompt variables that it declares."""
    budget: dict[str, Any] | None = None
    """Limits that replace those of the agent."""
    effects: EffectChoices | None = None
    """The choice for writes that came after the message, `rerun` or `undo`."""

    def to_request(self) -> RunRequest:
        """The run that is asked for; a run that is returned as one body is not held open for answers."""
        return RunRequest(
            model=self.model,
            options=self.options,
            variables=self.variables,
            budget=self.budget,
            effects=self.effects,
            hold_ms=self.hold_ms(),
            query=RequestQuery(
                request_id=self.request_id or "",
                chat_id="",
                message=self.message,
                role="user",
                references=references_of(self.references),
                params=self.params,
                scene=self.scene,
            ),
        )


class ResumeBody(StartsRun):
    """`POST /api/threads/{id}/resume`."""

    answers: dict[str, Any] | None = None
    """Answers by interrupt id."""
    checkpoint_id: Id | None = None
    """The checkpoint to continue from; absent: the head."""
    effects: EffectChoices | None = None
    """The choice for writes behind the checkpoint."""
    budget: dict[str, Any] | None = None
    """Limits that replace those of the run."""


def body(model: type[M], *, optional: bool = False) -> Callable[[Request], Awaitable[M]]:
    """A dependency that reads the request's body as this model; `optional` takes an empty one as `{}`."""

    async def read(request: Request) -> M:
        data = await read_bytes(request, request.app.state.max_body_bytes)
        if optional and not data.strip():
            data = b"{}"
        if len(data) <= INLINE_BYTES:
            return parse(model, data)
        return await asyncio.to_thread(_parse_large, model, data, request.app.state.max_body_values)

    return read


def schema(model: type[JsonBody], *, required: bool = True) -> dict[str, Any]:
    """The OpenAPI entry of a body that `body` reads."""
    content = {"application/json": {"schema": model.model_json_schema(ref_template="#/components/schemas/{model}")}}
    return {"requestBody": {"required": required, "content": content}}


async def read_bytes(request: Request, most: int) -> bytes:
    """The body; 413 once it is larger than `most`, whatever its header says."""
    return b"".join([chunk async for chunk in chunks_of(request, most)])


async def chunks_of(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """The body as it comes; 413 once it is larger than `most`, whatever its header says."""
    size = 0
    # Refused before anything is read where the header admits it; the count below covers headers that lie or are
    # missing.
    if (length := request.headers.get("content-length", "")).isdigit() and int(length) > most:
        raise too_large(most)
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise too_large(most)
        yield chunk


def too_large(most: int) -> GraphflowError:
    return GraphflowError(f"the body is larger than {most} bytes", code="too_large", maxBytes=most)


def parse(model: type[M], data: bytes) -> M:
    """The body's model.

    Raises:
        GraphflowError: `invalid_input` with a message for each wrong field.
    """
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise invalid({"body": f"nested deeper than {DEPTH} levels"}) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise invalid({"body": unreadable(data, error)}) from None
    if not isinstance(value, dict):
        raise invalid({"body": f"must be a JSON object, not {shown(value)}"})
    # Checked before pydantic and every later reader, which recurse; few brackets are not deep.
    if data.count(b"[") + data.count(b"{") > DEPTH and deeper_than(value, DEPTH):
        raise invalid({"body": f"nested deeper than {DEPTH} levels"})
    if (twice := repeated_key(data)) is not None:
        raise invalid({twice: "given twice in one object; keep one of them"})
    _refuse_unknown(model, value)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        if (count := error.error_count()) > MOST_ERRORS:
            raise invalid(
                {"body": f"{count:,} of its values break their rules; send some of them to see which"}
            ) from None
        raise invalid(fields_of(error.errors(), model)) from None


def _parse_large(model: type[M], data: bytes, most: int) -> M:
    """As `parse`, in a thread; `too_large` where one call of a library, which lets no other thread run, would take too long."""
    if values_in(data, most) > most:
        rule = (
            f"has more than {most:,} values; the setting server.max_body_values allows no more: send fewer, or raise it"
        )
        raise invalid({"body": rule}, "too_large")
    return parse(model, data)


def _refuse_unknown(model: type[JsonBody], value: dict[str, Any]) -> None:
    """Refuses a body with more unknown fields than would be told."""
    if len(value) <= MOST_ERRORS:
        return
    known = {field.alias or name for name, field in model.model_fields.items()}
    unknown = [name for name in value if name not in known]
    if len(unknown) > MOST_ERRORS:
        first = dict.fromkeys(unknown[:20], "unknown field")
        raise invalid({**first, "body": f"has {len(unknown):,} unknown fields; these are the first 20"})


def repeated_key(data: bytes) -> str | None:
    """A key that one of the objects of this JSON text has twice, or None.

    Readers of JSON differ in which of the two they take, so a proxy may have checked another value than the one that runs.
    """
    found: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> None:
        if len(seen := {name for name, _ in pairs}) < len(pairs) and not found:
            # What is left in `seen` has not come yet, so the first name that is missing comes again.
            for name, _ in pairs:
                if name not in seen:
                    found.append(name)
                    return
                seen.remove(name)

    # The text is known to be valid and not deep. Numbers stay text: Python refuses integers of very many digits.
    json.loads(data, object_pairs_hook=check, parse_int=str, parse_float=str)
    return found[0] if found else None
