"""Whether the same inputs lead to the same episode, and to no other session's."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from openenv.validation.evidence import Transcript, first_difference
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import CheckResult, failed, passed, skipped
from openenv.validation.runtime.collecting import JUDGED_REPLAYS
from openenv.validation.runtime.seen import Judged, Replays, Resets, SideBySide

__all__ = [
    "judge_episode_determinism",
    "judge_episode_isolation",
    "judge_judged_determinism",
    "judge_seed_control",
    "judge_session_isolation",
]

SEEDED = (
    "draw everything from one generator that reset makes of its seed (random.Random(seed)), and "
    "send no times, addresses or identifiers of chance"
)
KEEP_ALIVE = "see in the server's log why it ended, or what it waits for"
APART = "keep what belongs to an episode on the instance, and begin all of it anew in reset"


def judge_episode_determinism(
    check_id: str, manifest: AnyManifest, replays: Replays
) -> CheckResult:
    """The same seed and actions give the same episode, on a server that was started anew too."""
    if not replays.baseline.steps or replays.baseline.stopped is not None:
        return failed(check_id, *(replays.baseline.errors or ["no step was answered"]))
    if replays.anew is None or replays.anew_second is None:
        here = first_difference(replays.baseline, replays.second)
        if here is not None:
            return failed(check_id, f"in another session: {here}", remediation=SEEDED)
        why = replays.no_anew or "no second server was started"
        return skipped(check_id, f"the same in another session; of another server: {why}")
    pairs = {
        "on a server that was started anew": (replays.baseline, replays.anew),
        "in its second session": (replays.second, replays.anew_second),
    }
    for where, (one, other) in pairs.items():
        parting = first_difference(one, other)
        if parting is not None:
            return failed(check_id, f"{where}: {parting}", remediation=SEEDED)
    return passed(check_id, steps=len(replays.baseline.steps), replays=2)


def judge_judged_determinism(check_id: str, manifest: AnyManifest, judged: Judged) -> CheckResult:
    """Where a language model judges, the same episode is worth nearly the same each time."""
    bound = manifest.reward.variance_tolerance or 0.0
    if len(judged.rewards) < JUDGED_REPLAYS:
        return skipped(
            check_id,
            f"{len(judged.rewards)} of {JUDGED_REPLAYS} replays were scored, which is too few",
        )
    variance = statistics.pvariance(judged.rewards)
    measured = {"variance": variance, "bound": bound, "replays": len(judged.rewards)}
    if variance <= bound:
        return passed(check_id, f"variance {variance:.4g}, bound {bound:.4g}", **measured)
    return failed(
        check_id,
        f"the rewards of {len(judged.rewards)} replays have variance {variance:.4g}, and "
        f"variance_tolerance is {bound:.4g}",
        remediation="pin the judge's model, version and temperature, or have it asked several "
        "times and take the median",
        **measured,
    )


def judge_seed_control(
    check_id: str, manifest: AnyManifest, replays: Replays, resets: Resets
) -> CheckResult:
    """A reset takes its seed, and whatever is left to chance depends on it."""
    first = replays.baseline.first
    if first is None:
        return failed(
            check_id,
            *(replays.baseline.errors or ["reset with a seed was not answered"]),
            remediation="take seed in reset(self, seed=None, ...)",
        )
    ignored = first.metadata.get("ignored_arguments")
    if isinstance(ignored, list) and "seed" in ignored:
        return failed(
            check_id,
            "reset takes no seed: it came back among the ignored arguments",
            remediation="take seed in reset(self, seed=None, ...)",
        )
    if first_difference(replays.baseline, replays.second) is not None:
        return skipped(check_id, "the same seed gives other episodes; see episode_determinism")
    lost = _first_lost([*resets.seeded.values(), *resets.unseeded])
    if lost is not None:
        return failed(check_id, f"with another seed, or with none, the session broke off: {lost}")
    varies = _kinds(list(resets.unseeded)) > 1
    kinds = _kinds(list(resets.seeded.values()))
    measured = {"seeds": len(resets.seeded), "episodes": kinds, "varies_unseeded": varies}
    if varies and kinds == 1 and len(resets.seeded) > 1:
        return failed(
            check_id,
            f"{len(resets.seeded)} seeds gave one and the same episode, and without a seed "
            "episodes differ",
            remediation="make the generator of the seed's value, and not of whether there is one",
            **measured,
        )
    if kinds == 1:
        return passed(check_id, "nothing is left to chance: seeds make no difference", **measured)
    return passed(check_id, f"{len(resets.seeded)} seeds gave {kinds} episodes", **measured)


def _first_lost(transcripts: Iterable[Transcript]) -> str | None:
    """Why one of some episodes broke off; None where none did."""
    return next((one.stopped for one in transcripts if one.stopped is not None), None)


def _kinds(transcripts: list[Transcript]) -> int:
    """How many different episodes there are among some."""
    different: list[Transcript] = []
    for one in transcripts:
        if all(first_difference(one, other) is not None for other in different):
            different.append(one)
    return len(different)


def judge_episode_isolation(check_id: str, manifest: AnyManifest, replays: Replays) -> CheckResult:
    """Nothing of an episode is left for the next one, in the same session or in another."""
    cases = {
        "after another episode in the same session": replays.after_others,
        "in a session after that one": replays.second,
    }
    for where, transcript in cases.items():
        parting = first_difference(replays.baseline, transcript)
        if parting is not None:
            return failed(
                check_id,
                f"{where} the same seed and actions gave something else: {parting}",
                remediation=APART,
            )
    return passed(check_id, compared=len(cases))


def judge_session_isolation(
    check_id: str, manifest: AnyManifest, replays: Replays, beside: SideBySide
) -> CheckResult:
    """Sessions side by side do not disturb each other."""
    if beside.refused is not None:
        return skipped(check_id, f"the server holds one session at a time: {beside.refused:.200}")
    lost = _first_lost([*beside.alone, *beside.together])
    if lost is not None:
        return failed(
            check_id,
            f"of {len(beside.together)} sessions side by side one broke off: {lost}",
            remediation=KEEP_ALIVE,
        )
    for number, (alone, together) in enumerate(zip(beside.alone, beside.together, strict=True)):
        parting = first_difference(alone, together)
        if parting is not None:
            return failed(
                check_id,
                f"session {number + 1} of {len(beside.together)} side by side saw something else "
                f"than alone: {parting}",
                remediation="keep nothing of an episode on the class or the module, and share no "
                "files, ports or databases between instances",
            )
    return passed(check_id, sessions=len(beside.together))
