"""The games that there are, and the consoles that play them.

The Arcade Learning Environment: Bellemare, Naddaf, Veness, Bowling 2013, "The Arcade Learning
Environment: An Evaluation Platform for General Agents", JAIR 47, arXiv:1207.4708.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from threading import Lock

from ale_py import Action, ALEInterface, ALEState, LoggerMode, roms

from openenv.errors import Refused

__all__ = ["GAMES", "Console", "did_you_mean", "give_back", "points_of", "take"]

# ALE ends the process when it is asked to play one of these alone.
GAMES_FOR_TWO = frozenset({"combat", "joust", "maze_craze", "warlords"})

GAMES = tuple(sorted(set(roms.get_all_rom_ids()) - GAMES_FOR_TWO))
"""Every game that ALE ships and that one can play alone, by the name of its ROM."""

# What is known of points: of these both sides' are counted, and the game is over at one's last.
_POINTS = {"boxing": 100.0, "pong": 21.0}
_MOST_POINTS = 1e6  # of others: a score has six digits


def points_of(game: str) -> tuple[float, float]:
    """The least and the most that a step of a game may bring; a game loses what it has at most."""
    most = _POINTS.get(game, _MOST_POINTS)
    return -most, most


# Modes for two, in which ALE says that the game is over before it has begun.
_MODES_FOR_TWO = {"demon_attack": {3, 5, 7}}

# The seed of ALE's own generator, from which nothing is drawn; see `StickyActions`.
_UNUSED_SEED = 0

ALEInterface.setLoggerMode(LoggerMode.Error)


class Console:
    """An Atari 2600 with a game in it.

    To put a game in takes a fifth of a second, in which no other thread runs: ALE holds the
    interpreter's lock in all it does. So consoles are kept; see `take`.

    Args:
        game_name: One of `GAMES`.

    Attributes:
        ale: The emulator.
        modes: The game's modes for one player.
        difficulties: The positions of the switches that mean something in it.
    """

    def __init__(self, game_name: str) -> None:
        self.game_name = game_name
        self.ale = ALEInterface()
        self.ale.setInt("random_seed", _UNUSED_SEED)
        self.ale.setFloat("repeat_action_probability", 0.0)
        path = roms.get_rom_path(game_name)
        assert path is not None, f"{game_name} is none of GAMES"
        self.ale.loadROM(path)
        self._as_loaded: ALEState = self.ale.cloneSystemState()
        for_two = _MODES_FOR_TWO.get(game_name, ())
        self.modes = [mode for mode in self.ale.getAvailableModes() if mode not in for_two]
        self.difficulties: list[int] = self.ale.getAvailableDifficulties()

    def actions(self, full_action_space: bool) -> list[Action]:
        """All actions, or those that the game makes use of; an id is a place in this list."""
        ale = self.ale
        chosen: list[Action] = (
            ale.getLegalActionSet() if full_action_space else ale.getMinimalActionSet()
        )
        return chosen

    def check(self, mode: int | None, difficulty: int | None) -> None:
        """Raise `Refused` if the game has no such mode or difficulty."""
        for what, value, known in (
            ("mode", mode, self.modes),
            ("difficulty", difficulty, self.difficulties),
        ):
            if value is not None and value not in known:
                listed = ", ".join(map(str, known))
                raise Refused(f"{what}={value}, but {self.game_name} has only {what} {listed}")

    def switch_on(self, mode: int | None, difficulty: int | None) -> None:
        """Begin the game anew, exactly as on a console that has never played.

        `ALEInterface.reset_game` alone leaves generators and timers where the last game has left
        them, and some games begin otherwise then.
        """
        self.ale.restoreSystemState(self._as_loaded)
        if mode is not None:
            self.ale.setMode(mode)
        if difficulty is not None:
            self.ale.setDifficulty(difficulty)
        self.ale.reset_game()


# ------------------------------------------------------------------ consoles that nobody plays

_MOST_IDLE = 64  # of 0.6 MiB each

_idle: list[Console] = []
_lock = Lock()


def take(game_name: str) -> Console:
    """Give a console with a game in it, one that was given back or a new one.

    Raises:
        Refused: There is no such game.
    """
    if game_name not in GAMES:
        raise Refused(_unknown(game_name))
    with _lock:
        for console in reversed(_idle):
            if console.game_name == game_name:
                _idle.remove(console)
                return console
    return Console(game_name)


def give_back(console: Console) -> None:
    """Keep a console for whoever plays its game next; of many, those given back last."""
    with _lock:
        _idle.append(console)
        del _idle[:-_MOST_IDLE]


# ------------------------------------------------------------------ names


def _unknown(game_name: str) -> str:
    if game_name in GAMES_FOR_TWO:
        return f"game_name={game_name!r} is a game for two, which ALE cannot play alone"
    # Gymnasium writes ALE/SpaceInvaders-v5.
    name = _bare(re.sub(r"^ALE/|-v\d+$", "", game_name))
    same = [game for game in GAMES if _bare(game) == name]
    hint = f" (did you mean {same[0]!r}?)" if same else did_you_mean(game_name, GAMES)
    return f"unknown game_name {game_name!r}{hint}"


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: what is close, or else what is known."""
    names: Sequence[str] = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    close = close or [candidate for candidate in names if name and name in candidate]
    return f" (did you mean {close[0]!r}?)" if close else f"; known are {', '.join(names)}"
