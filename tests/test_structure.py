"""The shape of the source tree: imports point one way, nothing is too large to read, and a class name means one thing."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphflow
from graphflow.graph.definition.graph_queries import loops

ROOT = Path(__file__).parents[1]
MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted((ROOT / "graphflow").rglob("*.py"))
}
MAX_FILES, MAX_LINES, MAX_FUNCTION_LINES = 22, 500, 60


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@functools.cache
def statements(module: str) -> list[ast.stmt]:
    """All of a module, also those inside others; to walk through its expressions as well takes ten times as long."""
    found: list[ast.stmt] = []
    blocks: list[ast.AST] = [tree(module)]
    for block in blocks:  # it grows
        for _, value in ast.iter_fields(block):
            inner = [each for each in value if isinstance(each, BLOCKS)] if isinstance(value, list) else []
            blocks += inner
            found += [each for each in inner if isinstance(each, ast.stmt)]
    return found


BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)


def imported(module: str) -> Iterator[str]:
    """The modules that a module imports: anywhere in it, in functions and under TYPE_CHECKING too.

    A parent package, which Python loads first, is not among them: its `__init__` is empty or names what it exports.
    """
    for node in statements(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def test_the_tree_is_that_of_the_package() -> None:
    assert MODULES["graphflow"].samefile(graphflow.__file__)


def test_no_imports_go_round_in_a_circle() -> None:
    edges = {name: sorted({other for other in imported(name) if other in MODULES} - {name}) for name in MODULES}
    assert loops(edges) == []


def test_no_folder_holds_more_files_than_a_reader_looks_through() -> None:
    counts = Counter(file.parent for file in MODULES.values() if file.name != "__init__.py")
    assert {str(folder.relative_to(ROOT)): n for folder, n in counts.items() if n > MAX_FILES} == {}


def test_no_file_is_longer_than_it_should_be() -> None:
    lengths = {name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in MODULES.items()}
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    found = {
        f"{name}:{node.name}": length
        for name in MODULES
        for node in statements(name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert found == {}


def test_a_class_name_stands_in_one_module() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name in MODULES:
        for node in statements(name):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    assert {name: where for name, where in sorted(places.items()) if len(set(where)) > 1} == {}


# --- tests ----------------------------------------------------------------------------------------

CHECKS = re.compile(r"\bassert\b|\b(raises|warns|fail|assert_\w+)\(")
"""Also helpers of other files, whose names say that they assert."""


def functions(module: ast.Module, lines: list[str]) -> dict[str, str]:
    """The source of each function of a file, but for its docstring."""
    found: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            begin = node.body[ast.get_docstring(node, clean=False) is not None :][:1] or node.body
            found[node.name] = "\n".join(lines[begin[0].lineno - 1 : node.end_lineno])
    return found


def test_every_test_asserts_something() -> None:
    """By itself, or by a helper of its file."""
    idle: list[str] = []
    for file in sorted(ROOT.glob("tests/**/test_*.py")):
        text = file.read_text(encoding="utf-8")
        bodies = functions(ast.parse(text), text.splitlines())
        checking = {name for name, body in bodies.items() if CHECKS.search(body)}
        calls = re.compile(rf"\b({'|'.join(map(re.escape, checking)) or 'x^'})\(")
        idle += [
            f"{file.relative_to(ROOT)}: {name}"
            for name in bodies.keys() - checking
            if name.startswith("test_") and not calls.search(bodies[name])
        ]
    assert idle == []


if __name__ == "__main__":
    pytest.main([__file__, "-q"])
