"""What crosses the wire between the chess environment and its client."""

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
    """One move of the agent.

    A move that is malformed or illegal is no error: it is answered with a reward of -0.1, and the
    position stays as it is.
    """

    move: str = Field(description="In UCI, such as e2e4 or e7e8q: one of the legal_moves.")


class ChessObservation(Observation):
    """The position in which the agent has to move, or the last one.

    `reward` is None after `reset`; see the README for the others. `metadata` always has
    `fullmove_number` and `halfmove_clock`; besides them, each where there is such a thing:
    `evaluation` (the built-in opponent's, in centipawns, positive where White is better),
    `opponent_move` (in UCI, the reply that led here), `error` (why the move was not made) and
    `task` (id and goal). The last observation adds `termination` (in words), `pgn`,
    `discounted_rewards` (one for each move of the agent), `gamma`, and of a task `solved`.
    """

    fen: str = Field(default="", description="The position in Forsyth-Edwards notation.")
    legal_moves: list[str] = Field(
        default_factory=list, description="What may be played, in UCI; empty at the end."
    )
    is_check: bool = Field(default=False, description="Whoever is to move is in check.")
    result: Result | None = Field(
        default=None, description="1-0, 0-1 or 1/2-1/2 at the end of a game; null before."
    )


class ChessState(State):
    """Where the game stands. `step_count` counts half-moves, those of both sides, since `reset`."""

    fen: str = Field(default=STARTING_FEN, description="The position in Forsyth-Edwards notation.")
    current_player: Color = Field(default="white", description="Whose turn it is.")
    move_history: list[str] = Field(
        default_factory=list, description="The moves since reset, of both sides, in UCI."
    )
    agent_color: Color | None = Field(
        default=None, description="Whose side the agent is paid for; null before the first reset."
    )
    opponent: str = Field(
        default="alphabeta",
        description="Who replies: alphabeta, random, the name of a UCI engine, or self.",
    )
    opponent_depth: int = Field(
        default=2, ge=1, description="How many half-moves an opponent that searches looks ahead."
    )
    max_moves: int = Field(
        default=500, ge=1, description="Half-moves of both sides after which an episode is cut off."
    )
    illegal_moves: int = Field(
        default=0, ge=0, description="Malformed and illegal moves since reset."
    )
    task_id: str | None = Field(default=None, description="The task that is being solved, if any.")
    pgn: str = Field(default="", description="The game in Portable Game Notation.")


class ChessTask(BaseModel):
    """A position that can be won, and how soon it has to be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(description="Such as mate_in_2-007; the same in every version.")
    kind: Kind = Field(description="mate_in_1, mate_in_2, mate_in_3 or endgame.")
    goal: str = Field(description="What is to be done, in words.")
    fen: str = Field(description="The position; whoever is to move is the agent.")
    max_moves: int = Field(ge=1, description="Half-moves of both sides within which to mate.")
    opponent_depth: int = Field(
        ge=1, description="How many half-moves the built-in opponent looks ahead in defence."
    )
