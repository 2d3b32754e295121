"""Actions, observations and state of the TextArena environment."""

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
    """A message of the player. The game reads the move from it, often from square brackets."""

    message: str = Field(description="The move, in the form that the prompt asks for.")


class TextArenaMessage(BaseModel):
    """A message that the player saw."""

    sender_id: int = Field(description="The player who sent it; -1 is the game.")
    content: str = Field(description="The text of the message.")
    category: str = Field(
        description="TextArena's kind of message: PROMPT, PLAYER_ACTION, GAME_ACTION_DESCRIPTION, "
        "GAME_MESSAGE, GAME_BOARD or GAME_ADMIN; MESSAGE for several in one text."
    )


class TextArenaObservation(Observation):
    """The game from the side of the player whose turn it is.

    A model sees `text`, which says everything once. The private fields have the same content for
    programs. One of them, `messages`, is that of the public package: everything that the player was
    told, as one growing text.

    `reward` is None after `reset` and 0 until the game is over. Then it is what the game pays; see
    the README.
    """

    text: str = Field(
        default="",
        description="The messages that are new to this player. If one agent plays several seats, "
        "the first line says whose turn it is.",
    )
    prompt: Annotated[str, Private] = Field(
        default="", description="The game's rules for this player."
    )
    messages: Annotated[list[TextArenaMessage], Private] = Field(
        default_factory=list,
        description="One message with all that this player was told, as TextArena writes it.",
    )
    new_messages: Annotated[list[TextArenaMessage], Private] = Field(
        default_factory=list, description="The messages that are new to this player, in order."
    )
    current_player_id: Annotated[int, Private] = Field(
        default=0, description="The player whose turn it is."
    )
    legal_players: Annotated[list[int], Private] = Field(
        default_factory=list, description="Players who may move next; empty at the end."
    )
    info: Annotated[dict[str, Any], Private] = Field(
        default_factory=dict,
        description="The game's info on the step; at the end `rewards` and `game_info` of every "
        "player, by player id.",
    )


class TextArenaState(State):
    """The state of the game. `step_count` counts the agent's messages."""

    env_id: str = Field(default=DEFAULT_GAME, description="TextArena's name of the game.")
    num_players: int = Field(default=1, ge=1, description="The number of players.")
    max_turns: int | None = Field(
        default=None,
        description="Messages of the agent after which the game is truncated; null for no limit.",
    )
    opponent: Opponent = Field(default="none", description="The player of the other seats.")
    agent_player: int = Field(default=0, ge=0, description="The agent's seat against opponents.")
    task: str | None = Field(default=None, description="The id of the task being played.")
    turn: int = Field(default=0, ge=0, description="Turns that the game has counted.")
    last_reward: float = Field(
        default=0.0, description="Reward of the last step; 0 if it had none."
    )
    last_info: dict[str, Any] = Field(default_factory=dict, description="Info of the last step.")
    raw_state: Annotated[dict[str, Any], Private] = Field(
        default_factory=dict, description="The game's own state, which may contain secrets."
    )


class TextArenaTask(BaseModel):
    """A game with a seed."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="The id for reset(task=...), such as train/Mastermind-v0/3.")
    split: Literal["train", "test"] = Field(
        description="The task's split; the splits have different seeds."
    )
    env_id: str = Field(description="The game.")
