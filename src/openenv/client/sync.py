"""The synchronous interface of a client."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from typing_extensions import Self

from openenv.client import background
from openenv.client.hybrid import resolve
from openenv.types import StepResult

if TYPE_CHECKING:
    from openenv.arrays import Rendering
    from openenv.client.agents import AgentAccess
    from openenv.client.client import EnvClient
    from openenv.tasks.api import TaskCalls

__all__ = ["SyncEnvClient"]

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")
F = TypeVar("F", bound=Callable[..., Any])


def _blocking(function: F, client_method: Any = None) -> F:
    """Make a blocking method out of the client method with the same name.

    A signal handler may raise until the caller has the result, so the outermost wrapper handles the
    interrupt; the client's own methods handle their part. A method that a subclass overrides has
    already received the answers of its calls, so an error that it raises is its own.
    """

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        background.expect()
        answer: Any = None
        try:
            answer = function(*args, **kwargs)
            return resolve(answer)
        except BaseException as error:
            called = client_method or getattr(type(args[0]._async), function.__name__)
            is_own = answer is None and not background.is_interruptible(called)
            if not (is_own and isinstance(error, Exception)):
                background.interrupted(error)
            raise

    return cast(F, guarded)


class SyncEnvClient(Generic[ActT, ObsT, StateT]):
    """An `EnvClient` whose methods block and return plain values.

        with EchoEnv(base_url="http://localhost:8000").sync() as env:
            result = env.reset(seed=0)

    This class calls the client's public methods, so overrides in a subclass take effect. Any other
    method of the client is available too, and blocks if it returns a coroutine.

    Example:
        >>> from echo_env import EchoAction, EchoEnv
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import SyncEnvClient
        >>> env: SyncEnvClient = EchoEnv.local(EchoEnvironment).sync()
        >>> with env:
        ...     result = env.reset()
        ...     result = env.step(EchoAction(message="hello"))
        ...     env.state().step_count
        1
    """

    def __init__(self, async_client: EnvClient[ActT, ObsT, StateT]) -> None:
        self._async = async_client

    @property
    def async_client(self) -> EnvClient[ActT, ObsT, StateT]:
        """The client that this object wraps."""
        return self._async

    @property
    def tasks(self) -> TaskCalls:
        """The environment's tasks; see `openenv.client.tasks.ClientTasks`."""
        tasks: Any = self._async.tasks
        found: TaskCalls = tasks.sync() if hasattr(tasks, "sync") else tasks
        return found

    def connect(self) -> Self:
        """Connect now, instead of on first use."""
        resolve(self._async.connect())
        return self

    def disconnect(self) -> None:
        """Close the connection and the session."""
        resolve(self._async.disconnect())

    @_blocking
    def reset(self, **kwargs: Any) -> StepResult[ObsT]:
        """Begin an episode; see `EnvClient.reset`."""
        return cast("StepResult[ObsT]", self._async.reset(**kwargs))

    @_blocking
    def step(self, action: ActT, **kwargs: Any) -> StepResult[ObsT]:
        """Carry out an action; see `EnvClient.step`."""
        return cast("StepResult[ObsT]", self._async.step(action, **kwargs))

    def state(self) -> StateT:
        """Return the state of the episode; see `EnvClient.state`."""
        return cast(StateT, resolve(self._async.state()))

    def render(self) -> Rendering:
        """Render the current state of the episode; see `EnvClient.render`."""
        return cast("Rendering", resolve(self._async.render()))

    def close(self) -> None:
        """Close the session, and stop the server if a provider started it."""
        resolve(self._async.close())

    def new_session(self) -> Self:
        """Open another session on the same server."""
        return type(self)(resolve(self._async.new_session()))

    def agent_access(self) -> AgentAccess:
        """Return how an agent connects to this session; see `EnvClient.agent_access`."""
        return cast("AgentAccess", resolve(self._async.agent_access()))

    def snapshot(self, *, replay: bool = False) -> bytes:
        """Store the running episode; see `EnvClient.snapshot`."""
        return cast(bytes, resolve(self._async.snapshot(replay=replay)))

    @_blocking
    def restore(self, data: bytes) -> StateT:
        """Go back to a stored episode; see `EnvClient.restore`."""
        return cast(StateT, self._async.restore(data))

    def fork(self, n: int, *, replay: bool = False) -> list[Self]:
        """Open more sessions in the state of this one; see `EnvClient.fork`."""
        return [type(self)(one) for one in resolve(self._async.fork(n, replay=replay))]

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look up attributes on an object that has no `_async` yet.
        if name == "_async" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        attribute = getattr(self._async, name)
        if not callable(attribute) or isinstance(attribute, type):
            return attribute

        return _blocking(attribute, attribute)

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(self, *exc: object) -> None:
        self.close()
