"""What frames say, read strictly, and where two episodes part."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openenv.reward import RewardSpec
from openenv.validation.evidence import (
    Exchange,
    InvalidJSON,
    Transcript,
    episode_reward,
    first_difference,
    strict_json,
)


def exchange(kind: str, sent: Any, answered: str, **data: Any) -> Exchange:
    request = {"type": kind} if kind == "state" else {"type": kind, "data": sent}
    return Exchange(json.dumps(request), json.dumps({"type": answered, "data": data}), 0.001)


def reset(spec: RewardSpec | None = None, **observation: Any) -> Exchange:
    metadata = {} if spec is None else {"reward_info": {"spec": spec.as_data()}}
    frame = {"observation": observation, "reward": None, "done": False, "metadata": metadata}
    return exchange("reset", {"seed": 1}, "observation", **frame)


def step(reward: Any, *, done: bool = False, info: Any = None, **observation: Any) -> Exchange:
    metadata = {} if info is None else {"reward_info": info}
    frame = {"observation": observation, "reward": reward, "done": done, "metadata": metadata}
    return exchange("step", {"say": "a"}, "observation", **frame)


def state(**fields: Any) -> Exchange:
    return exchange("state", None, "state", **fields)


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', '{"a": 1, "a": 2}', "{", "[" * 100_000])
def test_what_is_no_json_as_the_rfc_has_it_is_told(text: str) -> None:
    with pytest.raises(InvalidJSON):
        strict_json(text)


def test_a_frame_that_is_no_json_is_an_error_and_no_observation() -> None:
    frame = Exchange(
        '{"type":"reset","data":{}}', '{"type":"observation","data":{"reward":NaN}}', 0
    )
    assert frame.kind == ""
    assert frame.error is not None and "NaN" in frame.error
    assert Transcript((frame,)).moments == ()


def test_states_belong_to_the_reset_or_step_before_them() -> None:
    transcript = Transcript((reset(), state(step_count=0), step(0.5), state(step_count=1)))
    assert [len(moment.states) for moment in transcript.moments] == [1, 1]
    assert transcript.steps[0].states[0].data == {"step_count": 1}


@pytest.mark.parametrize(
    ("kind", "rewards", "expected"),
    [
        ("per_step", [0.25, 0.5], 0.75),
        ("terminal", [None, 0.5], 0.5),
        ("cumulative", [1.0, 3.0], 3.0),
    ],
)
def test_an_episode_is_worth_what_the_kind_of_its_rewards_says(
    kind: Any, rewards: list[float | None], expected: float
) -> None:
    transcript = Transcript((reset(RewardSpec(kind)), *(step(reward) for reward in rewards)))
    assert episode_reward(transcript) == expected


def test_an_episode_that_could_not_be_scored_is_worth_nothing_that_is_known() -> None:
    unscored = step(None, done=True, info={"unscored": "the judge did not answer"})
    assert episode_reward(Transcript((reset(RewardSpec("terminal")), step(0.0), unscored))) is None
    assert episode_reward(Transcript((reset(), unscored))) is None


def test_true_is_no_number() -> None:
    assert episode_reward(Transcript((reset(), step(True)))) is None


def test_two_episodes_part_where_a_value_first_differs() -> None:
    one = Transcript((reset(board=[1, 2]), step(0.5, board=[1, 2])))
    other = Transcript((reset(board=[1, 2]), step(0.5, board=[1, 3])))
    parting = first_difference(one, other)
    assert parting is not None
    assert parting.startswith("step (exchange 1): observation.board[1]")
    assert first_difference(one, one) is None


def test_an_episode_that_goes_on_longer_is_another_one() -> None:
    one = Transcript((reset(), step(0.5)))
    assert first_difference(one, Transcript((*one.exchanges, step(0.5)))) is not None


def test_the_name_of_an_episode_and_the_id_of_an_incident_make_no_other_episode() -> None:
    failing = [
        exchange("step", {}, "error", code="EXECUTION_ERROR", message=f"incident {i}", incident=i)
        for i in ("a", "b")
    ]
    one = Transcript((reset(), state(episode_id="x", step_count=0), failing[0]))
    other = Transcript((reset(), state(episode_id="y", step_count=0), failing[1]))
    assert first_difference(one, other) is None
