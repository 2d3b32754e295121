"""The environment variables of a terminal server.

| variable | meaning | default |
| --- | --- | --- |
| `TERMINAL_REQUIRE` | the required guarantee: `process`, `namespaces`, `kernel` | `namespaces` |
| `TERMINAL_SANDBOX` | a kind of sandbox: `gvisor`, `bubblewrap`, `landlock` | the strongest |
| `TERMINAL_NETWORK` | hosts that may be reached, as `pypi.org:443,*.pythonhosted.org:443` | none |
| `TERMINAL_MEMORY_MB` | memory of a sandbox, in MiB | `512` |
| `TERMINAL_DISK_MB` | disk space of the home directory, and of `/tmp`, in MiB | `128` |
| `TERMINAL_PROCESSES` | processes of a sandbox at once | `64` |
| `TERMINAL_TIMEOUT_S` | seconds for a command if the action sets no time | `30` |
| `TERMINAL_OUTPUT_BYTES` | maximum output in an observation | `32768` |
| `TERMINAL_ROWS`, `TERMINAL_COLUMNS` | size of the terminal | `40`, `120` |
| `TERMINAL_TASKS` | a JSONL file, or a folder, of tasks | the bundled ones |
| `TERMINAL_WARM_SANDBOXES` | sandboxes kept ready | `2` |
| `MAX_CONCURRENT_ENVS` | sessions at once | `64` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from openenv.sandbox import SandboxPolicy
from openenv.sandbox.policy import MIB

__all__ = ["Settings", "max_concurrent_envs", "read_settings"]

# Programs with a pager print everything instead of waiting for a key, and git does not look for the
# machine's configuration, which may be missing or unreadable.
ENVIRONMENT = {"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "GIT_CONFIG_NOSYSTEM": "1"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a terminal server.

    Attributes:
        require: The guarantee that the sandbox must give.
        sandbox: A kind of sandbox; None for the strongest one.
        policy: The limits of the shell and of all processes that it starts.
        timeout_s: Seconds for a command if the action sets no time.
        output_bytes: Maximum output in an observation.
        rows: Rows of the terminal.
        columns: Columns of the terminal.
        warm_sandboxes: The number of sandboxes kept ready.

    Raises:
        ValueError: A number is out of its range.
    """

    require: str = "namespaces"
    sandbox: str | None = None
    policy: SandboxPolicy = field(default_factory=lambda: SandboxPolicy(environment=ENVIRONMENT))
    timeout_s: float = 30.0
    output_bytes: int = 2**15
    rows: int = 40
    columns: int = 120
    warm_sandboxes: int = 2

    def __post_init__(self) -> None:
        least = {"rows": 1, "columns": 20, "warm_sandboxes": 0, "output_bytes": 256}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in least and value < least[one.name]:
                raise ValueError(f"{one.name} is {value}; it must be {least[one.name]} or more")
        if not 0 < self.timeout_s <= 86400:
            raise ValueError(f"timeout_s is {self.timeout_s}; it must be above 0 and at most 86400")


_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "TERMINAL_REQUIRE": ("require", str),
    "TERMINAL_SANDBOX": ("sandbox", str),
    "TERMINAL_TIMEOUT_S": ("timeout_s", float),
    "TERMINAL_OUTPUT_BYTES": ("output_bytes", int),
    "TERMINAL_ROWS": ("rows", int),
    "TERMINAL_COLUMNS": ("columns", int),
    "TERMINAL_WARM_SANDBOXES": ("warm_sandboxes", int),
}


def _parse_mib(text: str) -> int:
    return int(text) * MIB


def _parse_hosts(text: str) -> tuple[str, ...]:
    return tuple(host.strip() for host in text.split(",") if host.strip())


_POLICY: dict[str, tuple[str, Callable[[str], Any]]] = {
    "TERMINAL_MEMORY_MB": ("memory_bytes", _parse_mib),
    "TERMINAL_DISK_MB": ("disk_bytes", _parse_mib),
    "TERMINAL_PROCESSES": ("processes", int),
    "TERMINAL_NETWORK": ("network", _parse_hosts),
}


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the settings from environment variables. An empty variable counts as not set.

    Raises:
        ValueError: A variable has a wrong value; the message names the variable.
    """
    settings = Settings()
    for variable, (name, convert) in _SETTINGS.items():
        if environ.get(variable):
            settings = _apply(settings, variable, name, environ[variable], convert)
    policy = settings.policy
    for variable, (name, convert) in _POLICY.items():
        if environ.get(variable):
            policy = _apply(policy, variable, name, environ[variable], convert)
    return replace(settings, policy=policy)


def max_concurrent_envs(environ: Mapping[str, str]) -> int | None:
    """Return the maximum number of sessions; None is the server's default."""
    text = environ.get("MAX_CONCURRENT_ENVS")
    return _convert("MAX_CONCURRENT_ENVS", text, int) if text else None


def _apply(of: Any, variable: str, name: str, text: str, convert: Callable[[str], Any]) -> Any:
    value = _convert(variable, text, convert)
    try:
        return replace(of, **{name: value})
    except ValueError as error:
        raise ValueError(f"{variable}: {error}") from None


def _convert(variable: str, text: str, convert: Callable[[str], Any]) -> Any:
    try:
        return convert(text)
    except ValueError:
        kind = "a number" if convert is float else "an integer"
        raise ValueError(f"{variable} must be {kind}, not {text!r}") from None
