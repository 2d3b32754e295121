"""`EnvClient`: a session of an environment, wherever the environment runs."""

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
    """The attribute `EnvClient.tasks`, a `ClientTasks`; a subclass may use the name otherwise."""

    def __get__(self, client: EnvClient[Any, Any, Any], owner: Any = None) -> ClientTasks:
        if client is None:
            raise AttributeError("a client has tasks, its class has none")
        from openenv.client.tasks import ClientTasks

        return ClientTasks(client)


class EnvClient(Runnable, Generic[ActT, ObsT, StateT]):
    """A session of an environment. A typed client is a line:

        class EchoEnv(EnvClient[EchoAction, EchoObservation, State]): ...

    Asynchronously, on the caller's event loop:

        async with EchoEnv(base_url="http://localhost:8000") as env:
            result = await env.reset(seed=0)
            result = await env.step(EchoAction(message="hello"))

    Synchronously, from any thread:

        with EchoEnv(base_url="http://localhost:8000") as env:
            print(env.reset().observation)

    A client connects when it is first used. Its calls are carried out one at a time, in order,
    whichever thread or task they come from. See `openenv.client.session` for what happens when
    a connection is lost.

    Args:
        base_url: Where the server is: ``http``, ``https``, ``ws``, ``wss`` or no scheme. An address
            of its page or its WebSocket means the server too: ``ws://localhost:8000/ws``.
        connect_timeout_s: Seconds to wait for a connection.
        message_timeout_s: Seconds to wait for an answer; None for no limit.
        max_message_size_mb: Largest answer that is accepted, in MiB.
        websocket_ping_interval_s: Seconds between keepalive pings; None sends none.
        websocket_ping_timeout_s: Seconds to wait for a pong; None waits for ever.
        provider: Starts the server on first use, and is stopped when the client is closed.
        mode: ``simulation`` or ``production``; by default OPENENV_CLIENT_MODE.
        headers: Sent with the handshake, for example for a gateway.
        queue_timeout_s: Seconds to wait for a slot of a server that is full; by default
            OPENENV_QUEUE_TIMEOUT_S, else 150. 0 has it refused at once. Version 1 only.
        on_queue: Called with where the session stands, a `Queued`, while it waits for a slot. By
            default a warning is logged, once.
        journal: Keep what `snapshot(replay=True)` needs; see `keep_journal`.
        record: Have the server record this session, where it does so on request.
        api_key: The server's key; by default that of the provider which has started it, else that
            of OPENENV_API_KEY. It is sent to no other host.
        ca_file: Certificates (PEM) by which ``https`` and ``wss`` servers are told; by default
            those of OPENENV_CA_FILE, else the system's.
        trajectory_scorer: Scores each episode as a whole, here, when it is done: the reward of its
            last step is then what this gives of the list of (action, observation), and the
            result's `step_rewards` are the shares of the steps. See `openenv.rewards.delayed`.
        credit: How it is shared: ``terminal``, ``uniform``, ``discounted``, ``discounted:0.95``, or
            a function; see `openenv.rewards.credit`.
        share_connection: Share connections with clients of the same event loop, server, key and
            options; otherwise the client opens a connection of its own.

    Class attributes:
        observation_type: The observation model, where it is no type parameter.
        action_types: The action models, where they are no type parameter.
        state_type: The state model, where it is no type parameter.

    Attributes:
        tasks: Which tasks the environment has: a `openenv.client.tasks.ClientTasks`.

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

    # ------------------------------------------------------------------ into other processes

    def __getstate__(self) -> dict[str, Any]:
        """Give what a copy, or a pickle, of a client that is not connected is made of.

        Raises:
            TypeError: It is connected, or has a provider: neither a session nor a server can be
                had twice.
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

    # ------------------------------------------------------------------ where it goes

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
            **options: Of the client, such as `message_timeout_s` and `queue_timeout_s`; `api_key`
                is the application's, if it has any.
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
    def with_provider(cls, provider: Replicated) -> Any: ...  # what it was made for decides

    @overload
    @classmethod
    def with_provider(cls, provider: Provider, *, replicas: None = None) -> Self: ...

    @classmethod
    def with_provider(
        cls, provider: Provider | Replicated, *, replicas: int | None = None
    ) -> Self | Replicas[Self]:
        """Start a server by `provider` on first use; closing the client stops it.

            async with EchoEnv.with_provider(ProcessProvider("echo_env")) as env: ...

            provider = KubernetesProvider(image="coding-env", replicas=64)
            async with CodingEnv.with_provider(provider) as envs: ...  # a list of 64

        Args:
            provider: What starts it. One that runs images and was given none, such as
                `LocalDockerProvider()`, runs the image of the client's package:
                ``echo-env:latest`` for ``EchoEnv``.
            replicas: So many clients, each with a server of its own, as `Replicas`: a list of
                them, in a ``with`` or ``async with``. By default what the provider was made for,
                its `replicas`; of one that has none, it is one client.

        Raises:
            TypeError: The provider starts one server only.
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

        Use the client directly, with ``with`` or ``async with``, or ``await`` it to have it
        connected.

        Args:
            image: For example ``echo-env:latest``.
            provider: What runs it. By default a `LocalDockerProvider`, where this machine has an
                engine with the image; or else a `ProcessProvider`, which runs the installed
                environment package of that name in a process of its own, and a warning says so;
                or else the image is fetched.
            **start_options: `port`, `env_vars` and whatever else the provider takes.
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
            use_docker: Run the Space's image; otherwise its sources, by `UVProvider`.
            provider: What runs it.
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
        """Do as `from_env`, by a provider that may serve a Space by several replicas.

        Args:
            repo_id: The Space, as ``owner/name``.
            provider: What runs it.
            replicas: How many servers share its sessions; of providers that take the option, such
                as `DockerSwarmProvider`.
            **provider_options: As of `from_env`.
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
            **kwargs: `seed`, `episode_id` and whatever else the environment's `reset` takes. On a
                server with tasks, ``task=`` names one by its id, ``split=`` and ``index=`` by its
                place; a `openenv.tasks.Task` may be passed to any server.
                What it does not take is named in ``metadata["ignored_arguments"]``, with a
                warning.

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

        A caller who does not get the answer, because of a time-out, a cancellation or an interrupt,
        may step again with the same action: under version 1 that is to ask again. The answer is
        waited for, or is there, and the action is not carried out twice.

        Args:
            action: An action of the environment's model, or a dict of its fields.
            **kwargs: ``timeout_s`` is the step's deadline, in seconds; it and all others go to the
                environment's `step`. What that does not take, or what protocol version 0
                cannot carry to it, is named in ``metadata["ignored_arguments"]``, with a warning.

        Raises:
            ServerError: The server answered with an error; a subclass says which.
            SessionLost: The episode is gone, or its state is unknown: call `reset`; or, where the
                answer of another step is not had, ask again for that.
            StepTimeout: Its `timeout_s` is over; ask again, or call `reset`.
            ResponseTimeout: No answer came within `message_timeout_s`; likewise.
            TooLargeError: The action is larger than the server takes.
            ValueError: `timeout_s` is negative, or no number.
        """
        coroutine = self._step_async(action, **kwargs)
        if self._home is not None and asyncio._get_running_loop() is self._home:
            return PendingStep(coroutine)  # nothing is sent before it is awaited
        background.expect()
        try:
            return self._answer(PendingStep, coroutine)
        except BaseException as error:
            background.interrupted(error)
            raise

    @background.interruptible
    def state(self) -> PendingState[StateT]:
        """Read where the episode stands.

        Raises:
            ServerError: The server answered with an error; a subclass says which.
            SessionLost: The episode is gone.
        """
        return self._answer(PendingState, self._state_async())

    @background.interruptible
    def render(self) -> PendingValue[Rendering]:
        """Have the environment show where the episode stands, to people.

        Returns:
            Text; an SVG, which is text that begins with ``<svg`` or ``<?xml``; a uint8 array of
            shape (height, width, 3), or (height, width), or with 4 channels; or a `Picture`.

        Raises:
            NotSupported: The environment draws nothing, or the server speaks protocol version 0 or
                is too old.
            ServerError: The environment could not draw; as `ExecutionFailed`, where it has nothing
                to show yet. The session goes on.
            MessageTooLarge: What it drew is larger than the server sends, or this client takes.
            SessionLost: The episode is gone.
        """
        return self._answer(PendingValue, self._render_async())

    @background.interruptible
    def connect(self) -> Pending[Self]:
        """Connect now, instead of on first use.

        Raises:
            ConnectError: No server answers. A server that this call has started is stopped.
        """
        return self._answer(PendingClient, self._connect_async())

    @background.interruptible
    def disconnect(self) -> Pending[None]:
        """Close the connection and the session; a provider's server keeps running."""
        return self._answer(Pending, self._disconnect_async())

    @background.interruptible
    def close(self) -> Pending[None]:
        """Close the session, those of `new_session` and `fork`, and what a provider started.
        Repeatable.
        """
        return self._answer(Pending, self._close_async())

    @background.interruptible
    def new_session(self) -> Pending[Self]:
        """Open a further session on the same server.

        It is closed with this client, or earlier, when it is closed itself or dropped.
        """
        return self._answer(PendingClient, self._new_session_async())

    @background.interruptible
    def snapshot(self, *, replay: bool = False) -> Pending[bytes]:
        """Store the running episode: `restore` goes back to it, here or in another session.

        Args:
            replay: Where the environment has no snapshots of its own: take the journal, whose
                reset and steps are made again by `restore`.

        Raises:
            NotSupported: The environment has no snapshots, or the server speaks protocol version 0.
                With `replay`: there is no journal, or this episode cannot be made again.
            ServerError: The environment could not take one.
            SessionLost: The episode is gone.
        """
        return self._answer(Pending, _snapshots.take(self, replay=replay))

    @background.interruptible
    def restore(self, data: bytes) -> PendingState[StateT]:
        """Go back, or over, to the episode that `snapshot` has stored, and return the state.

        It may have been stored by another client, of the same environment. A running episode is
        abandoned. A journal is replayed, and each observation, reward and `done` compared.

        Raises:
            InvalidSnapshot: The bytes are no snapshot, or are damaged.
            NotSupported: The environment has no snapshots, or the server speaks protocol version 0.
            ServerError: The environment refused its bytes. The session goes on.
            ReplayDiverged: The same actions led elsewhere. The session is left without an
                episode, until `reset`.
        """
        return self._answer(PendingState, _snapshots.restore(self, data))

    @background.interruptible
    def fork(self, n: int, *, replay: bool = False) -> Pending[list[Self]]:
        """Open `n` further sessions in the state of this one; see `new_session` and `snapshot`.

        Where one of them cannot be had, none is left.

        Raises:
            ValueError: `n` is negative, or no whole number.
            CapacityError: The server has no room for them.
            OpenEnvError: What `snapshot` and `restore` raise.
        """
        return self._answer(Pending, _snapshots.fork(self, n, replay=replay))

    @background.interruptible
    def agent_access(self) -> Pending[AgentAccess]:
        """Return how an agent connects to this client's session by MCP, to act by tools.

            access = env.agent_access()
            async with mcp.Client(access.url) as agent: ...   # or with access.headers

        On a server with keys the agent gets one of its own, which ends with the session and reaches
        nothing but its tools. The client goes on to reset, score and close the session.

        Raises:
            NotSupported: The server is too old, or the environment runs in this process.
        """
        return self._answer(Pending, _agents.agent_access(self))

    def keep_journal(self, max_steps: int | None = None) -> None:
        """Keep the seed, the actions and digests of the observations of each episode from now on,
        so that `snapshot(replay=True)` and `fork(n, replay=True)` can have them made again.

        Args:
            max_steps: Steps of an episode that are kept; a longer one cannot be replayed. By
                default 100,000.
        """
        from openenv.protocol.snapshots import MAX_STEPS, Journal

        self._journal = Journal(MAX_STEPS if max_steps is None else max_steps)

    def sync(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """The same client with plain blocking methods."""
        from openenv.client.sync import SyncEnvClient

        return SyncEnvClient(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Self:
        """Make another client of the same class: what `AutoEnv.from_env` returns has been
        documented both as a client and as its class.
        """
        return type(self)(*args, **kwargs)

    # ------------------------------------------------------------------ hooks

    def _step_payload(self, action: ActT) -> dict[str, Any]:
        """Turn an action into the JSON object that is sent.

        Override this method if the server expects something else than the model's fields.
        """
        session = self._session
        return codec.action_payload(
            action, type(self), binary=session.version == 1, capabilities=session.capabilities
        )

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ObsT]:
        """Turn ``{"observation", "reward", "done"[, "metadata"]}`` into a result.

        Override this method for another result than the observation model's.
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
        """Return when a call begins; refuse a call awaited after the end of `async with`."""
        if background.running_loop() is not (self._home or background.background_loop()):
            raise SessionLost(f"{CLOSED}; {RESET_HINT}")
        return self._session.closes

    @contextlib.asynccontextmanager
    async def _server(self) -> AsyncIterator[None]:
        """Have the provider's server running. Where this call has started it, and what follows
        fails, it is stopped: nobody else may know of it.
        """
        started = False
        if self._launch is not None:
            started = await self._launch.start()
            if started and self._session.is_connected:  # to one that is gone
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
        # No coroutine of its own, since every step goes this way.
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
            await self._connect_async()  # what the server can do decides how the action is written
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
        """Send a reset or a step, and note the request in the journal, if any."""
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
        # A call that needs the episode which was there finds it lost, and begins no server.
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
        except asyncio.CancelledError:  # before some of them began, perhaps
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

    # ------------------------------------------------------------------ faces

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
            goodbye = left.close()  # on its own loop, which this thread can run for so long
            try:
                home.run_until_complete(goodbye)
            except RuntimeError:  # it is closed, or another thread runs it just now
                goodbye.close()

    def _answer(
        self, kind: Callable[[Any], PendingT], coroutine: Coroutine[Any, Any, Any]
    ) -> PendingT:
        self._settle()
        answer = launch(coroutine, self._home, block=self._blocks)
        # Where no loop runs the answer is already there, and reads like a pending one.
        is_pending = isinstance(answer, futures.Future) or inspect.iscoroutine(answer)
        return kind(answer) if is_pending else cast(PendingT, answer)

    async def __aenter__(self) -> Self:
        self._settle()
        if self._session.is_connected:  # on the shared loop; there it stays
            await self.connect()
            return self
        self._session = self._session.for_another_loop()
        self._home = asyncio.get_running_loop()
        await self._connect_async()
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            closing: Any = self.close()  # which a subclass may override with a plain method
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

    # `client = await EchoEnv.from_docker_image(...)`, and `asyncio.run(...)` of the same.

    def __await__(self) -> Generator[Any, None, Self]:
        return self._answer(PendingClient, self._connect_async()).__await__()


def _checked_timeout(timeout_s: Any) -> float | None:
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if timeout_s is not None and not (is_number and timeout_s >= 0):
        raise ValueError(f"timeout_s is {timeout_s!r}; it must be a number of seconds from 0")
    return cast("float | None", timeout_s)


class _ClientEndpoint:
    """The server of a client, without keeping the client alive."""

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
        """Do nothing: the server goes on."""


def _new_session(client: EnvClient[Any, Any, Any]) -> ClientSession:
    opening: dict[str, Any] = {"queue_timeout_s": client._queue_timeout_s}
    if client._websocket.max_message_bytes is not None:
        opening["max_message_bytes"] = client._websocket.max_message_bytes
    if client._is_recorded:
        opening["record"] = True
    on_queue = client._on_queue or _WarnsOnce(weakref.ref(client), client._queue_timeout_s)
    return ClientSession(_ClientEndpoint(client), opening, client._message_timeout, on_queue)


_WARNED_OF: set[str] = set()  # addresses of servers that were full
MAX_WARNED_OF = 1000


class _WarnsOnce:
    """Says that a session waits for a slot, so that nobody wonders why nothing happens. Of each
    server it is said once, however many clients wait.
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
        queued: Where the first of them stands.
        timeout_s: How long it waits.
        room: How many sessions the server holds, where that is known.
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
