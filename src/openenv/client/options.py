"""The keyword options for connecting to environments, each declared once.

`openenv.EnvClient` and `openenv.VectorEnv` document the options and set the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from openenv.client.client import EnvClient
    from openenv.client.vector import AutoresetMode
    from openenv.protocol.v1.messages import Queued
    from openenv.rewards.credit import Credit
    from openenv.rewards.delayed import TrajectoryScorer


class ConnectionLimits(TypedDict, total=False):
    """Options that every client also takes by position."""

    connect_timeout_s: float
    message_timeout_s: float | None
    max_message_size_mb: float
    headers: Mapping[str, str] | None


class ConnectionOptions(TypedDict, total=False):
    """Options that every client has."""

    queue_timeout_s: float | None
    record: bool
    api_key: str | None
    ca_file: str | None


class SessionOptions(ConnectionOptions, total=False):
    """Keyword options of a client with one session."""

    on_queue: Callable[[Queued], None] | None
    journal: bool
    trajectory_scorer: TrajectoryScorer | None
    credit: str | Credit
    share_connection: bool


class ClientOptions(SessionOptions, ConnectionLimits, total=False):
    """Options of `openenv.EnvClient`."""

    websocket_ping_interval_s: float | None
    websocket_ping_timeout_s: float | None
    mode: str | None


class BatchOptions(ConnectionOptions, ConnectionLimits, total=False):
    """Options of `openenv.VectorEnv` and of every view of one."""

    client: type[EnvClient[Any, Any, Any]]
    stack: bool
    batch_size: int | None
    connections: int | None
    on_queue: Callable[[int, Queued], None] | None


class VectorOptions(BatchOptions, total=False):
    """Options of `openenv.VectorEnv`."""

    autoreset_mode: AutoresetMode | str
