"""The task set: puzzles and endgames that can be won, in two splits.

`compose` has written the positions to `tasks.json`, with their solutions, which stay on the server.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import chess
from pydantic import BaseModel, ConfigDict

from openenv.errors import Refused

from ..models import ChessTask, Kind

__all__ = ["SPLITS", "TASKS_FILE", "ComposedTask", "composed_tasks", "find_task", "tasks_of"]

TASKS_FILE = Path(__file__).with_name("tasks.json")
SPLITS = ("train", "test")

_ENDGAME_OPPONENT_DEPTH = 2


class ComposedTask(BaseModel):
    """A line of the file: a position with its solution, which players do not see.

    Attributes:
        id: The task's id.
        kind: The kind of task.
        split: One of `SPLITS`.
        fen: The position.
        moves: The moves within which the agent must mate.
        solution: The only first move that mates in time, in UCI; empty for an endgame, which has
            many winning moves.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    kind: Kind
    split: str
    fen: str
    moves: int
    solution: str = ""

    def to_task(self) -> ChessTask:
        """Return the task without its solution."""
        color = "White" if chess.Board(self.fen).turn else "Black"
        moves = "1 move" if self.moves == 1 else f"{self.moves} moves"
        half_moves = 2 * self.moves - 1
        return ChessTask(
            id=self.id,
            kind=self.kind,
            goal=f"Play {color} and mate within {moves}.",
            fen=self.fen,
            max_moves=half_moves,
            # In a puzzle, the defense searches deep enough to see the mate that it delays.
            opponent_depth=max(half_moves - 1, 1) if self.solution else _ENDGAME_OPPONENT_DEPTH,
        )


@cache
def composed_tasks() -> tuple[ComposedTask, ...]:
    """Return every task, with its solution."""
    return tuple(
        ComposedTask(**each) for each in json.loads(TASKS_FILE.read_text(encoding="utf-8"))
    )


@cache
def tasks_of(split: str) -> tuple[ChessTask, ...]:
    """Return the tasks of a split.

    Raises:
        Refused: The split is unknown.
    """
    if split not in SPLITS:
        raise Refused(f"unknown split {split!r}; there are {' and '.join(SPLITS)}")
    return tuple(each.to_task() for each in composed_tasks() if each.split == split)


@cache
def _tasks_by_id() -> dict[str, ChessTask]:
    return {task.id: task for split in SPLITS for task in tasks_of(split)}


def find_task(task: str | Mapping[str, Any] | ChessTask) -> ChessTask:
    """Find a task by its id, or by a copy of the task.

    Raises:
        Refused: No task has this id, or the task with this id differs from the copy.
    """
    given = task.model_dump() if isinstance(task, ChessTask) else task
    task_id = given.get("id") if isinstance(given, Mapping) else given
    known = _tasks_by_id()
    found = known.get(task_id) if isinstance(task_id, str) else None
    if found is None:
        close = difflib.get_close_matches(str(task_id), known, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]!r}?" if close else "list_tasks(split) gives all of them"
        raise Refused(f"unknown task {task_id!r:.80}; {hint}")
    if isinstance(given, Mapping) and dict(given) != found.model_dump():
        raise Refused(f"task {found.id!r} is another one here; pass its id, or what get_task gave")
    return found
