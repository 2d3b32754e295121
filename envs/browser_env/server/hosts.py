"""The hosts that a session may reach.

A list of hosts is enforced twice. Every request of a page is checked before it is sent. And
Chromium's resolver knows no other host, which also covers redirects, WebSockets, workers and all
requests that cannot be checked.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from openenv.errors import Refused

__all__ = ["AllowedHosts", "host_name", "host_of", "why_refused"]

EVERY = "*"
_PATTERN = re.compile(
    r"(\*\.)?([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?"
)
_SUFFIX = "*."
# Names that "*" does not include, because they lead to this machine or its network.
_LOCAL_SUFFIXES = ("localhost", "local", "internal", "home.arpa", "lan")
# The same for Chromium's resolver, which takes globs: addresses of RFC 1918, 3927, 4193 and 6598.
_LOCAL_GLOBS = (
    *_LOCAL_SUFFIXES,
    *(f"*.{suffix}" for suffix in _LOCAL_SUFFIXES),
    *("0.*", "10.*", "127.*", "169.254.*", "192.168.*"),
    *(f"172.{n}.*" for n in range(16, 32)),
    *(f"100.{n}.*" for n in range(64, 128)),
)


@dataclass(frozen=True)
class AllowedHosts:
    """The hosts that may be reached: names, ``*.name`` for all names below, or ``*``.

    ``*`` is all public hosts. An address of a private network, or a name such as ``localhost``,
    must be listed itself. A public name that leads to a private address is not detected.
    """

    patterns: tuple[str, ...] = ()

    @classmethod
    def of(cls, patterns: Iterable[str]) -> AllowedHosts:
        """Read a list of patterns.

        Raises:
            Refused: A pattern is not a valid host.
        """
        return cls(tuple(dict.fromkeys(_pattern(one) for one in patterns)))

    def let_in(self, host: str) -> bool:
        """Return whether a host may be reached."""
        return any(_matches(host, pattern) for pattern in self.patterns)

    def cover(self, other: AllowedHosts) -> bool:
        """Return whether these hosts include all hosts of `other`."""
        return all(map(self._covers, other.patterns))

    def _covers(self, pattern: str) -> bool:
        if pattern in self.patterns:
            return True
        return pattern != EVERY and self.let_in(pattern.replace(_SUFFIX, "any."))

    @property
    def resolver_rules(self) -> str:
        """The value of Chromium's ``--host-resolver-rules`` for these hosts and no others."""
        named = [f"EXCLUDE {pattern}" for pattern in self.patterns if pattern != EVERY]
        shut = _LOCAL_GLOBS if EVERY in self.patterns else ("*",)
        # Globs cannot tell IPv6 addresses apart, so a browser for public names does not use them.
        shut = (*shut, "*:*") if EVERY in self.patterns else shut
        return ",".join([*(f"MAP {glob} ~NOTFOUND" for glob in shut), *named])


def host_name(text: str) -> str:
    """Normalize the name of a host.

    Raises:
        Refused: The text is not a valid host.
    """
    name = _pattern(text)
    if EVERY in name:
        raise Refused(f"a site has one host, and not {text!r:.100}")
    return name


def _pattern(text: str) -> str:
    pattern = text.strip().lower().rstrip(".")
    if pattern == EVERY or _PATTERN.fullmatch(pattern):
        return pattern
    raise Refused(
        f"allowed_hosts holds {text!r:.100}; expected a host such as example.org, *.example.org or "
        "*, without scheme, port and path"
    )


def _matches(host: str, pattern: str) -> bool:
    if pattern == EVERY:
        return not _is_local(host)
    if pattern.startswith(_SUFFIX):
        return host.endswith(pattern[1:])
    return host == pattern


def _is_local(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_global or ":" in host
    except ValueError:
        return host.endswith(tuple(f".{suffix}" for suffix in _LOCAL_SUFFIXES)) or "." not in host


def host_of(url: str) -> str:
    """Return the host of an address, in small letters, or an empty text."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def why_refused(url: str, allowed: AllowedHosts, local: Iterable[str]) -> str | None:
    """Return the reason why an address may not be opened, or None.

    Args:
        url: The full address.
        allowed: Hosts that may be reached.
        local: Hosts that this process answers.
    """
    scheme = url.partition(":")[0].lower()
    if scheme not in ("http", "https"):
        return f"addresses begin with https:// or http://, and this one does not: {url[:200]!r}"
    host = host_of(url)
    if not host:
        return f"there is no host in {url[:200]!r}"
    local = list(local)
    if host in local or allowed.let_in(host):
        return None
    known = ", ".join([*local, *allowed.patterns]) or "none"
    return f"the host {host!r} may not be reached from here; those that may are {known}"
