"""Chess against an opponent, against oneself, or from a position that is to be won.

The rules are python-chess's: the FIDE Laws of Chess, where a draw that a player may claim
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
    opponent_name,
)
from .tasks import SPLITS, find_task, tasks_of
from .uci import UciEngine

__all__ = ["ILLEGAL_MOVE_REWARD", "LARGEST_ASKED_DEPTH", "ChessEnvironment"]

ILLEGAL_MOVE_REWARD = -0.1

LARGEST_ASKED_DEPTH = 4
"""How many half-moves `reset` may ask an opponent to look ahead, if not the server's own is deeper.

Each further one takes the built-in player about five times as long.
"""

_COLORS: dict[str, chess.Color] = {"white": chess.WHITE, "black": chess.BLACK}
_BOARD_SIZE_PX = 400
_SHOWN_CHARACTERS = 80


class _Setting(NamedTuple):
    """What is played in an episode."""

    opponent: str
    opponent_depth: int
    max_moves: int
    task: ChessTask | None = None


class _End(NamedTuple):
    """How an episode ended; `winner` is None where nobody has won."""

    termination: str
    winner: chess.Color | None = None
    result: Result | None = "1/2-1/2"
    truncated: bool = False


@dataclass
class _Episode:
    """A game: where it began and its moves are the board's."""

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
        """Half-moves of both sides since `reset`, which has made the opponent's opening move."""
        begun_by_agent = self.setting.opponent == SELF or self.board.root().turn == self.agent
        return max(len(self.board.move_stack) - (0 if begun_by_agent else 1), 0)

    @property
    def end(self) -> _End | None:
        """How the game has ended; None while it goes on."""
        end = _end_by_rule(self.board)
        if end is not None or self.step_count < self.setting.max_moves:
            return end
        if self.setting.task is not None:  # its limit is a part of the task, which has been failed
            return _End("task failed", result=None)
        return _End("move limit", truncated=True)


