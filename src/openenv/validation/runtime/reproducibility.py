"""Judges of reproducibility and isolation."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from openenv.validation.evidence import Transcript, first_difference
from openenv.validation.manifest import AnyManifest, describe_plan
from openenv.validation.report import Judgment, accept, reject, skip
from openenv.validation.runtime.collector import JUDGED_REPLAYS
from openenv.validation.runtime.evidence import (
    ConcurrentSessions,
    JudgedReplays,
    Replays,
    SeedTrials,
)

SEEDED = (
    "draw everything from one generator that reset makes of its seed (random.Random(seed)), and "
    "send no times, addresses or identifiers of chance"
)


def judge_episode_determinism(manifest: AnyManifest, replays: Replays) -> Judgment:
    """Check that the same seed and actions give the same episode, including on a new server."""
    if not replays.baseline.steps or replays.baseline.stopped is not None:
        errors = replays.baseline.errors or ["no step was answered"]
        return reject(*errors, remediation=describe_plan(manifest))
    if replays.anew is None or replays.anew_second is None:
        if (here := first_difference(replays.baseline, replays.second)) is not None:
            return reject(f"in another session: {here}", remediation=SEEDED)
        why = replays.no_anew or "no second server was started"
        return skip(f"the same in another session; of another server: {why}")
    pairs = {
        "on a server that was started anew": (replays.baseline, replays.anew),
        "in its second session": (replays.second, replays.anew_second),
    }
    for where, (one, other) in pairs.items():
        if (parting := first_difference(one, other)) is not None:
            return reject(f"{where}: {parting}", remediation=SEEDED)
    return accept(steps=len(replays.baseline.steps), replays=2)


def judge_judged_determinism(manifest: AnyManifest, judged: JudgedReplays) -> Judgment:
    """Check that the rewards of an episode scored by a language model vary little."""
    bound = manifest.reward.variance_tolerance or 0.0
    if len(judged.rewards) < JUDGED_REPLAYS:
        count = len(judged.rewards)
        return skip(f"{count} of {JUDGED_REPLAYS} replays were scored, which is too few")
    variance = statistics.pvariance(judged.rewards)
    measured = {"variance": variance, "bound": bound, "replays": len(judged.rewards)}
    if variance <= bound:
        return accept(f"variance {variance:.4g}, bound {bound:.4g}", **measured)
    return reject(
        f"the rewards of {len(judged.rewards)} replays have variance {variance:.4g}, and "
        f"variance_tolerance is {bound:.4g}",
        remediation="pin the judge's model, version and temperature, or have it asked several "
        "times and take the median",
        **measured,
    )


def judge_seed_control(manifest: AnyManifest, replays: Replays, resets: SeedTrials) -> Judgment:
    """Check that reset accepts a seed, and that all randomness depends on the seed."""
    first = replays.baseline.first
    if first is None:
        errors = replays.baseline.errors or ["reset with a seed was not answered"]
        return reject(*errors, remediation=describe_plan(manifest))
    ignored = first.metadata.get("ignored_arguments")
    if isinstance(ignored, list) and "seed" in ignored:
        why = "reset takes no seed: it came back among the ignored arguments"
        return reject(why, remediation="take seed in reset(self, seed=None, ...)")
    if first_difference(replays.baseline, replays.second) is not None:
        return skip("the same seed gives other episodes; see episode_determinism")
    if (lost := _first_lost([*resets.seeded.values(), *resets.unseeded])) is not None:
        return reject(f"with another seed, or with none, the session broke off: {lost}")
    varies = _kinds(list(resets.unseeded)) > 1
    kinds = _kinds(list(resets.seeded.values()))
    measured = {"seeds": len(resets.seeded), "episodes": kinds, "varies_unseeded": varies}
    if varies and kinds == 1 and len(resets.seeded) > 1:
        return reject(
            f"{len(resets.seeded)} seeds gave one and the same episode, and without a seed "
            "episodes differ",
            remediation="make the generator of the seed's value, and not of whether there is one",
            **measured,
        )
    if kinds == 1:
        return accept("nothing is left to chance: seeds make no difference", **measured)
    return accept(f"{len(resets.seeded)} seeds gave {kinds} episodes", **measured)


def _first_lost(transcripts: Iterable[Transcript]) -> str | None:
    return next((one.stopped for one in transcripts if one.stopped is not None), None)


def _kinds(transcripts: list[Transcript]) -> int:
    different: list[Transcript] = []
    for one in transcripts:
        if all(first_difference(one, other) is not None for other in different):
            different.append(one)
    return len(different)


def judge_episode_isolation(manifest: AnyManifest, replays: Replays) -> Judgment:
    """Check that an episode does not affect the next, in the same session or another."""
    cases = {
        "after another episode in the same session": replays.after_others,
        "in a session after that one": replays.second,
    }
    for where, transcript in cases.items():
        if (parting := first_difference(replays.baseline, transcript)) is not None:
            return reject(
                f"{where} the same seed and actions gave something else: {parting}",
                remediation="keep what belongs to an episode on the instance, and begin all of it "
                "anew in reset",
            )
    return accept(compared=len(cases))


def judge_session_isolation(
    manifest: AnyManifest, replays: Replays, beside: ConcurrentSessions
) -> Judgment:
    """Check that concurrent sessions do not disturb each other."""
    if beside.refused is not None:
        return skip(f"the server holds one session at a time: {beside.refused:.200}")
    if (lost := _first_lost([*beside.alone, *beside.together])) is not None:
        return reject(
            f"of {len(beside.together)} sessions side by side one broke off: {lost}",
            remediation="see in the server's log why it ended, or what it waits for",
        )
    for number, (alone, together) in enumerate(zip(beside.alone, beside.together, strict=True)):
        if (parting := first_difference(alone, together)) is not None:
            return reject(
                f"session {number + 1} of {len(beside.together)} side by side saw something else "
                f"than alone: {parting}",
                remediation="keep nothing of an episode on the class or the module, and share no "
                "files, ports or databases between instances",
            )
    return accept(sessions=len(beside.together))
