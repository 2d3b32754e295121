"""The available games, and a pool of consoles that play them.

Bellemare, Naddaf, Veness, Bowling 2013, "The Arcade Learning Environment: An Evaluation Platform
for General Agents", JAIR 47, arXiv:1207.4708.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from threading import Lock

from ale_py import Action, ALEInterface, ALEState, LoggerMode, roms

from openenv.errors import Refused

__all__ = ["GAMES", "Console", "did_you_mean", "return_console", "points_range", "take_console"]

# ALE ends the process if one of these is played alone.
GAMES_FOR_TWO = frozenset({"combat", "joust", "maze_craze", "warlords"})

GAMES = tuple(sorted(set(roms.get_all_rom_ids()) - GAMES_FOR_TWO))
"""The names of the ROMs of all games that ALE ships and that one can play alone."""

# In these games the score is the difference of both sides' points, and a side wins at this many.
_POINTS = {"boxing": 100.0, "pong": 21.0}
_MAX_POINTS = 1e6  # in other games a score has six digits


def points_range(game: str) -> tuple[float, float]:
    """Return the lowest and highest reward of a step of a game.

    A step can lose at most all points of the game.
    """
    most = _POINTS.get(game, _MAX_POINTS)
    return -most, most


# Modes for two players, in which ALE reports the end of the game before its start.
_MODES_FOR_TWO = {"demon_attack": {3, 5, 7}}

# The seed of ALE's own generator, which is never used; `Episode` draws the sticky actions.
_UNUSED_SEED = 0

ALEInterface.setLoggerMode(LoggerMode.Error)


class Console:
    """An Atari 2600 with a loaded game.

    Loading a game takes a fifth of a second. No other thread runs meanwhile, because ALE holds the
    interpreter's lock in all its calls. So consoles are kept for reuse; see `take_console`.

    Args:
        game_name: One of `GAMES`.

    Attributes:
        ale: The emulator.
        modes: The game's modes for one player.
        difficulties: The positions of the difficulty switches that the game uses.
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
        """Return all actions, or those that the game uses; an id is an index of this list."""
        ale = self.ale
        chosen: list[Action] = (
            ale.getLegalActionSet() if full_action_space else ale.getMinimalActionSet()
        )
        return chosen

    def check(self, mode: int | None, difficulty: int | None) -> None:
        """Raise `Refused` if the game does not have the mode or difficulty."""
        for what, value, known in (
            ("mode", mode, self.modes),
            ("difficulty", difficulty, self.difficulties),
        ):
            if value is not None and value not in known:
                listed = ", ".join(map(str, known))
                raise Refused(f"{what}={value}, but {self.game_name} has only {what} {listed}")

    def switch_on(self, mode: int | None, difficulty: int | None) -> None:
        """Restart the game, exactly as on a console that was just loaded.

        `ALEInterface.reset_game` alone does not reset generators and timers, so some games start
        differently after another game.
        """
        self.ale.restoreSystemState(self._as_loaded)
        if mode is not None:
            self.ale.setMode(mode)
        if difficulty is not None:
            self.ale.setDifficulty(difficulty)
        self.ale.reset_game()


# ------------------------------------------------------------------ the pool of idle consoles

_MAX_IDLE = 64  # consoles of 0.6 MiB each

_idle: list[Console] = []
_lock = Lock()


def take_console(game_name: str) -> Console:
    """Return an idle console with a game, or load a new one.

    Raises:
        Refused: The game is unknown.
    """
    if game_name not in GAMES:
        raise Refused(_explain_unknown_game(game_name))
    with _lock:
        for console in reversed(_idle):
            if console.game_name == game_name:
                _idle.remove(console)
                return console
    return Console(game_name)


def return_console(console: Console) -> None:
    """Keep a console for reuse; beyond `_MAX_IDLE`, drop those that were returned first."""
    with _lock:
        _idle.append(console)
        del _idle[:-_MAX_IDLE]


# ------------------------------------------------------------------ names


def _explain_unknown_game(game_name: str) -> str:
    if game_name in GAMES_FOR_TWO:
        return f"game_name={game_name!r} is a game for two players, which ALE cannot play alone"
    # Gymnasium writes ALE/SpaceInvaders-v5.
    name = _normalize_name(re.sub(r"^ALE/|-v\d+$", "", game_name))
    same = [game for game in GAMES if _normalize_name(game) == name]
    hint = f" (did you mean {same[0]!r}?)" if same else did_you_mean(game_name, GAMES)
    return f"unknown game_name {game_name!r}{hint}"


def _normalize_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a close match, or all known names."""
    names: Sequence[str] = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    close = close or [candidate for candidate in names if name and name in candidate]
    return f" (did you mean {close[0]!r}?)" if close else f"; known are {', '.join(names)}"
