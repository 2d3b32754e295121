"""OpenSpiel's games from the side of one player; opponents play by a fixed rule.

Lanctot et al. 2019, "OpenSpiel: A Framework for Reinforcement Learning in Games", arXiv:1908.09453.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from typing import Any, ClassVar, NamedTuple

import pyspiel
from pydantic import BaseModel, ConfigDict, Field

from openenv.environment import Environment, restart, termination, transition
from openenv.errors import NotSupported, Refused
from openenv.reward import RewardKind, RewardSpec, Score

from ..models import (
    DEFAULT_GAME,
    GamePhase,
    OpenSpielAction,
    OpenSpielObservation,
    OpenSpielState,
)

__all__ = ["OPPONENT_POLICIES", "OpenSpielEnvironment"]

Policy = Callable[[list[int], Random], int]
Params = dict[str, Any]

OPPONENT_POLICIES: dict[str, Policy] = {
    "random": lambda legal, rng: legal[rng.randrange(len(legal))],
    "first": lambda legal, rng: legal[0],
    "last": lambda legal, rng: legal[-1],
    "middle": lambda legal, rng: legal[len(legal) // 2],
}
"""The policies of opponents. They choose one of the legal actions, which are in ascending order."""

_CHANCE = int(pyspiel.PlayerId.CHANCE)
_SIMULTANEOUS = int(pyspiel.PlayerId.SIMULTANEOUS)
_SHOWN_ACTIONS = 40

TASK_GAMES = ("blackjack", "catch", "tic_tac_toe", "kuhn_poker", "cliff_walking", "2048")
TASK_SEEDS = {"train": range(1000), "test": range(1_000_000, 1_000_100)}
_MAX_TENSOR_SIZE = 2**20


class _Rules(NamedTuple):
    """A loaded game with its properties, shared by all of its episodes."""

    game: Any
    num_players: int
    tensor: Callable[[Any, int], list[float]]
    pays_at_end_only: bool
    draws_by_itself: bool


class _Setting(NamedTuple):
    """The game and the opponents of an episode."""

    game_name: str
    game_params: Params
    opponent_policy: str
    rules: _Rules
    choose: Policy


class OpenSpielEnvironment(Environment[OpenSpielAction, OpenSpielObservation, OpenSpielState]):
    """A game of OpenSpiel in which the agent plays one seat.

    Chance and opponents move by themselves until it is the agent's turn, so in every observation
    but the last the agent has to move. Any sequential or simultaneous game of
    `pyspiel.registered_names()` works, except mean field games and games without a tensor or
    without numbered actions.

    All random numbers come from the episode's own generator, so the seed and the agent's actions
    determine the episode.

    Args:
        game_name: A name such as ``blackjack``, or OpenSpiel's long form such as
            ``goofspiel(num_cards=4)``. None takes OPENSPIEL_GAME, else ``catch``.
        agent_player: The agent's player id, from 0. None takes OPENSPIEL_AGENT_PLAYER, else 0.
        opponent_policy: ``random``, ``first``, ``last`` or ``middle`` of the legal actions. None
            takes OPENSPIEL_OPPONENT_POLICY, else ``random``.
        game_params: OpenSpiel's parameters of the game, such as ``{"rows": 5}`` for catch.

    Raises:
        ValueError: The game, a parameter, the player or the policy is unknown.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    # This holds for every game; `reset` declares the rewards of its game.
    REWARD = RewardSpec("per_step", components=("payoff",))

    def __init__(
        self,
        game_name: str | None = None,
        agent_player: int | None = None,
        opponent_policy: str | None = None,
        game_params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.agent_player = _read_agent_player() if agent_player is None else agent_player
        self._default = self._setting = _make_setting(
            game_name or os.environ.get("OPENSPIEL_GAME") or DEFAULT_GAME,
            dict(game_params or {}),
            opponent_policy or os.environ.get("OPENSPIEL_OPPONENT_POLICY") or "random",
            self.agent_player,
        )
        self._rng = Random()  # nosec B311  # a game's dice
        self._position: Any = None
        self._legal: list[int] = []
        self._paid = 0.0
        self._opponent_last_action: int | None = None
        self._episode_id: str | None = None
        self._step_count = 0

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        game_name: str | None = None,
        game_params: Mapping[str, Any] | None = None,
        opponent_policy: str | None = None,
    ) -> OpenSpielObservation:
        """Start a new game and play up to the agent's first turn.

        Args:
            seed: Determines chance and opponents; any integer. None starts a random game.
            episode_id: Becomes `state.episode_id`; None generates one.
            game_name: The game of this episode; None plays the environment's own.
            game_params: The game's parameters. None uses the environment's own for its own game,
                and OpenSpiel's defaults for another.
            opponent_policy: The policy of this episode; None uses the environment's own.

        Returns:
            The first observation. Its reward is None unless opponents ended the game before the
            agent had a turn.

        Raises:
            ValueError: The game, a parameter or the policy is unknown. The running episode
                continues.
        """
        setting = self._setting_for(game_name, game_params, opponent_policy)
        rng = _make_generator(seed)
        self._position = _new_position(setting.rules, rng)
        self._setting = setting
        self.REWARD = _make_reward_spec(setting.rules)  # type: ignore[misc]  # for this game
        self._rng = rng
        self._paid = 0.0
        self._opponent_last_action = None
        self._episode_id = episode_id or str(uuid.uuid4())
        self._play_on()
        self._step_count = 0
        return self._observe("initial")

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: OpenSpielAction
    ) -> OpenSpielObservation:
        """Make the agent's move, then the others' until it is the agent's turn again.

        Raises:
            RuntimeError: No episode is running. Nothing changes.
            ValueError: The action is illegal here, or names another game. Nothing changes.
        """
        self._check_action(action)
        position = self._position
        if position.current_player() == _SIMULTANEOUS:
            position.apply_actions(self._make_joint_move(action.action_id))
        else:
            position.apply_action(action.action_id)
        self._step_count += 1
        self._play_on()
        return self._observe("playing")

    @property
    def state(self) -> OpenSpielState:
        """The running game, and the number of moves since `reset`."""
        setting = self._setting
        return OpenSpielState(
            episode_id=self._episode_id,
            step_count=self._step_count,
            game_name=setting.game_name,
            agent_player=self.agent_player,
            opponent_policy=setting.opponent_policy,
            game_params=setting.game_params,
            num_players=setting.rules.num_players,
        )

    def render(self) -> str:
        """Return the position as text, as OpenSpiel writes it.

        Raises:
            Refused: There is no game yet.
        """
        if self._position is None:
            raise Refused("there is nothing to show before the first reset")
        return f"{self._setting.game_name}\n{self._position}"

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return list(TASK_SEEDS)

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return the tasks of a split: games with the arguments of `reset`."""
        return [self.get_task(split, index) for index in range(self.num_tasks(split))]

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split.

        Raises:
            Refused: The split is unknown.
        """
        if split not in TASK_SEEDS:
            raise Refused(f"there is no split {split!r}; there are {', '.join(TASK_SEEDS)}")
        return len(TASK_GAMES) * len(TASK_SEEDS[split])

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return one task of a split.

        Raises:
            IndexError: The index is negative, or the split has fewer tasks.
        """
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"{split} has {self.num_tasks(split)} tasks, and none at {index}")
        number, game = divmod(index, len(TASK_GAMES))
        name, seed = TASK_GAMES[game], TASK_SEEDS[split][number]
        return {
            "id": f"{name}-{seed}",
            "prompt": f"Play {name}, and get as much as you can.",
            "reset": {"game_name": name, "seed": seed},
        }

    def snapshot(self) -> bytes:
        """Store the game, including its opponents' generator.

        Raises:
            RuntimeError: There is no game yet.
            NotSupported: OpenSpiel draws by itself in this game and does not reveal the results.
        """
        if self._position is None:
            raise RuntimeError("snapshot() was called before reset(): there is no game to store")
        setting = self._setting
        if setting.rules.draws_by_itself:
            raise NotSupported(
                f"{setting.game_name} has chance events that OpenSpiel does not reveal, so its "
                "positions cannot be stored; episodes with a seed can be replayed",
                feature="snapshot",
            )
        stored = _Snapshot(
            game_name=setting.game_name,
            game_params=setting.game_params,
            opponent_policy=setting.opponent_policy,
            agent_player=self.agent_player,
            history=[(int(one.player), one.action) for one in self._position.full_history()],
            generator=self._rng.getstate(),
            paid=self._paid,
            opponent_last_action=self._opponent_last_action,
            episode_id=self._episode_id,
            step_count=self._step_count,
        )
        return stored.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Restore a stored game.

        This makes its moves again and checks each. OpenSpiel's own `deserialize_state` does not
        check its input, and wrong bytes would end the process.

        Raises:
            ValueError: `snapshot` did not write these bytes. The running game continues.
        """
        stored = _Snapshot.model_validate_json(data)
        if stored.agent_player != self.agent_player:
            raise ValueError(
                f"the game was stored for agent_player={stored.agent_player}, and this is "
                f"agent_player={self.agent_player}"
            )
        setting = self._setting_for(stored.game_name, stored.game_params, stored.opponent_policy)
        if setting.rules.draws_by_itself:
            raise ValueError(f"positions of {setting.game_name} cannot be stored")
        rng = _restore_generator(stored.generator)
        self._position, self._legal = _replay_moves(
            stored.history, setting.rules, self.agent_player
        )
        self._setting = setting
        self.REWARD = _make_reward_spec(setting.rules)  # type: ignore[misc]
        self._rng = rng
        self._paid = stored.paid
        self._opponent_last_action = stored.opponent_last_action
        self._episode_id = stored.episode_id
        self._step_count = stored.step_count

    def _setting_for(
        self,
        game_name: str | None,
        game_params: Mapping[str, Any] | None,
        opponent_policy: str | None,
    ) -> _Setting:
        default = self._default
        if game_name is None and game_params is None and opponent_policy is None:
            return default
        name = game_name or default.game_name
        params = default.game_params if name == default.game_name else {}
        if game_params is not None:
            params = dict(game_params)
        if name != default.game_name or params != default.game_params:
            _refuse_files(name, params)
        policy = opponent_policy or default.opponent_policy
        return _make_setting(name, params, policy, self.agent_player)

    def _check_action(self, action: OpenSpielAction) -> None:
        if action.action_id in self._legal and (
            action.game_name == DEFAULT_GAME or action.game_name == self._setting.game_name
        ):
            return
        if self._position is None:
            raise Refused("step() was called before reset(): there is no game to move in")
        if self._position.is_terminal():
            raise Refused("step() was called after done: the game is over, call reset()")
        if action.action_id not in self._legal:
            raise Refused(self._describe_illegal(action.action_id))
        base_name = self._setting.game_name.partition("(")[0]
        if action.game_name != base_name:
            raise Refused(
                f"the action names the game {action.game_name!r}, but {base_name!r} is being "
                "played; choose the game with reset(game_name=...) or OPENSPIEL_GAME"
            )

    def _describe_illegal(self, action_id: int) -> str:
        name = self._position.action_to_string
        shown = [f"{a} ({name(self.agent_player, a)})" for a in self._legal[:_SHOWN_ACTIONS]]
        rest = len(self._legal) - len(shown)
        return (
            f"illegal action {action_id} in {self._setting.game_name}; legal actions are "
            + ", ".join(shown)
            + (f" and {rest} more" if rest else "")
        )

    def _make_joint_move(self, action_id: int) -> list[int]:
        """Return the actions of all players at a node, with the agent's own among them."""
        moves = []
        for player in range(self._setting.rules.num_players):
            if player == self.agent_player:
                moves.append(action_id)
            else:
                moves.append(self._choose_opponent_move(player))
        return moves

    def _choose_opponent_move(self, player: int) -> int:
        legal = self._position.legal_actions(player)
        self._opponent_last_action = move = self._setting.choose(legal, self._rng)
        return move

    def _play_on(self) -> None:
        """Move for chance and opponents until the agent has to move or the game is over."""
        position, agent = self._position, self.agent_player
        while True:
            player = position.current_player()
            if player == _CHANCE:
                position.apply_action(_draw(position.chance_outcomes(), self._rng))
            elif player == agent or player < 0:
                return
            else:
                position.apply_action(self._choose_opponent_move(player))
                self._step_count += 1

    def _observe(self, phase: GamePhase) -> OpenSpielObservation:
        position, agent = self._position, self.agent_player
        done = position.is_terminal()
        self._legal = [] if done else position.legal_actions(agent)
        payoff = self._take_payoff(done)
        observation = OpenSpielObservation(
            info_state=self._setting.rules.tensor(position, agent),
            legal_actions=self._legal,
            game_phase="terminal" if done else phase,
            current_player_id=position.current_player(),
            opponent_last_action=self._opponent_last_action,
        )
        if phase == "initial" and not done:
            return restart(observation)
        score = Score(payoff, {"payoff": payoff})
        return termination(observation, score) if done else transition(observation, score)

    def _take_payoff(self, done: bool) -> float:
        """Return the agent's payoff since the last call.

        It is computed from `returns`, because `rewards` still shows the payoff of the previous move
        after a chance node. Some games that pay only at the end show returns before that, such as
        repeated_leduc_poker; OpenSpiel's own `rewards` are 0 there.
        """
        if self._setting.rules.pays_at_end_only and not done:
            return 0.0
        before = self._paid
        self._paid = float(self._position.player_return(self.agent_player))
        return self._paid - before


