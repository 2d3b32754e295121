"""The environment variables of a chess server.

| variable | meaning | default |
| --- | --- | --- |
| `CHESS_OPPONENT` | `moonfish`, `random`, `self`, or the path of a UCI engine | `moonfish` |
| `CHESS_OPPONENT_DEPTH` | half-moves that a searching opponent looks ahead | 2 |
| `CHESS_MAX_MOVES` | half-moves of both sides until an episode is truncated | 500 |
| `CHESS_AGENT_COLOR` | `white` or `black` | by seed |
| `CHESS_GAMMA` | the discount of earlier moves | 0.99 |
| `CHESS_ENGINE_TIMEOUT_S` | seconds within which a UCI engine must move | 30 |
| `MAX_CONCURRENT_ENVS` | sessions at once | 64 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .chess_environment import ChessEnvironment

__all__ = ["make_environment_factory", "max_concurrent_envs"]

_ARGUMENTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "CHESS_OPPONENT": ("opponent", str),
    "CHESS_OPPONENT_DEPTH": ("opponent_depth", int),
    "CHESS_MAX_MOVES": ("max_moves", int),
    "CHESS_AGENT_COLOR": ("agent_color", str),
    "CHESS_GAMMA": ("gamma", float),
    "CHESS_ENGINE_TIMEOUT_S": ("engine_timeout_s", float),
}


def make_environment_factory(environ: Mapping[str, str]) -> partial[ChessEnvironment]:
    """Return a factory of environments with the options of the variables.

    An empty variable counts as not set.

    Raises:
        ValueError: A variable has a wrong value; the message names the variable.
    """
    arguments: dict[str, Any] = {}
    for variable, (name, convert) in _ARGUMENTS.items():
        if environ.get(variable):
            arguments[name] = _convert(environ, variable, convert)
            _check_argument(variable, {name: arguments[name]})
    return partial(ChessEnvironment, **arguments)


def max_concurrent_envs(environ: Mapping[str, str]) -> int | None:
    """Return the maximum number of sessions; None is the server's default."""
    if not environ.get("MAX_CONCURRENT_ENVS"):
        return None
    return int(_convert(environ, "MAX_CONCURRENT_ENVS", int))


def _convert(environ: Mapping[str, str], variable: str, convert: Callable[[str], Any]) -> Any:
    try:
        return convert(environ[variable])
    except ValueError:
        kind = "an integer" if convert is int else "a number"
        raise ValueError(f"{variable} must be {kind}, not {environ[variable]!r}") from None


def _check_argument(variable: str, argument: dict[str, Any]) -> None:
    """Make an environment, so that a wrong setting stops the server, not each session."""
    try:
        ChessEnvironment(**argument).close()
    except ValueError as error:
        raise ValueError(f"{variable}: {error}") from error
