"""Bearer tokens: who may call, and for what (spec 3.5)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from fastapi import HTTPException, Request

from graphflow.errors import DefinitionError, Fault

SCOPES = ("read", "run", "answer", "admin")
"""`read` looks; `run` starts, resumes, forks and cancels; `answer` answers; `admin` changes and deletes the past."""
_NAMED = re.compile(r"([A-Za-z0-9_.-]{1,64}):([a-z+*]+):(\S+)")


@dataclass(frozen=True, kw_only=True)
class Token:
    """One token that may call."""

    name: str
    scopes: frozenset[str]
    secret: bytes


def parse_tokens(entries: Iterable[str]) -> tuple[Token, ...]:
    """Tokens from the setting: `SECRET` may do all, `NAME:read+run:SECRET` what it names (`*`: all).

    Raises:
        DefinitionError: an unknown scope; the secret is not shown.
    """
    tokens = []
    for number, entry in enumerate(entries, 1):
        match = _NAMED.fullmatch(entry)
        if match is None:
            tokens.append(Token(name=f"token {number}", scopes=frozenset(SCOPES), secret=entry.encode()))
            continue
        name, words, secret = match.groups()
        scopes = SCOPES if words == "*" else tuple(words.split("+"))
        if unknown := [word for word in scopes if word not in SCOPES]:
            raise DefinitionError(
                [
                    Fault(
                        pointer="",
                        message=f"token {name!r} names the scope {unknown[0]!r}",
                        hint=f"scopes are {', '.join(SCOPES)}, joined by '+'",
                    )
                ]
            )
        tokens.append(Token(name=name, scopes=frozenset(scopes), secret=secret.encode()))
    return tuple(tokens)


def needs(scope: str) -> Callable[[Request], Awaitable[None]]:
    """A dependency that lets in who has a token with this scope; without tokens everybody is let in."""

    async def check(request: Request) -> None:
        tokens: tuple[Token, ...] = request.app.state.tokens
        if not tokens:
            return
        token = _bearer(request.headers.get("authorization", ""), tokens)
        if token is None:
            raise HTTPException(
                401, "a bearer token is needed: Authorization: Bearer …", headers={"WWW-Authenticate": "Bearer"}
            )
        if scope not in token.scopes:
            raise HTTPException(403, f"token {token.name!r} lacks the scope {scope!r}")

    return check


def _bearer(header: str, tokens: tuple[Token, ...]) -> Token | None:
    kind, _, given = header.partition(" ")
    if kind.lower() != "bearer":
        return None
    secret = given.strip().encode()
    found = None
    for token in tokens:  # all are compared, so that the time tells nothing
        if hmac.compare_digest(token.secret, secret):
            found = token
    return found
