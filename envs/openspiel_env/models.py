"""What crosses the wire between the OpenSpiel environment and its client."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from openenv.types import Action, Observation, State

__all__ = ["GamePhase", "OpenSpielAction", "OpenSpielObservation", "OpenSpielState"]

GamePhase = Literal["initial", "playing", "terminal"]

DEFAULT_GAME = "catch"


class OpenSpielAction(Action):
    """One move of the agent.

    Only `action_id` moves anything. The game is chosen by the server or by `reset`; `game_name`
    and `game_params` are here because existing callers send them. A `game_name` that is neither
    the default nor the running game is refused, as the caller is playing something else.
    """

    action_id: int = Field(description="One of the observation's legal_actions.")
    game_name: str = Field(
        default=DEFAULT_GAME, description="The game the caller believes to play; chooses nothing."
    )
    game_params: dict[str, Any] = Field(default_factory=dict, description="Not used.")


class OpenSpielObservation(Observation):
    """What the agent's player sees.

    `reward` is None after `reset`; after a step it is what OpenSpiel paid the agent since its
    previous move, opponents' and chance's moves included.
    """

    info_state: list[float] = Field(
        description="OpenSpiel's information state tensor of the agent, flat; its observation "
        "tensor for a game that has no information state tensor."
    )
    legal_actions: list[int] = Field(
        description="Ids that the next step may take, ascending; empty at the end."
    )
    game_phase: GamePhase = Field(
        default="playing", description="initial after reset, terminal at the end, else playing."
    )
    current_player_id: int = Field(
        default=0,
        description="Whose turn it is, by OpenSpiel's numbers: the agent's id; -2 where all "
        "players move at once; -4 at the end.",
    )
    opponent_last_action: int | None = Field(
        default=None,
        description="Latest move of an opponent in this episode; null before there is one.",
    )


class OpenSpielState(State):
    """Where the game stands.

    `step_count` counts the moves since `reset`: the agent's and, one by one, its opponents'. A
    move that all players make at once counts once; chance's moves don't count.
    """

    game_name: str = Field(default=DEFAULT_GAME, description="OpenSpiel's name of the game.")
    agent_player: int = Field(default=0, ge=0, description="The agent's player id, from 0.")
    opponent_policy: str = Field(
        default="random", description="How opponents choose: random, first, last or middle."
    )
    game_params: dict[str, Any] = Field(
        default_factory=dict, description="OpenSpiel's parameters of the game, as given."
    )
    num_players: int = Field(default=1, ge=1, description="Players of the game, the agent among.")
