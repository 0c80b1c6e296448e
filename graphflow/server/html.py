"""HTML pages that the server makes itself: escaped by construction, with no script and nothing from another host."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from html import escape

from starlette.responses import HTMLResponse

STYLE = """\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.5 ui-monospace, monospace; }
pre { padding: .75rem; overflow-x: auto; border: 1px solid #8886; border-radius: .3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #8884; }
td { overflow-wrap: anywhere; }
section { border-top: 1px solid #8886; margin-top: 1.5rem; }
"""
HEADERS = {
    # Agent files and the `Host` header decide about parts of a page, so the browser is told to run and load nothing but the
    # one style sheet, whatever an escape may have missed.
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Markup(str):
    """HTML that is safe as it stands."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """An element; children that are no `Markup`, and attributes, are escaped."""
    given = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: str) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def prose(text: str) -> Markup:
    """A text in which `backticks` mark code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Markup:
    lines = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("table", tag("thead", tag("tr", *(tag("th", head) for head in heads))), tag("tbody", *lines))


def page(title: str, *children: str) -> HTMLResponse:
    """A whole page as a response."""
    head = tag(
        "head", Markup('<meta charset="utf-8">'), _VIEWPORT, tag("title", title), Markup(f"<style>{STYLE}</style>")
    )
    return HTMLResponse(
        Markup("<!doctype html>") + tag("html", head, tag("body", *children), lang="en"), headers=HEADERS
    )


_VIEWPORT = Markup('<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">')
