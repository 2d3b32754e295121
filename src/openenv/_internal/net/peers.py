"""Who is at the other end: whether it may be another machine, and noticing one that is gone without
a word, such as a host without power.

To that the operating systems at both ends see, whatever the programs do meanwhile: a policy that
thinks for minutes answers no WebSocket ping, but its system answers for it.
"""

from __future__ import annotations

import contextlib
import functools
import socket
from typing import Any

__all__ = ["ends", "is_loopback", "notice_dead_peer"]

PROBES = 3


@functools.lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on `host`."""
    from ipaddress import ip_address  # clients ask for it only now and then

    try:
        ip = ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def ends(client: Any, server: Any) -> list[str] | None:
    """Write the addresses and ports of a connection's ends the way both do; None if it has none.

    Both are needed to tell that nothing is in between: a proxy may happen to have the client's
    port for its own connection.
    """
    pairs = (client, server)
    if not all(isinstance(pair, tuple | list) and len(pair) > 1 for pair in pairs):
        return None
    return [f"{pair[0]}:{pair[1]}" for pair in pairs]


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
    kind = (connection.family, connection.type, connection.proto)
    with contextlib.suppress(OSError):  # it has closed already
        # uvloop's own object would make one of these for every option.
        same = socket.socket(*kind, fileno=connection.fileno())
        try:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, within_s > 0)
            for name, value in options.items():
                if within_s > 0 and hasattr(socket, name):  # not every system has all of them
                    same.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        finally:
            same.detach()
