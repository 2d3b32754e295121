"""The puzzle 2048: slide tiles and merge equal ones until no move is left."""

from __future__ import annotations

import hashlib
import uuid
from itertools import combinations, product
from random import Random
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from openenv.environment import Environment, restart, termination, transition, truncation
from openenv.errors import Refused
from openenv.reward import RewardSpec, Score

from ..models import (
    Game2048Action,
    Game2048Observation,
    Game2048State,
    Game2048Task,
    Move,
)
from .board import CELLS, HIGHEST, Board, add_tile, legal_moves, rows, slide_board
from .picture import board_svg

__all__ = ["Game2048Environment"]

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
_TEST_SHARE = 0.2

_EMPTY: Board = (0,) * CELLS


class Game2048Environment(Environment[Game2048Action, Game2048Observation, Game2048State]):
    """The puzzle 2048, one game per episode.

    The environment refuses a move that moves nothing. After every other move it adds a tile to an
    empty cell: a 4 one time in ten, else a 2. The reward of a move is the sum of the tiles that
    the move merged, so an episode's return is the score of the original game.

    Args:
        goal: End the game once this tile is on the board: a power of two, 8 to 131072. None ends
            the game when no move is left.
        max_moves: Truncate the game after this many moves. None is no limit.

    Raises:
        ValueError: An argument is not valid.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    NEVER_BLOCKS: ClassVar[bool] = True
    REWARD = RewardSpec("per_step", range=(0.0, 2.0 * HIGHEST), components=("merged",))

    def __init__(self, goal: int | None = None, max_moves: int | None = None) -> None:
        super().__init__()
        self._default_goal = self._goal = _check_goal(goal)
        self._default_max_moves = self._max_moves = _check_limit(max_moves)
        self._board: Board = _EMPTY
        self._legal: list[Move] = []  # the moves that the board allows; none before reset
        self._rng = Random()  # nosec B311  # a game's dice
        self._score = 0
        self._moves = 0
        self._task: str | None = None
        self._episode_id: str | None = None

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | dict[str, Any] | Game2048Task | None = None,
        goal: int | None = None,
        max_moves: int | None = None,
    ) -> Game2048Observation:
        """Start a game with two tiles.

        Args:
            seed: Determines the tiles that are added; any integer. None starts a random game.
            episode_id: Becomes `state.episode_id`; None generates one.
            task: A task or its id. It fixes the two tiles at the start.
            goal: The goal of this game; None uses the environment's own.
            max_moves: The limit of this game; None uses the environment's own.

        Raises:
            Refused: The task is unknown, or an argument is not valid. The running game continues.
        """
        goal = self._default_goal if goal is None else _check_goal(goal)
        max_moves = self._default_max_moves if max_moves is None else _check_limit(max_moves)
        rng = _make_generator(seed)
        known = None if task is None else _find_task(task)
        self._rng = rng
        self._set_up(_opening(rng) if known is None else _board_of(known))
        self._goal, self._max_moves = goal, max_moves
        self._score = self._moves = 0
        self._task = None if known is None else known.id
        self._episode_id = episode_id or str(uuid.uuid4())
        return restart(self._observe())

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: Game2048Action
    ) -> Game2048Observation:
        """Slide the tiles, then add one.

        Raises:
            Refused: No game is running, or the move moves nothing. Nothing changes.
        """
        self._refuse_unless_running()
        board, made = slide_board(self._board, action.move)
        if board == self._board:
            legal = ", ".join(self._legal)
            raise Refused(f"{action.move} moves nothing; the moves that do are {legal}")
        self._set_up(add_tile(board, self._rng))
        self._score += made
        self._moves += 1
        observation = self._observe()
        score = Score(float(made), {"merged": float(made)})
        if self._is_finished:
            return termination(observation, score)
        if self._is_cut_off:
            return truncation(observation, score)
        return transition(observation, score)

    @property
    def state(self) -> Game2048State:
        """The state of the game."""
        return Game2048State(
            episode_id=self._episode_id,
            step_count=self._moves,
            score=self._score,
            best_tile=max(self._board),
            goal=self._goal,
            max_moves=self._max_moves,
            task=self._task,
        )

    def render(self) -> str:
        """Draw the board as SVG.

        Raises:
            Refused: There is no game yet.
        """
        if self._board == _EMPTY:
            raise Refused("render() was called before reset(): there is no board to draw")
        return board_svg(self._board, self._score)

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Store the board, the score and the generator of further tiles.

        Raises:
            Refused: There is no game yet.
        """
        if self._board == _EMPTY:
            raise Refused("snapshot() was called before reset(): there is no game to store")
        stored = _Snapshot(
            board=list(self._board),
            generator=self._rng.getstate(),
            score=self._score,
            moves=self._moves,
            goal=self._goal,
            max_moves=self._max_moves,
            task=self._task,
            episode_id=self._episode_id,
        )
        return stored.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Restore a stored game.

        Raises:
            ValueError: `snapshot` did not write these bytes. Nothing changes.
        """
        stored = _Snapshot.model_validate_json(data)
        tiles = {0, *(2**power for power in range(1, HIGHEST.bit_length()))}
        if not tiles.issuperset(stored.board) or sum(map(bool, stored.board)) < 2:
            raise ValueError("the stored board has tiles that no game has")
        goal, max_moves = _check_goal(stored.goal), _check_limit(stored.max_moves)
        if stored.task is not None:
            _find_task(stored.task)
        rng = _restore_generator(stored.generator)
        self._set_up(tuple(stored.board))
        self._rng = rng
        self._score, self._moves = stored.score, stored.moves
        self._goal, self._max_moves = goal, max_moves
        self._task, self._episode_id = stored.task, stored.episode_id

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the splits ``train`` and ``test``, which share no opening."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[Game2048Task]:
        """Return every opening of a split."""
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        """Count the openings of a split."""
        return len(_TASKS[_check_split(split)])

    def get_task(self, split: str, index: int) -> Game2048Task:
        """Return one opening.

        Raises:
            IndexError: The index is negative, or the split has fewer tasks.
        """
        tasks = _TASKS[_check_split(split)]
        if not 0 <= index < len(tasks):
            raise IndexError(f"{split} has tasks 0 to {len(tasks) - 1}, not {index}")
        return tasks[index]

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[Game2048Task]:
        """Return the openings of the slice ``[start:stop]``."""
        return _TASKS[_check_split(split)][start:stop]

    # ------------------------------------------------------------------ a game

    def _set_up(self, board: Board) -> None:
        self._board = board
        self._legal = legal_moves(board)

    @property
    def _goal_reached(self) -> bool:
        return self._goal is not None and max(self._board) >= self._goal

    @property
    def _is_finished(self) -> bool:
        return self._goal_reached or not self._legal

    @property
    def _is_cut_off(self) -> bool:
        return self._max_moves is not None and self._moves >= self._max_moves

    def _refuse_unless_running(self) -> None:
        if self._board == _EMPTY:
            raise Refused("step() was called before reset(): there is no board to move on")
        if self._is_finished or self._is_cut_off:
            raise Refused("step() was called after done: the game is over, call reset()")

    def _observe(self) -> Game2048Observation:
        over = self._is_finished or self._is_cut_off
        return Game2048Observation(
            text=self._describe(over),
            board=rows(self._board),
            score=self._score,
            best_tile=max(self._board),
            legal_actions=[] if over else self._legal,
            goal_reached=self._goal_reached,
        )

    def _describe(self, over: bool) -> str:
        width = max(4, len(str(max(self._board))))
        lines = [" ".join(f"{tile or '.':>{width}}" for tile in row) for row in rows(self._board)]
        lines.append(f"Score: {self._score}. Highest tile: {max(self._board)}.")
        if not over:
            lines.append(f"Possible moves: {', '.join(self._legal)}.")
        elif self._goal_reached:
            lines.append(f"The goal of {self._goal} is reached.")
        else:
            lines.append("The game is cut off." if self._is_cut_off else "No move is left.")
        return "\n".join(lines)


class _Snapshot(BaseModel):
    """A stored game."""

    model_config = ConfigDict(extra="forbid")

    board: list[int] = Field(min_length=CELLS, max_length=CELLS)
    generator: tuple[int, list[int], float | None]
    score: int = Field(ge=0)
    moves: int = Field(ge=0)
    goal: int | None
    max_moves: int | None
    task: str | None
    episode_id: str | None


def _check_goal(goal: int | None) -> int | None:
    if goal is None:
        return None
    if type(goal) is not int or not 8 <= goal <= HIGHEST or goal & (goal - 1):
        raise Refused(f"goal must be a power of two from 8 to {HIGHEST}, or null, not {goal!r}")
    return goal


def _check_limit(max_moves: int | None) -> int | None:
    if max_moves is None:
        return None
    if type(max_moves) is not int or max_moves < 1:
        raise Refused(f"max_moves must be an integer from 1, or null, not {max_moves!r}")
    return max_moves


def _make_generator(seed: int | None) -> Random:
    if seed is None:
        return Random()  # nosec B311  # a game's dice
    if type(seed) is not int:
        raise Refused(f"seed must be an integer or null, not {seed!r}")
    # Random ignores the sign of an integer, but -1 must not start the same game as 1.
    return Random(seed if seed >= 0 else str(seed))  # nosec B311  # a game's dice


def _restore_generator(state: tuple[int, list[int], float | None]) -> Random:
    version, words, gauss = state
    rng = Random()  # nosec B311  # a game's dice
    try:
        rng.setstate((version, tuple(words), gauss))
    except (TypeError, OverflowError) as error:
        raise ValueError(f"the stored game has no generator of random numbers: {error}") from error
    return rng


# ------------------------------------------------------------------ openings


def _make_tasks() -> dict[Split, list[Game2048Task]]:
    tasks: dict[Split, list[Game2048Task]] = {split: [] for split in SPLITS}
    for (first, second), (one, other) in product(
        combinations(range(CELLS), 2), product((2, 4), repeat=2)
    ):
        task = _make_task({first: one, second: other})
        tasks[task.split].append(task)
    return tasks


def _make_task(tiles: dict[int, int]) -> Game2048Task:
    name = "-".join(f"{tile}@{cell}" for cell, tile in tiles.items())
    place = hashlib.blake2b(name.encode(), digest_size=8, person=b"game_2048_env").digest()
    return Game2048Task(
        id=name,
        split="test" if int.from_bytes(place, "big") < _TEST_SHARE * 2**64 else "train",
        board=tuple(map(tuple, rows(tuple(tiles.get(cell, 0) for cell in range(CELLS))))),
        instruction="Slide the tiles up, right, down or left; equal ones that meet merge.",
    )


_TASKS = _make_tasks()
_BY_ID = {task.id: task for tasks in _TASKS.values() for task in tasks}


def _opening(rng: Random) -> Board:
    return add_tile(add_tile(_EMPTY, rng), rng)


def _board_of(task: Game2048Task) -> Board:
    return tuple(tile for row in task.board for tile in row)


def _check_split(split: str) -> Split:
    if split not in SPLITS:
        raise Refused(f"there is no split {split!r}; there are {' and '.join(SPLITS)}")
    return split


def _find_task(task: str | dict[str, Any] | Game2048Task) -> Game2048Task:
    if isinstance(task, Game2048Task):
        name: Any = task.id
    else:
        name = task.get("id") if isinstance(task, dict) else task
    known = _BY_ID.get(name) if isinstance(name, str) else None
    if known is None:
        raise Refused(
            f"there is no task {name!r}; expected a task, or its id: two tiles and their cells, "
            "counted by rows from 0, the lower cell first, as in 2@0-4@11"
        )
    return known
