"""The contract between a client and a provider, which starts servers of environments.

Providers start isolated servers and return their base URLs. A new runtime therefore needs no change
to the code that drives environments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Protocol

from typing_extensions import Self

__all__ = [
    "FRESH_KEY",
    "Capabilities",
    "ContainerProvider",
    "FreshKey",
    "Provider",
    "Replicated",
    "RuntimeProvider",
]

Isolation = Literal["process", "container", "pod", "virtual machine", "hosted sandbox"]
Orphans = Literal["end at once", "end at the next start", "end when their time is over", "stay"]


@dataclass(frozen=True)
class Capabilities:
    """What a provider guarantees for servers with default options, and what each server can do.

    Attributes:
        isolation: The boundary between a server and the machine.
        own_files: A server can read only the files of the machine that were passed to it.
        read_only: A server can write only to in-memory directories.
        unprivileged: A server has no administrator rights and cannot gain any.
        networks: The networks that a server can have, the default first; see the provider's
            options.
        limits: The resources that can be limited: memory, cpu, processes, files, disk.
        fresh_keys: Each server has its own key, which no other user of the machine can read.
        many: One provider can hold any number of servers at once.
        detects_exit: The provider notices when a server ends, and reports its last lines of output.
        has_logs: A server's output can be read.
        can_execute: Commands can be run next to a server; see `Server.execute`.
        orphans: What happens to a server if the process that started it is killed.
    """

    isolation: Isolation
    own_files: bool = False
    read_only: bool = False
    unprivileged: bool = False
    networks: tuple[str, ...] = ("host",)
    limits: tuple[str, ...] = ()
    fresh_keys: bool = False
    many: bool = False
    detects_exit: bool = False
    has_logs: bool = False
    can_execute: bool = False
    orphans: Orphans = "stay"


class FreshKey(Enum):
    """Stands for a new key for each server."""

    FRESH_KEY = "FRESH_KEY"

    def __repr__(self) -> str:
        return self.name


FRESH_KEY = FreshKey.FRESH_KEY


class ContainerProvider(ABC):
    """Starts servers from container images."""

    @abstractmethod
    def start_container(
        self,
        image: str,
        port: int | None = None,
        env_vars: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Start a container and return the base URL of the server.

        Args:
            image: The image's name.
            port: The port on this host; None chooses a free port.
            env_vars: Environment variables of the container.
            **kwargs: Provider-specific options. Unknown options raise a TypeError.

        Raises:
            ProviderError: The container could not be started.
        """

    @abstractmethod
    def stop_container(self) -> None:
        """Stop and remove the container. Safe to repeat."""

    @abstractmethod
    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        """Wait until the server answers `/health`.

        Raises:
            ProviderExited: The container ended.
            ProviderTimeout: The server did not answer within `timeout_s` seconds.
        """

    def close(self) -> None:  # noqa: B027 - most providers hold nothing
        """Release the resources of the provider itself. Safe to repeat."""

    def check_running(self) -> None:  # noqa: B027 - most providers cannot know
        """Raise an error if the server is known to have ended.

        Raises:
            ProviderExited: The server has ended by itself.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_container()
        self.close()


class RuntimeProvider(ABC):
    """Starts a server that is fixed when the provider is created."""

    @abstractmethod
    def start(
        self, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str:
        """Start the server and return the base URL.

        Args:
            port: The port on this host; None chooses a free port.
            env_vars: Environment variables of the server.
            **kwargs: Provider-specific options. Unknown options raise a TypeError.

        Raises:
            ProviderError: The server could not be started, or is already running.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the server and everything that the server started. Safe to repeat."""

    @abstractmethod
    def wait_for_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until the server answers `/health`.

        Raises:
            ProviderExited: The process ended.
            ProviderTimeout: The server did not answer within `timeout_s` seconds.
        """

    def check_running(self) -> None:  # noqa: B027 - most providers cannot know
        """Raise an error if the server is known to have ended.

        Raises:
            ProviderExited: The server has ended by itself.
        """

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Replicated(Protocol):
    """A provider that can be configured for a number of servers.

    Attributes:
        replicas: The number of servers, or None if not configured.
    """

    @property
    def replicas(self) -> int | None: ...


Provider = ContainerProvider | RuntimeProvider
