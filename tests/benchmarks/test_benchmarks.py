"""The benchmarks run, and their page is made from their figures. Nothing here looks at how fast anything is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def modules() -> dict[str, ModuleType]:
    """The programs' modules, which import each other by their bare names."""
    import importlib

    sys.path.insert(0, str(FOLDER))
    try:
        return {name: importlib.import_module(name) for name in ("goals", "pages", "report", "workloads", "measure")}
    finally:
        sys.path.remove(str(FOLDER))


def entry(group: str, steps: int = 1, **systems: dict[str, Any]) -> dict[str, Any]:
    return {"group": group, "steps": steps, "params": {}, "load": 0.5, "systems": systems}


def test_every_case_of_graphflow_and_of_the_yardsticks_runs_in_small():
    command = [sys.executable, str(FOLDER / "check.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"[1-9]\d* cases of \d+ workloads ran", done.stdout)


def test_a_worker_tells_its_figures_as_lines_of_json():
    command = [
        sys.executable, str(FOLDER / "worker.py"), "--system", "floor", "--case", "chain", "--params", '{"n": 3}',
        "--folder", str(ROOT),
    ]  # fmt: skip
    done = subprocess.run(command, input="run\n", capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    ready, figures = (json.loads(line) for line in done.stdout.splitlines())
    assert ready == {"ready": True}
    assert {"wall", "cpu", "grown_mib"} <= set(figures)


def test_a_reader_follows_a_query_to_its_model_through_200_entries_into_files_at_most(tmp_path: Path):
    """Counted and not timed: the figures are the same on every machine and under any load."""
    command = [sys.executable, str(FOLDER / "request_path.py"), "--json", str(tmp_path / "figures.json")]
    subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True)
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["entries"] <= 200
    assert figures["depth"] <= 10


PROGRAMS = (
    "before_after",
    "check",
    "crowd",
    "crowd_http",
    "drivers",
    "mcp_call",
    "model_client",
    "request_path",
    "run",
    "stores",
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_starts_from_any_folder_and_says_what_it_does(name, tmp_path):
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_every_goal_names_a_workload_and_systems_that_are_measured(modules):
    measured = {w.name: set(w.systems) for w in modules["workloads"].WORKLOADS}
    own_way = {"import", "install", "model_client", "crowd"}
    for goal in (*modules["goals"].PEERS, *modules["goals"].PROMISES):
        for figure in (goal.own, *goal.others):
            assert figure.workload in own_way or figure.system in measured[figure.workload], (goal.row, figure)
            assert figure.key in modules["goals"].UNITS, figure


def test_every_group_of_workloads_has_a_title_and_tables(modules):
    groups = {w.group for w in modules["workloads"].WORKLOADS}
    assert groups <= set(modules["report"].TITLES)
    assert set(modules["report"].TITLES) == set(modules["report"].TABLES)


def test_a_goal_is_met_by_the_ratio_to_the_best_of_the_others(modules):
    goals = modules["goals"]
    goal = goals.Goal(
        "X", "a row", goals.Figure("loop", "graphflow", "cpu_us"),
        (goals.Figure("loop", "burr", "cpu_us"), goals.Figure("loop", "langgraph", "cpu_us")), 0.25,
    )  # fmt: skip
    results = {"loop": entry("engine", 1000, graphflow={"cpu": 0.01}, burr={"cpu": 0.05}, langgraph={"cpu": 0.2})}
    verdict = goals.judge(goal, results)
    assert (verdict.own, verdict.best) == (pytest.approx(10.0), pytest.approx(50.0))
    assert verdict.ratio == pytest.approx(0.2)
    assert verdict.met
    results["loop"]["systems"]["burr"] = {"note": "it failed"}
    assert goals.judge(goal, results).best == pytest.approx(200.0)
    del results["loop"]["systems"]["graphflow"]
    assert goals.judge(goal, results).met is None


def test_a_goal_without_others_is_a_bound_and_a_difference_is_no_ratio(modules):
    goals = modules["goals"]
    figure = goals.Figure("x", "graphflow", "load_ms")
    results = {"x": entry("growth", graphflow={"load_ms": 7.0}, floor={"load_ms": 5.0})}
    assert goals.judge(goals.Goal("X", "", figure, (), 8.0), results).met
    assert goals.judge(goals.Goal("X", "", figure, (), 6.0), results).met is False
    more = goals.Goal("X", "", figure, (goals.Figure("x", "floor", "load_ms"),), 3.0, difference=True)
    assert goals.judge(more, results).ratio == pytest.approx(2.0)


def test_the_page_gets_its_tables_between_its_markers_and_keeps_the_rest(modules):
    figures = {
        "machine": {"date": "2026-01-01", "cores": 2, "cpu": "a chip", "memory_gib": 4.0, "python": "3", "sqlite": "3",
                    "postgres": "PostgreSQL 16", "system": "Linux", "commit": "abc"},
        "versions": {"burr": "1"},
        "workloads": {"chain_1000": entry("engine", 1000, graphflow={"cpu": 0.01, "wall": 0.01}, burr={"cpu": 0.05, "wall": 0.05})},
    }  # fmt: skip
    page = "".join(
        f"<!-- bench:{name} -->\nformer\n<!-- /bench:{name} -->\nkept\n"
        for name in ("head", "summary", "goals", "tables")
    )
    written = modules["pages"].written(page, figures)
    assert "former" not in written
    assert written.count("kept\n") == 4
    assert "| A1 | chain of 1,000, per node | ≤ 0.25× | 10.0 µs CPU | Burr 50.0 | 0.2× | met |" in written
    assert "| chain_1000 | 10.0 | 50.0 (5×) |" in written
    assert modules["pages"].written(written, figures) == written
    with pytest.raises(ValueError, match="bench:head"):
        modules["pages"].written("no markers", figures)


def test_the_page_in_the_repository_has_all_markers(modules):
    text = (ROOT / "docs" / "internals" / "performance.md").read_text(encoding="utf-8")
    for name in ("head", "summary", "goals", "tables"):
        assert f"<!-- bench:{name} -->" in text
        assert f"<!-- /bench:{name} -->" in text


def test_medians_keep_the_extremes_and_the_reason_of_a_failure(modules):
    rounds = [{"wall": wall, "cpu": wall, "grown_mib": wall} for wall in (3.0, 1.0, 2.0)]
    out = modules["measure"].medians(rounds, "")
    assert (out["wall"], out["wall_min"], out["wall_max"], out["grown_most_mib"]) == (2.0, 1.0, 3.0, 3.0)
    assert modules["measure"].medians([], "it broke") == {"note": "it broke"}
