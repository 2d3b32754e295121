"""Chess against an opponent, against oneself, or from the position of a task.

The rules are those of python-chess: the FIDE Laws of Chess. A draw that a player may claim
(threefold repetition, fifty moves) is claimed at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple

import chess
import chess.pgn
import chess.svg
from pydantic import BaseModel, ConfigDict, Field

from openenv.environment import Environment, scored
from openenv.errors import Refused
from openenv.reward import RewardSpec, Score

from ..models import ChessAction, ChessObservation, ChessState, ChessTask, Color, Result
from ..rubrics import ChessWinLossRubric
from .evaluation import evaluate
from .opponents import (
    ALIASES,
    ALPHABETA,
    RANDOM,
    SELF,
    AlphaBeta,
    Engine,
    Opponent,
    RandomMover,
    resolve_opponent,
)
from .tasks import SPLITS, find_task, tasks_of
from .uci import UciEngine

__all__ = ["ILLEGAL_MOVE_REWARD", "MAX_REQUESTED_DEPTH", "ChessEnvironment"]

ILLEGAL_MOVE_REWARD = -0.1

MAX_REQUESTED_DEPTH = 4
"""The highest depth, in half-moves, that `reset` accepts, unless the server's own is higher.

With each further half-move the built-in player takes about five times as long.
"""

_COLORS: dict[str, chess.Color] = {"white": chess.WHITE, "black": chess.BLACK}
_BOARD_SIZE_PX = 400
_SHOWN_CHARACTERS = 80


class _Setting(NamedTuple):
    """The options of an episode."""

    opponent: str
    opponent_depth: int
    max_moves: int
    task: ChessTask | None = None


class _End(NamedTuple):
    """The end of an episode. `winner` is None if neither side has won."""

    termination: str
    winner: chess.Color | None = None
    result: Result | None = "1/2-1/2"
    truncated: bool = False


@dataclass
class _Episode:
    """A game. The board has its first position and its moves."""

    setting: _Setting
    board: chess.Board
    agent: chess.Color
    rng: Random
    episode_id: str
    illegal_moves: int = 0

    @property
    def is_agents_turn(self) -> bool:
        return self.setting.opponent == SELF or self.board.turn == self.agent

    @property
    def step_count(self) -> int:
        """The half-moves of both sides since `reset`, without the opponent's opening move."""
        begun_by_agent = self.setting.opponent == SELF or self.board.root().turn == self.agent
        return max(len(self.board.move_stack) - (0 if begun_by_agent else 1), 0)

    @property
    def end(self) -> _End | None:
        """The end of the game, or None while the game is running."""
        end = _end_by_rule(self.board)
        if end is not None or self.step_count < self.setting.max_moves:
            return end
        if self.setting.task is not None:  # reaching the limit fails the task
            return _End("task failed", result=None)
        return _End("move limit", truncated=True)


