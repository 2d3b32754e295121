"""Tests of the OpenSpiel environment, game by game."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from support import rewards

from openenv import Refused
from openenv.errors import NotSupported
from openenv.reward import RewardSpec
from openenv.testing import check_environment
from openspiel_env.client import OpenSpielEnv
from openspiel_env.models import OpenSpielAction, OpenSpielObservation, OpenSpielState
from openspiel_env.server.openspiel_environment import OPPONENT_POLICIES, OpenSpielEnvironment

SIX_GAMES = ["catch", "tic_tac_toe", "kuhn_poker", "cliff_walking", "2048", "blackjack"]
SIMULTANEOUS_GAMES = ["matrix_pd", "goofspiel", "oshi_zumo", "markov_soccer", "blotto"]
OTHER_GAMES = ["leduc_poker", "hanabi", "backgammon", "negotiation", "stones_and_gems"]
GAMES_WITHOUT_CHANCE_OR_OPPONENT = ["cliff_walking"]

HIT, STAND = 0, 1
RIGHT, UP, LEFT, DOWN = 0, 1, 2, 3
PASS, BET = 0, 1
SHORT_GOOFSPIEL = {"num_cards": 4}


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENSPIEL_GAME", "OPENSPIEL_AGENT_PLAYER", "OPENSPIEL_OPPONENT_POLICY"):
        monkeypatch.delenv(name, raising=False)


def move(env: OpenSpielEnvironment, action_id: int) -> OpenSpielObservation:
    return env.step(OpenSpielAction(action_id=action_id))


def moves(env: OpenSpielEnvironment, action_ids: list[int]) -> list[OpenSpielObservation]:
    return [move(env, action_id) for action_id in action_ids]


def episode(
    env: OpenSpielEnvironment, seed: int | None, limit: int = 60, **options: Any
) -> list[OpenSpielObservation]:
    """Play at random, with the same choices each time, to the end or for `limit` moves."""
    choices = random.Random(7)
    seen = [env.reset(seed=seed, **options)]
    while not seen[-1].done and len(seen) < limit:
        seen.append(move(env, choices.choice(seen[-1].legal_actions)))
    return seen


def total_reward(seen: list[OpenSpielObservation]) -> float:
    return sum(observation.reward or 0.0 for observation in seen)


def last_legal(observation: OpenSpielObservation) -> OpenSpielAction:
    return OpenSpielAction(action_id=observation.legal_actions[-1] if not observation.done else 0)


@pytest.mark.slow
@pytest.mark.parametrize("game", SIX_GAMES + SIMULTANEOUS_GAMES)
def test_every_game_keeps_the_contract(game: str) -> None:
    check_environment(partial(OpenSpielEnvironment, game), actions=last_legal)


def test_every_second_player_keeps_the_contract() -> None:
    check_environment(partial(OpenSpielEnvironment, "kuhn_poker", 1), actions=last_legal)


@pytest.mark.parametrize("game", [*SIX_GAMES, *SIMULTANEOUS_GAMES])
def test_rewards_are_as_they_are_declared(game: str) -> None:
    choices = random.Random(5)
    with OpenSpielEnv.local(partial(OpenSpielEnvironment, game)).sync() as env:
        played = rewards.played(
            env, lambda seen: OpenSpielAction(action_id=choices.choice(seen.legal_actions)), seed=5
        )
        paid = rewards.worth(played)
    assert played[-1].done
    assert rewards.parts(played) == ({"payoff": paid} if paid else {})


@pytest.mark.parametrize(
    ("game", "kind", "expected"),
    [
        ("catch", "terminal", (-1.0, 1.0)),
        ("tic_tac_toe", "terminal", (-1.0, 1.0)),
        ("kuhn_poker", "terminal", (-2.0, 2.0)),
        ("cliff_walking", "per_step", (-199.0, 190.0)),
    ],
)
def test_each_episode_tells_what_the_rewards_of_its_game_mean(
    game: str, kind: str, expected: tuple[float, float]
) -> None:
    with OpenSpielEnv.local(OpenSpielEnvironment).sync() as env:
        env.reset(game_name=game)
        assert env.reward_spec is not None
        assert (env.reward_spec.kind, env.reward_spec.range) == (kind, expected)
        # Each step of cliff_walking costs 1, so giving up at once would otherwise score best.
        assert env.reward_spec.unfinished == (-199.0 if game == "cliff_walking" else None)
        env.reset()
        assert env.reward_spec == RewardSpec("terminal", (-1.0, 1.0), ("payoff",))


@pytest.mark.parametrize(("chosen", "paid"), [(max, 1.0), (min, -1.0)])
def test_catch_reaches_both_ends_of_the_range_that_is_declared(chosen: Any, paid: float) -> None:
    """Without a declared range, giving up scored 0, and missing the ball -1."""
    worths = []
    for seed in range(6):
        for action in (0, 1, 2):
            with OpenSpielEnv.local(OpenSpielEnvironment).sync() as env:
                move = OpenSpielAction(action_id=action)
                worths.append(rewards.worth(rewards.played(env, lambda _: move, seed=seed)))  # noqa: B023
    assert chosen(one for one in worths if one is not None) == paid


def test_a_client_chooses_the_game_and_plays_it() -> None:
    with OpenSpielEnv.local(OpenSpielEnvironment).sync() as env:
        assert env.reset(game_name="matrix_pd", opponent_policy="first").reward is None
        result = env.step(OpenSpielAction(action_id=1, game_name="matrix_pd"))
        assert (result.reward, result.done) == (10.0, True)
        state = env.state()
    assert (state.game_name, state.opponent_policy) == ("matrix_pd", "first")
    assert state.step_count == 1


def test_a_default_action_that_went_over_the_wire_fits_every_game() -> None:
    with OpenSpielEnv.local(OpenSpielEnvironment).sync() as env:
        env.reset(game_name="blackjack")
        assert env.step(OpenSpielAction(action_id=STAND)).done


# ------------------------------------------------------------------------- seeds


@pytest.mark.parametrize("game", SIX_GAMES + SIMULTANEOUS_GAMES + OTHER_GAMES)
def test_the_seed_determines_the_episode(game: str) -> None:
    first, second = OpenSpielEnvironment(game), OpenSpielEnvironment(game)
    for seed in (0, 1, -1, 2**70):
        expected = episode(first, seed)
        assert episode(second, seed) == expected
        assert episode(first, seed) == expected


@pytest.mark.parametrize(
    "game", [name for name in SIX_GAMES if name not in GAMES_WITHOUT_CHANCE_OR_OPPONENT]
)
def test_different_seeds_give_different_episodes(game: str) -> None:
    env = OpenSpielEnvironment(game)
    seen = {repr(episode(env, seed)) for seed in range(40)}
    assert len(seen) > 3


def test_a_seed_and_its_negative_deal_different_games() -> None:
    env = OpenSpielEnvironment("blackjack")
    assert any(env.reset(seed=n) != env.reset(seed=-n) for n in range(1, 10))


@pytest.mark.parametrize("game", ["blackjack", "2048", "tic_tac_toe"])
def test_without_a_seed_episodes_differ_even_after_a_seeded_one(game: str) -> None:
    env = OpenSpielEnvironment(game)
    seen = set()
    for _ in range(20):
        episode(env, 3)
        seen.add(repr(episode(env, None)))
    assert len(seen) > 1


def test_no_other_random_generator_is_read_or_advanced() -> None:
    env = OpenSpielEnvironment("tic_tac_toe")
    random.seed(0)
    before = random.getstate()
    expected = episode(env, 5)
    assert random.getstate() == before
    random.seed(1)
    assert episode(env, 5) == expected


def test_interleaved_instances_do_not_disturb_one_another() -> None:
    alone = [episode(OpenSpielEnvironment("blackjack"), seed) for seed in range(20)]
    envs = [OpenSpielEnvironment("blackjack") for _ in range(20)]
    seen = [[env.reset(seed=seed)] for seed, env in enumerate(envs)]
    choices = [random.Random(7) for _ in envs]
    while any(not history[-1].done for history in seen):
        for env, history, choice in zip(envs, seen, choices, strict=True):
            if not history[-1].done:
                history.append(move(env, choice.choice(history[-1].legal_actions)))
    assert seen == alone


# ------------------------------------------------------------------------- refusals


def test_step_before_reset_is_refused() -> None:
    env = OpenSpielEnvironment("catch")
    with pytest.raises(Refused, match="before reset"):
        move(env, 1)
    assert env.state.episode_id is None
    assert env.state.step_count == 0


@pytest.mark.parametrize("game", SIX_GAMES + SIMULTANEOUS_GAMES)
def test_step_after_done_is_refused_and_changes_nothing(game: str) -> None:
    env = OpenSpielEnvironment(game)
    assert episode(env, 0, limit=10_000)[-1].done
    before = env.state
    with pytest.raises(Refused, match="after done"):
        move(env, 0)
    assert env.state == before
    assert env.reset(seed=0).done is False


@pytest.mark.parametrize("game", [*SIX_GAMES, "matrix_pd", "goofspiel"])
@pytest.mark.parametrize("action_id", [-1, 99])
def test_an_illegal_action_is_refused_and_changes_nothing(game: str, action_id: int) -> None:
    env = OpenSpielEnvironment(game)
    first = env.reset(seed=1, episode_id="one")
    before = env.state
    with pytest.raises(ValueError, match=f"illegal action {action_id} in {game}; legal") as caught:
        move(env, action_id)
    assert all(f"{legal} (" in str(caught.value) for legal in first.legal_actions)
    assert env.state == before

    undisturbed = OpenSpielEnvironment(game)
    undisturbed.reset(seed=1)
    action = first.legal_actions[-1]
    assert move(env, action) == move(undisturbed, action)


def test_an_occupied_square_is_illegal() -> None:
    env = OpenSpielEnvironment("tic_tac_toe", opponent_policy="first")
    env.reset()
    assert move(env, 4).legal_actions == [1, 2, 3, 5, 6, 7, 8]
    with pytest.raises(ValueError, match="illegal action 4"):
        move(env, 4)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("tictactoe", "tic_tac_toe"), ("kuhn", "kuhn_poker"), ("blakjack", "blackjack")],
)
def test_an_unknown_game_is_named_and_the_nearest_suggested(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=rf"'{name}' \(did you mean '{hint}'\?\)"):
        OpenSpielEnvironment(name)


@pytest.mark.parametrize(
    ("game", "params", "words"),
    [
        ("catch", {"colums": 3}, "columns"),
        ("catch", {"columns": "three"}, "columns"),
        ("catch", {"columns": 0}, r"\[10, 0\]"),
        ("catch", {"columns": 100_000, "rows": 100_000}, "at most 1048576"),
        ("kuhn_poker", {"players": 40}, "max_num_players"),
        ("misere", {}, "Missing parameter game"),
        ("mfg_garnet", {}, "mean field"),
        ("cribbage", {}, "no tensor"),
    ],
)
def test_a_game_that_cannot_be_played_is_a_value_error_that_names_it(
    game: str, params: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        OpenSpielEnvironment(game, game_params=params)
    assert game in str(caught.value)


@pytest.mark.parametrize("agent_player", [-1, 2])
def test_a_player_that_the_game_does_not_have_is_refused(agent_player: int) -> None:
    with pytest.raises(ValueError, match=f"agent_player={agent_player}.*num_players=2"):
        OpenSpielEnvironment("tic_tac_toe", agent_player=agent_player)


def test_an_unknown_opponent_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'random'"):
        OpenSpielEnvironment("tic_tac_toe", opponent_policy="ramdom")


@pytest.mark.parametrize(
    "options",
    [
        {"game_name": "catch", "game_params": {"rows": 2000, "columns": 2000}},
        {"game_name": "no_such_game"},
        {"game_params": {"x": 1}},
        {"opponent_policy": "best"},
    ],
)
def test_a_refused_reset_leaves_the_running_episode_as_it_was(options: dict[str, Any]) -> None:
    env = OpenSpielEnvironment("catch")
    undisturbed = OpenSpielEnvironment("catch")
    for each in (env, undisturbed):
        each.reset(seed=4, episode_id="kept")
        move(each, 0)
    with pytest.raises(ValueError):
        env.reset(**options)
    assert env.state == undisturbed.state
    assert move(env, 1) == move(undisturbed, 1)


def test_reset_cannot_make_the_server_read_a_file() -> None:
    env = OpenSpielEnvironment()
    refused: list[dict[str, Any]] = [
        {"game_name": "efg_game", "game_params": {"filename": "/etc/hostname"}},
        {"game_name": "misere(game=efg_game(filename=/etc/hostname))"},
    ]
    for options in refused:
        with pytest.raises(ValueError, match="read a file on the server"):
            env.reset(**options)


def test_reset_refuses_arguments_that_nobody_takes() -> None:
    with pytest.raises(TypeError):
        OpenSpielEnvironment().reset(game="blackjack")  # type: ignore[call-arg]


def test_only_the_action_id_of_an_action_counts() -> None:
    env = OpenSpielEnvironment("blackjack")
    env.reset(seed=0)
    default = move(env, STAND)
    env.reset(seed=0)
    action = OpenSpielAction(action_id=STAND, game_name="blackjack", game_params={"a": 1})
    assert env.step(action) == default


def test_an_action_meant_for_another_game_is_refused() -> None:
    env = OpenSpielEnvironment("blackjack")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"'2048'.*'blackjack' is being played"):
        env.step(OpenSpielAction(action_id=STAND, game_name="2048"))
    assert env.state.step_count == 0


# ------------------------------------------------------------------------- configuration


def test_the_default_is_catch() -> None:
    state = OpenSpielEnvironment().state
    assert state == OpenSpielState(
        game_name="catch", agent_player=0, opponent_policy="random", num_players=1
    )


def test_the_environ_is_read_when_an_instance_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSPIEL_GAME", "kuhn_poker")
    monkeypatch.setenv("OPENSPIEL_AGENT_PLAYER", "1")
    monkeypatch.setenv("OPENSPIEL_OPPONENT_POLICY", "last")
    state = OpenSpielEnvironment().state
    assert (state.game_name, state.agent_player, state.opponent_policy) == ("kuhn_poker", 1, "last")
    explicit = OpenSpielEnvironment("tic_tac_toe", agent_player=0, opponent_policy="first").state
    assert explicit.game_name == "tic_tac_toe"
    assert (explicit.agent_player, explicit.opponent_policy) == (0, "first")


def test_a_player_id_in_the_environ_must_be_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSPIEL_AGENT_PLAYER", "me")
    with pytest.raises(ValueError, match="OPENSPIEL_AGENT_PLAYER"):
        OpenSpielEnvironment()


def test_one_instance_serves_every_game_one_episode_each() -> None:
    env = OpenSpielEnvironment("catch", game_params={"rows": 4})
    for game in SIX_GAMES + SIMULTANEOUS_GAMES:
        assert episode(env, 0, game_name=game) == episode(
            OpenSpielEnvironment(game, game_params={"rows": 4} if game == "catch" else None), 0
        )
        assert env.state.game_name == game
    env.reset()
    assert env.state.game_name == "catch"
    assert env.state.game_params == {"rows": 4}


def test_parameters_and_the_long_form_of_a_name_mean_the_same() -> None:
    by_params = OpenSpielEnvironment("goofspiel", game_params=SHORT_GOOFSPIEL)
    by_name = OpenSpielEnvironment("goofspiel(num_cards=4)")
    assert episode(by_params, 0) == episode(by_name, 0)
    by_name.reset()
    by_name.step(OpenSpielAction(action_id=0, game_name="goofspiel"))


def test_the_policy_of_one_episode_is_not_that_of_the_next() -> None:
    env = OpenSpielEnvironment("tic_tac_toe", opponent_policy="first")
    env.reset(opponent_policy="last")
    assert env.state.opponent_policy == "last"
    assert move(env, 4).opponent_last_action == 8
    env.reset()
    assert move(env, 4).opponent_last_action == 0


def test_episode_ids_are_taken_or_made_up() -> None:
    env = OpenSpielEnvironment()
    env.reset(episode_id="mine")
    assert env.state.episode_id == "mine"
    env.reset()
    first = env.state.episode_id
    env.reset()
    assert first
    assert env.state.episode_id not in (first, "mine")


# ------------------------------------------------------------------------- observations


@pytest.mark.parametrize("game", SIX_GAMES + SIMULTANEOUS_GAMES + OTHER_GAMES)
def test_every_episode_has_the_same_outline(game: str) -> None:
    env = OpenSpielEnvironment(game)
    seen = episode(env, 2, limit=10_000)
    assert seen[0].game_phase == "initial"
    assert seen[0].reward is None
    assert {observation.game_phase for observation in seen[1:-1]} <= {"playing"}
    assert seen[-1].game_phase == "terminal"
    assert seen[-1].current_player_id == -4
    assert seen[-1].legal_actions == []
    assert [observation.done for observation in seen] == [False] * (len(seen) - 1) + [True]
    assert all(isinstance(observation.reward, float) for observation in seen[1:])
    assert len({len(observation.info_state) for observation in seen}) == 1
    assert all(observation.legal_actions for observation in seen[:-1])
    assert not any(observation.truncated for observation in seen)


@pytest.mark.parametrize(
    ("game", "size", "actions", "players"),
    [
        ("catch", 50, 3, 1),
        ("tic_tac_toe", 27, 9, 2),
        ("kuhn_poker", 11, 2, 2),
        ("cliff_walking", 400, 4, 1),
        ("2048", 16, 4, 1),
        ("blackjack", 189, 2, 1),
    ],
)
def test_the_shapes_of_the_six_games(game: str, size: int, actions: int, players: int) -> None:
    env = OpenSpielEnvironment(game)
    seen = env.reset(seed=0)
    assert len(seen.info_state) == size
    assert set(seen.legal_actions) <= set(range(actions))
    assert env.state.num_players == players
    assert seen.current_player_id == 0


def test_state_may_be_read_and_written_to_without_harm() -> None:
    env = OpenSpielEnvironment(game_params={"rows": 5})
    observation = env.reset(seed=0)
    env.state.step_count = 100
    env.state.game_params["rows"] = 100
    observation.legal_actions.clear()
    assert env.state.step_count == 0
    assert env.state.game_params == {"rows": 5}
    assert move(env, 1).legal_actions == [0, 1, 2]


# ------------------------------------------------------------------------- single games


def ball_column(observation: OpenSpielObservation) -> int:
    return observation.info_state.index(1.0) % 5


@pytest.mark.parametrize("seed", range(6))
def test_catch_pays_one_for_the_ball_and_minus_one_for_missing_it(seed: int) -> None:
    env = OpenSpielEnvironment("catch")
    distance = ball_column(env.reset(seed=seed)) - 2
    towards = [1 + (distance > 0) - (distance < 0)] * abs(distance)
    seen = moves(env, towards + [1] * (9 - len(towards)))
    assert [step.reward for step in seen] == [0.0] * 8 + [1.0]
    assert env.state.step_count == 9

    env.reset(seed=seed)
    away = 0 if distance >= 0 else 2
    assert moves(env, [away] * 9)[-1].reward == -1.0


def test_tic_tac_toe_is_won_against_an_opponent_that_takes_the_first_square() -> None:
    env = OpenSpielEnvironment("tic_tac_toe", opponent_policy="first")
    assert env.reset().opponent_last_action is None
    seen = moves(env, [4, 2, 6])
    assert [step.reward for step in seen] == [0.0, 0.0, 1.0]
    assert [step.opponent_last_action for step in seen] == [0, 1, 1]
    assert [step.done for step in seen] == [False, False, True]
    assert env.state.step_count == 5


def test_tic_tac_toe_is_lost_when_the_opponent_completes_a_row() -> None:
    env = OpenSpielEnvironment("tic_tac_toe", opponent_policy="first")
    env.reset()
    seen = moves(env, [8, 4, 3])
    assert [step.reward for step in seen] == [0.0, 0.0, -1.0]
    assert env.state.step_count == 6


def test_a_second_player_sees_the_opening_move_and_counts_from_zero() -> None:
    env = OpenSpielEnvironment("tic_tac_toe", agent_player=1, opponent_policy="middle")
    first = env.reset()
    assert first.opponent_last_action == 4
    assert first.current_player_id == 1
    assert 4 not in first.legal_actions
    assert env.state.step_count == 0
    assert move(env, 0).current_player_id == 1
    assert env.state.step_count == 2


@pytest.mark.parametrize("seed", range(8))
def test_kuhn_poker_pays_the_ante_when_the_opponent_folds(seed: int) -> None:
    env = OpenSpielEnvironment("kuhn_poker", opponent_policy="first")
    env.reset(seed=seed)
    assert move(env, BET).reward == 1.0
    assert env.state.step_count == 2


@pytest.mark.parametrize("seed", range(8))
def test_kuhn_poker_pays_two_when_the_opponent_calls(seed: int) -> None:
    env = OpenSpielEnvironment("kuhn_poker", opponent_policy="last")
    card = env.reset(seed=seed).info_state[2:5].index(1.0)
    reward = move(env, BET).reward
    assert reward in ((-2.0,), (-2.0, 2.0), (2.0,))[card]


def test_kuhn_poker_gives_the_first_player_a_second_turn_after_a_bet() -> None:
    env = OpenSpielEnvironment("kuhn_poker", opponent_policy="last")
    env.reset(seed=0)
    answer = move(env, PASS)
    assert not answer.done
    assert answer.opponent_last_action == BET
    assert move(env, PASS).reward == -1.0


def test_cliff_walking_costs_one_a_step_around_the_cliff() -> None:
    env = OpenSpielEnvironment("cliff_walking")
    env.reset()
    seen = moves(env, [UP] + [RIGHT] * 7 + [DOWN])
    assert [step.reward for step in seen] == [-1.0] * 9
    assert seen[-1].done


def test_cliff_walking_costs_a_hundred_over_the_cliff_and_ends() -> None:
    env = OpenSpielEnvironment("cliff_walking")
    env.reset()
    fall = move(env, RIGHT)
    assert fall.reward == -100.0
    assert fall.done


def test_cliff_walking_ends_at_its_horizon() -> None:
    env = OpenSpielEnvironment("cliff_walking", game_params={"horizon": 7})
    env.reset()
    seen = moves(env, [UP, DOWN, UP, DOWN, UP, DOWN, UP])
    assert [step.done for step in seen] == [False] * 6 + [True]


def merged(before: list[float], after: list[float]) -> float:
    """Return the score of a 2048 move from the tiles: a tile of 2^n is (n-1)*2^n in merges.

    A tile that chance adds was never merged, so the caller must subtract the 4 of an added 4.
    """

    def worth(tiles: list[float]) -> float:
        return sum(tile * (int(tile).bit_length() - 2) for tile in tiles if tile)

    return worth(after) - worth(before)


def test_2048_pays_the_sum_of_the_merged_tiles() -> None:
    env = OpenSpielEnvironment("2048")
    for seed in range(5):
        seen = episode(env, seed, limit=400)
        for before, after in itertools.pairwise(seen):
            assert after.reward is not None
            assert merged(before.info_state, after.info_state) - after.reward in (0.0, 4.0)


def test_2048_begins_with_two_tiles_and_ends_stuck() -> None:
    env = OpenSpielEnvironment("2048")
    seen = episode(env, 0, limit=10_000)
    assert sum(tile > 0 for tile in seen[0].info_state) == 2
    assert all(tile > 0 for tile in seen[-1].info_state)
    assert total_reward(seen) > 0


def test_2048_refuses_a_move_that_moves_nothing() -> None:
    env = OpenSpielEnvironment("2048")
    seen = env.reset(seed=0)
    while len(seen.legal_actions) == 4:
        seen = move(env, seen.legal_actions[0])
    (blocked, *_) = set(range(4)) - set(seen.legal_actions)
    with pytest.raises(ValueError, match=f"illegal action {blocked} in 2048"):
        move(env, blocked)


def total(observation: OpenSpielObservation, first: int = 85) -> int:
    """Return the player's best total from the cards, not from OpenSpiel's own sum."""
    ranks = [card % 13 for card, held in enumerate(observation.info_state[first:][:52]) if held]
    hard = sum(min(rank + 1, 10) for rank in ranks)
    return hard + 10 if 0 in ranks and hard <= 11 else hard


def dealer_total(observation: OpenSpielObservation) -> int:
    return total(observation, first=137)


def player_of(limit: int) -> Callable[[OpenSpielObservation], int]:
    return lambda observation: HIT if total(observation) < limit else STAND


def hands(limit: int, count: int) -> Iterator[OpenSpielObservation]:
    env = OpenSpielEnvironment("blackjack")
    choose = player_of(limit)
    for seed in range(count):
        seen = env.reset(seed=seed)
        while not seen.done:
            assert seen.reward in (None, 0.0)
            seen = move(env, choose(seen))
        yield seen


def test_blackjack_pays_by_the_totals_at_the_end() -> None:
    for last in hands(limit=15, count=300):
        player, dealer = total(last), dealer_total(last)
        if player > 21:
            assert last.reward == -1.0
        elif dealer > 21:
            assert last.reward == 1.0
        else:
            assert dealer >= 17
            assert last.reward == (player > dealer) - (player < dealer)


def test_blackjack_is_lost_by_one_who_never_stands() -> None:
    assert {last.reward for last in hands(limit=99, count=50)} == {-1.0}


def test_blackjack_shows_one_card_of_the_dealer_until_the_player_stands() -> None:
    env = OpenSpielEnvironment("blackjack")
    first = env.reset(seed=0)
    assert sum(first.info_state[137:189]) == 1
    assert first.info_state[137:189] == first.info_state[33:85]
    assert sum(move(env, STAND).info_state[137:189]) >= 2


# ------------------------------------------------------------------------- simultaneous moves


@pytest.mark.parametrize(
    ("action", "opponent_policy", "reward"),
    [(0, "first", 5.0), (1, "first", 10.0), (0, "last", 0.0), (1, "last", 1.0)],
)
@pytest.mark.parametrize("agent_player", [0, 1])
def test_the_prisoners_dilemma_pays_by_its_matrix(
    agent_player: int, action: int, opponent_policy: str, reward: float
) -> None:
    env = OpenSpielEnvironment("matrix_pd", agent_player, opponent_policy)
    first = env.reset()
    assert first.current_player_id == -2
    assert first.legal_actions == [0, 1]
    last = move(env, action)
    assert last.done
    assert last.reward == reward
    assert last.opponent_last_action == (0 if opponent_policy == "first" else 1)
    assert env.state.step_count == 1


@pytest.mark.parametrize("agent_player", [0, 1])
def test_goofspiel_is_won_by_the_higher_bids(agent_player: int) -> None:
    params = {**SHORT_GOOFSPIEL, "points_order": "descending"}
    env = OpenSpielEnvironment("goofspiel", agent_player, "first", params)
    env.reset()
    seen = [move(env, 3), move(env, 2)]
    assert [step.opponent_last_action for step in seen] == [0, 1]
    assert env.state.step_count == 2
    while not seen[-1].done:
        seen.append(move(env, seen[-1].legal_actions[-1]))
    assert seen[-1].reward == 1.0


def test_a_game_of_three_plays_both_opponents() -> None:
    env = OpenSpielEnvironment("kuhn_poker", 1, "first", {"players": 3})
    assert env.reset(seed=0).opponent_last_action == PASS
    assert env.state.num_players == 3
    last = move(env, BET)
    assert last.done
    assert last.reward == 2.0
    assert env.state.step_count == 3


def test_the_policies_choose_by_place() -> None:
    rng = random.Random(0)
    legal = [2, 3, 5, 7]
    assert OPPONENT_POLICIES["first"](legal, rng) == 2
    assert OPPONENT_POLICIES["last"](legal, rng) == 7
    assert OPPONENT_POLICIES["middle"](legal, rng) == 5
    assert {OPPONENT_POLICIES["random"](legal, rng) for _ in range(100)} == set(legal)


def test_rewards_add_up_to_the_return_of_the_game() -> None:
    env = OpenSpielEnvironment("repeated_leduc_poker", opponent_policy="last")
    for seed in range(5):
        seen = episode(env, seed, limit=10_000)
        assert total_reward(seen) == pytest.approx(env._position.player_return(0))


# ------------------------------------------------------------------------- the client side


def test_the_client_side_does_not_import_openspiel() -> None:
    code = (
        "import sys, openspiel_env; from openspiel_env import OpenSpielEnv, OpenSpielAction; "
        "assert 'pyspiel' not in sys.modules and 'open_spiel' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ------------------------------------------------------------------ snapshots


@pytest.mark.parametrize("game_name", [*SIX_GAMES, *SIMULTANEOUS_GAMES, "leduc_poker", "hanabi"])
def test_a_stored_game_goes_on_anywhere(game_name: str) -> None:
    env, elsewhere = OpenSpielEnvironment(game_name), OpenSpielEnvironment("catch")
    choices = random.Random(3)
    seen = env.reset(seed=4, episode_id="e")
    for _ in range(3):
        if not seen.done:
            seen = move(env, choices.choice(seen.legal_actions))
    stored, state = env.snapshot(), env.state
    elsewhere.restore(stored)
    assert elsewhere.state == state and elsewhere.snapshot() == stored
    while not seen.done and env.state.step_count < 40:
        action = choices.choice(seen.legal_actions)
        seen = move(env, action)
        assert move(elsewhere, action) == seen
    assert elsewhere.state == env.state


def test_a_stored_game_may_be_over() -> None:
    env = OpenSpielEnvironment("tic_tac_toe")
    episode(env, seed=1)
    stored = env.snapshot()
    env.reset(seed=2)
    env.restore(stored)
    with pytest.raises(Refused, match="the game is over"):
        move(env, 0)


@pytest.mark.parametrize("game_name", ["negotiation", "stones_and_gems"])
def test_a_game_that_draws_by_itself_cannot_be_stored(game_name: str) -> None:
    env = OpenSpielEnvironment(game_name)
    env.reset(seed=1)
    with pytest.raises(NotSupported, match="replayed"):
        env.snapshot()


def test_before_the_first_reset_there_is_nothing_to_store() -> None:
    with pytest.raises(RuntimeError, match="before reset"):
        OpenSpielEnvironment().snapshot()


WRONG: list[dict[str, Any]] = [
    {"history": [[-1, 99]]},
    {"history": [[0, 0]]},
    {"history": [[0, 2**40]]},
    {"history": [[-1, 1], [0, -5]]},
    {"history": []},
    {"generator": [3, [], None]},
    {"generator": [3, [-1] * 625, None]},
    {"generator": [9, [0] * 625, None]},
    {"game_name": "no_such_game"},
    {"game_name": "efg_game", "game_params": {"filename": "/etc/passwd"}},
    {"game_name": "negotiation"},
    {"game_name": "goofspiel", "history": [[-1, 0], [0, 0]]},
    {"game_name": "goofspiel", "history": [[-1, 0], [1, 0], [0, 0]]},
    {"agent_player": 1},
    {"step_count": -1},
    {"opponent_policy": "cheat"},
    {"more": 1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: " ".join(map(str, wrong.items()))[:60])
def test_wrong_bytes_are_refused_and_change_nothing(wrong: dict[str, Any]) -> None:
    """OpenSpiel's own `deserialize_state` ends the process on such moves."""
    env = OpenSpielEnvironment("catch")
    env.reset(seed=1)
    before = env.snapshot()
    with pytest.raises(ValueError):
        env.restore(json.dumps({**json.loads(before), **wrong}).encode())
    assert env.snapshot() == before
    move(env, 1)


def test_bytes_that_are_nothing_are_refused() -> None:
    env = OpenSpielEnvironment("catch")
    for data in (b"", b"\xff\x00", b"[]", b"null", b'{"history": 3}'):
        with pytest.raises(ValueError):
            env.restore(data)
