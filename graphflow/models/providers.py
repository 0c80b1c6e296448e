"""From a provider's key to a model: profiles, environment and `auto`.

Order of `auto`: `LLM_BASE_URL` if set; else `LLM_PROVIDER`; else the one provider whose key is set;
else `scripted`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from graphflow.errors import ModelError
from graphflow.http_headers import can_be_sent
from graphflow.masking import mask_text
from graphflow.models.environment import environment
from graphflow.models.pool import ModelPool
from graphflow.models.profiles import CUSTOM, PROFILES, Profile
from graphflow.models.provider import Provider, ProviderNotReady, not_ready
from graphflow.models.provider_tables import Profiles, ProviderTables, read_tables, table_key
from graphflow.models.remote.retry import Limits

if TYPE_CHECKING:
    from graphflow.models.chat_model import ChatModel
    from graphflow.models.remote.transport import Transport

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "host.docker.internal"})  # noqa: S104 - compared
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class UnknownProvider(ModelError):
    """No provider has this key; `detail.known` lists those that exist."""


def known_providers(profiles: Profiles | None = None) -> list[str]:
    """Every key that an agent may name, `auto` and aliases included."""
    table = read_tables(profiles).profiles
    return sorted({*table, *(alias for p in table.values() for alias in p.aliases), "auto"})


def resolve_provider(
    key: str | None = None, env: Mapping[str, str] | None = None, profiles: Profiles | None = None
) -> Provider:
    """The provider behind `key`; `None`, an empty key and `auto` choose by the environment.

    Raises:
        UnknownProvider: no profile has this key.
        ProviderNotReady: `auto` finds the keys of several providers, or the table of this one is wrong.
    """
    variables, table = environment(env), read_tables(profiles)
    name = (key or "auto").strip().lower()
    if name == "auto":
        return _auto(variables, table, [table_key(name) for name in profiles or ()])
    return _named(name, variables, table, source="provider key")


def resolve_fallback(
    first: str, key: str | None, env: Mapping[str, str] | None = None, profiles: Profiles | None = None
) -> Provider:
    """The provider behind `key`, which stands in for the provider `first`.

    `LLM_API_KEY` counts for it only where the environment says that it is meant: it may be the key of the first.

    Raises:
        UnknownProvider, ProviderNotReady: see `resolve_provider`.
    """
    variables = environment(env)
    found = resolve_provider(key, variables, profiles)
    if found.key == first or found.api_key_source != "LLM_API_KEY" or _set(variables, "LLM_BASE_URL"):
        return found
    wanted = _set(variables, "LLM_PROVIDER")
    if wanted is not None and wanted.lower() in (found.key, *found.profile.aliases):
        return found
    own = {name: value for name, value in variables.items() if name != "LLM_API_KEY"}
    return resolve_provider(key, own, profiles)


def open_model(
    provider_key: str | None = None,
    model: str | None = None,
    env: Mapping[str, str] | None = None,
    profiles: Profiles | None = None,
    *,
    api_key: str | Callable[[], Any] | None = None,
    limits: Limits | None = None,
    transport: Transport | None = None,
) -> ChatModel:
    """A model ready to stream; opens no connection yet.

    `model` wins over what the environment and the profile say. Keep one per provider and model: it
    holds the pool of connections. Close it by `aclose`.

    Args:
        api_key: in place of what the environment and the profile say: the key, or a function that gives it, as
            `Profile.api_key_function`. Other models that are asked where this one fails do not get it.

    Raises:
        UnknownProvider, ProviderNotReady: see `resolve_provider`; also when a needed key is missing.
    """

    def opened(key: str | None, name: str | None) -> ChatModel:
        provider = resolve_provider(key, env, profiles)
        if api_key is not None and (key, name) == (provider_key, model):
            function = None if isinstance(api_key, str) else api_key
            profile = msgspec.structs.replace(provider.profile, api_key_function=function)
            key_text = api_key if isinstance(api_key, str) else None
            provider = msgspec.structs.replace(provider, profile=profile, api_key=key_text, api_key_source="api_key")
        return open_provider(provider, name, env, limits=limits, transport=transport)

    def stand_in(first: str, key: str | None, name: str | None) -> ChatModel:
        provider = resolve_fallback(first, key, env, profiles)
        return open_provider(provider, name, env, limits=limits, transport=transport)

    return ModelPool(opened, stand_in)(provider_key, model)


def open_provider(
    provider: Provider,
    model: str | None = None,
    env: Mapping[str, str] | None = None,
    *,
    limits: Limits | None = None,
    transport: Transport | None = None,
    wrap: Callable[[ChatModel], ChatModel] = lambda client: client,
) -> ChatModel:
    """`open_model` for a provider that is resolved already, and for it alone; `wrap` is applied to each client."""
    if provider.protocol == "scripted":
        return wrap(_scripted(provider, model))
    _require(provider, model)
    name, bounds = model or provider.model, limits or limits_from(env)

    def native() -> ChatModel:
        if provider.protocol == "anthropic":
            from graphflow.models.anthropic.model import AnthropicModel

            return AnthropicModel(provider, name, limits=bounds, transport=transport)
        if provider.protocol == "responses":
            from graphflow.models.responses.model import ResponsesModel

            return ResponsesModel(provider, name, limits=bounds, transport=transport)
        # Google serves the OpenAI protocol under the same host.
        if provider.protocol == "gemini" and not provider.base_url.rstrip("/").endswith("/openai"):
            from graphflow.models.gemini.model import GeminiModel

            return GeminiModel(provider, name, limits=bounds, transport=transport)
        from graphflow.models.openai.model import OpenAICompatibleModel

        return OpenAICompatibleModel(provider, name, limits=bounds, transport=transport)

    def library() -> ChatModel:
        from graphflow.models.library.model import AnyLlmModel

        return AnyLlmModel(provider, name, limits=bounds)

    first, second = (library, native) if provider.protocol == "library" else (native, library)
    if provider.profile.fallback is not True or not provider.base_url:
        return wrap(first())
    from graphflow.models.fallback import FallbackModel

    return FallbackModel(wrap(first()), lambda _: wrap(second()), [provider.key], same_account=True)


def limits_from(env: Mapping[str, str] | None = None) -> Limits:
    """The limits with `LLM_TIMEOUT` (seconds to the first data and between data) and `LLM_MAX_RETRIES` filled in.

    Raises:
        ProviderNotReady: for a value that is no number of its range.
    """
    variables = environment(env)
    changes: dict[str, float] = {}
    timeout, retries = variables.get("LLM_TIMEOUT"), variables.get("LLM_MAX_RETRIES")
    if timeout:
        silence_s = _seconds("LLM_TIMEOUT", timeout)
        # A limit of silence above the total would never apply, so the total grows with it.
        changes = {"first_data_s": silence_s, "idle_s": silence_s, "total_s": max(silence_s, Limits().total_s)}
    if retries:
        if not (retries.strip().isascii() and retries.strip().isdecimal()):
            raise ProviderNotReady(
                f"LLM_MAX_RETRIES is {retries!r}; it must be a whole number, 0 or more", retryable=False
            )
        changes["max_retries"] = int(retries)
    return msgspec.structs.replace(Limits(), **changes)


# --- choosing ------------------------------------------------------------------------------------


def _auto(env: Mapping[str, str], table: ProviderTables, written: Sequence[str]) -> Provider:
    """Args:
    written: the keys of `[providers.KEY]` tables.
    """
    if base_url := _set(env, "LLM_BASE_URL"):
        return _by_address(base_url, env, table)
    wanted = (_set(env, "LLM_PROVIDER") or "auto").lower()
    if wanted != "auto":
        return _named(wanted, env, table, source="LLM_PROVIDER", model=_set(env, "LLM_MODEL_ID"))
    # Guessing between several keys could send a conversation to a provider that nobody chose.
    found = {key: name for key, profile in table.profiles.items() if (name := _key_variable(key, profile, env))}
    what = "keys of several providers are set"
    if not found:
        # A server of one's own may need no key: its table or its address says that it is meant to be used.
        what = "several providers are configured"
        found = {key: f"[providers.{key}]" for key in written}
        found |= {key: name for key in table.profiles if _set(env, name := f"{provider_prefix(key)}_BASE_URL")}
    if len(found) > 1:
        listed = ", ".join(f"{key} ({name})" for key, name in found.items())
        raise ProviderNotReady(
            f"{what}: {listed}; name one by LLM_PROVIDER or in the agent's providerKey",
            retryable=False,
            providers=sorted(found),
        )
    for key, name in found.items():
        return _named(key, env, table, source=name, model=_set(env, "LLM_MODEL_ID"))
    scripted = _named("scripted", env, table, source="no key is set")
    return msgspec.structs.replace(scripted, stands_in=True)


def _by_address(base_url: str, env: Mapping[str, str], table: ProviderTables) -> Provider:
    key = infer_provider(base_url, table.profiles)
    # The profile by address: a known provider's oddities hold whatever variable its address came from.
    profile = table.profile(key) if key in table.profiles else CUSTOM
    names = ("LLM_API_KEY", _key_variable(key, profile, env) or "", "OPENAI_API_KEY")
    name = next((name for name in names if _set(env, name)), "")
    return Provider(
        key=key,
        profile=profile,
        base_url=base_url,
        model=_set(env, "LLM_MODEL_ID") or _set(env, f"{provider_prefix(key)}_MODEL") or profile.model,
        api_key=_set(env, name),
        api_key_source=name,
        headers=_headers(profile, env),
        proxy=_proxy(profile, env),
        tls_password=_tls_password(profile, env),
        source="LLM_BASE_URL",
    )


def infer_provider(base_url: str, table: Mapping[str, Profile] = PROFILES) -> str:
    """The key of the provider that a base URL belongs to; `local` for this machine, else `custom`."""
    try:
        parts = urlsplit(base_url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "custom"
    for key, profile in table.items():
        if any(host == ending or host.endswith(f".{ending}") for ending in profile.hosts):
            return key
    # By port, because both run on this machine and nothing else in the address tells them apart.
    if host in _LOOPBACK:
        return "ollama" if port == 11434 else "local"
    return "custom"


def _named(
    name: str, env: Mapping[str, str], table: ProviderTables, *, source: str, model: str | None = None
) -> Provider:
    key = next((k for k, p in table.profiles.items() if name == k or name in p.aliases), None)
    if key is None:
        known = sorted({*table.profiles, "auto"})
        raise UnknownProvider(
            f"unknown provider {name!r}; known are {', '.join(known)}; add others as [providers.{name}] in graphflow.toml",
            retryable=False,
            known=known,
        )
    profile, prefix = table.profile(key), provider_prefix(key)
    base_url = _set(env, f"{prefix}_BASE_URL") or _filled(key, profile, env)
    if profile.protocol == "scripted" and base_url:
        profile = msgspec.structs.replace(profile, protocol="openai")  # the scripted model as a server
    key_name = _key_source(key, profile, env)
    return Provider(
        key=key,
        profile=profile,
        base_url=base_url,
        model=model or _set(env, f"{prefix}_MODEL") or profile.model,
        api_key=_set(env, key_name),
        api_key_source=key_name,
        headers=_headers(profile, env),
        proxy=_proxy(profile, env),
        tls_password=_tls_password(profile, env),
        source=source,
    )


def _filled(key: str, profile: Profile, env: Mapping[str, str]) -> str:
    """The base URL with its variables; as written where one is not set, which `check_usable` reports."""
    missing = [name for name in _VARIABLE.findall(profile.base_url) if not _set(env, name)]
    return profile.base_url if missing else _VARIABLE.sub(lambda m: _set(env, m[1]) or "", profile.base_url)


def _key_source(key: str, profile: Profile, env: Mapping[str, str]) -> str:
    """The variable that has the key: `LLM_API_KEY` before the provider's own, unless it is for the server of `LLM_BASE_URL`."""
    general, address = _set(env, "LLM_API_KEY"), _set(env, "LLM_BASE_URL")
    # A key must never be sent to another server than the one it was set for.
    if general and (not address or infer_provider(address) == key):
        return "LLM_API_KEY"
    return _key_variable(key, profile, env) or ""


