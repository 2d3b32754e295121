"""The choice of a proxy for an address.

All code that opens an HTTP or a WebSocket connection calls `proxy_for`, so that all commands reach
the same servers.

* An address of this machine is always reached directly, since no proxy elsewhere could connect to
  it: ``localhost`` and names below it, 127.0.0.0/8, ``::1``, and ``0.0.0.0`` and ``::``, which
  servers print when they listen on all interfaces.
* Otherwise the variables decide as for curl: those of the scheme (HTTP_PROXY or HTTPS_PROXY, which
  WS_PROXY and WSS_PROXY override for a WebSocket), then SOCKS_PROXY, then ALL_PROXY. Lower case
  takes precedence over upper case, and an empty lower-case variable unsets the other. If no
  variable is set, the settings of macOS and Windows apply.
* NO_PROXY exempts hosts: ``*``, a domain with its subdomains, an address, or a network
  (10.0.0.0/8), each with or without a port.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

VARIABLES = {
    "http": ("http", "socks", "all"),
    "https": ("https", "socks", "all"),
    "ws": ("ws", "http", "socks", "all"),
    "wss": ("wss", "https", "socks", "all"),
}
PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
# The protocol of a proxy by the scheme of its address. The `h` means that the proxy resolves host
# names, which it does in any case.
SCHEMES = {
    "http": "http",
    "https": "https",
    "socks": "socks5",
    "socks4": "socks4",
    "socks4a": "socks4",
    "socks5": "socks5",
    "socks5h": "socks5",
}


class OutgoingProxy(NamedTuple):
    """A proxy, with the reason for using the proxy.

    Attributes:
        url: The address, with a password if any; the scheme is http, https, socks4 or socks5.
        variable: The environment variable that names the proxy, or ``the system's settings``.
        host: The host that the proxy is used for.
    """

    url: str
    variable: str
    host: str

    def __str__(self) -> str:
        """Name the proxy, without the password."""
        parts = urlsplit(self.url)
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        return f"the proxy {place} ({self.variable})"

    @property
    def hint(self) -> str:
        """A sentence that says how to connect without the proxy."""
        return f"to connect to {self.host} without a proxy, set NO_PROXY={self.host}"

    @property
    def is_socks(self) -> bool:
        """Whether the proxy speaks SOCKS instead of HTTP."""
        return self.url.startswith("socks")

    def describe(self, why: object) -> str:
        """Return an error text: the proxy failed, why, and how to connect without the proxy."""
        return f"no answer through {self}: {why}; {self.hint}"


def proxy_for(url: str) -> OutgoingProxy | None:
    """Return the proxy for an address of http, https, ws or wss; None to connect directly.

    Raises:
        ValueError: The variable does not hold the address of a proxy.
    """
    from urllib.request import getproxies

    parts = urlsplit(url)
    host, scheme = parts.hostname or "", parts.scheme.lower()
    if not host or is_this_machine(host):
        return None
    known = getproxies()
    kind = next((kind for kind in VARIABLES.get(scheme, ()) if known.get(kind)), None)
    if kind is None or _is_exempt(host, parts.port or PORTS[scheme], known):
        return None
    variable = _variable(kind)
    return OutgoingProxy(_checked(known[kind], variable), variable, host)


def is_this_machine(host: str) -> bool:
    """Return whether a connection to a host, by name or address, ends on this machine."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761
        return True
    ip = _address(host)
    return ip is not None and (ip.is_loopback or ip.is_unspecified)


def is_from_environment(url: str | None) -> bool:
    """Return whether a proxy's address comes from the environment or the system's settings."""
    from urllib.request import getproxies

    return url in getproxies().values()


def direct_mounts(url: str) -> dict[str, Any]:
    """Return the options of a client of httpx for an address that `proxy_for` reaches directly.

    httpx reads the variables too, but sends requests to this machine through proxies, and does not
    support networks in NO_PROXY. If a proxy is needed, httpx finds the same one itself.
    """
    from urllib.request import getproxies

    if not getproxies() or proxy_for(url) is not None:
        return {}
    return {"mounts": dict.fromkeys(("all://", "http://", "https://"))}


