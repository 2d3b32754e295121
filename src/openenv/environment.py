"""The contract between an environment's author and everything that drives environments.

An episode goes like this (after dm_env, Muldal et al. 2019, and Gymnasium, Towers et al. 2024):

    observation = env.reset(seed=0)              # begins an episode
    while not observation.done:
        observation = env.step(action)           # one transition
    env.close()                                  # once, at the end

The docstrings of `Environment.reset`, `step`, `state` and `close`, of `Renders` and of `Snapshots`
are the complete contract: drivers may rely on them, and `openenv.testing.check_environment` checks
them.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from openenv.errors import Unscored
from openenv.events import Event, EventQueue
from openenv.reward import REWARD_INFO, RewardSpec, Score, components_of
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
    "scored",
    "termination",
    "transition",
    "truncation",
]

ActT = TypeVar("ActT", bound=Action)
ObsT = TypeVar("ObsT", bound=Observation)
StateT = TypeVar("StateT", bound=State)


class Transform(ABC, Generic[ObsT]):
    """A function from observation to observation, for example to add a reward.

    Example:
        >>> from openenv import Observation, Transform
        >>> class Pay(Transform):
        ...     def __call__(self, observation: Observation) -> Observation:
        ...         return observation.model_copy(update={"reward": -0.1})
        >>> Pay()(Observation(reward=1.0)).reward
        -0.1
    """

    @abstractmethod
    def __call__(self, observation: ObsT) -> ObsT:
        """Return the observation to send instead of `observation`, or the same object."""


class CompositeTransform(Transform[ObsT]):
    """A transform that applies several transforms in order."""

    def __init__(self, transforms: list[Transform[ObsT]]) -> None:
        self.transforms = transforms

    def __call__(self, observation: ObsT) -> ObsT:
        for transform in self.transforms:
            observation = transform(observation)
        return observation


class NullTransform(Transform[ObsT]):
    """A transform that changes nothing."""

    def __call__(self, observation: ObsT) -> ObsT:
        return observation


class Environment(ABC, Generic[ActT, ObsT, StateT]):
    """A world that an agent acts in; a subclass writes `reset`, `step` and `state`.

    One instance serves one session. Its methods are never called concurrently. All methods of a
    synchronous environment are called on the same thread, from the constructor to `close`, unless
    the class declares that this does not matter. Coroutines are awaited on the server's event loop.

    The methods may be plain functions or ``async def``; `reset_async` and `step_async` may be
    overridden instead. Arguments that a signature lacks are not passed, so ``def reset(self)`` and
    ``def step(self, action)`` are fine. `state` may be a property, a method or a coroutine method.
    `super().__init__()` need not be called.

    Class attributes:
        SUPPORTS_CONCURRENT_SESSIONS: Whether several instances may live in one process at once.
            Default: False, so a server has one session at a time.
        REQUIRES_SINGLE_THREAD_EXECUTOR: Whether all instances in the process must share one thread.
            Default: False.
        SUPPORTS_ANY_THREAD: Whether the methods may be called from different threads, one at a
            time. Set True if the environment holds nothing that belongs to a thread, such as a
            database connection, a browser or a graphics context. Many sessions then share few
            threads, and a slow step does not delay other sessions. Default: False.
        NEVER_BLOCKS: Whether the methods take only microseconds and never wait, so that they may
            be called on the event loop itself. Default: False.
        REWARD: The meaning of the rewards (see `openenv.reward`). Default: None, not declared.

    Attributes:
        transform: The transform of observations; see `Transform`.
        rubric: The rubric that scores steps, if `reset` and `step` call it; see `openenv.rewards`.
        trajectory_scorer: Function that scores an episode as a whole. When an observation is done,
            it is called with the episode's list of (action, observation) pairs, and returns the
            reward of the last observation; see `openenv.rewards.delayed`.

    Example:
        >>> from openenv import Action, Environment, Observation, State
        >>> class Add(Action):
        ...     number: int
        >>> class Total(Observation):
        ...     total: int = 0
        >>> class Counter(Environment[Add, Total, State]):
        ...     state = State()
        ...
        ...     def reset(self, seed: int | None = None) -> Total:
        ...         self.total = 0
        ...         return Total()
        ...
        ...     def step(self, action: Add) -> Total:
        ...         self.total += action.number
        ...         return Total(total=self.total, reward=1.0, done=self.total >= 10)
        >>> env = Counter()
        >>> env.reset().total, env.step(Add(number=4)).total
        (0, 4)
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = False
    REQUIRES_SINGLE_THREAD_EXECUTOR: ClassVar[bool] = False
    SUPPORTS_ANY_THREAD: ClassVar[bool] = False
    NEVER_BLOCKS: ClassVar[bool] = False
    REWARD: ClassVar[RewardSpec | None] = None

    transform: Any = None
    rubric: Any = None
    trajectory_scorer: Any = None
    _begin_rubric: Callable[[], Any] | None = None  # a reset to await before the next score

    def __init__(
        self,
        transform: Transform[ObsT] | None = None,
        rubric: Any | None = None,
        *,
        trajectory_scorer: Callable[..., Any] | None = None,
    ) -> None:
        self.transform = transform
        self.rubric = rubric
        if trajectory_scorer is not None:
            self.trajectory_scorer = trajectory_scorer

    @abstractmethod
    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> ObsT:
        """Begin a new episode and return the first observation.

        Args:
            seed: Seed of the episode: the same seed and the same actions give the same observations
                and rewards. None begins a fresh random episode.
            episode_id: Value of `state.episode_id`; None lets the environment choose.
            **kwargs: Further arguments that the environment declares, such as a task or a
                difficulty.

        Returns:
            An observation with ``done=False`` (unless the episode is over before it begins).

        A running episode is abandoned. `state.step_count` is 0 afterwards.
        """

    @abstractmethod
    def step(self, action: ActT, timeout_s: float | None = None, **kwargs: Any) -> ObsT:
        """Carry out an action and return the resulting observation.

        Args:
            action: An instance of the environment's action model, already validated.
            timeout_s: Seconds that the caller will wait; None means no limit.
            **kwargs: Further arguments that the environment declares.

        Returns:
            An observation, or a `StepResult` that holds one. `done` ends the episode; `truncated`
            as well says that a limit, not the task, ended it. `reward` is a finite number, or None
            if the step was not scored: never 0 for "could not score".

        Raises:
            Refused: The environment refuses the action, such as an illegal move; the caller gets
                the text. A step before `reset`, or after `done`, should raise this error and change
                nothing.
            Exception: The step failed. The caller gets the exception's class and an incident id,
                under which the server's log has the details; and the text only if the server runs
                with ``debug``.

        After either error the session continues, and the episode is where the exception left it.
        """

    @property
    @abstractmethod
    def state(self) -> StateT:
        """Return the state of the episode; `step_count` counts the steps since `reset`.

        Reading the state changes nothing. It may be read before the first `reset`.
        """

    @cached_property
    def events(self) -> EventQueue:
        """The queue of events between steps, empty in a static world; see `openenv.events`."""
        return EventQueue()

    def on_event(self, event: Event) -> Any:
        """Handle an event since the last step. May be a coroutine method.

        If overridden, the method is called before the next step or tool call, once for each event
        in `events` that is due by then.
        """

    def close(self) -> None:
        """Release all resources. Called once, as the last method."""

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> ObsT:
        """Reset on the event loop; an override replaces `reset`."""
        return self.reset(seed=seed, episode_id=episode_id, **kwargs)

    async def step_async(self, action: ActT, timeout_s: float | None = None, **kwargs: Any) -> ObsT:
        """Step on the event loop; an override replaces `step`."""
        return self.step(action, timeout_s=timeout_s, **kwargs)

    async def close_async(self) -> None:
        """Close on the event loop; an override replaces `close`."""
        self.close()

    def get_metadata(self) -> EnvironmentMetadata:
        """Describe the environment to people; shown by `/metadata` and the web page."""
        name = type(self).__name__
        return EnvironmentMetadata(name=name, description=f"{name} environment", version="1.0.0")

    # Methods that an author may call from `reset` and `step`; nothing else calls them.

    def _apply_transform(self, observation: ObsT) -> ObsT:
        transform: Callable[[ObsT], ObsT] | None = self.transform
        return observation if transform is None else transform(observation)

    def _apply_rubric(self, action: ActT, observation: ObsT) -> float | None:
        """Score a step with the rubric; return 0 without a rubric, None if scoring failed.

        The details of the score, its components or the reason of a failure, are added to the
        observation's metadata; see `scored`.
        """
        if self.rubric is None:
            return 0.0
        begin, self._begin_rubric = self._begin_rubric, None
        if begin is not None:  # `_apply_rubric_async` awaits it
            return self._first_score(begin, action, observation)  # type: ignore[return-value]
        try:
            value: Any = self.rubric(action, observation)
        except Unscored as error:
            return _noted(observation, Score(unscored=str(error)))
        if _is_pending(value):
            return value  # type: ignore[no-any-return]  # `_apply_rubric_async` awaits it
        return _noted(observation, _score_of(self.rubric, value, observation))

    async def _apply_rubric_async(self, action: ActT, observation: ObsT) -> float | None:
        """Do what `_apply_rubric` does, and await the rubric if necessary."""
        try:
            value: Any = self._apply_rubric(action, observation)
            if not _is_pending(value):
                return value  # type: ignore[no-any-return]
            value = await value
        except Unscored as error:
            return _noted(observation, Score(unscored=str(error)))
        return _noted(observation, _score_of(self.rubric, value, observation))

    async def _first_score(
        self, begin: Callable[[], Any], action: ActT, observation: ObsT
    ) -> float | None:
        await begin()
        value: Any = self.rubric(action, observation)
        return await value if _is_pending(value) else value  # type: ignore[no-any-return]

    def _reset_rubric(self) -> None:
        """Begin an episode of the rubric; pending resets are awaited before the next score."""
        self._begin_rubric = None
        if self.rubric is None:
            return
        below = getattr(self.rubric, "rubrics", tuple)
        if any(map(_is_reset_later, (self.rubric, *below()))):
            self._begin_rubric = self._reset_rubric_async
        elif _is_pending(outcome := self.rubric.reset()):
            self._begin_rubric = lambda: outcome

    async def _reset_rubric_async(self) -> None:
        """Begin an episode of the rubric, by `reset_async` if the rubric has that method."""
        self._begin_rubric = None
        if self.rubric is not None:
            reset: Any = getattr(self.rubric, "reset_async", None) or self.rubric.reset
            if _is_pending(outcome := reset()):
                await outcome


