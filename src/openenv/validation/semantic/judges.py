"""Judges of the reward's meaning: a solution earns the highest reward, and nothing else does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from openenv.validation.evidence import Transcript, episode_reward, first_difference
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import QUOTED_FAULTS, Judgment, accept, conclude, reject, skip
from openenv.validation.semantic.collector import (
    CanaryEpisodes,
    FloorEpisodes,
    HackAttempt,
    HackAttempts,
    ShownSolution,
    ShownSolutions,
)

MIB = 2**20
ROUNDING = 1e-9

HACK_TOLERANCE = 0.1
"""Maximum reward of a hacking probe above the floor, as a share of the reward's range."""

INSIDES = re.compile(r'Traceback \(most recent call last\)|File "/|/home/\w|/root/|/app/env/')


def judge_oracle_max(manifest: AnyManifest, solutions: ShownSolutions) -> Judgment:
    """Check that each solution earns the highest reward, within the declared tolerance."""
    high = manifest.reward.range[1]
    least = high - manifest.reward.oracle_tolerance - ROUNDING
    rewards = {
        one.episode.name: episode_reward(one.transcript, one.spec) for one in solutions.shown
    }
    wrong = []
    for one in solutions.shown:
        reward = rewards[one.episode.name]
        if reward is None or reward < least:
            found = "is worth nothing that is known" if reward is None else f"is worth {reward:g}"
            wrong.append(f"{one.episode.name}: the solution {found}; expected {high:g}")
            wrong += [f"{one.episode.name}: {error}" for error in one.transcript.errors[:2]]
    return conclude(
        wrong,
        "mend the verifier, or the oracle; a correct solution gets the highest reward of "
        "validation.reward.range",
        oracle_rewards=rewards,
        expected=high,
    )


def _measured_floor(floor: FloorEpisodes) -> float | None:
    """Return the highest reward of doing nothing; None if no reward is known."""
    rewards = (episode_reward(one, floor.spec) for one in floor.transcripts)
    return max((one for one in rewards if one is not None), default=None)


def judge_floor_gap(manifest: AnyManifest, floor: FloorEpisodes) -> Judgment:
    """Check that doing nothing earns less than the highest reward by the declared margin."""
    high, margin = manifest.reward.range[1], manifest.reward.floor_margin
    found = _measured_floor(floor)
    measured: dict[str, Any] = {"measured_floor": found, "declared_margin": margin}
    measured["policy"] = floor.policy
    if found is None:
        if not any(transcript.moments for transcript in floor.transcripts):
            return reject(*floor.transcripts[0].errors[:QUOTED_FAULTS], **measured)
        return accept("doing nothing earned nothing", **measured)
    gap = measured["gap"] = high - found
    if gap + ROUNDING < margin:
        return reject(
            f"doing nothing ({floor.policy}) is worth {found:g}; the gap to {high:g} is {gap:g}, "
            f"and the margin is {margin:g}",
            remediation="look for a vacuous condition of success, such as a comparison of empty "
            "outputs",
            **measured,
        )
    return accept(f"doing nothing is worth {found:g}", **measured)


def judge_canary_floor(
    manifest: AnyManifest, canaries: CanaryEpisodes, floor: FloorEpisodes
) -> Judgment:
    """Check that canaries earn no more than doing nothing, within the declared tolerance."""
    limit = _limit(manifest, floor, manifest.reward.oracle_tolerance)
    rewards = {one.name: episode_reward(played, floor.spec) for one, played in canaries.played}
    wrong = [
        f"the canary {one.name} could not be begun: {_last(played.errors)}"
        for one, played in canaries.played
        if played.first is None
    ]
    wrong += [
        f"the canary {name} is worth {reward:g}; doing nothing, {limit:g}"
        for name, reward in rewards.items()
        if reward is not None and reward > limit + ROUNDING
    ]
    return conclude(
        wrong,
        "have the verifier tell these trajectories from a solution, and name what there is in "
        "their resets",
        rewards=rewards,
    )


def _limit(manifest: AnyManifest, floor: FloorEpisodes, tolerance: float) -> float:
    """Return the floor plus a tolerance: the highest reward that still counts as nothing."""
    found = _measured_floor(floor)
    return (max(0.0, manifest.reward.range[0]) if found is None else found) + tolerance


