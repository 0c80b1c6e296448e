"""The table as docs/reference/settings.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from graphflow.settings.table import MCP_FIELDS, PRICE_FIELDS, PROVIDER_FIELDS, SECTIONS, Kinds, Setting, all_settings

_PAGE_HEAD = """# Settings

Made from `graphflow/settings/table.py` by `make docs`; a test holds the two equal.

The first of these that says something wins: a flag of the command, the environment, `.env`,
`graphflow.local.toml` (ignored by git), `graphflow.toml`. The files lie in the folder where the command runs;
relative paths start there. An empty variable counts as not set. Lists are written `["a", "b"]` in a file and
`a,b` in the environment.

```toml
[settings.llm]
timeout_s = 60

[tools]
modules = ["my_tools"]

[providers.mine]
base_url = "https://llm.example.org/v1"
api_key_env = "MINE_API_KEY"
model = "my-model"
```

An unknown key in a file and a value of the wrong type are errors that name the place, the value and the rule.
*Reserved* settings are checked, but nothing reads them yet.
"""

_PAGE_TAIL = """## Providers

Each provider also reads `<KEY>_API_KEY`, `<KEY>_BASE_URL` and `<KEY>_MODEL` (`OPENAI_API_KEY`, `DEEPSEEK_API_KEY`,
`GLM_API_KEY`, …). `[providers.KEY]` adds a provider or changes a known one; its fields:
"""


_PRICES = """## Prices

`[prices."PROVIDER/MODEL"]` tells what a model costs, in USD per million tokens; `"PROVIDER/*"` is for all other models
of that provider. `prompt` and `completion` are needed. None is built in: a price that is not written here is not known,
and never counts as 0. See [models](../how-to/models.md). The fields: """


def settings_markdown() -> str:
    """The text of docs/reference/settings.md."""
    parts = [_PAGE_HEAD]
    for section in SECTIONS:
        rows = [row for row in all_settings() if row.name.startswith(section + ".")]
        parts.append(f"## {section}\n\n| setting | environment | default | meaning |\n| --- | --- | --- | --- |")
        parts += [_page_row(row) for row in rows]
        parts.append("")
    fields_ = _fields(PROVIDER_FIELDS)
    servers = _fields(MCP_FIELDS)
    prices = _fields(PRICE_FIELDS)
    parts.append(
        f"{_PAGE_TAIL}{fields_}.\n\n{_PRICES}{prices}.\n\n## MCP servers\n\nReserved. `[mcp.NAME]` has the fields {servers}.\n"
    )
    return "\n".join(parts)


def _fields(known: Mapping[str, Kinds]) -> str:
    return ", ".join(f"`{name}` ({' or '.join(kind.__name__ for kind in kinds)})" for name, kinds in known.items())


def _page_row(row: Setting) -> str:
    names = ", ".join(f"`{name}`" for name in row.env_names)
    unit = f" {row.unit}" if row.unit and row.default is not None else ""
    notes = " *Secret.*" * row.secret + " *Reserved.*" * row.reserved
    kind = next((k for k in (row.kind, *get_args(row.kind)) if get_origin(k) is Literal), None)
    allowed = " One of " + ", ".join(f"`{word}`" for word in get_args(kind)) + "." if kind else ""
    return f"| `{row.name}` | {names} | {_shown(row.default)}{unit} | {row.meaning}{allowed}{notes} |"


def _shown(default: Any) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float):
        return f"`{default:g}`"
    return f"`{default.as_posix() if isinstance(default, Path) else default}`"
