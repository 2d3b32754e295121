"""Functions that all bridges share: call a scorer, read the result, identify the scorer.

A scorer is a function, plain or ``async def``, of a `Trajectory`: a trajectory scorer as defined by
`openenv.rewards.delayed`. `Environment.trajectory_scorer`, clients, rollouts and ``openenv score``
accept every scorer. A scorer may also have

- ``score_many(trajectories)``, plain or ``async def``, which returns one result per episode;
- ``identity``: text that changes when the scorer starts to score differently; part of the key under
  which its scores are cached.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import inspect
import json
import math
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic_core import PydanticSerializationError, to_jsonable_python

from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory, TrajectoryScorer

T = TypeVar("T")

MAX_REASON = 500

# Status codes of busy or unready servers (RFC 9110, RFC 6585; 529 is Anthropic's).
TEMPORARY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class TemporarilyUnscored(Unscored):
    """A passing failure to score, such as a busy server.

    Attributes:
        retry_after_s: Seconds that the server asks to wait; None if the server does not say.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


# ------------------------------------------------------------------ results


def make_score(
    value: float | None,
    components: Mapping[str, float] | None = None,
    step_rewards: Sequence[float] | None = None,
) -> Score:
    """Make a score from numbers of another library.

    Raises:
        Unscored: A number is not finite, or the components do not add up to the value.
    """
    try:
        number = None if value is None else float(value)
        return Score(number, components or {}, step_rewards=step_rewards)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise Unscored(f"it is no score: {error}"[:MAX_REASON]) from error


def to_number(name: str, value: Any) -> float:
    """Convert a reward of another library to a number.

    Raises:
        Unscored: The value is not a number.
    """
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise Unscored(f"{name} gave {value!r:.100}, which is no number") from None


def as_score(outcome: Any, steps: int) -> Score:
    """Convert a scorer's result to a `Score`.

    The result may be a `Score`, a number, a list with one number per step, or None.

    Raises:
        Unscored: The result has another type, is not finite, or is a list of another length.
    """
    if outcome is None:
        return Score()
    if isinstance(outcome, Score):
        _check_count(outcome.step_rewards, steps)
        return outcome
    if isinstance(outcome, str | bytes | Mapping):
        raise Unscored(f"expected a number, a list or a Score, got {outcome!r:.100}")
    if not isinstance(outcome, Sequence):
        return make_score(outcome)
    _check_count(outcome, steps)
    score = make_score(0.0, None, outcome)
    assert score.step_rewards is not None
    return make_score(math.fsum(score.step_rewards), None, score.step_rewards)


def _check_count(shares: Sequence[Any] | None, steps: int) -> None:
    if shares is not None and len(shares) != steps:
        raise Unscored(f"{len(shares)} rewards for {steps} steps")


def add_weighted(
    parts: Mapping[str, float | None], weights: Mapping[str, float] | None = None
) -> Score:
    """Add up the weighted rewards of several scorers, leaving out None.

    Raises:
        Unscored: A number is not finite.
    """
    weights = weights or {}
    given = {name: part for name, part in parts.items() if part is not None}
    for name, part in given.items():
        if not math.isfinite(part):
            raise Unscored(f"{name} gave {part}")
    components = {name: part * weights.get(name, 1.0) for name, part in given.items()}
    if not components:
        return Score()
    return make_score(math.fsum(components.values()), components if len(parts) > 1 else None)


# ------------------------------------------------------------------ calls


def is_coroutine_function(scorer: Any) -> bool:
    """Return whether the scorer, or its ``__call__`` method, is a coroutine function."""
    call = getattr(scorer, "__call__", None)  # noqa: B004  # the method of an instance's class
    return inspect.iscoroutinefunction(scorer) or inspect.iscoroutinefunction(call)