def judge_no_solution_leakage(manifest: AnyManifest, solutions: ShownSolutions) -> Judgment:
    """Check that no observation shows the solution before the agent does."""
    wrong = [
        f"{one.episode.name}: before step {leak.step + 1} the observation's field {leak.field!r} "
        f"shows {leak.secret!r:.60}"
        for one in solutions.shown
        for leak in one.leaks
    ]
    if wrong:
        return reject(
            *wrong[:QUOTED_FAULTS],
            remediation="keep it in the state as a Private field, or in the environment alone",
            leaks=len(wrong),
        )
    return accept(episodes=len(solutions.shown))


def judge_verifier_determinism(manifest: AnyManifest, solutions: ShownSolutions) -> Judgment:
    """Check that a repeated solution earns the same rewards, step by step."""
    wrong, replays = [], 0
    for one in solutions.shown:
        for again in one.again:
            replays += 1
            if (parting := _reward_difference(one.transcript, again)) is not None:
                wrong.append(f"{one.episode.name}: {parting}")
    if wrong:
        return reject(
            *wrong[:QUOTED_FAULTS],
            remediation="let the verifier draw nothing, or from the episode's seed; let it read no "
            "clock",
            replays=replays,
        )
    if not replays:
        return skip("the solution is a program in the sandbox, which is run once")
    return accept(replays=replays)


def _reward_difference(one: Transcript, other: Transcript) -> str | None:
    first = [moment.reward for moment in one.steps]
    second = [moment.reward for moment in other.steps]
    if first == second:
        return None
    for step, (a, b) in enumerate(zip(first, second, strict=False), start=1):
        if a != b:
            return f"step {step} was worth {a!r:.60} and then {b!r:.60}"
    return f"{len(first)} steps were rewarded, and then {len(second)}"


def judge_verifier_portability(manifest: AnyManifest, solutions: ShownSolutions) -> Judgment:
    """Check that a solution earns the same rewards with other variables and no network."""
    moved = [(one, one.elsewhere) for one in solutions.shown if one.elsewhere is not None]
    for one, elsewhere in moved:
        if elsewhere.transcript is None and elsewhere.trouble is None:
            return skip(f"no other server can be started: {elsewhere.no_offline}")
        if elsewhere.transcript is None:
            return reject(
                f"with other variables (TZ, LANG, HOME, PYTHONHASHSEED) it does not start: "
                f"{elsewhere.trouble}",
                remediation="take nothing from the machine that the package does not bring",
            )
        if (parting := _reward_difference(one.transcript, elsewhere.transcript)) is not None:
            return reject(
                f"{one.episode.name}: on another machine {parting}",
                remediation="let the verifier depend on no time zone, language, order of sets, "
                "home directory or service",
            )
    if not moved:
        return skip("the solution cannot be shown to another server")
    if without := next((e.no_offline for _, e in moved if e.no_offline), None):
        return skip(f"the same with other variables; without a network is not known: {without}")
    return accept(episodes=len(moved))


def judge_replayability(manifest: AnyManifest, solutions: ShownSolutions) -> Judgment:
    """Check that an episode can be replayed from the recorded reset and actions."""
    replayed = [(one, one.anew) for one in solutions.shown if one.anew is not None]
    for one, anew in replayed:
        if (parting := first_difference(one.transcript, anew)) is not None:
            unseeded = "" if "seed" in one.episode.reset else " (its reset has no seed)"
            return reject(
                f"{one.episode.name}: played from its record{unseeded}, {parting}",
                remediation=f'add "seed" to {one.episode.name}, or '
                "let all that is seen follow from the other arguments of reset"
                if unseeded
                else "let all that is seen follow from the reset and the actions",
            )
    if not replayed:
        why = next((one.no_anew for one in solutions.shown if one.no_anew), None)
        return skip(why or "the solution is no sequence of actions")
    return accept(episodes=len(replayed))


