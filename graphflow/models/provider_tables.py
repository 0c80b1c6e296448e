"""The `[providers.KEY]` tables of `graphflow.toml` over the profiles that come with the version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.models.fallback_names import names_of, wrong_names
from graphflow.models.profiles import PROFILES, Profile
from graphflow.models.provider import not_ready

Profiles = Mapping[str, Mapping[str, Any]]
"""`[providers.KEY]` tables of `graphflow.toml`: key → fields of `Profile`."""

_WIRE_NAMES = {"baseUrl": "base_url", "apiKey": "api_key_env", "apiKeyEnv": "api_key_env"}
_VARIABLE_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class ProviderTables(msgspec.Struct, frozen=True):
    """All profiles by their key. One wrong table must not keep the others from being used."""

    profiles: Mapping[str, Profile]
    """Those in `wrong` are there by what is known of them without their table."""
    wrong: Mapping[str, str]
    """Key → what is wrong with its table."""

    def profile(self, key: str) -> Profile:
        """The profile of a provider that is used.

        Raises:
            ProviderNotReady: its table is wrong.
        """
        if key in self.wrong:
            raise not_ready(key, self.wrong[key])
        return self.profiles[key]


def read_tables(tables: Profiles | None) -> ProviderTables:
    """The profiles with these tables over them."""
    if not tables:
        return ProviderTables(PROFILES, {})
    profiles, wrong = dict(PROFILES), dict[str, str]()
    for written, fields in tables.items():
        key = table_key(written)
        base = profiles.get(key)
        try:
            profiles[key] = _profile(written, fields, base)
        except ValueError as error:
            wrong[key] = str(error)
            profiles[key] = base or Profile(needs_key=False)
    # When all are known: a table may name a provider that is written after it.
    known = {*profiles, *(alias for profile in profiles.values() for alias in profile.aliases)}
    for written in tables:
        key = table_key(written)
        try:
            _check_fallback(written, profiles[key], known)
        except ValueError as error:
            wrong.setdefault(key, str(error))
    return ProviderTables(profiles, wrong)


def table_key(written: str) -> str:
    """The provider's key as a table's name spells it."""
    return written.strip().lower()


def _check_fallback(key: str, profile: Profile, known: set[str]) -> None:
    if isinstance(profile.fallback, bool):
        return
    try:
        names = names_of(profile.fallback)
    except ValueError as error:
        raise ValueError(f"[providers.{key}] {error}") from None
    own = {table_key(key), *profile.aliases}
    for name in own:
        for position, wrong, hint in wrong_names(names, name, None, known):
            raise ValueError(f"[providers.{key}] fallback {names[position]!r}: {wrong}; {hint}")


def _profile(key: str, fields: Mapping[str, Any], base: Profile | None) -> Profile:
    given = {_WIRE_NAMES.get(name, name): value for name, value in fields.items()}
    if isinstance(given.get("api_key_env"), str):
        given["api_key_env"] = [given["api_key_env"]]
    # A new provider needs a key exactly if its table names a variable for one.
    start: dict[str, Any] = (
        {"needs_key": bool({"api_key_env", "api_key_function"} & given.keys())}
        if base is None
        else msgspec.to_builtins(base)
    )
    if isinstance(given.get("knobs"), Mapping):
        # Merged one level deeper, so that one knob of a known provider can be changed alone.
        given["knobs"] = {**start.get("knobs", {}), **given["knobs"]}
    try:
        profile = msgspec.convert({**start, **given}, Profile)
    except msgspec.ValidationError as error:
        known = ", ".join(Profile.__struct_fields__)
        raise ValueError(f"[providers.{key}] is wrong: {error}; fields are {known}") from error
    if base is None and profile.protocol in ("openai", "responses", "anthropic", "gemini") and not profile.base_url:
        raise ValueError(f"[providers.{key}] has no base_url; add it")
    # A key pasted in place of its variable's name would end up in a file and in error texts.
    if not all(_VARIABLE_NAME.fullmatch(name) for name in profile.api_key_env):
        raise ValueError(
            f"[providers.{key}] api_key_env takes names of variables; set one to the key, and keep the key out of the file",
        )
    try:
        # Compiled here, so that a wrong pattern is an error of the settings and not of a run.
        re.compile(profile.knobs.models or "")
    except re.error as error:
        raise ValueError(
            f"[providers.{key}] knobs.models {profile.knobs.models!r} is not a regular expression: {error}"
        ) from error
    return profile
