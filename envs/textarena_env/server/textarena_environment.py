"""TextArena's games, for one player or several.

TextArena: Guertler et al. 2025, "TextArena", arXiv:2504.11442.
"""

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
from .opponents import OwnMoves, random_move
from .signals import signals_of

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
"""Games for one player that begin differently by the seed, and need neither data nor a key.

Bandit is none: it pays the more, the worse the button is that is chosen in the end.
"""

_RANGES: dict[str, tuple[float, float] | None] = {
    "Klondike": (-1.0, 52.0),
    "ScorableGames": None,
    "Set": (-1.0, 20.0),
    "UsedCarNegotiation": None,
}
"""Games that pay points, by their names without version; None where nobody says how many.

All others pay from -1 to 1.
"""

INVALID_MOVE = -1.0
"""What is paid for invalid moves that end a game, unless the game itself pays something else."""

_NLTK_DATA = ("words", "averaged_perceptron_tagger_eng")
_KEYWORD_PREFIX = "TEXTARENA_KW_"
_SHOWN_GAMES = 12


class _Setting(NamedTuple):
    """What is played in an episode, and by whom."""

    env_id: str
    num_players: int
    max_turns: int | None
    opponent: Opponent
    opponent_messages: tuple[str, ...]
    agent_player: int
    task: str | None


