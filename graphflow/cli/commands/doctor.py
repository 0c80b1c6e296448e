"""`graphflow doctor`: checks whether agents can run here; keys are never shown."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphflow.cli.command import command, root
from graphflow.cli.options import AsJson
from graphflow.cli.startup import quiet_logs
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import say, say_json
from graphflow.excerpts import count

if TYPE_CHECKING:
    from graphflow.models.provider import Provider
    from graphflow.settings import Settings

State = Literal["ok", "warning", "error"]
Finding = tuple[str, State, str]
"""The check, its result, and details or what to do."""
CALL_S = 30.0
"""When a model that does not answer is given up."""
LIBRARIES = "msgspec httpx aiosqlite cel-expr-python networkx pydantic fastapi uvicorn typer rich".split()
MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


@command(root, "doctor")
async def doctor(
    as_json: AsJson = False,
    online: Annotated[bool, typer.Option("--online", help="Test each key by one short call, which may cost.")] = False,
) -> int:
    """Check Python, versions, settings, write access, the store, the port, keys, the model and the agents."""
    from graphflow.errors import DefinitionError, summed_up
    from graphflow.settings import load_settings
    from graphflow.settings.folders import folder_issues

    findings = list(_python())
    try:
        settings = load_settings()
    except DefinitionError as error:
        # Every other check needs the settings, so these are all that can be reported.
        findings += [("settings", "error", issue.render()) for issue in summed_up(error.errors)]
    else:
        quiet_logs(settings)
        findings += [("settings", "warning", text) for text in settings.warnings]
        wrong: list[Finding] = [("settings", "error", issue.render()) for issue in folder_issues(settings)]
        findings += wrong
        findings += [
            *_writing(settings),
            await _store(settings),
            _port(settings),
            *_models(settings),
            *([finding async for finding in _calls(settings)] if online else ()),
            # An application is not made of folders that are none.
            *((*_server(settings), *_agents(settings)) if not wrong else ()),
            *(await _servers(settings) if settings.mcp and not wrong else ()),
        ]
    if as_json:
        say_json([{"what": what, "state": state, "text": text} for what, state, text in findings])
    else:
        for what, state, text in findings:
            say(f"{MARKS[state]} {what:<10} {text}", indent=" " * 13)
    return exits.FAILED if any(state == "error" for _, state, _ in findings) else exits.OK


def _python() -> Iterator[Finding]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    fits: State = "ok" if sys.version_info >= (3, 11) else "error"
    yield "Python", fits, f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    try:
        yield "graphflow", "ok", version("graphflow")
    except PackageNotFoundError:
        yield "graphflow", "warning", "not installed; running from the source tree"
    found, missing = [], []
    for name in LIBRARIES:
        try:
            # Read from the metadata: importing all of them takes seconds, and a broken one would end the check.
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    yield "libraries", "ok", ", ".join(found)
    if missing:
        yield "libraries", "error", f"missing: {', '.join(missing)}; install graphflow with pip"


def _writing(settings: Settings) -> Iterator[Finding]:
    import tempfile

    for name, folder in (("checkpoints", settings.store.path.parent), ("chats", settings.memory.chat_dir)):
        # The folder is not made here: a check must not change anything.
        place = _existing(Path(folder))
        try:
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as error:
            yield "writing", "error", f"{folder}: {error.strerror}; {name} cannot be stored"
        else:
            yield "writing", "ok", f"{folder}" + ("" if Path(folder).exists() else " (will be created)")


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


async def _store(settings: Settings) -> Finding:
    path = Path(settings.store.path)
    # Opening a SQLite store would create its file.
    if settings.store.url or path.exists():  # noqa: ASYNC240 - once
        return await _open_store(settings)
    return "store", "ok", f"{path} (will be created by the first run)"


async def _open_store(settings: Settings) -> Finding:
    from graphflow.checkpoints.open_store import open_store
    from graphflow.errors import GraphflowError

    try:
        store = open_store(settings.store)
    except GraphflowError as error:
        return "store", "error", error.message
    try:
        await store.setup()
        # Bounded, so that the answer comes at once from a store of any size.
        threads = await store.threads(limit=1000)
        waiting = await store.open_interrupts(limit=1000)
    except GraphflowError as error:
        return "store", "error", error.message
    finally:
        await store.close()
    more = "+" if len(threads) == 1000 else ""
    place = f"{settings.store.db_schema} in PostgreSQL" if settings.store.url else settings.store.path
    return (
        "store",
        "ok",
        f"{place}: {f'{len(threads)}{more} threads' if more else count(len(threads), 'thread')}, {count(len(waiting), 'open question')}",
    )


def _port(settings: Settings) -> Finding:
    import socket

    from graphflow.server.listening import plain_host

    host, port = plain_host(settings.server.host), settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if os.name == "posix":
            # As servers do on POSIX: a port in TIME_WAIT after a restart is free for them.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "no host name"
            if getattr(error, "errno", None) != errno.EADDRINUSE:
                return "port", "error", f"{host}:{port}: {why}; change server.host or server.port"
            # No error: the server that has it may be this project's own.
            return "port", "warning", f"{host}:{port}: {why}; `graphflow serve --port 0` picks a free port"
    return "port", "ok", f"{host}:{port} is free"


def _server(settings: Settings) -> Iterator[Finding]:
    """What `graphflow serve` would refuse at its start: tokens, host names, origins, secrets."""
    from graphflow.errors import GraphflowError
    from graphflow.server.app import create_app
    from graphflow.service.application import Application

    try:
        create_app(Application(settings))
    except GraphflowError as error:
        yield "server", "error", error.message


def _models(settings: Settings) -> Iterator[Finding]:
    from graphflow.errors import GraphflowError
    from graphflow.models.profiles import PROFILES
    from graphflow.models.provider_tables import read_tables
    from graphflow.models.providers import provider_prefix, resolve_provider

    # Names alone: what is shown here ends up in screenshots and bug reports.
    keys = sorted(name for name, value in settings.environ.items() if name.endswith("_API_KEY") and value)
    yield "keys", "ok", f"set: {', '.join(keys)}" if keys else "none set; the scripted model is used"
    try:
        chosen = resolve_provider(None, settings.environ, settings.providers)
    except GraphflowError as error:
        yield "model", "error", error.message
        return
    if (wrong := _unusable(chosen)) is not None:
        yield "model", "error", wrong
    else:
        where = f" at {chosen.base_url}" if chosen.base_url else ""
        why = f" ({chosen.source})" if chosen.source else ""
        yield "model", "ok", f"{chosen.key}: {chosen.model or 'no model set'}{where}{why}"
    yield from _model_data(settings, chosen)
    # Agents may name any provider; one that was given an address or a table is meant to be used.
    named = {key.lower() for key, _ in _named_in(settings) if key is not None}
    unusable = read_tables(settings.providers).wrong
    stand_in = {provider for table in settings.providers.values() for provider, _ in _fallbacks(table.get("fallback"))}
    for key in dict.fromkeys([*PROFILES, *settings.providers, *sorted(stand_in)]):
        given = key in settings.providers or settings.environ.get(f"{provider_prefix(key)}_BASE_URL")
        if not (given or key in stand_in) or key == chosen.key:
            continue
        try:
            wrong = _unusable(resolve_provider(key, settings.environ, settings.providers))
        except GraphflowError as error:
            wrong = error.message
        if wrong is not None:
            # A table that is wrong fails who uses it, and nobody else.
            yield "model", "warning" if key in unusable and key not in named else "error", wrong


def _model_data(settings: Settings, chosen: Provider) -> Iterator[Finding]:
    """Whether what is known of models is fresh, and whether models in use are still served."""
    from graphflow.errors import DefinitionError
    from graphflow.models.model_data import OLD_DAYS, lifetime_text, model_data

    today = datetime.now(UTC).date()
    try:
        data = model_data(settings.llm.models_file)
    except DefinitionError as error:
        yield from (("models", "error", issue.render()) for issue in error.errors)
        return
    if (age := data.age_days(today)) > OLD_DAYS:
        text = f"what is known of models is {age} days old; get a newer version, or run `graphflow models refresh FILE`"
        yield "models", "warning", text
    else:
        yield "models", "ok", f"{len(data.models)} known, as of {data.updated}"
    for key, model in sorted({(chosen.key, chosen.model), *_named_models(settings)}):
        facts = data.find(key, model)
        ending = None if facts is None else lifetime_text(f"{key}/{model}", facts, today)
        if ending is not None:
            yield "models", "warning", ending


def _named_models(settings: Settings) -> Iterator[tuple[str, str]]:
    """The models that agents, nodes and provider tables name."""
    from graphflow.errors import GraphflowError
    from graphflow.models.providers import resolve_provider

    named = _named_in(settings) | {(key, None) for key in settings.providers}
    for key, model in sorted(named, key=str):
        with suppress(GraphflowError):
            provider = resolve_provider(key, settings.environ, settings.providers)
            yield provider.key, model or provider.model


def _named_in(settings: Settings) -> set[tuple[str | None, str | None]]:
    """`(provider key, model)` of all that agents, nodes and fallbacks name."""
    named: set[tuple[str | None, str | None]] = set()
    for table in settings.providers.values():
        named |= set(_fallbacks(table.get("fallback")))
    for file in sorted(Path(settings.agents.dir).glob("*.json")):
        with suppress(OSError, ValueError, RecursionError):  # reported with the agents
            named |= set(_models_in(json.loads(file.read_bytes())))
    return named


def _models_in(data: Any, above: str | None = None) -> Iterator[tuple[str | None, str | None]]:
    """`(provider key, model)` wherever a document names one; a part without a provider has that of what it stands in."""
    if isinstance(data, dict):
        key, model = (value if isinstance(value := data.get(n), str) else None for n in ("providerKey", "model"))
        if key is not None or model is not None:
            yield key or above, model
        yield from _fallbacks(data.get("fallback"))
        above = key or above
    for part in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _models_in(part, above)


def _fallbacks(names: Any) -> Iterator[tuple[str, str | None]]:
    """`(provider key, model)` of each name in a list of fallbacks."""
    from graphflow.models.fallback_names import split_name

    for name in names if isinstance(names, list) else ():
        with suppress(ValueError, AttributeError):  # reported with the file
            yield split_name(name)


def _unusable(provider: Provider) -> str | None:
    """Why no call can reach the provider, if that can be said without one."""
    from graphflow.errors import GraphflowError
    from graphflow.models.providers import check_usable

    try:
        if provider.protocol != "scripted":
            check_usable(provider)
    except GraphflowError as error:
        return error.message
    return None


async def _calls(settings: Settings) -> AsyncIterator[Finding]:
    """One short call to the chosen model, and to the model of every other provider whose key is set."""
    import asyncio

    from graphflow.errors import GraphflowError
    from graphflow.models.profiles import PROFILES
    from graphflow.models.providers import resolve_provider

    tried: dict[tuple[str, str], str | None] = {}
    environ, profiles = settings.environ, settings.providers
    for key in [None, *PROFILES, *profiles]:
        try:
            chosen = resolve_provider(key, environ, profiles)
        except GraphflowError as error:
            if key is None:
                yield "call", "error", error.message
            continue
        # By the provider's own variable: LLM_API_KEY is for the chosen one alone.
        if key is None or any(environ.get(name) for name in chosen.profile.api_key_env):
            tried.setdefault((chosen.key, chosen.base_url), key)
    results = await asyncio.gather(*(_call(settings, key) for key in tried.values()))
    for finding in results:
        yield finding


async def _call(settings: Settings, key: str | None) -> Finding:
    import asyncio
    import time

    from graphflow.errors import GraphflowError
    from graphflow.messages import HumanMessage
    from graphflow.models.chat_model import ChatOptions
    from graphflow.models.providers import open_provider, resolve_provider
    from graphflow.models.remote.retry import Limits

    chosen = resolve_provider(key, settings.environ, settings.providers)
    name = f"{chosen.key}: {chosen.model}" if chosen.model else chosen.key
    begun = time.monotonic()
    try:
        # By itself: an answer of a fallback would hide what is wrong with it.
        model = open_provider(chosen, None, settings.environ, limits=Limits(max_retries=0))
        try:
            async with asyncio.timeout(CALL_S):
                async for _ in model.stream([HumanMessage(content="Say ok.")], (), ChatOptions(max_tokens=16)):
                    pass
        finally:
            await model.aclose()
    except TimeoutError:
        return (
            "call",
            "error",
            f"{name}: no answer within {CALL_S:g} s; check the address {chosen.base_url} and the network",
        )
    except GraphflowError as error:
        source = f" The key is from {chosen.api_key_source}." if chosen.api_key else " No key is set."
        return (
            "call",
            "error",
            f"{name}: {error.message}.{_advice(error.detail.get('status'), chosen.base_url)}{source}",
        )
    return "call", "ok", f"{name} answered after {time.monotonic() - begun:.1f} s"


def _advice(status: Any, base_url: str) -> str:
    """What a refusal means, and what to do."""
    at = f" of {base_url}" if base_url else ""
    match status:
        case 401:
            return (
                f" 401: the server{at} does not accept this API key: it is mistyped, expired or revoked, or belongs to"
                " another provider or region. Create one in the provider's console, and set it anew."
            )
        case 403:
            return f" 403: the key is known, but may not use this model at the server{at}; enable it in the console."
        case 404:
            return " 404: the address or the model's name is wrong; check LLM_BASE_URL and LLM_MODEL_ID."
        case 429:
            return " 429: the key works, but its quota or rate limit is used up."
    return ""


async def _servers(settings: Settings) -> list[Finding]:
    """Whether each MCP server answers; each is connected, with its own time limit."""
    from graphflow.errors import GraphflowError
    from graphflow.tools.mcp.config import server_configs
    from graphflow.tools.mcp.servers import McpServers

    async def take(*_: object) -> None: ...

    try:
        servers = McpServers(server_configs(settings), take)
    except GraphflowError as error:
        return [("mcp", "error", error.message)]
    try:
        await servers.ready()
        return [_of_server(status) for status in servers.status()]
    finally:
        await servers.aclose()


def _of_server(status: dict[str, Any]) -> Finding:
    name = f"{status['name']} ({status['place']})"
    if status["state"] == "ready":
        left_out = f"; left out: {'; '.join(status['skipped'])}" if status["skipped"] else ""
        return "mcp", "warning" if left_out else "ok", f"{name}: {count(status['tools'], 'tool')}{left_out}"
    return "mcp", "warning", f"{name}: {status['error'] or 'no answer yet; `connectTimeoutMs` limits the wait'}"


def _agents(settings: Settings) -> Iterator[Finding]:
    from graphflow.errors import GraphflowError
    from graphflow.service.application import Application

    try:
        # Never opened: agents load without the store, whose state is reported above.
        app = Application(settings)
        app.agents.reload()
    except GraphflowError as error:
        yield "agents", "error", error.message
        return
    loaded, refused, issues = app.agents.list(), app.agents.invalid(), app.errors()
    if refused:
        names = ", ".join(agent.key for agent in refused)
        yield "agents", "error", f"{len(loaded)} in {settings.agents.dir}; rejected: {names} (`graphflow validate`)"
    elif loaded:
        yield "agents", "ok", f"{len(loaded)} in {settings.agents.dir}"
    else:
        yield "agents", "warning", f"none in {settings.agents.dir}; `graphflow new NAME` creates one"
    if issues:
        yield "tools", "error", f"{len(issues)} errors in tool files (`graphflow validate`)"
