"""TextArena's games, for one player or several (Guertler et al. 2025, arXiv:2504.11442)."""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field

from openenv.environment import Environment, restart, termination, transition, truncation
from openenv.errors import Refused
from openenv.reward import RewardSpec, Score

from ..models import (
    DEFAULT_GAME,
    Opponent,
    TextArenaAction,
    TextArenaMessage,
    TextArenaObservation,
    TextArenaState,
    TextArenaTask,
)
from .game import GAMES, Game, GameUnavailable
from .opponents import ScriptedMoves, choose_random_move
from .signals import compute_signals

__all__ = ["TASK_GAMES", "TextArenaEnvironment"]

logger = logging.getLogger(__name__)

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
_TASKS_PER_GAME: dict[Split, int] = {"train": 1_000, "test": 100}

TASK_GAMES = (
    "2048-v0-easy",
    "Blackjack-v0",
    "FifteenPuzzle-v0",
    "FrozenLake-v0-random",
    "GuessTheNumber-v0",
    "LightsOut-v0",
    "LogicPuzzle-v0",
    "Mastermind-v0",
    "Minesweeper-v0",
    "RushHour-v0",
    "Secretary-v0",
    "Sudoku-v0",
)
"""Games for one player whose start depends on the seed, and that need neither data nor a key.

Bandit is left out, because it pays more for a worse final choice.
"""

_RANGES: dict[str, tuple[float, float] | None] = {
    "Klondike": (-1.0, 52.0),
    "ScorableGames": None,
    "Set": (-1.0, 20.0),
    "UsedCarNegotiation": None,
}
"""The reward ranges of games that pay points, by their names without version; None if unknown.

All other games pay from -1 to 1.
"""

INVALID_MOVE = -1.0
"""The reward of an invalid move that ends a game, unless the game itself pays another number."""

_NLTK_DATA = ("words", "averaged_perceptron_tagger_eng")
_KEYWORD_PREFIX = "TEXTARENA_KW_"
_SHOWN_GAMES = 12


class _Setting(NamedTuple):
    """The game and the players of an episode."""

    env_id: str
    num_players: int
    max_turns: int | None
    opponent: Opponent
    opponent_messages: tuple[str, ...]
    agent_player: int
    task: str | None


