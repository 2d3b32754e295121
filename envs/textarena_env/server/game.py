"""One game of TextArena, as it is played from the seats of its players."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import random
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import textarena
from pydantic_core import to_jsonable_python
from textarena.core import ObservationWrapper
from textarena.envs.registration import ENV_REGISTRY
from textarena.envs.utils import word_lists

from openenv.errors import Refused

from ..models import TextArenaMessage
from .dice import Dice

__all__ = ["GAMES", "Game", "GameUnavailable"]

logger = logging.getLogger(__name__)

GAMES: tuple[str, ...] = tuple(sorted(ENV_REGISTRY))
"""The name of every game that TextArena knows."""


class GameUnavailable(Refused):
    """This game cannot be played here: it lacks a file, a package, a key or players."""


class Game:
    """A running game, its random numbers included.

    Args:
        env_id: TextArena's name of the game.
        num_players: Its players.
        seed: Determines all that is random in it; from 0.
        options: The keyword arguments of the game's constructor.

    Raises:
        GameUnavailable: It cannot be begun like this.
        LookupError: It lacks data of NLTK.
    """

    def __init__(
        self, env_id: str, num_players: int, seed: int, options: Mapping[str, Any]
    ) -> None:
        self.env_id = env_id
        self._dice = Dice(seed)
        self._told: dict[int, list[TextArenaMessage]] = {}
        self._unread: dict[int, list[TextArenaMessage]] = {}
        self._written: dict[int, str] = {}
        self.is_over = False
        with self._dice.in_place():
            try:
                self._env = _made(env_id, dict(options))
                self._inner = _innermost(self._env)
                self._writers = _writers(self._env)
                self._env.reset(num_players=num_players, seed=seed)
            except LookupError as error:
                if "nltk" in str(error).lower():
                    raise
                raise self._unavailable(num_players, error) from error
            except Exception as error:
                raise self._unavailable(num_players, error) from error
            self._listen()

    @property
    def turn(self) -> int:
        """The turns that the game has counted."""
        return int(getattr(self._inner.state, "turn", 0))

    @property
    def player(self) -> int:
        """Whose turn it is."""
        return int(self._inner.state.current_player_id)

    def told(self, player: int) -> list[TextArenaMessage]:
        """Everything that a player has been told by its latest turn."""
        return list(self._told.get(player, ()))

    def unread(self, player: int) -> list[TextArenaMessage]:
        """What a player has been told since this was last asked for."""
        return self._unread.pop(player, [])

    def written(self, player: int) -> str:
        """Everything that a player has been told, as TextArena writes it for a model."""
        return self._written.get(player, "")

    def prompt(self, player: int) -> str:
        """The rules as a player was told them."""
        told = self.told(player)
        return "\n".join(one.content for one in told if one.category == "PROMPT")

    def say(self, message: str) -> dict[str, Any]:
        """Make the move of the player whose turn it is; returns what the game says about it.

        An exception of the game's own code ends the game, since nobody knows where it stands.
        """
        try:
            with self._dice.in_place():
                self.is_over, info = self._env.step(action=message)
                self._listen()
        except BaseException:
            self.is_over = True
            raise
        return plain(info)

    def result(self) -> tuple[dict[int, float], dict[str, Any]]:
        """What a finished game pays the players, those left out whom it pays no number; and why."""
        with self._dice.in_place():
            rewards, info = self._env.close()
        paid = (rewards or {}).items()
        return {int(who): float(reward) for who, reward in paid if _is_number(reward)}, plain(info)

    def raw_state(self) -> dict[str, Any]:
        """The game's own state as JSON has it."""
        return plain(self._inner.state.game_state)

    def _listen(self) -> None:
        """Take in what the player whose turn it is was told; at the end, what everybody was.

        Called once a turn: some games say something more each time that they are asked.
        """
        heard = {self.player: self._inner.get_observation()[1]}
        if self.is_over:
            waiting = self._inner.state.observations
            heard |= {player: told for player, told in waiting.items() if player not in heard}
        for player, told in heard.items():
            messages = [_message(one) for one in told]
            self._told.setdefault(player, []).extend(messages)
            self._unread.setdefault(player, []).extend(messages)
            self._written[player] = self._write(player, told)

    def _write(self, player: int, told: Any) -> str:
        """What the game's own wrappers write for a player who is told something more."""
        written: Any = told
        try:
            for writer in self._writers:
                written = writer.observation(player, written)
        except (AssertionError, IndexError, KeyError, TypeError, ValueError) as error:
            # Some ask for a message, such as a board, that their game does not send each time.
            logger.info("%s: %s writes nothing: %r", self.env_id, self._writers, error)
            written = None
        if isinstance(written, str):
            return written
        # Games without wrappers, whose names end in "-raw", write nothing either.
        lines = (f"\n[{_name(one.sender_id)}] {one.content}" for one in self.told(player))
        return "".join(lines)

    def _unavailable(self, num_players: int, error: Exception) -> GameUnavailable:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return GameUnavailable(
            f"{self.env_id} cannot be played here with num_players={num_players}: {reason}"
        )


