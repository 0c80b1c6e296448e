"""Bearer tokens: who may call, for what, and whose threads they see (spec 3.5)."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Security
from fastapi.security import HTTPBearer

from graphflow.capabilities import CAPABILITIES, COMMON, unknown_capability
from graphflow.errors import DefinitionError, GraphflowError, Issue
from graphflow.excerpts import excerpt_of
from graphflow.server import cors
from graphflow.server.rate_limits import RateLimit
from graphflow.service.access import LOCAL, Caller, check_chat, check_run, check_thread
from graphflow.suggestions import choose

SCOPES = ("read", "run", "answer", "admin")
"""`read` looks; `run` starts, resumes, forks and cancels; `answer` answers; `admin` changes and deletes the past."""
_BEARER = HTTPBearer(auto_error=False, scheme_name="bearer", description="A token; none where the server has none set.")
"""Says on the OpenAPI page what `_let_in` asks for; itself it accepts everything."""
_NAMED = re.compile(r"([A-Za-z0-9_.-]{1,64})(?:@([A-Za-z0-9_.@+-]{1,128}))?:([a-z+*]+):(\S+)")


@dataclass(frozen=True, kw_only=True)
class BearerToken:
    """One token that may call; what it was made of is not kept, so that nothing can show it."""

    name: str
    scopes: frozenset[str]
    digest: bytes
    user: str | None = None
    """Sees the threads of this user alone; None sees all."""
    capabilities: tuple[str, ...] | None = None
    """What runs that it starts may do; None: everything."""

    @property
    def caller(self) -> Caller:
        return Caller(name=self.name, user=self.user, admin="admin" in self.scopes, capabilities=self.capabilities)


def parse_tokens(entries: Iterable[str], limits: Iterable[str] = ()) -> tuple[BearerToken, ...]:
    """Tokens from the setting: `SECRET` may do all, `NAME:read+run:SECRET` what it names (`*`: all).

    `NAME@USER:…` sees that user's threads alone. Runs of a token may do everything with the scope `admin`; else all but what
    changes what agents may do.

    Args:
        limits: `server.capabilities`: `NAME=net+shell` or `@USER=…`, which leave a token less.

    Raises:
        DefinitionError: an unknown scope, capability or token, no secret, or one secret for two tokens; no secret is shown.
    """
    tokens: dict[bytes, BearerToken] = {}
    less = dict(map(_limit, limits))
    for number, entry in enumerate(entries, 1):
        # `NAME:SCOPES:$UNSET` would else be a secret itself, which anyone can guess.
        named = _NAMED.fullmatch(f"{entry.rstrip()}x")
        if not entry.strip() or (named and named[4] == "x"):
            raise _issue(f"token {number} has no secret", "write SECRET or NAME:SCOPES:SECRET; is a variable unset?")
        match = _NAMED.fullmatch(entry)
        name, user, words, secret = match.groups() if match else (f"token {number}", None, "*", entry)
        scopes = SCOPES if words == "*" else tuple(words.split("+"))
        if unknown := [word for word in scopes if word not in SCOPES]:
            raise _issue(
                f"token {name!r} names the scope {unknown[0]!r}", f"scopes are {', '.join(SCOPES)}, joined by '+'"
            )
        token = BearerToken(
            name=name,
            scopes=frozenset(scopes),
            digest=_digest(secret.encode()),
            user=user,
            capabilities=_capabilities("admin" in scopes, [less[key] for key in (name, f"@{user}") if key in less]),
        )
        if (other := tokens.setdefault(token.digest, token)) != token:
            raise _issue(f"tokens {other.name!r} and {name!r} have the same secret", "give each its own")
    names = {name for token in tokens.values() for name in (token.name, f"@{token.user}" if token.user else token.name)}
    if strangers := [key for key in less if key not in names]:
        raise _issue(f"server.capabilities names {strangers[0]!r}, which is no token", choose(strangers[0], names))
    return tuple(tokens.values())


def _limit(entry: str) -> tuple[str, frozenset[str]]:
    name, equals, words = entry.partition("=")
    listed = [word for word in words.split("+") if word]
    if not equals or not name:
        raise _issue(f"server.capabilities has {excerpt_of(entry)}", "write NAME=CAPABILITY+CAPABILITY, or @USER=…")
    if wrong := unknown_capability(listed):
        raise _issue(f"server.capabilities of {name!r}: {wrong}", "write NAME=CAPABILITY+CAPABILITY")
    return name, frozenset(listed)


def _capabilities(admin: bool, limits: list[frozenset[str]]) -> tuple[str, ...] | None:
    """What runs of a token may do; None: everything."""
    if admin and not limits:
        return None
    return tuple(word for word in (CAPABILITIES if admin else COMMON) if all(word in limit for limit in limits))


def _issue(message: str, hint: str) -> DefinitionError:
    return DefinitionError([Issue(pointer="", message=message, hint=hint)])


def needs(scope: str) -> Callable[..., Awaitable[None]]:
    """A dependency that accepts tokens with this scope, for the threads that their user may see.

    Threads, runs and chats are those that path and query name; those in a body are checked where it is read.
    Without tokens every caller is accepted.
    """

    async def check(request: Request, _: Any = Security(_BEARER, scopes=[scope])) -> None:
        tokens: tuple[BearerToken, ...] = request.app.state.tokens
        # Without tokens a browser is the only guard, and it does not stop a page from sending a request.
        if not tokens and "origin" in request.headers:
            cors.check(request, request.app.state.application.settings.server.cors_origins)
        caller = request.scope["caller"] = _let_in(request, tokens, scope) if tokens else LOCAL
        rate: RateLimit | None = request.app.state.rate
        # After the token was accepted, so that strangers can't use up a token's requests.
        if rate is not None:
            rate.take(caller.name)
        if caller.user is not None:
            await _must_see(request, caller)

    return check


def caller_of(request: Request) -> Caller:
    """The caller, once `needs` has accepted it."""
    caller: Caller = request.scope["caller"]
    return caller


def for_all_users(request: Request) -> None:
    """Refuses a token of one user, for routes that concern all users.

    Raises:
        GraphflowError: `forbidden`.
    """
    if caller_of(request).user is not None:
        raise GraphflowError("this route concerns all users, and the token is of one user", code="forbidden")


def _let_in(request: Request, tokens: tuple[BearerToken, ...], scope: str) -> Caller:
    token = _bearer(request.headers.get("authorization", ""), tokens)
    if token is None:
        raise GraphflowError("a bearer token is needed: Authorization: Bearer …", code="unauthorized")
    request.scope["caller"] = token.caller  # for the access log, also when the scope is missing
    if scope not in token.scopes:
        raise GraphflowError(f"token {token.name!r} lacks the scope {scope!r}", code="forbidden")
    return token.caller


async def _must_see(request: Request, caller: Caller) -> None:
    # A thread of another user gets the same 404 as one that does not exist.
    app, path, query = request.app.state.application, request.path_params, request.query_params
    for name, checked in ((path.get("thread_id"), check_thread), (query.get("toThread"), check_thread)):
        if name is not None:
            await checked(app, caller, name)
    for name in (path.get("chat_id"), query.get("chatId")):
        if name is not None:
            await check_chat(app, caller, name)
    for name in (path.get("run_id"), query.get("runId")):
        if name is not None:
            await check_run(app, caller, name)


def _bearer(header: str, tokens: tuple[BearerToken, ...]) -> BearerToken | None:
    kind, _, given = header.partition(" ")
    if kind.lower() != "bearer":
        return None
    digest = _digest(given.strip().encode("latin-1", "replace"))  # as the bytes came
    found = None
    for token in tokens:  # all are compared, and by their digests, so that the time tells nothing
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
