"""Environments of this project whose games are chosen by name: ``openspiel:tic_tac_toe``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from openenv._internal.imports import import_attribute
from openenv._internal.packages import needs
from openenv.environment import Environment
from openenv.errors import Refused
from openenv.wrappers.made import AdapterError, claimed, preset

__all__ = ["from_openspiel", "from_reasoning_gym", "from_textarena"]


def from_openspiel(game: str, /, **arguments: Any) -> type[Environment[Any, Any, Any]]:
    """`OpenSpielEnvironment` with a game of OpenSpiel.

    Args:
        game: A name such as ``tic_tac_toe``, or OpenSpiel's long form such as
            ``goofspiel(num_cards=4)``.
        **arguments: For its constructor, such as ``opponent_policy="first"``.

    Raises:
        AdapterError: There is no such game or argument.
        MissingPackage: `openspiel_env`, or OpenSpiel, is not installed.
    """
    cls = "openspiel_env.server.openspiel_environment:OpenSpielEnvironment"
    made_by = functools.partial(from_openspiel, game, **arguments)
    return _preset("openspiel", cls, game, made_by, {"game_name": game, **arguments})


def from_reasoning_gym(
    dataset: str, /, *, seed: int | None = None, size: int | None = None, **config: Any
) -> type[Environment[Any, Any, Any]]:
    """`ReasoningGymEnvironment` with a dataset of Reasoning Gym, unless `reset` says another.

    Args:
        dataset: A name such as ``leg_counting``.
        seed: The dataset's seed; None draws one.
        size: Questions of the dataset; None is 500.
        **config: The dataset's options, by their names in the library.

    Raises:
        AdapterError: There is no such dataset or option.
        MissingPackage: `reasoning_gym_env`, or Reasoning Gym, is not installed.
    """
    made_by = functools.partial(from_reasoning_gym, dataset, seed=seed, size=size, **config)
    place = "reasoning_gym_env.server.reasoning_gym_environment:ReasoningGymEnvironment"
    cls = _imported(f"reasoning_gym:{dataset}", place)
    own = {"dataset_name": dataset, "dataset_config": config or None, "seed": seed, "size": size}
    made = preset(cls, f"reasoning_gym_{dataset}", made_by, {}, reset=_asking(cls, own))
    with _tried(f"reasoning_gym:{dataset}", made) as environment:
        environment.reset(seed=0)
    return claimed(made)  # type: ignore[no-any-return]


def _asking(cls: Any, own: dict[str, Any]) -> Callable[..., Any]:
    """A `reset` that asks from a dataset of its own, where the caller names none."""
    signature = inspect.signature(cls.reset)

    @functools.wraps(cls.reset)
    def reset(self: Any, *positional: Any, **named: Any) -> Any:
        given = dict(signature.bind(self, *positional, **named).arguments)
        given.pop("self")
        chosen = {name for name, value in given.items() if value is not None} - {"episode_id"}
        is_next = not chosen and self.state.dataset_name is not None
        if not is_next and chosen.isdisjoint({"task", "dataset_name", "dataset_specs"}):
            given = {**own, **{name: value for name, value in given.items() if value is not None}}
        return cls.reset(self, **given)

    return reset


def from_textarena(env_id: str, /, **arguments: Any) -> type[Environment[Any, Any, Any]]:
    """`TextArenaEnvironment` with a game of TextArena.

    Args:
        env_id: A name such as ``TicTacToe-v0``.
        **arguments: For its constructor, such as ``num_players=2``.

    Raises:
        AdapterError: There is no such game or argument.
        MissingPackage: `textarena_env`, or TextArena, is not installed.
    """
    cls = "textarena_env.server.textarena_environment:TextArenaEnvironment"
    made_by = functools.partial(from_textarena, env_id, **arguments)
    return _preset("textarena", cls, env_id, made_by, {"env_id": env_id, **arguments})


def _preset(
    scheme: str,
    place: str,
    name: str,
    made_by: Callable[[], Any],
    arguments: dict[str, Any],
) -> type[Environment[Any, Any, Any]]:
    cls = _imported(f"{scheme}:{name}", place)
    made = preset(cls, f"{scheme}_{name}", made_by, arguments)
    with _tried(f"{scheme}:{name}", made):
        pass
    return claimed(made, 3)  # type: ignore[no-any-return]


def _imported(target: str, place: str) -> Any:
    with needs(target):
        return import_attribute(place)


@contextmanager
def _tried(target: str, made: Any) -> Iterator[Any]:
    """An instance, so that a wrong name is told now, and not to every session."""
    with needs(target):
        try:
            environment = made()
            yield environment
            environment.close()
        except (Refused, TypeError, ValueError) as error:
            raise AdapterError(f"{target}: {error}") from error
