"""What a gateway and its clients tell each other, beside what a server says.

With a handshake a gateway says which of its servers it has chosen, and how many sessions a
connection is to have. It is told the former when a connection is resumed, and in the address of an
agent.
"""

from __future__ import annotations

__all__ = ["ROUTE_HEADER", "ROUTE_QUERY", "SPREAD_HEADER"]

ROUTE_HEADER, ROUTE_QUERY = "OpenEnv-Route", "openenv_route"
SPREAD_HEADER = "OpenEnv-Spread"
