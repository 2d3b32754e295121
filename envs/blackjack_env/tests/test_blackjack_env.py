"""Tests of the blackjack environment, with Gymnasium's Blackjack-v1 as the reference."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.toy_text import blackjack as reference
from support import rewards
from support.servers import serving

from blackjack_env import (
    BlackjackAction,
    BlackjackEnv,
    BlackjackObservation,
    Move,
    Rank,
)
from blackjack_env.server.app import app
from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from blackjack_env.server.hands import RANKS, Hand, card_value, payout
from openenv import Refused
from openenv.errors import ServerError
from openenv.testing import check_environment
from openenv.types import public_view

HERE = Path(__file__).parent
HIT, STAND = BlackjackAction(action="hit"), BlackjackAction(action="stand")
OPTIONS = [{"natural": natural, "sab": sab} for natural in (False, True) for sab in (False, True)]

Policy = Callable[[BlackjackObservation], Move]


def stand_at(total: int) -> Policy:
    return lambda seen: "hit" if seen.player_total < total else "stand"


def play(env: BlackjackEnvironment, policy: Policy, **reset: Any) -> list[BlackjackObservation]:
    seen = [env.reset(**reset)]
    while not seen[-1].done:
        seen.append(env.step(BlackjackAction(action=policy(seen[-1]))))
    return seen


def outcome_of(env: BlackjackEnvironment, policy: Policy, seed: int) -> float:
    reward = play(env, policy, seed=seed)[-1].reward
    assert reward is not None
    return float(reward)


# ------------------------------------------------------------------ the contract


@pytest.mark.parametrize("actions", [[STAND], [HIT], [HIT, STAND]])
def test_it_keeps_the_contract(actions: list[BlackjackAction]) -> None:
    check_environment(BlackjackEnvironment, actions=actions)


def at_random(seed: int) -> Callable[[BlackjackObservation], BlackjackAction]:
    choices = random.Random(seed)
    return lambda seen: BlackjackAction(action=choices.choice(seen.legal_actions))


def test_its_rewards_are_as_they_are_declared() -> None:
    brought = set()
    with BlackjackEnv.local(BlackjackEnvironment).sync() as env:
        for seed in range(60):
            hand = rewards.played(env, at_random(seed), seed=seed, natural=True, sab=False)
            assert rewards.worth(hand) == hand[-1].reward
            brought.add(frozenset(rewards.parts(hand).items()))
    lost, won, by_a_natural = {"outcome": -1.0}, {"outcome": 1.0}, {"outcome": 1.0, "natural": 0.5}
    assert brought == {frozenset(), *(frozenset(one.items()) for one in (lost, won, by_a_natural))}


def test_it_is_played_over_a_socket() -> None:
    with serving(app) as url, BlackjackEnv(base_url=url).sync() as env:
        result = env.reset(seed=4, natural=True)
        assert result.reward is None
        while not result.done:
            result = env.step(HIT)
        assert (result.reward, result.observation.outcome) == (-1.0, "lose")
        with pytest.raises(ServerError, match="call reset"):
            env.step(STAND)
        with pytest.raises(ServerError, match="hit"):
            env.step({"action": "double"})  # type: ignore[arg-type]


def test_the_client_side_imports_no_server() -> None:
    code = (
        "import sys, blackjack_env; "
        "assert not any(name.startswith('blackjack_env.server') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ------------------------------------------------------------------ comparison with Gymnasium


class Shoe:
    """A source of cards that deals our hand to Gymnasium, in Gymnasium's order."""

    def __init__(self, cards: list[Rank]) -> None:
        self._cards = iter(cards)

    def draw(self, np_random: Any) -> int:
        return card_value(next(self._cards))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_hand_goes_as_in_gymnasium(
    options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = BlackjackEnvironment(**options)
    theirs = gymnasium.make("Blackjack-v1", **options)
    moves = random.Random(0)
    paid = set()
    for seed in range(400):
        ours = env.reset(seed=seed)
        shoe = json.loads(env.snapshot())["shoe"]
        monkeypatch.setattr(reference, "draw_card", Shoe(shoe).draw)
        seen, _ = theirs.reset()
        assert seen == (ours.player_total, ours.dealer_value, ours.usable_ace)
        while not ours.done:
            move: Move = moves.choice(["hit", "stand", "stand"])
            ours = env.step(BlackjackAction(action=move))
            seen, reward, terminated, _, _ = theirs.step(int(move == "hit"))
            assert seen == (ours.player_total, ours.dealer_value, ours.usable_ace)
            assert (reward, terminated) == (ours.reward, ours.done)
        paid.add(ours.reward)
    wins = {1.0, 1.5} if options == {"natural": True, "sab": False} else {1.0}
    assert paid == {-1.0, 0.0} | wins


def test_the_defaults_are_those_of_blackjack_v1() -> None:
    spec = gymnasium.spec("Blackjack-v1")
    env = BlackjackEnvironment()
    assert {"natural": env.state.natural, "sab": env.state.sab} == spec.kwargs


def test_the_cards_fall_as_often_as_in_gymnasium() -> None:
    """Each rank has a share of 1/13, so a ten is four times as likely as any other value."""
    env = BlackjackEnvironment()
    dealt: dict[str, int] = dict.fromkeys(RANKS, 0)
    hands = 6000
    for seed in range(hands):
        seen = env.reset(seed=seed)
        for card in (*seen.player_cards, *seen.dealer_cards):
            dealt[card] += 1
    expected = 3 * hands / 13
    spread = math.sqrt(expected * 12 / 13)
    assert all(abs(count - expected) < 5 * spread for count in dealt.values())
    assert [card_value(rank) for rank in RANKS] == sorted(reference.deck)


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [12, 20])
def test_a_policy_earns_what_it_earns_in_gymnasium(threshold: int) -> None:
    hands = 4_000
    env = BlackjackEnvironment()
    ours = [outcome_of(env, stand_at(threshold), seed) for seed in range(hands)]
    theirs, game = [], gymnasium.make("Blackjack-v1")
    (total, _, _), _ = game.reset(seed=0)
    for _ in range(hands):
        (total, _, _), _ = game.reset()
        over, reward = False, 0.0
        while not over:
            (total, _, _), reward, over, _, _ = game.step(int(total < threshold))  # type: ignore[assignment]
        theirs.append(float(reward))
    spread = math.sqrt(2 / hands)
    assert abs(sum(ours) - sum(theirs)) / hands < 5 * spread


