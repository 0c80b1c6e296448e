"""The library face: `load_graph` and `Graph.compile` without an application (spec 2.6)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphflow.arguments import checked, shown
from graphflow.bounds import DEFAULTS, Bounds
from graphflow.checkpoints.checkpointer import knows_document
from graphflow.errors import ArgumentRefused, DefinitionError, Issue
from graphflow.graph.definition.types import holds
from graphflow.graph.definition.versions import unchecked
from graphflow.nodes.kinds import NodeKinds
from graphflow.runtime.compiled_graph import CompiledGraph

if TYPE_CHECKING:
    from graphflow.checkpoints.checkpointer import Checkpointer
    from graphflow.graph.builder import GraphBuilder
    from graphflow.graph.definition.checked_document import CheckedDocument
    from graphflow.graph.engine.ports import Clock, Ids
    from graphflow.models.chat_model import ChatModel
    from graphflow.models.prices import Prices
    from graphflow.settings import Settings
    from graphflow.tools.registry import ToolRegistry


class Services(dict[str, Any]):
    """What nodes reach through `ctx`, made when it is first asked for: a graph without models loads none."""

    def __init__(
        self,
        tools: Callable[[], ToolRegistry],
        model: ChatModel | None,
        bounds: Bounds | None,
        settings: Callable[[], Settings],
    ) -> None:
        super().__init__()
        self._tools, self._model, self._bounds, self._settings = tools, model, bounds or DEFAULTS, settings

    def __missing__(self, name: str) -> Any:
        if name == "model":
            # Nodes that call models look up prices too.
            self["prices"] = self.prices
            self[name] = self._models()
        elif name in ("call_model", "open_model"):
            from graphflow.nodes.model import MODEL_SERVICES

            self.update(MODEL_SERVICES)
        elif name == "tool":
            from graphflow.tools.running.runner import ToolRunner

            self[name] = ToolRunner(self._tools(), max_output_bytes=self._bounds.tool_output_bytes)
        else:
            raise KeyError(name)
        return self[name]

    @functools.cached_property
    def prices(self) -> Prices:
        """Those of the settings, and list prices."""
        from graphflow.models.model_data import listed_prices
        from graphflow.models.prices import Prices

        settings = self._settings()
        return Prices(settings.prices, listed_prices(settings.llm.models_file))

    def unpriced(self, provider_key: str | None, model: str | None, fallback: Sequence[str] | None) -> list[str]:
        """See `unpriced_models`."""
        from graphflow.models.unpriced import unpriced_models

        return unpriced_models(self["model"], self.prices, provider_key, model, fallback)

    def _models(self) -> Any:
        from graphflow.models.pool import ModelPool

        model = self._model
        if model is not None:
            return ModelPool(lambda provider, name: model)
        from graphflow.models.opening import pool_of

        return pool_of(self._settings)


def _settings_of(given: Settings | bool | None) -> Callable[[], Settings]:
    """The given settings, or those of the folder in which the graph was made: read when a model is first called."""
    if given is True or isinstance(given, str):
        raise ArgumentRefused(f"settings={shown(given)}: give graphflow.settings.load_settings(FOLDER), False or None")
    # The folder now: the process may change its working directory before that.
    folder = Path.cwd() if given is None else None

    @functools.cache
    def settings() -> Settings:
        from graphflow.settings import Settings, load_settings
        from graphflow.settings.table import LlmSettings

        if given is False:
            return Settings(llm=LlmSettings(interaction_log_enabled=False))
        return load_settings(folder) if given is None else given

    return settings


class _KnownProviders(Sequence[str]):
    """The provider keys that a document may name; the settings are read only for one that is not built in."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings

    def __contains__(self, key: object) -> bool:
        from graphflow.models.providers import known_providers

        return key in known_providers() or key in self._all()

    def _all(self) -> list[str]:
        from graphflow.models.providers import known_providers

        return known_providers(self._settings().providers)

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __bool__(self) -> bool:
        return True


class _Subgraphs:
    """Subgraphs that a builder carries, then agents of a folder."""

    def __init__(self, documents: Mapping[str, Mapping[str, Any]], folder: Path | None = None) -> None:
        self._documents, self._folder = dict(documents), folder

    def document(self, key: str) -> Mapping[str, Any] | None:
        if key in self._documents or self._folder is None:
            return self._documents.get(key)
        name = key.partition("@")[0]
        file = self._folder / f"{name}.json"
        # A key such as `../x` must not lead out of the folder.
        if not file.is_file() or file.parent.resolve() != self._folder.resolve():
            return None
        from graphflow.agents.draft import read_draft

        return read_draft(file).data


def _kinds(
    tools: Sequence[Any],
    documents: _Subgraphs,
    model: ChatModel | None,
    bounds: Bounds | None,
    settings: Callable[[], Settings],
    users: bool | None = None,
) -> tuple[NodeKinds, Services]:
    _need_functions("tools", enumerate(tools), "a `@tool` function or a `Tool`; the built-in tools are there already")
    made: list[ToolRegistry] = []

    # Made on first use: a graph without tools loads no tool code (E20).
    def registry() -> ToolRegistry:
        if not made:
            from graphflow.tools.registry import ToolRegistry

            made.append(ToolRegistry(tools))
        return made[0]

    services = Services(registry, model, bounds, settings)
    # A model that was given answers for every key.
    providers = None if model is not None else lambda: _KnownProviders(settings)
    return NodeKinds(registry, agents=documents, unpriced=services.unpriced, providers=providers, users=users), services


