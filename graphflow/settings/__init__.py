"""Every setting: its name, unit, default, environment names and meaning, in one table (`table.py`).

Sources, the first that says something wins: flags, environment, `.env`, `graphflow.local.toml`,
`graphflow.toml`. Setting `llm.timeout_s` is `timeout_s` under `[settings.llm]` and
`GRAPHFLOW_LLM_TIMEOUT_S` in the environment; some have a given name besides (`LLM_TIMEOUT`).

Plain dataclasses, not pydantic-settings: answering and resuming must load no pydantic (rule E20), and
every command reads its settings. See docs/internals/decisions/0006-settings-without-pydantic.md.
"""

from graphflow.settings.loading import load_settings
from graphflow.settings.page import settings_markdown
from graphflow.settings.table import Setting, Settings, all_settings

__all__ = ["Setting", "Settings", "all_settings", "load_settings", "settings_markdown"]