class ChessEnvironment(Environment[ChessAction, ChessObservation, ChessState]):
    """One side of a game of chess, or both.

    The opponent moves by itself, so every observation is one in which the agent has to move, or
    the last. Everything random (the agent's colour, the random opponent) is drawn from the
    episode's own generator, so the seed and the agent's moves determine the episode.

    Args:
        opponent: ``alphabeta``, the built-in player, which also goes by ``moonfish``; ``random``;
            the path of a UCI engine, such as ``/usr/games/stockfish``; or None, where the agent
            moves for both sides.
        opponent_depth: How many half-moves an opponent that searches looks ahead.
        max_moves: Half-moves of both sides after which an episode is cut off, as a draw.
        agent_color: ``white`` or ``black``. None draws it for each episode; the agent that moves
            for both sides is then paid for White's.
        gamma: The discount of `ChessWinLossRubric`.
        engine_timeout_s: Seconds within which a UCI engine has to be ready, and to move.

    Raises:
        ValueError: An argument is none of these.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True

    # Who gives up a game has lost it.
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
            self._engine = _engine(opponent, engine_timeout_s)
            opponent = self._engine.name
        self._default = _Setting(
            self._opponent_name(opponent),
            _at_least_one("opponent_depth", opponent_depth),
            _at_least_one("max_moves", max_moves),
        )
        if isinstance(agent_color, bool):
            agent_color = "white" if agent_color == chess.WHITE else "black"
        self._agent_color = _color(agent_color)
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

        What is None is as the environment was made.

        Args:
            seed: Determines the agent's colour and a random opponent; any integer.
            episode_id: Becomes `state.episode_id`; None makes one up.
            fen: The position to begin with; None is that of a new game. What went before it is
                not known, so repetitions count from here.
            opponent: ``alphabeta``, ``random``, ``self``, or the name of the UCI engine that the
                environment was made with.
            opponent_depth: How many half-moves it looks ahead, up to `LARGEST_ASKED_DEPTH`, and
                beyond that up to what the environment's own opponent does. None is as deep as the
                environment's own, or as deep as may be asked for.
            agent_color: ``white`` or ``black``.
            task: A task, or its id. It brings its own position and limit of moves, the agent is
                whoever is to move, and the built-in player defends unless another is asked for.

        Returns:
            The first observation. Its reward is None, unless the opponent's first move ended the
            game.

        Raises:
            Refused: An argument is none of these. The running episode goes on.
            OpponentFailed: The opponent's engine could not move. The running episode goes on.
        """
        found = None if task is None else find_task(task)
        if found is not None and (fen is not None or agent_color is not None):
            raise Refused(f"task {found.id!r} has its own fen and agent_color; leave them out")
        setting = self._setting_for(opponent, opponent_depth, found)
        board = _board(found.fen if found else fen)
        rng = _generator(seed)
        drawn = rng.random() < 0.5  # always, so that a seed means the same moves in any colour
        asked = _color(agent_color)
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
        return _look(episode) if end is None else self._last(episode, end, _finished(episode, end))

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: ChessAction
    ) -> ChessObservation:
        """Make the agent's move, then the opponent's.

        A move that is malformed or illegal costs 0.1 and changes nothing.

        Raises:
            Refused: There is no running episode. Nothing changes.
            OpponentFailed: The opponent's engine could not move. The agent's move is taken back.
        """
        before = self._running()
        if action.move not in _legal_moves(before.board):
            before.illegal_moves += 1
            return _rejection(before, action.move)
        # Made on a copy, so that an opponent that fails leaves the game as it was.
        episode = replace(before, board=before.board.copy())
        episode.board.push_uci(action.move)
        if episode.end is None and not episode.is_agents_turn:
            self._reply(episode)
        end = episode.end
        observation = _look(episode, reward=0.0) if end is None else _finished(episode, end)
        self._episode = episode
        self._apply_rubric(action, observation)
        return scored(observation, 0.0) if end is None else self._last(episode, end, observation)

    @property
    def state(self) -> ChessState:
        """Where the game stands."""
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
                "pgn": _pgn(episode, episode.end),
            }
        )

    def render(self, mode: Literal["svg", "text"] = "svg") -> str:
        """Draw the board as the agent's side sees it.

        Args:
            mode: ``svg``, a drawing with the last move and a check marked, 400 pixels wide; or
                ``text``, with coordinates and the pieces of Unicode.

        Raises:
            Refused: There is no game yet, or no such mode. Nothing changes.
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
        """Store the game, its past and the random opponent's generator included.

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
        """Go on with a stored game. Its moves are made again, and each is checked.

        Raises:
            ValueError: The bytes are none that `snapshot` has written, or they are of a game that
                this environment does not play. The running game goes on.
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
            raise ValueError(f"the stored game does not begin where task {task.id!r} does")
        episode = _Episode(
            setting,
            _board(stored.fen),
            _COLORS[stored.agent_color],
            _restored_generator(stored.generator),
            stored.episode_id,
            stored.illegal_moves,
        )
        trajectory = _played(episode, stored.moves)
        self._episode = episode
        self._reset_rubric()
        for action, observation in trajectory:
            self._apply_rubric(action, observation)

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Name the splits of the task set."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[ChessTask]:
        """Give every task of a split; without its solution, as all of these methods."""
        return list(tasks_of(split))

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split."""
        return len(tasks_of(split))

    def get_task(self, split: str, index: int) -> ChessTask:
        """Give one task.

        Raises:
            IndexError: There is none at this index.
        """
        tasks = tasks_of(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"split {split!r} has tasks 0 to {len(tasks) - 1}, not {index}")
        return tasks[index]

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[ChessTask]:
        """Give the tasks from `start` to before `stop`, as a slice does."""
        return list(tasks_of(split)[start:stop])

    # ------------------------------------------------------------------ playing

    def _opponent_name(self, asked: str | None) -> str:
        return opponent_name(asked, self._engine.name if self._engine else None)

    def _setting_for(
        self, opponent: str | None, depth: int | None, task: ChessTask | None
    ) -> _Setting:
        default = own = self._default
        if task is not None:
            default = _Setting(ALPHABETA, task.opponent_depth, task.max_moves, task)
        name = default.opponent if opponent is None else self._opponent_name(opponent)
        largest = LARGEST_ASKED_DEPTH
        if name == own.opponent:
            largest = max(largest, own.opponent_depth)
        if depth is None:
            depth = min(default.opponent_depth, largest)
        elif _at_least_one("opponent_depth", depth) > largest:
            raise Refused(f"opponent_depth must be from 1 to {largest} here, not {depth}")
        return default._replace(opponent=name, opponent_depth=depth)

    def _agent_side(
        self, asked: chess.Color | None, setting: _Setting, drawn: chess.Color
    ) -> chess.Color:
        for color in (asked, self._agent_color):
            if color is not None:
                return color
        return chess.WHITE if setting.opponent == SELF else drawn

    def _running(self) -> _Episode:
        episode = self._episode
        if episode is None:
            raise Refused("step() was called before reset(): there is no game to move in")
        if episode.end is not None:
            raise Refused("step() was called after done: the game is over, call reset()")
        return episode

    def _reply(self, episode: _Episode) -> None:
        """Make the opponent's move."""
        move = self._opponent(episode.setting).move(episode.board, episode.rng)
        episode.board.push(move)

    def _opponent(self, setting: _Setting) -> Opponent:
        if setting.opponent == RANDOM:
            return RandomMover()
        if setting.opponent == ALPHABETA:
            return AlphaBeta(setting.opponent_depth)
        assert self._engine is not None  # no other name is let in
        return Engine(self._engine, setting.opponent_depth)

    def _last(
        self, episode: _Episode, end: _End, observation: ChessObservation
    ) -> ChessObservation:
        """The last observation, with what is told of the whole game."""
        shares = self.rubric.compute_step_rewards()
        told: dict[str, Any] = {
            "termination": end.termination,
            "pgn": _pgn(episode, end),
            "discounted_rewards": shares,
            "gamma": self.rubric.gamma,
        }
        if episode.setting.task is not None:
            told["solved"] = end.winner == episode.agent
        last = observation.model_copy(update={"metadata": {**observation.metadata, **told}})
        paid = float(observation.reward or 0.0)
        # Shares are of moves. Where a step was none, nobody could tell which belongs to which.
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