class ChessEnvironment(Environment[ChessAction, ChessObservation, ChessState]):
    """A game of chess in which the agent plays one side, or both.

    The opponent moves by itself, so in every observation but the last the agent has to move. The
    agent's color and the random opponent's moves come from the episode's own generator, so the
    seed and the agent's moves determine the episode.

    Args:
        opponent: ``alphabeta``, the built-in player, also called ``moonfish``; ``random``; the path
            of a UCI engine, such as ``/usr/games/stockfish``; or None to let the agent move for
            both sides.
        opponent_depth: Half-moves that a searching opponent looks ahead.
        max_moves: Truncate an episode, as a draw, after this many half-moves of both sides.
        agent_color: ``white`` or ``black``. None draws the color for each episode; an agent that
            moves for both sides then gets White's reward.
        gamma: The discount of `ChessWinLossRubric`.
        engine_timeout_s: Seconds within which a UCI engine must be ready, and must move.

    Raises:
        ValueError: An argument is not valid.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True

    # Giving up a game loses it.
    REWARD = RewardSpec("per_step", (-1.0, 1.0), ("game", "illegal_move"), unfinished=-1.0)

    rubric: ChessWinLossRubric

    def __init__(
        self,
        opponent: str | None = "moonfish",
        opponent_depth: int = 2,
        max_moves: int = 500,
        agent_color: Color | chess.Color | None = None,
        gamma: float = 0.99,
        *,
        engine_timeout_s: float = 30.0,
    ) -> None:
        super().__init__(rubric=ChessWinLossRubric(gamma))
        self._engine: UciEngine | None = None
        if opponent is not None and "/" in opponent:
            self._engine = _make_engine(opponent, engine_timeout_s)
            opponent = self._engine.name
        self._default = _Setting(
            self._resolve_opponent(opponent),
            _check_positive("opponent_depth", opponent_depth),
            _check_positive("max_moves", max_moves),
        )
        if isinstance(agent_color, bool):
            agent_color = "white" if agent_color == chess.WHITE else "black"
        self._agent_color = _parse_color(agent_color)
        self._episode: _Episode | None = None

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        fen: str | None = None,
        opponent: str | None = None,
        opponent_depth: int | None = None,
        agent_color: Color | None = None,
        task: str | Mapping[str, Any] | ChessTask | None = None,
    ) -> ChessObservation:
        """Set up a game and play up to the agent's first turn.

        None uses the environment's own option.

        Args:
            seed: Determines the agent's color and the random opponent's moves; any integer.
            episode_id: Becomes `state.episode_id`; None generates one.
            fen: The position to start with; None starts a new game. The history of the position is
                not known, so repetitions count from here.
            opponent: ``alphabeta``, ``random``, ``self``, or the name of the UCI engine that the
                environment was made with.
            opponent_depth: Half-moves that the opponent looks ahead. The limit is
                `MAX_REQUESTED_DEPTH`, or the depth of the environment's own opponent if that is
                higher. None uses the environment's own depth, at most the limit.
            agent_color: ``white`` or ``black``.
            task: A task or its id. It has its own position and limit of moves. The agent is the
                side to move, and the built-in player defends unless `opponent` names another.

        Returns:
            The first observation. Its reward is None unless the opponent's first move ended the
            game.

        Raises:
            Refused: An argument is not valid. The running episode continues.
            OpponentFailed: The opponent's engine could not move. The running episode continues.
        """
        found = None if task is None else find_task(task)
        if found is not None and (fen is not None or agent_color is not None):
            raise Refused(f"task {found.id!r} has its own fen and agent_color; leave them out")
        setting = self._setting_for(opponent, opponent_depth, found)
        board = _parse_board(found.fen if found else fen)
        rng = _make_generator(seed)
        drawn = rng.random() < 0.5  # drawn in any case, so that both colors get the same moves
        asked = _parse_color(agent_color)
        episode = _Episode(
            setting,
            board,
            board.turn if found else self._agent_side(asked, setting, drawn),
            rng,
            episode_id or str(uuid.uuid4()),
        )
        if not episode.is_agents_turn:
            self._reply(episode)
        self._episode = episode
        self._reset_rubric()
        end = episode.end
        return (
            _observe(episode)
            if end is None
            else self._finish(episode, end, _observe_end(episode, end))
        )

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: ChessAction
    ) -> ChessObservation:
        """Make the agent's move, then the opponent's.

        A malformed or illegal move costs 0.1 and changes nothing.

        Raises:
            Refused: No episode is running. Nothing changes.
            OpponentFailed: The opponent's engine could not move. The agent's move is taken back.
        """
        before = self._require_episode()
        if action.move not in _legal_moves(before.board):
            before.illegal_moves += 1
            return _reject(before, action.move)
        # The moves are made on a copy, so that the game stays as it was if the opponent fails.
        episode = replace(before, board=before.board.copy())
        episode.board.push_uci(action.move)
        if episode.end is None and not episode.is_agents_turn:
            self._reply(episode)
        end = episode.end
        observation = _observe(episode, reward=0.0) if end is None else _observe_end(episode, end)
        self._episode = episode
        self._apply_rubric(action, observation)
        return scored(observation, 0.0) if end is None else self._finish(episode, end, observation)

    @property
    def state(self) -> ChessState:
        """The state of the game."""
        episode = self._episode
        setting = self._default if episode is None else episode.setting
        state = ChessState(
            opponent=setting.opponent,
            opponent_depth=setting.opponent_depth,
            max_moves=setting.max_moves,
        )
        if episode is None:
            return state
        board = episode.board
        return state.model_copy(
            update={
                "episode_id": episode.episode_id,
                "step_count": episode.step_count,
                "fen": board.fen(),
                "current_player": _color_name(board.turn),
                "move_history": [move.uci() for move in board.move_stack],
                "agent_color": _color_name(episode.agent),
                "illegal_moves": episode.illegal_moves,
                "task_id": setting.task.id if setting.task else None,
                "pgn": _write_pgn(episode, episode.end),
            }
        )

    def render(self, mode: Literal["svg", "text"] = "svg") -> str:
        """Draw the board from the agent's side.

        Args:
            mode: ``svg`` for a drawing, 400 pixels wide, that marks the last move and a check;
                ``text`` for text with coordinates and Unicode pieces.

        Raises:
            Refused: There is no game yet, or the mode is unknown. Nothing changes.
        """
        if self._episode is None:
            raise Refused("render() was called before reset(): there is no board to draw")
        board, agent = self._episode.board, self._episode.agent
        if mode == "svg":
            return str(
                chess.svg.board(
                    board,
                    orientation=agent,
                    lastmove=board.peek() if board.move_stack else None,
                    check=board.king(board.turn) if board.is_check() else None,
                    size=_BOARD_SIZE_PX,
                )
            )
        if mode == "text":
            return board.unicode(borders=True, empty_square="·", orientation=agent)
        raise Refused(f"mode must be 'svg' or 'text', not {mode!r:.80}")

    def close(self) -> None:
        """End the engine's process, if there is one."""
        if self._engine is not None:
            self._engine.close()

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Store the game, including its history and the random opponent's generator.

        Raises:
            Refused: There is no game yet.
        """
        episode = self._episode
        if episode is None:
            raise Refused("snapshot() was called before reset(): there is no game to store")
        setting = episode.setting
        stored = _Snapshot(
            fen=episode.board.root().fen(),
            moves=[move.uci() for move in episode.board.move_stack],
            agent_color=_color_name(episode.agent),
            opponent=setting.opponent,
            opponent_depth=setting.opponent_depth,
            max_moves=setting.max_moves,
            gamma=self.rubric.gamma,
            task_id=setting.task.id if setting.task else None,
            generator=episode.rng.getstate(),
            episode_id=episode.episode_id,
            illegal_moves=episode.illegal_moves,
        )
        return stored.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Restore a stored game, after making its moves again and checking each.

        Raises:
            ValueError: `snapshot` did not write these bytes, or the environment cannot play this
                game. The running game continues.
        """
        stored = _Snapshot.model_validate_json(data)
        task = None if stored.task_id is None else find_task(stored.task_id)
        setting = self._setting_for(stored.opponent, stored.opponent_depth, task)
        if (stored.max_moves, stored.gamma) != (setting.max_moves, self.rubric.gamma):
            raise ValueError(
                f"the game was stored with max_moves={stored.max_moves} and gamma={stored.gamma}, "
                f"and here they are {setting.max_moves} and {self.rubric.gamma}"
            )
        if task is not None and stored.fen != task.fen:
            raise ValueError(
                f"the stored game does not start with the position of task {task.id!r}"
            )
        episode = _Episode(
            setting,
            _parse_board(stored.fen),
            _COLORS[stored.agent_color],
            _restore_generator(stored.generator),
            stored.episode_id,
            stored.illegal_moves,
        )
        trajectory = _replay_moves(episode, stored.moves)
        self._episode = episode
        self._reset_rubric()
        for action, observation in trajectory:
            self._apply_rubric(action, observation)

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[ChessTask]:
        """Return every task of a split. No method returns solutions."""
        return list(tasks_of(split))

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split."""
        return len(tasks_of(split))

    def get_task(self, split: str, index: int) -> ChessTask:
        """Return one task.

        Raises:
            IndexError: The index is negative, or the split has fewer tasks.
        """
        tasks = tasks_of(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"split {split!r} has tasks 0 to {len(tasks) - 1}, not {index}")
        return tasks[index]

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[ChessTask]:
        """Return the tasks of the slice ``[start:stop]``."""
        return list(tasks_of(split)[start:stop])

    # ------------------------------------------------------------------ playing

    def _resolve_opponent(self, asked: str | None) -> str:
        return resolve_opponent(asked, self._engine.name if self._engine else None)

    def _setting_for(
        self, opponent: str | None, depth: int | None, task: ChessTask | None
    ) -> _Setting:
        default = own = self._default
        if task is not None:
            default = _Setting(ALPHABETA, task.opponent_depth, task.max_moves, task)
        name = default.opponent if opponent is None else self._resolve_opponent(opponent)
        largest = MAX_REQUESTED_DEPTH
        if name == own.opponent:
            largest = max(largest, own.opponent_depth)
        if depth is None:
            depth = min(default.opponent_depth, largest)
        elif _check_positive("opponent_depth", depth) > largest:
            raise Refused(f"opponent_depth must be from 1 to {largest} here, not {depth}")
        return default._replace(opponent=name, opponent_depth=depth)

    def _agent_side(
        self, asked: chess.Color | None, setting: _Setting, drawn: chess.Color
    ) -> chess.Color:
        for color in (asked, self._agent_color):
            if color is not None:
                return color
        return chess.WHITE if setting.opponent == SELF else drawn

    def _require_episode(self) -> _Episode:
        episode = self._episode
        if episode is None:
            raise Refused("step() was called before reset(): there is no game to move in")
        if episode.end is not None:
            raise Refused("step() was called after done: the game is over, call reset()")
        return episode

    def _reply(self, episode: _Episode) -> None:
        """Make the opponent's move."""
        move = self._make_opponent(episode.setting).move(episode.board, episode.rng)
        episode.board.push(move)

    def _make_opponent(self, setting: _Setting) -> Opponent:
        if setting.opponent == RANDOM:
            return RandomMover()
        if setting.opponent == ALPHABETA:
            return AlphaBeta(setting.opponent_depth)
        assert self._engine is not None  # `resolve_opponent` refuses all other names
        return Engine(self._engine, setting.opponent_depth)

    def _finish(
        self, episode: _Episode, end: _End, observation: ChessObservation
    ) -> ChessObservation:
        """Add the report of the whole game to the last observation, and score it."""
        shares = self.rubric.compute_step_rewards()
        report: dict[str, Any] = {
            "termination": end.termination,
            "pgn": _write_pgn(episode, end),
            "discounted_rewards": shares,
            "gamma": self.rubric.gamma,
        }
        if episode.setting.task is not None:
            report["solved"] = end.winner == episode.agent
        last = observation.model_copy(update={"metadata": {**observation.metadata, **report}})
        paid = float(observation.reward or 0.0)
        # The shares belong to legal moves, so after an illegal move they do not match the steps.
        by_step = None if episode.illegal_moves else shares
        return scored(last, Score(paid, {"game": paid}, step_rewards=by_step))


