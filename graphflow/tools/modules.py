"""Imports the Python modules that `[tools] modules` names, and finds their tools (spec 10, settings)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from graphflow.errors import DefinitionError, Fault
from graphflow.tools.port import Tool


@dataclass(frozen=True, kw_only=True)
class LoadedModules:
    """What the named modules hold."""

    modules: tuple[ModuleType, ...]
    """In the order of their names; those with a fault are left out."""
    tools: tuple[Tool, ...]
    """Tools that are module-level names, in the order of their definition, each once."""
    faults: tuple[Fault, ...]


def import_tool_modules(names: Sequence[str], folder: Path) -> LoadedModules:
    """Imports modules that lie in `folder` (or are installed); a broken one is a fault and the others stay.

    Args:
        names: dotted module names.
        folder: the folder of the file that names them; on `sys.path` for these imports only.
    """
    modules: list[ModuleType] = []
    faults: list[Fault] = []
    with _importable(folder):
        for index, name in enumerate(names):
            try:
                modules.append(importlib.import_module(name))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a module does when imported is its fault
                faults.append(_fault(index, name, folder, error))
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Tool)]
    tools = {id(value): value for value in found}
    return LoadedModules(modules=tuple(modules), tools=tuple(tools.values()), faults=tuple(faults))


def import_tools(names: Sequence[str], folder: Path) -> tuple[Tool, ...]:
    """The tools of modules that must all be importable; see `import_tool_modules`.

    Raises:
        DefinitionError: with the fault of every module that is not.
    """
    loaded = import_tool_modules(names, folder)
    if loaded.faults:
        raise DefinitionError(loaded.faults)
    return loaded.tools


def _fault(index: int, name: str, folder: Path, error: BaseException) -> Fault:
    missing = (
        isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == name.split(".", maxsplit=1)[0]
    )
    hint = f"put {name.split('.', maxsplit=1)[0]}.py into {folder}, or install it" if missing else "mend the module"
    message = f"module {name!r} can't be imported: {type(error).__name__}: {error}"
    return Fault(pointer=f"/tools/modules/{index}", message=message, hint=hint, kind="reference")


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(entry)