class _Snapshot(BaseModel):
    """A stored game."""

    model_config = ConfigDict(extra="forbid")

    game_name: str
    game_params: Params
    opponent_policy: str
    agent_player: int
    history: list[tuple[int, int]]
    generator: tuple[int, list[int], float | None]
    paid: float
    opponent_last_action: int | None
    episode_id: str | None
    step_count: int = Field(ge=0)


def _replay_moves(
    history: list[tuple[int, int]], rules: _Rules, agent: int
) -> tuple[Any, list[int]]:
    """Make moves, and return the position with the agent's legal actions.

    Raises:
        ValueError: A move is impossible, or the agent is not to move after the last one.
    """
    position = rules.game.new_initial_state()
    moves = iter(history)
    for player, action in moves:
        at = position.current_player()
        if at == _SIMULTANEOUS:
            others = [next(moves, (-1, -1)) for _ in range(rules.num_players - 1)]
            joint = [(player, action), *others]
            for seat, (who, what) in enumerate(joint):
                if who != seat or what not in (position.legal_actions(seat) or [0]):
                    raise ValueError(f"the stored game has an impossible move, {who}: {what}")
            position.apply_actions([what for _, what in joint])
        elif player != at or action not in position.legal_actions():
            raise ValueError(f"the stored game has an impossible move, {player}: {action}")
        else:
            position.apply_action(action)
    if position.is_terminal():
        return position, []
    if position.current_player() not in (agent, _SIMULTANEOUS):
        raise ValueError("the stored game ends with a position in which an opponent has to move")
    return position, position.legal_actions(agent)


