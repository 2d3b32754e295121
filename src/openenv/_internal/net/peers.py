"""Peers of connections: loopback addresses, and detection of dead peers by TCP keep-alive.

The operating systems at both ends answer keep-alives even while the programs are busy. A policy
that computes for minutes would not answer a WebSocket ping.
"""

from __future__ import annotations

import contextlib
import functools
import socket
from typing import Any

PROBES = 3


@functools.lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server that listens on `host`."""
    from ipaddress import ip_address  # imported late: clients rarely need it

    try:
        ip = ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def ends(client: Any, server: Any) -> list[str] | None:
    """Return the addresses and ports of a connection's two ends; None if they are unknown.

    Both ends are compared to detect a proxy in between, which may happen to use the client's port
    for a connection of its own.
    """
    pairs = (client, server)
    if not all(isinstance(pair, tuple | list) and len(pair) > 1 for pair in pairs):
        return None
    return [f"{pair[0]}:{pair[1]}" for pair in pairs]


def notice_dead_peer(transport: Any, within_s: float) -> None:
    """Break a connection if the peer's system has not answered for about `within_s` seconds.

    Args:
        transport: A transport of asyncio or uvloop; ignored unless it is TCP.
        within_s: Seconds; 0 turns detection off.
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
    kind = (connection.family, connection.type, connection.proto)
    with contextlib.suppress(OSError):  # the connection is closed already
        # uvloop's own object would create such a socket for every option.
        same = socket.socket(*kind, fileno=connection.fileno())
        try:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, within_s > 0)
            for name, value in options.items():
                if within_s > 0 and hasattr(socket, name):  # some systems lack some options
                    same.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        finally:
            same.detach()
