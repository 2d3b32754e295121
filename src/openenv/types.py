"""The values that cross the boundary between an environment and whatever drives it.

`Action` goes in; an `Observation` (or a `StepResult` that holds one) comes out; a `State` says
where the episode stands. All but `StepResult` are Pydantic models, validated on both sides of
the wire.

Episode semantics follow Gymnasium (Farama Foundation, `gymnasium.Env.step`): an episode ends by
*termination* (the task itself ended: won, lost, solved) or by *truncation* (something outside the
task ended it: a step or time limit). `done` is true for either; `truncated` tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from openenv._generics import once_per_class

__all__ = [
    "Action",
    "CodeExecResult",
    "EnvironmentMetadata",
    "Observation",
    "Scalar",
    "State",
    "StepResult",
    "declares_truncated",
    "is_observation",
]

Scalar = int | float | bool

ObsT = TypeVar("ObsT")

if TYPE_CHECKING:
    derived = property
else:

    class derived(property):
        """A property that the class itself does not show.

        A subclass may then declare a model field of the same name: Pydantic looks a field's
        default up on the class and would otherwise find the property object there.
        """

        def __get__(self, instance, owner=None):
            if instance is None:
                raise AttributeError("derived attributes exist on instances only")
            return super().__get__(instance, owner)


class Action(BaseModel):
    """What an agent does in one step. Subclass it and declare the fields.

    Unknown fields are refused, so that a misspelt one is an error and not a no-op.
    """

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, arbitrary_types_allowed=True
    )

    metadata: dict[str, Any] = Field(
        default_factory=dict, description="Free-form annotations; never interpreted."
    )


class Observation(BaseModel):
    """What an agent sees after `reset` or `step`. Subclass it and declare the fields.

    `done` is true when the episode is over, for whichever reason. `truncated` is true when
    something outside the task ended it (a limit on steps or time), and implies `done`.
    `reward` is a finite number, or None where there is nothing to score.
    """

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, arbitrary_types_allowed=True
    )

    done: bool = Field(default=False, description="The episode is over.")
    reward: bool | int | float | None = Field(
        default=None, description="Reward of this step; null where there is none."
    )
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="Free-form annotations, sent along as they are."
    )
    truncated: bool = Field(
        default=False, description="The episode was cut off by a limit outside the task."
    )

    @derived
    def terminated(self) -> bool:
        """The episode ended by itself: `done` and not `truncated` (Gymnasium's meaning)."""
        return self.done and not (self.truncated and not declares_truncated(type(self)))


@once_per_class
def is_observation(cls: type) -> bool:
    """Whether a class is an `Observation` (asked once a class: `isinstance` is slow for models)."""
    return issubclass(cls, Observation)


@once_per_class
def declares_truncated(cls: type[BaseModel]) -> bool:
    """Whether a model has a field `truncated` of its own, which may mean anything."""
    field = cls.model_fields.get("truncated")
    inherited = Observation.model_fields["truncated"].description
    return field is not None and field.description != inherited


class State(BaseModel):
    """Where an episode stands. Subclasses add fields, and undeclared fields are kept."""

    model_config = ConfigDict(extra="allow", validate_assignment=True, arbitrary_types_allowed=True)

    episode_id: str | None = Field(default=None, description="Identifies the running episode.")
    step_count: int = Field(default=0, ge=0, description="Steps taken since the last reset.")


class EnvironmentMetadata(BaseModel):
    """How an environment describes itself to people."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    name: str
    description: str
    readme_content: str | None = None
    version: str | None = None
    author: str | None = None
    documentation_url: str | None = None


class CodeExecResult(BaseModel):
    """What running a piece of code printed, and how it ended: 0 is success."""

    model_config = ConfigDict(extra="forbid")

    stdout: str
    stderr: str
    exit_code: int


@dataclass
class StepResult(Generic[ObsT]):
    """One transition as the driver of an environment sees it.

    The order of the first four fields is fixed by existing code.

    Attributes:
        observation: What the environment showed.
        reward: Reward of the step; None where there is none (after `reset`, or not scored).
        done: The episode is over, by termination or truncation.
        metadata: The observation's annotations, or None.
        truncated: The episode was cut off by a limit outside the task.
        info: Diagnostics that are no part of the observation, or None.
    """

    observation: ObsT
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None
    truncated: bool = False
    info: dict[str, Any] | None = None

    @property
    def terminated(self) -> bool:
        """The episode ended by itself: `done` and not `truncated`."""
        return self.done and not self.truncated
