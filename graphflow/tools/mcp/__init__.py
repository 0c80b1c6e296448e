"""Tools of MCP servers, by the official SDK (the extra `graphflow[mcp]`); nothing here loads it before a server is asked."""
