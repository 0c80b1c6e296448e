"""The shape of the source tree: imports point one way, nothing is too large to read, and a class name means one thing."""

from __future__ import annotations

import ast
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphflow.graph.definition.graph_queries import loops

ROOT = Path(__file__).parents[1]
MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted((ROOT / "graphflow").rglob("*.py"))
}
MAX_FILES, MAX_LINES, MAX_FUNCTION_LINES = 22, 500, 60

# What is left to be taken apart. An entry goes when its place is in order; none is added.
CIRCLES_LEFT = frozenset(
    {
        "graphflow.cli.commands.inbox",
        "graphflow.cli.commands.run",
        "graphflow.cli.commands.threads",
        "graphflow.cli.commands.threads_inspect",
        "graphflow.cli.commands.threads_pruning",
        "graphflow.cli.commands.threads_storage",
        "graphflow.cli.commands.threads_travel",
        "graphflow.cli.commands.usage",
        "graphflow.cli.terminal.answer_policy",
        "graphflow.cli.terminal.live_view",
        "graphflow.cli.terminal.plain_view",
        "graphflow.cli.terminal.turn_driver",
        "graphflow.service.library",
    }
)
"""Modules that still import each other in a circle."""
LONG_FILES_LEFT: frozenset[str] = frozenset()
"""Files that are still too long."""
CLASS_NAMES_LEFT: frozenset[str] = frozenset()
"""Class names that still stand in several modules."""


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imported(module: str) -> Iterator[str]:
    """The modules that a module imports: anywhere in it, in functions and under TYPE_CHECKING too.

    A parent package, which Python loads first, is not among them: its `__init__` is empty or names what it exports.
    """
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def test_no_imports_go_round_in_a_circle() -> None:
    edges = {name: sorted({other for other in imported(name) if other in MODULES} - {name}) for name in MODULES}
    assert [circle for circle in loops(edges) if not CIRCLES_LEFT.issuperset(circle)] == []


def test_no_folder_holds_more_files_than_a_reader_looks_through() -> None:
    counts = Counter(file.parent for file in MODULES.values() if file.name != "__init__.py")
    assert {str(folder.relative_to(ROOT)): n for folder, n in counts.items() if n > MAX_FILES} == {}


def test_no_file_is_longer_than_it_should_be() -> None:
    lengths = {name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in MODULES.items()}
    assert {name: n for name, n in lengths.items() if n > MAX_LINES and name not in LONG_FILES_LEFT} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    found = {
        f"{name}:{node.name}": length
        for name in MODULES
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert found == {}


def test_a_class_name_stands_in_one_module() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name in MODULES:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    several = {name: where for name, where in sorted(places.items()) if len(set(where)) > 1}
    assert {name: where for name, where in several.items() if name not in CLASS_NAMES_LEFT} == {}


if __name__ == "__main__":
    pytest.main([__file__, "-q"])