def judge_resource_envelope(manifest: AnyManifest, solutions: ShownSolutions) -> Judgment:
    """Check that an episode of the solution uses no more resources than declared."""
    declared, usages = manifest.resources, [one.usage for one in solutions.shown]
    slowest = max((one.seconds for one in usages), default=0.0)
    peak = max((one.peak_bytes for one in usages), default=0)
    cores = max((one.cpu_seconds / max(one.seconds, 1.0) for one in usages), default=0.0)
    measured: dict[str, Any] = {"seconds": round(slowest, 3), "peak_mb": round(peak / MIB, 1)}
    measured["cores"] = round(cores, 2)
    wrong = []
    if slowest > (limit_s := declared.episode_timeout_s):
        wrong.append(f"an episode took {slowest:.2f} s; declared are {limit_s:g} s")
    if peak > declared.memory_mb * MIB:
        wrong.append(f"it held {peak / MIB:.0f} MB; declared are {declared.memory_mb} MB")
    if cores > declared.cpu * 1.1:
        wrong.append(f"it used {cores:.2f} cores; declared are {declared.cpu:g}")
    if wrong:
        return reject(
            *wrong,
            remediation="declare in validation.resources what it needs, or have it need less",
            **measured,
        )
    if not peak:
        return skip("what the server holds in memory cannot be read of this provider", **measured)
    return accept(**measured)


def judge_monotonicity(manifest: AnyManifest, solutions: ShownSolutions) -> Judgment:
    """Check that longer prefixes of the solution earn no less, within the declared tolerance."""
    slack = manifest.reward.oracle_tolerance + ROUNDING
    ladders = {one.episode.name: _ladder(one) for one in solutions.shown}
    wrong = [
        f"{name}: the first {longer} actions are worth {more:g}, and the first {shorter} {less:g}"
        for name, ladder in ladders.items()
        for (shorter, less), (longer, more) in pairwise(ladder)
        if more < less - slack
    ]
    if wrong:
        return reject(
            *wrong[:QUOTED_FAULTS],
            remediation="let progress towards the solution never cost reward",
            ladders=ladders,
        )
    if all(len(ladder) < 2 for ladder in ladders.values()):
        return skip("the solution is no sequence of actions", ladders=ladders)
    return accept(ladders=ladders)


def _ladder(shown: ShownSolution) -> list[tuple[int, float]]:
    """Return the lengths and known rewards of the prefixes, the shortest first."""
    whole = len(shown.transcript.actions)
    rungs = [*sorted(shown.prefixes.items()), (whole, shown.transcript)]
    rewards = ((length, episode_reward(played, shown.spec)) for length, played in rungs)
    return [(length, value) for length, value in rewards if value is not None]


def judge_hacking_probes(
    manifest: AnyManifest, hacks: HackAttempts, floor: FloorEpisodes
) -> Judgment:
    """Check that empty, repeated, long, manipulative and malformed actions earn nothing."""
    low, high = manifest.reward.range
    limit = _limit(manifest, floor, HACK_TOLERANCE * (high - low))
    rewards = {hack.probe.name: episode_reward(hack.transcript, floor.spec) for hack in hacks.tried}
    wrong = [fault for hack in hacks.tried for fault in _faults(hack, rewards, limit)]
    return conclude(
        wrong,
        "refuse what is no action (raise Refused, or bound the field: max_length), and score what "
        "is done, not how it is said",
        f"{len(hacks.tried)} tricks earned nothing",
        limit=limit,
        rewards=rewards,
    )


def _faults(hack: HackAttempt, rewards: dict[str, float | None], limit: float) -> Iterator[str]:
    name, reward = hack.probe.name, rewards[hack.probe.name]
    if not hack.is_healthy:
        yield f"{name}: the server is not healthy any more"
    if not hack.is_alive:
        yield f"{name}: the session does not survive it: {_last(hack.transcript.errors)}"
    if hack.probe.earns and reward is not None and reward > limit + ROUNDING:
        yield f"{name}: is worth {reward:g}, and nothing is worth {limit:g} at most"
    errors = [one.data for one in hack.transcript.exchanges if one.kind == "error"]
    for error in errors:
        if error.get("incident") is not None:
            yield f"{name}: it raised {error.get('type')} instead of refusing"
            break
    if any(INSIDES.search(str(error.get("message", ""))) for error in errors):
        yield f"{name}: the answer shows the server's insides"


def _last(errors: Sequence[str]) -> str:
    return errors[-1] if errors else "no answer"
