"""Reading the sources: flags, environment, `.env` and the two TOML files; all their errors at once."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_origin

from graphflow.authored_files import read_authored
from graphflow.errors import DefinitionError, Issue
from graphflow.excerpts import excerpt_of
from graphflow.settings.function_reference import FunctionReference
from graphflow.settings.mcp_tables import more_servers
from graphflow.settings.table import (
    MCP_FIELDS,
    PRICE_FIELDS,
    PROVIDER_FIELDS,
    SECTIONS,
    Kinds,
    Setting,
    Settings,
    all_settings,
)
from graphflow.settings.values import as_text, converted, did_you_mean

FILES = ("graphflow.local.toml", "graphflow.toml")
"""Settings files, the stronger first."""
TABLES = ("settings", "tools", "providers", "prices", "mcp")
SECRET_FIELDS = ("headers", "env", "proxy")
"""Fields of providers and servers whose values may be keys."""


def load_settings(
    folder: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings that hold in `folder` (default: the working directory); reads files, changes nothing.

    Args:
        folder: Holds `graphflow.toml`, `graphflow.local.toml` and `.env`, each of which may be missing.
        environ: The environment; default `os.environ`.
        flags: Setting name → value from the command line; `None` is a flag that was not given.

    Raises:
        DefinitionError: with every error of every source at once.
    """
    # Absolute at once: the process may change its working directory while a server runs.
    base = Path(folder or ".").resolve()
    rows = {row.name: row for row in all_settings()}
    issues: list[Issue] = []
    env = _merged_environ(base, os.environ if environ is None else environ, issues)
    files = [(name, _read_toml(base, name, issues)) for name in FILES]
    values: dict[str, Any] = {}
    for place, name, raw in _given_values(rows, files, env, flags or {}, issues):
        # Sources come strongest first, so the first value stands.
        if name not in values:
            try:
                values[name] = converted(rows[name], raw, base)
            except ValueError as error:
                # A value that was refused may still be the secret, mistyped.
                shown = "***" if rows[name].secret else f"{excerpt_of(raw, 160)}"
                issues.append(
                    Issue(pointer="", message=f"{place} is {shown}; setting {name} takes {error}", kind="type")
                )
    providers = _tables("providers", PROVIDER_FIELDS, files, issues)
    _place(providers, base)
    mcp = more_servers(base, values.get("tools.mcp_servers"), issues) | _tables("mcp", MCP_FIELDS, files, issues)
    prices = _tables("prices", PRICE_FIELDS, files, issues)
    issues += _price_issues(prices)
    # After every source was read: who fixes a set-up wants all errors of it, not one a start.
    if issues:
        raise DefinitionError(issues)
    return Settings(
        **{section: _section(section, rows, values, base) for section in SECTIONS},
        providers=providers,
        mcp=mcp,
        prices=prices,
        folder=base,
        environ=env | _given_names(rows, values),
        warnings=tuple(_unknown_variables(rows, env)),
    )


def _section(section: str, rows: Mapping[str, Setting], values: Mapping[str, Any], base: Path) -> Any:
    given = {}
    for f in fields(SECTIONS[section]):
        name = f"{section}.{f.name}"
        default = rows[name].default
        given[f.name] = values.get(name, base / default if isinstance(default, Path) else default)
    return SECTIONS[section](**given)


def _merged_environ(base: Path, environ: Mapping[str, str], issues: list[Issue]) -> dict[str, str]:
    dotenv = base / ".env"
    # A folder of this name is a virtual environment, which some people call so.
    if not dotenv.exists() or dotenv.is_dir():
        return dict(environ)
    from dotenv import dotenv_values

    try:
        text = io.StringIO(read_authored(dotenv).decode("utf-8"), newline=None)
        from_file = {name: value for name, value in dotenv_values(stream=text).items() if value is not None}
    except (OSError, UnicodeDecodeError) as error:
        issues.append(Issue(pointer="", message=f"can't be read: {error}", file=".env", kind="syntax"))
        return dict(environ)
    # An empty variable counts as not set, so it must not hide the file's value.
    return from_file | {name: value for name, value in environ.items() if value or name not in from_file}


def _given_names(rows: Mapping[str, Setting], values: Mapping[str, Any]) -> dict[str, str]:
    """What was decided, under the given names, for code that reads an environment."""
    return {variable: as_text(value) for name, value in values.items() for variable in rows[name].env}


def _read_toml(base: Path, name: str, issues: list[Issue]) -> dict[str, Any]:
    import tomllib

    path = base / name
    try:
        # `utf-8-sig` accepts the byte order mark that editors on Windows write.
        return tomllib.loads(read_authored(path).decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"line (\d+), column (\d+)", str(error))
        line, column = (int(where[1]), int(where[2])) if where else (None, None)
        issues.append(
            Issue(pointer="", message=f"is not TOML: {error}", file=name, line=line, column=column, kind="syntax")
        )
    except (OSError, ValueError, RecursionError) as error:  # no UTF-8, a number without end, nested without end
        issues.append(Issue(pointer="", message=f"can't be read: {error}", file=name, kind="syntax"))
    return {}


Files = list[tuple[str, dict[str, Any]]]