_SLOW_S = 0.2

_pristine: dict[str, Any] = {}


def _made(env_id: str, options: dict[str, Any]) -> Any:
    """Make a game, which those with dictionaries take seconds for: of these a copy is kept.

    A game whose constructor draws random numbers is made anew each time. To be called by one
    thread at a time.
    """
    key = f"{env_id} {sorted(options.items())}"
    if key in _pristine:
        return copy.deepcopy(_pristine[key])
    began, dice = time.perf_counter(), random.getstate()
    env = textarena.make(env_id, **options)
    if time.perf_counter() - began > _SLOW_S and random.getstate() == dice:
        with contextlib.suppress(TypeError):  # some wrappers cannot be copied
            _pristine[key] = copy.deepcopy(env)
    return env


def _share_dictionaries() -> None:
    """Have each dictionary loaded once a process: TextArena loads one, in seconds, for each game.

    Games get the class by name when they are first made, which is later.
    """
    dictionary = word_lists.EnglishDictionary
    dictionary.__deepcopy__ = lambda self, memo: self  # it is only looked up in
    word_lists.EnglishDictionary = lru_cache(maxsize=8)(dictionary)


_share_dictionaries()


def plain(value: Any) -> dict[str, Any]:
    """A game's values as JSON has them; what has no such form is named by its class."""
    if not value:
        return {}
    converted = to_jsonable_python(value, fallback=lambda other: type(other).__name__)
    return converted if isinstance(converted, dict) else {"value": converted}


def _message(told: tuple[Any, Any, Any]) -> TextArenaMessage:
    """A message of TextArena's, whose parts some games give in another order."""
    kinds = [part for part in told if isinstance(part, textarena.ObservationType)]
    texts = [part for part in told if isinstance(part, str)]
    senders = [part for part in told if isinstance(part, int)]
    return TextArenaMessage(
        sender_id=senders[0] if senders else textarena.GAME_ID,
        content=texts[0] if texts else "",
        category=kinds[0].name if kinds else textarena.ObservationType.GAME_MESSAGE.name,
    )


def _is_number(reward: Any) -> bool:
    """Whether it is one: some games pay for a wrong move the text that says what was wrong."""
    return isinstance(reward, int | float) and math.isfinite(reward)


def _name(sender: int) -> str:
    return "GAME" if sender == textarena.GAME_ID else f"Player {sender}"


def _writers(env: Any) -> list[Any]:
    """The wrappers that write a player's observation, in their order."""
    found = []
    while isinstance(env, textarena.Wrapper):
        if isinstance(env, ObservationWrapper):
            found.append(env)
        env = env.env
    return found[::-1]


def _innermost(env: Any) -> Any:
    """The game without its wrappers, whose observations are messages and not one long text."""
    while isinstance(env, textarena.Wrapper):
        env = env.env
    return env
