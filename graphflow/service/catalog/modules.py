"""Imports the Python modules that `[tools] modules` names, and finds what they offer (spec 10, settings; 2.1, rule 9)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from graphflow.errors import DefinitionError, Issue
from graphflow.nodes.decorators import Registration, registration_of
from graphflow.nodes.kinds import NodeKinds
from graphflow.settings.function_reference import importable
from graphflow.tools.port import Tool


@dataclass(frozen=True, kw_only=True)
class Offered:
    """What the modules have at their top level: each in the order of its definition, and once."""

    tools: Sequence[Tool] = ()
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Behind `fn:NAME`, in nodes and as reducers."""
    nodes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Behind `node:NAME`."""

    def register(self, kinds: NodeKinds) -> None:
        """Lets documents name the functions."""
        for name, function in self.functions.items():
            kinds.function(name, function)
            kinds.register_reducer(name, function)
        for name, function in self.nodes.items():
            kinds.node(name, function)


def import_modules(names: Sequence[str], folder: Path) -> Offered:
    """Imports modules that lie in `folder` (or are installed).

    Args:
        names: dotted module names.
        folder: the folder of the file that names them; on `sys.path` for these imports only.

    Raises:
        DefinitionError: every module that can't be imported, and every name that two functions share.
    """
    modules: list[tuple[int, ModuleType]] = []
    issues: list[Issue] = []
    with importable(folder):
        for index, name in enumerate(names):
            try:
                modules.append((index, importlib.import_module(name)))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a module does when imported is its error
                issues.append(_issue(index, name, folder, error))
    # By identity: a tool that one module imports from another counts once, and of two tools with one name both reach the
    # registry, which rejects them.
    tools: dict[int, Tool] = {}
    offers: dict[Registration, Callable[..., Any]] = {}
    for index, module in modules:
        # `vars` also lists names that a module imports, so what it offers is kept by identity, once.
        for value in vars(module).values():
            if isinstance(value, Tool):
                tools[id(value)] = value
            elif (offer := registration_of(value)) is not None and offers.setdefault(offer, value) is not value:
                issues.append(_twice(index, offer, offers[offer], value))
    # All errors at once: whoever fixes one module wants to know of the next.
    if issues:
        raise DefinitionError(issues)
    functions, nodes = ({o.name: f for o, f in offers.items() if o.word == word} for word in ("fn", "node"))
    return Offered(tools=tuple(tools.values()), functions=functions, nodes=nodes)


def _issue(index: int, name: str, folder: Path, error: BaseException) -> Issue:
    missing = (
        # The module itself is missing, or only something that it imports: the hint differs.
        isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == name.split(".", maxsplit=1)[0]
    )
    hint = f"put {name.split('.', maxsplit=1)[0]}.py into {folder}, or install it" if missing else "fix the module"
    message = f"module {name!r} can't be imported: {type(error).__name__}: {error}"
    return Issue(pointer=f"/tools/modules/{index}", message=message, hint=hint, kind="reference")


def _twice(index: int, offer: Registration, first: Callable[..., Any], second: Callable[..., Any]) -> Issue:
    places = " and ".join(f"{f.__module__}.{f.__qualname__}" for f in (first, second))
    return Issue(
        pointer=f"/tools/modules/{index}",
        message=f"{offer.word}:{offer.name} is offered twice: by {places}",
        hint=f"give one of them another name: @{'function' if offer.word == 'fn' else 'node'}(name=…)",
        kind="reference",
    )