class _Snapshot(BaseModel):
    """A stored game."""

    model_config = ConfigDict(extra="forbid", strict=True)

    fen: str
    moves: list[str]
    agent_color: Color
    opponent: str
    opponent_depth: int
    max_moves: int
    gamma: float
    task_id: str | None
    generator: tuple[int, tuple[int, ...], float | None]
    episode_id: str
    illegal_moves: int = Field(ge=0)


# ---------------------------------------------------------------------- games


def _parse_board(fen: str | None) -> chess.Board:
    """Set up a position.

    Raises:
        Refused: The position is malformed, impossible, or the end of a game.
    """
    if fen is None:
        return chess.Board()
    try:
        board = chess.Board(fen)
    except (ValueError, TypeError, AttributeError) as error:
        raise Refused(f"fen {fen!r:.{_SHOWN_CHARACTERS}} is malformed: {error}") from error
    if (status := board.status()) != chess.STATUS_VALID:
        wrong = [str(flag.name).lower().replace("_", " ") for flag in chess.Status if flag & status]
        raise Refused(f"fen {fen!r:.{_SHOWN_CHARACTERS}} cannot be: {', '.join(wrong)}")
    if (end := _end_by_rule(board)) is not None:
        raise Refused(f"fen {fen!r:.{_SHOWN_CHARACTERS}} is the end of a game: {end.termination}")
    return board