class TextArenaEnvironment(Environment[TextArenaAction, TextArenaObservation, TextArenaState]):
    """TextArena's games, one per episode.

    In a game of several players the agent plays all seats in turn, or one seat against opponents
    (`opponent`, `agent_player`).

    The seed and the messages determine the episode. TextArena's games draw from the global
    generators of the process, so each game gets a generator state of its own while it computes, and
    one game in a process computes at a time.

    Args:
        env_id: TextArena's name of the game. None takes TEXTARENA_ENV_ID, else ``Wordle-v0``.
        num_players: The number of players. None takes TEXTARENA_NUM_PLAYERS, else 1.
        max_turns: Messages of the agent after which an episode is truncated. None takes
            TEXTARENA_MAX_TURNS, else only the game's own limit applies.
        download_nltk: Download data of NLTK that a game needs. None takes
            TEXTARENA_DOWNLOAD_NLTK, else true.
        env_kwargs: The keyword arguments of the constructor of `env_id`; other games do not get
            them. None takes the variables TEXTARENA_KW_NAME.

    Raises:
        ValueError: There is no such game, or an argument is out of range.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    REWARD = RewardSpec("terminal", (-1.0, 1.0), ("payoff",))

    def __init__(
        self,
        env_id: str | None = None,
        num_players: int | None = None,
        max_turns: int | None = None,
        download_nltk: bool | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._default = self._setting = _check_setting(
            _Setting(
                env_id=env_id or os.environ.get("TEXTARENA_ENV_ID") or DEFAULT_GAME,
                num_players=_read_integer("TEXTARENA_NUM_PLAYERS", num_players) or 1,
                max_turns=_read_integer("TEXTARENA_MAX_TURNS", max_turns),
                opponent="none",
                opponent_messages=(),
                agent_player=0,
                task=None,
            )
        )
        self._downloads = (
            os.environ.get("TEXTARENA_DOWNLOAD_NLTK", "1").lower() in ("1", "true", "yes")
            if download_nltk is None
            else download_nltk
        )
        self._options = _read_options() if env_kwargs is None else dict(env_kwargs)
        self._game: Game | None = None
        self._seed = 0
        self._said: list[str] = []
        self._opponents = ScriptedMoves(())
        self._choices = Random()  # nosec B311  # a game's dice
        self._last: TextArenaObservation | None = None
        self._is_over = False
        self._episode_id: str | None = None

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | Mapping[str, Any] | TextArenaTask | None = None,
        env_id: str | None = None,
        num_players: int | None = None,
        max_turns: int | None = None,
        opponent: Opponent | None = None,
        opponent_messages: Sequence[str] | None = None,
        agent_player: int | None = None,
    ) -> TextArenaObservation:
        """Start a game, and play up to the agent's first turn.

        Args:
            seed: Determines all random numbers; any integer. None starts a random game.
            episode_id: Becomes `state.episode_id`; None generates one.
            task: A task or its id. It determines the game and the seed.
            env_id: The game of this episode; None plays the environment's own.
            num_players: The number of players. None uses the environment's own for its own game.
                For another game, it is 2 with an opponent, else 1.
            max_turns: Messages of the agent after which the game is truncated.
            opponent: The player of the other seats. ``none``: the agent; ``random``: a random one
                of the moves that the game lists; ``scripted``: the `opponent_messages` in turn.
                None is ``none``.
            opponent_messages: The messages of a scripted opponent, which it repeats.
            agent_player: The agent's seat against opponents, from 0.

        Raises:
            Refused: The game, task or player is unknown, or the game cannot be played here. The
                running episode continues.
        """
        fixed = (seed, env_id, num_players)
        if task is not None and any(argument is not None for argument in fixed):
            raise Refused("a task fixes seed, env_id and num_players; give the task without them")
        setting = self._setting_for(
            None if task is None else _find_task(task),
            env_id,
            num_players,
            max_turns,
            opponent,
            opponent_messages,
            agent_player,
        )
        return self._begin(setting, _make_game_seed(seed, setting.task), episode_id)

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: TextArenaAction
    ) -> TextArenaObservation:
        """Send the agent's message, and let opponents move until it is the agent's turn again.

        Raises:
            Refused: No game is running. Nothing changes.
        """
        game = self._game
        if game is None:
            raise Refused("step() was called before reset(): there is no game to play")
        if self._is_over:
            raise Refused("step() was called after done: the game is over, call reset()")
        player = game.player
        self._said.append(action.message)
        try:
            info = game.play(action.message)
            self._play_on(game)
        except BaseException:
            self._is_over = True  # the state of the game is not known
            raise
        signals = compute_signals(game.env_id, game.raw_state(), self._said)
        if signals:
            info["reward_signals"] = signals
        if game.is_over:
            return self._finish(game, player, info)
        if self._is_cut_off:
            self._is_over = True
            seen = self._observe(game, self._seat(game), info)
            return self._remember(truncation(seen, self._cut_off_score()))
        return self._remember(transition(self._observe(game, self._seat(game), info), 0.0))

    @property
    def state(self) -> TextArenaState:
        """The state of the episode, with the game's own state as a private field."""
        game, setting, last = self._game, self._setting, self._last
        return TextArenaState(
            episode_id=self._episode_id,
            step_count=len(self._said),
            env_id=setting.env_id,
            num_players=setting.num_players,
            max_turns=setting.max_turns,
            opponent=setting.opponent,
            agent_player=setting.agent_player,
            task=setting.task,
            turn=0 if game is None else game.turn,
            last_reward=0.0 if last is None or last.reward is None else float(last.reward),
            last_info={} if last is None else last.info,
            raw_state={} if game is None else game.raw_state(),
        )

    def render(self) -> str:
        """Return all messages to the player whose turn it is.

        Raises:
            Refused: There is no game yet.
        """
        if self._game is None:
            raise Refused("render() was called before reset(): there is no game to show")
        player = self._seat(self._game)
        told = self._game.list_messages(player)
        lines = [f"{_describe_sender(one.sender_id)}: {one.content.strip()}" for one in told]
        return "\n\n".join([f"{self._game.env_id}, player {player}", *lines])

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Store the game: its seed and the agent's messages.

        Raises:
            Refused: There is no game yet.
        """
        if self._game is None:
            raise Refused("snapshot() was called before reset(): there is no game to store")
        stored = _Snapshot(
            **self._setting._asdict(),
            seed=self._seed,
            said=self._said,
            told=self._digest(),
            episode_id=self._episode_id,
        )
        return stored.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Restore a stored game by playing it again.

        Raises:
            ValueError: `snapshot` did not write these bytes, or the game had another course when it
                was replayed. Nothing changes.
        """
        stored = _Snapshot.model_validate_json(data)
        again = TextArenaEnvironment(download_nltk=self._downloads, env_kwargs=self._options)
        again._default = self._default
        names = set(_Setting._fields)
        setting = _check_setting(_Setting(**{n: v for n, v in stored if n in names}))
        again._begin(setting, stored.seed, stored.episode_id)
        for message in stored.said:
            again.step(TextArenaAction(message=message))
        if again._digest() != stored.told:
            raise ValueError(f"the stored game of {setting.env_id} took another course in replay")
        default = self._default
        self.__dict__.update(again.__dict__)
        self._default = default

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the splits ``train`` and ``test``, which have different seeds."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[TextArenaTask]:
        """Return every task of a split."""
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split, which has as many of each of `TASK_GAMES`."""
        return _TASKS_PER_GAME[_check_split(split)] * len(TASK_GAMES)

    def get_task(self, split: str, index: int) -> TextArenaTask:
        """Return one task; adjacent tasks belong to different games.

        Raises:
            IndexError: The index is negative, or the split has fewer tasks.
        """
        known = _check_split(split)
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"{split} has tasks 0 to {self.num_tasks(split) - 1}, not {index}")
        number, game = divmod(index, len(TASK_GAMES))
        env_id = TASK_GAMES[game]
        return TextArenaTask(id=f"{known}/{env_id}/{number}", split=known, env_id=env_id)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[TextArenaTask]:
        """Return the tasks of the slice ``[start:stop]``."""
        indices = range(self.num_tasks(split))[start:stop]
        return [self.get_task(split, index) for index in indices]

    # ------------------------------------------------------------------ a game

    @property
    def _is_cut_off(self) -> bool:
        limit = self._setting.max_turns
        return limit is not None and len(self._said) >= limit

    def _setting_for(
        self,
        task: TextArenaTask | None,
        env_id: str | None,
        num_players: int | None,
        max_turns: int | None,
        opponent: Opponent | None,
        opponent_messages: Sequence[str] | None,
        agent_player: int | None,
    ) -> _Setting:
        default = self._default
        name = task.env_id if task is not None else env_id or default.env_id
        if num_players is None:
            others = 2 if opponent in ("random", "scripted") else 1
            num_players = default.num_players if name == default.env_id else others
        return _check_setting(
            _Setting(
                env_id=name,
                num_players=num_players,
                max_turns=default.max_turns if max_turns is None else max_turns,
                opponent=opponent or "none",
                opponent_messages=() if opponent_messages is None else tuple(opponent_messages),
                agent_player=agent_player or 0,
                task=None if task is None else task.id,
            )
        )

    def _begin(self, setting: _Setting, seed: int, episode_id: str | None) -> TextArenaObservation:
        options = self._options if setting.env_id == self._default.env_id else {}
        game = self._make_game(setting, seed, options)
        before = (self._setting, self._opponents, self._choices)
        self._setting = setting
        self._opponents = ScriptedMoves(setting.opponent_messages)
        self._choices = Random(f"opponents {seed}")  # nosec B311  # a game's dice
        try:
            self._play_on(game)
        except BaseException:
            self._setting, self._opponents, self._choices = before
            raise
        self._game, self._seed, self._said = game, seed, []
        self._episode_id = episode_id or str(uuid.uuid4())
        self._is_over, self._last = False, None
        self.REWARD = _make_reward_spec(setting.env_id)  # type: ignore[misc]  # for this game
        if game.is_over:
            return self._finish(game, self._seat(game), {})
        return self._remember(restart(self._observe(game, self._seat(game), {})))

    def _make_game(self, setting: _Setting, seed: int, options: Mapping[str, Any]) -> Game:
        try:
            return Game(setting.env_id, setting.num_players, seed, options)
        except LookupError as error:
            if not self._downloads:
                raise GameUnavailable(_describe_missing_data(setting.env_id)) from error
        _download_nltk_data()
        try:
            return Game(setting.env_id, setting.num_players, seed, options)
        except LookupError as error:
            raise GameUnavailable(_describe_missing_data(setting.env_id)) from error

    def _seat(self, game: Game) -> int:
        """Return the agent's current seat."""
        return game.player if self._setting.opponent == "none" else self._setting.agent_player

    def _play_on(self, game: Game) -> None:
        """Move for the opponents until it is the agent's turn, or the game is over."""
        setting = self._setting
        while not game.is_over and game.player != self._seat(game):
            player = game.player
            if setting.opponent == "scripted":
                game.play(self._opponents.next_message(player))
            else:
                seen = game.list_messages(player)
                game.play(choose_random_move(seen, self._choices, setting.env_id))

    def _observe(self, game: Game, player: int, info: dict[str, Any]) -> TextArenaObservation:
        over = game.is_over or self._is_over
        new = game.take_unread(player)
        written = game.get_transcript(player)
        metadata = {"env_id": game.env_id, "turn": game.turn}
        if "reward_signals" in info:
            metadata["reward_signals"] = info["reward_signals"]
        return TextArenaObservation(
            text=self._write_text(new, player, over),
            prompt=game.get_prompt(player),
            messages=[TextArenaMessage(sender_id=-1, content=written, category="MESSAGE")],
            new_messages=new,
            current_player_id=game.player,
            legal_players=[] if over else [player],
            info=info,
            metadata=metadata,
        )

    def _write_text(self, new: Sequence[TextArenaMessage], player: int, over: bool) -> str:
        """Write the text for a model: the messages that are new to this player."""
        has_several = self._setting.opponent == "none" and self._setting.num_players > 1
        whose = [f"Player {player} is to move."] if has_several and not over else []
        said = [
            one.content.strip() if one.sender_id < 0 else f"Player {one.sender_id}: {one.content}"
            for one in new
        ]
        return "\n\n".join([*whose, *said])

    def _cut_off_score(self) -> Score:
        """Return the score of a truncated game: 0 for one player, else that of a loss.

        Otherwise delaying the end would pay more than losing.
        """
        if self._setting.num_players == 1:
            return Score(0.0)
        paid = 0.0 if self.REWARD.range is None else self.REWARD.range[0]
        return Score(paid, {"payoff": paid})

    def _finish(self, game: Game, mover: int, info: dict[str, Any]) -> TextArenaObservation:
        """Return the last observation, for the agent's seat or for the player who moved last."""
        self._is_over = True
        rewards, game_info = game.finish()
        player = mover if self._setting.opponent == "none" else self._setting.agent_player
        info |= {"game_info": game_info, "rewards": {str(who): rewards[who] for who in rewards}}
        paid = rewards.get(player)
        if paid is None and game_info.get(str(player), {}).get("invalid_move"):
            # A few games pay an error text for an invalid move, and others pay this number.
            paid = INVALID_MOVE
        score = self._score(game.env_id, paid, player)
        return self._remember(termination(self._observe(game, player, info), score))

    def _score(self, env_id: str, paid: float | None, player: int) -> Score:
        if paid is None:
            return Score(unscored=f"{env_id} ended without a number as the reward of {player}")
        declared = self.REWARD.range
        if declared is not None and not declared[0] <= paid <= declared[1]:
            why = f"{env_id} paid {paid:g}, which is not from {declared[0]:g} to {declared[1]:g}"
            return Score(unscored=why)
        return Score(paid, {"payoff": paid})

    def _remember(self, observation: TextArenaObservation) -> TextArenaObservation:
        self._last = observation
        return observation

    def _digest(self) -> str:
        """Return a hash of all messages to the players, to compare a replay."""
        game = self._game
        if game is None:
            return ""
        told = [game.list_messages(player) for player in range(self._setting.num_players)]
        text = repr([[(one.sender_id, one.content) for one in each] for each in told])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class _Snapshot(BaseModel):
    """A stored game."""

    model_config = ConfigDict(extra="forbid")

    env_id: str
    num_players: int
    max_turns: int | None
    opponent: Opponent
    opponent_messages: tuple[str, ...]
    agent_player: int
    task: str | None
    seed: int = Field(ge=0, lt=2**32)
    said: list[str]
    told: str
    episode_id: str | None


