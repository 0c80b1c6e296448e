"""The FastAPI application over an `Application`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI

from graphflow.server import envelope
from graphflow.server.auth import parse_tokens
from graphflow.server.routes import agents, chats, operators, runs, threads
from graphflow.service.application import Application
from graphflow.service.sweep import sweep


def create_app(application: Application, *, tokens: Sequence[str] = (), watch: bool = True) -> FastAPI:
    """The HTTP face of an application; its lifespan opens and closes the application.

    Args:
        tokens: further bearer tokens, beside `server.tokens`; without any everybody is let in.
        watch: take changed agent files into service while it runs.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with application:
            await application.runs.ready()
            if watch:
                application.watch()
            sweeper = asyncio.ensure_future(sweep(application))  # noqa: TID251 - ended below
            try:
                yield
            finally:
                sweeper.cancel()
                await asyncio.gather(sweeper, return_exceptions=True)
                await stop(application)

    app = FastAPI(title="graphflow", version=_version(), lifespan=lifespan, docs_url="/docs", redoc_url=None)
    app.state.application = application
    app.state.tokens = parse_tokens([*application.settings.server.tokens, *tokens])
    app.state.max_body_bytes = application.settings.server.max_body_bytes
    envelope.install(app)
    for module in (runs, agents, chats, threads, operators):
        app.include_router(module.router)
    if origins := application.settings.server.cors_origins:
        from starlette.middleware.cors import CORSMiddleware

        app.add_middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"])
    return app


async def stop(application: Application) -> None:
    """No new runs; running nodes get the grace time, then are left at their last checkpoint (spec 3.5).

    Every run's log ends, and with it every open stream; a client whose run has not ended is told to rejoin.
    """
    if not application.stopping:
        application.stopping = True
        await application.runs.close(application.settings.server.shutdown_grace_s)


def _version() -> str:
    try:
        return version("graphflow")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0"
