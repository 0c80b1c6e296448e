"""`graphflow test`: runs the cases of agents from files, with scripted models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphflow.cli.command import command, root
from graphflow.cli.options import AsJson
from graphflow.cli.startup import quiet_logs, settings_of
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, say, say_json, stop


@command(root, "test")
async def run_cases(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Default: tests/*.json in the agents' folder.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run the cases of agents; fails if one does. Models are scripted, tools are real."""
    from graphflow.testing.cases import check_names, load_cases, run_case

    settings = settings_of()
    quiet_logs(settings)
    folder = settings.agents.dir / "tests"
    found = files or sorted(folder.glob("*.json"))
    if not found:
        stop(exits.USAGE, f"there are no cases in {folder}", hint="graphflow test FILE")
    loaded = [(path, load_cases(path)) for path in found]  # all of them: a broken file should cost no run
    for path, file in loaded:
        await check_names(settings, path, file)
    rows: list[dict[str, Any]] = []
    for path, file in loaded:
        for case in file.cases:
            differs = await run_case(settings, file, case)
            rows.append({"file": str(path), "agent": file.agent, "case": case.name, "differs": differs})
            if not as_json:
                say(f"{'✗' if differs else '✓'} {file.agent}: {case.name}")
                for line in differs:
                    say(f"    {line}")
    failed = sum(bool(row["differs"]) for row in rows)
    if as_json:
        say_json(rows)
    else:
        note(f"{len(rows) - failed} passed, {failed} failed")
    return exits.FAILED if failed else 0
