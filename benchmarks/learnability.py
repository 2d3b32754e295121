"""Results of a small learner in five environments, one of which is noise.

    python benchmarks/learnability.py [--only NAME] [--seed N] [--plot] [--write]

The learner is that of ``openenv validate --learn`` (`openenv.validation.learner`): REINFORCE with
the advantages of GRPO, and a softmax that is linear in hashed features. It plays over the wire,
with many sessions at once. A process of its own serves each environment. The planted noise is
blackjack whose reward is a pseudorandom function of the seed and the moves: reproducible, but not
learnable.

In coding the learner writes no programs: for each of two tasks it chooses among seven programs, of
which one solves the task (a contextual bandit). In chess it chooses among the legal moves of four
mates in one.

The settings were found by trials with the seed 0. The published results use another seed, with
which nothing had been tried.

With `--write` the plot goes to docs/pictures/learnability.svg and the figures to
benchmarks/results/learnability.json; `--plot` draws what was written before.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from blackjack_env.models import BlackjackAction, BlackjackObservation
from blackjack_env.server.blackjack_environment import BlackjackEnvironment
from openenv.environment import scored
from openenv.providers.process import ProcessProvider
from openenv.reward import RewardSpec, Score
from openenv.validation.actions import ActionSpace
from openenv.validation.learner import (
    Candidates,
    LearningReport,
    LearningSettings,
    learn,
    schema_candidates,
)
from openenv.validation.probes import ProbeView
from openenv.validation.wire import fetch_page

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "learnability.svg"
RESULT = ROOT / "benchmarks" / "results" / "learnability.json"


class NoiseEnvironment(BlackjackEnvironment):
    """Blackjack that pays a pseudorandom reward from -1 to 1, independent of the result."""

    REWARD = RewardSpec("terminal", range=(-1.0, 1.0), components=("drawn",))

    def reset(self, seed: int | None = None, **arguments: Any) -> BlackjackObservation:  # type: ignore[override]
        """Deal a hand."""
        self._drawn = hashlib.blake2b(str(seed).encode(), digest_size=8)
        return super().reset(seed, **arguments)

    def step(  # type: ignore[override]  # no **kwargs, as its base
        self, action: BlackjackAction
    ) -> BlackjackObservation:
        """Play on, and score the end by a hash of the seed and the moves."""
        observation = super().step(action)
        self._drawn.update(action.action.encode())
        if not observation.done:
            return observation
        drawn = int.from_bytes(self._drawn.digest(), "big") / 2**63 - 1.0
        return scored(observation, Score(drawn, {"drawn": drawn}))


PROGRAMS = (
    "",
    "def run_lengths(text):\n    return []",
    "def run_lengths(text):\n    return [(c, text.count(c)) for c in text]",
    "def run_lengths(text):\n    from itertools import groupby\n"
    "    return [(c, len(list(run))) for c, run in groupby(text)]",
    "def running_maximum(numbers):\n    return numbers",
    "def running_maximum(numbers):\n    return [max(numbers)] * len(numbers)",
    "def running_maximum(numbers):\n"
    "    return [max(numbers[: i + 1]) for i in range(len(numbers))]",
)


def programs(view: ProbeView) -> Sequence[dict[str, Any]]:
    """Return the programs to choose from in coding."""
    return [{"code": program, "submit": True} for program in PROGRAMS]


@dataclass(frozen=True)
class Subject:
    """An environment in which the learner is tested."""

    target: str
    settings: LearningSettings
    title: str
    candidates: Candidates | None = None


SUBJECTS = {
    "blackjack": Subject(
        str(ROOT / "envs" / "blackjack_env"),
        LearningSettings(iterations=30, groups=32, evaluation=512, entropy=0.6),
        "Blackjack",
    ),
    "2048": Subject(
        str(ROOT / "envs" / "game_2048_env"),
        LearningSettings(
            reset={"max_moves": 30}, iterations=12, groups=6, evaluation=64, discount=0.9
        ),
        "2048, 30 moves",
    ),
    "chess": Subject(
        str(ROOT / "envs" / "chess_env"),
        LearningSettings(
            tasks=tuple(f"mate_in_1-{i:03d}" for i in range(4)),
            iterations=16,
            evaluation=64,
            entropy=0.2,
        ),
        "Chess, mates in one",
    ),
    "coding": Subject(
        str(ROOT / "envs" / "coding_env"),
        LearningSettings(
            tasks=("run_lengths", "running_maximum"),
            iterations=6,
            groups=2,
            evaluation=8,
            seconds=90.0,
        ),
        "Coding, choosing",
        programs,
    ),
    "noise": Subject(
        f"{Path(__file__).resolve()}:NoiseEnvironment",
        LearningSettings(iterations=30, groups=32, evaluation=512, entropy=0.6),
        "Planted noise",
    ),
}


def measured(subject: Subject, seed: int) -> LearningReport:
    """Serve the environment, and let the learner practice."""
    # Sandboxes with namespaces need bubblewrap; the programs that run here are the ones above.
    variables = {"CODING_REQUIRE": os.environ.get("CODING_REQUIRE", "process")}
    with ProcessProvider(subject.target, env_vars=variables).launch() as server:
        server.wait_for_ready()
        space = ActionSpace(fetch_page(server.url, "/schema").object["action"])
        candidates = subject.candidates or schema_candidates(space)
        return asyncio.run(learn(server.url, candidates, subject.settings, seed=seed))


def figures(report: LearningReport) -> dict[str, Any]:
    """Return the figures of a report that are stored."""
    first = report.first_groups_with_signal / max(1, report.first_groups)
    return {
        **asdict(report),
        "is_learnable": report.is_learnable,
        "first_share_with_signal": first,
        "share_with_signal": report.share_with_signal,
    }


# ------------------------------------------------------------------ the plot

LEARNED, RANDOM = "#0072b2", "#d55e00"  # Okabe and Ito


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw a panel for each environment: the curve with its interval, and random play."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "openenv",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(14.0, 3.1), layout="constrained")
        panels = figure.subplots(1, len(found))
        for panel, (name, one) in zip(panels, found.items(), strict=True):
            _panel(panel, SUBJECTS[name].title, one)
        panels[0].set_ylabel("mean reward of an episode")
        panels[3].legend(loc="lower right", frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _panel(panel: Any, title: str, one: dict[str, Any]) -> None:
    curve, (low, high) = one["curve"], one["interval"]
    random = sum(one["before"]) / len(one["before"])
    after = sum(one["after"]) / len(one["after"])
    panel.fill_between(curve["episodes"], curve["low"], curve["high"], color=LEARNED, alpha=0.15)
    panel.plot(curve["episodes"], curve["mean"], color=LEARNED, label="while learning")
    panel.axhline(random, color=RANDOM, linestyle="--", label="at random")
    panel.axhline(after, color=LEARNED, linestyle=":", label="after learning")
    verdict = "learnable" if one["is_learnable"] else "not learnable"
    panel.set_title(
        f"{title}: {verdict}\n{_short(one['improvement'])} ({_short(low)} to {_short(high)})\n"
        f"groups with signal: {one['first_share_with_signal']:.0%} at first",
        fontsize=9,
    )
    panel.set_xlabel("episodes")


def _short(value: float) -> str:
    return f"{value:+.1f}" if abs(value) >= 2 else f"{value:+.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=SUBJECTS, help="measure this one")
    parser.add_argument("--seed", type=int, default=20261123, help="of everything that is drawn")
    parser.add_argument("--plot", action="store_true", help="draw what was written before")
    parser.add_argument("--write", action="store_true", help="write the figures and the plot")
    asked = parser.parse_args()
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    chosen = [] if asked.plot else [asked.only] if asked.only else list(SUBJECTS)
    for name in chosen:
        known[name] = one = figures(measured(SUBJECTS[name], asked.seed))
        print(
            f"{name:10} {sum(one['before']) / len(one['before']):8.3f} at random, "
            f"{sum(one['after']) / len(one['after']):8.3f} learned, "
            f"{one['improvement']:+.3f} ({one['interval'][0]:+.3f} to {one['interval'][1]:+.3f}), "
            f"p {one['p_value']:.1e}, groups with signal {one['first_share_with_signal']:.0%} at "
            f"first and {one['share_with_signal']:.0%} in all, {one['episodes']} episodes, "
            f"{one['seconds']:.0f} s" + (f", stopped {one['stopped']}" if one["stopped"] else "")
        )
    ordered = {name: known[name] for name in SUBJECTS if name in known}
    if asked.write:
        RESULT.write_text(json.dumps(ordered, indent=1) + "\n")
    if asked.write or asked.plot:
        draw(ordered, PICTURE)


if __name__ == "__main__":
    main()
