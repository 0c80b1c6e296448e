"""One MCP server as the settings describe it, checked; its secrets are looked up by name and never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from graphflow.capabilities import unknown_capability
from graphflow.errors import DefinitionError, Issue
from graphflow.settings import Settings
from graphflow.tools.port import Effects

INSTALL = "pip install 'graphflow[mcp]'"
TRANSPORTS = ("stdio", "http", "sse")
EFFECTS: tuple[str, ...] = get_args(Effects)
NAME = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
_RESERVED = ("agent", "mcp")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_SHORTEST_SECRET = 4
"""Characters of a value from which on it is masked: masking `1` or `on` would make every text unreadable."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """How one server is reached, and how its tools are treated."""

    name: str
    transport: str = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """As written, with `${NAME}` for variables."""
    folder: Path = Path()
    """Working directory of a server that is started here."""
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 100.0
    """Longest call."""
    connect_s: float = 10.0
    """Longest that a run waits for the server before it starts without its tools."""
    trust: bool = False
    """Whether annotations of its tools may make them `read`."""
    effects: Mapping[str, str] = field(default_factory=dict)
    """Tool → `none`, `read` or `write`; `*` is for the others."""
    idempotent: tuple[str, ...] = ()
    """Tools whose write may be repeated; `*` is all."""
    capabilities: tuple[str, ...] = ()
    """What a run needs to call any of its tools."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where variables are looked up."""

    def resolved(self, values: Mapping[str, str]) -> dict[str, str]:
        """The values with their variables filled in.

        Raises:
            LookupError: the name of a variable that is not set.
        """
        return {key: self.filled(value) for key, value in values.items()}

    def filled(self, text: str) -> str:
        """A text with its variables filled in; raises `LookupError` for one that is not set."""

        def value(found: re.Match[str]) -> str:
            given = self.environ.get(found[1]) or found[2]
            if given is None:
                raise LookupError(found[1])
            return given

        return _VARIABLE.sub(value, text)

    def masked(self, text: str) -> str:
        """A text of the server without the values that it was given in confidence."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _secrets(self) -> set[str]:
        found = {self.environ.get(name[1], "") for text in self._given() for name in _VARIABLE.finditer(text)}
        found |= {text for text in (*self.env.values(), *self.headers.values()) if not _VARIABLE.search(text)}
        return {secret for secret in found if len(secret) >= _SHORTEST_SECRET}

    def _given(self) -> tuple[str, ...]:
        return (*self.env.values(), *self.headers.values(), *self.args, self.url)

    @property
    def place(self) -> str:
        """Where the server is, for people: its command's name, or its address without what may be secret."""
        if self.transport == "stdio":
            return Path(self.command).name
        return self.url.partition("?")[0].rpartition("@")[2] if "@" in self.url else self.url.partition("?")[0]


def server_configs(settings: Settings) -> dict[str, ServerConfig]:
    """The enabled servers, by name.

    Raises:
        DefinitionError: with every error of every server; also if there is one and the extra is not installed.
    """
    issues: list[Issue] = []
    found: dict[str, ServerConfig] = {}
    for name, table in settings.mcp.items():
        wrong = list(_issues(name, table))
        issues += wrong
        if not wrong and table.get("enabled", True):
            found[name] = _config(name, table, settings)
    if found and find_spec("mcp") is None:
        names = ", ".join(sorted(found))
        message = f"MCP servers are configured ({names}), and the package `mcp` is not installed"
        issues.append(Issue(pointer="/mcp", message=message, hint=f"{INSTALL}, or set `enabled = false`"))
    if issues:
        raise DefinitionError(issues)
    return found


def _config(name: str, table: Mapping[str, Any], settings: Settings) -> ServerConfig:
    effects = table.get("effects", {})
    url = table.get("url", "")
    transport = _transport(table)
    if transport == "sse" and (endpoint := table.get("sseEndpoint")):
        url = url.rstrip("/") + "/" + endpoint.lstrip("/")
    return ServerConfig(
        name=name,
        transport=transport,
        command=table.get("command", ""),
        args=tuple(table.get("args", ())),
        env=dict(table.get("env", {})),
        folder=settings.folder,
        url=url,
        headers=dict(table.get("headers", {})),
        timeout_s=table.get("timeoutMs", 100_000) / 1000,
        connect_s=table.get("connectTimeoutMs", 10_000) / 1000,
        trust=table.get("trust", False),
        effects={"*": effects} if isinstance(effects, str) else dict(effects),
        idempotent=tuple(table.get("idempotent", ())),
        capabilities=tuple(table.get("capabilities", ())),
        environ=settings.environ,
    )


def _transport(table: Mapping[str, Any]) -> str:
    return str(table.get("transport") or ("http" if "url" in table else "stdio"))


def _issues(name: str, table: Mapping[str, Any]) -> Iterator[Issue]:
    at = f"/mcp/{name}"
    if not NAME.fullmatch(name) or name in _RESERVED:
        hint = f"use 1 to 40 letters, digits, `_` and `-`; {' and '.join(map(repr, _RESERVED))} are taken"
        yield Issue(pointer=at, message=f"{name!r} can't name an MCP server", hint=hint)
    transport = _transport(table)
    if transport not in TRANSPORTS:
        hint = f"one of {', '.join(TRANSPORTS)}"
        yield Issue(pointer=f"{at}/transport", message=f"transport is {transport!r}", hint=hint)
        return
    needed = "command" if transport == "stdio" else "url"
    if not table.get(needed):
        yield Issue(pointer=at, message=f"a server over {transport} needs `{needed}`")
    elif needed == "url" and not table["url"].startswith(("http://", "https://")):
        yield Issue(pointer=f"{at}/url", message="the address is no http:// or https:// URL")
    for word in ("timeoutMs", "connectTimeoutMs"):
        if (given := table.get(word)) is not None and not 1 <= given <= 86_400_000:
            yield Issue(pointer=f"{at}/{word}", message=f"{word} is {given}; use 1 to 86400000")
    for word in ("args", "idempotent", "capabilities"):
        yield from _texts(at, word, table.get(word, ()))
    for word in ("env", "headers"):
        for key, value in table.get(word, {}).items():
            if not isinstance(value, str):
                yield Issue(
                    pointer=f"{at}/{word}/{key}", message="the value must be a text, perhaps with ${NAME} in it"
                )
    effects = table.get("effects", {})
    for key, value in ({"": effects} if isinstance(effects, str) else effects).items():
        if value not in EFFECTS:
            place = f"{at}/effects/{key}".rstrip("/")
            yield Issue(pointer=place, message=f"effects is {value!r}", hint=f"one of {', '.join(EFFECTS)}")
    if wrong := unknown_capability([word for word in table.get("capabilities", ()) if isinstance(word, str)]):
        yield Issue(pointer=f"{at}/capabilities", message="names what there is not", hint=wrong)


def _texts(at: str, word: str, given: Sequence[Any]) -> Iterator[Issue]:
    for index, value in enumerate(given):
        if not isinstance(value, str):
            yield Issue(pointer=f"{at}/{word}/{index}", message=f"{word} holds {value!r}; write texts")
