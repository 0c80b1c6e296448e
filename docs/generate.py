"""Writes the generated pages of docs/: `make docs`. A test compares each page with its source."""

from __future__ import annotations

from pathlib import Path

from docs.generators import agent_json, cli, errors, events, http_api, pictures, python_api
from graphflow.settings import settings_markdown

HERE = Path(__file__).parent
PAGES = {
    "reference/python.md": python_api.page,
    "reference/cli.md": cli.page,
    "http.md": http_api.page,
    "reference/agent-json.md": agent_json.page,
    "reference/events.md": events.page,
    "reference/errors.md": errors.page,
    "reference/settings.md": settings_markdown,
    **pictures.PICTURES,
}
"""File name → what writes its text; the pictures too."""


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
