"""Noticing a peer that is gone without a word: a host without power, packets that are dropped.

The operating systems at both ends see to it, whatever the programs do meanwhile: a policy that
thinks for minutes answers no WebSocket ping, but its system answers for it.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

__all__ = ["address", "notice_dead_peer"]

PROBES = 3


def address(pair: Any) -> str | None:
    """Write an address and a port the way both ends do; None where there are none."""
    return f"{pair[0]}:{pair[1]}" if isinstance(pair, tuple | list) and len(pair) > 1 else None


def notice_dead_peer(transport: Any, within_s: float) -> None:
    """Have a connection break if its peer's system has not answered for about so many seconds.

    Args:
        transport: Of asyncio or uvloop; one that is no TCP connection is left as it is.
        within_s: 0 has no connection broken.
    """
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    probe_s = max(1, round(within_s / (PROBES + 1)))
    options = {
        "TCP_KEEPIDLE": probe_s,
        "TCP_KEEPINTVL": probe_s,
        "TCP_KEEPCNT": PROBES,
        "TCP_USER_TIMEOUT": round(within_s * 1000),  # RFC 5482
    }
    with contextlib.suppress(OSError):  # it has closed already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, within_s > 0)
        for name, value in options.items():
            if within_s > 0 and hasattr(socket, name):  # not every system has all of them
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