# ------------------------------------------------------------------ single rules


@pytest.mark.parametrize(
    ("cards", "total", "usable"),
    [
        (["A", "K"], 21, True),
        (["A", "A"], 12, True),
        (["A", "A", "9"], 21, True),
        (["A", "A", "10"], 12, False),
        (["J", "Q", "A"], 21, False),
        (["10", "6", "7"], 23, False),
        (["A"] * 21, 21, False),
    ],
)
def test_an_ace_counts_eleven_where_that_is_no_bust(
    cards: list[Rank], total: int, usable: bool
) -> None:
    assert Hand.of(cards) == (total, usable)


@pytest.mark.parametrize(
    ("player", "dealer", "natural", "sab", "reward"),
    [
        (["A", "K"], ["7", "7", "7"], False, True, 1.0),
        (["A", "K"], ["7", "7", "7"], True, False, 0.0),
        (["A", "K"], ["10", "9"], True, False, 1.5),
        (["A", "K"], ["10", "9"], True, True, 1.0),
        (["A", "K"], ["A", "Q"], True, True, 0.0),
        (["5", "6", "K"], ["A", "Q"], True, True, 0.0),
        (["10", "9"], ["10", "6", "10"], False, True, 1.0),
        (["10", "2", "K"], ["5"], False, True, -1.0),
        (["10", "7"], ["10", "7"], False, True, 0.0),
        (["10", "7"], ["10", "8"], False, True, -1.0),
    ],
)
def test_what_a_hand_pays(
    player: list[Rank], dealer: list[Rank], natural: bool, sab: bool, reward: float
) -> None:
    assert payout(player, dealer, natural=natural, sab=sab) == reward