def _key_variable(key: str, profile: Profile, env: Mapping[str, str]) -> str | None:
    """The first variable that holds a key of this provider."""
    return next((n for n in (f"{provider_prefix(key)}_API_KEY", *profile.api_key_env) if _set(env, n)), None)


def _set(env: Mapping[str, str], name: str) -> str | None:
    """A variable's value without the white space around it; `None` when nothing else is in it."""
    return env.get(name, "").strip() or None


def _headers(profile: Profile, env: Mapping[str, str]) -> dict[str, str]:
    return {name: _VARIABLE.sub(lambda m: env.get(m[1], ""), value) for name, value in profile.headers.items()}


def _proxy(profile: Profile, env: Mapping[str, str]) -> str | None:
    """The proxy with its variables; as written where one is not set, which `check_usable` reports."""
    if profile.proxy is None or any(not _set(env, name) for name in _VARIABLE.findall(profile.proxy)):
        return profile.proxy
    return _VARIABLE.sub(lambda m: _set(env, m[1]) or "", profile.proxy).strip()


def _tls_password(profile: Profile, env: Mapping[str, str]) -> str | None:
    name = profile.tls and profile.tls.key_password_env
    return env.get(name) if name else None


def check_tables(env: Mapping[str, str] | None, profiles: Profiles) -> None:
    """Checks the proxies, certificates and key functions of `[providers.KEY]` tables, before any model is opened.

    Raises:
        ProviderNotReady: one of them can't work.
    """
    table = read_tables(profiles)
    for key in map(table_key, profiles):
        # What else is wrong with a table fails who uses it, and nobody else.
        if key not in table.wrong:
            _check_way(_named(key, environment(env), table, source="settings"))


