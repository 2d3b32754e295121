"""A client without models: actions and observations are dictionaries."""

from __future__ import annotations

from typing import Any

from openenv.client.client import EnvClient
from openenv.types import StepResult

__all__ = ["GenericAction", "GenericEnvClient"]


class GenericAction(dict[str, Any]):
    """A dictionary of action fields: ``GenericAction(code="print(1)")``.

    Example:
        >>> from openenv import GenericAction
        >>> GenericAction(code="print(1)")["code"]
        'print(1)'
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)

    def __repr__(self) -> str:
        return f"GenericAction({', '.join(f'{k}={v!r}' for k, v in self.items())})"


class GenericEnvClient(EnvClient[dict[str, Any], dict[str, Any], dict[str, Any]]):
    """A client of any environment without its package: everything is a dictionary.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import GenericEnvClient
        >>> with GenericEnvClient.local(EchoEnvironment).sync() as env:
        ...     result = env.reset()
        ...     env.step({"message": "hello"}).observation["echoed_message"]
        'hello'
    """

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[dict[str, Any]]:
        return StepResult(
            payload.get("observation", {}),
            payload.get("reward"),
            payload.get("done", False),
            payload.get("metadata"),
        )

    def _parse_state(self, payload: dict[str, Any]) -> dict[str, Any]:
        return payload