def _read_agent_player() -> int:
    text = os.environ.get("OPENSPIEL_AGENT_PLAYER") or "0"
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"OPENSPIEL_AGENT_PLAYER must be an integer, not {text!r}") from None


def _make_generator(seed: int | None) -> Random:
    if seed is None:
        return Random()  # nosec B311  # a game's dice
    # Random ignores the sign of an integer, but -1 must not deal the same game as 1.
    return Random(seed if seed >= 0 else str(seed))  # nosec B311  # a game's dice


def _restore_generator(state: tuple[int, list[int], float | None]) -> Random:
    version, words, gauss = state
    rng = Random()  # nosec B311  # a game's dice
    try:
        rng.setstate((version, tuple(words), gauss))
    except (TypeError, OverflowError) as error:
        raise ValueError(f"the stored game has no generator of random numbers: {error}") from error
    return rng


def _new_position(rules: _Rules, rng: Random) -> Any:
    if rules.draws_by_itself:
        # The game has a generator of its own, so it is loaded again, with a seed from ours.
        params = {**rules.game.get_parameters(), "rng_seed": rng.randrange(2**31)}
        game = pyspiel.load_game(rules.game.get_type().short_name, params)
        return game.new_initial_state()
    return rules.game.new_initial_state()


def _draw(outcomes: list[tuple[int, float]], rng: Random) -> int:
    point = rng.random()
    for action, probability in outcomes:
        point -= probability
        if point < 0:
            return action
    return outcomes[-1][0]


