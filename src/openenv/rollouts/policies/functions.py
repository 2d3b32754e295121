"""Policies that are functions, classes or objects of users."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from pydantic import BaseModel

from openenv.rollouts.calls import UserCodeCaller
from openenv.rollouts.policies.base import (
    Decision,
    EpisodeOpening,
    Policy,
    PolicyError,
    PolicyPlayer,
    PolicyTurn,
)

TURN = frozenset(one.name for one in fields(PolicyTurn)) | {"turn"}


def as_policy(given: Any, *, concurrency: int = 1) -> Policy:
    """Return the policy that an object of a user stands for.

    Args:
        given: A policy, or the name of one; a function; a class with `act`, or an object of one.
        concurrency: Number of episodes that the policy is to play at once.

    Raises:
        PolicyError: It is none of these; or it is an object that remembers an episode, and is to
            play several at once.
    """
    if isinstance(given, str):
        from openenv.rollouts.policies.named import policy_named

        given = policy_named(given)
    if hasattr(given, "begin") and not isinstance(given, type):
        return given  # type: ignore[no-any-return]
    if isinstance(given, type):
        if not hasattr(given, "act"):
            raise PolicyError(f"{given.__name__} is no class of policies: it has no method `act`")
        return PerEpisode(given)
    if hasattr(given, "act"):
        name = type(given).__qualname__
        if hasattr(given, "reset"):
            if concurrency > 1:
                raise PolicyError(
                    f"one {name} cannot play {concurrency} episodes at once, as it has a `reset`; "
                    "pass the class, or PerEpisode(a function that makes one), or concurrency=1"
                )
            return PerEpisode(lambda: given, name=name)
        return FunctionPolicy(given.act, name=name)
    if callable(given):
        return FunctionPolicy(given)
    raise PolicyError(
        f"{given!r:.100} is no policy; expected a function of an observation, a class with `act`, "
        "or the name of one, such as 'random' or 'openai:MODEL'"
    )


class FunctionPolicy:
    """A function that chooses each action, the same function in all episodes.

    Args:
        function: Takes the observation, and by their names other fields of `PolicyTurn`.
        name: The name in records; by default the function's.
        wants_refusals: Ask it again, with `refusal`, where the environment refuses its action. By
            default where it takes an argument of that name.
    """

    needs_interface = False

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        wants_refusals: bool | None = None,
    ) -> None:
        self.name = name or _name(function)
        self._caller = UserCodeCaller()
        self._player = _FunctionPlayer(function, self._caller)
        says_so = self._player.takes("refusal")
        self.wants_refusals = says_so if wants_refusals is None else wants_refusals

    def begin(self, opening: EpisodeOpening) -> PolicyPlayer:
        return self._player

    async def aclose(self) -> None:
        self._caller.close()


class PerEpisode:
    """A factory of objects that each play an episode.

    Args:
        make: Makes one: a class, say, whose `act` is asked as a function is. Its `reset`, if it has
            one, is called with what it takes of the fields of `EpisodeOpening`.
        name: The name in records; by default that of `make`.
    """

    needs_interface = False

    def __init__(self, make: Callable[[], Any], *, name: str | None = None) -> None:
        self.name = name or _name(make)
        act = getattr(make, "act", None)
        self.wants_refusals = act is not None and _FunctionPlayer(act, UserCodeCaller()).takes(
            "refusal"
        )
        self._make = make
        self._maker, self._caller = UserCodeCaller(), UserCodeCaller()

    async def begin(self, opening: EpisodeOpening) -> PolicyPlayer:
        made = await self._maker(self._make)
        if not hasattr(made, "act"):
            raise PolicyError(f"{self.name} made {made!r:.100}, which has no method `act`")
        if hasattr(made, "reset"):
            known = {**vars(opening), "opening": opening}
            wanted = {name: known[name] for name in _named(made.reset) if name in known}
            await self._maker(made.reset, **wanted)
        return _FunctionPlayer(made.act, self._caller, made)

    async def aclose(self) -> None:
        self._maker.close()
        self._caller.close()


class _FunctionPlayer:
    """A function that is called for actions with the observation, or with the whole turn."""

    def __init__(
        self, function: Callable[..., Any], caller: UserCodeCaller, made: Any = None
    ) -> None:
        self._function = function
        self._caller = caller
        self._made = made
        first, *others = _named(function) or [""]
        self._takes_turn = first == "turn"
        self._wanted = [name for name in others if name in TURN]

    def takes(self, name: str) -> bool:
        """Return whether the function takes an argument of a name."""
        return self._takes_turn or name in self._wanted

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(getattr(self._made, "messages", ()))

    async def act(self, turn: PolicyTurn) -> Decision:
        shown = turn if self._takes_turn else turn.observation
        wanted = {name: turn if name == "turn" else getattr(turn, name) for name in self._wanted}
        found = await self._caller(self._function, shown, **wanted)
        if isinstance(found, Decision):
            return found
        if isinstance(found, BaseModel | Mapping):
            return Decision(found)
        raise TypeError(
            f"a policy gave {found!r:.100}; expected an action of the environment's, a mapping of "
            "its fields, or a Decision"
        )


def _named(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # one that is not written in Python
        return []
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for i, p in enumerate(parameters) if i == 0 or p.kind in kinds]


def _name(made: Any) -> str:
    named = getattr(made, "__qualname__", type(made).__qualname__)
    module = getattr(made, "__module__", None)
    return f"{module}:{named}" if module else str(named)
