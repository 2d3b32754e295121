"""`EnvClient`: one session of an environment, wherever the environment runs."""

from __future__ import annotations

import contextlib
import inspect
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, overload

from typing_extensions import Self, Unpack

from openenv._internal.addresses import server_root
from openenv._internal.lazy import asyncio, futures, lazy_module, logging
from openenv._internal.timing import raise_first
from openenv.client import background, codec
from openenv.client.connection import BEGINNINGS, RESET_HINT, connect_transport
from openenv.client.hybrid import (
    Pending,
    PendingClient,
    PendingState,
    PendingStep,
    PendingValue,
    Runnable,
    launch,
    resolve,
)
from openenv.client.session import CLOSED, ClientSession
from openenv.client.transports.base import Transport
from openenv.client.transports.websocket import WebSocketOptions, WebSocketTransport, websocket_url
from openenv.errors import ConnectError, ProtocolError, ServerError, SessionLost
from openenv.protocol.messages import ObservationReply, RenderReply, Reply, Request, StateReply
from openenv.protocol.renderings import check_can_render
from openenv.protocol.v1.codec import offered
from openenv.protocol.v1.messages import Queued
from openenv.settings import client_mode, protocol_version
from openenv.settings import queue_timeout_s as default_queue_s
from openenv.types import State, StepResult, set_elapsed_time

if TYPE_CHECKING:
    from openenv.arrays import Rendering
    from openenv.client import _sharing
    from openenv.client import agents as _agents
    from openenv.client import launch as _launches
    from openenv.client import snapshots as _snapshots
    from openenv.client.agents import AgentAccess
    from openenv.client.options import ClientOptions
    from openenv.client.replicas import Replicas
    from openenv.client.scoring import EpisodeScoring
    from openenv.client.sync import SyncEnvClient
    from openenv.client.tasks import ClientTasks
    from openenv.client.transports.asgi import ASGIApp
    from openenv.protocol.snapshots import Journal
    from openenv.providers.base import Provider, Replicated
    from openenv.reward import RewardSpec
    from openenv.rewards.credit import Credit
    from openenv.rewards.delayed import TrajectoryScorer
else:
    _agents = lazy_module("openenv.client.agents")
    _launches = lazy_module("openenv.client.launch")
    _sharing = lazy_module("openenv.client._sharing")
    _snapshots = lazy_module("openenv.client.snapshots")

__all__ = ["EnvClient"]

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")
PendingT = TypeVar("PendingT")

DROPPED = "nobody holds the client any more"


class _Tasks:
    """The attribute `EnvClient.tasks`, a `ClientTasks`; a subclass may reuse the name."""

    def __get__(self, client: EnvClient[Any, Any, Any], owner: Any = None) -> ClientTasks:
        if client is None:
            raise AttributeError("a client has tasks, its class has none")
        from openenv.client.tasks import ClientTasks

        return ClientTasks(client)


