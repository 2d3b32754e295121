"""Tools by the Model Context Protocol (MCP)."""
