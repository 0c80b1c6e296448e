"""`graphflow validate`: all errors of all files at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphflow.cli.command import command, root
from graphflow.cli.options import AsJson
from graphflow.cli.startup import quiet_logs, settings_of
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, say, say_json, stop
from graphflow.excerpts import count

if TYPE_CHECKING:
    from graphflow.errors import Issue
    from graphflow.service.application import Application


@command(root, "validate")
def validate(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Files or folders; default: all agents, tool files and viewports."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check agent files, tool files and viewports. Each error has its position, JSON pointer and remedy. Exit code 2 on any error."""
    from graphflow.errors import summed_up
    from graphflow.service.application import Application

    settings = settings_of()
    quiet_logs(settings)
    # Never opened: files are checked without a store and without a key.
    app = Application(settings)
    app.agents.reload()
    checked, issues = _checked(app, paths or [])
    errors = [issue for issue in issues if issue.severity == "error"]
    if as_json:
        say_json({"files": checked, "valid": not errors, "errors": [issue.as_dict() for issue in issues]})
    else:
        for issue in summed_up(issues):
            say(f"{issue.severity}: {_relative(issue)}", indent="  ")
        note(_summary(checked, len(errors), len(issues) - len(errors)))
    return exits.USAGE if errors else exits.OK


def _checked(app: Application, paths: list[str]) -> tuple[int, list[Issue]]:
    """The number of files checked, and all their errors."""
    if not paths:
        count, issues = _folder(app, Path(app.settings.agents.dir))
        return count + len(app.toolbox.names()), [*issues, *app.errors(), *_provider_tables(app)]
    count, issues = 0, []
    found: list[Issue]
    for given in paths:
        path = Path(given)
        if not os.path.lexists(path):
            stop(exits.USAGE, f"no file or folder {given!r}")
        own = [issue for issue in app.errors() if _lies_in(issue, path)]
        files, found = 0, []
        # Tool files and viewports are checked when they are loaded, with their folder.
        if not app.toolbox.reads(path):
            files, found = _folder(app, path) if path.is_dir() else _file(app, path)
        count += files + len(app.toolbox.names(path))
        issues += [*found, *own]
    return count, issues


def _provider_tables(app: Application) -> Iterator[Issue]:
    """Tables of providers that nobody can use; an agent that does fails, and the others run."""
    from graphflow.errors import Issue
    from graphflow.models.provider import not_ready
    from graphflow.models.provider_tables import read_tables

    for key, wrong in read_tables(app.settings.providers).wrong.items():
        message = not_ready(key, wrong).message
        yield Issue(pointer=f"/providers/{key}", message=message, file="graphflow.toml", severity="warning")


def _lies_in(issue: Issue, path: Path) -> bool:
    """Whether the error's file is this one, or one below this folder."""
    return issue.file is not None and _real(issue.file).is_relative_to(_real(path))


def _folder(app: Application, folder: Path) -> tuple[int, list[Issue]]:
    """The agents of a folder, checked against each other."""
    registry = app.agents
    # Agents refer to each other by key, so another folder needs a registry of its own.
    if _real(folder) != _real(registry.folder):
        from graphflow.agents.registry import AgentRegistry
        from graphflow.nodes.kinds import NodeKinds

        registry = AgentRegistry(
            folder,
            kinds=lambda agents: NodeKinds(
                app.tools, agents=agents, providers=app.providers, unpriced=app.kinds.unpriced, users=app.users
            ),
            tools=app.tools.declared,
            providers=app.providers,
            users=app.users,
            document_bytes=app.settings.bounds.document_bytes,
        )
        registry.reload()
    issues = [issue for agent in registry.list() for issue in agent.warnings]
    issues += [issue for agent in registry.invalid() for issue in agent.errors]
    return len(registry.list()) + len(registry.invalid()), sorted(issues, key=_place)


def _file(app: Application, path: Path) -> tuple[int, list[Issue]]:
    """One file; what it refers to is looked up beside it when it stands in the agents' folder, which knows it."""
    from graphflow.errors import DefinitionError

    try:
        return 1, sorted(app.load(path).warnings, key=_place)
    except DefinitionError as error:
        return 1, sorted(error.errors, key=_place)


def _real(path: str | Path) -> Path:
    # `Path.resolve` raises for links that lead in a circle.
    return Path(os.path.realpath(path))


def _place(issue: Issue) -> tuple[str, int, int, str]:
    return issue.file or "", issue.line or 0, issue.column or 0, issue.pointer


def _relative(issue: Issue) -> str:
    """The error with its file as seen from here, when it lies below."""
    import dataclasses

    if issue.file is None:
        return issue.render()
    try:
        # A link is shown under its own name.
        file = Path(issue.file)
        shown = (_real(file.parent) / file.name).relative_to(Path.cwd()).as_posix()
    except ValueError:
        shown = issue.file
    return dataclasses.replace(issue, file=shown).render()


def _summary(files: int, errors: int, warnings: int) -> str:
    text = f"{count(files, 'file')} checked: {count(errors, 'error')}"
    return text + (f", {count(warnings, 'warning')}" if warnings else "")
