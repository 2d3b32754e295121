"""The contract between an environment's author and everything that drives environments.

An episode goes like this (after dm_env, Muldal et al. 2019, and Gymnasium, Towers et al. 2024):

    observation = env.reset(seed=0)              # begins an episode
    while not observation.done:
        observation = env.step(action)           # one transition
    env.close()                                  # once, at the end

What a driver may rely on, and `openenv.testing.check_environment` checks, is stated in the
docstrings of `Environment.reset`, `step`, `state` and `close`, of `Renders` and of `Snapshots`, and
nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from openenv.events import Event, EventQueue
from openenv.types import Action, EnvironmentMetadata, Observation, State

if TYPE_CHECKING:
    from openenv.arrays import Rendering

__all__ = [
    "CompositeTransform",
    "Environment",
    "NullTransform",
    "Renders",
    "Snapshots",
    "Transform",
    "restart",
    "termination",
    "transition",
    "truncation",
]

ActT = TypeVar("ActT", bound=Action)
ObsT = TypeVar("ObsT", bound=Observation)
StateT = TypeVar("StateT", bound=State)


class Transform(ABC, Generic[ObsT]):
    """A function from observation to observation, for example one that adds a reward."""

    @abstractmethod
    def __call__(self, observation: ObsT) -> ObsT:
        """Return the observation to send instead of `observation`; it may be the same object."""


class CompositeTransform(Transform[ObsT]):
    """Applies several transforms, the first one first."""

    def __init__(self, transforms: list[Transform[ObsT]]) -> None:
        self.transforms = transforms

    def __call__(self, observation: ObsT) -> ObsT:
        for transform in self.transforms:
            observation = transform(observation)
        return observation


class NullTransform(Transform[ObsT]):
    """Changes nothing."""

    def __call__(self, observation: ObsT) -> ObsT:
        return observation


class Environment(ABC, Generic[ActT, ObsT, StateT]):
    """One world that one agent acts in. Subclass it and write `reset`, `step` and `state`.

    One instance serves one session. Its methods are never called concurrently. Those of a
    synchronous environment are all called on one and the same thread, from the constructor to
    `close`, unless the class declares that this does not matter; coroutines are awaited on the
    server's event loop.

    The methods may be plain functions or ``async def``; `reset_async` and `step_async` may be
    overridden instead. Arguments that a signature leaves out are simply not passed, so
    ``def reset(self)`` and ``def step(self, action)`` are fine. `state` may be a property, a
    method or a coroutine method. `super().__init__()` need not be called.

    Class attributes:
        SUPPORTS_CONCURRENT_SESSIONS: Several instances may live in one process at once. False
            by default, which serves one session at a time.
        REQUIRES_SINGLE_THREAD_EXECUTOR: All instances in the process must share one thread.
        SUPPORTS_ANY_THREAD: The methods may be called from different threads, one at a time. True
            of whatever keeps nothing that belongs to a thread (a database connection, a browser, a
            graphics context). Many sessions then share few threads, and a slow step holds up
            nobody. False by default.
        NEVER_BLOCKS: The methods compute for microseconds and never wait, so that they may be
            called on the event loop itself. False by default.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = False
    REQUIRES_SINGLE_THREAD_EXECUTOR: ClassVar[bool] = False
    SUPPORTS_ANY_THREAD: ClassVar[bool] = False
    NEVER_BLOCKS: ClassVar[bool] = False

    transform: Any = None
    rubric: Any = None

    def __init__(self, transform: Transform[ObsT] | None = None, rubric: Any | None = None) -> None:
        self.transform = transform
        self.rubric = rubric

    @abstractmethod
    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> ObsT:
        """Begin a new episode and return its first observation.

        Args:
            seed: Makes the episode reproducible: the same seed and the same actions give the
                same observations and rewards. None asks for a fresh random episode.
            episode_id: What `state.episode_id` shall be; None lets the environment choose.
            **kwargs: Whatever else the environment declares, such as a task or a difficulty.

        Returns:
            An observation with ``done=False`` (unless the episode is over before it begins).

        A running episode is abandoned. `state.step_count` is 0 afterwards.
        """

    @abstractmethod
    def step(self, action: ActT, timeout_s: float | None = None, **kwargs: Any) -> ObsT:
        """Carry out one action and return what it led to.

        Args:
            action: An instance of the environment's action model, already validated.
            timeout_s: Seconds that the caller is going to wait; None means no limit.
            **kwargs: Whatever else the environment declares.

        Returns:
            An observation, or a `StepResult` that holds one. `done` ends the episode;
            `truncated` with it says that a limit, not the task, ended it. `reward` is a finite
            number, or None where the step was not scored: never 0 for "could not score".

        Raises:
            Refused: Its text is written for the caller, and reaches it: an illegal move, say.
                Stepping before `reset`, or after `done`, should raise it and change nothing.
            Exception: Of any other the caller learns the class and an incident id, under which
                the server's log has all of it; its text only from a server that runs with
                ``debug``. The session goes on after either, and the episode is where the
                exception left it.
        """

    @property
    @abstractmethod
    def state(self) -> StateT:
        """Where the episode stands; `step_count` counts the steps since `reset`.

        Reading it changes nothing. It may be read before the first `reset`.
        """

    @cached_property
    def events(self) -> EventQueue:
        """What happens by itself, between steps; see `openenv.events`. Empty in a static world."""
        return EventQueue()

    def on_event(self, event: Event) -> Any:
        """Take in what happened since the last step. It may be a coroutine method.

        It is called before the next step (or call of a tool), once for each event in `events` that
        is due by then, and only where it is overridden.
        """

    def close(self) -> None:
        """Release whatever the instance holds. Called once; nothing is called after it."""

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> ObsT:
        """Do what `reset` does, awaited on the event loop. Override it instead of `reset`."""
        return self.reset(seed=seed, episode_id=episode_id, **kwargs)

    async def step_async(self, action: ActT, timeout_s: float | None = None, **kwargs: Any) -> ObsT:
        """Do what `step` does, awaited on the event loop. Override it instead of `step`."""
        return self.step(action, timeout_s=timeout_s, **kwargs)

    async def close_async(self) -> None:
        """Do what `close` does, awaited on the event loop. Override it instead of `close`."""
        self.close()

    def get_metadata(self) -> EnvironmentMetadata:
        """Describe the environment to people; shown by `/metadata` and the web page."""
        name = type(self).__name__
        return EnvironmentMetadata(name=name, description=f"{name} environment", version="1.0.0")

    # What an author may call from `reset` and `step`; nothing calls these by itself.

    def _apply_transform(self, observation: ObsT) -> ObsT:
        transform: Callable[[ObsT], ObsT] | None = self.transform
        return observation if transform is None else transform(observation)

    def _apply_rubric(self, action: ActT, observation: ObsT) -> float:
        if self.rubric is None:
            return 0.0
        score: float = self.rubric(action, observation)
        return score

    async def _apply_rubric_async(self, action: ActT, observation: ObsT) -> float:
        score: Any = self._apply_rubric(action, observation)
        result: float = await score if hasattr(score, "__await__") else score
        return result

    def _reset_rubric(self) -> None:
        if self.rubric is not None:
            self.rubric.reset()

    async def _reset_rubric_async(self) -> None:
        if self.rubric is not None:
            outcome: Any = self.rubric.reset()
            if hasattr(outcome, "__await__"):
                await outcome


