"""What differs between replays, and whose fault that is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from validation.subjects.threads import GOOD

from openenv.validation.evidence import Exchange, Transcript
from openenv.validation.manifest import AnyManifest, JudgePin
from openenv.validation.oracle import OracleEpisode
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
from openenv.validation.runtime.evidence import JudgedReplays, Replays, SeedTrials
from openenv.validation.runtime.reproducibility import (
    judge_episode_determinism,
    judge_episode_isolation,
    judge_judged_determinism,
    judge_seed_control,
)
from openenv.validation.runtime.rewards import (
    judge_reward_contract,
    judge_reward_well_formed,
    judge_rubric_introspectable,
)
from openenv.validation.semantic.collector import ShownSolution, ShownSolutions
from openenv.validation.semantic.judges import judge_replayability
from openenv.validation.types import CheckStatus

PASS, FAIL, SKIP = CheckStatus.PASS, CheckStatus.FAIL, CheckStatus.SKIP


def manifest(variance: float | None = None) -> AnyManifest:
    declared = OpenEnvYamlParser().parse(GOOD)
    if variance is None:
        return declared
    reward = declared.reward.model_copy(update={"variance_tolerance": variance})
    capabilities = declared.capabilities.model_copy(update={"llm_judged": True})
    judge = JudgePin(model="m", version="1")
    update = {"reward": reward, "capabilities": capabilities, "judge": judge}
    return declared.model_copy(update=update)


def episode(shown: Any, ignored: list[str] | None = None) -> Transcript:
    metadata = {} if ignored is None else {"ignored_arguments": ignored}
    frame = {"observation": {"shown": shown}, "reward": 0.0, "done": False, "metadata": metadata}
    answer = json.dumps({"type": "observation", "data": frame})
    kinds = ({"type": "reset", "data": {"seed": 1}}, {"type": "step", "data": {}})
    return Transcript(tuple(Exchange(json.dumps(kind), answer, 0.0) for kind in kinds))


SAME = Replays(episode(1), episode(1), episode(1), episode(1), episode(1))


@pytest.mark.parametrize(
    ("replays", "determinism", "isolation"),
    [
        (SAME, PASS, PASS),
        # Another each time: also in the first session of another server.
        (replace(SAME, anew=episode(2), anew_second=episode(3)), FAIL, PASS),
        # The second session is another one than the first, on every server: something was left.
        (replace(SAME, second=episode(2), anew_second=episode(2)), PASS, FAIL),
        (replace(SAME, after_others=episode(2)), PASS, FAIL),
        # The second sessions of two servers differ: chance, which the first ones happened to hide.
        (replace(SAME, second=episode(2), anew_second=episode(3)), FAIL, FAIL),
        (replace(SAME, anew=None, anew_second=None), SKIP, PASS),
        (replace(SAME, second=episode(2), anew=None), FAIL, FAIL),
    ],
)
def test_chance_is_told_from_what_was_left_over(
    replays: Replays, determinism: CheckStatus, isolation: CheckStatus
) -> None:
    found = judge_episode_determinism(manifest(), replays)
    assert found.status is determinism
    left = judge_episode_isolation(manifest(), replays)
    assert left.status is isolation


FOUR = {seed: episode(seed) for seed in range(4)}


@pytest.mark.parametrize(
    ("replays", "resets", "expected"),
    [
        (SAME, SeedTrials(FOUR, (episode(7), episode(8))), PASS),
        # Nothing is left to chance: a seed has nothing to decide.
        (SAME, SeedTrials(dict.fromkeys(range(4), episode(1)), (episode(1), episode(1))), PASS),
        # It only matters whether there is a seed.
        (SAME, SeedTrials(dict.fromkeys(range(4), episode(1)), (episode(7), episode(8))), FAIL),
        # It says itself that it takes none.
        (replace(SAME, baseline=episode(1, ["seed"])), SeedTrials(FOUR, (episode(1),)), FAIL),
        # The same seed gives other episodes: what seeds do cannot be told.
        (replace(SAME, second=episode(2)), SeedTrials(FOUR, (episode(7),)), SKIP),
    ],
)
def test_a_seed_that_decides_nothing_is_told(
    replays: Replays, resets: SeedTrials, expected: CheckStatus
) -> None:
    found = judge_seed_control(manifest(), replays, resets)
    assert found.status is expected


REFUSED = json.dumps({"type": "error", "data": {"code": "EXECUTION_ERROR", "message": "no task"}})


def test_a_reset_that_the_plan_got_wrong_names_the_plan() -> None:
    ask = json.dumps({"type": "reset", "data": {"task": "gone"}})
    refused = Transcript((Exchange(ask, REFUSED, 0.0),))
    replays = replace(SAME, baseline=refused)
    for found in (
        judge_episode_determinism(manifest(), replays),
        judge_seed_control(manifest(), replays, SeedTrials(FOUR, ())),
        judge_reward_well_formed(manifest(), replays),
        judge_rubric_introspectable(manifest(), replays),
    ):
        assert found.status is FAIL
        assert "no task" in found.evidence[0]
        assert found.remediation is not None
        assert "validation/runtime.json" in found.remediation
    contract = judge_reward_contract(manifest(), replays)
    assert (contract.status, contract.remediation) == (SKIP, None)


@pytest.mark.parametrize("reset", [{"task": "a"}, {"task": "a", "seed": 1}])
def test_an_episode_without_a_seed_that_differs_when_replayed_is_told_to_take_one(
    reset: dict[str, Any],
) -> None:
    shown = ShownSolution(OracleEpisode(reset, name="EPISODES[0]"), episode(1), None)
    found = judge_replayability(manifest(), ShownSolutions((replace(shown, anew=episode(2)),)))
    assert found.status is FAIL
    assert ('add "seed" to EPISODES[0]' in str(found.remediation)) is ("seed" not in reset)


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (JudgedReplays((0.5,) * 20), PASS),
        (JudgedReplays((0.4, 0.6) * 10), PASS),  # variance 0.01
        (JudgedReplays((0.0, 1.0) * 10), FAIL),  # variance 0.25
        (JudgedReplays((0.5,) * 19, unscored=1), SKIP),
    ],
)
def test_where_a_model_judges_the_variance_is_bounded(
    judged: JudgedReplays, expected: CheckStatus
) -> None:
    found = judge_judged_determinism(manifest(0.02), judged)
    assert found.status is expected
