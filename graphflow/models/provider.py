"""A resolved provider: its profile with address, key and model filled in."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from graphflow.errors import ModelError
from graphflow.models.profiles import Profile


class ProviderNotReady(ModelError):
    """A provider that can't be used as things are set: a key, address or model is missing, or the
    choice between several is open. The text says which variable to set.
    """


def not_ready(key: str, text: str) -> ProviderNotReady:
    """The error of this provider."""
    return ProviderNotReady(f"provider {key!r} can't be used: {text}", retryable=False, provider=key)


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider ready to be called."""

    key: str
    profile: Profile
    base_url: str = ""
    model: str = ""
    """What is asked for when the agent names no model."""
    api_key: str | None = None
    api_key_source: str = ""
    """The variable that has the key."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    proxy: str | None = None
    """See `Profile.proxy`."""
    tls_password: str | None = None
    source: str = ""
    """What decided for this provider, for `graphflow doctor`: `LLM_BASE_URL`, `DEEPSEEK_API_KEY` …"""

    stands_in: bool = False
    """Whether nobody chose it: the scripted model, where no provider is configured."""

    @property
    def protocol(self) -> str:
        return self.profile.protocol

    @property
    def stamp(self) -> str:
        """What marks state of this provider: the key, with the host where many servers share it."""
        return f"{self.key}@{urlsplit(self.base_url).hostname}" if self.key == "custom" else self.key

    def __repr__(self) -> str:
        return f"Provider(key={self.key!r}, base_url={self.base_url!r}, model={self.model!r}, source={self.source!r})"
