"""The server's MCP endpoint: sessions of our environments as sessions of the protocol."""