def _check_setting(setting: _Setting) -> _Setting:
    """Check a caller's options.

    Raises:
        Refused: The game is unknown, or a number is out of range.
    """
    if setting.env_id not in GAMES:
        raise Refused(f"there is no game {setting.env_id!r}{_suggest_game(setting.env_id)}")
    _check_integer("num_players", setting.num_players, 1)
    if setting.max_turns is not None:
        _check_integer("max_turns", setting.max_turns, 1)
    _check_integer("agent_player", setting.agent_player, 0)
    if setting.opponent not in get_args(Opponent):
        known = ", ".join(get_args(Opponent))
        raise Refused(f"there is no opponent {setting.opponent!r}; there are {known}")
    if setting.agent_player >= setting.num_players:
        raise Refused(
            f"agent_player={setting.agent_player}, but the game has num_players="
            f"{setting.num_players}; valid ids are 0 to {setting.num_players - 1}"
        )
    if setting.opponent == "none" and setting.agent_player:
        raise Refused("agent_player needs opponents; without them the agent plays all seats")
    if (setting.opponent == "scripted") != bool(setting.opponent_messages):
        raise Refused("opponent='scripted' and opponent_messages go together; one is missing")
    if not all(isinstance(message, str) for message in setting.opponent_messages):
        raise Refused("opponent_messages must be a list of strings")
    return setting


