"""`http_request`: one request to a public address, redirects followed, with caps on size and time (spec 8.4).

Names are resolved here, every address is checked, and the connection goes to the address that was checked: a name that
resolves to something else a moment later reaches nothing. Every redirect is a new request in this sense.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphflow.excerpts import excerpt_of
from graphflow.http_headers import can_be_sent
from graphflow.models.remote.bodies import EncodingRefused, decoded
from graphflow.tools.builtin.addresses import (
    RequestRefused,
    Resolve,
    open_client,
    parsed_url,
    pinned_request,
    public_address,
    resolve_by_system,
)
from graphflow.tools.builtin.charsets import codec_of
from graphflow.tools.port import Tool, tool
from graphflow.tools.result import ToolResult, failed

if TYPE_CHECKING:
    import httpx

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Methods that are safe by HTTP's definition: repeating one after a timeout changes nothing.
_ONLY_LOOKS = ("GET", "HEAD", "OPTIONS")
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 5
# Headers that decide which server is reached or how the body is framed; set by hand they would undo the checks here.
_OWN_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "proxy-authorization", "accept-encoding"}
)
_SECRET_HEADERS = ("authorization", "cookie")


@dataclass(frozen=True, kw_only=True)
class HttpPolicy:
    """Where `http_request` may go."""

    hosts: tuple[str, ...] | None = None
    """Exact names; `.example.com` also allows its subdomains. None: any public host."""
    methods: tuple[str, ...] = METHODS
    private_hosts: tuple[str, ...] = ()
    """Hosts that may have private addresses; no other may."""
    max_bytes: int = 1_048_576
    timeout_s: float = 30.0


def http_tool(policy: HttpPolicy | None = None, resolve: Resolve = resolve_by_system) -> Tool:
    """The tool under a policy."""
    policy = policy or HttpPolicy()

    @tool(
        name="http_request",
        capabilities=("net",),
        effects="write",
        # Later than the tool's own limit, which gives the better error; this one only catches what it misses.
        timeout_s=policy.timeout_s + 5,
        parameters={
            "type": "object",
            "properties": {
                "url": {"type": "string", "description": "http or https."},
                "method": {"type": "string", "enum": list(policy.methods), "default": policy.methods[0]},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                "body": {"type": "string", "description": "Sent as it is."},
            },
            "required": ["url"],
            "additionalProperties": False,
        },
    )
    async def http_request(
        url: str, method: str = policy.methods[0], headers: dict[str, str] | None = None, body: str | None = None
    ) -> dict[str, Any] | ToolResult:
        """Send an HTTP request to a public address; gives the status and the text of the answer."""
        import httpx

        given = {name: value.strip() for name, value in (headers or {}).items()}
        if (bad := next((name for name, value in given.items() if not can_be_sent(name, value)), None)) is not None:
            return failed(
                "INVALID_PARAM", f"header {excerpt_of(bad, 200)} can't be sent", "Names and values are printable ASCII."
            )
        try:
            content = None if body is None else body.encode()
        except UnicodeEncodeError:
            return failed("INVALID_PARAM", "the body has half of a surrogate pair", "Send the whole character.")
        sender = _Sender(policy, resolve)
        try:
            # One limit over all redirects: httpx's own timeout counts from each read anew.
            async with asyncio.timeout(policy.timeout_s):
                return await sender.send(method, url, given, content)
        except RequestRefused as refused:
            return failed("ACCESS_DENIED", str(refused), "Use another address.")
        except (TimeoutError, httpx.TransportError) as error:
            if sender.may_have_acted:
                raise  # whether it did its work is unknown
            if not isinstance(error, TimeoutError | httpx.TimeoutException):
                return failed(
                    "EXECUTION_ERROR", f"{excerpt_of(url, 200)} gave no answer: {error}", "Try another address."
                )
            return failed(
                "TIMEOUT",
                f"{excerpt_of(url, 200)} gave no whole answer in {policy.timeout_s:g} s",
                "Try another address.",
            )

    return http_request


class _Sender:
    """One call: a request and its redirects."""

    def __init__(self, policy: HttpPolicy, resolve: Resolve) -> None:
        self._policy, self._resolve = policy, resolve
        self._came_from = ""
        self.may_have_acted = False
        """Whether a request that changes something may have reached a server."""

    async def send(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> dict[str, Any] | ToolResult:
        import httpx

        given = {name: value for name, value in headers.items() if name.lower() not in _OWN_HEADERS}
        target = parsed_url(url)
        async with await open_client(self._policy.timeout_s) as client:
            # Redirects are followed here, not by httpx: each target is checked like the first one.
            for _ in range(_MAX_REDIRECTS + 1):
                request = await self._request(client, method, target, given, body)
                acted, self.may_have_acted = self.may_have_acted, self.may_have_acted or method not in _ONLY_LOOKS
                try:
                    response = await client.send(request, stream=True)
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    self.may_have_acted = acted
                    raise
                try:
                    if response.status_code not in _REDIRECTS or "location" not in response.headers:
                        return await self._answer(target, response)
                    following = parsed_url(str(target.join(response.headers["location"])))
                finally:
                    await response.aclose()
                # Credentials were meant for the first host; as browsers do, they are not handed on to another.
                if _origin(following) != _origin(target):
                    given = {name: value for name, value in given.items() if name.lower() not in _SECRET_HEADERS}
                # As browsers do (RFC 9110): only 307 and 308 repeat the method and the body.
                if response.status_code == 303 or (response.status_code in (301, 302) and method == "POST"):
                    method, body = ("HEAD" if method == "HEAD" else "GET"), None
                self._came_from = f" ({target} redirected there)"
                target = following
        raise RequestRefused(f"more than {_MAX_REDIRECTS} redirects; the last led to {excerpt_of(str(target), 200)}")

    async def _request(
        self, client: httpx.AsyncClient, method: str, url: httpx.URL, headers: dict[str, str], body: bytes | None
    ) -> httpx.Request:
        """The request to the one address that was checked; name and certificate stay the host's."""
        if method not in self._policy.methods:
            raise RequestRefused(f"method {method!r} is not allowed; methods are {', '.join(self._policy.methods)}")
        address = await self._address(url)
        # Uncompressed, so that a small answer can't unpack to more than `max_bytes`.
        return pinned_request(client, method, url, address, {**headers, "Accept-Encoding": "identity"}, body)

    async def _address(self, url: httpx.URL) -> str:
        # A trailing dot names the same host, and must not get around the list.
        host = url.host.rstrip(".").lower()
        if self._policy.hosts is not None and not any(_names(allowed, host) for allowed in self._policy.hosts):
            raise RequestRefused(
                f"host {host!r} is not allowed; hosts are {', '.join(self._policy.hosts) or 'none'}{self._came_from}"
            )
        return await public_address(url, self._policy.private_hosts, self._resolve, came_from=self._came_from)

    async def _answer(self, url: httpx.URL, response: httpx.Response) -> dict[str, Any] | ToolResult:
        body, cut = bytearray(), False
        encoding = response.headers.get("content-encoding", "identity")
        try:
            async for chunk in decoded(response.aiter_raw(65_536), encoding):
                body += chunk
                # Stops reading: an endless answer must end at the limit, not at the timeout.
                if cut := len(body) > self._policy.max_bytes:
                    del body[self._policy.max_bytes :]
                    break
        except EncodingRefused as error:
            text = f"the server answered {response.status_code}, and the answer can't be read: {error}"
            return failed("EXECUTION_ERROR", text, "Try another address.")
        content_type = response.headers.get("content-type", "")
        data = {
            # A password in the URL must not come back to the model.
            "url": str(url.copy_with(userinfo=b"")),
            "status": response.status_code,
            "contentType": content_type,
            "body": body.decode(codec_of(content_type), "replace"),
        }
        if not cut:
            return data
        text = f"Only the first {self._policy.max_bytes} bytes of the answer were read."
        return ToolResult(status="partial", data={**data, "truncated": True}, text=text)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _names(allowed: str, host: str) -> bool:
    allowed = allowed.lower()
    return host == allowed.removeprefix(".") or (allowed.startswith(".") and host.endswith(allowed))
