"""Letting a small learner practise in the subject."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openenv.client.background import run as run_async
from openenv.errors import OpenEnvError
from openenv.validation.evidence import worth
from openenv.validation.judging import Unseen
from openenv.validation.learner import (
    Candidates,
    LearningReport,
    LearningSettings,
    learn,
    schema_candidates,
)
from openenv.validation.oracle import Oracle, OracleError, read_oracle
from openenv.validation.run import Run, Startup
from openenv.validation.runtime.seen import Surface
from openenv.validation.semantic.seen import Floor, Solutions

__all__ = ["References", "collect_learning"]


@dataclass(frozen=True)
class References:
    """What a learner's rewards are held against.

    Attributes:
        oracle: What the worst of the solutions is worth; None where there is none.
        floor: What doing nothing is worth; None where that is not known.
    """

    oracle: float | None = None
    floor: float | None = None


def collect_learning(run: Run) -> None:
    """Have a learner play, as evidence of the run; it needs what the runtime level collected."""
    startup, surface = run.evidence.get(Startup), run.evidence.get(Surface)
    if startup is None or not startup.is_running or surface is None:
        return
    unseen = run.evidence.get(Unseen) or Unseen()
    run.evidence.put(unseen)
    run.evidence.put(_references(run))
    try:
        with contextlib.ExitStack() as stack:
            oracle = _oracle(run, surface)
            if oracle is not None:
                stack.enter_context(oracle)
            run.evidence.put(_learned(run, surface, oracle))
    except (OpenEnvError, ValueError) as error:
        unseen.note(LearningReport, f"the learner could not play: {error}")


def _oracle(run: Run, surface: Surface) -> Oracle | None:
    """What a package says of learning, in its oracle's file."""
    declared = run.manifest.capabilities.oracle
    if declared is None:
        return None
    try:
        return read_oracle(declared, run.root, surface.plan)
    except OracleError:
        return None  # `semantic.oracle_max` says so


def _learned(run: Run, surface: Surface, oracle: Oracle | None) -> LearningReport:
    told: Mapping[str, Any] = oracle.learning if oracle is not None else {}
    base = LearningSettings()
    settings = LearningSettings.of(
        told,
        reset=surface.plan.options,
        iterations=max(1, run.options.learning_episodes // (base.groups * base.samples)),
        seconds=run.options.timeout_s,
    )
    candidates: Candidates = schema_candidates(surface.action_space, run.options.seed)
    if oracle is not None and oracle.does("candidates"):
        assert oracle.program is not None
        candidates = oracle.program.policy("candidates")  # type: ignore[assignment]
    run.tell(f"letting {settings.seeds} small learners practise")

    def tell(done: int, total: int) -> None:
        run.tell(f"learning: {done} of {total} updates")

    url = run.running.base_url
    return run_async(learn(url, candidates, settings, seed=run.options.seed, tell=tell))


def _references(run: Run) -> References:
    solutions, floor = run.evidence.get(Solutions), run.evidence.get(Floor)
    shown = [worth(one.transcript, one.spec) for one in (solutions.shown if solutions else ())]
    idle = [worth(one, floor.spec) for one in floor.transcripts] if floor else []
    return References(
        min((value for value in shown if value is not None), default=None),
        max((value for value in idle if value is not None), default=None),
    )
