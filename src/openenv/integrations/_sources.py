"""Connections to the environments that integrations wrap, and the schemas of their models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from openenv._internal.models import wire_schema
from openenv._internal.targets import TargetKind, parse_target
from openenv.client import EnvClient, GenericEnvClient, SyncEnvClient, codec
from openenv.client.internals import internals
from openenv.client.options import ClientOptions, VectorOptions
from openenv.client.schema import fetch_schema
from openenv.client.transports.websocket import WebSocketOptions
from openenv.client.vector import VectorEnv
from openenv.errors import ConnectError, OpenEnvError
from openenv.execution.spec import EnvironmentSpec, class_made_by
from openenv.providers.base import Provider
from openenv.types import StepResult

Source: TypeAlias = (
    "str | Provider | EnvClient[Any, Any, Any] | SyncEnvClient[Any, Any, Any] | Callable[..., Any]"
)
SCHEMA_TIMEOUT_S = 10.0
IN_THIS_PROCESS = "local:"


class UnscoredStep(OpenEnvError, ValueError):
    """A step was not scored; Gymnasium and similar libraries need a number as reward.

    Attributes:
        result: The step's result. The episode continues.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        self.result = result
        super().__init__(message)


class Schemas(NamedTuple):
    """JSON schemas of an environment's models; None for an unknown schema."""

    action: Mapping[str, Any] | None
    observation: Mapping[str, Any] | None


class OpenedSource(NamedTuple):
    """A client that is connected to a source, and the schemas of its models."""

    client: SyncEnvClient[Any, Any, Any]
    schemas: Schemas


# ------------------------------------------------------------------ connecting


def open_source(source: Any, options: ClientOptions) -> OpenedSource:
    """Connect to a source; start a server if needed.

    Args:
        source: The environment to connect to; see `openenv.integrations.gymnasium.GymnasiumEnv`.
            An `OpenedSource` is returned unchanged.

    Raises:
        ConnectError: No server answers.
        ProviderError: The server did not start.
        TypeError: `source` is not an environment, or is a client and there are `options`.
    """
    if isinstance(source, OpenedSource):
        return source
    client = _client_of(source, options)
    try:
        if client.base_url is None:
            client.connect()
        connection = internals(client.async_client).options
        return OpenedSource(client, schemas_of(source, client.base_url, connection))
    except BaseException:
        client.close()
        raise


def _client_of(source: Any, options: ClientOptions) -> SyncEnvClient[Any, Any, Any]:
    if isinstance(source, SyncEnvClient | EnvClient):
        if options:
            raise TypeError(f"{sorted(options)} cannot be given to a client that there is already")
        return source if isinstance(source, SyncEnvClient) else source.sync()
    if _is_server(source):
        return GenericEnvClient(source, **options).sync()
    if (provider := _provider_of(source)) is not None:
        return GenericEnvClient(provider=provider, **options).sync()
    return GenericEnvClient.local(_maker_of(source), **options).sync()


def vector_of(
    source: Any, num_envs: int, options: VectorOptions
) -> tuple[VectorEnv, SyncEnvClient[Any, Any, Any] | None]:
    """Return a `VectorEnv` of a source, and the client that keeps its server running, if any."""
    if isinstance(source, SyncEnvClient | EnvClient):
        raise TypeError("a client is one session; give the address of its server, say")
    options = {"client": _Bare, **options}
    if _is_server(source):
        return VectorEnv(source, num_envs, **options), None
    if (provider := _provider_of(source)) is not None:
        keeper = GenericEnvClient(provider=provider).sync()
        try:
            keeper.connect()
            keeper.disconnect()
            return VectorEnv(keeper.base_url, num_envs, **options), keeper
        except BaseException:
            keeper.close()
            raise
    return VectorEnv.local(_maker_of(source), num_envs, **options), None


class _Bare(EnvClient[Any, Any, Any]):
    """A client without models and hooks, so that `VectorEnv` stacks results unchanged."""


def _is_server(source: Any) -> bool:
    return isinstance(source, str) and parse_target(source).kind is TargetKind.SERVER


def _provider_of(source: Any) -> Any:
    if isinstance(source, str):
        target = parse_target(source)
        if target.kind is TargetKind.IMAGE:
            from openenv.providers.choice import provider_for

            return provider_for(target.name, target.name)
        from openenv.providers.process import ProcessProvider

        return ProcessProvider(source)
    starts = hasattr(source, "start") or hasattr(source, "start_container")
    return source if starts and hasattr(source, "wait_for_ready") else None


def _maker_of(source: Any) -> Callable[..., Any]:
    if not callable(source):
        raise TypeError(
            f"{type(source).__name__} is no environment: expected an address, what `openenv serve` "
            "takes, a client, a provider, or an environment class"
        )
    made: Callable[..., Any] = source
    return made


# ------------------------------------------------------------------ schemas


def schemas_of(source: Any, base_url: str | None, options: WebSocketOptions) -> Schemas:
    """Return the schemas of a source.

    Args:
        base_url: The address of the source's server; None without a server.
        options: Connection options.

    Raises:
        ConnectError: No server answers, or the server does not provide the schemas.
    """
    if base_url is not None and not base_url.startswith(IN_THIS_PROCESS):
        told = fetch_schema(base_url, options, SCHEMA_TIMEOUT_S)
        if lacking := [name for name in ("action", "observation") if name not in told]:
            raise ConnectError(f"{base_url} tells no schema of the {' and the '.join(lacking)}")
        return Schemas(told["action"], told["observation"])
    if isinstance(source, SyncEnvClient | EnvClient):
        client = source.async_client if isinstance(source, SyncEnvClient) else source
        action, observation, _ = codec.models(type(client))
        return Schemas(_schema(action, "validation"), _schema(observation))
    if class_made_by(source) is None:  # an ASGI application, or a function without annotations
        return Schemas(None, None)
    spec = EnvironmentSpec.of(source)
    return Schemas(spec.action_schema(), _schema(spec.observation_cls))


def _schema(
    model: Any, mode: Literal["validation", "serialization"] = "serialization"
) -> dict[str, Any] | None:
    return None if model is None else wire_schema(model, mode)


# ------------------------------------------------------------------ rewards


def reward_of(result: StepResult[Any], unscored: float | None) -> float:
    """Return the reward of a step, or `unscored` for a step without a reward.

    Raises:
        UnscoredStep: The step has no reward, and `unscored` is None.
    """
    if result.reward is not None:
        return float(result.reward)
    if unscored is None:
        why = "its reward is None" if result.unscored is None else result.unscored
        raise UnscoredStep(
            f"the environment has not scored this step ({why}); unscored_reward=0.0, say, has such "
            "steps count as that",
            result,
        )
    return unscored
