"""What crosses the wire between the TextArena environment and its client."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from openenv.types import Action, Observation, Private, State

__all__ = [
    "Opponent",
    "TextArenaAction",
    "TextArenaMessage",
    "TextArenaObservation",
    "TextArenaState",
    "TextArenaTask",
]

Opponent = Literal["none", "random", "scripted"]

DEFAULT_GAME = "Wordle-v0"


class TextArenaAction(Action):
    """What the player says; the game reads its move out of it, often from square brackets."""

    message: str = Field(description="The move, in the form that the prompt asks for.")


class TextArenaMessage(BaseModel):
    """One message that the player saw."""

    sender_id: int = Field(description="The player who sent it; -1 is the game.")
    content: str = Field(description="Its text.")
    category: str = Field(
        description="TextArena's kind of message: PROMPT, PLAYER_ACTION, GAME_ACTION_DESCRIPTION, "
        "GAME_MESSAGE, GAME_BOARD or GAME_ADMIN; MESSAGE for several in one text."
    )


class TextArenaObservation(Observation):
    """What the player whose turn it is sees.

    A model is shown `text`, which says everything once. The private fields hold the same for
    programs, among it what the public package has: `messages` with all that the player was told, as
    one text that grows.

    `reward` is None after `reset` and 0 until the game is over; then what the game pays, see the
    README.
    """

    text: str = Field(
        default="",
        description="What this player has not been told yet. Where one agent plays several seats, "
        "its first line says whose turn it is.",
    )
    prompt: Annotated[str, Private] = Field(
        default="", description="The game's rules, as this player is told them."
    )
    messages: Annotated[list[TextArenaMessage], Private] = Field(
        default_factory=list,
        description="One message: all that this player was told so far, as TextArena writes it.",
    )
    new_messages: Annotated[list[TextArenaMessage], Private] = Field(
        default_factory=list, description="What this player has not seen yet, in order."
    )
    current_player_id: Annotated[int, Private] = Field(default=0, description="Whose turn it is.")
    legal_players: Annotated[list[int], Private] = Field(
        default_factory=list, description="Who may move by the next step; empty at the end."
    )
    info: Annotated[dict[str, Any], Private] = Field(
        default_factory=dict,
        description="What the game says about the step; at the end `rewards` and `game_info` of "
        "every player, by their ids.",
    )


class TextArenaState(State):
    """Where the game stands. `step_count` counts the agent's messages."""

    env_id: str = Field(default=DEFAULT_GAME, description="TextArena's name of the game.")
    num_players: int = Field(default=1, ge=1, description="Its players.")
    max_turns: int | None = Field(
        default=None, description="Messages of the agent after which it is cut off; null: none."
    )
    opponent: Opponent = Field(default="none", description="Who plays the other seats.")
    agent_player: int = Field(default=0, ge=0, description="The agent's seat, if it has one only.")
    task: str | None = Field(default=None, description="The id of the task being played.")
    turn: int = Field(default=0, ge=0, description="Turns that the game has counted.")
    last_reward: float = Field(
        default=0.0, description="Reward of the last step; 0 where it had none."
    )
    last_info: dict[str, Any] = Field(default_factory=dict, description="Info of the last step.")
    raw_state: Annotated[dict[str, Any], Private] = Field(
        default_factory=dict, description="The game's own state, which may hold secrets."
    )


class TextArenaTask(BaseModel):
    """One game with one seed."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="What reset(task=...) takes, such as train/Mastermind-v0/3.")
    split: Literal["train", "test"] = Field(description="They are drawn from different seeds.")
    env_id: str = Field(description="The game.")
