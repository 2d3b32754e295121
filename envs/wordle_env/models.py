"""Actions, observations and state of the Wordle environment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from openenv.types import Action, Observation, Private, State

__all__ = [
    "Mark",
    "MarkedGuess",
    "WordleAction",
    "WordleObservation",
    "WordleState",
    "WordleTask",
]

Mark = Literal["green", "yellow", "grey"]

WORD_LENGTH = 5


class WordleAction(Action):
    """A guess."""

    guess: str = Field(
        description="Five letters from A to Z; case and surrounding spaces are ignored."
    )


class MarkedGuess(BaseModel):
    """A guess that counted, with its marks.

    ``green``: the secret has this letter here. ``yellow``: the secret has the letter elsewhere.
    ``grey``: the secret has no more of this letter than the other marks say.
    """

    word: str = Field(description="The guess, in small letters.")
    marks: list[Mark] = Field(description="One mark per letter.")


class WordleObservation(Observation):
    """The agent's view of the game.

    `reward` is None after `reset`, 1 for the guess that is the secret, else 0. After a guess that
    counted, `metadata["shaping"]` is the share of the secret that the guess revealed; see the
    README.
    """

    text: str = Field(description="What happened, in words; after reset the rules.")
    guesses: list[MarkedGuess] = Field(
        default_factory=list, description="The guesses that counted, the first one first."
    )
    guesses_left: int = Field(description="Guesses that the agent may still make.")
    accepted: bool | None = Field(
        default=None, description="The last guess counted; null after reset."
    )
    letters: dict[str, Mark] = Field(
        default_factory=dict, description="The best mark that each guessed letter had so far."
    )
    solved: bool = Field(default=False, description="The secret was guessed.")
    answer: str | None = Field(default=None, description="The secret; null before the end.")


class WordleState(State):
    """The state of the episode. `step_count` includes guesses that did not count."""

    secret: Annotated[str | None, Private] = Field(
        default=None, description="The word to guess; null before reset."
    )
    task: str | None = Field(default=None, description="The id of the secret's task.")
    hard_mode: bool = Field(default=False, description="Whether guesses must use known letters.")
    max_guesses: int = Field(default=6, description="Maximum number of guesses that count.")
    guesses_used: int = Field(default=0, ge=0, description="Guesses that counted.")
    rejected: int = Field(default=0, ge=0, description="Guesses that did not count.")
    solved: bool = Field(default=False, description="The secret was guessed.")


class WordleTask(BaseModel):
    """A secret word. The task does not reveal the word."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="The id for reset(task=...).")
    split: Literal["train", "test"] = Field(
        description="The task's split; the splits share no word."
    )
    instruction: str = Field(description="What to do, in a sentence.")
