"""The body of a tool whose work the client does: actions, and the forms of frontend tools (spec 8.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.tools.context import ToolContext
from graphflow.tools.signature import SchemaSignature


class FrontendBody:
    """Checks arguments and does nothing: the client acts on the events of the call."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._signature = SchemaSignature(parameters)

    @property
    def parameters(self) -> dict[str, Any]:
        return self._signature.parameters

    def prepare(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._signature.prepare(arguments)

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        del arguments, ctx
