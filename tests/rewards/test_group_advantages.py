"""How much better than its group an episode has done."""

from __future__ import annotations

import pytest

from openenv.rewards.credit import group_advantages


def test_an_advantage_is_over_the_mean_of_the_group_in_standard_deviations() -> None:
    found = group_advantages([0.0, 1.0, 5.0, 5.0], 2)
    assert found == pytest.approx([-0.5 / (0.5**0.5 + 1e-4), 0.5 / (0.5**0.5 + 1e-4), 0.0, 0.0])


def test_it_may_be_left_unscaled() -> None:
    assert group_advantages([0.0, 1.0, 5.0], 3, is_scaled=False) == [-2.0, -1.0, 3.0]


def test_a_reward_that_nobody_knows_counts_for_nothing() -> None:
    assert group_advantages([1.0, None, 3.0], 3, is_scaled=False) == [-1.0, 0.0, 1.0]
    assert group_advantages([7.0, None], 2) == [0.0, 0.0]
    assert group_advantages([None, None], 2) == [0.0, 0.0]


def test_groups_come_out_even() -> None:
    assert group_advantages([], 4) == []
    with pytest.raises(ValueError, match="3 rewards cannot be split into groups of 2"):
        group_advantages([1.0, 2.0, 3.0], 2)
    with pytest.raises(ValueError, match="split into groups of 0"):
        group_advantages([1.0], 0)
