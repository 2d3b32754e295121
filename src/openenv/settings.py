"""The environment variables that OpenEnv reads. No other module reads any.

Set these variables to configure servers, clients and commands without changing code. The options of
commands are in [the command line reference](cli.md).

## Modes and protocol

| Variable | Meaning | Default |
| --- | --- | --- |
| `OPENENV_MODE` | mode of a server, `simulation` or `production` | `simulation` |
| `OPENENV_CLIENT_MODE` | mode of a client, `simulation` or `production` | `simulation` |
| `OPENENV_PROTOCOL` | newest protocol version that a client offers, `0` or `1` | `1` |
| `OPENENV_COMPRESS` | `1`, `true` or `yes`: a server compresses messages for clients that ask for \
it | off |
| `ENABLE_WEB_INTERFACE` | `1`, `true` or `yes`: a server has the web page | off |

## Limits of a server

| Variable | Meaning | Default |
| --- | --- | --- |
| `MAX_CONCURRENT_ENVS` | maximum number of sessions, for a class or another library's environment \
that is served by its name; the bundled environments' own applications read it too | `64` |
| `OPENENV_MAX_QUEUE` | maximum number of sessions that wait for a slot | `16384` |
| `OPENENV_MAX_QUEUE_S` | maximum seconds that a session waits for a slot | `3600` |
| `OPENENV_QUEUE_TIMEOUT_S` | seconds that a client waits for a slot if it sets no \
`queue_timeout_s` | `150` |
| `OPENENV_RESUME_GRACE_S` | grace period: seconds that a server keeps the sessions of a broken \
connection | `120` |
| `OPENENV_DEAD_PEER_S` | seconds of silence of the other machine after which a connection breaks \
| `60` |
| `OPENENV_MAX_MESSAGE_BYTES` | largest message that a server accepts or sends, in bytes | \
`104857600` |
| `OPENENV_MAX_UNREAD_BYTES` | bytes that a client may leave unread for each session before the \
server cuts it off \
| `67108864` |
| `OPENENV_DRAIN_S` | seconds that running calls have to end after the server is told to stop | \
`5` |
| `OPENENV_CLOSE_S` | seconds that an environment has to close after its session is closed, before \
the server ends it | `60` |

## Logs, recordings and traces

| Variable | Meaning | Default |
| --- | --- | --- |
| `OPENENV_LOG_LEVEL` | log level of `openenv serve` | `info` |
| `OPENENV_LOG_FORMAT` | log format of `openenv serve`, `text` or `json` (one object per line) | \
`text` |
| `OPENENV_DEBUG` | `1`, `true` or `yes`: clients get the text of every exception, and `openenv` \
shows tracebacks | off |
| `OPENENV_OTEL` | `1`: trace with OpenTelemetry; `0`: never | on if the program set up tracing |
| `OPENENV_RECORD` | directory in which a server records its sessions | none |
| `OPENENV_RECORD_FILE_MIB` | size in MiB after which a recording continues in another file | \
`256` |
| `OPENENV_RECORD_TOTAL_MIB` | total size of all recordings in MiB; the oldest are deleted | \
`10240` |

## Keys and access

| Variable | Meaning | Default |
| --- | --- | --- |
| `OPENENV_API_KEY` | key that a server requires of orchestrators, and that a client sends | none |
| `OPENENV_API_KEY_FILE` | file of the keys that a server accepts | none |
| `OPENENV_PUBLIC_SCHEMA` | `1`: a server with keys shows `/schema` without a key | off |
| `OPENENV_ALLOWED_ORIGINS` | further web pages that may use a server, separated by commas; `*` is \
any | the server's own |
| `OPENENV_ALLOWED_HOSTS` | further host names of a server on loopback, separated by commas; `*` \
is any | names of this machine |
| `OPENENV_CA_FILE` | file of certificates (PEM) by which clients verify servers | the system's |

A server that runs on the main thread of its process removes the keys from its environment
variables, so that its child processes do not get them.

## Hub, images and sandboxes

| Variable | Meaning | Default |
| --- | --- | --- |
| `HF_ENDPOINT` | address of the Hugging Face Hub | `https://huggingface.co` |
| `OPENENV_TRUST_REMOTE_CODE` | `1`, `true` or `yes`: install packages from a hub without a \
question | off |
| `OPENENV_RUN_IMAGES` | what runs an image if no provider is given: `container`, or `process` \
(the installed package) | `container` if an engine has the image |
| `OPENENV_CGROUP` | control group (cgroup v2) for the control groups of sandboxes | the process's \
own, if it was delegated |

## Keys of language models

| Variable | Meaning | Default |
| --- | --- | --- |
| `OPENAI_API_KEY` | key for models behind OpenAI's API that policies query | none |
| `ANTHROPIC_API_KEY` | key for models behind Anthropic's API that policies query | none |
| `API_KEY` | key for the model of `openenv collect`, if neither of the others is set | none |
| `OPENENV_LLM_API_KEY` | key for the model behind a capture proxy | none |
| `OPENENV_CAPTURE_ADMIN_KEY` | key that creates and reads the sessions of a capture proxy | none |

## Secrets in variables

If the name of a variable contains `KEY`, `TOKEN`, `SECRET`, `PASSWORD`, `PASSWD` or `CREDENTIAL`,
its value is kept out of error messages and logs. This applies to values of 8 characters or more.

Environments read variables of their own; their READMEs list them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = [
    "KEY_VARIABLES",
    "MODEL_KEY_VARIABLES",
    "ServerMode",
    "allowed_hosts",
    "allowed_origins",
    "api_key",
    "api_key_file",
    "max_concurrent_envs",
    "ca_file",
    "capture_admin_key",
    "client_mode",
    "cgroup",
    "compresses",
    "hide_keys",
    "hub_endpoint",
    "limit",
    "log_level",
    "looks_secret",
    "model_key",
    "parse_mode",
    "protocol_version",
    "public_schema",
    "run_images",
    "set_max_concurrent_envs",
    "queue_timeout_s",
    "recording_directory",
    "recording_limits",
    "debug",
    "enable_web_interface",
    "log_format",
    "secrets",
    "secrets_of",
    "server_mode",
    "teacher_key",
    "traces",
    "upstream_model_key",
    "trusts_remote_code",
    "use_api_key_file",
    "web_interface_enabled",
    "without_keys",
]

# Variables that child processes must not inherit by accident.
KEY_VARIABLES = (
    "OPENENV_API_KEY",
    "OPENENV_API_KEY_FILE",
    "OPENENV_CAPTURE_ADMIN_KEY",
    "OPENENV_LLM_API_KEY",
)
# The variable with the key of a model, by the model's API.
MODEL_KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_hidden: dict[str, str] = {}


class ServerMode(str, Enum):
    """The mode of a server: simulation offers reset, step and state; production offers tools only.

    Example:
        >>> from openenv import ServerMode
        >>> [mode.value for mode in ServerMode]
        ['simulation', 'production']
    """

    SIMULATION = "simulation"
    PRODUCTION = "production"


def parse_mode(mode: ServerMode | str, variable: str | None = None) -> ServerMode:
    """Convert a text, in any case, to a mode.

    Args:
        mode: The mode.
        variable: The environment variable that set the mode, for the error message.

    Raises:
        ValueError: The mode is unknown.
    """
    try:
        return ServerMode(mode.lower() if isinstance(mode, str) else mode)
    except ValueError:
        legal = " or ".join(repr(m.value) for m in ServerMode)
        where = f" in {variable}" if variable else ""
        raise ValueError(f"unknown mode {mode!r}{where}; expected {legal}") from None


def _mode_of(mode: ServerMode | str | None, variable: str) -> ServerMode:
    if mode:
        return parse_mode(mode)
    return parse_mode(os.environ.get(variable) or ServerMode.SIMULATION, variable)


def server_mode(mode: ServerMode | str | None) -> ServerMode:
    """Return the given mode, else OPENENV_MODE, else simulation."""
    return _mode_of(mode, "OPENENV_MODE")


def client_mode(mode: str | None) -> str:
    """Return the given mode, else OPENENV_CLIENT_MODE, else simulation."""
    return _mode_of(mode, "OPENENV_CLIENT_MODE").value


def run_images() -> str | None:
    """Return what runs images if no provider is given: ``container`` or ``process``; None if
    OPENENV_RUN_IMAGES is not set.

    Raises:
        ValueError: OPENENV_RUN_IMAGES has another value.
    """
    return _choice("OPENENV_RUN_IMAGES", "container", "process")


def protocol_version() -> int:
    """Return the newest protocol version that a client offers.

    Raises:
        ValueError: OPENENV_PROTOCOL is neither 0 nor 1.
    """
    return int(_choice("OPENENV_PROTOCOL", "0", "1") or 1)


def _choice(name: str, *allowed: str) -> str | None:
    given = os.environ.get(name, "")
    text = given.strip().lower() or None
    if text is not None and text not in allowed:
        raise ValueError(f"{name} is {given!r}; it must be {' or '.join(allowed)}")
    return text


def compresses() -> bool:
    """Return whether WebSocket messages are compressed if a client asks (RFC 7692)."""
    return _truthy("OPENENV_COMPRESS")


def cgroup() -> str | None:
    """Return the control group for sandboxes' control groups, or None."""
    return os.environ.get("OPENENV_CGROUP") or None