def _check_way(provider: Provider) -> None:
    profile = provider.profile
    if profile.proxy is None and profile.tls is None and profile.api_key_function is None:
        return
    # Imported here: most processes have none of these.
    from graphflow.models.remote.connection import way_misfit

    if (wrong := way_misfit(provider)) is not None:
        raise not_ready(provider.key, wrong)


def _require(provider: Provider, model: str | None) -> None:
    key, prefix = provider.key, provider_prefix(provider.key)
    if not (model or provider.model):
        name = "LLM_MODEL_ID" if provider.source == "LLM_BASE_URL" else f"{prefix}_MODEL"
        raise not_ready(key, f"no model is named; set {name}, or `model` in the agent's file")
    check_usable(provider)


def check_usable(provider: Provider) -> None:
    """Checks address, key and headers, without a call.

    Raises:
        ProviderNotReady: one of them can't work.
    """
    key = provider.key
    if missing := _VARIABLE.findall(provider.base_url):
        names = " and ".join(dict.fromkeys(missing))
        raise not_ready(key, f"its base URL needs {names}; set it, or {provider_prefix(key)}_BASE_URL")
    by_library = provider.protocol == "library" and not provider.base_url  # the library knows the address itself
    if not by_library and not _is_address(provider.base_url):
        raise not_ready(
            key, f"the base URL {mask_text(provider.base_url)!r} is not a URL; it must be http[s]://HOST[:PORT]/PATH"
        )
    names = ", ".join(dict.fromkeys([f"{provider_prefix(key)}_API_KEY", *provider.profile.api_key_env, "LLM_API_KEY"]))
    _check_way(provider)
    if provider.profile.needs_key and not provider.api_key and provider.profile.api_key_function is None:
        raise not_ready(key, f"no API key is set; set one of {names}")
    if not can_be_sent("Authorization", provider.api_key or ""):
        raise not_ready(key, f"its API key has characters that a key can't have; copy it again into one of {names}")
    for name, value in provider.headers.items():
        if not can_be_sent(name, value):
            raise not_ready(key, f"its header {name!r} can't be sent; names and values of headers are plain ASCII")


def _is_address(base_url: str) -> bool:
    try:
        parts = urlsplit(base_url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket or a port that can be none
        return False


def _scripted(provider: Provider, model: str | None) -> ChatModel:
    from graphflow.models.scripted.model import ScriptedModel

    path, names = provider.profile.script, provider.profile.fallback
    if names is True:
        raise not_ready(provider.key, "fallback = true asks the same model by another client; name models instead")
    options: dict[str, Any] = {"model": model or provider.model, "provider": provider.key, "fallback": names or ()}
    return ScriptedModel(**options) if path is None else ScriptedModel.from_file(path, **options)


def provider_prefix(key: str) -> str:
    """What the variables of a provider begin with: `<PREFIX>_API_KEY`, `<PREFIX>_BASE_URL`, `<PREFIX>_MODEL`."""
    return re.sub(r"\W", "_", key).upper()


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise ProviderNotReady(f"{name} is {text!r}; it must be a number of seconds above 0", retryable=False)
    return seconds