def _given_values(
    rows: Mapping[str, Setting], files: Files, env: Mapping[str, str], flags: Mapping[str, Any], issues: list[Issue]
) -> Iterator[tuple[str, str, Any]]:
    """`(place, setting name, raw value)` from every source, the strongest first."""
    for name, value in flags.items():
        # A mistake of the program, not of its user: flags come from our own command line.
        if name not in rows:
            raise KeyError(f"no setting is called {name!r}{did_you_mean(name, rows)}")
        if value is not None:
            yield f"the flag for {name}", name, value
    for name, row in rows.items():
        # The ruled name stands first, so that it wins over a given one that another program reads too.
        for variable in row.env_names:
            # An empty variable counts as unset, except for lists of secrets: `TOKENS="$UNSET"` must not open the server.
            if env.get(variable) or (variable in env and row.secret and get_origin(row.kind) is tuple):
                yield f"environment variable {variable}", name, env[variable]
                break
    for file, tables in files:
        for name, value in _file_values(file, tables, rows, issues):
            yield f"{file}: {name}", name, value


def _file_values(
    file: str, tables: Mapping[str, Any], rows: Mapping[str, Setting], issues: list[Issue]
) -> Iterator[tuple[str, Any]]:
    for key in tables:
        if key not in TABLES:
            hint = "settings stand in [settings.SECTION]" if key in SECTIONS else None
            issues.append(_unknown(file, f"/{key}", key, TABLES, hint))
    for key, value in _table(tables, "tools", file, issues).items():
        if key == "modules":
            yield "tools.modules", value
        else:
            hint = "write it under [settings.tools]" if f"tools.{key}" in rows else None
            issues.append(_unknown(file, f"/tools/{key}", key, ("modules",), hint))
    settings = _table(tables, "settings", file, issues)
    for section in settings:
        if section not in SECTIONS:
            issues.append(_unknown(file, f"/settings/{section}", section, SECTIONS))
            continue
        known = [name.partition(".")[2] for name in rows if name.startswith(section + ".")]
        for key, value in _table(settings, section, file, issues, "/settings").items():
            if key in known:
                yield f"{section}.{key}", value
            else:
                issues.append(_unknown(file, f"/settings/{section}/{key}", key, known))


def _table(tables: Mapping[str, Any], key: str, file: str, issues: list[Issue], above: str = "") -> Mapping[str, Any]:
    value = tables.get(key, {})
    if isinstance(value, Mapping):
        return value
    issues.append(Issue(pointer=f"{above}/{key}", message=f"is {value!r}; it must be a table", file=file))
    return {}


def _tables(kind: str, known: Mapping[str, Kinds], files: Files, issues: list[Issue]) -> dict[str, dict[str, Any]]:
    """`[providers.KEY]` or `[mcp.NAME]` of both files; the stronger file wins field by field."""
    merged: dict[str, dict[str, Any]] = {}
    # The weaker file first, so that the stronger one overwrites it field by field.
    for file, tables in reversed(files):
        entries = _table(tables, kind, file, issues)
        for key in entries:
            fields_ = _table(entries, key, file, issues, f"/{kind}")
            for name, value in fields_.items():
                pointer = f"/{kind}/{key}/{name}"
                if name not in known:
                    issues.append(_unknown(file, pointer, name, known))
                # The exact type: `true` is an `int` to `isinstance`, and no time-out.
                elif type(value) not in known[name]:
                    shown = "***" if name in SECRET_FIELDS else f"{excerpt_of(value, 160)}"
                    rule = f"is {shown}; it must be of type {' or '.join(kind.__name__ for kind in known[name])}"
                    issues.append(Issue(pointer=pointer, message=rule, file=file, kind="type"))
            merged[key] = merged.get(key, {}) | dict(fields_)
    return merged


def _place(providers: Mapping[str, dict[str, Any]], base: Path) -> None:
    """Makes what names a file or a module of the folder independent of the working directory."""
    for table in providers.values():
        if isinstance(tls := table.get("tls"), dict):
            is_file = {name: name.endswith("_file") and isinstance(value, str) for name, value in tls.items()}
            table["tls"] = {name: str(base / value) if is_file[name] else value for name, value in tls.items()}
        if isinstance(name := table.get("api_key_function"), str):
            table["api_key_function"] = FunctionReference(name, base)


def _price_issues(prices: Mapping[str, Mapping[str, Any]]) -> Iterator[Issue]:
    """What the files have to say together of each price, once they are merged."""
    for name, row in prices.items():
        at = f"/prices/{name}"
        provider, _, model = name.partition("/")
        if not provider or not model:
            hint = f'[prices."{name or "PROVIDER"}/MODEL"], or "/*" for all of its models'
            yield Issue(pointer=at, message=f"{name!r} must name a provider and a model", hint=hint)
        for field in ("prompt", "completion"):
            if field not in row:
                yield Issue(pointer=at, message=f"has no {field!r}, in USD per million tokens", hint="0 is for free")
        for field, value in row.items():
            # TOML knows `inf` and `nan`; one such price makes every sum useless.
            if isinstance(value, int | float) and not 0 <= value < float("inf"):
                yield Issue(
                    pointer=f"{at}/{field}", message=f"is {value!r}; a price is a number from 0 up", kind="type"
                )


def _unknown(file: str, pointer: str, key: str, known: Any, hint: str | None = None) -> Issue:
    hint = hint or did_you_mean(key, known).lstrip("; ") or f"known: {', '.join(known)}"
    return Issue(pointer=pointer, message=f"unknown key {key!r}", hint=hint, file=file)


def _unknown_variables(rows: Mapping[str, Setting], env: Mapping[str, str]) -> Iterator[str]:
    known = {variable for row in rows.values() for variable in row.env_names}
    for variable in sorted(env):
        # A warning and no error: the variable may belong to another version that shares the environment.
        if variable.startswith("GRAPHFLOW_") and variable not in known:
            yield f"environment variable {variable} is not a setting{did_you_mean(variable, known)}"
