"""What a class put for the parameters of a generic base, however far above."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar, Union

from openenv import EnvClient, Environment, create_app
from openenv._internal.generics import members, type_arguments
from openenv.execution.spec import models_of
from openenv.types import Action, Observation, State, StepResult

ObsT = TypeVar("ObsT", bound=Observation)
ActT = TypeVar("ActT", bound=Action)


class Move(Action):
    """An action."""


class Board(Observation):
    """An observation."""


class Fixed(EnvClient[Move, ObsT, State], Generic[ObsT]):
    """Leaves one parameter open."""


class Swapped(EnvClient[ActT, ObsT, State], Generic[ObsT, ActT]):
    """Names its own in another order."""


class Inner(Fixed[Board]): ...


class Open(Fixed): ...  # type: ignore[type-arg]


class Reordered(Swapped[Board, Move]): ...


class Last(Reordered): ...


class Base(Environment[ActT, ObsT, State], Generic[ActT, ObsT]):
    def reset(self) -> ObsT:  # type: ignore[override]
        raise NotImplementedError

    def step(self, action: ActT) -> ObsT:  # type: ignore[override]
        raise NotImplementedError

    @property
    def state(self) -> State:
        return State()


class Concrete(Base[Move, Board]): ...


class Newer(Environment):  # type: ignore[type-arg]
    async def reset(self) -> Board:  # type: ignore[override]
        return Board()

    async def step(self, action: Move | Action) -> StepResult:  # type: ignore[override,type-arg]
        return StepResult(Board())

    async def state(self) -> State:
        return State()


def test_parameters_are_followed_through_the_classes_between() -> None:
    assert type_arguments(Inner, EnvClient) == (Move, Board, State)
    assert type_arguments(Reordered, EnvClient) == (Move, Board, State)
    assert type_arguments(Last, EnvClient) == (Move, Board, State)
    assert type_arguments(Open, EnvClient) is None
    assert type_arguments(EnvClient, EnvClient) is None
    assert models_of(Concrete) == (Move, Board, State)
    assert create_app(Concrete).title


def test_a_bare_step_result_takes_its_observation_from_reset() -> None:
    assert models_of(Newer) == (Move | Action, Board, None)


def test_members_of_unions_however_they_are_written() -> None:
    assert members(int) == (int,)
    assert members(int | str | None) == (int, str, type(None))
    nested: Any = Annotated[Union[int, Annotated[str | bytes, "inner"]], "outer"]  # noqa: UP007
    assert members(nested) == (int, str, bytes)