def _end_by_rule(board: chess.Board) -> _End | None:
    if not any(board.generate_legal_moves()):
        if not board.is_check():
            return _End("stalemate")
        winner = not board.turn
        return _End("checkmate", winner, "1-0" if winner == chess.WHITE else "0-1")
    if board.is_insufficient_material():
        return _End("insufficient material")
    if board.is_fifty_moves():
        return _End("fifty moves")
    if board.is_repetition(3):
        return _End("threefold repetition")
    return None


def _legal_moves(board: chess.Board) -> list[str]:
    return [move.uci() for move in board.generate_legal_moves()]


def _observe(episode: _Episode, *, reward: float | None = None) -> ChessObservation:
    """Return the observation of a running game."""
    board, setting = episode.board, episode.setting
    metadata: dict[str, Any] = {
        "fullmove_number": board.fullmove_number,
        "halfmove_clock": board.halfmove_clock,
    }
    if setting.opponent == ALPHABETA:
        metadata["evaluation"] = evaluate(board)
    if setting.opponent != SELF and board.move_stack and board.turn == episode.agent:
        metadata["opponent_move"] = board.peek().uci()
    if setting.task is not None:
        metadata["task"] = {"id": setting.task.id, "goal": setting.task.goal}
    return ChessObservation(
        fen=board.fen(),
        legal_moves=_legal_moves(board),
        is_check=board.is_check(),
        reward=reward,
        metadata=metadata,
    )


