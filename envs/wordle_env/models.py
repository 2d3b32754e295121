"""What crosses the wire between the Wordle environment and its client."""

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
    """One guess."""

    guess: str = Field(
        description="Five letters from A to Z; case and spaces around them don't matter."
    )


class MarkedGuess(BaseModel):
    """A guess that counted, and what it told.

    green: the secret has this letter here. yellow: it has the letter elsewhere. grey: it has no
    more of this letter than the other marks say.
    """

    word: str = Field(description="The guess, in small letters.")
    marks: list[Mark] = Field(description="One mark a letter.")


class WordleObservation(Observation):
    """What the agent sees.

    `reward` is None after `reset`; 1 for the guess that is the secret, else 0. After a guess that
    counted, `metadata["shaping"]` says how much nearer it came; see the README.
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
    """Where the episode stands. `step_count` counts guesses, those that did not count too."""

    secret: Annotated[str | None, Private] = Field(
        default=None, description="The word to guess; null before reset."
    )
    task: str | None = Field(default=None, description="The id of the task that it belongs to.")
    hard_mode: bool = Field(default=False, description="What is known must be used.")
    max_guesses: int = Field(default=6, description="Guesses of an episode.")
    guesses_used: int = Field(default=0, ge=0, description="Guesses that counted.")
    rejected: int = Field(default=0, ge=0, description="Guesses that did not count.")
    solved: bool = Field(default=False, description="The secret was guessed.")


class WordleTask(BaseModel):
    """One secret word, which the task does not tell."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="What reset(task=...) takes.")
    split: Literal["train", "test"] = Field(description="No word is in both.")
    instruction: str = Field(description="What to do, in a sentence.")
