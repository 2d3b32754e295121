"""What a scorer is to all bridges, and what may come of it.

A scorer is a function, plain or ``async def``, of a `Trajectory`: what `openenv.rewards.delayed`
calls a trajectory scorer. So each goes wherever one is taken: `Environment.trajectory_scorer`, a
client, a rollout, ``openenv score``. It may have, beside that,

- ``score_many(trajectories)``, plain or ``async def``: a list with one outcome for each, for those
  who score several at a time;
- ``identity``: text that is the same as long as it scores the same, by which scores are kept.
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

__all__ = [
    "TEMPORARY_STATUS",
    "Temporary",
    "as_data",
    "as_score",
    "canonical",
    "identity_of",
    "identity_with",
    "is_coroutine_function",
    "name_of",
    "on_thread",
    "plain",
    "result_of",
    "scored_as",
    "scored_now",
    "weighted",
]

T = TypeVar("T")

MAX_REASON = 500

# Answers of a server that is busy, or was not ready (RFC 9110, RFC 6585; 529 is Anthropic's).
TEMPORARY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class Temporary(Unscored):
    """It could not be scored now, and it is worth to ask again: a server was busy, say.

    Attributes:
        retry_after_s: Seconds that it asks to wait; None where it does not say.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


# ------------------------------------------------------------------ what comes of it


def scored_as(
    value: float | None,
    components: Mapping[str, float] | None = None,
    step_rewards: Sequence[float] | None = None,
) -> Score:
    """Make a score of numbers that somebody else gave.

    Raises:
        Unscored: They are not finite, or the components do not add up.
    """
    try:
        number = None if value is None else float(value)
        return Score(number, components or {}, step_rewards=step_rewards)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise Unscored(f"it is no score: {error}"[:MAX_REASON]) from error


def as_score(outcome: Any, steps: int) -> Score:
    """Read what a scorer gave: a number, a list of one a step, a `Score`, or None.

    Args:
        outcome: What it gave.
        steps: How many steps the episode has.

    Raises:
        Unscored: It is none of these, or not finite; or there are more, or fewer, than steps.
    """
    if outcome is None:
        return Score()
    if isinstance(outcome, Score):
        _check_count(outcome.step_rewards, steps)
        return outcome
    if isinstance(outcome, str | bytes | Mapping):
        raise Unscored(f"expected a number, a list or a Score, got {outcome!r:.100}")
    if not isinstance(outcome, Sequence):
        return scored_as(outcome)
    _check_count(outcome, steps)
    score = scored_as(0.0, None, outcome)
    assert score.step_rewards is not None
    return scored_as(math.fsum(score.step_rewards), None, score.step_rewards)


def _check_count(shares: Sequence[Any] | None, steps: int) -> None:
    if shares is not None and len(shares) != steps:
        raise Unscored(f"{len(shares)} rewards for {steps} steps")


def weighted(
    parts: Mapping[str, float | None], weights: Mapping[str, float] | None = None
) -> Score:
    """Add up what several scorers gave, each times its weight; those that gave None are left out.

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
    return scored_as(math.fsum(components.values()), components if len(parts) > 1 else None)


# ------------------------------------------------------------------ calling it


def is_coroutine_function(scorer: Any) -> bool:
    """Whether calling it gives an awaitable."""
    call = getattr(scorer, "__call__", None)  # noqa: B004  # of an instance, the method of its class
    return inspect.iscoroutinefunction(scorer) or inspect.iscoroutinefunction(call)


def on_thread(function: Callable[..., T], *arguments: Any) -> concurrent.futures.Future[T]:
    """Call a function on a thread of its own, which keeps nobody from ending the program."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            found = function(*arguments)
        except StopIteration as error:  # which no future of asyncio may hold
            future.set_exception(RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(found)

    threading.Thread(target=work, name="openenv-scorer", daemon=True).start()
    return future


def result_of(outcome: Any) -> Any:
    """What a call came to, waiting for it here where it is to be awaited.

    A thread with a running event loop cannot wait for another one: the work is then done on a
    thread of its own.
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


async def scored_now(scorer: TrajectoryScorer, trajectory: Trajectory[Any, Any]) -> Score:
    """Have a scorer score an episode.

    Raises:
        Unscored: It cannot.
        Exception: Whatever the scorer raises.
    """
    outcome = scorer(trajectory)
    if isinstance(outcome, Awaitable):
        outcome = await outcome
    score = as_score(outcome, len(trajectory))
    if score.unscored:
        raise Unscored(score.unscored)
    return score


# ------------------------------------------------------------------ what identifies it


def name_of(scorer: Any) -> str:
    """What to call it."""
    for attribute in ("name", "__qualname__"):
        name = getattr(scorer, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(scorer).__name__


def identity_of(scorer: Any) -> str | None:
    """Text that is the same as long as it scores the same; None where that cannot be told.

    That is its ``identity``; of a function of a module, its name and its code. What the function
    calls is not looked at.
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


def identity_with(identity: str, *functions: Callable[..., Any]) -> str | None:
    """The identity of a scorer that these functions are part of; None where that of one of them
    cannot be told.
    """
    told = [identity_of(function) for function in functions]
    return None if None in told else f"{identity}:{','.join(map(str, told))}"


# ------------------------------------------------------------------ an episode as JSON


def as_data(trajectory: Trajectory[Any, Any]) -> dict[str, Any]:
    """An episode as JSON has it, with all that its task is scored by.

    Bytes are base64; a number that JSON has not (``NaN``, ``Infinity``) is its name.

    Raises:
        Unscored: Something in it cannot be written as JSON.
    """
    rewards = [*trajectory.rewards, *[None] * (len(trajectory) - len(trajectory.rewards))]
    steps = [
        {"action": action, "observation": observation, "reward": reward}
        for (action, observation), reward in zip(trajectory, rewards, strict=False)
    ]
    return {
        "task": plain(trajectory.task),
        "first": plain(trajectory.first),
        "steps": plain(steps),
    }


def plain(value: Any) -> Any:
    """A value as JSON has it.

    Raises:
        Unscored: It cannot be written as JSON.
    """
    try:
        return to_jsonable_python(
            value, bytes_mode="base64", inf_nan_mode="strings", fallback=_of_array
        )
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise Unscored(f"the episode cannot be written as JSON: {error}"[:MAX_REASON]) from error


def _of_array(value: Any) -> Any:
    if hasattr(value, "tolist"):  # of NumPy, or a tensor
        return value.tolist()
    raise ValueError(f"there is no JSON of {type(value).__name__}")


def canonical(data: Any) -> bytes:
    """Write JSON in the one way in which equal data are equal bytes."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
