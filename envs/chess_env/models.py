"""Actions, observations and state of the chess environment."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from openenv.types import Action, Observation, State

__all__ = ["ChessAction", "ChessObservation", "ChessState", "ChessTask", "Color", "Kind", "Result"]

Color = Literal["white", "black"]
Result = Literal["1-0", "0-1", "1/2-1/2"]
Kind = Literal["mate_in_1", "mate_in_2", "mate_in_3", "endgame"]

STARTING_FEN = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"


class ChessAction(Action):
    """A move of the agent.

    A malformed or illegal move is not an error. Its reward is -0.1, and the position stays as it
    is.
    """

    move: str = Field(description="One of the legal_moves, in UCI, such as e2e4 or e7e8q.")


class ChessObservation(Observation):
    """The position in which the agent has to move, or the last position.

    `reward` is None after `reset`; the README has the other rewards. `metadata` always has
    `fullmove_number` and `halfmove_clock`. It has `evaluation` (of the built-in opponent, in
    centipawns, positive if White is better), `opponent_move` (the latest reply, in UCI), `error`
    (why the move was not made) and `task` (id and goal) if they apply. The last observation adds
    `termination` (in words), `pgn`, `discounted_rewards` (one for each move of the agent), `gamma`,
    and in a task `solved`.
    """

    fen: str = Field(default="", description="The position in Forsyth-Edwards notation.")
    legal_moves: list[str] = Field(
        default_factory=list, description="The legal moves, in UCI; empty at the end."
    )
    is_check: bool = Field(default=False, description="Whether the side to move is in check.")
    result: Result | None = Field(
        default=None, description="1-0, 0-1 or 1/2-1/2 at the end of a game; null before."
    )


class ChessState(State):
    """The state of the game. `step_count` counts half-moves of both sides since `reset`."""

    fen: str = Field(default=STARTING_FEN, description="The position in Forsyth-Edwards notation.")
    current_player: Color = Field(default="white", description="The side to move.")
    move_history: list[str] = Field(
        default_factory=list, description="The moves of both sides since reset, in UCI."
    )
    agent_color: Color | None = Field(
        default=None, description="The side that the reward is for; null before the first reset."
    )
    opponent: str = Field(
        default="alphabeta",
        description="The opponent: alphabeta, random, the name of a UCI engine, or self.",
    )
    opponent_depth: int = Field(
        default=2, ge=1, description="Half-moves that a searching opponent looks ahead."
    )
    max_moves: int = Field(
        default=500, ge=1, description="Half-moves of both sides until the episode is truncated."
    )
    illegal_moves: int = Field(
        default=0, ge=0, description="Malformed and illegal moves since reset."
    )
    task_id: str | None = Field(default=None, description="The id of the running task, if any.")
    pgn: str = Field(default="", description="The game in Portable Game Notation.")


class ChessTask(BaseModel):
    """A position that the side to move can win, and the moves that it has for that."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(description="The id, such as mate_in_2-007; the same in every version.")
    kind: Kind = Field(description="mate_in_1, mate_in_2, mate_in_3 or endgame.")
    goal: str = Field(description="The goal, in words.")
    fen: str = Field(description="The position; the agent is the side to move.")
    max_moves: int = Field(ge=1, description="Half-moves of both sides within which to mate.")
    opponent_depth: int = Field(
        ge=1, description="Half-moves that the built-in opponent looks ahead in defense."
    )
