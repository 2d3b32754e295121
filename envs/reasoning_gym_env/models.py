"""What crosses the wire between the Reasoning Gym environment and its client."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from openenv.types import Action, Observation, Private, State

__all__ = [
    "ReasoningGymAction",
    "ReasoningGymObservation",
    "ReasoningGymState",
    "ReasoningGymTask",
]


class ReasoningGymAction(Action):
    """The answer to the question, which ends the episode."""

    answer: str = Field(description="The answer alone, in the form that the question asks for.")


class ReasoningGymObservation(Observation):
    """A question; after the answer what it was worth.

    `reward` equals `score`. Both are None after `reset`, and where the answer could not be scored,
    of which `StepResult.unscored` then says why.
    """

    question: str | None = Field(default=None, description="The question.")
    score: float | None = Field(
        default=None, description="The dataset's score of the answer, 0 to 1; null before it."
    )
    correct_answer: str | None = Field(
        default=None,
        description="The dataset's own answer; null before the agent's, and where a dataset has "
        "none since many answers are right.",
    )
    dataset_metadata: dict[str, Any] | None = Field(
        default=None,
        description="What the dataset says about the question, which may hold the solution; null "
        "before the answer.",
    )


class ReasoningGymState(State):
    """Which question is being asked."""

    dataset_name: str | None = Field(default=None, description="The dataset; null before reset.")
    dataset_config: dict[str, Any] = Field(
        default_factory=dict, description="Its configuration, as far as it was given."
    )
    dataset_specs: list[dict[str, Any]] | None = Field(
        default=None, description="The parts of a composite dataset."
    )
    dataset_seed: int | None = Field(default=None, description="The seed of the dataset.")
    dataset_size: int | None = Field(default=None, description="Questions of the dataset.")
    question_index: int | None = Field(default=None, description="Of the question, from 0.")
    task: str | None = Field(default=None, description="The id of the task being asked.")
    correct_answer: Annotated[str | None, Private] = Field(
        default=None, description="The dataset's own answer."
    )


class ReasoningGymTask(BaseModel):
    """One question of a dataset with its default configuration. The question itself is not told."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="What reset(task=...) takes, such as train/leg_counting/17.")
    split: Literal["train", "test"] = Field(description="They are drawn from different seeds.")
    dataset_name: str = Field(description="The dataset.")
