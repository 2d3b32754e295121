"""Sessions for a run, opened from anything that names or creates an environment.

Each place of a run has its own session, which is reset from episode to episode.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from openenv._internal.addresses import over_http
from openenv._internal.net.proxies import proxy_for
from openenv._internal.redaction import redact
from openenv._internal.targets import TargetKind, parse_target
from openenv.client import background
from openenv.client.client import EnvClient
from openenv.client.generic import GenericEnvClient
from openenv.client.internals import internals
from openenv.client.launch import _is_asgi, choosing_launch
from openenv.client.sync import SyncEnvClient
from openenv.environment import Environment
from openenv.errors import (
    CapacityError,
    ConnectError,
    NotSupported,
    OpenEnvError,
    RateLimited,
    ResponseTimeout,
    SessionLost,
)
from openenv.execution.spec import class_made_by
from openenv.protocol.v1.messages import Queued
from openenv.reward import RewardSpec
from openenv.rollouts.episodes import EpisodeConfig, play
from openenv.rollouts.interfaces import (
    Interface,
    ask_application,
    derive_interface,
    fetch_interface,
    fetch_reward_spec,
)
from openenv.rollouts.jobs import RolloutJob
from openenv.rollouts.records import Rollout
from openenv.server.workers import managers_of
from openenv.tasks.load import load_tasks
from openenv.tasks.task import TasksetError
from openenv.tasks.taskset import Taskset

logger = logging.getLogger(__name__)

Client = EnvClient[Any, Any, Any]
OnQueue = Callable[[Queued], None]


class EpisodeSource(ABC):
    """Opens the sessions of a run, and plays episodes in them.

    Attributes:
        name: The environment's name; secrets in an address are hidden.
        room: Number of sessions that the server holds, once a session was opened; None if it does
            not report this: a server of protocol version 0, a gateway, worker processes that share
            an address, and a pool, of which a session sees one server of several.
    """

    name: str
    room: int | None = None

    async def reward(self) -> RewardSpec | None:
        """Return the environment's declaration of rewards; None if not known yet."""
        return None

    @abstractmethod
    async def open(self) -> Any:
        """Open a session on the running loop.

        Raises:
            OpenEnvError: No session can be opened.
        """

    @abstractmethod
    async def close(self, session: Any) -> None:
        """Close a session that `open` returned."""

    async def interface(self, session: Any) -> Interface:
        """Return the interface by which an agent acts in the environment.

        Raises:
            OpenEnvError: The environment does not describe its actions.
        """
        raise NotSupported(f"{self.name} does not tell how one acts in it", feature="tools")

    @abstractmethod
    async def play(
        self, session: Any, job: RolloutJob, config: EpisodeConfig, press: Callable[[str], None]
    ) -> tuple[Rollout, bool]:
        """Play an episode in a session; see `openenv.rollouts.episodes.play`.

        Raises:
            AttemptFailed: The attempt has failed.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close the sessions that are still open, and everything that was started."""


class Sessions(EpisodeSource):
    """Opens sessions with clients of an environment.

    Args:
        name: The environment's name; secrets in an address are hidden.
        make: Creates an unconnected client, or returns an awaitable of a connected one.
        source: The environment class or ASGI application that runs in this process.
        close: Called at the end.
        asked: A client whose server is asked for data that needs no session.
        is_spread: True if the sessions are on several servers.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Client | Awaitable[Client]],
        source: Any = None,
        close: Callable[[], Any] | None = None,
        asked: Client | None = None,
        is_spread: bool = False,
    ) -> None:
        self._is_spread = is_spread
        self.name = redact(name)
        self._make = make
        self._source = source
        self._close = close
        self._asked = asked
        self._homed: set[int] = set()
        self._opened: dict[int, Client] = {}

    async def reward(self) -> RewardSpec | None:
        """Return the environment's declaration of rewards; None if unknown before the first reset.
        An unreachable server is reported when sessions are opened.

        Raises:
            ConnectError: A proxy did not answer, and would not answer when sessions are opened.
        """
        if self._source is not None:
            managers = managers_of(self._source) if _is_asgi(self._source) else []
            if managers:
                return managers[0].spec.reward
            declared = getattr(class_made_by(self._source), "REWARD", None)
            return declared if isinstance(declared, RewardSpec) else None
        client = self._asked
        if client is None or client.base_url is None or internals(client).open_transport:
            return None
        try:
            return await fetch_reward_spec(client)
        except ConnectError:
            if proxy_for(over_http(client.base_url)) is not None:
                raise
            return None

    async def open(self) -> Client:
        made = self._make()
        client = made if isinstance(made, EnvClient) else await made
        self._opened[id(client)] = client
        try:
            if client is made:
                loop = background.running_loop()
                assert loop is not None
                if background.is_shared(loop):
                    await client.connect()
                else:
                    await client.__aenter__()
                    self._homed.add(id(client))
            self.room = None if self._is_spread else internals(client).session.room
            await _have_place(client)
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self.close(client)))
            raise
        return client

    async def close(self, session: Client) -> None:
        self._opened.pop(id(session), None)
        if id(session) in self._homed:
            self._homed.discard(id(session))
            await session.__aexit__(None, None, None)
        else:
            await session.close()

    async def interface(self, session: Client) -> Interface:
        if self._source is not None and _is_asgi(self._source):
            return await ask_application(self._source)
        url = session.base_url
        if self._source is None and url is not None and internals(session).open_transport is None:
            return await fetch_interface(session)
        return await derive_interface(self._source, session)

    async def look_up_interface(self) -> Interface:
        """Look up the environment's interface, in a session that is opened only for this."""
        client = await self.open()
        try:
            return await self.interface(client)
        finally:
            await self.close(client)

    async def play(
        self, session: Client, job: RolloutJob, config: EpisodeConfig, press: Callable[[str], None]
    ) -> tuple[Rollout, bool]:
        """Let the policy of a run play an episode in a session.

        Raises:
            AttemptFailed: The attempt has failed.
        """
        return await play(session, job, config, press)

    async def aclose(self) -> None:
        for client in list(self._opened.values()):
            with contextlib.suppress(OpenEnvError, OSError):
                await self.close(client)
        if self._close is not None:
            closing = self._close()
            if inspect.isawaitable(closing):
                await closing


