"""Every tool that exists in an application, by its exact name, and by keywords."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphflow.arguments import checked
from graphflow.errors import DefinitionError, Issue
from graphflow.models.options import ToolSpec
from graphflow.tools.builtin import builtin_tools
from graphflow.tools.owned_names import SERVER_PREFIX, server_of
from graphflow.tools.port import Tool, tool
from graphflow.tools.schema import did_you_mean
from graphflow.tools.wire_names import is_wire_name


class ToolRegistry:
    """Tools by name; names match exactly, so `bash` and `Bash` may both exist.

    Args:
        tools: registered at once, in this order.
        builtins: default: the built-in tools with their default settings; `()` for none.
    """

    @checked
    def __init__(
        self, tools: Iterable[Tool | Callable[..., Any]] = (), *, builtins: Iterable[Tool] | None = None
    ) -> None:
        self._tools: dict[str, Tool] = {}
        self._keywords: dict[str, frozenset[str]] = {}
        self.servers: Mapping[str, tuple[str, ...]] = {}
        """The MCP servers that the settings name, connected or not, with the capabilities that calls of their tools need."""
        self.unreachable: Mapping[str, str] = {}
        """Those that can't be reached now, with the reason."""
        for builtin in builtin_tools() if builtins is None else builtins:
            self.register(builtin)
        for item in tools:
            self.register(item)

    @checked
    def register(self, new: Tool | Callable[..., Any], *, keywords: Iterable[str] = ()) -> Tool:
        """Adds a tool, or a plain typed function as one; agents with one of the keywords get it.

        Raises:
            DefinitionError: another tool has this name.
        """
        made = new if isinstance(new, Tool) else tool(new)
        if not is_wire_name(made.name):
            hint = "use 1 to 64 letters, digits, `_` and `-`"
            raise DefinitionError([_issue(f"tool {made.name!r}: a name with `.` or `:` belongs to others", hint)])
        # Two tools of one name are a mistake here; replacing on purpose is what `overlaid` is for.
        if made.name in self._tools:
            hint = "give one of them another name: @tool(name=…)"
            raise DefinitionError([_issue(f"there is a tool {made.name!r} already", hint)])
        self._tools[made.name] = made
        self._keywords[made.name] = frozenset(word.lower() for word in keywords)
        return made

    def get(self, name: str) -> Tool | None:
        """The tool of exactly this name, or None."""
        return self._tools.get(name)

    def declares(self, name: str) -> bool:
        """Whether agents may name this tool: it is here, or its MCP server is configured (`SERVER.TOOL`, `mcp:SERVER`)."""
        return name in self._tools or server_of(name) in self.servers

    def declared(self) -> DeclaredTools:
        """What agents may name."""
        return DeclaredTools(self)

    def of_server(self, server: str) -> list[str]:
        """The names of the tools that an MCP server offers now."""
        return [name for name in self._tools if name.startswith(f"{server}.")]

    def gone(self, name: str) -> str | None:
        """The MCP server of a tool that is not here now; None for any other name."""
        server = server_of(name)
        return server if name not in self._tools and server in self.servers else None

    def capabilities(self, name: str) -> tuple[str, ...]:
        """What a call of the tool needs; `mcp:SERVER` stands for all of the server's."""
        found = self._tools.get(name)
        return tuple(found.capabilities) if found is not None else self.servers.get(server_of(name), ())

    def require(self, name: str) -> Tool:
        """The tool of exactly this name.

        Raises:
            DefinitionError: there is none; says which one may be meant.
        """
        if (found := self._tools.get(name)) is None:
            raise DefinitionError([_issue(f"there is no tool {name!r}", self.hint(name))])
        return found

    def hint(self, name: str) -> str:
        """A hint for an unknown name: the existing names and a likely one."""
        names = self.names()
        return f"tools are {', '.join(names) or 'none'}.{did_you_mean(name, names)}"

    def names(self) -> list[str]:
        """All names, in the order of registration."""
        return list(self._tools)

    def for_keywords(self, keywords: Iterable[str]) -> list[Tool]:
        """The tools registered under any of these words; case does not matter."""
        wanted = {word.lower() for word in keywords}
        return [found for name, found in self._tools.items() if not wanted.isdisjoint(self._keywords[name])]

    def specs(self, names: Sequence[str]) -> list[ToolSpec]:
        """What a model sees of these tools, in this order.

        Raises:
            DefinitionError: for an unknown name.
        """
        return [self.require(name).spec for name in names]

    def overlaid(self, tools: Iterable[Tool]) -> ToolRegistry:
        """A new registry in which these tools replace those of the same name, or are added.

        The old one stays as it is, for runs that began with it.
        """
        # The built-ins are among `self._tools`, perhaps changed; registering them again would undo that.
        new = ToolRegistry(builtins=())
        new.servers, new.unreachable = self.servers, self.unreachable
        new._tools = {**self._tools, **{item.name: item for item in tools}}
        new._keywords = {name: self._keywords.get(name, frozenset()) for name in new._tools}
        return new

    def with_servers(self, servers: Iterable[str], tools: Iterable[Tool]) -> ToolRegistry:
        """A new registry in which these MCP servers offer these tools and no others."""
        mine = tuple(f"{server}." for server in servers)
        new = self.overlaid(())
        new._tools = {name: tool for name, tool in self._tools.items() if not name.startswith(mine)}
        return new.overlaid(tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


class DeclaredTools(Collection[str]):
    """The names that agents may give in `tools`; lists those of the tools, and of the servers as `mcp:SERVER`."""

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._registry.declares(name)

    def warning(self, name: str) -> str | None:
        """Why a tool of an MCP server can't be called now, as far as that is known."""
        registry = self._registry
        server = server_of(name)
        if server not in registry.servers or name in registry:
            return None
        if (reason := registry.unreachable.get(server)) is not None:
            return f"the MCP server {server!r} can't be reached: {reason}"
        offered = registry.of_server(server)
        if not offered or name.startswith(SERVER_PREFIX):
            return None
        return f"the MCP server {server!r} offers no such tool.{did_you_mean(name, offered)}"

    def __iter__(self) -> Iterator[str]:
        return iter([*self._registry.names(), *(f"{SERVER_PREFIX}{name}" for name in self._registry.servers)])

    def __len__(self) -> int:
        return len(self._registry) + len(self._registry.servers)


def _issue(message: str, hint: str) -> Issue:
    return Issue(pointer="", message=message, hint=hint, kind="reference")