def test_the_dealer_draws_to_seventeen_and_shows_it_all() -> None:
    env = BlackjackEnvironment()
    for seed in range(500):
        first, last = play(env, lambda seen: "stand", seed=seed)
        assert len(first.dealer_cards) == 1 and last.dealer_cards[:1] == first.dealer_cards
        assert Hand.of(last.dealer_cards).total >= 17
        assert Hand.of(last.dealer_cards[:-1]).total < 17
        assert last.legal_actions == [] and first.legal_actions == ["hit", "stand"]


def test_who_never_stands_goes_bust_and_sees_one_card_of_the_dealer() -> None:
    env = BlackjackEnvironment()
    for seed in range(200):
        *before, last = play(env, lambda seen: "hit", seed=seed)
        assert (last.reward, last.outcome, len(last.dealer_cards)) == (-1.0, "lose", 1)
        assert last.player_total > 21 >= before[-1].player_total
        assert [seen.reward for seen in before] == [None] + [0.0] * (len(before) - 1)


def test_the_text_says_what_the_fields_say() -> None:
    env = BlackjackEnvironment()
    task = env.get_task("train", 0)
    first = env.reset(task=task, seed=1)
    assert " ".join(first.player_cards) in first.text and "Hit or stand?" in first.text
    last = env.step(STAND)
    assert " ".join(last.dealer_cards) in last.text
    assert {"win": "You win", "lose": "You lose", "draw": "draw"}[last.outcome or ""] in last.text


# ------------------------------------------------------------------ hidden cards, seeds


def test_the_hidden_card_is_private_and_no_observation_depends_on_it() -> None:
    env = BlackjackEnvironment()
    by_sight: dict[str, set[str]] = {}
    for seed in range(4000):
        first = env.reset(seed=seed)
        hidden = env.state.dealer_hidden
        assert hidden is not None
        by_sight.setdefault(first.model_dump_json(), set()).add(hidden)
    assert max(map(len, by_sight.values())) > 5
    assert "dealer_hidden" not in public_view(env.state)


def test_the_seed_determines_the_hand_in_another_process_too() -> None:
    env = BlackjackEnvironment()
    seeds = [0, 1, -1, 2**70]
    expected = [play(env, stand_at(17), seed=seed)[-1].model_dump_json() for seed in seeds]
    code = (
        "from blackjack_env.server.blackjack_environment import BlackjackEnvironment as E\n"
        "from blackjack_env import BlackjackAction as A\n"
        "env = E()\n"
        "for seed in (0, 1, -1, 2**70):\n"
        "    seen = env.reset(seed=seed)\n"
        "    while not seen.done:\n"
        "        seen = env.step(A(action='hit' if seen.player_total < 17 else 'stand'))\n"
        "    print(seen.model_dump_json())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.splitlines() == expected
    assert len(set(expected)) == len(seeds)


def test_without_a_seed_hands_differ_and_no_other_generator_is_touched() -> None:
    random.seed(0)
    before = random.getstate()
    env = BlackjackEnvironment()
    assert len({env.reset().text for _ in range(50)}) > 20
    assert random.getstate() == before


# ------------------------------------------------------------------ tasks


def test_the_splits_have_no_situation_in_common() -> None:
    env = BlackjackEnvironment()
    splits = {split: env.list_tasks(split) for split in env.list_splits()}
    ids = [task.id for tasks in splits.values() for task in tasks]
    assert len(ids) == len(set(ids)) == 550  # 55 pairs of values, 10 values of the dealer's card
    assert env.num_tasks("train") > 3 * env.num_tasks("test") > 240
    assert env.get_task_range("test", 2, 5) == splits["test"][2:5]


def test_a_task_fixes_what_is_seen_and_the_seed_the_rest() -> None:
    env = BlackjackEnvironment()
    for split in env.list_splits():
        for task in env.list_tasks(split):
            first = env.reset(task=task.id, seed=1)
            assert tuple(first.player_cards) == task.player_cards
            assert first.dealer_cards == [task.dealer_card]
            assert env.state.task == task.id
            assert env.reset(task=task.model_dump(mode="json"), seed=1) == first
    hands = {play(env, stand_at(17), task="6-10-vs-9", seed=s)[-1].text for s in range(50)}
    again = {play(env, stand_at(17), task="6-10-vs-9", seed=s)[-1].text for s in range(50)}
    assert hands == again and len(hands) > 20


@pytest.mark.parametrize("index", [-1, 550])
def test_a_task_that_is_not_there_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        BlackjackEnvironment().get_task("train", index)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"task": "10-6-vs-9"}, "10-6-vs-9"),
        ({"task": {}}, "task"),
        ({"task": [1]}, "task"),
        ({"natural": 1}, "natural"),
        ({"sab": "yes"}, "sab"),
        ({"seed": "1"}, "seed"),
        ({"seed": True}, "seed"),
    ],
)
def test_a_wrong_argument_of_reset_is_refused_and_changes_nothing(
    options: dict[str, Any], field: str
) -> None:
    env = BlackjackEnvironment()
    env.reset(seed=1)
    before = env.snapshot()
    with pytest.raises(Refused, match=field):
        env.reset(**options)
    assert env.snapshot() == before


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(Refused, match="validation"):
        BlackjackEnvironment().list_tasks("validation")