class Renders(Protocol):
    """What an environment may offer beside the contract: to show people where an episode stands.

    An environment that has the method need not derive from this class. It may be plain or
    ``async def``, and runs where the other methods do. Clients call it by `EnvClient.render`;
    browsers, by ``GET /render``.
    """

    def render(self) -> Rendering:
        """Draw where the episode stands, after `done` too.

        It is for whoever drives the environment, like `state`: it may show what the agent must not
        see, and agents are never given it. Drawing changes nothing, neither the state nor what
        later steps lead to. It may be called before the first `reset`.

        Returns:
            One of

            - text, as a terminal shows it, in lines;
            - an SVG: text that begins with ``<svg`` or with an XML prolog (``<?xml``);
            - pixels: a uint8 array of shape (height, width, 3), which is RGB; (height, width) is
              grey, and 4 channels are RGBA. It is written down before anything else is called, so
              the array may be used again;
            - an `openenv.arrays.Picture`: an image file's bytes and their media type.

        Raises:
            Refused: There is nothing to show yet, or any more.
            NotSupported: This instance cannot draw, for want of a package, say.
        """
        ...


class Snapshots(Protocol):
    """What an environment may offer beside the contract: to store an episode and go back to it.

    An environment that has both methods need not derive from this class. They may be plain or
    ``async def``, and run where its other methods do. Clients call them by `EnvClient.snapshot`,
    `restore` and `fork`.
    """

    def snapshot(self) -> bytes:
        """Write down where the episode stands, such that `restore` can go on from there.

        That is all that further observations, rewards and the state depend on, generators of
        random numbers included. Taking it changes nothing.

        Raises:
            NotSupported: This episode cannot be stored.
        """
        ...

    def restore(self, data: bytes) -> None:
        """Go on where `snapshot` was taken, by this instance or by another one of the class.

        A running episode is abandoned. The same actions lead to the same observations as they
        would have from there. It may be called before the first `reset`.

        The bytes come from a client, so they may be anything: do not unpickle them.

        Raises:
            ValueError: They are none that `snapshot` has written. Nothing changes.
        """
        ...


# The four ways an observation comes about, in the manner of dm_env.


def restart(observation: ObsT) -> ObsT:
    """Mark `observation` as the first of an episode: not done, not scored."""
    return observation.model_copy(update={"done": False, "truncated": False, "reward": None})


def transition(observation: ObsT, reward: float | None = None) -> ObsT:
    """Mark `observation` as one in the middle of an episode."""
    return observation.model_copy(update={"done": False, "truncated": False, "reward": reward})


def termination(observation: ObsT, reward: float | None = None) -> ObsT:
    """Mark `observation` as the last one: the task itself is over."""
    return observation.model_copy(update={"done": True, "truncated": False, "reward": reward})


def truncation(observation: ObsT, reward: float | None = None) -> ObsT:
    """Mark `observation` as the last one: a limit outside the task cut the episode off."""
    return observation.model_copy(update={"done": True, "truncated": True, "reward": reward})
