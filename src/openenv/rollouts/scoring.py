"""Scoring episodes later and elsewhere: stored rollouts and recordings of servers are rescored.

    from openenv.rollouts.scoring import score_file, score_rollouts

    report = score_file("played.jsonl", "scored.jsonl", solved)
    for rollout in score_rollouts(read_rollouts("played.jsonl"), solved): ...

A scorer is a function as in `openenv.rewards.delayed`, or one of `openenv.rewards.external`. It is
called with a `StoredTrajectory`, in which actions and observations are `Fields`, or have the given
models. Earlier scores are kept in ``scored_before``.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from openenv._internal.quoting import first_problem
from openenv.client import background
from openenv.errors import OpenEnvError, Unscored
from openenv.execution.recording import FORMAT as RECORDING_FORMAT
from openenv.reward import Score
from openenv.rewards.credit import Credit, TokenCredit, resolve_credit, terminal
from openenv.rewards.delayed import Trajectory, TrajectoryScorer, score_trajectory_async
from openenv.rewards.external.cache import ScoreCache
from openenv.rewards.external.fields import with_fields
from openenv.rewards.external.limits import BoundedScorer, bounded
from openenv.rewards.external.scorers import scorer_name
from openenv.rollouts.endings import NOTHING_TO_SAY
from openenv.rollouts.episodes import token_rewards
from openenv.rollouts.files import PARQUET, RolloutWriter, format_of, read_header, read_rollouts
from openenv.rollouts.records import FORMAT, Rollout, RolloutHeader, StepRecord
from openenv.tasks.task import Task

__all__ = [
    "ScoringError",
    "ScoringOptions",
    "ScoringReport",
    "StoredTrajectory",
    "read_stored",
    "score_file",
    "score_rollouts",
]

MAX_REASON = 500  # characters
MAX_REASONS = 100
OTHER_REASONS = "other reasons"
AHEAD = 2  # batches begun for each batch that may be scored at a time


class ScoringError(OpenEnvError, ValueError):
    """The file or the scorer is not what was expected; the message gives the reason."""


@dataclass(frozen=True)
class ScoringOptions:
    """Options for scoring stored episodes.

    Attributes:
        credit: Assigns the episode's reward to steps if the scorer does not.
        token_credit: Assigns the reward of a step to tokens; None gives tokens nothing.
        tasks: Returns the task of an id, with private fields that the scorer needs and stored
            rollouts lack; a function or a mapping. None uses the stored tasks.
        action: The model of actions; None for `Fields`.
        observation: The model of observations; None for `Fields`.
        timeout_s: Seconds for one attempt; None for no limit. This option and the next three are
            those of `openenv.rewards.external.bounded`, and are ignored for a bounded scorer.
        retries: Further attempts after a passing failure.
        concurrency: Number of episodes, or batches, scored at a time.
        cache: The cache of scores.
        batch: Number of episodes per call of a batch scorer. A batch may have up to twice as many,
            so that consecutive rollouts of one group are not split.

    Raises:
        ValueError: The credit assignment is unknown, or `batch` is below 1.
    """

    credit: str | Credit = terminal
    token_credit: TokenCredit | None = None
    tasks: Callable[[str], Task | None] | Mapping[str, Task] | None = None
    action: type[BaseModel] | None = None
    observation: type[BaseModel] | None = None
    timeout_s: float | None = 60.0
    retries: int = 2
    concurrency: int = 8
    cache: ScoreCache | str | os.PathLike[str] | int | None = None
    batch: int = 64

    def __post_init__(self) -> None:
        resolve_credit(self.credit)
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, not {self.batch}")

    def limited(self, scorer: TrajectoryScorer) -> BoundedScorer:
        """Return the scorer, bounded by these options."""
        if isinstance(scorer, BoundedScorer):
            return scorer
        return bounded(
            scorer,
            timeout_s=self.timeout_s,
            retries=self.retries,
            concurrency=self.concurrency,
            cache=self.cache,
        )

    def task(self, id: str) -> Task | None:
        """Return the task with an id; None if the id is unknown."""
        if isinstance(self.tasks, Mapping):
            return self.tasks.get(id)
        return None if self.tasks is None else self.tasks(id)


class StoredTrajectory(Trajectory[Any, Any]):
    """A stored episode.

    Attributes:
        rollout: The whole record, including the policy's conversation (``rollout.messages``) and
            its data for each step (``rollout.steps[n].policy``).
    """

    def __init__(self, rollout: Rollout, options: ScoringOptions) -> None:
        first = _observation(rollout.first, StepRecord(), options, "what reset showed")
        super().__init__(first=first, task=_task(rollout, options))
        self.rollout = rollout
        for number, step in enumerate(rollout.steps, 1):
            action = _made(step.action, options.action, f"step {number}: its action")
            where = f"step {number}: its observation"
            self.add(action, _observation(step.observation, step, options, where), step.reward)


def _task(rollout: Rollout, options: ScoringOptions) -> Any:
    if options.tasks is not None and rollout.task_id is not None:
        task = options.task(rollout.task_id)
        if task is None:
            raise Unscored(f"there is no task {rollout.task_id!r} among the tasks")
        return task
    if rollout.task is None:
        return None
    try:
        return Task.model_validate(rollout.task)
    except ValidationError:  # the task has another form
        return with_fields(rollout.task)


def _observation(seen: Any, step: StepRecord, options: ScoringOptions, what: str) -> Any:
    """Return an observation with the fields that were stored separately."""
    if not isinstance(seen, dict):
        return seen
    beside = {
        "done": step.done,
        "truncated": step.truncated,
        "reward": step.reward,
        "metadata": step.metadata or {},
    }
    model = options.observation
    if model is not None:
        beside = {name: value for name, value in beside.items() if name in model.model_fields}
    return _made({**beside, **seen}, model, what)


def _made(value: Any, model: type[BaseModel] | None, what: str) -> Any:
    if model is None or value is None:
        return with_fields(value)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise Unscored(f"{what} is no {model.__name__}: {first_problem(error)}") from error


# ------------------------------------------------------------------ scoring


def score_rollouts(
    rollouts: Iterable[Rollout],
    scorer: TrajectoryScorer,
    options: ScoringOptions | None = None,
    *,
    scored_by: str | None = None,
) -> Generator[Rollout, None, None]:
    """Rescore rollouts, several at a time; yield copies in the same order.

    Only a few rollouts are read ahead and held in memory. A rollout that could not be scored has no
    reward, and the reason. A failed rollout is not scored.

    Args:
        rollouts: The rollouts; they are not changed.
        scorer: Scores an episode.
        options: The options.
        scored_by: The scorer's name in the record. Default: the scorer's own name.

    Yields:
        Each rollout with its new score, and the old score appended to ``scored_before``.
    """
    options = options or ScoringOptions()
    limited = options.limited(scorer)
    name = scored_by or limited.name
    pending: deque[futures.Future[list[Rollout]]] = deque()
    size = options.batch if limited.is_batch else 1
    try:
        for batch in _batches(rollouts, size):
            pending.append(background.submit(_scored(batch, limited, options, name)))
            if len(pending) >= AHEAD * options.concurrency:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        for left in pending:
            left.cancel()


def _batches(rollouts: Iterable[Rollout], size: int) -> Iterator[list[Rollout]]:
    """Yield batches of a size, or of up to twice the size so that a group is not split."""
    batch: list[Rollout] = []
    for rollout in rollouts:
        is_full = len(batch) >= size
        is_same = bool(batch and rollout.group) and batch[-1].group == rollout.group
        if is_full and (size == 1 or not is_same or len(batch) >= 2 * size):
            yield batch
            batch = []
        batch.append(rollout)
    if batch:
        yield batch


async def _scored(
    batch: list[Rollout], limited: BoundedScorer, options: ScoringOptions, name: str
) -> list[Rollout]:
    shown = [_shown(rollout, options) for rollout in batch]
    episodes = [one for one in shown if isinstance(one, StoredTrajectory)]
    given = iter(await limited.score_many(episodes) if episodes else [])
    scores = []
    for one in shown:
        if isinstance(one, Score):
            scores.append(one)
        else:
            scores.append(await _credited(next(given), one, options.credit))
    return [
        _with_score(rollout, score, options, name)
        for rollout, score in zip(batch, scores, strict=True)
    ]


async def _credited(score: Score, episode: StoredTrajectory, credit: str | Credit) -> Score:
    return await score_trajectory_async(lambda _: score, episode, credit)


def _shown(rollout: Rollout, options: ScoringOptions) -> StoredTrajectory | Score:
    """Return the episode to score, or a score that gives the reason why it has none."""
    if rollout.outcome == "failed":
        failure = rollout.failures[-1] if rollout.failures else None
        why = rollout.unscored if failure is None else f"{failure.type}: {failure.message}"
        return Score(unscored=f"the rollout failed: {why}"[:MAX_REASON])
    try:
        return StoredTrajectory(rollout, options)
    except Unscored as error:
        return Score(unscored=str(error)[:MAX_REASON])


def _with_score(rollout: Rollout, score: Score, options: ScoringOptions, name: str) -> Rollout:
    """Return a copy with a new score; the old score is kept."""
    before = {
        "scored_by": getattr(rollout, "scored_by", None),
        "reward": rollout.reward,
        "components": rollout.components,
        "unscored": rollout.unscored,
        "step_rewards": rollout.step_rewards,
    }
    unscored = score.unscored
    if score.value is None and unscored is None:
        unscored = NOTHING_TO_SAY
    shares = None if score.step_rewards is None else list(score.step_rewards)
    tokens, why = token_rewards(rollout.steps, shares, options.token_credit)
    return rollout.model_copy(
        update={
            "reward": None if score.value is None else float(score.value),
            "components": {part: float(value) for part, value in score.components.items()},
            "unscored": unscored,
            "step_rewards": shares,
            "token_rewards": tokens,
            "no_token_rewards": why,
            "scored_by": name,
            "scored_before": [*(getattr(rollout, "scored_before", None) or ()), before],
        }
    )


# ------------------------------------------------------------------ files


@dataclass
class ScoringReport:
    """Counts of a scored file.

    Attributes:
        output: The file that was written.
        rollouts: Number of rollouts in the file.
        resumed: Number of rollouts that the file had before.
        scored: Number of rollouts with a reward.
        changed: Number of rollouts whose reward differs from the earlier one, or exists only before
            or only now.
        mean: The mean reward; None without rewards.
        mean_before: The mean of the earlier rewards; None without any.
        unscored: Number of rollouts without a reward, by reason.
        without_token_rewards: Number of rollouts whose tokens should have rewards but do not, by
            reason.
    """

    output: str
    rollouts: int = 0
    resumed: int = 0
    scored: int = 0
    changed: int = 0
    unscored: dict[str, int] = field(default_factory=dict)
    without_token_rewards: dict[str, int] = field(default_factory=dict)
    _sum: float = field(default=0.0, repr=False)
    _sum_before: float = field(default=0.0, repr=False)
    _scored_before: int = field(default=0, repr=False)

    @property
    def mean(self) -> float | None:
        return self._sum / self.scored if self.scored else None

    @property
    def mean_before(self) -> float | None:
        return self._sum_before / self._scored_before if self._scored_before else None

    def note(self, rollout: Rollout) -> None:
        """Count a rollout that was scored."""
        before = (getattr(rollout, "scored_before", None) or [{}])[-1].get("reward")
        self.rollouts += 1
        now = rollout.reward
        if before is None or now is None:
            self.changed += before is not now
        else:
            self.changed += not math.isclose(before, now, rel_tol=1e-9, abs_tol=1e-12)
        if before is not None:
            self._scored_before += 1
            self._sum_before += before
        if rollout.reward is None:
            _count(self.unscored, rollout.unscored or "nobody says why")
        else:
            self.scored += 1
            self._sum += rollout.reward
        if rollout.no_token_rewards:
            _count(self.without_token_rewards, rollout.no_token_rewards)

    def as_data(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        return {
            "output": self.output,
            "rollouts": self.rollouts,
            "resumed": self.resumed,
            "scored": self.scored,
            "changed": self.changed,
            "mean": self.mean,
            "mean_before": self.mean_before,
            "unscored": self.unscored,
            "without_token_rewards": self.without_token_rewards,
        }


def _count(reasons: dict[str, int], why: str) -> None:
    why = why[:200]
    if why not in reasons and len(reasons) >= MAX_REASONS:
        why = OTHER_REASONS
    reasons[why] = reasons.get(why, 0) + 1


def score_file(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    scorer: TrajectoryScorer,
    options: ScoringOptions | None = None,
    *,
    scored_by: str | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Callable[[ScoringReport], object] | None = None,
) -> ScoringReport:
    """Rescore a file, and write the rollouts to another file in the same order.

    Args:
        path: A file of rollouts, or a recording of a server, whose episodes become rollouts.
        output: The file to write.
        scorer: Scores an episode.
        options: The options.
        scored_by: The scorer's name in the records. Default: the scorer's own name.
        resume: Continue an existing output; its rollouts are not scored again.
        force: Replace an existing output.
        progress: Called with the report after each rollout.

    Raises:
        FileExistsError: The output exists, and neither `resume` nor `force` is True.
        OSError: A file cannot be read or written.
        RecordingError: The recording is damaged.
        RolloutFileError: The rollouts are damaged; or the output does not hold rollouts, or was
            scored with other options.
        ScoringError: `path` holds neither rollouts nor a recording, or is the output too; or both
            `resume` and `force` are True.
    """
    options = options or ScoringOptions()
    path, output = Path(path), Path(output)
    if resume and force:
        raise ScoringError("resume and force exclude each other")
    header, rollouts = read_stored(path)
    if output.exists() and os.path.samefile(path, output):
        raise ScoringError(f"{path} is what is to be scored: write to another file")
    limited = options.limited(scorer)
    name = scored_by or limited.name
    report = ScoringReport(str(output))
    if force:
        output.unlink(missing_ok=True)
    scored = _scored_header(header, name, options)
    # Rescoring cannot help a failed rollout, so it stays in the file.
    with RolloutWriter(
        output, scored, resume=resume, keeps_failed=True, on_found=report.note
    ) as writer:
        report.resumed = len(writer.done)
        missing = (rollout for rollout in rollouts if rollout.id not in writer.done)
        found = score_rollouts(missing, limited, options, scored_by=name)
        with contextlib.closing(found):
            for rollout in found:
                writer.write(rollout)
                report.note(rollout)
                if progress is not None:
                    progress(report)
    return report


def _scored_header(header: RolloutHeader, name: str, options: ScoringOptions) -> RolloutHeader:
    """Return the header of a scored file, whose settings a resumed run must match."""
    tokens = options.token_credit
    credit = options.credit
    how = {
        "by": name,
        "credit": credit if isinstance(credit, str) else scorer_name(credit),
        "token_credit": None if tokens is None else scorer_name(tokens),
    }
    before = header.settings.get("scored", [])
    return header.model_copy(update={"settings": {**header.settings, "scored": [*before, how]}})


def read_stored(path: str | os.PathLike[str]) -> tuple[RolloutHeader, Iterator[Rollout]]:
    """Read a file of rollouts, or a recording of a server as rollouts.

    See `openenv.rollouts.recorded` for how recordings become rollouts.

    Raises:
        OSError: The source cannot be read.
        RecordingError: The recording is damaged.
        RolloutFileError: The rollouts are damaged.
        ScoringError: The file holds neither rollouts nor a recording.
    """
    path = Path(path)
    if path.suffix == PARQUET:
        return read_header(path), read_rollouts(path)
    found = format_of(path)
    if found == FORMAT:
        return read_header(path), read_rollouts(path)
    if found == RECORDING_FORMAT:
        from openenv.rollouts.recorded import recorded_rollouts  # it imports the server

        return recorded_rollouts(path)
    raise ScoringError(f"{path} holds neither rollouts nor a recording: it does not begin as one")