def on_thread(function: Callable[..., T], *arguments: Any) -> concurrent.futures.Future[T]:
    """Call a function on a new daemon thread, which does not keep the program from exiting."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            found = function(*arguments)
        except StopIteration as error:  # asyncio futures do not accept this exception
            future.set_exception(RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(found)

    threading.Thread(target=work, name="openenv-scorer", daemon=True).start()
    return future


def await_result(outcome: Any) -> Any:
    """Return the result of a call, blocking until an awaitable has finished.

    If this thread has a running event loop, another thread awaits it.
    """
    if not hasattr(outcome, "__await__"):
        return outcome

    async def awaited() -> Any:
        return await outcome

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(awaited())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, awaited()).result()


async def score_now(scorer: TrajectoryScorer, trajectory: Trajectory[Any, Any]) -> Score:
    """Score an episode, and raise an exception if the episode is unscored.

    Raises:
        Unscored: The scorer could not score the episode.
    """
    outcome = scorer(trajectory)
    if isinstance(outcome, Awaitable):
        outcome = await outcome
    return require_score(as_score(outcome, len(trajectory)))


def require_score(score: Score) -> Score:
    """Return a score, or raise `Unscored` if the score gives a reason for no score."""
    if score.unscored:
        raise Unscored(score.unscored)
    return score


# ------------------------------------------------------------------ names and identities


def scorer_name(scorer: Any) -> str:
    """Return the scorer's name for messages and components."""
    for attribute in ("name", "__qualname__"):
        name = getattr(scorer, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(scorer).__name__


def scorer_identity(scorer: Any) -> str | None:
    """Return text that changes when the scorer starts to score differently, or None if unknown.

    The identity is the scorer's ``identity`` attribute. A function of a module is identified by its
    name and a digest of its source; changes of the functions that it calls are not detected.
    """
    identity = getattr(scorer, "identity", None)
    if isinstance(identity, str):
        return identity
    code = getattr(scorer, "__code__", None)
    if code is None or getattr(scorer, "__closure__", None) or hasattr(scorer, "__self__"):
        return None
    defaults = (scorer.__defaults__, scorer.__kwdefaults__)
    try:
        text = inspect.getsource(scorer)
    except (OSError, TypeError):
        text = repr((code.co_code, code.co_consts, code.co_names))
    digest = hashlib.sha256(f"{text}{defaults!r}".encode()).hexdigest()
    return f"{scorer.__module__}:{scorer.__qualname__}:{digest[:16]}"


def extend_identity(identity: str, *functions: Callable[..., Any]) -> str | None:
    """Return the identity extended by those of the functions, or None if one is unknown."""
    told = [scorer_identity(function) for function in functions]
    return None if None in told else f"{identity}:{','.join(map(str, told))}"


# ------------------------------------------------------------------ an episode as JSON


def trajectory_to_json(trajectory: Trajectory[Any, Any]) -> dict[str, Any]:
    """Convert an episode to JSON values, with all fields of the task that scoring may use.

    Bytes become base64. Numbers that JSON cannot express become the strings ``NaN`` and
    ``Infinity``.
    """
    rewards = [*trajectory.rewards, *[None] * (len(trajectory) - len(trajectory.rewards))]
    steps = [
        {"action": action, "observation": observation, "reward": reward}
        for (action, observation), reward in zip(trajectory, rewards, strict=False)
    ]
    return {
        "task": to_json_value(trajectory.task),
        "first": to_json_value(trajectory.first),
        "steps": to_json_value(steps),
    }


def to_json_value(value: Any) -> Any:
    """Convert a value to JSON values.

    Raises:
        Unscored: The value cannot be converted.
    """
    try:
        return to_jsonable_python(
            value, bytes_mode="base64", inf_nan_mode="strings", fallback=_array_to_list
        )
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise Unscored(f"the episode cannot be written as JSON: {error}"[:MAX_REASON]) from error


def _array_to_list(value: Any) -> Any:
    if hasattr(value, "tolist"):  # a NumPy array or a tensor
        return value.tolist()
    raise ValueError(f"{type(value).__name__} has no JSON form")


def canonical_json(data: Any) -> bytes:
    """Encode JSON so that equal data give equal bytes."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
