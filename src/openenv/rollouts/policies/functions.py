"""Policies that are users' functions, classes or objects."""

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
    """Return the policy for an object of a user.

    Args:
        given: A policy or the name of one; a function; or a class with `act`, or an instance of it.
        concurrency: Number of episodes that the policy is to play at once.

    Raises:
        PolicyError: `given` is not a policy; or it is an object with `reset`, which keeps the state
            of one episode, and `concurrency` is above 1.
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
        function: Called with the observation, and by name with other fields of `PolicyTurn`.
        name: The name in records. Default: the function's name.
        wants_refusals: Call the function again, with `refusal`, if the environment refuses its
            action. Default: True if the function takes an argument `refusal`.
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
    """A policy that creates an object for each episode.

    Args:
        make: Creates an object with `act`, which is called like a function policy; for example a
            class. If the object has `reset`, it is called with the fields of `EpisodeOpening` that
            it takes by name.
        name: The name in records. Default: the name of `make`.
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
    """A function that is called for actions, with the observation or with the whole turn."""

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
        """Return whether the function takes an argument with a name."""
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
    except (TypeError, ValueError):  # a function that is not written in Python
        return []
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for i, p in enumerate(parameters) if i == 0 or p.kind in kinds]


def _name(made: Any) -> str:
    named = getattr(made, "__qualname__", type(made).__qualname__)
    module = getattr(made, "__module__", None)
    return f"{module}:{named}" if module else str(named)
