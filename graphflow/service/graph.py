"""The builder that users see: a graph in Python that can be run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, overload

from graphflow.arguments import checked
from graphflow.graph.builder import GraphBuilder, S
from graphflow.graph.builder_types import GraphFields

if TYPE_CHECKING:
    from graphflow.bounds import Bounds
    from graphflow.checkpoints.checkpointer import Checkpointer
    from graphflow.graph.engine.ports import Clock, Ids
    from graphflow.models.chat_model import ChatModel
    from graphflow.runtime.compiled_graph import CompiledGraph
    from graphflow.settings import Settings


class Graph(GraphBuilder[S]):
    """Builds a document from Python functions and registered kinds.

    Args:
        state: the class that declares the state's keys (dataclass, TypedDict or pydantic model), or a JSON Schema.
        name: the graph's key.
        budget: limits of the document's budget; a graph with a cycle needs one.
        fields: further top-level keys of the document (`result`, `input`, `description`, …).
    """

    @overload
    def __init__(
        self, state: type[S], *, name: str | None = ..., budget: Mapping[str, Any] | None = ...,
        **fields: Unpack[GraphFields],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: Graph[Any], state: Mapping[str, Any] | None = ..., *, name: str | None = ...,
        budget: Mapping[str, Any] | None = ..., **fields: Unpack[GraphFields],
    ) -> None: ...  # fmt: skip
    @checked
    def __init__(
        self, state: Any = None, *, name: str | None = None, budget: Mapping[str, Any] | None = None,
        **fields: Unpack[GraphFields],
    ) -> None:  # fmt: skip
        super().__init__(state, name=name, budget=budget, **fields)

    @classmethod
    @checked
    def from_json(
        cls,
        source: str | bytes | PathLike[str] | Mapping[str, Any],
        functions: Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]] = (),
    ) -> Graph[Any]:
        """The builder of a document, to compile or to extend.

        Args:
            source: JSON text, a file's path (`Path`), or plain data.
            functions: what stands behind its `node:NAME` and `fn:NAME` (of nodes and of reducers): by name, or functions
                with these names.

        Raises:
            DefinitionError: the text is not a JSON object, or its nodes are not objects. Other errors are reported when the
                graph is compiled.
        """
        graph: Graph[Any] = super().from_json(source, functions)
        return graph

    @checked
    def compile(
        self,
        *,
        checkpointer: Checkpointer | None = None,
        tools: Sequence[Any] = (),
        model: ChatModel | None = None,
        validate: bool = True,
        clock: Clock | None = None,
        ids: Ids | None = None,
        bounds: Bounds | None = None,
        settings: Settings | bool | None = None,
    ) -> CompiledGraph:
        """The graph ready to run. It is checked at once, so that an error of it comes from here and not from a run.

        A `SqliteCheckpointer` is asked at once whether it holds this version of the document: then it passed the checks
        before, and only its Python functions are checked again. With another store, or none, every check runs: PostgreSQL
        could only answer over the network, and a store in memory begins empty.

        Args:
            checkpointer: where its threads live; without one nothing is kept.
            tools: tools in addition to the built-in ones: `@tool` functions or `Tool`s.
            model: a `ChatModel` for every `model` node; by default chosen by provider key and settings.
            validate: False checks it when it is first used: by a run, or by `plan` or `version`.
            clock, ids: where times and new ids come from, for tests.
            bounds: on what its runs hold and send; default `graphflow.Bounds()`.
            settings: by which models are opened and priced, as `graphflow.settings.load_settings` gives them; by default those
                of the present folder (`graphflow.toml`, `.env`) and the environment, read when a model is first called.
                False: none, neither files nor environment.

        Raises:
            DefinitionError: with all errors of the document.
        """
        from graphflow.service.library import compile_builder  # not at the top: building a graph runs none

        return compile_builder(
            self,
            checkpointer=checkpointer,
            tools=tools,
            model=model,
            validate=validate,
            clock=clock,
            ids=ids,
            bounds=bounds,
            settings=settings,
        )
