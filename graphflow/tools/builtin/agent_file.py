"""`agent_file_create`: writes an agent file that the loader accepts, and nothing else (spec 8.1).

What an agent file is, and where it may lie, is known above this layer: an `AgentFiles` does it. A person approves each call
first: a model that wrote agent files unseen could give an agent tools that it does not have itself, and no approval.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from graphflow.errors import DefinitionError
from graphflow.excerpts import excerpt_of
from graphflow.tools.context import ToolContext
from graphflow.tools.port import Tool, tool
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.workspace import FileRefused

# The id becomes a file name, so no dots and no slashes.
AGENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_PROMPTS = (
    "systemPrompt", "planSystemPrompt", "executeSystemPrompt", "summarySystemPrompt", "thinkingSystemPrompt",
    "actionSystemPrompt", "observationSystemPrompt", "finalSystemPrompt",
)  # fmt: skip
_TEXTS = ("name", "icon", "description", "providerKey", "model", "compute", "output", "toolPolicy", "verify")
_LISTS = ("tools", "keywords")


class AgentFiles(Protocol):
    """The folder of agent files."""

    @property
    def blocks(self) -> Mapping[str, str]:
        """Mode → the key of its block."""

    def write(self, key: str, config: Mapping[str, Any], ctx: ToolContext) -> tuple[bool, str]:
        """Checks and writes the file of an agent: whether it is a new one, and its path for people.

        Args:
            ctx: of the call: an agent grants no more than it has.

        Raises:
            DefinitionError: the loader refuses it; nothing was written.
            FileRefused: the file can't be written, or grants too much.
            OSError: the file can't be written.
        """

    def replaced(self, key: str, agent_key: str | None) -> str | None:
        """The path for people of the file that a write would replace; None without one, or if this agent made it as it is."""


def agent_file_tool(files: AgentFiles) -> Tool:
    """The tool over a folder of agent files."""
    blocks = files.blocks

    def warning(arguments: Mapping[str, Any], agent_key: str | None) -> str | None:
        key = arguments.get("agentId")
        if not isinstance(key, str) or not AGENT_ID.fullmatch(key):
            return None  # nothing is written then
        file = files.replaced(key, agent_key)
        return None if file is None else f"It replaces {file}, a file that this agent did not make."

    @tool(
        name="agent_file_create",
        effects="write",
        idempotent=True,
        capabilities=("agents:write",),
        parameters=_parameters(blocks),
        approval_hint="It gives an agent its prompt, its tools and its approval mode.",
        approval_warning=warning,
        templates=False,
    )
    def agent_file_create(agentId: str, ctx: ToolContext, **given: Any) -> dict[str, Any] | ToolResult:  # noqa: N803 - the wire name
        """Create or replace an agent's file. The prompts of its mode may stand beside the other fields, in the block of
        the mode, or in `config`, which is a whole agent file.
        """
        if not AGENT_ID.fullmatch(agentId):
            message = f"agentId: {excerpt_of(agentId)} is not an agent id"
            return failed("INVALID_PARAM", message, "Use 1 to 64 letters, digits, _ and -.")
        config = _config(given, blocks)
        try:
            created, file = files.write(agentId, config, ctx)
        except DefinitionError as error:
            issues = "; ".join(f"{issue.pointer or '/'}: {issue.message}" for issue in error.errors[:5])
            return failed("INVALID_PARAM", f"this is not a valid agent: {issues}", "Fix it and call again.")
        except FileRefused as refused:
            return failed(refused.code, f"the file can't be written: {refused}")
        except OSError as error:
            return failed("EXECUTION_ERROR", f"the file can't be written: {error.strerror or error}")
        return {
            "ok": True,
            "created": created,
            "updated": not created,
            "agentId": agentId,
            "file": file,
            "config": config,
        }

    return agent_file_create


def _parameters(blocks: Mapping[str, str]) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "agentId": {"type": "string", "description": "Key of the agent: 1 to 64 letters, digits, _ and -."},
        "mode": {"type": "string", "enum": list(blocks)},
        **{name: {"type": "string"} for name in (*_TEXTS, *_PROMPTS)},
        **{name: {"type": "array", "items": {"type": "string"}} for name in _LISTS},
        "maxRounds": {"type": "integer"},
        **{block: {"type": "object"} for block in blocks.values()},
        "config": {"type": "object", "description": "A whole agent file; other fields win over it."},
    }
    return {"type": "object", "properties": properties, "required": ["agentId"], "additionalProperties": False}


def _config(given: Mapping[str, Any], blocks: Mapping[str, str]) -> dict[str, Any]:
    """The content of the agent file for these arguments."""
    # Models fill in unused arguments with null or an empty string.
    known = {name: value for name, value in given.items() if value is not None and value != ""}
    # A copy: the arguments stand in the thread's record.
    config = {**known.pop("config", {})}
    inside = {name: known.pop(name) for name in (*_PROMPTS, "maxRounds") if name in known}
    # Prompts belong into the mode's block, wherever the model wrote them; its own arguments win over `config`.
    inside = {**{name: config.pop(name) for name in _PROMPTS if name in config}, **inside}
    config |= known
    # A graph has no mode and no block.
    if "nodes" in config:
        return config
    config.setdefault("mode", "REACT" if config.get("tools") else "PLAIN")
    config.setdefault("providerKey", "auto")
    # The spellings that the loader accepts.
    block = blocks.get(str(config["mode"]).strip().upper().replace("-", "_"))
    if block is not None and inside:
        written = config.get(block)
        config[block] = {**(written if isinstance(written, Mapping) else {}), **inside}
    return config
