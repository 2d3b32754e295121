"""What each step, and each token, gets of what an episode is worth."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openenv.rewards.credit import (
    CREDITS,
    discounted,
    last_token,
    resolve_credit,
    spread_over_tokens,
    terminal,
    uniform,
)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("terminal", [0.0, 0.0, 2.0]),
        ("uniform", [2 / 3] * 3),
        ("discounted:0.5", [0.5, 1.0, 2.0]),
        ("discounted", [2 * 0.99**2, 2 * 0.99, 2.0]),
    ],
)
def test_a_credit_assignment_goes_by_its_name(name: str, shares: list[float]) -> None:
    assert resolve_credit(name)(2.0, 3) == pytest.approx(shares)


@pytest.mark.parametrize("credit", [*CREDITS.values(), discounted(0.0)])
def test_an_episode_without_steps_has_no_shares(credit: object) -> None:
    assert callable(credit) and credit(1.0, 0) == []


def test_a_function_is_a_credit_assignment_of_its_own() -> None:
    assert resolve_credit(terminal) is terminal


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("unifrom", "did you mean 'uniform'"),
        ("discounted:2", "from 0 to 1"),
        ("discounted:x", "discounted:x"),
        ("uniform:0.5", "uniform:0.5"),
        ("", "terminal"),
    ],
)
def test_a_name_that_is_none_is_refused(name: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        resolve_credit(name)


@pytest.mark.parametrize("gamma", [-0.01, 1.01, float("nan")])
def test_a_discount_outside_of_its_bounds_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match="gamma"):
        discounted(gamma)


@given(st.floats(-1e9, 1e9), st.integers(1, 200), st.floats(0, 1))
def test_shares_are_as_many_as_steps_and_add_up_where_they_should(
    reward: float, steps: int, gamma: float
) -> None:
    assert sum(terminal(reward, steps)) == reward
    assert sum(uniform(reward, steps)) == pytest.approx(reward)
    shares = discounted(gamma)(reward, steps)
    assert len(shares) == steps and shares[-1] == reward
    assert all(abs(a) <= abs(b) for a, b in itertools.pairwise(shares))


def test_the_tokens_of_a_step_share_its_reward() -> None:
    assert last_token([1.0, 2.0], [2, 3]) == [[0.0, 1.0], [0.0, 0.0, 2.0]]
    assert spread_over_tokens([1.0, 3.0], [2, 3]) == [[0.5, 0.5], [1.0, 1.0, 1.0]]


def test_a_step_for_which_nothing_was_written_has_no_token_to_give_it_to() -> None:
    assert last_token([1.0], [0]) == [[]] == spread_over_tokens([1.0], [0])


@pytest.mark.parametrize("share", [last_token, spread_over_tokens])
def test_rewards_and_tokens_are_of_the_same_steps(share: object) -> None:
    assert callable(share)
    with pytest.raises(ValueError, match="zip"):
        share([1.0], [1, 2])
