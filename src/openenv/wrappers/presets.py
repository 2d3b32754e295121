"""Environments of this project with a game chosen by name: ``openspiel:tic_tac_toe``."""

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
from openenv.wrappers.classes import AdapterError, assign_to_caller, make_preset

__all__ = ["from_openspiel", "from_reasoning_gym", "from_textarena"]


def from_openspiel(game: str, /, **arguments: Any) -> type[Environment[Any, Any, Any]]:
    """Make an `OpenSpielEnvironment` class for a game.

    Args:
        game: A name such as ``tic_tac_toe``, or OpenSpiel's long form such as
            ``goofspiel(num_cards=4)``.
        **arguments: Arguments of the constructor, such as ``opponent_policy="first"``.

    Raises:
        AdapterError: The game or an argument does not exist.
        MissingPackage: `openspiel_env`, or OpenSpiel, is not installed.
    """
    cls = "openspiel_env.server.openspiel_environment:OpenSpielEnvironment"
    made_by = functools.partial(from_openspiel, game, **arguments)
    return _make_checked("openspiel", cls, game, made_by, {"game_name": game, **arguments})


def from_reasoning_gym(
    dataset: str, /, *, seed: int | None = None, size: int | None = None, **config: Any
) -> type[Environment[Any, Any, Any]]:
    """Make a `ReasoningGymEnvironment` class for a dataset, which `reset` may override.

    Args:
        dataset: A name such as ``leg_counting``.
        seed: The dataset's seed; None for a random seed.
        size: Number of questions; None for 500.
        **config: Options of the dataset, by their names in the library.

    Raises:
        AdapterError: The dataset or an option does not exist.
        MissingPackage: `reasoning_gym_env`, or Reasoning Gym, is not installed.
    """
    made_by = functools.partial(from_reasoning_gym, dataset, seed=seed, size=size, **config)
    place = "reasoning_gym_env.server.reasoning_gym_environment:ReasoningGymEnvironment"
    cls = _import_class(f"reasoning_gym:{dataset}", place)
    own = {"dataset_name": dataset, "dataset_config": config or None, "seed": seed, "size": size}
    made = make_preset(cls, f"reasoning_gym_{dataset}", made_by, {}, reset=_make_reset(cls, own))
    with _try_instance(f"reasoning_gym:{dataset}", made) as environment:
        environment.reset(seed=0)
    return assign_to_caller(made)  # type: ignore[no-any-return]


def _make_reset(cls: Any, own: dict[str, Any]) -> Callable[..., Any]:
    """Return a `reset` that uses this dataset unless the caller names another."""
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
    """Make a `TextArenaEnvironment` class for a game.

    Args:
        env_id: A name such as ``TicTacToe-v0``.
        **arguments: Arguments of the constructor, such as ``num_players=2``.

    Raises:
        AdapterError: The game or an argument does not exist.
        MissingPackage: `textarena_env`, or TextArena, is not installed.
    """
    cls = "textarena_env.server.textarena_environment:TextArenaEnvironment"
    made_by = functools.partial(from_textarena, env_id, **arguments)
    return _make_checked("textarena", cls, env_id, made_by, {"env_id": env_id, **arguments})


def _make_checked(
    scheme: str,
    place: str,
    name: str,
    made_by: Callable[[], Any],
    arguments: dict[str, Any],
) -> type[Environment[Any, Any, Any]]:
    cls = _import_class(f"{scheme}:{name}", place)
    made = make_preset(cls, f"{scheme}_{name}", made_by, arguments)
    with _try_instance(f"{scheme}:{name}", made):
        pass
    return assign_to_caller(made, 3)  # type: ignore[no-any-return]


def _import_class(target: str, place: str) -> Any:
    with needs(target):
        return import_attribute(place)


@contextmanager
def _try_instance(target: str, made: Any) -> Iterator[Any]:
    """Instantiate a class once, so that a wrong name fails now instead of in every session."""
    with needs(target):
        try:
            environment = made()
            yield environment
            environment.close()
        except (Refused, TypeError, ValueError) as error:
            raise AdapterError(f"{target}: {error}") from error
