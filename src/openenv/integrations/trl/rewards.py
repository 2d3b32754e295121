"""Reward functions for TRL that skip rollouts whose environment has failed.

TRL sums the rewards of all functions and counts None as 0, unless every function returned None. So
one function that scores a rollout whose environment has failed makes that rollout count, with 0 as
the environment's reward. `skip_failures` makes a function return None for such a rollout.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from openenv.errors import OpenEnvError

SKIPS = "_openenv_skips_failures"
TRANSCRIPT = "transcript"
"""The column of TRL's table of completions that holds the conversation as text."""


class TrainingRefused(OpenEnvError, ValueError):
    """The trainer's configuration would train on a wrong signal."""


def env_reward(
    env_reward: Sequence[float | None],
    env_messages: Sequence[Sequence[dict[str, Any]]] | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **_: Any,
) -> list[float | None]:
    """Return the environment's rewards, given by `rollout_func`: a reward function for TRL.

    The conversations are added to TRL's table of completions as the column ``transcript``.

    Args:
        env_reward: The reward of each rollout; None if unscored, so that TRL leaves the rollout
            out.
        env_messages: The conversation of each rollout.
        log_extra: TRL's function that adds a column to the table.
    """
    if log_extra is not None and env_messages is not None:
        log_extra(
            TRANSCRIPT,
            [
                "\n\n".join(f"{one['role']}: {_text(one.get('content'))}" for one in messages)
                for messages in env_messages
            ],
        )
    return list(env_reward)


setattr(env_reward, SKIPS, True)


def skip_failures(reward_func: Callable[..., Any]) -> Callable[..., Any]:
    """Make a reward function return None for rollouts that have no reward from the environment.

        GRPOTrainer(..., rollout_func=rollouts, reward_funcs=[env_reward, skip_failures(brevity)])
        GRPOTrainer(..., environment_factory=Blackjack, reward_funcs=skip_failures(brevity))

    Args:
        reward_func: A reward function of TRL, ``def`` or ``async def``.

    Returns:
        The wrapped function, under the same name.

    Raises:
        TypeError: `reward_func` is not a function. A reward model, or its name, cannot return None:
            call the model from a function, and pass that function.
    """
    if not callable(reward_func) or hasattr(reward_func, "forward"):
        raise TypeError(
            f"skip_failures got {type(reward_func).__name__}; expected a function that returns a "
            "reward for each completion. Call a reward model from such a function"
        )
    called: Any = reward_func if inspect.isroutine(reward_func) else type(reward_func).__call__
    if inspect.iscoroutinefunction(called):

        async def wrapped_async(**given: Any) -> list[Any]:
            return _without_failed(await reward_func(**given), given)

        return _marked(wrapped_async, reward_func)

    def wrapped(**given: Any) -> list[Any]:
        return _without_failed(reward_func(**given), given)

    return _marked(wrapped, reward_func)


def skips_failures(reward_func: Any) -> bool:
    """Return whether a reward function, ours or TRL's ``get_reward``, returns None for a rollout
    whose environment failed.
    """
    module = str(getattr(reward_func, "__module__", ""))
    return getattr(reward_func, SKIPS, False) or (
        module.startswith("trl.") and getattr(reward_func, "__name__", "") == "get_reward"
    )


def check_reward_functions(trainer: Any) -> None:
    """Refuse reward functions that would make failed rollouts count.

    A single function is accepted: TRL leaves out the rollouts for which it returns None.

    Raises:
        TrainingRefused: One of several is not wrapped by `skip_failures`.
    """
    functions = list(getattr(trainer, "reward_funcs", ()))
    missing = [one for one in functions if not skips_failures(one)]
    if len(functions) > 1 and missing:
        raise TrainingRefused(
            f"the reward function {', '.join(names_of(missing))} stands beside others, and may "
            "give a reward to a rollout whose environment has failed: TRL then counts the "
            "environment's part as 0. Wrap it: from openenv.integrations.trl import skip_failures; "
            "reward_funcs=[..., skip_failures(function)]"
        )


def names_of(functions: Sequence[Any]) -> list[str]:
    """Return the names of reward functions for messages."""
    return [repr(getattr(one, "__name__", type(one).__name__)) for one in functions]


def _marked(wrapped: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    functools.update_wrapper(wrapped, function)
    wrapped.__name__ = getattr(function, "__name__", type(function).__name__)  # TRL logs it
    setattr(wrapped, SKIPS, True)
    return wrapped


def _without_failed(rewards: Sequence[Any], given: dict[str, Any]) -> list[Any]:
    has_failed = _failed(given)
    return [None if is_out else reward for reward, is_out in zip(rewards, has_failed, strict=True)]


def _failed(given: dict[str, Any]) -> list[bool]:
    if given.get("env_reward") is not None:
        return [one is None for one in given["env_reward"]]
    environments = given.get("environments")
    if environments is not None:
        return [getattr(one, "unscored", None) is not None for one in environments]
    raise TrainingRefused(
        "skip_failures cannot tell which rollouts have failed: TRL passed neither `environments` "
        "nor `env_reward`, as AsyncGRPO does not. Use it with environment_factory or rollout_func "
        "of a GRPOTrainer; with AsyncGRPO let the environment's reward be the only one"
    )


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(
            str(part.get("text", f"[{part.get('type')}]")) if isinstance(part, dict) else str(part)
            for part in content
        )
    return str(content or "")
