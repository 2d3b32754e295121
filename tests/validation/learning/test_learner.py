"""A small learner gets better where there is something to be learned, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.servers import serving
from validation.subjects.good_env.models import SignAction, SignObservation, SignState
from validation.subjects.good_env.server.environment import WORDS, SignpostEnvironment
from validation.subjects.good_env.server.serving import application

from openenv.server import create_app
from openenv.validation.actions import ActionSpace
from openenv.validation.learner import (
    LearningReport,
    LearningSettings,
    features,
    learn,
    schema_candidates,
)
from openenv.validation.probes import ProbeView

QUICK = LearningSettings(seeds=4, iterations=6, groups=4, evaluation=48)


def words(view: ProbeView) -> Sequence[dict[str, Any]]:
    return [{"say": word} for word in (*WORDS.values(), "please")]


def learned(app: Any, settings: LearningSettings = QUICK) -> LearningReport:
    with serving(app) as url:
        return asyncio.run(learn(url, words, settings))


@pytest.mark.extended("validates a whole subject; other tests of the check are quicker")
@pytest.mark.slow
def test_it_learns_what_can_be_learned() -> None:
    report = learned(application(None, {}))
    assert report.is_learnable
    assert report.interval[0] > 0.3
    assert report.p_value < 0.01
    assert report.share_with_signal > 0.5
    assert report.curve.mean[-1] > report.curve.mean[0]
    assert report.curve.episodes == (32, 64, 96, 128, 160, 192)
    # 4 learners: 6 updates of 32 episodes, and 48 before and after.
    assert report.episodes == 4 * (6 * 32 + 2 * 48)


@pytest.mark.extended("validates a whole subject; other tests of the check are quicker")
@pytest.mark.slow
def test_noise_has_signal_in_every_group_and_teaches_nothing() -> None:
    report = learned(application("noise", {}))
    assert report.share_with_signal > 0.95
    assert not report.is_learnable
    assert abs(report.improvement) < 0.15


@pytest.mark.extended("validates a whole subject; other tests of the check are quicker")
@pytest.mark.slow
def test_a_reward_that_is_always_the_same_has_no_signal() -> None:
    report = learned(application("learning.group_signal", {}))
    assert report.groups_with_signal == 0
    assert report.interval == (0.0, 0.0)
    assert not report.is_learnable


def test_it_is_the_same_again_by_the_same_seed() -> None:
    settings = LearningSettings(seeds=2, iterations=2, groups=2, samples=4, evaluation=8)
    first, second = (learned(application(None, {}), settings) for _ in range(2))
    assert replace(first, seconds=0.0) == replace(second, seconds=0.0)


def test_it_plays_tasks_in_turn() -> None:
    settings = LearningSettings(
        tasks=("train-0", "train-1"), seeds=2, iterations=1, groups=2, samples=4, evaluation=4
    )
    assert learned(application(None, {}), settings).unscored == 0


class OneAtATime(SignpostEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = False


def test_a_server_of_one_session_is_played_in_one() -> None:
    settings = LearningSettings(seeds=2, iterations=1, groups=2, samples=4, evaluation=4)
    app = create_app(OneAtATime, SignAction, SignObservation, state_cls=SignState)
    assert learned(app, settings).episodes == 2 * (8 + 8)


def test_a_state_that_there_is_not_before_a_reset_is_no_hindrance() -> None:
    class Late(SignpostEnvironment):
        @property
        def state(self) -> SignState:
            if not self.signs:
                raise RuntimeError("reset() first")
            return super().state

    app = create_app(Late, SignAction, SignObservation, env_name="late")
    assert learned(app, LearningSettings(seeds=2, iterations=1, groups=1, evaluation=2)).steps


def test_it_stops_when_its_time_is_over_and_says_so() -> None:
    settings = LearningSettings(seeds=2, iterations=50, groups=2, evaluation=4, seconds=0.0)
    report = learned(application(None, {}), settings)
    assert report.stopped == "after 1 of 50 updates"
    assert len(report.curve.mean) == 1


def test_settings_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError, match="learning_rate"):
        LearningSettings.of({"learning_rate": 1.0})
    assert LearningSettings.of({"tasks": ["a"]}, iterations=3).tasks == ("a",)


def test_legal_actions_are_chosen_from_where_an_observation_names_them() -> None:
    space = ActionSpace(SignAction.model_json_schema())
    candidates = schema_candidates(space)
    assert candidates(ProbeView({"legal_words": ["a", "b"]}, 0)) == [{"say": "a"}, {"say": "b"}]
    drawn = candidates(ProbeView({}, 0))
    assert drawn == candidates(ProbeView({}, 1))
    assert 2 < len(drawn) <= 12


def test_features_tell_situations_apart_and_leave_metadata_out() -> None:
    one = features({"board": [1, 0], "text": "a b", "metadata": {"at": 1}})
    assert one == features({"board": [1, 0], "text": "a b", "metadata": {"at": 2}})
    other = features({"board": [0, 1], "text": "a b"})
    assert one != other
    assert set(one) & set(other), "the words, which are the same"
