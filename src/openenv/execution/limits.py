"""Limits of a server: times, lengths and sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from openenv import settings


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    Attributes:
        resume_grace_s: Seconds for which the sessions of a client whose connection broke are kept
            for it; 0 closes them at once. Version 1 only.
        max_queue: Sessions that may wait to be opened while all slots are taken. Version 1 only.
        max_queue_s: Seconds that one may wait, whatever its client asks for.
        max_message_bytes: Largest message that is taken, and largest answer that is sent.
        max_unread_bytes: How much a client may leave unread, beyond a single message, before it
            is disconnected.
        drain_s: Seconds that calls which are under way have to end in, when the server is told to
            stop; docker gives it 10 in all.
        dead_peer_s: Seconds after which a connection breaks whose other end has been silent, and
            its operating system too; 0 waits for ever. However long a policy thinks, its system
            answers.
        close_s: Seconds that an environment whose session is being closed has to end its call and
            to close in. Then a coroutine is cancelled, and a worker process is ended in which
            nobody waits for anything; 0 waits for ever.

    Raises:
        ValueError: One of them is negative, or no number.

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
        """Read the limits that environment variables set; see `openenv.settings`.

        Raises:
            ValueError: A variable holds no number.
        """
        given = {field.name: settings.limit(field.name) for field in fields(cls)}
        chosen = {name: value for name, value in given.items() if value is not None}
        return cls(**chosen)  # type: ignore[arg-type]
