"""Every environment variable that OpenEnv reads, with its meaning; read nowhere else.

| variable | meaning | default |
| --- | --- | --- |
| `OPENENV_MODE` | server mode, `simulation` or `production` | `simulation` |
| `OPENENV_CLIENT_MODE` | client mode, `simulation` or `production` | `simulation` |
| `OPENENV_PROTOCOL` | the newest protocol version that a client offers, `0` or `1` | `1` |
| `OPENENV_TRUST_REMOTE_CODE` | `1`, `true`, `yes`: install packages from a hub unasked | off |
| `ENABLE_WEB_INTERFACE` | `1`, `true`, `yes`: serve the web page | off |
| `OPENENV_COMPRESS` | `1`, `true`, `yes`: a server compresses for clients that ask for it | off |
| `OPENENV_LOG_LEVEL` | log level of `openenv serve` | `info` |
| `OPENENV_API_KEY` | the key that a server wants of orchestrators, and that a client sends | none |
| `OPENENV_API_KEY_FILE` | a file of the keys that a server accepts | none |
| `OPENENV_ALLOWED_ORIGINS` | further web pages that may use a server; `*` is any | its own |
| `OPENENV_ALLOWED_HOSTS` | further names of a server on loopback; `*` is any | this machine's |
| `OPENENV_CA_FILE` | certificates (PEM) by which clients tell servers | the system's |

Origins and names are lists with commas. A server on the main thread of its process takes the keys
out of its environment variables, where its child processes would find them.

Environments read variables of their own; their READMEs name them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from enum import Enum

__all__ = [
    "KEY_VARIABLES",
    "ServerMode",
    "allowed_hosts",
    "allowed_origins",
    "api_key",
    "api_key_file",
    "ca_file",
    "client_mode",
    "compresses",
    "hide_keys",
    "log_level",
    "parse_mode",
    "protocol_version",
    "server_mode",
    "trusts_remote_code",
    "use_api_key_file",
    "web_interface_enabled",
    "without_keys",
]

# What no process that is started should get by chance.
KEY_VARIABLES = ("OPENENV_API_KEY", "OPENENV_API_KEY_FILE")
_hidden: dict[str, str] = {}


class ServerMode(str, Enum):
    """Simulation offers reset, step and state over HTTP; production offers tools only."""

    SIMULATION = "simulation"
    PRODUCTION = "production"


def parse_mode(mode: ServerMode | str) -> ServerMode:
    """Read a mode.

    Raises:
        ValueError: It is none of the modes.
    """
    try:
        return ServerMode(mode.lower() if isinstance(mode, str) else mode)
    except ValueError:
        legal = ", ".join(repr(m.value) for m in ServerMode)
        raise ValueError(f"unknown mode {mode!r}; it must be one of {legal}") from None


def server_mode(mode: ServerMode | str | None) -> ServerMode:
    """The given mode, else that of OPENENV_MODE, else simulation."""
    return parse_mode(mode or os.environ.get("OPENENV_MODE") or ServerMode.SIMULATION)


def client_mode(mode: str | None) -> str:
    """The given mode, else that of OPENENV_CLIENT_MODE, else simulation."""
    chosen = mode or os.environ.get("OPENENV_CLIENT_MODE") or ServerMode.SIMULATION
    return parse_mode(chosen).value


def protocol_version() -> int:
    """The newest protocol version that a client offers.

    Raises:
        ValueError: OPENENV_PROTOCOL is neither 0 nor 1.
    """
    wanted = os.environ.get("OPENENV_PROTOCOL") or "1"
    if wanted not in ("0", "1"):
        raise ValueError(f"OPENENV_PROTOCOL is {wanted!r}; it must be 0 or 1")
    return int(wanted)


def compresses() -> bool:
    """WebSocket messages are compressed for clients that ask for it (RFC 7692)."""
    return _truthy("OPENENV_COMPRESS")


def trusts_remote_code() -> bool:
    """Packages from a hub may be installed without asking."""
    return _truthy("OPENENV_TRUST_REMOTE_CODE")


def web_interface_enabled() -> bool:
    """The web page is asked for."""
    return _truthy("ENABLE_WEB_INTERFACE")


def log_level() -> str:
    """The log level of a served environment."""
    return os.environ.get("OPENENV_LOG_LEVEL", "info").lower()


# ------------------------------------------------------------------ keys and names


def api_key() -> str | None:
    """The key that a server wants of orchestrators, and that clients send."""
    return _secret("OPENENV_API_KEY")


def api_key_file() -> str | None:
    """The file in which a server finds its keys."""
    return _secret("OPENENV_API_KEY_FILE")


def use_api_key_file(path: str) -> None:
    """Have servers of this process, and of those that it starts, use a file of keys."""
    os.environ["OPENENV_API_KEY_FILE"] = os.path.abspath(path)


def without_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables for a process that gets no key by them."""
    return {name: value for name, value in environ.items() if name not in KEY_VARIABLES}


def hide_keys() -> None:
    """Take the keys out of the environment variables, where child processes and what reads
    ``/proc`` would find them. This process remembers them.
    """
    for name in KEY_VARIABLES:
        if name in os.environ:
            _hidden[name] = os.environ[name]
            _overwrite(name)
            del os.environ[name]


def _secret(name: str) -> str | None:
    return os.environ.get(name) or _hidden.get(name)


def _overwrite(name: str) -> None:
    """Overwrite a variable where the system shows it; deleting it only removes a pointer to it."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):  # a system without that
        getenv = ctypes.CDLL(None).getenv
        getenv.argtypes, getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
        address = getenv(name.encode())
        if address:
            ctypes.memset(address, 0, len(ctypes.string_at(address)))


def allowed_origins() -> frozenset[str]:
    """The origins of web pages, beside a server's own, that may use it."""
    return _listed("OPENENV_ALLOWED_ORIGINS")


def allowed_hosts() -> frozenset[str]:
    """The names, beside those of this machine, by which a server on loopback is known."""
    return _listed("OPENENV_ALLOWED_HOSTS")


def ca_file() -> str | None:
    """The certificates by which clients tell a server; None means the system's."""
    return os.environ.get("OPENENV_CA_FILE") or None


def _listed(name: str) -> frozenset[str]:
    words = os.environ.get(name, "").lower().split(",")
    return frozenset(word.strip().rstrip("/") for word in words if word.strip())


def _truthy(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in ("1", "true", "yes")