def _make_reward_spec(env_id: str) -> RewardSpec:
    """Make the reward specification of a game."""
    usual = TextArenaEnvironment.REWARD
    return replace(usual, range=_RANGES.get(env_id.partition("-v")[0], usual.range))


def _check_integer(name: str, value: Any, lowest: int) -> None:
    if type(value) is not int or value < lowest:
        raise Refused(f"{name} must be an integer from {lowest}, not {value!r}")


def _suggest_game(name: Any) -> str:
    by_letters = {known.lower(): known for known in reversed(GAMES)}
    close = difflib.get_close_matches(str(name).lower(), by_letters, n=1)
    if close:
        return f" (did you mean {by_letters[close[0]]!r}?)"
    return f"; there are {', '.join(GAMES[:_SHOWN_GAMES])} and {len(GAMES) - _SHOWN_GAMES} more"


def _make_game_seed(seed: int | None, task: str | None) -> int:
    """Return the seed of a game, from 0 to below 2**32, which is NumPy's range."""
    if seed is not None and type(seed) is not int:
        raise Refused(f"seed must be an integer or null, not {seed!r}")
    if seed is None and task is None:
        return Random().randrange(2**32)  # nosec B311  # a game's dice
    if seed is not None and 0 <= seed < 2**32:
        return seed
    text = f"seed {seed}" if task is None else f"task {task}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def _read_integer(variable: str, given: int | None) -> int | None:
    text = os.environ.get(variable)
    if given is not None or not text:
        return given
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{variable} must be an integer, not {text!r}") from None