def _board(fen: str | None) -> chess.Board:
    """Set a position up.

    Raises:
        Refused: It is malformed, cannot be, or is the end of a game.
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


def _look(episode: _Episode, *, reward: float | None = None) -> ChessObservation:
    """What the agent sees while the game goes on."""
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


def _rejection(episode: _Episode, move: str) -> ChessObservation:
    """The same position again, and why the move was not made."""
    score = Score(ILLEGAL_MOVE_REWARD, {"illegal_move": ILLEGAL_MOVE_REWARD})
    observation = scored(_look(episode), score)
    shown = repr(move) if len(move) <= _SHOWN_CHARACTERS else f"{move[:_SHOWN_CHARACTERS]!r}..."
    try:
        chess.Move.from_uci(move)
    except ValueError:
        error = f"{shown} is not a move in UCI, such as {observation.legal_moves[0]}"
    else:
        error = f"{shown} is illegal here; legal_moves has what may be played"
    return observation.model_copy(update={"metadata": {**observation.metadata, "error": error}})


def _finished(episode: _Episode, end: _End) -> ChessObservation:
    """What the agent sees at the end of the game, and what it is paid for it."""
    reward = 0.0
    if end.winner is not None:
        reward = 1.0 if end.winner == episode.agent else -1.0
    return _look(episode).model_copy(
        update={
            "legal_moves": [],
            "result": end.result,
            "done": True,
            "truncated": end.truncated,
            "reward": reward,
        }
    )


def _played(episode: _Episode, moves: list[str]) -> list[tuple[ChessAction, ChessObservation]]:
    """Make stored moves, and give the agent's, each with what it saw then.

    Raises:
        ValueError: One of them is not possible, or the agent has no move to make then.
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
            observation = _look(episode, reward=0.0) if end is None else _finished(episode, end)
            trajectory.append((action, observation))
    if end is None and not episode.is_agents_turn:
        raise ValueError("the stored game stands where the agent has no move to make")
    return trajectory


def _pgn(episode: _Episode, end: _End | None) -> str:
    """The game in Portable Game Notation; nobody knows the day on which it was played."""
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


def _engine(path: str, timeout_s: float) -> UciEngine:
    if timeout_s <= 0:
        raise ValueError(f"engine_timeout_s must be positive, not {timeout_s}")
    engine = UciEngine(path, timeout_s=timeout_s)
    if engine.name in (ALPHABETA, RANDOM, SELF, *ALIASES):
        raise ValueError(f"an engine cannot go by {engine.name!r}, the name of another opponent")
    return engine


def _at_least_one(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refused(f"{name} must be an integer from 1 on, not {value!r:.80}")
    return value


def _color(name: str | None) -> chess.Color | None:
    if name is None:
        return None
    if not isinstance(name, str) or name not in _COLORS:
        raise Refused(f"agent_color must be 'white' or 'black', not {name!r:.80}")
    return _COLORS[name]


def _color_name(color: chess.Color) -> Color:
    return "white" if color == chess.WHITE else "black"


def _generator(seed: int | None) -> Random:
    if seed is None:
        return Random()  # nosec B311  # a game's dice
    if not isinstance(seed, int):
        raise Refused(f"seed must be an integer, not {seed!r:.80}; a position goes by fen=")
    # Random ignores the sign of an integer, and -1 shall not be the same game as 1.
    return Random(seed if seed >= 0 else str(seed))  # nosec B311  # a game's dice


def _restored_generator(state: tuple[int, tuple[int, ...], float | None]) -> Random:
    rng = Random()  # nosec B311  # a game's dice
    try:
        rng.setstate(state)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"the stored game has no generator of random numbers: {error}") from error
    return rng
