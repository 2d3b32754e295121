"""Stored rollouts and recordings are scored anew: in order, in bounded memory, resumable."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from rollouts.worlds import Cumulative, PerStep, Terminal, room_for
from support.dice import Dice, DiceEnv, Roll, StoredDice

from openenv import GenericEnvClient, create_app
from openenv.errors import RecordingError, Unscored
from openenv.reward import Score
from openenv.rewards.containers import WeightedSum
from openenv.rewards.credit import last_token, spread_over_tokens
from openenv.rewards.external import Fields, bounded, from_rubric, from_trl
from openenv.rewards.rubric import Rubric
from openenv.rollouts.files import RolloutWriter, read_header, read_rollouts
from openenv.rollouts.lines import RolloutFileError
from openenv.rollouts.records import Failure, Rollout, RolloutHeader, StepRecord
from openenv.rollouts.scoring import (
    ScoringError,
    ScoringOptions,
    read_stored,
    score_file,
    score_rollouts,
)
from openenv.tasks.task import Task
from openenv.types import Action, Observation

pytestmark = pytest.mark.timeout(60)

HEADER = RolloutHeader(environment="words", policy="me", settings={"samples": 2})


def played(number: int, *said: str, **more: Any) -> Rollout:
    """A rollout whose policy said these words."""
    steps = [
        StepRecord(
            action={"word": word},
            observation={"shown": word.upper()},
            reward=0.0,
            done=at == len(said) - 1,
            metadata={"note": at},
            policy={"completion_tokens": len(word)},
        )
        for at, word in enumerate(said)
    ]
    fields: dict[str, Any] = {
        "id": f"t/{number}#0",
        "task_id": f"t/{number}",
        "task": {"id": f"t/{number}", "prompt": "Say it."},
        "first": {"shown": ""},
        "steps": steps,
        "reward": 0.0,
        "components": {"old": 0.0},
    }
    return Rollout(**{**fields, **more})


def stored(path: Path, rollouts: Sequence[Rollout]) -> Path:
    with RolloutWriter(path, HEADER) as writer:
        for rollout in rollouts:
            writer.write(rollout)
    return path


def one(scorer: Any, rollout: Rollout, **options: Any) -> Rollout:
    (scored,) = score_rollouts([rollout], scorer, ScoringOptions(retries=0, **options))
    return scored


def length(trajectory: Any) -> float:
    return float(sum(len(action.word) for action, _ in trajectory))


# ------------------------------------------------------------------ one rollout


def test_a_rollout_gets_its_new_reward_and_keeps_the_old_one() -> None:
    before = played(1, "hi", "there", reward=0.5, step_rewards=[0.5, 0.0])
    after = one(length, before)
    assert (after.reward, after.unscored, after.components) == (7.0, None, {})
    assert after.step_rewards == [0.0, 7.0]
    extra: Any = after
    assert extra.scored_by == "length"
    assert extra.scored_before == [
        {
            "scored_by": None,
            "reward": 0.5,
            "components": {"old": 0.0},
            "unscored": None,
            "step_rewards": [0.5, 0.0],
        }
    ]
    assert (before.reward, after.steps, after.task) == (0.5, before.steps, before.task)
    again: Any = one(lambda trajectory: 1.0, after)
    assert [was["reward"] for was in again.scored_before] == [0.5, 7.0]
    assert Rollout.model_validate_json(after.model_dump_json()) == after


@pytest.mark.parametrize(
    ("credit", "shares"),
    [
        ("terminal", [0.0, 8.0]),
        ("uniform", [4.0, 4.0]),
        ("discounted:0.5", [4.0, 8.0]),
        (lambda reward, steps: [reward] * steps, [8.0, 8.0]),
    ],
    ids=["terminal", "uniform", "discounted", "function"],
)
def test_credit_is_assigned_to_the_steps(credit: Any, shares: list[float]) -> None:
    assert one(length, played(1, "four", "four"), credit=credit).step_rewards == shares


def test_a_credit_assignment_that_fails_leaves_it_unscored() -> None:
    scored = one(length, played(1, "a", "b"), credit=lambda reward, steps: [1.0])
    assert scored.reward is None and scored.unscored is not None
    with pytest.raises(ValueError, match="unifrm"):
        ScoringOptions(credit="unifrm")


def test_components_and_shares_of_the_scorer_are_kept() -> None:
    def judge(trajectory: Any) -> Score:
        return Score(1.0, {"a": 0.25, "b": 0.75}, step_rewards=[0.5, 0.5])

    scored = one(judge, played(1, "a", "b"))
    assert (scored.components, scored.step_rewards) == ({"a": 0.25, "b": 0.75}, [0.5, 0.5])


def raising(error: BaseException) -> Any:
    def scorer(trajectory: Any) -> float:
        raise error

    return scorer


@pytest.mark.parametrize(
    ("scorer", "why"),
    [
        (raising(Unscored("the judge is ill")), "the judge is ill"),
        (raising(KeyError("secret")), "raised KeyError"),
        (raising(StopIteration()), "raised RuntimeError"),
        (lambda trajectory: float("nan"), "finite"),
        (lambda trajectory: "high", "expected a number"),
        (lambda trajectory: [1.0], "1 rewards for 2 steps"),
        (lambda trajectory: None, "nothing to say"),
        (lambda trajectory: Score(unscored="hm"), "hm"),
        (lambda trajectory: trajectory[0][1].bord, "raised AttributeError"),
    ],
)
def test_what_cannot_be_scored_has_no_reward_and_says_why(scorer: Any, why: str) -> None:
    scored = one(scorer, played(1, "a", "b", reward=1.0))
    assert (scored.reward, scored.step_rewards, scored.components) == (None, None, {})
    assert scored.unscored is not None and why in scored.unscored
    assert "secret" not in scored.unscored


def test_one_that_hangs_is_given_up() -> None:
    gate = threading.Event()
    try:
        scored = one(lambda trajectory: gate.wait(20), played(1, "a"), timeout_s=0.05)
    finally:
        gate.set()
    assert "within 0.05 s" in str(scored.unscored)


def test_a_rollout_that_failed_is_not_scored() -> None:
    failure = Failure(type="SessionLost", message="the server died", at="step")
    scored = one(length, played(1, "a", outcome="failed", reward=None, failures=[failure]))
    assert scored.unscored == "the rollout failed: SessionLost: the server died"


# ------------------------------------------------------------------ what the scorer is shown


def test_what_was_stored_is_shown_with_its_fields_as_attributes() -> None:
    def scorer(trajectory: Any) -> float:
        (first_action, first_seen), (_, last_seen) = trajectory
        assert (first_action.word, first_action["word"]) == ("a", "a")
        assert (first_seen.shown, first_seen.done, last_seen.done) == ("A", False, True)
        assert first_seen.metadata == {"note": 0} and first_seen.reward == 0.0
        assert (trajectory.first.shown, trajectory.rewards) == ("", [0.0, 0.0])
        assert isinstance(trajectory.task, Task) and trajectory.task.prompt == "Say it."
        assert trajectory.rollout.steps[0].policy == {"completion_tokens": 1}
        return 1.0

    assert one(scorer, played(1, "a", "b")).unscored is None


class Say(Action):
    word: str


class Shown(Observation):
    shown: str


class Other(Observation):
    board: list[int] = Field(min_length=1)


def test_it_can_be_shown_as_the_models_of_the_environment() -> None:
    def scorer(trajectory: Any) -> float:
        action, seen = trajectory[-1]
        assert type(action) is Say and type(seen) is Shown and seen.done
        assert type(trajectory.first) is Shown and not trajectory.first.done
        return 1.0

    assert one(scorer, played(1, "a"), action=Say, observation=Shown).reward == 1.0
    wrong = one(scorer, played(1, "a"), action=Say, observation=Other)
    assert wrong.unscored == "what reset showed is no Other: board: Field required"


def test_tasks_bring_what_it_is_scored_by() -> None:
    def right(trajectory: Any) -> float:
        return float(trajectory[-1][0].word == trajectory.task.criteria["answer"])

    tasks = {f"t/{n}": Task(id=f"t/{n}", criteria={"answer": "b"}) for n in (1, 2)}
    rollouts = [played(1, "a"), played(2, "b"), played(3, "b")]
    wrong, correct, unknown = score_rollouts(rollouts, right, ScoringOptions(tasks=tasks))
    assert (wrong.reward, correct.reward) == (0.0, 1.0)
    assert unknown.unscored == "there is no task 't/3' among the tasks"
    assert correct.task == rollouts[1].task, "the answer is not written down"
    assert one(right, played(1, "b"), tasks=tasks.get).reward == 1.0


def test_a_task_of_another_making_is_shown_too() -> None:
    scored = one(lambda trajectory: trajectory.task.level, played(1, "a", task={"level": 3}))
    assert scored.reward == 3.0
    assert one(lambda trajectory: trajectory.task is None, played(1, "a", task=None)).reward == 1.0


class Loud(Rubric):
    def forward(self, action: Any, observation: Any) -> float:
        return float(observation.shown == action.word.upper())


def test_a_rubric_gives_the_rewards_of_the_steps() -> None:
    rubric = WeightedSum([Loud(), Loud()], [0.5, 0.5])
    scored = one(from_rubric(rubric), played(1, "a", "b"))
    assert (scored.reward, scored.step_rewards) == (2.0, [1.0, 1.0])
    assert sum(scored.components.values()) == 2.0


# ------------------------------------------------------------------ tokens


@pytest.mark.parametrize(
    ("credit", "tokens"),
    [
        (last_token, [[0.0], [0.0, 1.0]]),
        (spread_over_tokens, [[0.0], [0.5, 0.5]]),
        (lambda rewards, counts: [[1.0] * n for n in counts], [[1.0], [1.0, 1.0]]),
    ],
)
def test_tokens_get_their_share(credit: Any, tokens: list[list[float]]) -> None:
    scored = one(lambda trajectory: 1.0, played(1, "a", "bb"), token_credit=credit)
    assert scored.token_rewards == tokens


def test_tokens_that_nobody_tells_of_get_nothing_and_that_is_said() -> None:
    rollout = played(1, "a", "bb")
    rollout.steps[0].policy = None
    scored: Any = one(lambda trajectory: 1.0, rollout, token_credit=last_token)
    assert scored.reward == 1.0 and scored.token_rewards is None
    assert "step 1 does not tell of its tokens" in scored.no_token_rewards
    rollout.steps[0].policy = {"completion_token_ids": [5]}
    rollout.steps[1].policy = {"completion_tokens": 0}
    scored = one(lambda trajectory: 1.0, rollout, token_credit=last_token)
    assert "step 2 has a reward, and no tokens" in scored.no_token_rewards
    for wrong in (lambda rewards, counts: [[1.0]], lambda rewards, counts: 1 / 0):
        scored = one(lambda trajectory: 1.0, played(1, "a", "bb"), token_credit=wrong)
        assert scored.token_rewards is None and scored.no_token_rewards


# ------------------------------------------------------------------ many


def test_the_order_is_kept_whoever_is_done_first() -> None:
    async def slower_first(trajectory: Any) -> float:
        number = int(trajectory.rollout.id[2:-2])
        await asyncio.sleep(0.002 * (10 - number % 10))
        return float(number)

    rollouts = [played(number, "a") for number in range(40)]
    options = ScoringOptions(concurrency=5)
    found = [scored.reward for scored in score_rollouts(rollouts, slower_first, options)]
    assert found == [float(number) for number in range(40)]


def test_no_more_is_read_ahead_than_is_scored_at_a_time() -> None:
    read = 0

    def rollouts() -> Iterator[Rollout]:
        nonlocal read
        for number in range(200):
            read += 1
            yield played(number, "a")

    found = score_rollouts(rollouts(), length, ScoringOptions(concurrency=4))
    for count, _ in enumerate(found, 1):
        assert read <= count + 2 * 4
    assert read == 200


def test_it_can_be_stopped_in_the_middle() -> None:
    found = score_rollouts((played(n, "a") for n in range(1000)), length)
    assert next(found).reward == 1.0
    found.close()


def test_a_scorer_of_several_is_given_groups_as_a_whole() -> None:
    batches: list[list[str]] = []

    def counted(completions: list[str], group: list[str], **kwargs: Any) -> list[float]:
        batches.append(group)
        return [float(len(said)) for said in completions]

    sizes = {"a": 4, "b": 4, "c": 4, "d": 1}
    rollouts = [
        played(number, "xx", group=group, task={"group": group})
        for group, count in sizes.items()
        for number in range(count)
    ]
    scorer = from_trl(counted)
    found = list(score_rollouts(rollouts, scorer, ScoringOptions(batch=6, concurrency=1)))
    assert [scored.reward for scored in found] == [2.0] * 13
    assert sorted(map(len, batches)) == [5, 8]
    assert ["".join(sorted(set(batch))) for batch in sorted(batches, key=len)] == ["cd", "ab"]


def test_one_that_failed_is_no_part_of_a_batch() -> None:
    def two(completions: list[str], **kwargs: Any) -> list[float]:
        assert len(completions) == 2
        return [1.0, 2.0]

    rollouts = [played(1, "a"), played(2, "b", outcome="failed"), played(3, "c")]
    found = list(score_rollouts(rollouts, from_trl(two)))
    assert [scored.reward for scored in found] == [1.0, None, 2.0]


def test_limits_that_are_there_are_kept() -> None:
    scorer = bounded(length, cache=10)
    assert one(scorer, played(1, "a")).reward == 1.0
    assert ScoringOptions().limited(scorer) is scorer


# ------------------------------------------------------------------ files


def test_a_file_is_scored_into_another_in_the_same_order(tmp_path: Path) -> None:
    rollouts = [played(number, "a" * number) for number in range(1, 30)]
    source = stored(tmp_path / "played.jsonl", rollouts)
    before = source.read_bytes()
    seen: list[int] = []
    report = score_file(
        source,
        tmp_path / "scored.jsonl",
        length,
        progress=lambda report: seen.append(report.rollouts),
    )
    found = list(read_rollouts(tmp_path / "scored.jsonl"))
    assert [scored.id for scored in found] == [rollout.id for rollout in rollouts]
    assert [scored.reward for scored in found] == [float(n) for n in range(1, 30)]
    assert (report.rollouts, report.scored, report.changed) == (29, 29, 29)
    assert (report.mean, report.mean_before, report.unscored) == (15.0, 0.0, {})
    assert seen == list(range(1, 30))
    assert source.read_bytes() == before
    header = read_header(tmp_path / "scored.jsonl")
    assert (header.environment, header.policy) == ("words", "me")
    assert header.settings["scored"] == [
        {"by": "length", "credit": "terminal", "token_credit": None}
    ]


def test_the_report_counts_what_changed_and_why_others_have_no_reward(tmp_path: Path) -> None:
    rollouts = [
        played(1, "a", reward=1.0),
        played(2, "a", reward=2.0),
        played(3, "a", reward=None),
        played(4, "bad", reward=1.0),
        played(5, "bad", reward=None),
    ]

    def scorer(trajectory: Any) -> float:
        if trajectory[0][0].word == "bad":
            raise Unscored("it is bad")
        return 1.0

    source = stored(tmp_path / "played.jsonl", rollouts)
    report = score_file(source, tmp_path / "scored.jsonl", scorer)
    assert (report.rollouts, report.scored, report.changed) == (5, 3, 3)
    assert report.unscored == {"it is bad": 2}
    assert report.mean == 1.0
    assert report.mean_before == pytest.approx(4 / 3)


def test_on_a_full_disk_it_ends_and_can_be_gone_on_with(tmp_path: Path) -> None:
    source = stored(tmp_path / "played.jsonl", [played(n, "a") for n in range(30)])
    output = tmp_path / "scored.jsonl"
    with room_for(8000), pytest.raises(OSError, match="can be gone on with"):
        score_file(source, output, length)
    before = [rollout.id for rollout in read_rollouts(output)]
    assert 0 < len(before) < 30
    report = score_file(source, output, length, resume=True)
    assert (report.rollouts, report.resumed, report.scored) == (30, len(before), 30)
    assert [rollout.id for rollout in read_rollouts(output)] == [f"t/{n}#0" for n in range(30)]


def test_what_has_failed_stays_where_it_stands(tmp_path: Path) -> None:
    rollouts = [played(1, "a"), played(2, "b", outcome="failed", reward=None), played(3, "c")]
    source = stored(tmp_path / "played.jsonl", rollouts)
    score_file(source, tmp_path / "scored.jsonl", length)
    before = (tmp_path / "scored.jsonl").read_bytes()
    report = score_file(source, tmp_path / "scored.jsonl", length, resume=True)
    assert (report.rollouts, report.resumed, report.scored) == (3, 3, 2)
    assert (tmp_path / "scored.jsonl").read_bytes() == before


def test_an_output_that_is_there_is_neither_overwritten_nor_mixed(tmp_path: Path) -> None:
    source = stored(tmp_path / "played.jsonl", [played(1, "a")])
    output = tmp_path / "scored.jsonl"
    score_file(source, output, length)
    with pytest.raises(FileExistsError):
        score_file(source, output, length)
    with pytest.raises(RolloutFileError):
        score_file(source, output, lambda trajectory: 2.0, scored_by="another", resume=True)
    with pytest.raises(RolloutFileError):
        score_file(source, output, length, ScoringOptions(credit="uniform"), resume=True)
    with pytest.raises(ScoringError, match="exclude"):
        score_file(source, output, length, resume=True, force=True)
    assert score_file(source, output, lambda trajectory: 2.0, force=True).mean == 2.0
    for resume in (False, True):
        with pytest.raises(ScoringError, match="another file"):
            score_file(source, source, length, resume=resume, force=not resume)
    assert [rollout.reward for rollout in read_rollouts(source)] == [0.0]


def test_what_was_scored_before_a_kill_is_not_scored_again(tmp_path: Path) -> None:
    failed = played(3, "a", outcome="failed", reward=None)
    rollouts = [played(1, "a"), played(2, "aa"), failed, played(4, "aaaa"), played(5, "aaaaa")]
    source = stored(tmp_path / "played.jsonl", rollouts)
    whole, output = tmp_path / "whole.jsonl", tmp_path / "scored.jsonl"
    score_file(source, whole, length, scored_by="x")
    lines = whole.read_bytes().splitlines(keepends=True)
    output.write_bytes(b"".join(lines[:4]) + lines[4][:50])  # its writer was killed
    calls: list[str] = []

    def counted(trajectory: Any) -> float:
        calls.append(trajectory.rollout.id)
        return length(trajectory)

    report = score_file(source, output, counted, scored_by="x", resume=True)
    assert calls == ["t/4#0", "t/5#0"]
    assert output.read_bytes() == whole.read_bytes()
    assert (report.rollouts, report.resumed, report.scored, report.mean) == (5, 3, 4, 3.0)
    again = score_file(source, output, counted, scored_by="x", resume=True)
    assert (len(calls), again.rollouts, again.mean) == (2, 5, 3.0)


def test_a_damaged_line_is_named_and_what_came_before_it_is_kept(tmp_path: Path) -> None:
    source = stored(tmp_path / "played.jsonl", [played(n, "a") for n in range(30)])
    lines = source.read_bytes().splitlines(keepends=True)
    source.write_bytes(b"".join([*lines[:20], b'{"id": 3}\n', *lines[20:]]))
    with pytest.raises(RolloutFileError) as caught:
        score_file(source, tmp_path / "scored.jsonl", length)
    assert caught.value.line == 21
    before = [rollout.id for rollout in read_rollouts(tmp_path / "scored.jsonl")]
    assert before == [f"t/{n}#0" for n in range(len(before))]
    source.write_bytes(b"".join(lines))
    score_file(source, tmp_path / "scored.jsonl", length, resume=True)
    assert len(list(read_rollouts(tmp_path / "scored.jsonl"))) == 30


@pytest.mark.parametrize("content", [b"", b"hello\n", b"[]\n", b'{"format": "other"}\n', b"\xff\n"])
def test_a_file_of_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(ScoringError, match="neither rollouts nor a recording"):
        read_stored(tmp_path / "x.jsonl")


# ------------------------------------------------------------------ recordings


def recorded(directory: Path, cls: Any, play: Any) -> Path:
    with DiceEnv.local(create_app(cls, record=directory)).sync() as env:
        play(env)
    (file,) = directory.glob("*/*.jsonl")
    return file


def two_episodes(env: Any) -> None:
    env.reset(seed=1)
    env.step(Roll(sides=1))
    with pytest.raises(RuntimeError):
        env.step(Roll(what="raise"))
    env.step(Roll(sides=1, what="stop"))
    env.reset(seed=2)
    env.step(Roll(sides=2))


def test_the_episodes_of_a_recording_are_rollouts(tmp_path: Path) -> None:
    file = recorded(tmp_path / "records", Dice, two_episodes)
    header, rollouts = read_stored(file)
    first, second = rollouts
    assert header.policy == "recorded" and header.environment
    assert (first.outcome, second.outcome) == ("done", "limit")
    assert (first.seed, second.seed, len(first.steps)) == (1, 2, 2)
    assert first.steps[0].action["sides"] == 1 and first.steps[-1].done
    assert (first.reward, first.reward_kind) == (0.0, "per_step")
    extra: Any = first
    assert [(one["step"], one["type"]) for one in extra.errors] == [(2, "ValueError")]
    assert first.id != second.id


def test_a_recording_is_scored(tmp_path: Path) -> None:
    file = recorded(tmp_path / "records", Dice, two_episodes)

    def sides(trajectory: Any) -> float:
        assert isinstance(trajectory.first, Fields)
        return float(sum(action.sides for action, _ in trajectory))

    report = score_file(file, tmp_path / "scored.jsonl", sides)
    found = list(read_rollouts(tmp_path / "scored.jsonl"))
    assert [scored.reward for scored in found] == [2.0, 2.0]
    assert (report.mean, report.scored) == (2.0, 2)


@pytest.mark.parametrize(
    ("cls", "first", "second"),
    [
        (Terminal, (None, None), (2.0, [0.0, 2.0])),
        (Cumulative, (2.0, [2.0]), (6.0, [2.0, 4.0])),
        (PerStep, (2.5, [2.5]), (7.0, [2.5, 4.5])),
    ],
    ids=["terminal", "cumulative", "per step"],
)
def test_what_an_episode_was_worth_is_what_its_environment_declares(
    cls: Any, first: Any, second: Any, tmp_path: Path
) -> None:
    """Of one that was left, a terminal reward is not known: the zeros before it are none."""
    with GenericEnvClient.local(create_app(cls, record=tmp_path)).sync() as env:
        for words in (["ab"], ["ab", "over"]):
            env.reset()
            for word in words:
                env.step({"word": word})
    (file,) = tmp_path.glob("*/*.jsonl")
    left, done = read_stored(file)[1]
    assert ((left.reward, left.step_rewards), left.outcome) == (first, "limit")
    assert ((done.reward, done.step_rewards), done.outcome) == (second, "done")
    if cls is Terminal:
        assert left.unscored == "its driver left the episode before the end"
    if cls is PerStep:
        assert done.components == {"length": 6.0, "style": 1.0}


def test_a_recorded_step_that_could_not_be_scored_is_no_0(tmp_path: Path) -> None:
    with GenericEnvClient.local(create_app(PerStep, record=tmp_path)).sync() as env:
        env.reset()
        for word in ("ab", "mumble", "over"):
            env.step({"word": word})
    (file,) = tmp_path.glob("*/*.jsonl")
    (found,) = read_stored(file)[1]
    assert (found.reward, found.unscored) == (None, "the judge heard nothing")


def restored(env: Any) -> None:
    env.reset(seed=1)
    snapshot = env.snapshot()
    env.step(Roll(sides=1, what="stop"))
    env.restore(snapshot)
    env.step(Roll(sides=1, what="stop"))


def test_an_episode_of_which_a_part_is_missing_cannot_be_scored(tmp_path: Path) -> None:
    file = recorded(tmp_path / "a", StoredDice, restored)
    whole, after_restore = score_rollouts(read_stored(file)[1], lambda trajectory: 1.0)
    assert whole.reward == 1.0
    assert "begins with a restore" in str(after_restore.unscored)
    assert after_restore.outcome == "failed"
    file = recorded(tmp_path / "b", Dice, two_episodes)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    (torn,) = score_rollouts(read_stored(file)[1], lambda trajectory: 1.0)
    assert "breaks off" in str(torn.unscored)
    file.write_bytes(b"".join([lines[0], *lines[2:]]))
    beheaded, whole = score_rollouts(read_stored(file)[1], lambda trajectory: 1.0)
    assert "beginning" in str(beheaded.unscored) and whole.reward == 1.0
    gap = json.dumps({"event": "gap", "lost": 3}).encode() + b"\n"
    file.write_bytes(b"".join([*lines[:3], gap, *lines[3:]]))
    reasons = [one.unscored for one in score_rollouts(read_stored(file)[1], lambda t: 1.0)]
    assert "3 events of the episode are missing" in str(reasons[0])
    file.write_bytes(lines[0] + b"{}\n")
    with pytest.raises(RecordingError):
        list(score_rollouts(read_stored(file)[1], length))
