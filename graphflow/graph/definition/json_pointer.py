"""JSON pointers (RFC 6901): how a place in a document is named."""

from __future__ import annotations


def escape(token: str) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    # `~` first: the other way round the `~` of `~1` would be escaped again.
    return token.replace("~", "~0").replace("/", "~1")


def unescape(token: str) -> str:
    """The name behind one token of a JSON pointer."""
    # `~0` last: `~01` stands for the name `~1`, and not for `/`.
    return token.replace("~1", "/").replace("~0", "~")


def pointer(*tokens: str | int) -> str:
    """The pointer that goes these steps from the root."""
    return "".join(f"/{escape(str(token))}" for token in tokens)
