"""The engine as the code of a node sees it: recorded operations, questions, streams, and facts about where it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, overload

from graphflow.arguments import checked
from graphflow.content import MediaPart, bytes_in
from graphflow.errors import NodeFailed
from graphflow.events import NodeProgress
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.immutable import digest_of
from graphflow.graph.core.machine import Frame
from graphflow.graph.engine.blocks import Blocks
from graphflow.graph.engine.light_event import DONE, MaybeReady
from graphflow.graph.engine.operation_keys import must_await
from graphflow.graph.engine.run import Run
from graphflow.json_data import json_misfit
from graphflow.messages import AIMessage

T = TypeVar("T")
Asked: TypeAlias = "str | Sequence[Any]"
"""What a model is asked: a conversation, its messages as objects or in their OpenAI form, or one text."""


class Goto:
    """A `node:` function's choice among its declared routes, with its updates (E19)."""

    __slots__ = ("node", "update")

    @checked
    def __init__(self, node: str, update: Mapping[str, Any] | None = None) -> None:
        self.node = node
        self.update = update


class Context:
    """What a node function is given: one node run's view of the engine.

    `content`, `reasoning` and `emit` send their event when called; awaiting what they return lets a slow
    consumer set the pace.
    """

    # Every instance is a `NodeRun` (`node_run.py`), which adds what the engine itself and the built-in kinds use: a
    # second object per node run would cost every step.

    __slots__ = ("_blocks", "_run", "attempt", "node", "visit")

    _run: Run
    _begun: Frame
    _blocks: Blocks | None
    node: str
    visit: int
    attempt: int
    # of `NodeRun`:
    alive: bool
    frame: int
    node_run_id: str
    refuse_when_over: Callable[[], None]

    # facts

    @property
    def thread_id(self) -> str:
        """The thread that the run is on."""
        return self._run.thread_id

    @property
    def run_id(self) -> str:
        """The run that the node is part of."""
        return self._run.machine.run_id

    @property
    def params(self) -> Any:
        """The `params` that came with the run's input."""
        return self._run.machine.params

    @property
    def input(self) -> Any:
        """The input of the run; inside a subgraph, what its node passed to it."""
        return self._begun.input

    @property
    def path(self) -> str:
        """Where the node runs: `""` at the root, `fan#1[2]`, `sub#1`, …"""
        return self._begun.path

    @property
    def tool(self) -> Any:
        """The application's tool runner."""
        return self._service("tool")

    @property
    def store(self) -> Any:
        """The long-term store across threads (spec 5.3)."""
        return self._service("store")

    def _service(self, name: str, attribute: str | None = None) -> Any:
        self.refuse_when_over()
        try:
            return self._run.services[name]
        except KeyError:
            raise NodeFailed(f"node {self.node!r} uses ctx.{attribute or name}, but the application has none") from None

    def now(self) -> int:
        """Epoch milliseconds, from the injected clock."""
        return self._run.clock.now_ms()

    @property
    def random(self) -> float:
        """A draw in [0, 1) from the injected source."""
        return self._run.ids.random()

    def idempotency_key(self, key: str = "") -> str:
        """The same for this call on every retry, after a crash, and when the thread is resumed after an error (E6)."""
        run = self._run
        # No attempt in it: a retry must carry the key of the write that it repeats. The lineage is, so `rerun` gets a
        # new one.
        parts = (run.machine.input_run_id, run.lineage, self.path, self.node, self.visit, key)
        return digest_of(parts)

    # models

    @overload
    async def call_model(
        self, messages: Asked, *, tools: Sequence[Any] = (), schema: None = None, stream: bool | None = None,
        key: str | None = None, provider_key: str | None = None, model: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> AIMessage: ...  # fmt: skip
    @overload
    async def call_model(
        self, messages: Asked, *, schema: type[T], stream: bool | None = None, key: str | None = None,
        provider_key: str | None = None, model: str | None = None, options: Mapping[str, Any] | None = None,
    ) -> T: ...  # fmt: skip
    @overload
    async def call_model(
        self, messages: Asked, *, tools: Sequence[Any] = (), schema: Mapping[str, Any] | type[Any], stream: bool | None = None,
        key: str | None = None, provider_key: str | None = None, model: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any: ...  # fmt: skip
    @must_await()
    async def call_model(
        self,
        messages: Asked,
        *,
        tools: Sequence[Any] = (),
        schema: Mapping[str, Any] | type[Any] | None = None,
        stream: bool | None = None,
        key: str | None = None,
        provider_key: str | None = None,
        model: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """The model's answer as a message; with `schema`, as the object that it describes.

        A recorded operation: a node that is entered again gets the answer that it got before, and readers see nothing
        twice. It counts as one model call, with its tokens and cost, and the run's limits hold.

        Args:
            messages: the conversation, or a text for one user message.
            tools: names of registered tools, or tools. The calls are in `tool_calls` of the answer; nothing runs them.
            schema: JSON Schema of an object, or a pydantic model, dataclass or `TypedDict`: then the answer is an object of
                this class. An answer that calls tools is still a message.
            stream: whether readers get the deltas; None: as for a `model` node, so at the root but not in branches.
            key: of the operation; without one the ordinal of the model call.
            provider_key: default: the document's.
            model: the provider's name of the model; default: the document's.
            options: fields of the document's `options` that differ here (`temperature`, `maxTokens`, …).

        Raises:
            BudgetExceeded: no model call, token or money is left.
            ModelError: the call failed.
            NodeFailed: `validation` for a schema that has errors, before the call, and for an answer that does not fit it;
                `node_not_deterministic` when the
                recorded call was made with other arguments.
            NodeRunOver: the node run has ended; no model is called.
        """
        return await self._service("call_model")(
            self, messages, tools=tools, schema=schema, stream=stream, key=key, provider_key=provider_key, model=model,
            options=options,
        )  # fmt: skip

    @checked
    def open_model(self, provider_key: str | None = None, model: str | None = None) -> Any:
        """A `ChatModel` whose calls count against the run's limits; they are neither recorded nor shown to readers.

        It belongs to the application, which also closes it. In a function that runs in a thread use `call_model`.
        """
        return self._service("open_model")(self, provider_key, model)

    # recorded operations (E5)

    async def step(
        self,
        name: str | None,
        fn: Callable[[], Any],
        *,
        effects: str = "write",
        idempotent: bool = False,
        undo: str | None = None,
        arguments: Any = None,
    ) -> Any:
        """The result of `fn`, run at most once for this node run and key, also over retries and crashes.

        Args:
            name: the key; without one the ordinal of the call.
            fn: a function without arguments, async or not; its result must be encodable.
            effects: `write` records its intent durably before acting, so that a crash between doing and
                recording is found and asked about; `read` and `none` are just run again after a crash.
            idempotent: a cut-off write may be repeated under the same `idempotency_key`.
            undo: `tool:NAME` or `fn:NAME` that takes the write back; default: the node's own `undo`.
            arguments: what the call depends on; other arguments under the same key are an error.

        Raises:
            NodeFailed: `node_not_deterministic` when it was recorded with other arguments.
            NodeRunOver: the node run has ended; `fn` is not called.
        """
        raise NotImplementedError

    @overload
    async def ask(
        self, message: str, *, key: str | None = None, schema: type[T], payload: Any = None, hold_ms: int | None = None,
        owner: str | None = None, role: str | None = None, expires: str | None = None,
    ) -> T: ...  # fmt: skip
    @overload
    async def ask(
        self, message: str, *, key: str | None = None, schema: Mapping[str, Any] | None = None, payload: Any = None,
        hold_ms: int | None = None, owner: str | None = None, role: str | None = None, expires: str | None = None,
    ) -> Any: ...  # fmt: skip
    async def ask(
        self,
        message: str,
        *,
        key: str | None = None,
        schema: Any = None,
        payload: Any = None,
        hold_ms: int | None = None,
        owner: str | None = None,
        role: str | None = None,
        expires: str | None = None,
    ) -> Any:
        """The answer of a person, validated against `schema`.

        The question is durable before anybody sees it. While the process holds the run, the call waits; once
        nothing holds it any more the node is left and entered again after the answer, and this call then
        returns it at once.

        Args:
            key: of the question; without one the ordinal of the call.
            schema: JSON Schema of the answer, or a pydantic model, dataclass or `TypedDict`: then the answer is an object
                of this class. Without one anything is an answer.
            payload: JSON-like data that is shown instead of `{"message": message}`.
            hold_ms: how long a run that a server drives waits for the answer in its process, in milliseconds.
            owner: who alone may answer; `role`: who has this role.
            expires: ISO 8601 duration (`P2D`) after which nobody can answer any more.

        Raises:
            NodeFailed: `validation` for a schema that has errors, before anybody is asked; and for an answer that fits
                the schema and is refused by a validator of the class.
            NodeRunOver: the node run has ended; nobody is asked.
        """
        raise NotImplementedError

    # streams

    def _open_blocks(self) -> Blocks:
        blocks = self._blocks
        if blocks is None:
            blocks = self._blocks = self._run.events.blocks(self._run.machine, self.node_run_id)
        return blocks

    def content(self, text: str) -> MaybeReady:
        """Streams text to the reader: one call, one event."""
        if not self.alive:
            self.refuse_when_over()
        (self._blocks or self._open_blocks()).content(self._text(text))
        return self._room()

    def reasoning(self, text: str) -> MaybeReady:
        """Streams the model's reasoning: one call, one event."""
        if not self.alive:
            self.refuse_when_over()
        (self._blocks or self._open_blocks()).reasoning(self._text(text))
        return self._room()

    def _text(self, text: str) -> str:
        if not isinstance(text, str):
            raise NodeFailed(f"node {self.node!r} streams {excerpt_of(text)}, which is not a str; convert it first")
        return text

    def emit(self, data: Any) -> MaybeReady:
        """Sends `node.progress` with any JSON-like data.

        Raises:
            NodeFailed: `validation`: it holds what JSON has no form for.
        """
        if not self.alive:
            self.refuse_when_over()
        if (wrong := json_misfit(data)) is not None:
            raise NodeFailed(
                f"node {self.node!r} calls ctx.emit, and {wrong}; give plain data: text, numbers, true and false, None,"
                " lists and mappings of them",
                code="validation",
            )
        self._run.events.emit(NodeProgress(node_run_id=self.node_run_id, data=data))
        return self._room()

    def _room(self) -> MaybeReady:
        room = self._run.room
        return DONE if room is None else room()


@checked
async def part_bytes(ctx: Context, part: MediaPart) -> bytes | None:
    """The bytes of a message's part in the code of a node; the thread stores them outside the message where they are many.

    None where the part has none (a URL, an upload), or the thread does not have them.
    """
    run = ctx._run
    if part.data is not None or part.blob is None or run.journal is None:
        return bytes_in(part)
    return await run.journal.read_bytes(part.blob, run.machine)
