"""How a provider is reached: through which proxy, whose certificates are trusted, and with which certificate of ours."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from graphflow.masking import mask_text
from graphflow.models.profiles import Tls
from graphflow.models.remote.api_keys import keys_of
from graphflow.models.remote.failures import Masker

if TYPE_CHECKING:
    import ssl

    from graphflow.models.provider import Provider

DIRECT = "none"
"""As the proxy: none, whatever the environment says."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SCHEMES = ("http", "https", "socks5", "socks5h")


@dataclass(frozen=True)
class ConnectionWay:
    """What is not as usual on the way to a provider."""

    proxy: str | None = None
    """URL of the proxy, or `none`; `None`: as the environment says (`HTTPS_PROXY`, `NO_PROXY`, …)."""
    tls: Tls | None = None
    key_password: str | None = None

    @property
    def usual(self) -> bool:
        return self.proxy is None and self.tls is None

    def secrets(self) -> Iterator[str]:
        """The proxy's credentials, as they are written and as they are sent."""
        if self.proxy is not None and self.proxy != DIRECT:
            user, colon, password = urlsplit(self.proxy).netloc.rpartition("@")[0].partition(":")
            if colon:
                yield from (f"{user}:{password}", password, unquote(password))

    def context(self) -> ssl.SSLContext:
        """What checks the provider's certificate and shows ours.

        Raises:
            ValueError: a file is missing or can't be used; the text names it.
        """
        tls = self.tls
        if tls is None:
            return usual_certificates()
        context = _trusting(tls.ca_file)
        if tls.cert_file is not None:
            self._show(context, tls.cert_file, tls.key_file)
        elif tls.key_file is not None:
            raise ValueError("tls has a key_file and no cert_file; name the certificate that the key belongs to")
        return context

    def proxy_context(self) -> ssl.SSLContext:
        """What checks the certificate of a proxy, which is not shown ours."""
        return _trusting(None if self.tls is None else self.tls.ca_file)

    def _show(self, context: ssl.SSLContext, cert_file: str, key_file: str | None) -> None:
        import ssl

        _read("cert_file", cert_file)
        key = _read("key_file", key_file) if key_file else Path(cert_file).read_bytes()
        try:
            # Always given: without one OpenSSL would ask for it on the terminal.
            context.load_cert_chain(cert_file, key_file, lambda: self.key_password or "")
        except (ssl.SSLError, ValueError) as error:
            place = f"key_file {key_file!r}" if key_file else f"cert_file {cert_file!r}"
            if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
                raise ValueError(
                    f"tls: the key in {place} does not belong to the certificate in {cert_file!r}"
                ) from error
            if b"ENCRYPTED" in key:
                how = "is wrong" if self.key_password else "is not set"
                name = self.tls and self.tls.key_password_env
                hint = (
                    f"the password in {name} {how}" if name else "name the variable of its password as key_password_env"
                )
                raise ValueError(f"tls: the key in {place} is encrypted, and {hint}") from error
            what = "a certificate and its key" if not key_file else "a certificate and a key"
            raise ValueError(f"tls: cert_file {cert_file!r} and its key are not {what} in PEM form: {error}") from error

    def misfit(self) -> str | None:
        """What is wrong with the proxy or the files, or None."""
        if self.proxy is not None and self.proxy != DIRECT and (why := _proxy_misfit(self.proxy)) is not None:
            return why
        try:
            if self.tls is not None:
                self.context()
        except ValueError as error:
            return str(error)
        return None


def way_to(provider: Provider) -> ConnectionWay:
    """The way to a provider."""
    return ConnectionWay(provider.proxy, provider.profile.tls, provider.tls_password)


def way_misfit(provider: Provider) -> str | None:
    """What is wrong with the proxy, the certificates or the key function of a provider, or None."""
    profile = provider.profile
    if profile.protocol == "library":
        names = [name for name in ("proxy", "tls", "api_key_function") if getattr(profile, name) is not None]
        return f"the library takes no {' and no '.join(names)}; set HTTPS_PROXY and SSL_CERT_FILE, or use a native protocol"
    if missing := _VARIABLE.findall(provider.proxy or ""):
        return f"its proxy needs {' and '.join(dict.fromkeys(missing))}; set it"
    if (wrong := way_to(provider).misfit()) is not None:
        return wrong
    try:
        keys_of(provider, Masker())
    except ValueError as error:
        return f"api_key_function: {error}"
    return None


def _proxy_misfit(proxy: str) -> str | None:
    rule = f"must be {'://, '.join(_SCHEMES)}:// and HOST:PORT, or {DIRECT!r}"
    try:
        parts = urlsplit(proxy)
        fits = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        # Of what is no URL nobody knows where its password stands.
        shown = "***" if "@" in proxy else repr(mask_text(proxy))
        return f"proxy is {shown}; it {rule}"
    if parts.scheme.startswith("socks") and find_spec("socksio") is None:
        return "proxy is a SOCKS proxy, which needs another package: pip install 'httpx[socks]'"
    return None


def _trusting(ca_file: str | None) -> ssl.SSLContext:
    import ssl

    import httpx

    if ca_file is None:
        return httpx.create_ssl_context()
    _read("ca_file", ca_file)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"tls: ca_file {ca_file!r} has no certificates in PEM form: {error}") from error


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"tls: {name} {path!r} can't be read: {error.strerror or error}") from error


@functools.cache
def usual_certificates() -> ssl.SSLContext:
    """Loaded once for all pools: reading the certificates takes some 20 ms."""
    import httpx

    return httpx.create_ssl_context()
