"""Actions, observations and state of the OpenSpiel environment."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from openenv.types import Action, Observation, State

__all__ = ["GamePhase", "OpenSpielAction", "OpenSpielObservation", "OpenSpielState"]

GamePhase = Literal["initial", "playing", "terminal"]

DEFAULT_GAME = "catch"


class OpenSpielAction(Action):
    """A move of the agent.

    Only `action_id` has an effect. The server or `reset` chooses the game. `game_name` and
    `game_params` exist because existing callers send them. The environment refuses a `game_name`
    that is neither the default nor the running game, because that caller expects another game.
    """

    action_id: int = Field(description="One of the observation's legal_actions.")
    game_name: str = Field(
        default=DEFAULT_GAME, description="The game that the caller expects; chooses nothing."
    )
    game_params: dict[str, Any] = Field(default_factory=dict, description="Not used.")


class OpenSpielObservation(Observation):
    """The game from the side of the agent's player.

    `reward` is None after `reset`. After a step, it is OpenSpiel's payoff to the agent since its
    previous move, including the moves of opponents and chance.
    """

    info_state: list[float] = Field(
        description="OpenSpiel's information state tensor of the agent, flat; for a game without "
        "one, its observation tensor."
    )
    legal_actions: list[int] = Field(
        description="Ids that the next step may take, ascending; empty at the end."
    )
    game_phase: GamePhase = Field(
        default="playing", description="initial after reset, terminal at the end, else playing."
    )
    current_player_id: int = Field(
        default=0,
        description="OpenSpiel's number of the player to move: the agent's id; -2 if all players "
        "move at once; -4 at the end.",
    )
    opponent_last_action: int | None = Field(
        default=None,
        description="The latest move of an opponent in this episode; null before the first.",
    )


class OpenSpielState(State):
    """The state of the game.

    `step_count` counts the moves since `reset`, those of the agent and of each opponent. A move
    that all players make at once counts once. Moves of chance do not count.
    """

    game_name: str = Field(default=DEFAULT_GAME, description="OpenSpiel's name of the game.")
    agent_player: int = Field(default=0, ge=0, description="The agent's player id, from 0.")
    opponent_policy: str = Field(
        default="random", description="The policy of opponents: random, first, last or middle."
    )
    game_params: dict[str, Any] = Field(
        default_factory=dict, description="OpenSpiel's parameters of the game, as given."
    )
    num_players: int = Field(default=1, ge=1, description="Players of the game, with the agent.")