class Renders(Protocol):
    """An optional interface of environments that can be rendered for people.

    An environment with a `render` method need not derive from this class. The method may be plain
    or ``async def``, and runs where the other methods do. Clients call it with `EnvClient.render`,
    browsers with ``GET /render``.
    """

    def render(self) -> Rendering:
        """Render the current state of the episode; possible after `done` too.

        Like `state`, the picture is for the program that drives the environment: it may show things
        that the agent must not see, and agents never get it. Rendering changes neither the state
        nor the outcome of later steps. It may be called before the first `reset`.

        Returns:
            One of

            - text, as a terminal shows it, in lines;
            - an SVG: text that begins with ``<svg`` or with an XML prolog (``<?xml``);
            - pixels: a uint8 array of shape (height, width, 3), which is RGB; (height, width) is
              gray, and 4 channels are RGBA. The array is encoded before any other method is called,
              so the environment may reuse it;
            - an `openenv.arrays.Picture`: an image file's bytes and their media type.

        Raises:
            Refused: There is nothing to show yet, or no longer.
            NotSupported: This instance cannot render, for example because a package is missing.
        """
        ...


class Snapshots(Protocol):
    """An optional interface of environments that can store and restore an episode.

    An environment with both methods need not derive from this class. The methods may be plain or
    ``async def``, and run where the other methods do. Clients call them with `EnvClient.snapshot`,
    `restore` and `fork`.
    """

    def snapshot(self) -> bytes:
        """Return the episode's state as bytes, from which `restore` can continue.

        The bytes hold everything that later observations, rewards and the state depend on,
        including random number generators. Taking a snapshot changes nothing.

        Raises:
            NotSupported: This episode cannot be stored.
        """
        ...

    def restore(self, data: bytes) -> None:
        """Continue from a snapshot of this instance, or of another instance of the class.

        A running episode is abandoned. From then on, actions give the same observations as after
        the snapshot. The method may be called before the first `reset`.

        The bytes come from a client and cannot be trusted: do not unpickle them.

        Raises:
            ValueError: The bytes are not from `snapshot`. Nothing changes.
        """
        ...


