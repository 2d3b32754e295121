"""What TRL's examples call of our clients, in their order, where the examples are not at hand.

    python public_patterns.py WAY ADDRESS...

Written anew from ``examples/scripts/openenv`` of TRL, which is in none of its packages: `echo` is
``echo.py``, `kept` is ``catch.py`` and ``wordle.py`` in one (a client is made once, and reset for
each episode), `remade` is ``multi_env.py`` (each episode closes its client and makes another). It
is run as those are, by `public_run`.
"""

from __future__ import annotations

import argparse
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from echo_env import EchoEnv
from echo_env.models import EchoAction
from openspiel_env import OpenSpielEnv
from openspiel_env.models import OpenSpielAction
from textarena_env import TextArenaAction, TextArenaEnv

addresses: dict[str, str] = {}


class Echo:
    """Steps a client that was never reset, and takes the reward from the observation."""

    def __init__(self) -> None:
        self.client: Any = EchoEnv(base_url=addresses["echo"])
        self.reward = 0.0

    def reset(self, **row: Any) -> None:
        self.reward = 0.0

    def echo(self, message: str) -> str:
        """Have a message sent back.

        Args:
            message: The text to send.

        Returns:
            The text that came back.
        """
        seen = self.client.step(EchoAction(message=message)).observation
        self.reward = seen.reward
        return str(seen.echoed_message)


class Games:
    """Wordle, whose news is what its one message has grown by, and Catch, a grid of floats."""

    remade = False

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.game = ""
        self.reward = 0.0
        self.done = False

    def reset(self, **row: Any) -> str:
        self.game, self.reward, self.done = row["env"], 0.0, False
        if self.remade and (old := self.clients.pop(self.game, None)) is not None:
            old.close()
        if self.game not in self.clients:
            client = TextArenaEnv if self.game == "wordle" else OpenSpielEnv
            self.clients[self.game] = client(base_url=addresses[self.game])
        seen = self.clients[self.game].reset().observation
        if self.game == "wordle":
            self._told = str(seen.messages[0].content)
            return self._told
        self.done = seen.done
        return self._drawn(seen.info_state)

    def guess(self, guess: str) -> str:
        """Guess the secret word.

        Args:
            guess: Five letters in brackets.

        Returns:
            What the game says of it.
        """
        self._check("wordle")
        result = self.clients["wordle"].step(TextArenaAction(message=guess))
        told: str = result.observation.messages[0].content
        news, self._told = told[len(self._told) :], told
        self.reward = 0.0 if "You attempted an invalid move" in news else result.reward
        self.done = result.done
        return news

    def move(self, direction: str) -> str:
        """Move the paddle by one column.

        Args:
            direction: Which way, "left" or "right".

        Returns:
            Where the ball and the paddle are.
        """
        return self._act({"left": 0, "right": 2}[direction])

    def stay(self) -> str:
        """Leave the paddle where it is.

        Returns:
            Where the ball and the paddle are.
        """
        return self._act(1)

    def _act(self, action_id: int) -> str:
        self._check("catch")
        action = OpenSpielAction(action_id=action_id, game_name="catch")
        result = self.clients["catch"].step(action)
        self.reward, self.done = result.reward or 0.0, result.observation.done
        return self._drawn(result.observation.info_state)

    def _check(self, game: str) -> None:
        if self.game != game:
            raise ValueError(f"this is {self.game}, which has no such tool")
        if self.done:
            raise ValueError("the game is over")

    def _drawn(self, grid: list[float]) -> str:
        taken = [divmod(index, 5) for index, cell in enumerate(grid) if cell == 1.0]
        return " ".join(
            f"{'Ball' if row < 9 else 'Paddle'}: row {row + 1}, column {column + 1}."
            for row, column in taken
        )


class Remade(Games):
    """The same by clients of which each plays one episode."""

    remade = True


def echo_reward(environments: list[Any], **columns: Any) -> list[float]:
    return [one.reward for one in environments]


def wordle_reward(environments: list[Any], **columns: Any) -> list[float | None]:
    return [one.reward if one.game == "wordle" else None for one in environments]


def catch_reward(environments: list[Any], **columns: Any) -> list[float | None]:
    return [
        (max(one.reward, 0.0) if one.done else 0.0) if one.game == "catch" else None
        for one in environments
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["echo", "kept", "remade"])
    for name in ("echo", "wordle", "catch"):
        parser.add_argument(f"--{name}", default="")
    options = vars(parser.parse_args())
    way = options.pop("way")
    addresses.update(options)
    games = ["echo"] if way == "echo" else ["wordle", "catch"]
    rows = [
        {
            "prompt": [{"role": "user", "content": f"Play {game.title()} by the tools.\n"}],
            "env": game,
        }
        for game in games
    ] * 50
    trainer = GRPOTrainer(
        model="none",
        train_dataset=Dataset.from_list(rows),
        reward_funcs=[echo_reward] if way == "echo" else [wordle_reward, catch_reward],
        args=GRPOConfig(chat_template_kwargs={"enable_thinking": False}, log_completions=True),
        environment_factory={"echo": Echo, "kept": Games, "remade": Remade}[way],
    )
    trainer.train()


if __name__ == "__main__":
    main()
