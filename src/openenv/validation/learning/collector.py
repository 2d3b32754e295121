"""Collection at the learning level: a small learner practices in the subject."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openenv.client.background import run as run_async
from openenv.errors import OpenEnvError
from openenv.validation.check_factory import MissingEvidence
from openenv.validation.context import Startup, ValidationRun
from openenv.validation.evidence import episode_reward
from openenv.validation.learner import (
    Candidates,
    LearningReport,
    LearningSettings,
    learn,
    schema_candidates,
)
from openenv.validation.oracle import Oracle, OracleError, read_oracle
from openenv.validation.runtime.evidence import ServerSurface
from openenv.validation.semantic.evidence import FloorEpisodes, ShownSolutions

__all__ = ["ReferenceRewards", "collect_learning"]


@dataclass(frozen=True)
class ReferenceRewards:
    """Rewards to compare a learner's with.

    Attributes:
        oracle: The reward of the worst solution; None if there is none.
        floor: The reward of doing nothing; None if unknown.
    """

    oracle: float | None = None
    floor: float | None = None


def collect_learning(run: ValidationRun) -> None:
    """Train a learner and record the result as evidence; needs the runtime level's evidence."""
    startup, surface = run.evidence.get(Startup), run.evidence.get(ServerSurface)
    if startup is None or not startup.is_running or surface is None:
        return
    unseen = run.evidence.get(MissingEvidence) or MissingEvidence()
    run.evidence.put(unseen)
    run.evidence.put(_references(run))
    try:
        with contextlib.ExitStack() as stack:
            oracle = _oracle(run, surface)
            if oracle is not None:
                stack.enter_context(oracle)
            run.evidence.put(_run_learner(run, surface, oracle))
    except (OpenEnvError, ValueError) as error:
        unseen.record(LearningReport, f"the learner could not play: {error}")


def _oracle(run: ValidationRun, surface: ServerSurface) -> Oracle | None:
    """Return the package's oracle, which may hold settings for the learner, or None."""
    declared = run.manifest.capabilities.oracle
    if declared is None:
        return None
    try:
        return read_oracle(declared, run.root, surface.plan)
    except OracleError:
        return None  # `semantic.oracle_max` says so


def _run_learner(
    run: ValidationRun, surface: ServerSurface, oracle: Oracle | None
) -> LearningReport:
    told: Mapping[str, Any] = oracle.learning if oracle is not None else {}
    base = LearningSettings()
    settings = LearningSettings.of(
        told,
        reset=surface.plan.options,
        iterations=max(1, run.options.learning_episodes // (base.groups * base.samples)),
        seconds=run.options.timeout_s,
    )
    candidates: Candidates = schema_candidates(surface.action_space, run.options.seed)
    if oracle is not None and oracle.has_function("candidates"):
        assert oracle.program is not None
        candidates = oracle.program.policy("candidates")  # type: ignore[assignment]
    run.tell(f"letting {settings.seeds} small learners practise")

    def tell(done: int, total: int) -> None:
        run.tell(f"learning: {done} of {total} updates")

    url = run.running.base_url
    return run_async(learn(url, candidates, settings, seed=run.options.seed, tell=tell))


def _references(run: ValidationRun) -> ReferenceRewards:
    solutions, floor = run.evidence.get(ShownSolutions), run.evidence.get(FloorEpisodes)
    shown = [
        episode_reward(one.transcript, one.spec) for one in (solutions.shown if solutions else ())
    ]
    idle = [episode_reward(one, floor.spec) for one in floor.transcripts] if floor else []
    return ReferenceRewards(
        min((value for value in shown if value is not None), default=None),
        max((value for value in idle if value is not None), default=None),
    )
