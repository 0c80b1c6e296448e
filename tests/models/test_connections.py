"""Private authorities, client certificates and proxies of a provider, over real TLS sockets and a real proxy."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from graphflow import Application
from graphflow.errors import GraphflowError
from graphflow.models.chat_model import ChatModel, complete
from graphflow.models.provider import ProviderNotReady
from graphflow.models.providers import open_model
from graphflow.settings import load_settings
from tests.models.certificates import Authority
from tests.models.proxy import http_proxy
from tests.models.raw_server import DONE, STOP, RawServer, delta, raw_server, stream
from tests.models.turns import ASK, hear

FINE = stream(delta(content="well"), STOP, DONE)
PASSWORD = "correct-horse-battery"
ENV = {"LLM_MAX_RETRIES": "0", "MINE_API_KEY": "key-0123456789"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def served_by(authority: Authority, *, asks: bool = False) -> ssl.SSLContext:
    """The server's side; `asks` for a certificate of the client."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("server"))
    if asks:
        context.load_verify_locations(authority.folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's own word about failed handshakes
    return context


def opened(server: RawServer | str, env: dict[str, str] | None = None, **table: Any) -> ChatModel:
    url = server if isinstance(server, str) else server.url
    return open_model("mine", "m", ENV | (env or {}), {"mine": {"base_url": url, **table}})


async def said(model: ChatModel) -> str:
    try:
        return (await complete(model, ASK)).message.text
    finally:
        await model.aclose()


# --- certificates --------------------------------------------------------------------------------


async def test_a_private_authority_is_trusted_where_the_table_names_it(authority: Authority) -> None:
    async with raw_server(FINE, tls=served_by(authority)) as server:
        assert await said(opened(server, tls={"ca_file": str(authority.folder / "ca.pem")})) == "well"
        model = opened(server)
        failure = (await hear(model)).failure
        await model.aclose()
    assert (failure.code, failure.retryable) == ("connection", False) and "certificate was refused" in failure.message


@pytest.mark.parametrize("password", [None, PASSWORD])
@pytest.mark.parametrize("in_one_file", [False, True])
async def test_a_client_certificate_is_shown_to_a_server_that_asks(
    authority: Authority, password: str | None, in_one_file: bool
) -> None:
    certificate, key = authority.issue("client", password)
    if in_one_file:
        certificate.write_bytes(certificate.read_bytes() + key.read_bytes())
    tls = {"ca_file": str(authority.folder / "ca.pem")}
    own = {"cert_file": str(certificate)} | ({} if in_one_file else {"key_file": str(key)})
    own |= {"key_password_env": "KEY_PASSWORD"} if password else {}
    async with raw_server(FINE, tls=served_by(authority, asks=True)) as server:
        assert await said(opened(server, {"KEY_PASSWORD": password or ""}, tls=tls | own)) == "well"
        model = opened(server, tls=tls)
        assert (await hear(model)).failure.code == "connection"
        await model.aclose()
        assert len(server.requests) == 1


@pytest.fixture
def files(authority: Authority) -> Path:
    for name, password in (("client", None), ("other", None), ("locked", PASSWORD)):
        authority.issue(name, password)
    (authority.folder / "text.pem").write_text("no certificate", encoding="utf-8")
    return authority.folder


WRONG: list[tuple[dict[str, str], str]] = [
    ({"ca_file": "missing.pem"}, "ca_file '{}/missing.pem' can't be read: No such file or directory"),
    ({"ca_file": "."}, "can't be read: Is a directory"),
    ({"ca_file": "text.pem"}, "ca_file '{}/text.pem' has no certificates in PEM form"),
    ({"cert_file": "missing.pem"}, "cert_file '{}/missing.pem' can't be read"),
    ({"cert_file": "client.pem", "key_file": "missing.key"}, "key_file '{}/missing.key' can't be read"),
    ({"cert_file": "client.pem"}, "are not a certificate and its key in PEM form"),
    ({"cert_file": "text.pem", "key_file": "client.key"}, "are not a certificate and a key in PEM form"),
    ({"cert_file": "client.pem", "key_file": "other.key"}, "the key in key_file '{}/other.key' does not belong to"),
    ({"cert_file": "locked.pem", "key_file": "locked.key"}, "is encrypted, and name the variable of its password"),
    (
        {"cert_file": "locked.pem", "key_file": "locked.key", "key_password_env": "UNSET"},
        "is encrypted, and the password in UNSET is not set",
    ),
    (
        {"cert_file": "locked.pem", "key_file": "locked.key", "key_password_env": "KEY_PASSWORD"},
        "is encrypted, and the password in KEY_PASSWORD is wrong",
    ),
    ({"key_file": "client.key"}, "has a key_file and no cert_file"),
]


def test_a_field_of_certificates_that_there_is_not_is_refused_when_its_provider_is_used() -> None:
    tables = {"mine": {"base_url": "https://127.0.0.1:9/v1", "model": "m", "tls": {"ca_fil": "ca.pem"}}}
    with pytest.raises(ProviderNotReady, match="unknown field `ca_fil`"):
        open_model("mine", env={}, profiles=tables)


@pytest.mark.parametrize(("tls", "wrong"), WRONG, ids=[str(n) for n in range(len(WRONG))])
async def test_a_file_that_can_not_be_used_is_refused_when_the_settings_are_loaded(
    files: Path, tls: dict[str, str], wrong: str
) -> None:
    rows = "\n".join(f'{name} = "{value}"' for name, value in tls.items())
    text = f'[providers.mine]\nbase_url = "https://127.0.0.1:9/v1"\nmodel = "m"\n[providers.mine.tls]\n{rows}\n'
    (files / "graphflow.toml").write_text(text, encoding="utf-8")
    settings = load_settings(files, environ={"KEY_PASSWORD": "a-wrong-password"})
    with pytest.raises(GraphflowError) as caught:
        Application(settings)
    assert "mine" in caught.value.message and wrong.replace("{}", str(files)) in caught.value.message
    assert "a-wrong-password" not in caught.value.message


# --- proxies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True])
async def test_requests_go_through_the_proxy_of_the_table(authority: Authority, secure: bool) -> None:
    tls = {"tls": {"ca_file": str(authority.folder / "ca.pem")}} if secure else {}
    async with (
        http_proxy("u:secret-word") as proxy,
        raw_server(FINE, tls=served_by(authority) if secure else None) as server,
    ):
        url = proxy.url.replace("://", "://u:${PROXY_WORD}@")
        assert await said(opened(server, {"PROXY_WORD": "secret-word"}, proxy=url, **tls)) == "well"
        assert [line.split(" ")[0] for line in proxy.asked] == ["CONNECT" if secure else "POST"]
        assert "proxy-authorization" not in server.requests[0].headers


@pytest.mark.parametrize("secure", [False, True])
async def test_a_proxy_that_refuses_is_named_and_its_password_is_not(authority: Authority, secure: bool) -> None:
    tls = {"tls": {"ca_file": str(authority.folder / "ca.pem")}} if secure else {}
    async with (
        http_proxy("u:another") as proxy,
        raw_server(FINE, tls=served_by(authority) if secure else None) as server,
    ):
        model = opened(server, proxy=proxy.url.replace("://", "://u:secret-word@"), **tls)
        failure = (await hear(model)).failure
        await model.aclose()
    assert not failure.retryable and "the proxy asks for credentials" in failure.message
    assert "secret-word" not in failure.message + repr(failure.detail) + repr(model)


async def test_a_proxy_that_is_not_there_is_part_of_the_hint() -> None:
    model = opened("http://127.0.0.1:9/v1", proxy="http://u:secret-word@127.0.0.1:9")
    failure = (await hear(model)).failure
    await model.aclose()
    assert "check the base URL and the proxy" in failure.message and "secret-word" not in failure.message


async def test_the_environments_proxy_counts_unless_the_table_says_otherwise(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = {"ca_file": str(authority.folder / "ca.pem")}
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with http_proxy() as proxy, raw_server(FINE, tls=served_by(authority)) as server:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert await said(opened(server, tls=tls)) == "well" and len(proxy.asked) == 1
        assert await said(opened(server, tls=tls, proxy="none")) == "well" and len(proxy.asked) == 1
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert await said(opened(server, tls=tls)) == "well" and len(proxy.asked) == 1
        assert await said(opened(server, tls=tls, proxy=proxy.url)) == "well" and len(proxy.asked) == 2


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("ftp://u:secret-word@h:1", "proxy is ***; it must be http://"),
        ("u:secret-word@h:1", "proxy is ***"),
        ("http://", "it must be http://"),
        ("http://h:99999", "it must be http://"),
        ("http://u:${UNSET_WORD}@h:1", "its proxy needs UNSET_WORD"),
        ("socks5://u:secret-word@h:1", "pip install 'httpx[socks]'"),
    ],
)
def test_a_proxy_that_can_not_be_one_is_refused_without_its_password(proxy: str, said: str) -> None:
    with pytest.raises(ProviderNotReady) as caught:
        opened("http://127.0.0.1:9/v1", proxy=proxy)
    assert said in caught.value.message and "secret-word" not in caught.value.message


@pytest.mark.parametrize("table", [{"proxy": "http://h:1"}, {"tls": {"ca_file": "x"}}, {"api_key_function": "m:f"}])
def test_what_the_library_can_not_do_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ProviderNotReady, match=f"the library takes no {next(iter(table))}"):
        opened("http://127.0.0.1:9/v1", protocol="library", **table)
