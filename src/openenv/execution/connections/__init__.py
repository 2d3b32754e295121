"""Connections of clients to sessions: frames in, session calls, frames out.

``v0`` serves protocol version 0 and ``v1`` version 1; ``connection.py`` has the same role in both.
``base.py`` holds the code that both share, ``json_rpc.py`` the JSON-RPC of the public package,
``harness.py`` the connection to an agent in an environment, and ``channel.py`` the interface of
what carries the frames. These modules use no web framework, so the client's in-process transport
uses the same code as a socket.
"""
