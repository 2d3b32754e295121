"""Actions, observations and state of the blackjack environment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from openenv.types import Action, Observation, Private, State

__all__ = [
    "BlackjackAction",
    "BlackjackObservation",
    "BlackjackState",
    "BlackjackTask",
    "Move",
    "Rank",
]

Move = Literal["hit", "stand"]
Rank = Literal["A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K"]


class BlackjackAction(Action):
    """A move: ``hit`` takes a card, ``stand`` takes none and lets the dealer play."""

    action: Move = Field(description="hit or stand.")


class BlackjackObservation(Observation):
    """The player's view of the table.

    ``(player_total, dealer_value, usable_ace)`` is the observation of Gymnasium's Blackjack-v1.
    `reward` is None after `reset` and 0 until the hand is over.
    """

    text: str = Field(description="The table in words.")
    player_cards: list[Rank] = Field(description="The player's cards, as they were dealt.")
    player_total: int = Field(
        description="The sum of player_cards; an ace counts 11 unless that is a bust."
    )
    usable_ace: bool = Field(description="Whether an ace counts 11 in player_total.")
    dealer_cards: list[Rank] = Field(
        description="The dealer's cards that can be seen: one, and all once the player stands."
    )
    dealer_value: int = Field(description="The value of the dealer's first card: 1 (an ace) to 10.")
    legal_actions: list[Move] = Field(
        default_factory=list, description="Moves that the next step may take; empty at the end."
    )
    outcome: Literal["win", "lose", "draw"] | None = Field(
        default=None, description="How the hand ended; null before that."
    )


class BlackjackState(State):
    """The state of a hand. `step_count` counts the player's moves."""

    natural: bool = Field(default=False, description="Whether a natural that wins pays 1.5.")
    sab: bool = Field(
        default=True, description="Whether exactly the rules of Sutton and Barto apply."
    )
    task: str | None = Field(default=None, description="The id of the task being played.")
    dealer_hidden: Annotated[Rank | None, Private] = Field(
        default=None, description="The dealer's card that lies face down; null before reset."
    )


class BlackjackTask(BaseModel):
    """The visible cards at the start of a hand. Chance decides all other cards."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="The id for reset(task=...), such as 6-10-vs-9.")
    split: Literal["train", "test"] = Field(
        description="The task's split; the splits share no task."
    )
    player_cards: tuple[Rank, Rank] = Field(description="The player's first two cards.")
    dealer_card: Rank = Field(description="The dealer's card that can be seen.")
    instruction: str = Field(description="What to do, in a sentence.")