def _make_setting(name: str, params: Params, policy: str, agent_player: int) -> _Setting:
    choose = OPPONENT_POLICIES.get(policy)
    if choose is None:
        known = list(OPPONENT_POLICIES)
        raise Refused(f"unknown opponent policy {policy!r}{_suggest_name(policy, known)}")
    rules = _load(name, json.dumps(params, sort_keys=True))
    if not 0 <= agent_player < rules.num_players:
        raise Refused(
            f"agent_player={agent_player}, but {name} has num_players={rules.num_players}; "
            f"valid ids are 0 to {rules.num_players - 1}"
        )
    return _Setting(name, params, policy, rules, choose)


@lru_cache(maxsize=64)
def _load(name: str, params_json: str) -> _Rules:
    base_name = name.partition("(")[0]
    known = pyspiel.registered_names()
    if base_name not in known:
        raise Refused(f"unknown OpenSpiel game {name!r}{_suggest_name(base_name, known)}")
    params = json.loads(params_json)
    try:
        game = pyspiel.load_game(name, params) if params else pyspiel.load_game(name)
    except (pyspiel.SpielError, IndexError, TypeError) as error:
        raise Refused(
            f"OpenSpiel cannot load {name!r} with game_params {params}: {error}"
        ) from error
    return _make_rules(name, game)


