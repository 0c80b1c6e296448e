"""`graphflow serve`: the HTTP API with hot reload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphflow.cli.command import Verbosity, command, root
from graphflow.cli.startup import settings_of
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, say, stop


@command(root, "serve")
def serve(
    folder: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help="The project, or a folder of agent files; default: the current folder."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on [127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port [8080]; 0 picks a free port.")] = None,
    token: Annotated[list[str] | None, typer.Option(help="An accepted bearer token; repeatable.")] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the start page in a browser.")] = False,
) -> None:
    """Serve all agents over HTTP. Changed files are reloaded; no configuration is needed."""
    root, flags = _project(folder)
    # Named here: further in, an empty value is that of a setting, and where it came from is hidden with it.
    for option, given in (("--token", token or ()), ("--host", () if host is None else (host,))):
        if not all(map(str.strip, given)):
            stop(
                exits.USAGE,
                f"{option} is empty",
                hint=f"give it a value, or leave {option} out; is a variable not set?",
            )
    # None keeps what the environment and the files say; an empty list would open the server.
    tokens = ",".join(token) if token else None
    settings = settings_of(root, server__host=host, server__port=port, server__tokens=tokens, **flags)
    # Loaded after the settings, so that a wrong one is reported at once.
    from graphflow.addresses import is_loopback
    from graphflow.models.provider import not_ready
    from graphflow.models.provider_tables import read_tables
    from graphflow.server.listening import plain_host
    from graphflow.server.run import serve as serve_forever
    from graphflow.telemetry.logs import set_up_logs

    # The server refuses this too, but has no flag to name; and a warning must come before the first request.
    if not is_loopback(plain_host(settings.server.host)):
        if not settings.server.tokens:
            stop(
                exits.USAGE,
                f"{settings.server.host} is reachable from other machines, and without a token anyone can run agents",
                hint="add --token SECRET (or set GRAPHFLOW_TOKENS), or listen on 127.0.0.1",
            )
        note(f"warning: {settings.server.host} is reachable from other machines; the API is not encrypted")
    for key, wrong in read_tables(settings.providers).wrong.items():
        note(f"warning: {not_ready(key, wrong).message}")
    set_up_logs("debug" if Verbosity.verbose else settings.log.level, form=settings.log.format)

    def started(url: str) -> None:
        # The only line on stdout: a script that asked for port 0 reads it.
        say(url)
        note("serving; Ctrl-C stops it; unfinished runs stay at their last checkpoint")
        if open_browser:
            import webbrowser

            webbrowser.open(url)

    serve_forever(settings, on_start=started)


def _project(folder: str | None) -> tuple[str | None, dict[str, Any]]:
    """The folder to read settings from, and flags if the folder holds the agent files themselves."""
    if folder is None:
        return None, {}
    path = Path(folder)
    if not path.is_dir():
        stop(exits.USAGE, f"no folder {folder!r}")
    # A project has `graphs/`; a folder that has agent files itself is served without a project around it.
    holds_agents = not (path / "graphs").is_dir() and any(path.glob("[!.]*.json"))
    return (None, {"agents__dir": str(path.resolve())}) if holds_agents else (folder, {})
