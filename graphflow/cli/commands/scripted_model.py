"""`graphflow scripted-model`: the scripted model as an OpenAI-compatible server."""

from __future__ import annotations

from typing import Annotated

import typer

from graphflow.cli.command import command, root
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, say, stop


@command(root, "scripted-model")
async def scripted_model(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free port.")] = 8099,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    script: Annotated[str | None, typer.Option(metavar="FILE", help="Your own script (JSON).")] = None,
    delay_ms: Annotated[int, typer.Option(min=0, help="Pause before each delta.")] = 0,
) -> None:
    """Serve the scripted model over HTTP: deterministic, offline, no key. Ctrl-C stops it."""
    from graphflow.models.scripted.model import ScriptedModel
    from graphflow.models.scripted.script import ScriptError, default_script, load_script
    from graphflow.models.scripted.server import ScriptedServer

    try:
        played = load_script(script) if script else default_script()
    except ScriptError as error:
        stop(exits.USAGE, str(error))
    server = ScriptedServer(ScriptedModel(played, delay_s=delay_ms / 1000))
    try:
        await server.start(host, port)
    except OSError as error:
        stop(exits.FAILED, f"cannot listen on {host}:{port}: {error.strerror}", hint="--port 0 picks a free port")
    try:
        # On stdout in the form of a `.env` file: a script can read the port that was picked.
        say(f"LLM_BASE_URL={server.url}")
        say("LLM_MODEL_ID=scripted")
        note("serving the scripted model; Ctrl-C stops it")
        await server.serve_forever()
    finally:
        await server.aclose()
