"""A sampler is told what came of its tasks, and goes on exactly where a run was killed."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest
from rollouts.worlds import Talk, room_for

from openenv.rollouts import Rollout, RolloutFileError, read_rollouts, rollout
from openenv.rollouts.samplers import sampler_named
from openenv.tasks.curriculum import CurriculumSampler
from openenv.tasks.load import load_tasks
from openenv.tasks.samplers import ShuffledSampler
from openenv.tasks.task import Task

TASKS = [Task(id=f"t{n}", reset={"start": str(n)}, difficulty=float(n % 4)) for n in range(40)]


class Learner:
    """Is right more often the easier a task is; by the seed of the rollout."""

    def reset(self, task: dict[str, Any], seed: int) -> None:
        chance = random.Random(seed).random()
        self.word = "over" if chance < task["difficulty"] / 4 else "wrong"

    def act(self, observation: Any, step: int) -> dict[str, str]:
        return {"word": self.word if step == 0 else "over"}


def right(trajectory: Any) -> float:
    return float(len(trajectory) == 1)


def play(sampler: Any, output: Path | None = None, **options: Any) -> Any:
    return rollout(
        Talk,
        Learner,
        sampler,
        n=4,
        num_tasks=30,
        seed=5,
        concurrency=4,
        output=output,
        trajectory_scorer=right,
        **options,
    )


def curriculum() -> CurriculumSampler:
    return CurriculumSampler(TASKS, group_size=4, seed=2)


def test_a_sampler_is_told_of_every_group() -> None:
    sampler = curriculum()
    run = play(sampler)
    assert len(run) == 120
    assert sampler.groups == 30
    assert sampler.episodes == 120
    assert sampler.signal_groups == run.summary().groups_with_signal


def test_a_sampler_that_ends_ends_the_run() -> None:
    run = rollout(Talk, Learner, ShuffledSampler(TASKS, epochs=2), n=1, trajectory_scorer=right)
    assert len(run) == 80
    assert {r.group for r in run} == {t.id for t in TASKS} | {f"{t.id}.1" for t in TASKS}


class Killed(BaseException):
    """What a run does not survive."""


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 7, 50, 118])
def test_a_sampler_goes_on_exactly_where_the_run_was_killed(tmp_path: Path, after: int) -> None:
    output, seen = tmp_path / "x.jsonl", 0

    def kill(found: Rollout) -> None:
        nonlocal seen
        seen += 1
        if seen == after:
            raise Killed

    with pytest.raises(Killed):
        play(curriculum(), output, on_rollout=kill)
    before = {r.id for r in read_rollouts(output)}
    assert before
    resumed = curriculum()
    run = play(resumed, output, resume=True)
    ids = [r.id for r in run]
    assert len(ids) == len(set(ids)) == 120
    assert before <= set(ids)
    # Told of every group once, whatever was written down of it, and in its own file.
    assert resumed.groups == 30
    assert resumed.episodes == 120
    again = curriculum()
    last = play(again, output, resume=True)
    assert len(last) == 120
    assert again.state_dict() == resumed.state_dict()


@pytest.mark.slow
def test_a_group_that_was_written_but_not_told_of_is_told_of(tmp_path: Path) -> None:
    """As where a run is killed between the two."""
    output = tmp_path / "x.jsonl"
    whole = curriculum()
    play(whole, output)
    journal = tmp_path / "x.jsonl.sampler"
    lines = journal.read_bytes().splitlines(keepends=True)
    told = [n for n, line in enumerate(lines) if b'"told"' in line]
    journal.write_bytes(b"".join(lines[: told[-1]]) + lines[told[-1]][:10])
    resumed = curriculum()
    play(resumed, output, resume=True)
    assert resumed.state_dict() == whole.state_dict()


def test_what_is_needed_to_go_on_has_to_be_there(tmp_path: Path) -> None:
    output = tmp_path / "x.jsonl"
    play(curriculum(), output)
    journal = tmp_path / "x.jsonl.sampler"
    content = journal.read_bytes()
    journal.write_bytes(b'{"half": \n' + content)
    with pytest.raises(RolloutFileError, match="line 1"):
        play(curriculum(), output, resume=True)
    journal.unlink()
    with pytest.raises(RolloutFileError, match="needed to go on"):
        play(curriculum(), output, resume=True)


def test_a_run_whose_disk_was_full_at_once_can_be_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    output = tmp_path / "x.jsonl"
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr("openenv._internal.replacing.os.replace", full)
        play(curriculum(), output)
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]
    assert len(play(curriculum(), output, resume=True)) == 120


@pytest.mark.slow
def test_a_sampler_whose_disk_is_full_goes_on_exactly_there(tmp_path: Path) -> None:
    whole, resumed = curriculum(), curriculum()
    play(whole, tmp_path / "whole.jsonl", keep=lambda _: False)
    output = tmp_path / "x.jsonl"
    with room_for(20_000), pytest.raises(OSError):
        play(curriculum(), output, keep=lambda _: False)
    assert len(play(resumed, output, keep=lambda _: False, resume=True)) == 120
    assert (resumed.groups, resumed.episodes) == (whole.groups, whole.episodes) == (30, 120)


# ------------------------------------------------------------------ by name


def names(name: str, **options: Any) -> list[str]:
    """The first tasks that a sampler of this name gives."""
    sampler = sampler_named(name, load_tasks(TASKS), **options)
    return [task.id for task in sampler.sample(options.get("num_tasks") or 100)]


def test_samplers_have_names() -> None:
    ids = [task.id for task in TASKS]
    assert names("sequential") == ids
    shuffled = names("shuffled", seed=3)
    assert shuffled != ids == sorted(shuffled, key=ids.index)
    assert names("shuffled", seed=3, num_tasks=60)[:40] == shuffled != names("shuffled", seed=4)
    weighted = names("weighted:difficulty", num_tasks=200)
    assert {int(id[1:]) % 4 for id in weighted} == {1, 2, 3}  # 0 weighs nothing
    assert names("weighted:rollouts.test_samplers:second", num_tasks=5) == ["t1"] * 5
    assert len(names("curriculum", group_size=4, num_tasks=9)) == 9
    assert len(names("curriculum:id", group_size=4, num_tasks=9)) == 9


def second(task: Task) -> float:
    return float(task.id == "t1")


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("shufled", {}, "did you mean 'shuffled'"),
        ("weighted", {"num_tasks": 3}, "did you mean 'weighted:FIELD'"),
        ("weighted:difficulty", {}, "never ends"),
        ("weighted:rarity", {"num_tasks": 3}, "task 't0' has no number 'rarity'"),
        ("weighted:rollouts.test_samplers:third", {"num_tasks": 3}, "third"),
        ("curriculum", {"group_size": 4}, "never ends"),
        ("curriculum", {"num_tasks": 3}, "at least 2 rollouts"),
        ("curriculum:colour", {"num_tasks": 3, "group_size": 4}, "key='colour'"),
    ],
)
def test_what_is_no_name_of_a_sampler_is_refused(
    name: str, options: dict[str, int], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        names(name, **options)


@pytest.mark.slow
def test_another_sampler_is_not_gone_on_with(tmp_path: Path) -> None:
    output = tmp_path / "x.jsonl"
    play(curriculum(), output)
    with pytest.raises(RolloutFileError, match="sampler"):
        play(ShuffledSampler(TASKS), output, resume=True)


def test_what_an_earlier_run_has_noted_is_not_written_over_by_mistake(tmp_path: Path) -> None:
    output = tmp_path / "x.jsonl"
    play(curriculum(), output)
    journal = (tmp_path / "x.jsonl.sampler").read_bytes()
    with pytest.raises(FileExistsError):
        play(curriculum(), output)
    assert (tmp_path / "x.jsonl.sampler").read_bytes() == journal


def test_a_group_of_which_a_rollout_had_failed_is_told_of_once(tmp_path: Path) -> None:
    output, is_ill = tmp_path / "x.jsonl", True

    class Ill(Learner):
        def act(self, observation: Any, step: int) -> dict[str, str]:
            if is_ill and self.word == "wrong" and step == 0:
                raise KeyError
            return super().act(observation, step)

    def go(sampler: Any, **options: Any) -> Any:
        given: dict[str, Any] = {"n": 4, "num_tasks": 10, "seed": 5, "concurrency": 2}
        given |= {"output": output, "trajectory_scorer": right, "error_budget": 40}
        return rollout(Talk, Ill, sampler, **given, **options)

    assert go(curriculum()).summary().failed > 0
    is_ill = False
    sampler = curriculum()
    run = go(sampler, resume=True)
    assert run.summary().failed == 0
    assert len(run) == 40
    assert sampler.groups + sampler.unscored_groups == 10


@pytest.mark.slow
def test_what_it_is_told_of_late_is_told_in_the_same_place_whenever_it_goes_on(
    tmp_path: Path,
) -> None:
    """The first group was open when the run was killed, and others after it were not."""
    output, is_slow, seen = tmp_path / "x.jsonl", True, 0

    class Straggler(Learner):
        def reset(self, task: dict[str, Any], seed: int, rollout_id: str) -> None:  # type: ignore[override]
            super().reset(task, seed)
            self.straggles = is_slow and rollout_id == f"{first.id}#0"

        async def act(self, observation: Any, step: int) -> dict[str, str]:  # type: ignore[override]
            if self.straggles:
                await asyncio.sleep(60)  # for as long as the run lasts
            return super().act(observation, step)

    def kill(found: Rollout) -> None:
        nonlocal seen
        seen += 1
        if seen == 60:
            raise Killed

    def go(sampler: Any, **options: Any) -> None:
        given: dict[str, Any] = {"n": 4, "num_tasks": 30, "seed": 5, "concurrency": 1}
        given |= {"output": output, "trajectory_scorer": right}
        rollout(Talk, Straggler, sampler, **(given | options))

    (first,) = curriculum().sample(1)
    with pytest.raises(Killed):
        go(curriculum(), on_rollout=kill, concurrency=4)
    is_slow = False
    resumed, again = curriculum(), curriculum()
    go(resumed, resume=True)
    go(again, resume=True)
    assert resumed.groups == 30
    assert again.state_dict() == resumed.state_dict()
