"""The FastAPI application over an `Application`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter, Depends, FastAPI

from graphflow.runtime.collector import relax_collector
from graphflow.runtime.loop_watch import watch_loop
from graphflow.server import cors, envelope, openapi
from graphflow.server.access_log import AccessLog
from graphflow.server.auth import parse_tokens
from graphflow.server.client_addresses import ForwardedLimit, TrustedProxies
from graphflow.server.hosts import HostCheck, host_names
from graphflow.server.paths import EncodedSlashes
from graphflow.server.public_failures import public_failure
from graphflow.server.rate_limits import RateLimit, RunLimit
from graphflow.server.routes import (
    agents,
    chats,
    memory,
    messages,
    operators,
    pages,
    rules,
    runs,
    threads,
    tools,
    uploads,
    usage,
)
from graphflow.server.routes._parts import check_parameters
from graphflow.server.warm_up import warm_up
from graphflow.service.application import Application
from graphflow.service.runs import input_queue
from graphflow.service.runs.sweep import sweep
from graphflow.service.runs.webhooks import Webhooks
from graphflow.telemetry.run_metrics import ServerMetrics

ROUTES = APIRouter(dependencies=[Depends(check_parameters)])
"""Those of every application of the process: what a route needs is worked out at its first request, and kept here."""
for _module in (runs, agents, tools, rules, chats, uploads, threads, messages, memory, operators, usage, pages):
    ROUTES.include_router(_module.router)


def create_app(
    application: Application, *, tokens: Sequence[str] = (), watch: bool = True, own_process: bool = False
) -> FastAPI:
    """The HTTP face of an application; its lifespan opens and closes the application.

    Args:
        tokens: further bearer tokens, beside `server.tokens`; without any, every caller is accepted.
        watch: activate changed agent files while it runs.
        own_process: the process does nothing but serve, so its garbage collector is set for that.
    """
    metrics = ServerMetrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            async with _served(application, metrics, webhooks, watch=watch, own_process=own_process):
                yield
        except BaseException as error:
            app.state.start_error = error  # the server that calls this reports only the trace
            raise

    app = FastAPI(
        title="graphflow",
        version=_version(),
        lifespan=lifespan,
        # The docs pages load scripts from another host, and the document is made on the event loop; `routes/pages.py` serves
        # them without either.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        routes=ROUTES.routes,
    )
    settings = application.settings.server
    webhooks = Webhooks(application, public_failure)
    app.state.application = application
    app.state.metrics = metrics
    per_minute = settings.max_requests_per_minute
    app.state.rate = None if per_minute is None else RateLimit(per_minute, application.clock.monotonic)
    app.state.run_limit = None if settings.max_runs is None else RunLimit(settings.max_runs)
    app.state.tokens = parse_tokens([*settings.tokens, *tokens], settings.capabilities)
    app.state.max_body_bytes, app.state.max_body_values = settings.max_body_bytes, settings.max_body_values
    envelope.install(app)
    openapi.install(app)
    cors.allow(app, settings.cors_origins)
    # With tokens a page that has none reads nothing, under whatever name; without them the name is the only guard.
    if settings.allowed_hosts or not app.state.tokens:
        app.add_middleware(HostCheck, allowed=host_names(settings.allowed_hosts))
    app.add_middleware(EncodedSlashes)
    if proxies := TrustedProxies(settings.trusted_proxies):
        app.add_middleware(ForwardedLimit, proxies=proxies, most=settings.max_connections_per_address)
    # The outermost, so that requests that CORS refuses are counted and logged as well.
    app.add_middleware(AccessLog, metrics=metrics)
    return app


@asynccontextmanager
async def _served(
    application: Application, metrics: ServerMetrics, webhooks: Webhooks, *, watch: bool, own_process: bool
) -> AsyncIterator[None]:
    """The application, open and looked after."""
    async with application:
        # Opened before the first request, so that a store that can't be opened fails the start.
        await application.runs.ready()
        await asyncio.to_thread(warm_up)
        if own_process:
            # It looks through all that is loaded: before `watch_loop`, which would report it as a blocked loop.
            relax_collector(application.store)
        metrics.listen(application)
        if watch:
            application.watch()
        # It lives as long as the server: a task group would wrap the `yield`, and a cancel would then cross it.
        sweeper = asyncio.ensure_future(_serve_others(application, webhooks))  # noqa: TID251 - ended below
        try:
            with watch_loop() as metrics.loop:
                yield
        finally:
            sweeper.cancel()
            await asyncio.gather(sweeper, return_exceptions=True)
            await stop(application)
            metrics.leave(application)


async def _serve_others(application: Application, webhooks: Webhooks) -> None:
    """What the server does without a request, until it is cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(sweep(application))
        group.create_task(webhooks.serve())


async def stop(application: Application) -> None:
    """No new runs; running nodes get the grace time, then are left at their last checkpoint (spec 3.5).

    Every run's log ends, and with it every open stream; a client whose run has not ended gets a comment to rejoin.
    """
    if not application.stopping:
        application.stopping = True
        await input_queue.close(application)
        await application.runs.close(application.settings.server.shutdown_grace_s)


def _version() -> str:
    try:
        return version("graphflow")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0"
