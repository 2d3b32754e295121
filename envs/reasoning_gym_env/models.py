"""Actions, observations and state of the Reasoning Gym environment."""

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
    """A question, and after the answer its score.

    `reward` equals `score`. Both are None after `reset`, and if the answer could not be scored.
    `StepResult.unscored` then has the reason.
    """

    question: str | None = Field(default=None, description="The question.")
    score: float | None = Field(
        default=None, description="The dataset's score of the answer, 0 to 1; null before that."
    )
    correct_answer: str | None = Field(
        default=None,
        description="The dataset's own answer; null before the agent's answer, and if the dataset "
        "has none because many answers are right.",
    )
    dataset_metadata: dict[str, Any] | None = Field(
        default=None,
        description="The dataset's metadata of the question, which may contain the solution; null "
        "before the answer.",
    )


class ReasoningGymState(State):
    """The state of the episode: its dataset and its question."""

    dataset_name: str | None = Field(default=None, description="The dataset; null before reset.")
    dataset_config: dict[str, Any] = Field(
        default_factory=dict, description="The given options of the dataset."
    )
    dataset_specs: list[dict[str, Any]] | None = Field(
        default=None, description="The parts of a composite dataset."
    )
    dataset_seed: int | None = Field(default=None, description="The seed of the dataset.")
    dataset_size: int | None = Field(default=None, description="The dataset's number of questions.")
    question_index: int | None = Field(default=None, description="The question's index, from 0.")
    task: str | None = Field(default=None, description="The id of the running task.")
    correct_answer: Annotated[str | None, Private] = Field(
        default=None, description="The dataset's own answer."
    )


class ReasoningGymTask(BaseModel):
    """A question of a dataset with its default options. The task does not contain the question."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="The id for reset(task=...), such as train/leg_counting/17.")
    split: Literal["train", "test"] = Field(
        description="The task's split; the splits have different seeds."
    )
    dataset_name: str = Field(description="The dataset.")