def _make_rules(name: str, game: Any) -> _Rules:
    kind = game.get_type()
    if kind.dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise Refused(f"{name} is a mean field game, in which an agent cannot be a single player")
    if getattr(kind, "action_structs_only", False):
        raise Refused(f"{name} has no numbered actions")
    if kind.provides_information_state_tensor:
        tensor, shape = (
            pyspiel.State.information_state_tensor,
            game.information_state_tensor_shape(),
        )
    elif kind.provides_observation_tensor:
        tensor, shape = pyspiel.State.observation_tensor, game.observation_tensor_shape()
    else:
        raise Refused(f"{name} offers its players no tensor, so there is nothing to observe")
    if not (min(shape, default=0) > 0 and math.prod(shape) <= _MAX_TENSOR_SIZE):
        raise Refused(
            f"{name} with these parameters would have a tensor of shape {list(shape)}; each "
            f"length must be positive, and their product at most {_MAX_TENSOR_SIZE}"
        )
    return _Rules(
        game=game,
        num_players=game.num_players(),
        tensor=tensor,
        pays_at_end_only=kind.reward_model == pyspiel.GameType.RewardModel.TERMINAL,
        draws_by_itself=kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC,
    )


def _make_reward_spec(rules: _Rules) -> RewardSpec:
    """Make the reward specification of a game.

    In a game that pays in every step, one step may pay up to the difference between the lowest and
    the highest return.
    """
    low, high = float(rules.game.min_utility()), float(rules.game.max_utility())
    kind: RewardKind = "terminal" if rules.pays_at_end_only else "per_step"
    if kind == "per_step":
        low, high = min(low, low - high), max(high, high - low)
    if not (math.isfinite(low) and math.isfinite(high)):
        return RewardSpec(kind, None, ("payoff",))
    # If each step costs something, giving up would otherwise be the best strategy.
    least = min(0.0, float(rules.game.min_utility()))
    unfinished = least if kind == "per_step" and least else None
    return RewardSpec(kind, (low, high), ("payoff",), unfinished)


def _refuse_files(name: str, params: Params) -> None:
    """Refuse games that make the server read files, such as efg_game, which quotes them."""
    if "file" in f"{name} {json.dumps(params)}":
        raise Refused(
            f"{name} would read a file on the server; only the server can choose such a game "
            "(OPENSPIEL_GAME, or the constructor's game_name and game_params)"
        )


def _suggest_name(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    close = close or [candidate for candidate in known if name and name in candidate]
    return f" (did you mean {close[0]!r}?)" if close else f"; known are {', '.join(known)}"
