"""The Model Context Protocol at `/mcp`: agents call the tools of a session.

Read ``endpoint.py`` first, which decides between MCP and the JSON-RPC of the public package, then
``bridge.py`` and ``bindings.py``. ``sdk_v1.py`` and ``sdk_v2.py`` adapt the two major versions of
the MCP SDK.
"""
