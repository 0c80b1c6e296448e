"""`http_request` against a real server: only public addresses, checked again on every redirect, within caps (spec 8.4)."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest

from graphflow.errors import NodeFailed
from graphflow.tools.builtin import addresses
from graphflow.tools.builtin.http import HttpPolicy, http_tool
from graphflow.tools.port import ToolResult
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import ToolRunner
from tests.tools.fakes import FakeContext, call

HERE = "127.0.0.1"
Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers by path; keeps the requests that reached it."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.port = 0
        self.silent = asyncio.Event()
        self.content_type, self.body = "text/plain; charset=utf-8", "grüezi".encode()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(head)
        path = head.split()[1]
        if path == "/silent":
            await self.silent.wait()
        elif path == "/cut":
            pass
        elif path.startswith("/to?"):
            target = path.removeprefix("/to?")
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            body = b"x" * 5_000 if path == "/long" else self.body
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {self.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode())
            writer.write(body)
        await writer.drain()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_server(made.answer, HERE, 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    made.silent.set()
    listening.close()
    await listening.wait_closed()


async def resolve(host: str, port: int) -> Sequence[str]:
    """Every name leads here; one changes its mind after the first look, as an attacker's would."""
    return [host] if host[0].isdigit() or ":" in host else ["169.254.169.254"] if host == "metadata.test" else [HERE]


async def ask(url: str, policy: HttpPolicy | None = None, **arguments: Any) -> ToolResult:
    allowed = policy or HttpPolicy(private_hosts=(HERE, "good.test"))
    runner = ToolRunner(ToolRegistry([http_tool(allowed, resolve)], builtins=()))
    return await runner.run(call("http_request", {"url": url, **arguments}), FakeContext())


def code_of(result: ToolResult) -> str:
    assert result.error is not None
    return result.error.code


async def test_the_certificates_are_read_once_and_not_on_the_event_loop(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    """It takes some 20 ms, in which no other run would go on."""
    made, read_by = httpx.create_ssl_context, list[int]()

    def noted(**options: Any) -> ssl.SSLContext:
        read_by.append(threading.get_ident())
        return made(**options)

    monkeypatch.setattr(httpx, "create_ssl_context", noted)
    addresses._certificates.cache_clear()
    for _ in range(2):
        assert (await ask(f"http://good.test:{server.port}/a")).error is None
    assert len(read_by) == 1 and read_by[0] != threading.get_ident()


async def test_a_request_gives_status_type_and_text(server: Server):
    result = await ask(f"http://good.test:{server.port}/a?b=1", headers={"X-Own": "1", "Host": "evil.test"})
    assert result.data == {
        "url": f"http://good.test:{server.port}/a?b=1",
        "status": 200,
        "contentType": "text/plain; charset=utf-8",
        "body": "grüezi",
    }
    head = server.requests[0].lower()
    assert f"host: good.test:{server.port}" in head
    assert "x-own: 1" in head
    assert "evil.test" not in head


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "[::1]", "[::ffff:127.0.0.1]", "[fe80::1]", "[fc00::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "224.0.0.1",
        "metadata.test", "somewhere.test",
    ],
)  # fmt: skip
async def test_no_address_inside_is_reached_however_it_is_written(server: Server, host: str):
    result = await ask(f"http://{host}:{server.port}/", HttpPolicy())
    assert code_of(result) == "ACCESS_DENIED"
    assert "not a public address" in result.text
    assert server.requests == []


@pytest.mark.parametrize("target", ["http://metadata.test/latest", "http://127.0.0.2/", "//[::1]/"])
async def test_every_redirect_is_checked_anew(server: Server, target: str):
    result = await ask(f"http://good.test:{server.port}/to?{target}")
    assert code_of(result) == "ACCESS_DENIED"
    assert "redirected there" in result.text
    assert len(server.requests) == 1


async def test_redirects_are_followed_and_secrets_stay_with_the_origin_they_were_given_for(server: Server):
    policy = HttpPolicy(private_hosts=(HERE, "good.test"))
    url = f"http://good.test:{server.port}/to?http://{HERE}:{server.port}/there"
    result = await ask(url, policy, headers={"Authorization": "Bearer x", "X-Own": "1"})
    assert result.data["url"] == f"http://{HERE}:{server.port}/there"
    assert "authorization" in server.requests[0].lower()
    assert "authorization" not in server.requests[1].lower()
    assert "x-own" in server.requests[1].lower()


async def test_a_circle_of_redirects_ends(server: Server):
    result = await ask(f"http://good.test:{server.port}/to?/to?/to?/to?/to?/to?/to?/end")
    assert code_of(result) == "ACCESS_DENIED"
    assert "redirects" in result.text


async def test_a_long_answer_is_cut_and_says_so(server: Server):
    result = await ask(
        f"http://good.test:{server.port}/long", HttpPolicy(private_hosts=("good.test",), max_bytes=1_000)
    )
    assert (result.status, len(result.data["body"]), result.data["truncated"]) == ("partial", 1_000, True)