def recording_directory() -> str | None:
    """Return the directory for recordings of sessions; None for no recording."""
    return os.environ.get("OPENENV_RECORD") or None


def recording_limits() -> tuple[int, int]:
    """Return the maximum bytes of a recording's file, and of all recordings.

    Raises:
        ValueError: OPENENV_RECORD_FILE_MIB or OPENENV_RECORD_TOTAL_MIB is not a positive integer.
    """
    return _mebibytes("OPENENV_RECORD_FILE_MIB", 256), _mebibytes("OPENENV_RECORD_TOTAL_MIB", 10240)


def _mebibytes(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{name} is {text!r}; it must be a number of MiB, at least 1")
    return int(text) * 2**20


def trusts_remote_code() -> bool:
    """Return whether packages from a hub may be installed without asking."""
    return _truthy("OPENENV_TRUST_REMOTE_CODE")


def hub_endpoint() -> str:
    """Return the address of the Hub, without a trailing slash."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def enable_web_interface() -> None:
    """Make applications of this process and of child processes serve the web page."""
    os.environ["ENABLE_WEB_INTERFACE"] = "true"


def web_interface_enabled() -> bool:
    """Return whether applications of this process serve the web page."""
    return _truthy("ENABLE_WEB_INTERFACE")


def log_level() -> str:
    """Return the log level of `openenv serve`, in lower case."""
    return os.environ.get("OPENENV_LOG_LEVEL", "info").lower()


def limit(name: str) -> float | None:
    """Return a limit of a server (see `openenv.execution.limits`); None means the default.

    Raises:
        ValueError: The variable is set, but not to a number.
    """
    return _number(f"OPENENV_{name.upper()}")


def set_max_concurrent_envs(limit: int) -> None:
    """Set the maximum number of sessions, for this process and for child processes."""
    os.environ["MAX_CONCURRENT_ENVS"] = str(limit)


def max_concurrent_envs() -> int | None:
    """Return the maximum number of sessions of a served target; None means the default.

    Raises:
        ValueError: MAX_CONCURRENT_ENVS is not a whole number greater than 0.
    """
    wanted = _number("MAX_CONCURRENT_ENVS")
    if wanted is not None and (wanted < 1 or wanted != int(wanted)):
        raise ValueError(f"MAX_CONCURRENT_ENVS is {wanted}; it must be a whole number above 0")
    return None if wanted is None else int(wanted)


def queue_timeout_s() -> float:
    """Return the seconds that a client waits for a slot.

    Raises:
        ValueError: OPENENV_QUEUE_TIMEOUT_S is not a number.
    """
    wanted = _number("OPENENV_QUEUE_TIMEOUT_S")
    return 150.0 if wanted is None else wanted


def _number(name: str) -> float | None:
    text = os.environ.get(name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it must be a number") from None
    return int(number) if number.is_integer() else number


def log_format() -> str:
    """Return the log format of `openenv serve`, ``text`` or ``json``.

    Raises:
        ValueError: OPENENV_LOG_FORMAT has another value.
    """
    return _choice("OPENENV_LOG_FORMAT", "text", "json") or "text"


def debug(wanted: bool | None = None) -> bool:
    """Return whether clients get the text of every exception: `wanted`, else OPENENV_DEBUG."""
    return _truthy("OPENENV_DEBUG") if wanted is None else wanted


def traces() -> bool | None:
    """Return whether OpenTelemetry traces calls; None if that depends on the program."""
    if not os.environ.get("OPENENV_OTEL", "").strip():
        return None
    return _truthy("OPENENV_OTEL")


MIN_SECRET_CHARACTERS = 8  # replacing shorter values would hide too much other text
_SECRET_NAMES = re.compile("KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)


def secrets() -> frozenset[str]:
    """Return the values of all variables with names of secrets, hidden variables included.

    If no variable has changed, the same object is returned.
    """
    global _last_secrets
    # The dictionary inside `os.environ`. Comparing it takes a hundredth of the time of a search for
    # secrets, and every reported error calls this function.
    variables: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
    hidden, known, found = _last_secrets
    if variables != known or _hidden != hidden:
        found = frozenset(secrets_of(_hidden) | secrets_of(os.environ))
        _last_secrets = dict(_hidden), dict(variables), found
    return found


_last_secrets: tuple[dict[str, str], dict[Any, Any], frozenset[str]] = ({}, {}, frozenset())


def secrets_of(variables: Mapping[str, str]) -> set[str]:
    """Return the values of variables with names of secrets, such as those for a child process."""
    return {
        value
        for name, value in variables.items()
        if len(value) >= MIN_SECRET_CHARACTERS and _SECRET_NAMES.search(name)
    }


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name probably holds a secret."""
    return _SECRET_NAMES.search(name) is not None


# ------------------------------------------------------------------ keys and names


def api_key() -> str | None:
    """Return the key that a server requires of orchestrators, and that clients send."""
    return _secret("OPENENV_API_KEY")


def api_key_file() -> str | None:
    """Return the file of a server's keys."""
    return _secret("OPENENV_API_KEY_FILE")


def public_schema() -> bool:
    """Return whether a server with keys shows the schema to clients without a key."""
    return _truthy("OPENENV_PUBLIC_SCHEMA")


def model_key(api: str) -> str | None:
    """Return the key for models behind an API, ``openai`` or ``anthropic``."""
    return os.environ.get(MODEL_KEY_VARIABLES[api]) or None


def teacher_key(api: str) -> str | None:
    """Return the key of a teacher model: the API's own key, or the key for any model."""
    return model_key(api) or os.environ.get("API_KEY") or None


def upstream_model_key() -> str | None:
    """Return the key for the model behind a capture proxy."""
    return _secret("OPENENV_LLM_API_KEY")


def capture_admin_key() -> str | None:
    """Return the key of the program that creates and reads the sessions of a capture proxy."""
    return _secret("OPENENV_CAPTURE_ADMIN_KEY")


def use_api_key_file(path: str) -> None:
    """Make servers of this process and of child processes use a file of keys."""
    os.environ["OPENENV_API_KEY_FILE"] = os.path.abspath(path)


def without_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without keys, for a child process."""
    return {name: value for name, value in environ.items() if name not in KEY_VARIABLES}


def hide_keys() -> None:
    """Remove the keys from the environment variables, where child processes and readers of
    ``/proc`` would find them. This process remembers the keys.
    """
    for name in KEY_VARIABLES:
        if name in os.environ:
            _hidden[name] = os.environ[name]
            _overwrite(name)
            del os.environ[name]


def _secret(name: str) -> str | None:
    return os.environ.get(name) or _hidden.get(name)


def _overwrite(name: str) -> None:
    """Overwrite a variable's memory, which ``/proc`` shows; deletion only removes a pointer."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):  # a system without getenv
        getenv = ctypes.CDLL(None).getenv
        getenv.argtypes, getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
        address = getenv(name.encode())
        if address:
            ctypes.memset(address, 0, len(ctypes.string_at(address)))


def allowed_origins() -> frozenset[str]:
    """Return the origins of foreign web pages that may use a server."""
    return _listed("OPENENV_ALLOWED_ORIGINS")


def allowed_hosts() -> frozenset[str]:
    """Return the host names of a server on loopback, in addition to those of this machine."""
    return _listed("OPENENV_ALLOWED_HOSTS")


def ca_file() -> str | None:
    """Return the file of certificates by which clients verify servers; None means the system's."""
    return os.environ.get("OPENENV_CA_FILE") or None


def _listed(name: str) -> frozenset[str]:
    words = os.environ.get(name, "").lower().split(",")
    return frozenset(word.strip().rstrip("/") for word in words if word.strip())


def _truthy(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in ("1", "true", "yes")