async def connect_through(
    proxy: OutgoingProxy, host: str, port: int, timeout_s: float
) -> socket.socket:
    """Return a socket that a proxy has connected to a host, for asyncio.

    Raises:
        OSError: The proxy failed; the text names the proxy, and how to connect without it.
    """
    from python_socks import ProxyError
    from python_socks.async_.asyncio import Proxy as Connector

    if proxy.url.startswith("https:"):
        raise ConnectionError(
            proxy.describe("this connection can use no proxy that is itself reached by TLS")
        )
    try:
        return await Connector.from_url(proxy.url).connect(host, port, timeout=timeout_s)
    except TimeoutError as error:
        raise ConnectionError(proxy.describe(f"nothing came in {timeout_s:g} s")) from error
    except (OSError, ProxyError) as error:
        raise ConnectionError(proxy.describe(error)) from error


# ------------------------------------------------------------------ variables


def _variable(kind: str) -> str:
    for name in (f"{kind}_proxy", f"{kind}_proxy".upper()):
        if os.environ.get(name):
            return name
    # urllib accepts any case, and on some systems reads the system's settings.
    return next(
        (name for name in os.environ if name.lower() == f"{kind}_proxy"), "the system's settings"
    )


def _checked(url: str, variable: str) -> str:
    scheme, mark, rest = url.strip().partition("://")
    if not mark:
        scheme, rest = "http", url.strip()
    spoken = SCHEMES.get(scheme.lower())
    parts: SplitResult | None = None
    with contextlib.suppress(ValueError):
        found = urlsplit(f"{spoken}://{rest}")
        parts = found if spoken is not None and found.hostname and found.port != 0 else None
    if parts is None:
        shown = f"{scheme}://{rest.rpartition('@')[2]}"
        raise ValueError(
            f"{variable} names {shown!r:.200}, which is no proxy; expected an address such as "
            f"http://proxy.example:3128 or socks5://proxy.example:1080"
        )
    if parts.port is None:  # the default ports of HTTP, HTTPS and SOCKS
        default = {"http": 80, "https": 443}.get(parts.scheme, 1080)
        return f"{spoken}://{parts.netloc}:{default}"
    return f"{spoken}://{parts.netloc}"


# ------------------------------------------------------------------ exemptions


def _is_exempt(host: str, port: int, known: Mapping[str, str]) -> bool:
    from urllib.request import getproxies_environment, proxy_bypass

    listed = known.get("no", "")
    if any(_fits(entry, host, port) for entry in re.split(r"[\s,]+", listed) if entry):
        return True
    # Without variables, the system's settings and their exemptions apply.
    return not getproxies_environment() and bool(proxy_bypass(host))


def _fits(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    name, of_port = _parted(entry.lower())
    if of_port is not None and of_port != port:
        return False
    host = host.lower().rstrip(".")
    ip = _address(host)
    if ip is not None:
        return _is_within(ip, name)
    name = name.removeprefix("*").lstrip(".").rstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _parted(entry: str) -> tuple[str, int | None]:
    """Split an entry of NO_PROXY into a host or a network, and a port."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(\d+))?", entry)
    if bracketed is not None:
        return bracketed[1], int(bracketed[2]) if bracketed[2] else None
    name, mark, port = entry.rpartition(":")
    if mark and ":" not in name and port.isdecimal():
        return name, int(port)
    return entry, None


def _is_within(ip: IPv4Address | IPv6Address, network: str) -> bool:
    try:
        return ip in ip_network(network, strict=False)
    except ValueError:
        return False


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a host stands for, in any notation that the system accepts."""
    try:
        ip = ip_address(host)
    except ValueError:
        if not re.fullmatch(r"[0-9][0-9a-fx]*(\.[0-9][0-9a-fx]*){0,3}", host):
            return None
        try:
            return IPv4Address(socket.inet_aton(host))  # 127.1, 0x7f000001
        except (OSError, ValueError):
            return None
    return getattr(ip, "ipv4_mapped", None) or ip
