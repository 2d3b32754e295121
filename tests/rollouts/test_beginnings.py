"""What the rollouts of a group have shown first is kept, within bounds, and compared."""

from __future__ import annotations

import pytest
from support.memory import MIB, kept_below

from openenv.rollouts.beginnings import MOST, Beginnings, UnequalBeginnings


def test_so_many_groups_are_remembered_and_the_oldest_is_forgotten_first() -> None:
    beginnings, neighbour = Beginnings("dice"), Beginnings("cards")
    neighbour.saw("first", "one")
    for number in range(MOST + 1):
        beginnings.saw(f"group {number}", "one")
    beginnings.saw("group 0", "other")  # it is not known any more
    with pytest.raises(UnequalBeginnings, match="begin differently in dice"):
        beginnings.saw(f"group {MOST}", "other")
    with pytest.raises(UnequalBeginnings, match="begin differently in cards"):
        neighbour.saw("first", "other")


def test_what_they_have_shown_is_kept_up_to_so_many_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("openenv.rollouts.beginnings.MOST_CHARACTERS", 4 * MIB)
    beginnings = Beginnings("dice")
    with kept_below(16 * MIB):
        for number in range(64):
            beginnings.saw(f"group {number}", f"{number}" * MIB)
    beginnings.saw("one", "x")
    with pytest.raises(UnequalBeginnings):
        beginnings.saw("one", "y")
    beginnings.saw("large", "x" * 5 * MIB)  # alone larger than all that is kept
    beginnings.saw("large", "y" * 5 * MIB)
    beginnings.saw("one", "x")
    with pytest.raises(UnequalBeginnings):
        beginnings.saw("one", "y")
