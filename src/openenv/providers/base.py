"""The contract between a client and whatever starts servers of environments.

A provider starts one isolated server and returns its base URL, so that any runtime can be
added; what drives the environment does not change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
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
    """What a provider guarantees of the servers that it starts, and what can be asked of it.

    All of it holds by default, where nobody has asked for less.

    Attributes:
        isolation: What stands between a server and the machine.
        own_files: A server sees no files of the machine but those that it is given.
        read_only: It can write to nothing but directories in memory.
        unprivileged: It has no rights of an administrator, and can get none.
        networks: What its network may be, the default first; see the provider.
        limits: What of the machine it can be given a share of: memory, cpu, processes, files, disk.
        fresh_keys: Each server wants a key of its own, which no other user of the machine can read.
        many: One provider holds any number of servers at once.
        detects_exit: A server that ends is noticed, and its last lines are told.
        has_logs: What a server prints can be read.
        can_execute: Commands can be run beside a server.
        orphans: What becomes of servers whose holder was killed.
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
    """Stands for a key that is made anew for each server."""

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
        """Start a container and return the base URL of its server.

        Args:
            image: The image's name.
            port: The port on this host; None chooses a free one.
            env_vars: Environment variables of the container.
            **kwargs: The provider's own options; unknown ones are refused.

        Raises:
            ProviderError: It could not be started.
        """

    @abstractmethod
    def stop_container(self) -> None:
        """Stop and remove the container. Safe to repeat."""

    @abstractmethod
    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        """Wait until the server answers `/health`.

        Raises:
            ProviderExited: The container ended.
            ProviderTimeout: It did not answer within `timeout_s` seconds.
        """

    def close(self) -> None:  # noqa: B027 - most providers hold nothing
        """Release what the provider itself holds. Safe to repeat."""

    def check_running(self) -> None:  # noqa: B027 - most providers cannot know
        """Raise what ended the server, where that is known; do nothing otherwise.

        Raises:
            ProviderExited: It has ended by itself.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop_container()
        self.close()


class RuntimeProvider(ABC):
    """Starts the server it was made for."""

    @abstractmethod
    def start(
        self, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str:
        """Start the server and return its base URL.

        Args:
            port: The port on this host; None chooses a free one.
            env_vars: Environment variables of the server.
            **kwargs: The provider's own options; unknown ones are refused.

        Raises:
            ProviderError: It could not be started, or is already running.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the server and everything that it started. Safe to repeat."""

    @abstractmethod
    def wait_for_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until the server answers `/health`.

        Raises:
            ProviderExited: Its process ended.
            ProviderTimeout: It did not answer within `timeout_s` seconds.
        """

    def check_running(self) -> None:  # noqa: B027 - most providers cannot know
        """Raise what ended the server, where that is known; do nothing otherwise.

        Raises:
            ProviderExited: It has ended by itself.
        """

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class Replicated(Protocol):
    """A provider that may be made for a number of servers.

    Attributes:
        replicas: How many; None where it was not said.
    """

    @property
    def replicas(self) -> int | None: ...


Provider = ContainerProvider | RuntimeProvider