async def _have_place(client: Client) -> None:
    """Wait for a slot: a connection gets one with its first request, so send a harmless one."""
    try:
        await client.state()
    except (CapacityError, ConnectError, SessionLost, ResponseTimeout, RateLimited):
        raise
    except Exception as error:  # an environment may have no state yet
        logger.debug("the state before the first reset cannot be had: %s", error)


async def sessions_of(environment: Any, on_queue: OnQueue) -> Sessions:
    """Return the sessions of an environment.

    Args:
        environment: The environment of a run; see `openenv.rollouts.rollout`.
        on_queue: Called when a session waits in the server's queue, if the server reports it.

    Raises:
        TypeError: `environment` is not an environment.
        TargetError: The string names no environment.
    """
    if isinstance(environment, str):
        target = parse_target(environment)
        if target.kind is TargetKind.IMAGE:
            launch = choosing_launch(target.name, {})
            await launch.start()  # one container, which is stopped at the end
            return _of_address(environment, launch.base_url, on_queue, launch.stop)
        if target.kind is TargetKind.SERVER:
            return _of_address(environment, environment, on_queue)
        source, client = _installed(environment)
        return _in_process(environment, source, client, on_queue)
    if isinstance(environment, SyncEnvClient):
        environment = environment.async_client
    if isinstance(environment, EnvClient):
        name = environment.base_url or type(environment).__name__
        return Sessions(name, environment.new_session, asked=environment)
    if hasattr(environment, "lease"):
        return Sessions(type(environment).__name__, environment.lease, is_spread=True)
    if isinstance(environment, type) and issubclass(environment, EnvClient):
        raise TypeError(
            f"{environment.__name__} alone does not say where its server is; pass a client, "
            f"{environment.__name__}(base_url=...), or a function that makes one"
        )
    if _is_asgi(environment):
        return _in_process(type(environment).__name__, environment, GenericEnvClient, on_queue)
    if not callable(environment):
        raise TypeError(
            f"{environment!r:.100} is no environment; expected an address, what `openenv serve` "
            "takes, an environment class, a client or a function that makes one, or an EnvPool"
        )
    made = class_made_by(environment)
    if made is None or not issubclass(made, Environment | EnvClient):
        return await _of_function(environment, on_queue)
    if issubclass(made, EnvClient):
        make: Callable[[], Any] = environment
        return Sessions(made.__name__, make, is_spread=True)  # each may have its own server
    return _in_process(made.__name__, environment, GenericEnvClient, on_queue)


def _in_process(name: str, source: Any, client: type[Client], on_queue: OnQueue) -> Sessions:
    root = client.local(source, on_queue=on_queue)
    return Sessions(name, root._sibling, source, root.close)


async def _of_function(make: Callable[[], Any], on_queue: OnQueue) -> Sessions:
    """Return the sessions of a function, by the type of the first object that it creates."""
    first = make()
    name = getattr(make, "__qualname__", type(first).__name__)
    if isinstance(first, EnvClient):
        waiting = [first]
        return Sessions(name, lambda: waiting.pop() if waiting else make(), is_spread=True)
    if hasattr(first, "close"):
        closing = first.close()
        if inspect.isawaitable(closing):
            await closing
    return _in_process(name, make, GenericEnvClient, on_queue)


def _of_address(
    name: str, url: str | None, on_queue: OnQueue, close: Callable[[], Any] | None = None
) -> Sessions:
    asked = GenericEnvClient(url)
    return Sessions(name, lambda: GenericEnvClient(url, on_queue=on_queue), None, close, asked)


def _installed(text: str) -> tuple[Any, type[Client]]:
    """Return the target that a string names, and the class of its clients."""
    from openenv.hub.discovery import get_discovery
    from openenv.server.loading import load_target

    if parse_target(text).kind is TargetKind.INSTALLED:
        info = get_discovery().get_environment_by_name(text)
        if info is not None:
            return load_target(info.module), info.get_client_class()
    return load_target(text), GenericEnvClient


@contextlib.contextmanager
def own_tasks(environment: str, split: str | None) -> Iterator[Taskset]:
    """Yield an environment's own tasks, while the environment is open.

    Args:
        environment: An address, or any other string that `rollout` accepts.
        split: The split. Default: the only one.

    Raises:
        NotSupported: The environment has no tasks.
        TasksetError: The split does not exist, or there are several and `split` is None.
    """
    target = parse_target(environment)
    if target.kind is TargetKind.IMAGE:
        made = GenericEnvClient.from_docker_image(target.name)
    elif target.kind is TargetKind.SERVER:
        made = GenericEnvClient(environment)
    else:
        made = GenericEnvClient.local(_installed(environment)[0])
    with made.sync() as client:
        try:
            tasks = load_tasks(client, split=split)
        except TasksetError as error:
            why = str(error).removeprefix(f"{error.source}: ")
            raise TasksetError(redact(environment), None, why) from error
        yield tasks