def test_nothing_happens_without_a_hand() -> None:
    env = BlackjackEnvironment()
    for call in (lambda: env.step(HIT), env.render, env.snapshot):
        with pytest.raises(Refused, match="before reset"):
            call()
    play(env, stand_at(17), seed=1)
    before = env.snapshot()
    with pytest.raises(Refused, match="after done"):
        env.step(HIT)
    assert env.snapshot() == before


# ------------------------------------------------------------------ snapshots and pictures


def test_a_stored_hand_goes_on_anywhere() -> None:
    env, elsewhere = BlackjackEnvironment(natural=True, sab=False), BlackjackEnvironment()
    for seed in range(50):
        env.reset(seed=seed, task="2-3-vs-9")
        env.step(HIT)
        elsewhere.restore(env.snapshot())
        assert elsewhere.state == env.state
        assert env.step(STAND) == elsewhere.step(STAND)
        assert env.snapshot() == elsewhere.snapshot()
        assert env.render() == elsewhere.render()


WRONG: list[dict[str, Any]] = [
    {"shoe": []},
    {"shoe": ["A"] * 4},
    {"shoe": ["X"] * 43},
    {"hits": 5},
    {"hits": -1},
    {"stood": True, "hits": 2},
    {"task": "nothing"},
    {"task": "2-3-vs-9"},
    {"natural": "perhaps"},
    {"more": 1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_bytes_are_refused_and_change_nothing(wrong: dict[str, Any]) -> None:
    env = BlackjackEnvironment()
    env.reset(task="10-10-vs-5", seed=1)
    before = json.loads(env.snapshot())
    before["shoe"][4:] = ["5"] * 39  # so that two hits are a bust
    env.restore(json.dumps(before).encode())
    stored = env.snapshot()
    for data in (json.dumps({**before, **wrong}).encode(), b"", b"\xff", b"[]"):
        with pytest.raises(ValueError):
            env.restore(data)
    assert env.snapshot() == stored


def test_a_picture_of_the_table_changes_nothing_and_hides_what_is_hidden() -> None:
    env = BlackjackEnvironment()
    env.reset(task="6-10-vs-9", seed=0)
    before = env.snapshot()
    svg = env.render()
    assert svg.startswith("<svg") and svg.count("<rect") == 1 + 4 and ">?</text>" in svg
    assert env.snapshot() == before
    env.step(STAND)
    assert ">?</text>" not in env.render()


def test_the_picture_of_the_readme_is_drawn_by_render() -> None:
    env = BlackjackEnvironment()
    env.reset(task="6-10-vs-9", seed=0)
    assert (HERE.parent / "table.svg").read_text() == env.render()
