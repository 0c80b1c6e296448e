"""The public surface: what is exported, what importing costs, and that the package speaks of itself alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import graphflow
from graphflow.events import EVENT_TYPES, Event, decode_event, encode_event

HEAVY = (
    "pydantic",
    "networkx",
    "structlog",
    "httpx",
    "fastapi",
    "starlette",
    "uvicorn",
    "typer",
    "rich",
    "cel_expr_python",
)


def loaded_after(code: str) -> set[str]:
    """Modules of a fresh interpreter after running `code`."""
    script = f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path.cwd())
    return {name.partition(".")[0] for name in out.stdout.split()}


def test_every_exported_name_is_there_and_nothing_else_is_offered() -> None:
    assert set(dir(graphflow)) == {"__version__", "load_graph", *graphflow._HOMES}
    assert all(getattr(graphflow, name) is not None for name in dir(graphflow))
    assert set(dir(graphflow)) - set(graphflow.__all__) == {"PostgresCheckpointer"}
    with pytest.raises(AttributeError):
        graphflow.nothing_of_this_name  # noqa: B018


def test_a_star_import_needs_no_extra() -> None:
    """Only what every installation has: a name that needs an extra is imported by its name."""
    extras = ("psycopg", "psycopg_pool", "cryptography", "zstandard", "mcp", "any_llm", "opentelemetry")
    code = f"import sys\nsys.modules |= dict.fromkeys({extras})\nfrom graphflow import *\nGraph, Thread, tool"
    assert "graphflow" in loaded_after(code)


def test_what_is_no_path_key_or_document_is_refused_with_what_to_give() -> None:
    with pytest.raises(TypeError, match=r"load_graph\(\) got source=\[1\].* takes text or a path or a mapping"):
        graphflow.load_graph([1])  # type: ignore[arg-type]
    with pytest.raises(graphflow.DefinitionError, match=r"JSON text, not a file's path or a key \(give a mapping"):
        graphflow.load_graph('{"graphflow": "1"}')


def test_importing_the_graph_api_and_the_embedded_store_loads_nothing_heavy() -> None:
    """Rule E20."""
    assert not loaded_after("from graphflow import Graph, SqliteCheckpointer, CompiledGraph, Thread") & set(HEAVY)


RESUME = """
import asyncio, sys
from graphflow import Graph, SqliteCheckpointer
graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}})
graph.ask("question", "how many?", schema={"type": "integer"}, set={"n": "answer"})

async def main():
    store = SqliteCheckpointer(sys.argv[1] if len(sys.argv) > 1 else PATH)
    app = graph.compile(checkpointer=store)
    if STEP == "run":
        await app.run(thread_id="t")
    else:
        result = await app.answer("t", 5)
        assert result.state.n == 5
    await store.close()
asyncio.run(main())
"""


def test_answering_a_thread_of_a_known_version_loads_no_validator(tmp_path: Path) -> None:
    """Rule E20: a document whose hash is in the store is decoded, not validated again."""
    path = f"PATH = {str(tmp_path / 't.db')!r}\n"
    loaded_after(path + "STEP = 'run'" + RESUME)
    assert not loaded_after(path + "STEP = 'answer'" + RESUME) & {"pydantic", "networkx", "jsonschema_rs", "httpx"}


def test_every_event_has_a_wire_name_and_survives_its_own_encoding() -> None:
    for name, cls in EVENT_TYPES.items():
        required = {f: "x" for f in cls.__struct_fields__ if f not in ("seq", "timestamp")}
        assert issubclass(cls, Event)
        assert cls.__struct_config__.tag == name
        assert required or name == "stream.reset"
    event = decode_event(
        b'{"type":"node.start","node":"a","nodeRunId":"1.1","step":1,"attempt":1,"seq":3,"timestamp":5}'
    )
    assert decode_event(encode_event(event)) == event


def test_the_package_names_no_machine_and_no_registry() -> None:
    root = Path(__file__).parent.parent
    files = [
        p for folder in ("graphflow", "docs", "examples", "graphs") for p in (root / folder).rglob("*") if p.is_file()
    ]
    assert {file.relative_to(root).parts[0] for file in files} == {"graphflow", "docs", "examples", "graphs"}
    files += [root / name for name in ("README.md", "README.zh.md", "CHANGELOG.md", "pyproject.toml", "Makefile")]
    words = ("/work" + "/", "/ro" + "ot/", "pypi" + ".org", "file:///" + "opt")
    for file in files:
        if file.suffix in (".py", ".md", ".json", ".toml", ".sql", ""):
            text = file.read_text(encoding="utf-8", errors="ignore")
            assert not [word for word in words if word in text], file