@pytest.mark.parametrize(
    ("charset", "codec", "text"),
    [
        ("utf-8", "utf-8", "grüezi 东京"), ("UTF8", "utf-8", "grüezi 东京"), ("utf-8-sig", "utf-8-sig", "grüezi 东京"),
        ("utf-16", "utf-16", "grüezi 东京"), ("utf-16le", "utf-16-le", "grüezi 东京"), ("UTF-16BE", "utf-16-be", "grüezi 东京"),
        ("utf-32", "utf-32", "grüezi 东京"), ("us-ascii", "ascii", "hello"), ("ISO-8859-1", "latin-1", "grüezi"),
        ("latin1", "latin-1", "grüezi"), ('"iso-8859-15"', "iso8859-15", "5 €"), ("iso88592", "iso8859-2", "łódź"),
        ("windows-1252", "cp1252", "5 €"), ("x-cp1251", "cp1251", "привет"), ("KOI8-R", "koi8-r", "привет"),
        ("koi8-u", "koi8-u", "привіт"), ("gb2312", "gb2312", "北京"), ("GBK", "gbk", "北京"), ("gb18030", "gb18030", "北京"),
        ("big5", "big5", "臺北"), ("Shift_JIS", "shift_jis", "東京"), ("x-sjis", "shift_jis", "東京"),
        ("windows-31j", "cp932", "東京"), ("euc-jp", "euc_jp", "東京"), ("iso-2022-jp", "iso2022_jp", "東京"),
        ("euc-kr", "euc_kr", "서울"), ("ks_c_5601-1987", "euc_kr", "서울"), ("windows-874", "cp874", "กรุงเทพ"),
        ("macintosh", "mac_roman", "grüezi"),
    ],
)  # fmt: skip
async def test_a_body_is_read_in_the_charset_of_its_page(server: Server, charset: str, codec: str, text: str):
    server.content_type, server.body = f"text/html; Charset={charset} ; x=1", text.encode(codec)
    assert (await ask(f"http://good.test:{server.port}/")).data["body"] == text


@pytest.mark.parametrize(
    "parameter",
    [
        "", "charset", "charset=", "charset=nonsense", "charset=" + "x" * 10_000, "charset=../utf_16", "charset=encodings.idna",
        *(f"charset={name}" for name in (
            "unicode_escape", "raw-unicode-escape", "punycode", "idna", "undefined", "utf-7", "hz", "hz-gb-2312", "iso-2022-kr",
            "zlib_codec", "bz2", "base64", "hex", "rot13", "quopri", "uu", "charmap", "cp037", "mbcs", "oem", "palmos",
        )),
        "charset*=punycode''utf-16", "charset*=unicode_escape''utf%2D16",
    ],
    ids=lambda parameter: parameter[:30],
)  # fmt: skip
async def test_a_page_can_choose_no_codec_that_no_page_is_written_in(server: Server, parameter: str):
    """Nor one that turns its text into another, or costs the square of its length, as `punycode` does."""
    server.content_type = f"text/html; {parameter}"
    server.body = rb"\u0041 +AEE- ~{<:Ky~} eJw " + "ü".encode() + b"\xff" + b"a" * 900_000
    assert (await ask(f"http://good.test:{server.port}/")).data["body"] == server.body.decode("utf-8", "replace")


@pytest.mark.parametrize(
    "charset", ["ascii", "utf-16", "utf-32", "gb18030", "shift_jis", "iso-2022-jp", "windows-1252"]
)
async def test_bytes_that_are_not_of_the_charset_are_replaced(server: Server, charset: str):
    server.content_type, server.body = f"text/html; charset={charset}", b"\x81\xff\x1b\xd8\x00\xdc\x80"
    assert "\ufffd" in (await ask(f"http://good.test:{server.port}/")).data["body"]


async def test_a_reading_request_without_an_answer_is_a_result_and_a_writing_one_is_of_unknown_outcome(server: Server):
    policy = HttpPolicy(private_hosts=("good.test",), timeout_s=0.05)
    assert code_of(await ask(f"http://good.test:{server.port}/silent", policy)) == "TIMEOUT"
    assert code_of(await ask(f"http://good.test:{server.port}/cut")) == "EXECUTION_ERROR"
    with pytest.raises(NodeFailed):
        await ask(f"http://good.test:{server.port}/silent", policy, method="POST", body="x")


@pytest.mark.parametrize(
    ("url", "policy", "word"),
    [
        ("ftp://good.test/", HttpPolicy(), "http or https"),
        ("file:///etc/passwd", HttpPolicy(), "http or https"),
        ("http://", HttpPolicy(), "http or https"),
        ("nothing", HttpPolicy(), "http or https"),
        ("http://other.test/", HttpPolicy(hosts=("good.test", ".fine.test")), "is not allowed"),
        ("http://notfine.test/", HttpPolicy(hosts=(".fine.test",)), "is not allowed"),
    ],
)
async def test_what_the_policy_does_not_let_out_is_refused_with_the_rule(url: str, policy: HttpPolicy, word: str):
    result = await ask(url, policy)
    assert code_of(result) == "ACCESS_DENIED"
    assert word in result.text


async def test_a_host_list_lets_its_hosts_and_those_below_a_dot_through(server: Server):
    policy = HttpPolicy(hosts=(".good.test",), private_hosts=("good.test", "a.good.test"))
    for host in ("good.test", "a.good.test"):
        assert (await ask(f"http://{host}:{server.port}/", policy)).ok


async def test_only_allowed_methods_are_offered():
    result = await ask("http://good.test/", HttpPolicy(methods=("GET",)), method="DELETE")
    assert code_of(result) == "INVALID_PARAM"
