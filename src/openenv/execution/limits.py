"""Limits of a server: times, lengths and sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from openenv import settings


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    Attributes:
        resume_grace_s: Seconds for which the sessions of a broken connection are kept for the
            client; 0 closes them at once. Version 1 only.
        max_queue: Number of sessions that may wait while all slots are taken. Version 1 only.
        max_queue_s: Maximum seconds that a session may wait, whatever its client asks for.
        max_message_bytes: Size limit of a received message and of an answer.
        max_unread_bytes: Bytes that a client may leave unread, beyond a single message, before it
            is disconnected.
        drain_s: Seconds for running calls to end when the server is told to stop. Docker allows
            10 s in all.
        dead_peer_s: Seconds after which a connection breaks if the other end and its operating
            system are silent; 0 waits forever. However long a policy thinks, its operating system
            answers.
        close_s: Seconds that an environment has, when its session is closed, to end its call and
            to close. After that a coroutine is canceled, and a worker process is ended if no
            caller waits for any of its calls; 0 waits forever.

    Raises:
        ValueError: A limit is negative or not a number.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import Limits, create_app
        >>> app = create_app(EchoEnvironment, limits=Limits(max_message_bytes=1_000_000))
    """

    resume_grace_s: float = 120.0
    max_queue: int = 16_384
    max_queue_s: float = 3600.0
    max_message_bytes: int = 100 * 2**20
    max_unread_bytes: int = 64 * 2**20
    drain_s: float = 5.0
    dead_peer_s: float = 60.0
    close_s: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"{field.name} is {value!r}; it must be a number from 0")

    @classmethod
    def of_settings(cls) -> Limits:
        """Return the limits that environment variables set; see `openenv.settings`.

        Raises:
            ValueError: A variable holds no valid number.
        """
        given = {field.name: settings.limit(field.name) for field in fields(cls)}
        chosen = {name: value for name, value in given.items() if value is not None}
        return cls(**chosen)  # type: ignore[arg-type]