class EnvClient(Runnable, Generic[ActT, ObsT, StateT]):
    """A session of an environment. A typed client takes one line:

        class EchoEnv(EnvClient[EchoAction, EchoObservation, State]): ...

    Asynchronously, on the caller's event loop:

        async with EchoEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(seed=0)
            result = await env.step(EchoAction(message="hello"))

    Synchronously, from any thread:

        with EchoEnv(base_url="http://localhost:8000") as env:
            print(env.reset().observation)

    A client connects on first use. Its calls are carried out one at a time, in order, no matter
    which threads or tasks make them. `openenv.client.session` describes what happens when a
    connection is lost.

    Args:
        base_url: The server's address: ``http``, ``https``, ``ws``, ``wss`` or no scheme. The
            address of its web page or its WebSocket works too: ``ws://localhost:8000/ws``.
        connect_timeout_s: Seconds to wait for a connection.
        message_timeout_s: Seconds to wait for an answer; None for no limit.
        max_message_size_mb: Size limit of an answer, in MiB.
        websocket_ping_interval_s: Seconds between keepalive pings; None sends none.
        websocket_ping_timeout_s: Seconds to wait for a pong; None waits forever.
        provider: Starts the server on first use. Closing the client stops the server.
        mode: ``simulation`` or ``production``. Default: OPENENV_CLIENT_MODE.
        headers: Headers of the handshake, for example for a gateway.
        queue_timeout_s: Seconds to wait for a slot of a full server; 0 does not wait. Default:
            OPENENV_QUEUE_TIMEOUT_S, else 150. Protocol version 1 only.
        on_queue: Called with the session's place in the queue, a `Queued`, while the session waits
            for a slot. By default one warning is logged.
        journal: Keep what `snapshot(replay=True)` needs; see `keep_journal`.
        record: Ask the server to record this session, if it records on request.
        api_key: The server's key. Default: the key of the provider that started the server, else
            OPENENV_API_KEY. The key is sent to no other host.
        ca_file: Certificates (PEM) that ``https`` and ``wss`` servers are verified with. Default:
            OPENENV_CA_FILE, else the system's certificates.
        trajectory_scorer: Scores each episode as a whole, in the client. Called at the episode's
            end with the list of (action, observation); the last step gets the score as its reward,
            and the result's `step_rewards` hold each step's share. See `openenv.rewards.delayed`.
        credit: How the score is shared among the steps: ``terminal``, ``uniform``, ``discounted``,
            ``discounted:0.95``, or a function; see `openenv.rewards.credit`.
        share_connection: Share connections with clients of the same event loop, server, key and
            options. If False, the client opens a connection of its own.

    Class attributes:
        observation_type: The observation model, if no type parameter gives it.
        action_types: The action models, if no type parameter gives them.
        state_type: The state model, if no type parameter gives it.

    Attributes:
        tasks: The environment's tasks, an `openenv.client.tasks.ClientTasks`.

    Raises:
        ValueError: Neither a base_url nor a provider was given, or the mode is unknown.

    Example:
        >>> from echo_env import EchoAction, EchoObservation
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import EnvClient, State
        >>> class EchoClient(EnvClient[EchoAction, EchoObservation, State]): ...
        >>> with EchoClient.local(EchoEnvironment).sync() as env:
        ...     result = env.reset(seed=0)
        ...     env.step(EchoAction(message="hello")).observation.echoed_message
        'hello'
    """

    observation_type: ClassVar[Any] = None
    action_types: ClassVar[Sequence[type] | None] = None
    state_type: ClassVar[Any] = None

    tasks = _Tasks()

    def __init__(
        self,
        base_url: str | None = None,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float | None = 60.0,
        max_message_size_mb: float = 100.0,
        websocket_ping_interval_s: float | None = 20.0,
        websocket_ping_timeout_s: float | None = 20.0,
        provider: Provider | None = None,
        mode: str | None = None,
        headers: Mapping[str, str] | None = None,
        queue_timeout_s: float | None = None,
        on_queue: Callable[[Queued], None] | None = None,
        journal: bool = False,
        record: bool = False,
        *,
        api_key: str | None = None,
        ca_file: str | None = None,
        trajectory_scorer: TrajectoryScorer | None = None,
        credit: str | Credit = "terminal",
        share_connection: bool = True,
    ) -> None:
        if base_url is None and provider is None:
            raise ValueError("an EnvClient needs a base_url or a provider that starts a server")
        self._base_url = None if base_url is None else server_root(base_url)
        self._mode = client_mode(mode)
        self._message_timeout = message_timeout_s
        self._websocket = WebSocketOptions(
            connect_timeout_s,
            websocket_ping_interval_s,
            websocket_ping_timeout_s,
            int(max_message_size_mb * 2**20),
            dict(headers or {}),
            offered(protocol_version()),
            api_key,
            ca_file,
        )
        self._open_transport: Callable[[], Transport] | None = None
        self._way_to_tasks: Any = None
        self._queue_timeout_s = default_queue_s() if queue_timeout_s is None else queue_timeout_s
        self._on_queue = on_queue
        self._is_recorded = record
        self._shares_connection = share_connection
        self._session = _new_session(self)
        self._launch = None if provider is None else _launches.Launch(provider, self._base_url)
        self._home: asyncio.AbstractEventLoop | None = None
        self._blocks = False
        self._journal: Journal | None = None
        if journal:
            self.keep_journal()
        self._reward_spec: RewardSpec | None = None
        self._scoring: EpisodeScoring | None = None
        if trajectory_scorer is not None:
            from openenv.client.scoring import EpisodeScoring

            self._scoring = EpisodeScoring(trajectory_scorer, credit)
        self._siblings: weakref.WeakSet[EnvClient[ActT, ObsT, StateT]] = weakref.WeakSet()

    # ------------------------------------------------------------------ copying and pickling

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy or a pickle of a client that is not connected.

        Raises:
            TypeError: The client is connected or has a provider: neither a session nor a server
                can be duplicated.
        """
        name = type(self).__name__
        if self._session.is_connected or self._siblings:
            raise TypeError(
                f"this {name} is connected, and its session belongs to this process; pickle or "
                f"copy it before its first use, or make another: {name}(base_url=...)"
            )
        if self._launch is not None:
            raise TypeError(
                f"this {name} has a provider, whose server belongs to this process; start the "
                f"server and give others its address: {name}(base_url=...)"
            )
        left_out = {"_session", "_siblings", "_home", "_blocks", "_way_to_tasks"}
        return {key: value for key, value in vars(self).items() if key not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._way_to_tasks = None
        self._home, self._blocks = None, False
        self._siblings = weakref.WeakSet()
        self._session = _new_session(self)

    # ------------------------------------------------------------------ address and transport

    @property
    def base_url(self) -> str | None:
        """The server's address; None before a provider has started the server."""
        return self._base_url

    @property
    def reward_spec(self) -> RewardSpec | None:
        """The meaning of the environment's rewards, from the last `reset`; None if unknown."""
        return self._reward_spec

    @property
    def _ws_url(self) -> str | None:
        return None if self._base_url is None else websocket_url(self._base_url)

    def _new_transport(self) -> Transport:
        if self._open_transport is not None:
            return self._open_transport()
        assert self._ws_url is not None
        return WebSocketTransport(self._ws_url, self._websocket)

    @classmethod
    def local(
        cls,
        environment: Callable[[], Any] | ASGIApp,
        **options: Unpack[ClientOptions],
    ) -> Self:
        """Run the environment in this process, with the server's session code and no socket.

            async with EchoEnv.local(EchoEnvironment) as env: ...

        Args:
            environment: The environment class or factory; or an ASGI application such as
                `create_app` returns, which is then called in this process.
            **options: Options of the client, such as `message_timeout_s` and `queue_timeout_s`.
                `api_key` is the key of the application, if it has keys.
        """
        api_key = options.pop("api_key", None)
        client = cls(base_url="local://", **options)
        client._open_transport = _launches.local_transport(
            environment, *codec.models(cls), client._websocket.subprotocols, api_key
        )
        return client

    @overload
    @classmethod
    def with_provider(cls, provider: Provider, *, replicas: int) -> Replicas[Self]: ...

    @overload
    @classmethod
    def with_provider(cls, provider: Replicated) -> Any: ...  # its `replicas` decides the type

    @overload
    @classmethod
    def with_provider(cls, provider: Provider, *, replicas: None = None) -> Self: ...

    @classmethod
    def with_provider(
        cls, provider: Provider | Replicated, *, replicas: int | None = None
    ) -> Self | Replicas[Self]:
        """Start a server with `provider` on first use; closing the client stops it.

            async with EchoEnv.with_provider(ProcessProvider("echo_env")) as env: ...

            provider = KubernetesProvider(image="coding-env", replicas=64)
            async with CodingEnv.with_provider(provider) as envs: ...  # a list of 64

        Args:
            provider: Starts the server. A provider that runs images and has none, such as
                `LocalDockerProvider()`, runs the image of the client's package:
                ``echo-env:latest`` for ``EchoEnv``.
            replicas: Number of clients, each with its own server. The result is a `Replicas`, which
                gives a list of clients in a ``with`` or ``async with``. Default: the provider's
                `replicas`; if the provider has none, the result is one client.

        Raises:
            TypeError: Replicas are wanted, and the provider starts one server only.
            ValueError: `replicas` is below 1.
        """
        count = getattr(provider, "replicas", None) if replicas is None else replicas
        if count is None:
            return cls._launched(_launches.provider_launch(cast("Provider", provider), cls))
        from openenv.client.replicas import Replicas

        start = getattr(provider, "launch", None)
        if start is None:
            raise TypeError(
                f"{type(provider).__name__} starts one server; replicas need a provider that has "
                "launch(), as a ServerProvider"
            )
        return Replicas(lambda: cls._launched(_launches.server_launch(start)), count)

    @classmethod
    def from_docker_image(
        cls, image: str, provider: Provider | None = None, **start_options: Any
    ) -> Self:
        """Start a server from an image on first use; closing the client stops it.

        Use the client directly, with ``with`` or ``async with``, or ``await`` it to connect.

        Args:
            image: The image, for example ``echo-env:latest``.
            provider: Runs the image. By default a `LocalDockerProvider` if this machine has an
                engine with the image. Otherwise a `ProcessProvider` runs the installed environment
                package of that name in a separate process, with a warning. Otherwise the image is
                pulled.
            **start_options: `port`, `env_vars` and other options of the provider's start.
        """
        return cls._launched(_launches.image_launch(image, provider, start_options))

    @classmethod
    def from_env(
        cls,
        repo_id: str,
        *,
        use_docker: bool = True,
        provider: Provider | None = None,
        **provider_options: Any,
    ) -> Self:
        """Start a server of a Hugging Face Space on first use; closing the client stops it.

        Args:
            repo_id: The Space, as ``owner/name``.
            use_docker: Run the Space's image. If False, `UVProvider` runs the Space's sources.
            provider: Runs the image or the sources.
            **provider_options: `tag`, `port`, `env_vars`, `project_path`, `workers`, ...
        """
        launch = _launches.space_launch(repo_id, use_docker, provider, provider_options)
        return cls._launched(launch)

    @classmethod
    def from_hub(
        cls,
        repo_id: str,
        *,
        provider: Provider | None = None,
        replicas: int | None = None,
        **provider_options: Any,
    ) -> Self:
        """Start a server as `from_env` does, with a provider that may run several replicas.

        Args:
            repo_id: The Space, as ``owner/name``.
            provider: Runs the Space.
            replicas: Number of servers that share the Space's sessions, for providers that take
                the option, such as `DockerSwarmProvider`.
            **provider_options: Options of `from_env`.
        """
        if replicas is not None:
            provider_options["replicas"] = replicas
        return cls.from_env(repo_id, provider=provider, **provider_options)

    @classmethod
    def _launched(cls, launch: _launches.Launch, **options: Unpack[ClientOptions]) -> Self:
        client = cls(base_url="http://not-started.invalid", **options)
        client._base_url = None
        client._launch = launch
        return client

    # ------------------------------------------------------------------ calls

    @background.interruptible
    def reset(self, **kwargs: Any) -> PendingStep[ObsT]:
        """Begin an episode.

        Args:
            **kwargs: `seed`, `episode_id` and other arguments of the environment's `reset`. On a
                server with tasks, ``task=`` names a task by its id, ``split=`` and ``index=`` by
                its position. A `openenv.tasks.Task` may be passed to any server. Arguments that
                the environment does not take are listed in ``metadata["ignored_arguments"]``,
                with a warning.

        Raises:
            ConnectError: No server answers.
            ServerError: The server answered with an error; a subclass says which.
            SessionLost: The connection was lost while the reset was under way.
            ResponseTimeout: No answer came within `message_timeout_s`.
        """
        return self._answer(PendingStep, self._reset_async(**kwargs))

    @background.guards_itself
    def step(self, action: ActT, **kwargs: Any) -> PendingStep[ObsT]:
        """Carry out an action.

        If the caller does not get the answer because of a timeout, a cancellation or an interrupt,
        stepping again with the same action asks for that answer under version 1. The call waits
        for the answer or returns it, and the action is not carried out twice.

        Args:
            action: An action of the environment's model, or a dict of its fields.
            **kwargs: ``timeout_s`` is the step's deadline, in seconds. All arguments go to the
                environment's `step`. Those that it does not take, or that protocol version 0
                cannot carry, are listed in ``metadata["ignored_arguments"]``, with a warning.

        Raises:
            ServerError: The server answered with an error; a subclass says which.
            SessionLost: The episode is gone, or its state is unknown: call `reset`. If an earlier
                step is unanswered, repeating that step gets its answer.
            StepTimeout: The step took longer than `timeout_s`; ask again, or call `reset`.
            ResponseTimeout: No answer came within `message_timeout_s`; ask again, or call `reset`.
            TooLargeError: The action is larger than the server accepts.
            ValueError: `timeout_s` is negative or not a number.
        """
        coroutine = self._step_async(action, **kwargs)
        if self._home is not None and asyncio._get_running_loop() is self._home:
            return PendingStep(coroutine)  # nothing is sent until it is awaited
        background.expect()
        try:
            return self._answer(PendingStep, coroutine)
        except BaseException as error:
            background.interrupted(error)
            raise

    @background.interruptible
    def state(self) -> PendingState[StateT]:
        """Return the state of the episode.

        Raises:
            ServerError: The server answered with an error; a subclass says which.
            SessionLost: The episode is gone.
        """
        return self._answer(PendingState, self._state_async())

    @background.interruptible
    def render(self) -> PendingValue[Rendering]:
        """Render the current state of the episode for people to see.

        Returns:
            Text; an SVG, which is text that begins with ``<svg`` or ``<?xml``; a uint8 array of
            shape (height, width, 3), or (height, width), or with 4 channels; or a `Picture`.

        Raises:
            NotSupported: The environment cannot render, or the server speaks protocol version 0 or
                is too old.
            ServerError: Rendering failed. As `ExecutionFailed`, there is nothing to show yet. The
                session continues.
            MessageTooLarge: The picture exceeds the size limit of the server or of this client.
            SessionLost: The episode is gone.
        """
        return self._answer(PendingValue, self._render_async())

    @background.interruptible
    def connect(self) -> Pending[Self]:
        """Connect now, instead of on first use.

        Raises:
            ConnectError: No server answers. If this call started a server, the server is stopped.
        """
        return self._answer(PendingClient, self._connect_async())

    @background.interruptible
    def disconnect(self) -> Pending[None]:
        """Close the connection and the session; a provider's server keeps running."""
        return self._answer(Pending, self._disconnect_async())

    @background.interruptible
    def close(self) -> Pending[None]:
        """Close this session and those of `new_session` and `fork`, and stop a provider's server.
        Safe to repeat.
        """
        return self._answer(Pending, self._close_async())

    @background.interruptible
    def new_session(self) -> Pending[Self]:
        """Open another session on the same server.

        The new client is closed with this one, or earlier if it is closed itself or dropped.
        """
        return self._answer(PendingClient, self._new_session_async())

    @background.interruptible
    def snapshot(self, *, replay: bool = False) -> Pending[bytes]:
        """Store the running episode: `restore` goes back to it, here or in another session.

        Args:
            replay: Return the client's journal instead of the environment's own snapshot, for
                environments without snapshots. `restore` repeats its reset and steps.

        Raises:
            NotSupported: The environment has no snapshots, or the server speaks protocol version 0.
                With `replay`: there is no journal, or this episode cannot be replayed.
            ServerError: The environment failed to take a snapshot.
            SessionLost: The episode is gone.
        """
        return self._answer(Pending, _snapshots.take(self, replay=replay))

    @background.interruptible
    def restore(self, data: bytes) -> PendingState[StateT]:
        """Restore an episode that `snapshot` stored, and return its state.

        The snapshot may come from another client of the same environment. A running episode is
        abandoned. A journal is replayed, and each observation, reward and `done` is compared.

        Raises:
            InvalidSnapshot: The bytes are not a snapshot, or are damaged.
            NotSupported: The environment has no snapshots, or the server speaks protocol version 0.
            ServerError: The environment rejected the snapshot. The session continues.
            ReplayDiverged: The same actions gave another result. The session has no episode until
                `reset`.
        """
        return self._answer(PendingState, _snapshots.restore(self, data))

    @background.interruptible
    def fork(self, n: int, *, replay: bool = False) -> Pending[list[Self]]:
        """Open `n` more sessions in the state of this one; see `new_session` and `snapshot`.

        If one of them cannot be opened, the others are closed again.

        Raises:
            ValueError: `n` is negative or not an integer.
            CapacityError: The server has no room for the sessions.
            OpenEnvError: An error of `snapshot` or `restore`.
        """
        return self._answer(Pending, _snapshots.fork(self, n, replay=replay))

    @background.interruptible
    def agent_access(self) -> Pending[AgentAccess]:
        """Return the address by which an agent calls tools in this client's session over MCP.

            access = env.agent_access()
            async with mcp.Client(access.url) as agent: ...   # or with access.headers

        On a server with keys the agent gets a key of its own. The key ends with the session and
        gives access to its tools only. The client still resets, scores and closes the session.

        Raises:
            NotSupported: The server is too old, or the environment runs in this process.
        """
        return self._answer(Pending, _agents.agent_access(self))

    def keep_journal(self, max_steps: int | None = None) -> None:
        """Keep the seed, the actions and digests of the observations of each episode from now on,
        so that `snapshot(replay=True)` and `fork(n, replay=True)` can replay the episode.

        Args:
            max_steps: Maximum number of steps to keep; a longer episode cannot be replayed.
                Default: 100,000.
        """
        from openenv.protocol.snapshots import MAX_STEPS, Journal

        self._journal = Journal(MAX_STEPS if max_steps is None else max_steps)

    def sync(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """Return this client with blocking methods."""
        from openenv.client.sync import SyncEnvClient

        return SyncEnvClient(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Self:
        """Create another client of the same class. `AutoEnv.from_env` is documented to return both
        a client and a client class, and this makes a client work as both.
        """
        return type(self)(*args, **kwargs)

    # ------------------------------------------------------------------ hooks

    def _step_payload(self, action: ActT) -> dict[str, Any]:
        """Turn an action into the JSON object that is sent.

        Override this method if the server expects anything else than the model's fields.
        """
        session = self._session
        return codec.action_payload(
            action, type(self), binary=session.version == 1, capabilities=session.capabilities
        )

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ObsT]:
        """Turn ``{"observation", "reward", "done"[, "metadata"]}`` into a result.

        Override this method to return anything else than the observation model.
        """
        return cast("StepResult[ObsT]", codec.parse_result(payload, type(self)))

    def _parse_state(self, payload: dict[str, Any]) -> StateT:
        """Turn the JSON object of the state into the state model."""
        return cast(StateT, codec.parse_state(payload, type(self)))

    # ------------------------------------------------------------------ the asynchronous core

    async def _connect_async(self) -> Self:
        began = self._begin()
        try:
            async with self._server():
                await self._session.connect(began)
        except ConnectError:
            if self._launch is None or not await self._launch.has_another():
                raise
        else:
            return self
        return await self._connect_async()

    def _begin(self) -> int:
        """Return the session's close count; refuse calls awaited after the end of `async with`."""
        if background.running_loop() is not (self._home or background.background_loop()):
            raise SessionLost(f"{CLOSED}; {RESET_HINT}")
        return self._session.closes

    @contextlib.asynccontextmanager
    async def _server(self) -> AsyncIterator[None]:
        """Make sure that the provider's server runs. If this call started the server and the block
        fails, the server is stopped again, since no other code may know about it.
        """
        started = False
        if self._launch is not None:
            started = await self._launch.start()
            if started and self._session.is_connected:  # to an earlier server, which is gone
                await self._session.end_episode("the server that it was on is gone")
            self._base_url = self._launch.base_url
        try:
            yield
        except BaseException as error:
            if self._launch is None:
                raise
            try:
                if isinstance(error, ConnectError):
                    await self._launch.explain(error)
            finally:
                if started:
                    await asyncio.shield(self._launch.stop())
            raise

    async def _reset_async(self, **kwargs: Any) -> StepResult[ObsT]:
        task = kwargs.get("task")
        if task is not None:
            from openenv.client.tasks import with_task

            kwargs = with_task(kwargs)
        request = Request("reset", kwargs)
        result = self._read_result(request, await self._ask(request))
        self._reward_spec = codec.reward_spec(result)
        if self._scoring is not None:
            self._scoring.begin(result, task)
        return result

    def _step_async(self, action: ActT, **kwargs: Any) -> Coroutine[Any, Any, StepResult[ObsT]]:
        # Not a coroutine itself: every step passes here, and one more would cost time.
        return (
            self._stepped(action, **kwargs)
            if self._scoring is None
            else self._scored(self._scoring, action, **kwargs)
        )

    async def _scored(
        self, scoring: EpisodeScoring, action: ActT, **kwargs: Any
    ) -> StepResult[ObsT]:
        with background.given_back():
            result = await self._stepped(action, **kwargs)
            if self._session.is_repeated:
                return await scoring.repeat(result)
            return await scoring.step(action, result)

    async def _stepped(self, action: ActT, **kwargs: Any) -> StepResult[ObsT]:
        session, timeout_s = self._session, None
        is_connected = session.remote.connection is not None
        if not (is_connected or session.has_begun) and codec.names_kinds(type(self)):
            await self._connect_async()  # the server's capabilities decide how to write the action
        request = Request("step", self._step_payload(action))
        if kwargs:
            given = {name: value for name, value in kwargs.items() if value is not None}
            timeout_s = _checked_timeout(given.get("timeout_s"))
            request.arguments = given
        if self._journal is None and self._launch is None:
            is_at_home = asyncio._get_running_loop() is self._home
            began = session.closes if is_at_home else self._begin()
            reply = await session.request(request, timeout_s, began)
        else:
            reply = await self._ask(request, timeout_s)
        return self._read_result(request, reply)

    async def _ask(self, request: Request, timeout_s: float | None = None) -> Reply:
        """Send a reset or a step, and note it in the journal, if there is one."""
        if self._journal is not None:
            return await _snapshots.journaled(self, self._journal, request, timeout_s)
        return cast(Reply, await self._request(request, timeout_s))

    def _read_result(self, request: Request, reply: Reply) -> StepResult[ObsT]:
        if type(reply) is not ObservationReply:
            raise ProtocolError(f"the server answered {request.type} with {type(reply).__name__}")
        payload = reply.payload
        if request.arguments and self._session.version == 0:
            payload = codec.told_what_was_not_sent(payload, request.arguments)
        result = self._parse_result(payload)
        if payload.get("metadata"):
            return codec.complete(result, payload, request.type)
        return result

    async def _state_async(self) -> StateT:
        reply = await self._request(Request("state"))
        if not isinstance(reply, StateReply):
            raise ProtocolError(f"the server answered state with {type(reply).__name__}")
        state = self._parse_state(reply.state)
        began_at = self._session.remote.episode_began_at
        if began_at is not None and isinstance(state, State):
            set_elapsed_time(state, time.monotonic() - began_at)
        return state

    async def _render_async(self) -> Rendering:
        if not self._session.is_connected:
            await self._connect_async()
        check_can_render(self._session.capabilities)
        reply = await self._request(Request("render"))
        if not isinstance(reply, RenderReply):
            raise ProtocolError(f"the server answered render with {type(reply).__name__}")
        return reply.rendering

    async def _request(self, request: Request, timeout_s: float | None = None) -> Any:
        began = self._begin()
        # A call that needs an earlier episode finds it lost, and does not start a server.
        begins = request.type in BEGINNINGS or not self._session.has_begun
        if self._launch is not None and not self._launch.is_running and begins:
            await self._connect_async()
        try:
            return await self._session.request(request, timeout_s, began)
        except ConnectError as error:
            if self._launch is None:
                raise
            if not (request.type in BEGINNINGS and await self._launch.has_another()):
                await self._launch.explain(error)
                raise
        except ServerError as error:
            if self._launch is not None:
                self._launch.locate(error)
            raise
        await self._connect_async()
        return await self._request(request, timeout_s)

    async def _disconnect_async(self) -> None:
        await self._session.close()

    async def _close_async(self) -> None:
        siblings: list[Self] = []
        while self._siblings:
            siblings.append(self._siblings.pop())  # type: ignore[arg-type]
        closing = [self._session.close(), *(one._close_async() for one in siblings)]
        try:
            raise_first(await asyncio.gather(*closing, return_exceptions=True))
        except asyncio.CancelledError:  # maybe before some of them began to close
            for session in (self._session, *(one._session for one in siblings)):
                session.cut()
            raise
        finally:
            if self._launch is not None:
                await asyncio.shield(self._launch.stop())

    async def _new_session_async(self) -> Self:
        async with self._server():
            return await self._sibling()._connect_async()

    def _sibling(self) -> Self:
        offered = {
            "connect_timeout_s": self._websocket.connect_timeout_s,
            "message_timeout_s": self._message_timeout,
            "max_message_size_mb": (self._websocket.max_message_bytes or 0) / 2**20,
            "websocket_ping_interval_s": self._websocket.ping_interval_s,
            "websocket_ping_timeout_s": self._websocket.ping_timeout_s,
            "mode": self._mode,
            "headers": self._websocket.headers,
            "queue_timeout_s": self._queue_timeout_s,
            "on_queue": self._on_queue,
            "record": self._is_recorded,
            "api_key": self._websocket.api_key,
            "ca_file": self._websocket.ca_file,
            "share_connection": self._shares_connection,
            **({} if self._scoring is None else self._scoring.options),
        }
        sibling = type(self)(base_url=self._base_url, **_accepted(type(self), offered))
        sibling._open_transport = self._open_transport
        sibling._session.has_owner = True
        if self._journal is not None:
            sibling.keep_journal(self._journal.max_steps)
        sibling._home, sibling._blocks = self._home, self._blocks
        self._siblings.add(sibling)
        return sibling

    # ------------------------------------------------------------------ sync and async use

    def _settle(self) -> None:
        """Move to the shared loop if the connection's loop is gone; the episode is lost."""
        home, gone = self._home, None
        if self._session.is_inherited:
            gone = "this process was forked, and the connection is its parent's"
        elif home is not None and not home.is_running():
            gone = "the event loop that the client lived on has stopped"
        if gone is None:
            return
        left, self._session = self._session, self._session.for_another_loop(gone)
        self._home = None
        if home is not None and not left.is_inherited and background.running_loop() is None:
            goodbye = left.close()  # on its own loop, which this thread can run for that long
            try:
                home.run_until_complete(goodbye)
            except RuntimeError:  # the loop is closed, or another thread has just begun to run it
                goodbye.close()

    def _answer(
        self, kind: Callable[[Any], PendingT], coroutine: Coroutine[Any, Any, Any]
    ) -> PendingT:
        self._settle()
        answer = launch(coroutine, self._home, block=self._blocks)
        # If no loop runs here, the answer is complete and reads like a pending one.
        is_pending = isinstance(answer, futures.Future) or inspect.iscoroutine(answer)
        return kind(answer) if is_pending else cast(PendingT, answer)

    async def __aenter__(self) -> Self:
        self._settle()
        if self._session.is_connected:  # on the shared loop; the session stays there
            await self.connect()
            return self
        self._session = self._session.for_another_loop()
        self._home = asyncio.get_running_loop()
        await self._connect_async()
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            closing: Any = self.close()  # a subclass may override it with a plain method
            if inspect.isawaitable(closing):
                await closing
        finally:
            self._home = None
            self._session = self._session.for_another_loop()

    def __enter__(self) -> Self:
        self._blocks = True
        resolve(self.connect())
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            resolve(self.close())
        finally:
            self._blocks = False

    # For `client = await EchoEnv.from_docker_image(...)`, and for `asyncio.run(...)` with a client.

    def __await__(self) -> Generator[Any, None, Self]:
        return self._answer(PendingClient, self._connect_async()).__await__()


def _checked_timeout(timeout_s: Any) -> float | None:
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if timeout_s is not None and not (is_number and timeout_s >= 0):
        raise ValueError(f"timeout_s is {timeout_s!r}; it must be a number of seconds from 0")
    return cast("float | None", timeout_s)


class _ClientEndpoint:
    """A client's server, as an endpoint that does not keep the client alive."""

    def __init__(self, client: EnvClient[Any, Any, Any]) -> None:
        self._client = weakref.ref(client)

    def shared(self) -> _sharing.SharedAddress | None:
        client = self._client()
        if client is None or not client._shares_connection:
            return None
        is_alone = client._open_transport is not None or client._launch is not None
        url = None if is_alone else client._ws_url
        return None if url is None else _sharing.shared_address(url, client._websocket)

    async def connect(self) -> Transport:
        return await connect_transport(self.open_transport())

    def open_transport(self) -> Transport:
        client = self._client()
        if client is None:
            raise ConnectError(DROPPED)
        return client._new_transport()

    async def why_gone(self) -> str | None:
        client = self._client()
        if client is None:
            return DROPPED
        return None if client._launch is None else await client._launch.why_gone()

    async def leave(self) -> None:
        """Do nothing: the server keeps running."""


def _new_session(client: EnvClient[Any, Any, Any]) -> ClientSession:
    opening: dict[str, Any] = {"queue_timeout_s": client._queue_timeout_s}
    if client._websocket.max_message_bytes is not None:
        opening["max_message_bytes"] = client._websocket.max_message_bytes
    if client._is_recorded:
        opening["record"] = True
    on_queue = client._on_queue or _WarnsOnce(weakref.ref(client), client._queue_timeout_s)
    return ClientSession(_ClientEndpoint(client), opening, client._message_timeout, on_queue)


_WARNED_OF: set[str] = set()  # addresses of full servers that were logged
MAX_WARNED_OF = 1000


class _WarnsOnce:
    """Logs that a session waits for a slot, so that users know why nothing happens. Each server is
    logged once, however many clients wait.
    """

    def __init__(self, client: weakref.ref[EnvClient[Any, Any, Any]], timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._has_warned = False

    def __call__(self, queued: Queued) -> None:
        client = self._client()
        url = None if client is None else client._base_url
        if self._has_warned or url in _WARNED_OF:
            return
        self._has_warned = True
        if url is not None and len(_WARNED_OF) < MAX_WARNED_OF:
            _WARNED_OF.add(url)
        warn_of_queue(queued, self._timeout_s, None if client is None else client._session.room)


def warn_of_queue(queued: Queued, timeout_s: float, room: int | None = None) -> None:
    """Log that sessions wait for slots of a server that is full.

    Args:
        queued: The place of the first of these sessions.
        timeout_s: Seconds that it waits at most.
        room: Number of sessions that the server holds, if known.
    """
    logging.getLogger(__name__).warning(
        "the server is full%s; waiting for a slot, at position %d of %d, for up to %g s "
        "(queue_timeout_s). For more slots, serve an environment that declares "
        "SUPPORTS_CONCURRENT_SESSIONS = True by create_app(..., max_concurrent_envs=N)",
        "" if room is None else f" with {room} session{'' if room == 1 else 's'}",
        *queued,
        timeout_s,
    )


def _accepted(cls: type, offered: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(cls).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return offered
    return {name: value for name, value in offered.items() if name in parameters}
