"""Rewards for strategies for 2048 that a model has written as Python functions.

Unsloth provides three functions: `launch_openenv` starts the server and watches it,
`create_locked_down_function` compiles the text, and `execute_with_time_limit` ends a function that
takes too long.
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
"""The reward of a reply that is not a function, or whose function fails, makes an illegal move, or
takes too long. Every other game has a higher reward."""


def find_function(reply: str) -> str:
    """Return the last function between fences, or ""."""
    found = re.findall(r"```(?:python)?\s*\n(.*?)```", reply, flags=re.DOTALL)
    return found[-1] if found and "def strategy(" in found[-1] else ""


def call_strategy(strategy: Any, board: list[list[int]], possible: list[str]) -> Any:
    """Return the move of a strategy."""
    return strategy(board, possible)


class Strategies:
    """A reward function that plays strategies on a server that Unsloth starts.

    Args:
        unsloth: The package, or an object with its functions.
        moves: Maximum number of moves in a game.
        limit_s: Seconds that a strategy may take for all moves of a game.
        seed: The seed before the first step. Each step adds 1, and all of its strategies play that
            game.
    """

    def __init__(
        self, unsloth: Any, *, moves: int = 200, limit_s: float = 10.0, seed: int = 0
    ) -> None:
        self._unsloth = unsloth
        self._moves, self._limit_s, self._seed = moves, limit_s, seed
        self._port: int = 9000
        self._client: Any = None

    def reward(self, completions: list[Any], **columns: Any) -> list[float | None]:
        """Compute the rewards of replies, with the signature of TRL's GRPOTrainer.

        Returns:
            The reward of each reply's strategy, or None if the environment failed. TRL ignores
            None.
        """
        self._seed += 1
        return [self.worth(one[0]["content"]) for one in completions]

    def worth(self, reply: str) -> float | None:
        """Return the reward of a reply, or None if the environment failed."""
        try:
            strategy = self._unsloth.create_locked_down_function(find_function(reply))
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
            return self._play(strategy)
        except OpenEnvError as error:
            sys.stderr.write(f"not scored: {error!r}\n")
            return None

    def _play(self, strategy: Any) -> float:
        """Play a game, and return its points divided by the maximum number of moves.

        The environment's time and its failures do not count against the strategy.
        """
        result, left_s = self._client.reset(seed=self._seed, max_moves=self._moves), self._limit_s
        while not result.done:
            seen, began = result.observation, time.monotonic()
            board, possible = [list(row) for row in seen.board], list(seen.legal_actions)
            try:
                move = self._unsloth.execute_with_time_limit(left_s)(call_strategy)(
                    strategy, board, possible
                )
            except Exception:  # an error of the strategy, or the end of its time
                return WRONG
            left_s -= time.monotonic() - began
            if move not in seen.legal_actions or left_s <= 0:
                return WRONG
            result = self._client.step(Game2048Action(move=move))
        return float(result.observation.score) / self._moves
