"""The sockets that a server listens on, opened before anything else, so that an address that can't be had is one clear line."""

from __future__ import annotations

import errno
import socket

from graphflow.errors import GraphflowError

BACKLOG = 2048
_REASONS = {
    errno.EADDRINUSE: "another process listens there; end it, or choose another port (`--port 0` picks a free one)",
    errno.EACCES: "this user may not listen on that port; choose one above 1023",
    errno.EPERM: "this user may not listen on that port; choose one above 1023",
    **dict.fromkeys(
        (errno.EADDRNOTAVAIL, errno.EINVAL),
        "it is no address of this machine; 127.0.0.1 is, and 0.0.0.0 stands for all of them",
    ),
    errno.EAFNOSUPPORT: "this machine has no such network; 127.0.0.1 always works",
}


def listen_on(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of the host; port 0 takes a free one.

    Raises:
        GraphflowError: `invalid_input` when the host is unknown or the address can't be had.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise _refused(
            host, port, "the name is unknown; 127.0.0.1 is this machine, and 0.0.0.0 stands for all its addresses"
        ) from None
    made: list[socket.socket] = []
    refusal: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(found):
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:  # built without IPv6
            refusal = error
            continue
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # its IPv4 twin is an address of its own
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # The addresses of `localhost` share the port that the first of them got.
            at = made[0].getsockname()[1] if made else port
            sock.bind((address[0], at, *address[2:]))
            sock.listen(BACKLOG)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            refusal = error
            # `localhost` may name an address that is switched off; a taken port must not be served by half.
            if error.errno == errno.EADDRNOTAVAIL:
                continue
            break
        made.append(sock)
    if not made or (refusal is not None and refusal.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)):
        for sock in made:
            sock.close()
        assert refusal is not None
        raise _refused(host, port, _REASONS.get(refusal.errno or 0, str(refusal.strerror)))
    return made


def plain_host(host: str) -> str:
    """The host without the brackets that an IPv6 address has in a URL."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _refused(host: str, port: int, why: str) -> GraphflowError:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return GraphflowError(f"can't listen on {where}: {why}", code="invalid_input", host=host, port=port)
