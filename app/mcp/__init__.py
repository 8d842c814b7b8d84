"""Tools from MCP servers. The package `mcp` is imported when a run has a server, not before."""
