"""A game of TextArena, with the messages to each player."""

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
"""The names of all games that TextArena knows."""


class GameUnavailable(Refused):
    """The game cannot be played here, because a file, a package, a key or a player is missing."""


class Game:
    """A running game, with its random numbers.

    Args:
        env_id: TextArena's name of the game.
        num_players: The number of players.
        seed: Determines all random numbers; at least 0.
        options: The keyword arguments of the game's constructor.

    Raises:
        GameUnavailable: The game cannot be started like this.
        LookupError: Data of NLTK are missing.
    """

    def __init__(
        self, env_id: str, num_players: int, seed: int, options: Mapping[str, Any]
    ) -> None:
        self.env_id = env_id
        self._dice = Dice(seed)
        self._messages: dict[int, list[TextArenaMessage]] = {}
        self._unread: dict[int, list[TextArenaMessage]] = {}
        self._transcripts: dict[int, str] = {}
        self.is_over = False
        with self._dice.activate():
            try:
                self._env = _make_game(env_id, dict(options))
                self._inner = _unwrap(self._env)
                self._writers = _find_writers(self._env)
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
        """The number of turns, as the game counts them."""
        return int(getattr(self._inner.state, "turn", 0))

    @property
    def player(self) -> int:
        """The player whose turn it is."""
        return int(self._inner.state.current_player_id)

    def list_messages(self, player: int) -> list[TextArenaMessage]:
        """Return all messages to a player up to the player's latest turn."""
        return list(self._messages.get(player, ()))

    def take_unread(self, player: int) -> list[TextArenaMessage]:
        """Return the messages to a player since the last call."""
        return self._unread.pop(player, [])

    def get_transcript(self, player: int) -> str:
        """Return all messages to a player, as TextArena writes them for a model."""
        return self._transcripts.get(player, "")

    def get_prompt(self, player: int) -> str:
        """Return the rules for a player."""
        told = self.list_messages(player)
        return "\n".join(one.content for one in told if one.category == "PROMPT")

    def play(self, message: str) -> dict[str, Any]:
        """Make the move of the player whose turn it is, and return the game's info on it.

        An exception in the game's own code ends the game, because its state is not known.
        """
        try:
            with self._dice.activate():
                self.is_over, info = self._env.step(action=message)
                self._listen()
        except BaseException:
            self.is_over = True
            raise
        return to_json(info)

    def finish(self) -> tuple[dict[int, float], dict[str, Any]]:
        """Return the rewards and the info of a finished game.

        Players whose reward is not a number are left out.
        """
        with self._dice.activate():
            rewards, info = self._env.close()
        paid = (rewards or {}).items()
        return {int(who): float(reward) for who, reward in paid if _is_number(reward)}, to_json(
            info
        )

    def raw_state(self) -> dict[str, Any]:
        """Return the game's own state as JSON values."""
        return to_json(self._inner.state.game_state)

    def _listen(self) -> None:
        """Collect the messages to the player whose turn it is; at the end, those to all players.

        This is called once per turn, because some games add a message with each call.
        """
        heard = {self.player: self._inner.get_observation()[1]}
        if self.is_over:
            waiting = self._inner.state.observations
            heard |= {player: told for player, told in waiting.items() if player not in heard}
        for player, told in heard.items():
            messages = [_convert_message(one) for one in told]
            self._messages.setdefault(player, []).extend(messages)
            self._unread.setdefault(player, []).extend(messages)
            self._transcripts[player] = self._write(player, told)

    def _write(self, player: int, told: Any) -> str:
        """Return the text that the game's wrappers write for a player, given new messages."""
        written: Any = told
        try:
            for writer in self._writers:
                written = writer.observation(player, written)
        except (AssertionError, IndexError, KeyError, TypeError, ValueError) as error:
            # Some wrappers need a message, such as a board, that their game does not send each
            # time.
            logger.info("%s: %s writes nothing: %r", self.env_id, self._writers, error)
            written = None
        if isinstance(written, str):
            return written
        # Games without wrappers, whose names end in "-raw", write nothing either.
        lines = (
            f"\n[{_name_sender(one.sender_id)}] {one.content}" for one in self.list_messages(player)
        )
        return "".join(lines)

    def _unavailable(self, num_players: int, error: Exception) -> GameUnavailable:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return GameUnavailable(
            f"{self.env_id} cannot be played here with num_players={num_players}: {reason}"
        )


_SLOW_S = 0.2

_pristine: dict[str, Any] = {}


def _make_game(env_id: str, options: dict[str, Any]) -> Any:
    """Make a game, and keep a copy of slow ones: those with dictionaries take seconds.

    A game whose constructor draws random numbers is made each time. Only one thread may call this
    at a time.
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
    """Load each dictionary once per process; TextArena loads one, in seconds, for each game.

    Games look the class up by name when they are first made, which is later.
    """
    dictionary = word_lists.EnglishDictionary
    dictionary.__deepcopy__ = lambda self, memo: self  # games only read it
    word_lists.EnglishDictionary = lru_cache(maxsize=8)(dictionary)


_share_dictionaries()


def to_json(value: Any) -> dict[str, Any]:
    """Convert a game's values to JSON values; other objects become the names of their classes."""
    if not value:
        return {}
    converted = to_jsonable_python(value, fallback=lambda other: type(other).__name__)
    return converted if isinstance(converted, dict) else {"value": converted}


def _convert_message(told: tuple[Any, Any, Any]) -> TextArenaMessage:
    """Convert a message of TextArena, whose parts some games give in another order."""
    kinds = [part for part in told if isinstance(part, textarena.ObservationType)]
    texts = [part for part in told if isinstance(part, str)]
    senders = [part for part in told if isinstance(part, int)]
    return TextArenaMessage(
        sender_id=senders[0] if senders else textarena.GAME_ID,
        content=texts[0] if texts else "",
        category=kinds[0].name if kinds else textarena.ObservationType.GAME_MESSAGE.name,
    )


def _is_number(reward: Any) -> bool:
    """Return whether a reward is a number; some games pay an error text for a wrong move."""
    return isinstance(reward, int | float) and math.isfinite(reward)


def _name_sender(sender: int) -> str:
    return "GAME" if sender == textarena.GAME_ID else f"Player {sender}"


def _find_writers(env: Any) -> list[Any]:
    """Return the wrappers that write a player's observation, in their order."""
    found = []
    while isinstance(env, textarena.Wrapper):
        if isinstance(env, ObservationWrapper):
            found.append(env)
        env = env.env
    return found[::-1]


def _unwrap(env: Any) -> Any:
    """Return the game without its wrappers; its observations are messages, not one long text."""
    while isinstance(env, textarena.Wrapper):
        env = env.env
    return env
