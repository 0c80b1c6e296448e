"""The peers' virtual environments, made on first use under `.bench/`: nobody's dependencies change another's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".bench"

REQUIREMENTS: dict[str, list[str]] = {
    "langgraph": [
        "langgraph==1.2.22",
        "langchain==1.4.7",
        "langgraph-checkpoint-sqlite==3.1.2",
        "langgraph-checkpoint-postgres==3.2.0",
        "psycopg[binary,pool]==3.3.9",
    ],
    "burr": ["burr[tracking]==0.42.0", "aiosqlite==0.22.1", "asyncpg==0.32.0"],
    "pydantic_graph": ["pydantic-graph==2.68.0"],
    "openai_agents": ["openai-agents==0.24.0", "openai==3.52.0"],
}
"""Exact versions, so that a figure can be repeated; raise them together with the figures in `docs/internals/performance.md`."""

OURS = ("graphflow", "floor", "insert")
"""Systems that run in this interpreter's environment."""


def python_of(system: str, given: dict[str, str]) -> str:
    """The interpreter of a system (`langgraph:sync` is `langgraph`'s); its environment is made when there is none.

    Args:
        given: interpreters that somebody prepared already, by system.
    """
    name = system.partition(":")[0]
    if name in given:
        return given[name]
    return sys.executable if name in OURS else str(_made(name))


def _made(name: str) -> Path:
    folder = FOLDER / name
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    stamp, wanted = folder / "requirements.txt", "\n".join(REQUIREMENTS[name]) + "\n"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"Making {folder.relative_to(ROOT)} ({', '.join(REQUIREMENTS[name])}), once …", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq", *REQUIREMENTS[name]]
    subprocess.run(pip, check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return python
