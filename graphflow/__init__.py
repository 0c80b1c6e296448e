"""graphflow: an engine for agents as graphs.

Importing this package loads no HTTP client, no pydantic, no networkx and no CEL: each name below is fetched from
its module when it is first used (rule E20).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES: dict[str, str] = {
    "Graph": "graphflow.service.graph",
    "append": "graphflow.graph.builder",
    "merge": "graphflow.graph.builder",
    "union": "graphflow.graph.builder",
    "Bounds": "graphflow.bounds",
    "load_graph": "graphflow.service.library",
    "CompiledGraph": "graphflow.runtime.compiled_graph",
    "Context": "graphflow.graph.engine.context",
    "Goto": "graphflow.graph.engine.context",
    "part_bytes": "graphflow.graph.engine.context",
    "NodeRunOver": "graphflow.graph.engine.suspension",
    "Person": "graphflow.capabilities",
    "Thread": "graphflow.runtime.thread",
    "RunResult": "graphflow.runtime.result",
    "Interrupt": "graphflow.graph.core.machine",
    "MemoryCheckpointer": "graphflow.checkpoints.memory.checkpointer",
    "SqliteCheckpointer": "graphflow.checkpoints.sqlite.checkpointer",
    "PostgresCheckpointer": "graphflow.checkpoints.postgres.checkpointer",
    "function": "graphflow.nodes.decorators",
    "node": "graphflow.nodes.decorators",
    "tool": "graphflow.tools.port",
    "Tool": "graphflow.tools.port",
    "ToolResult": "graphflow.tools.result",
    "ToolRegistry": "graphflow.tools.registry",
    "ChatModel": "graphflow.models.chat_model",
    "ChatOptions": "graphflow.models.options",
    "SystemMessage": "graphflow.messages",
    "HumanMessage": "graphflow.messages",
    "AIMessage": "graphflow.messages",
    "ToolMessage": "graphflow.messages",
    "ToolCall": "graphflow.messages",
    "TextPart": "graphflow.content",
    "ImagePart": "graphflow.content",
    "AudioPart": "graphflow.content",
    "FilePart": "graphflow.content",
    "Issue": "graphflow.errors",
    "GraphflowError": "graphflow.errors",
    "DefinitionError": "graphflow.errors",
    "NodeFailed": "graphflow.errors",
    "ThreadBusy": "graphflow.errors",
    "ThreadWaiting": "graphflow.errors",
    "AnswerRefused": "graphflow.errors",
    "Application": "graphflow.service.application",
    "relax_collector": "graphflow.runtime.collector",
    "watch_loop": "graphflow.runtime.loop_watch",
}
"""Public name → the module that holds it."""

# All public names but `PostgresCheckpointer`: `from graphflow import *` fetches every name that stands here, and that
# one needs the extra `postgres`. It is imported by its name.
__all__ = [
    "AIMessage",
    "AnswerRefused",
    "Application",
    "AudioPart",
    "Bounds",
    "ChatModel",
    "ChatOptions",
    "CompiledGraph",
    "Context",
    "DefinitionError",
    "FilePart",
    "Goto",
    "Graph",
    "GraphflowError",
    "HumanMessage",
    "ImagePart",
    "Interrupt",
    "Issue",
    "MemoryCheckpointer",
    "NodeFailed",
    "NodeRunOver",
    "Person",
    "RunResult",
    "SqliteCheckpointer",
    "SystemMessage",
    "TextPart",
    "Thread",
    "ThreadBusy",
    "ThreadWaiting",
    "Tool",
    "ToolCall",
    "ToolMessage",
    "ToolRegistry",
    "ToolResult",
    "__version__",
    "append",
    "function",
    "load_graph",
    "merge",
    "node",
    "part_bytes",
    "relax_collector",
    "tool",
    "union",
    "watch_loop",
]

if TYPE_CHECKING:
    from graphflow.bounds import Bounds as Bounds
    from graphflow.capabilities import Person as Person
    from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer as MemoryCheckpointer
    from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer as PostgresCheckpointer
    from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer as SqliteCheckpointer
    from graphflow.content import AudioPart as AudioPart
    from graphflow.content import FilePart as FilePart
    from graphflow.content import ImagePart as ImagePart
    from graphflow.content import TextPart as TextPart
    from graphflow.errors import AnswerRefused as AnswerRefused
    from graphflow.errors import DefinitionError as DefinitionError
    from graphflow.errors import GraphflowError as GraphflowError
    from graphflow.errors import Issue as Issue
    from graphflow.errors import NodeFailed as NodeFailed
    from graphflow.errors import ThreadBusy as ThreadBusy
    from graphflow.errors import ThreadWaiting as ThreadWaiting
    from graphflow.graph.builder import append as append
    from graphflow.graph.builder import merge as merge
    from graphflow.graph.builder import union as union
    from graphflow.graph.core.machine import Interrupt as Interrupt
    from graphflow.graph.engine.context import Context as Context
    from graphflow.graph.engine.context import Goto as Goto
    from graphflow.graph.engine.context import part_bytes as part_bytes
    from graphflow.graph.engine.suspension import NodeRunOver as NodeRunOver
    from graphflow.messages import AIMessage as AIMessage
    from graphflow.messages import HumanMessage as HumanMessage
    from graphflow.messages import SystemMessage as SystemMessage
    from graphflow.messages import ToolCall as ToolCall
    from graphflow.messages import ToolMessage as ToolMessage
    from graphflow.models.chat_model import ChatModel as ChatModel
    from graphflow.models.options import ChatOptions as ChatOptions
    from graphflow.nodes.decorators import function as function
    from graphflow.nodes.decorators import node as node
    from graphflow.runtime.collector import relax_collector as relax_collector
    from graphflow.runtime.compiled_graph import CompiledGraph as CompiledGraph
    from graphflow.runtime.loop_watch import watch_loop as watch_loop
    from graphflow.runtime.result import RunResult as RunResult
    from graphflow.runtime.thread import Thread as Thread
    from graphflow.service.application import Application as Application
    from graphflow.service.graph import Graph as Graph
    from graphflow.service.library import load_graph as load_graph
    from graphflow.tools.port import Tool as Tool
    from graphflow.tools.port import tool as tool
    from graphflow.tools.registry import ToolRegistry as ToolRegistry
    from graphflow.tools.result import ToolResult as ToolResult


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'graphflow' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    # Kept: from now on Python finds the name without asking here.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOMES})
