"""Judges of rewards, which check that rewards are numbers and match the declared meaning."""

from __future__ import annotations

import math
from collections.abc import Iterator

from openenv.reward import RewardSpec, adds_up
from openenv.validation.evidence import Moment, number_of
from openenv.validation.manifest import AnyManifest, describe_plan
from openenv.validation.report import QUOTED_FAULTS, Judgment, accept, conclude, reject, skip
from openenv.validation.runtime.evidence import Replays

ROUNDING = 1e-9


def judge_reward_well_formed(manifest: AnyManifest, replays: Replays) -> Judgment:
    """Check that every reward is a finite number in the declared range, or null with a reason."""
    baseline = replays.baseline
    if not baseline.steps:
        errors = baseline.errors or ["no step was answered"]
        return reject(*errors, remediation=describe_plan(manifest))
    spec = baseline.spec
    wrong = [
        f"{baseline.name(moment)}: {fault}"
        for moment in baseline.moments
        for fault in _reward_faults(moment, *manifest.reward.range, spec)
    ]
    rewards = [moment.reward for moment in baseline.steps]
    if not wrong:
        return accept(rewards=rewards)
    return reject(
        *wrong[:QUOTED_FAULTS],
        remediation="return a finite number within validation.reward.range, or None with a reason: "
        "scored(observation, Score(unscored='...'))",
        rewards=[repr(one) if number_of(one) is None else one for one in rewards],
    )


def _reward_faults(
    moment: Moment, low: float, high: float, spec: RewardSpec | None
) -> Iterator[str]:
    reward = moment.reward
    if reward is None:
        if moment.is_reset or moment.reward_info.get("unscored"):
            return
        if spec is not None and spec.kind == "terminal" and not moment.is_done:
            return
        yield "the reward is null, and nothing says why"
    elif number_of(reward) is None:
        yield f"the reward is {reward!r:.80}; expected a number"
    elif not low - ROUNDING <= reward <= high + ROUNDING:
        yield f"the reward is {reward}, which is not in the declared range {low:g} to {high:g}"


DECLARE = (
    'declare what rewards mean: REWARD = RewardSpec("terminal", range=(0.0, 1.0), '
    'components=("correct",)) on the environment\'s class (openenv.reward)'
)


def judge_rubric_introspectable(manifest: AnyManifest, replays: Replays) -> Judgment:
    """Check that a reset returns the reward specification, with named components."""
    first = replays.baseline.first
    if first is None:
        errors = replays.baseline.errors or ["no reset was answered"]
        return reject(*errors, remediation=describe_plan(manifest))
    told = first.reward_info.get("spec")
    spec = replays.baseline.spec
    if told is None:
        return reject("reset does not tell what rewards mean", remediation=DECLARE)
    if spec is None:
        return reject(f"what reset tells cannot be read: {told!r:.200}")
    if not spec.components:
        return reject("the reward has no named parts", remediation=DECLARE, spec=told)
    return accept(f"{spec.kind}, of {', '.join(spec.components)}", spec=told)


def judge_reward_attribution(manifest: AnyManifest, replays: Replays) -> Judgment:
    """Check that every nonzero reward names components."""
    spec = replays.baseline.spec
    known = set(spec.components) if spec is not None else set()
    wrong, attributed = [], 0
    for moment in replays.baseline.steps:
        parts = moment.reward_info.get("components")
        where = replays.baseline.name(moment)
        if isinstance(parts, dict) and parts:
            attributed += 1
            if unknown := sorted(parts.keys() - known):
                wrong.append(f"{where}: the part {unknown[0]!r} is not one that reset told of")
        elif number_of(moment.reward):
            wrong.append(f"{where}: a reward of {moment.reward} says nothing of its parts")
    if wrong:
        return reject(
            *wrong[:QUOTED_FAULTS],
            remediation="score by a rubric with named children, or "
            "scored(observation, Score(value, {'part': value}))",
        )
    return accept(attributed_steps=attributed)


def judge_reward_contract(manifest: AnyManifest, replays: Replays) -> Judgment:
    """Check that rewards match the specification: kind, range, components and missing rewards."""
    baseline = replays.baseline
    spec = baseline.spec
    if baseline.first is None:
        return skip("no reset was answered; see rubric_introspectable")
    if spec is None:
        return skip("reset does not tell what rewards mean", remediation=DECLARE)
    wrong = [
        f"{baseline.name(moment)}: {fault}"
        for moment in baseline.steps
        for fault in _contract_faults(moment, spec)
    ]
    cure = "keep to REWARD, or declare there what rewards really are"
    return conclude(wrong, cure, spec=spec.as_data())


def _contract_faults(moment: Moment, spec: RewardSpec) -> Iterator[str]:
    reward, info = moment.reward, moment.reward_info
    parts = info.get("components")
    if number_of(reward) is None:
        if parts:
            yield "there are parts of a reward that is none"
        return
    if info.get("unscored"):
        yield f"the reward is {reward}, and {str(info['unscored'])!r:.80} says why there is none"
    low, high = spec.range or (-math.inf, math.inf)
    if not low - ROUNDING <= reward <= high + ROUNDING:
        yield f"the reward {reward} is not in its range {low:g} to {high:g}"
    if isinstance(parts, dict) and parts:
        if any(number_of(part) is None for part in parts.values()):
            yield f"a part is no number: {parts!r:.120}"
        elif not adds_up(reward, parts):
            yield f"the parts {parts!r:.120} add up to {math.fsum(parts.values()):g}, not {reward}"
    if spec.kind == "terminal" and not moment.is_done and reward != 0:
        yield f"a terminal reward of {reward} before the end of the episode"