def _is_pending(value: Any) -> bool:
    """Return whether a value must be awaited; an awaitable float of a rubric need not be."""
    return hasattr(value, "__await__") and not isinstance(value, float)


def _is_reset_later(rubric: Any) -> bool:
    """Return whether the reset of a rubric itself, without its children, must be awaited."""
    is_later = inspect.iscoroutinefunction(getattr(rubric, "forward", None))
    is_later = is_later and hasattr(rubric, "reset_async")
    return is_later or inspect.iscoroutinefunction(getattr(rubric, "reset", None))


def _score_of(rubric: Any, value: Reward, observation: Any) -> Score:
    """Return a rubric's last score with details; a plain function has no details."""
    if value is None or isinstance(value, Score):
        return value or Score()
    if not math.isfinite(value):
        return Score(unscored=f"the rubric gave {value}")
    is_over = getattr(observation, "done", False)
    return Score(
        float(value) if isinstance(value, float) else value,
        components_of(rubric),
        step_rewards=_shares_of(rubric) if is_over else None,
    )


def _shares_of(rubric: Any) -> list[float] | None:
    """Return the rubric's reward for each step of the episode, or None.

    A failure is only logged: the reward does not depend on the shares, and older versions never
    called this method.
    """
    compute: Callable[[], Any] | None = getattr(rubric, "compute_step_rewards", None)
    if not callable(compute):
        return None
    try:
        shares = [float(share) for share in compute()]
        if not all(map(math.isfinite, shares)):
            raise ValueError(f"the rewards of steps must be finite: {shares}")
        return shares
    except NotImplementedError:
        return None
    except Exception:
        import logging

        why = "%s.compute_step_rewards failed; the steps get no shares"
        logging.getLogger(__name__).exception(why, type(rubric).__name__)
        return None