def _need_functions(option: str, given: Iterable[tuple[Any, Any]], what: str) -> None:
    for place, function in given:
        if not callable(function):
            raise ArgumentRefused(
                f"{option}[{place!r}] is {shown(function)}, of type {type(function).__name__}; give {what}"
            )


def compile_builder(
    graph: GraphBuilder[Any],
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
    """See `graphflow.Graph.compile`."""
    kinds, services = _kinds(tools, _Subgraphs({}), model, bounds, _settings_of(settings))
    parts = graph.parts()
    for name, function in parts.nodes.items():
        kinds.node(name, function)
    for name, function in parts.functions.items():
        kinds.function(name, function)
    for name, function in parts.reducers.items():
        kinds.register_reducer(name, function)
    for key, cls in parts.states.items():
        kinds.declare_state(key, cls)
    document = graph.document()

    def check() -> CheckedDocument:
        known = unchecked(document, kinds) if hasattr(checkpointer, "has_document") else None
        if known is not None and knows_document(checkpointer, known.digest):
            return known
        from graphflow.agents.draft import field_issues
        from graphflow.graph.validation.validate import check_document

        if issues := [*field_issues(document), *_name_issues(document, kinds)]:
            raise DefinitionError(issues)
        return check_document(document, kinds)

    app = CompiledGraph(
        check,
        kinds=kinds,
        checkpointer=checkpointer,
        services=services,
        agent_key=graph.name,
        clock=clock,
        ids=ids,
        bounds=bounds,
    )
    if validate:
        app.host.documents.newest()
    return app


def _name_issues(document: Mapping[str, Any], kinds: NodeKinds) -> list[Issue]:
    """Agent fields of a builder's graphs that name nothing: tools, and providers where they open the models."""
    # A graph without such fields loads neither.
    if not any(holds(document, field) for field in _NAMING):
        return []
    from graphflow.modes.checks import agent_issues

    assert kinds.tools is not None
    issues = agent_issues(document, tools=kinds.tools.names(), providers=kinds.providers)
    return [issue for issue in issues if issue.kind == "reference"]


_NAMING = ("tools", "approval", "providerKey")


@checked
def load_graph(
    source: str | PathLike[str] | Mapping[str, Any],
    *,
    checkpointer: Checkpointer | None = None,
    tools: Sequence[Any] = (),
    model: ChatModel | None = None,
    functions: Mapping[str, Any] | None = None,
    nodes: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    bounds: Bounds | None = None,
    users: bool | None = None,
    settings: Settings | bool | None = None,
) -> CompiledGraph:
    """A graph that runs, from a file, a document, or the key of an agent in the settings' folder.

    Args:
        source: a path of a `.json` file, a document as a mapping, or a key.
        checkpointer: where its threads live; without one nothing is kept.
        tools: tools in addition to the built-in ones: `@tool` functions or `Tool`s.
        model: a `ChatModel` for every `model` node; by default chosen by provider key and settings.
        functions: Python functions behind `fn:NAME`, of nodes and of reducers.
        nodes: Python functions behind `node:NAME`.
        clock, ids: where times and new ids come from, for tests.
        bounds: on what its runs hold and send; default `graphflow.Bounds()`.
        settings: by which models are opened and priced, as `graphflow.settings.load_settings` gives them; by default those of
            the folder in which the graph is made (`graphflow.toml`, `.env`) and the environment, read when a model is first
            called. False: none, neither files nor environment.
        users: whether `by` of runs and answers names different people. False refuses documents in which only somebody else
            may approve (`by: other`), as a server without users does; None asks the settings about a key, and accepts others.

    Raises:
        DefinitionError: with all errors, each with its place.
    """
    found = _settings_of(settings)
    origin, folder, users = _origin(source, users, found)
    kinds, services = _kinds(tools, _Subgraphs({}, folder), model, bounds, found, users)
    _register(kinds, functions or {}, nodes or {})
    from graphflow.agents.loader import load_agent

    assert kinds.tools is not None
    agent = load_agent(
        origin,
        kinds=kinds,
        tools=kinds.tools.names(),
        providers=_KnownProviders(found),
        users=users,
        document_bytes=(bounds or DEFAULTS).document_bytes,
    )
    return CompiledGraph(
        agent.checked,
        kinds=kinds,
        checkpointer=checkpointer,
        services=services,
        agent_key=agent.key,
        clock=clock,
        ids=ids,
        bounds=bounds,
    )


def _register(kinds: NodeKinds, functions: Mapping[str, Any], nodes: Mapping[str, Any]) -> None:
    _need_functions("functions", functions.items(), "the function behind fn:NAME")
    _need_functions("nodes", nodes.items(), "the function behind node:NAME")
    for name, function in functions.items():
        kinds.function(name, function)
    for name, function in nodes.items():
        kinds.node(name, function)


def _origin(
    source: str | PathLike[str] | Mapping[str, Any], users: bool | None, settings: Callable[[], Settings]
) -> tuple[Any, Path | None, bool | None]:
    """What to load, the folder in which subgraphs are looked up, and whether there are users, as far as that is known."""
    if isinstance(source, Mapping):
        return source, None, users
    if isinstance(source, str) and source.lstrip().startswith(("{", "[")):
        hint = "give a mapping: `json.loads(text)`, or build it with `Graph.from_json(text)`"
        raise DefinitionError([Issue(pointer="", message="this is JSON text, not a file's path or a key", hint=hint)])
    path = Path(source)
    if path.suffix == ".json" or path.is_file():
        return path, path.parent, users
    from graphflow.service.catalog.builtin_tools import names_users

    found = settings()
    folder = found.agents.dir
    return folder / f"{source}.json", folder, names_users(found.server.tokens) if users is None else users
