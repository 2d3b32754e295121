"""What a strategy for 2048 is worth that a model has written as a Python function.

The functions of Unsloth are its own: `launch_openenv` starts the server and looks after it,
`create_locked_down_function` makes a function of the text, `execute_with_time_limit` ends one
that takes too long.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from game_2048_env import Game2048Action, Game2048Env
from openenv import OpenEnvError

__all__ = ["PROMPT", "WRONG", "Strategies"]

PROMPT = """Write a strategy for the game 2048 as one Python function, between ``` and ```:

def strategy(board, possible):

`board` is 4 rows of 4 tiles, 0 where there is none; `possible` has those of "up", "right", "down"
and "left" that move something. It returns one of `possible`. Import nothing."""

WRONG = -1.0
"""What a reply is worth that is no function, or one that fails, makes a move that is not possible,
or takes too long: less than any game."""


def function_in(reply: str) -> str:
    """The last function between fences; "" if there is none."""
    found = re.findall(r"```(?:python)?\s*\n(.*?)```", reply, flags=re.DOTALL)
    return found[-1] if found and "def strategy(" in found[-1] else ""


def asked(strategy: Any, board: list[list[int]], possible: list[str]) -> Any:
    """What a strategy says."""
    return strategy(board, possible)


class Strategies:
    """Plays strategies on a server that Unsloth keeps.

    Args:
        unsloth: The package, or what has its functions.
        moves: At most, in a game.
        limit_s: Seconds that a strategy may take for all moves of a game.
        seed: Of the games: the same for all strategies of a step, which are compared.
    """

    def __init__(
        self, unsloth: Any, *, moves: int = 200, limit_s: float = 10.0, seed: int = 0
    ) -> None:
        self._unsloth = unsloth
        self._moves, self._limit_s, self._seed = moves, limit_s, seed
        self._port: int = 9000
        self._client: Any = None

    def reward(self, completions: list[Any], **columns: Any) -> list[float | None]:
        """As TRL's GRPOTrainer asks for it.

        Returns:
            For each reply what its strategy is worth; None, which TRL leaves out, where the
            environment failed.
        """
        self._seed += 1
        return [self.worth(one[0]["content"]) for one in completions]

    def worth(self, reply: str) -> float | None:
        """What a reply is worth; None if the environment failed."""
        try:
            strategy = self._unsloth.create_locked_down_function(function_in(reply))
        except RuntimeError:
            return WRONG
        self._port, self._client = self._unsloth.launch_openenv(
            self._port,
            self._client,
            working_directory=str(Path.cwd()),
            server="game_2048_env.server.app:app",
            environment=dict(os.environ),
            openenv_class=Game2048Env,
        )
        try:
            return self._played(strategy)
        except OpenEnvError as error:
            sys.stderr.write(f"not scored: {error!r}\n")
            return None

    def _played(self, strategy: Any) -> float:
        """The points of a game for each move that it might have had.

        How long the environment takes, and where it fails, is not held against the strategy.
        """
        result, left_s = self._client.reset(seed=self._seed, max_moves=self._moves), self._limit_s
        while not result.done:
            seen, began = result.observation, time.monotonic()
            board, possible = [list(row) for row in seen.board], list(seen.legal_actions)
            try:
                move = self._unsloth.execute_with_time_limit(left_s)(asked)(
                    strategy, board, possible
                )
            except Exception:  # whatever a strategy may raise, and the end of its time
                return WRONG
            left_s -= time.monotonic() - began
            if move not in seen.legal_actions or left_s <= 0:
                return WRONG
            result = self._client.step(Game2048Action(move=move))
        return float(result.observation.score) / self._moves