def _noted(observation: Any, score: Score) -> float | None:
    info, metadata = score.as_info(), getattr(observation, "metadata", None)
    if isinstance(metadata, dict):
        if isinstance(metadata.get(REWARD_INFO), dict):
            del metadata[REWARD_INFO]  # from an earlier step, if the observation is reused
        if info:
            metadata[REWARD_INFO] = info
    return score.value


Reward = float | Score | None


def scored(observation: ObsT, reward: Reward) -> ObsT:
    """Return the observation with a reward, and with the reward's details in the metadata.

    return scored(observation, Score(0.7, {"correct": 0.5, "format": 0.2}))
    """
    if not isinstance(reward, Score):
        return observation.model_copy(update={"reward": reward})
    metadata = {name: v for name, v in observation.metadata.items() if name != REWARD_INFO}
    info = reward.as_info()
    metadata |= {REWARD_INFO: info} if info else {}
    return observation.model_copy(update={"reward": reward.value, "metadata": metadata})


# The four kinds of observations, as in dm_env.


def restart(observation: ObsT) -> ObsT:
    """Mark `observation` as the first of an episode: not done, not scored.

    Example:
        >>> from openenv import Observation, restart
        >>> observation = restart(Observation())
        >>> observation.done, observation.reward
        (False, None)
    """
    return observation.model_copy(update={"done": False, "truncated": False, "reward": None})


def transition(observation: ObsT, reward: Reward = None) -> ObsT:
    """Mark `observation` as one in the middle of an episode.

    Example:
        >>> from openenv import Observation, transition
        >>> observation = transition(Observation(), reward=0.5)
        >>> observation.done, observation.reward
        (False, 0.5)
    """
    return scored(observation.model_copy(update={"done": False, "truncated": False}), reward)


def termination(observation: ObsT, reward: Reward = None) -> ObsT:
    """Mark `observation` as the last: the task itself is over.

    Example:
        >>> from openenv import Observation, termination
        >>> observation = termination(Observation(), reward=1.0)
        >>> observation.done, observation.truncated, observation.reward
        (True, False, 1.0)
    """
    return scored(observation.model_copy(update={"done": True, "truncated": False}), reward)


def truncation(observation: ObsT, reward: Reward = None) -> ObsT:
    """Mark `observation` as the last: a limit outside the task cut the episode off.

    Example:
        >>> from openenv import Observation, truncation
        >>> observation = truncation(Observation(), reward=0.0)
        >>> observation.done, observation.truncated
        (True, True)
    """
    return scored(observation.model_copy(update={"done": True, "truncated": True}), reward)