class TextArenaEnvironment(Environment[TextArenaAction, TextArenaObservation, TextArenaState]):
    """One game of TextArena an episode.

    In a game of several players the agent plays all seats, each in its turn, or one of them
    against opponents (`opponent`, `agent_player`).

    The seed and the messages determine the episode: TextArena's games draw from the random numbers
    of the whole process, and are given numbers of their own while they do. Games compute one at a
    time in a process for that reason.

    Args:
        env_id: TextArena's name of the game. None takes TEXTARENA_ENV_ID, else ``Wordle-v0``.
        num_players: Its players. None takes TEXTARENA_NUM_PLAYERS, else 1.
        max_turns: Messages of the agent after which an episode is cut off. None takes
            TEXTARENA_MAX_TURNS, else there is no limit but the game's own.
        download_nltk: Data of NLTK that a game lacks are downloaded. None takes
            TEXTARENA_DOWNLOAD_NLTK, else true.
        env_kwargs: The keyword arguments of the game's constructor, for this game only. None takes
            the variables TEXTARENA_KW_NAME.

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
        self._default = self._setting = _checked(
            _Setting(
                env_id=env_id or os.environ.get("TEXTARENA_ENV_ID") or DEFAULT_GAME,
                num_players=_or_integer_of("TEXTARENA_NUM_PLAYERS", num_players) or 1,
                max_turns=_or_integer_of("TEXTARENA_MAX_TURNS", max_turns),
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
        self._options = _options_of_environ() if env_kwargs is None else dict(env_kwargs)
        self._game: Game | None = None
        self._seed = 0
        self._said: list[str] = []
        self._opponents = OwnMoves(())
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
        """Begin a game, and play up to the agent's first turn.

        Args:
            seed: Determines all that is random; any integer. None begins a fresh random game.
            episode_id: Becomes `state.episode_id`; None makes one up.
            task: A task, or its id, which fixes game and seed.
            env_id: Another game for this episode; None plays the environment's own.
            num_players: Its players; None takes the environment's own for its own game, and for
                another 2 where there is an opponent, else 1.
            max_turns: Messages of the agent after which it is cut off.
            opponent: Who plays the other seats: ``none``, that is the agent; ``random``, one of
                the moves that the game lists; ``scripted``, the `opponent_messages` in turn. None
                is ``none``.
            opponent_messages: What a scripted opponent says, over and over.
            agent_player: The agent's seat against opponents, from 0.

        Raises:
            Refused: There is no such game, task or player, or the game cannot be played here. The
                running episode goes on.
        """
        fixed = (seed, env_id, num_players)
        if task is not None and any(argument is not None for argument in fixed):
            raise Refused("a task fixes seed, env_id and num_players; give the task without them")
        setting = self._setting_for(
            None if task is None else _task_of(task),
            env_id,
            num_players,
            max_turns,
            opponent,
            opponent_messages,
            agent_player,
        )
        return self._begin(setting, _game_seed(seed, setting.task), episode_id)

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: TextArenaAction
    ) -> TextArenaObservation:
        """Say something in the agent's turn; opponents then move until it is its turn again.

        Raises:
            Refused: There is no running game. Nothing changes.
        """
        game = self._game
        if game is None:
            raise Refused("step() was called before reset(): there is no game to play")
        if self._is_over:
            raise Refused("step() was called after done: the game is over, call reset()")
        player = game.player
        self._said.append(action.message)
        try:
            info = game.say(action.message)
            self._play_on(game)
        except BaseException:
            self._is_over = True  # nobody knows where the game stands
            raise
        signals = signals_of(game.env_id, game.raw_state(), self._said)
        if signals:
            info["reward_signals"] = signals
        if game.is_over:
            return self._finish(game, player, info)
        if self._is_cut_off:
            self._is_over = True
            seen = self._observe(game, self._seat(game), info)
            return self._keep(truncation(seen, self._cut_off_score()))
        return self._keep(transition(self._observe(game, self._seat(game), info), 0.0))

    @property
    def state(self) -> TextArenaState:
        """Where the game stands; the game's own state is a private field of it."""
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
        """Write down all that the player whose turn it is has been told.

        Raises:
            Refused: There is no game yet.
        """
        if self._game is None:
            raise Refused("render() was called before reset(): there is no game to show")
        player = self._seat(self._game)
        told = self._game.told(player)
        lines = [f"{_sender(one.sender_id)}: {one.content.strip()}" for one in told]
        return "\n\n".join([f"{self._game.env_id}, player {player}", *lines])

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Store the game: its seed and what the agent has said in it.

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
        """Go on with a stored game, which is played again up to there.

        Raises:
            ValueError: The bytes are none that `snapshot` has written, or the game went another
                way when it was played again. Nothing changes.
        """
        stored = _Snapshot.model_validate_json(data)
        again = TextArenaEnvironment(download_nltk=self._downloads, env_kwargs=self._options)
        again._default = self._default
        names = set(_Setting._fields)
        setting = _checked(_Setting(**{n: v for n, v in stored if n in names}))
        again._begin(setting, stored.seed, stored.episode_id)
        for message in stored.said:
            again.step(TextArenaAction(message=message))
        if again._digest() != stored.told:
            raise ValueError(f"the stored game of {setting.env_id} went another way when replayed")
        default = self._default
        self.__dict__.update(again.__dict__)
        self._default = default

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """The splits: ``train`` and ``test``, drawn from different seeds."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[TextArenaTask]:
        """Every task of a split."""
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split: as many of each of `TASK_GAMES`."""
        return _TASKS_PER_GAME[_known_split(split)] * len(TASK_GAMES)

    def get_task(self, split: str, index: int) -> TextArenaTask:
        """One task; neighbours are of different games.

        Raises:
            IndexError: The split has fewer, or the index is negative.
        """
        known = _known_split(split)
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"{split} has tasks 0 to {self.num_tasks(split) - 1}, not {index}")
        number, game = divmod(index, len(TASK_GAMES))
        env_id = TASK_GAMES[game]
        return TextArenaTask(id=f"{known}/{env_id}/{number}", split=known, env_id=env_id)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[TextArenaTask]:
        """The tasks from `start` to before `stop`, as a slice gives them."""
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
        return _checked(
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
        game = self._made(setting, seed, options)
        before = (self._setting, self._opponents, self._choices)
        self._setting = setting
        self._opponents = OwnMoves(setting.opponent_messages)
        self._choices = Random(f"opponents {seed}")  # nosec B311  # a game's dice
        try:
            self._play_on(game)
        except BaseException:
            self._setting, self._opponents, self._choices = before
            raise
        self._game, self._seed, self._said = game, seed, []
        self._episode_id = episode_id or str(uuid.uuid4())
        self._is_over, self._last = False, None
        self.REWARD = _meaning(setting.env_id)  # type: ignore[misc]  # of this game's rewards
        if game.is_over:
            return self._finish(game, self._seat(game), {})
        return self._keep(restart(self._observe(game, self._seat(game), {})))

    def _made(self, setting: _Setting, seed: int, options: Mapping[str, Any]) -> Game:
        try:
            return Game(setting.env_id, setting.num_players, seed, options)
        except LookupError as error:
            if not self._downloads:
                raise GameUnavailable(_lacks_data(setting.env_id)) from error
        _download_nltk_data()
        try:
            return Game(setting.env_id, setting.num_players, seed, options)
        except LookupError as error:
            raise GameUnavailable(_lacks_data(setting.env_id)) from error

    def _seat(self, game: Game) -> int:
        """The player whom the agent is just now."""
        return game.player if self._setting.opponent == "none" else self._setting.agent_player

    def _play_on(self, game: Game) -> None:
        """Move for the opponents until it is the agent's turn, or the game is over."""
        setting = self._setting
        while not game.is_over and game.player != self._seat(game):
            player = game.player
            if setting.opponent == "scripted":
                game.say(self._opponents.next_of(player))
            else:
                game.say(random_move(game.told(player), self._choices, setting.env_id))

    def _observe(self, game: Game, player: int, info: dict[str, Any]) -> TextArenaObservation:
        over = game.is_over or self._is_over
        new = game.unread(player)
        written = game.written(player)
        metadata = {"env_id": game.env_id, "turn": game.turn}
        if "reward_signals" in info:
            metadata["reward_signals"] = info["reward_signals"]
        return TextArenaObservation(
            text=self._text(new, player, over),
            prompt=game.prompt(player),
            messages=[TextArenaMessage(sender_id=-1, content=written, category="MESSAGE")],
            new_messages=new,
            current_player_id=game.player,
            legal_players=[] if over else [player],
            info=info,
            metadata=metadata,
        )

    def _text(self, new: Sequence[TextArenaMessage], player: int, over: bool) -> str:
        """What a model is shown: what is new to this player."""
        has_several = self._setting.opponent == "none" and self._setting.num_players > 1
        whose = [f"Player {player} is to move."] if has_several and not over else []
        said = [
            one.content.strip() if one.sender_id < 0 else f"Player {one.sender_id}: {one.content}"
            for one in new
        ]
        return "\n\n".join([*whose, *said])

    def _cut_off_score(self) -> Score:
        """What a game is worth that was cut off: 0 alone, and among several that of a loss, since
        to hold out would else pay more than to lose.
        """
        if self._setting.num_players == 1:
            return Score(0.0)
        paid = 0.0 if self.REWARD.range is None else self.REWARD.range[0]
        return Score(paid, {"payoff": paid})

    def _finish(self, game: Game, mover: int, info: dict[str, Any]) -> TextArenaObservation:
        """Observe the end, as the agent in its seat; or as the player who moved last."""
        self._is_over = True
        rewards, game_info = game.result()
        player = mover if self._setting.opponent == "none" else self._setting.agent_player
        info |= {"game_info": game_info, "rewards": {str(who): rewards[who] for who in rewards}}
        paid = rewards.get(player)
        if paid is None and game_info.get(str(player), {}).get("invalid_move"):
            # A few games pay for that the text which says what was wrong, and others this.
            paid = INVALID_MOVE
        score = self._score(game.env_id, paid, player)
        return self._keep(termination(self._observe(game, player, info), score))

    def _score(self, env_id: str, paid: float | None, player: int) -> Score:
        if paid is None:
            return Score(unscored=f"{env_id} ended without a number as the reward of {player}")
        declared = self.REWARD.range
        if declared is not None and not declared[0] <= paid <= declared[1]:
            why = f"{env_id} paid {paid:g}, which is not from {declared[0]:g} to {declared[1]:g}"
            return Score(unscored=why)
        return Score(paid, {"payoff": paid})

    def _keep(self, observation: TextArenaObservation) -> TextArenaObservation:
        self._last = observation
        return observation

    def _digest(self) -> str:
        """A mark of all that has been told to the players, by which a replay is compared."""
        game = self._game
        if game is None:
            return ""
        told = [game.told(player) for player in range(self._setting.num_players)]
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


def _checked(setting: _Setting) -> _Setting:
    """Check what a caller gave.

    Raises:
        Refused: There is no such game, or a number is out of range.
    """
    if setting.env_id not in GAMES:
        raise Refused(f"there is no game {setting.env_id!r}{_did_you_mean(setting.env_id)}")
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
        raise Refused("agent_player is a seat against opponents; without any the agent has all")
    if (setting.opponent == "scripted") != bool(setting.opponent_messages):
        raise Refused("opponent='scripted' and opponent_messages go together; one is missing")
    if not all(isinstance(message, str) for message in setting.opponent_messages):
        raise Refused("opponent_messages must be a list of strings")
    return setting


def _meaning(env_id: str) -> RewardSpec:
    """What the rewards of a game mean."""
    usual = TextArenaEnvironment.REWARD
    return replace(usual, range=_RANGES.get(env_id.partition("-v")[0], usual.range))


def _check_integer(name: str, value: Any, lowest: int) -> None:
    if type(value) is not int or value < lowest:
        raise Refused(f"{name} must be an integer from {lowest}, not {value!r}")


def _did_you_mean(name: Any) -> str:
    by_letters = {known.lower(): known for known in reversed(GAMES)}
    close = difflib.get_close_matches(str(name).lower(), by_letters, n=1)
    if close:
        return f" (did you mean {by_letters[close[0]]!r}?)"
    return f"; there are {', '.join(GAMES[:_SHOWN_GAMES])} and {len(GAMES) - _SHOWN_GAMES} more"


def _game_seed(seed: int | None, task: str | None) -> int:
    """The seed of a game, from 0 to below 2**32, which is what NumPy takes."""
    if seed is not None and type(seed) is not int:
        raise Refused(f"seed must be an integer or null, not {seed!r}")
    if seed is None and task is None:
        return Random().randrange(2**32)  # nosec B311  # a game's dice
    if seed is not None and 0 <= seed < 2**32:
        return seed
    text = f"seed {seed}" if task is None else f"task {task}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def _or_integer_of(variable: str, given: int | None) -> int | None:
    text = os.environ.get(variable)
    if given is not None or not text:
        return given
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{variable} must be an integer, not {text!r}") from None


def _options_of_environ() -> dict[str, Any]:
    """The variables TEXTARENA_KW_NAME as keyword arguments: numbers and booleans as such."""
    return {
        name.removeprefix(_KEYWORD_PREFIX).lower(): _value(text)
        for name, text in os.environ.items()
        if name.startswith(_KEYWORD_PREFIX)
    }


def _value(text: str) -> Any:
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


def _lacks_data(env_id: str) -> str:
    return (
        f"{env_id} needs data of NLTK that are not installed here: "
        f"python -m nltk.downloader {' '.join(_NLTK_DATA)}"
    )


def _download_nltk_data() -> None:
    import nltk

    for name in _NLTK_DATA:
        if not nltk.download(name, quiet=True):
            logger.warning("NLTK's %s could not be downloaded", name)


def _sender(player: int) -> str:
    return "game" if player < 0 else f"player {player}"


def _known_split(split: str) -> Split:
    if split not in SPLITS:
        raise Refused(f"there is no split {split!r}; there are {' and '.join(SPLITS)}")
    return split


def _task_of(task: str | Mapping[str, Any] | TextArenaTask) -> TextArenaTask:
    """A task by its id.

    Raises:
        Refused: There is none.
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
