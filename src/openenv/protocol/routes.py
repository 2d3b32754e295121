"""Headers between a gateway and clients, beside the server's.

With a handshake a gateway says which of its servers it has chosen, and how many sessions a
connection is to have. It is told the former when a connection is resumed, and in the address of an
agent.

A gateway that has keys sends its servers a key of theirs. For whom it asks it says by a header, as
JSON; a server then keeps the sessions of those apart, and to the limits of each.

    OpenEnv-Tenant: {"name": "guest", "role": "orchestrator", "max_sessions": 1}
"""

from __future__ import annotations

import msgspec

__all__ = ["ROUTE_HEADER", "ROUTE_QUERY", "SPREAD_HEADER", "TENANT_HEADER", "Tenant"]

ROUTE_HEADER, ROUTE_QUERY = "OpenEnv-Route", "openenv_route"
SPREAD_HEADER = "OpenEnv-Spread"
TENANT_HEADER = "OpenEnv-Tenant"


class Tenant(msgspec.Struct, forbid_unknown_fields=True):
    """Whom a gateway asks for.

    Attributes:
        name: How messages and logs call them.
        role: What they may do.
        session: Of an agent, its session.
        max_sessions: Sessions that they may have open at once; None is no limit.
        requests_per_s: Requests a second.
        bytes_per_s: Bytes a second.
    """

    name: str
    role: str
    session: str | None = None
    max_sessions: int | None = None
    requests_per_s: float | None = None
    bytes_per_s: float | None = None

    def to_header(self) -> str:
        """Write the route as JSON, in ASCII."""
        import json  # which a client need not load

        fields = msgspec.structs.asdict(self)
        return json.dumps({name: value for name, value in fields.items() if value is not None})

    @classmethod
    def of_header(cls, value: bytes) -> Tenant:
        """Read what `to_header` has written.

        Raises:
            ValueError: It is nothing such.
        """
        return msgspec.json.decode(value, type=cls)