def _read_options() -> dict[str, Any]:
    """Read the variables TEXTARENA_KW_NAME as keyword arguments, with numbers and booleans."""
    return {
        name.removeprefix(_KEYWORD_PREFIX).lower(): _parse_value(text)
        for name, text in os.environ.items()
        if name.startswith(_KEYWORD_PREFIX)
    }


def _parse_value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _describe_missing_data(env_id: str) -> str:
    return (
        f"{env_id} needs data of NLTK that are not installed here: "
        f"python -m nltk.downloader {' '.join(_NLTK_DATA)}"
    )


def _download_nltk_data() -> None:
    import nltk

    for name in _NLTK_DATA:
        if not nltk.download(name, quiet=True):
            logger.warning("NLTK's %s could not be downloaded", name)


def _describe_sender(player: int) -> str:
    return "game" if player < 0 else f"player {player}"


def _check_split(split: str) -> Split:
    if split not in SPLITS:
        raise Refused(f"there is no split {split!r}; there are {' and '.join(SPLITS)}")
    return split


def _find_task(task: str | Mapping[str, Any] | TextArenaTask) -> TextArenaTask:
    """Find a task by its id.

    Raises:
        Refused: The task is unknown.
    """
    if isinstance(task, TextArenaTask):
        name: Any = task.id
    else:
        name = task.get("id") if isinstance(task, Mapping) else task
    split, _, rest = str(name).partition("/")
    env_id, _, number = rest.rpartition("/")
    is_named = env_id in TASK_GAMES and number.isascii() and number.isdigit()
    if is_named and split in SPLITS and int(number) < _TASKS_PER_GAME[split]:
        return TextArenaTask(id=f"{split}/{env_id}/{int(number)}", split=split, env_id=env_id)
    raise Refused(
        f"there is no task {name!r}; expected split/game/number, such as "
        f"train/{TASK_GAMES[0]}/0, with a number below {_TASKS_PER_GAME}"
    )