def _reject(episode: _Episode, move: str) -> ChessObservation:
    """Return the same position again, with the reason why the move was not made."""
    score = Score(ILLEGAL_MOVE_REWARD, {"illegal_move": ILLEGAL_MOVE_REWARD})
    observation = scored(_observe(episode), score)
    shown = repr(move) if len(move) <= _SHOWN_CHARACTERS else f"{move[:_SHOWN_CHARACTERS]!r}..."
    try:
        chess.Move.from_uci(move)
    except ValueError:
        error = f"{shown} is not a move in UCI, such as {observation.legal_moves[0]}"
    else:
        error = f"{shown} is illegal here; legal_moves has what may be played"
    return observation.model_copy(update={"metadata": {**observation.metadata, "error": error}})


def _observe_end(episode: _Episode, end: _End) -> ChessObservation:
    """Return the observation at the end of the game, with the reward."""
    reward = 0.0
    if end.winner is not None:
        reward = 1.0 if end.winner == episode.agent else -1.0
    return _observe(episode).model_copy(
        update={
            "legal_moves": [],
            "result": end.result,
            "done": True,
            "truncated": end.truncated,
            "reward": reward,
        }
    )


def _replay_moves(
    episode: _Episode, moves: list[str]
) -> list[tuple[ChessAction, ChessObservation]]:
    """Make stored moves, and return each of the agent's with the observation after it.

    Raises:
        ValueError: A move is impossible, or the agent is not to move after the last one.
    """
    board = episode.board
    trajectory: list[tuple[ChessAction, ChessObservation]] = []
    action: ChessAction | None = None
    end: _End | None = None
    for move in moves:
        if end is not None or move not in _legal_moves(board):
            raise ValueError(f"the stored game has an impossible move, {move!r:.80}")
        if episode.is_agents_turn:
            action = ChessAction(move=move)
        board.push_uci(move)
        end = episode.end
        if action is not None and (end is not None or episode.is_agents_turn):
            observation = (
                _observe(episode, reward=0.0) if end is None else _observe_end(episode, end)
            )
            trajectory.append((action, observation))
    if end is None and not episode.is_agents_turn:
        raise ValueError("the stored game ends with a position in which the opponent has to move")
    return trajectory


def _write_pgn(episode: _Episode, end: _End | None) -> str:
    """Write the game in Portable Game Notation, without a date."""
    setting = episode.setting
    opponent = setting.opponent
    if opponent == SELF:
        opponent = "agent"
    elif opponent != RANDOM:
        opponent += f" (depth {setting.opponent_depth})"
    agent_is_white = episode.agent == chess.WHITE
    game = chess.pgn.Game.from_board(episode.board)
    game.headers["Event"] = setting.task.id if setting.task else "OpenEnv"
    game.headers["White"] = "agent" if agent_is_white else opponent
    game.headers["Black"] = opponent if agent_is_white else "agent"
    game.headers["Result"] = (end.result if end else None) or "*"
    if end is None or end.result is None:
        game.headers["Termination"] = "unterminated"
    else:
        game.headers["Termination"] = "adjudication" if end.truncated else "normal"
    return str(game)


# ---------------------------------------------------------------------- arguments


def _make_engine(path: str, timeout_s: float) -> UciEngine:
    if timeout_s <= 0:
        raise ValueError(f"engine_timeout_s must be positive, not {timeout_s}")
    engine = UciEngine(path, timeout_s=timeout_s)
    if engine.name in (ALPHABETA, RANDOM, SELF, *ALIASES):
        raise ValueError(f"an engine cannot be named {engine.name!r}, the name of another opponent")
    return engine


def _check_positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refused(f"{name} must be an integer of at least 1, not {value!r:.80}")
    return value


def _parse_color(name: str | None) -> chess.Color | None:
    if name is None:
        return None
    if not isinstance(name, str) or name not in _COLORS:
        raise Refused(f"agent_color must be 'white' or 'black', not {name!r:.80}")
    return _COLORS[name]


def _color_name(color: chess.Color) -> Color:
    return "white" if color == chess.WHITE else "black"


def _make_generator(seed: int | None) -> Random:
    if seed is None:
        return Random()  # nosec B311  # a game's dice
    if not isinstance(seed, int):
        raise Refused(f"seed must be an integer, not {seed!r:.80}; pass a position as fen=")
    # Random ignores the sign of an integer, but -1 must not start the same game as 1.
    return Random(seed if seed >= 0 else str(seed))  # nosec B311  # a game's dice


def _restore_generator(state: tuple[int, tuple[int, ...], float | None]) -> Random:
    rng = Random()  # nosec B311  # a game's dice
    try:
        rng.setstate(state)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"the stored game has no generator of random numbers: {error}") from error
    return rng
