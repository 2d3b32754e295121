"""`openenv score`: stored episodes are scored anew, by whatever scorer is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.commands import COMMAND, environ, run_openenv
from support.dice import Dice, DiceEnv, Roll
from support.servers import serving
from support.waiting import wait_until
from support.zygote import PythonProcess, run_python

from openenv import create_app
from openenv.cli.__main__ import app
from openenv.cli._console import CommandError, print_error, stderr
from openenv.rewards.external import scoring_app
from openenv.rollouts.files import RolloutWriter, read_rollouts
from openenv.rollouts.records import Rollout, RolloutHeader, StepRecord

pytestmark = pytest.mark.timeout(120)

SCORERS = """
    import asyncio, json, os, sys, time
    from openenv.errors import Unscored
    from openenv.rewards.rubric import Rubric
    from openenv.types import Action

    def length(trajectory):
        return float(sum(len(action.word) for action, _ in trajectory))

    def picky(trajectory):
        if len(trajectory) > 1:
            raise Unscored("it has two steps")
        return 1.0

    def broken(trajectory):
        return trajectory[0][1].bord

    def right(trajectory):
        return float(trajectory[-1][0].word == trajectory.task.criteria["answer"])

    def logged(trajectory):
        with open("calls", "a") as file:
            file.write(trajectory.rollout.id + "\\n")
        if os.path.exists("slow") and trajectory.rollout.id >= "t/20":
            time.sleep(600)
        return 1.0

    class Loud(Rubric):
        def forward(self, action, observation):
            return float(observation.shown.isupper())

    class Judge:
        def __call__(self, trajectory):
            return 5.0

    class Say(Action):
        word: str

    def typed(trajectory):
        return float(isinstance(trajectory[0][0], Say))

    loud = Loud()
    nothing = 3

    def halves(rewards, counts):
        return [[reward / 2] * count for reward, count in zip(rewards, counts)]
"""


def rollout(number: int, *words: str) -> Rollout:
    steps = [
        StepRecord(
            action={"word": word},
            observation={"shown": word.upper()},
            done=at == len(words) - 1,
            policy={"completion_tokens": 2},
        )
        for at, word in enumerate(words)
    ]
    id = f"t/{number:02}"
    return Rollout(id=f"{id}#0", task_id=id, steps=steps, reward=0.0, first={"shown": ""})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "scorers.py").write_text(textwrap.dedent(SCORERS))
    with RolloutWriter(
        tmp_path / "played.jsonl", RolloutHeader(environment="e", policy="p")
    ) as writer:
        for one in (rollout(1, "hi"), rollout(2, "hi", "there"), rollout(3, "a")):
            writer.write(one)
    yield tmp_path
    for name in ("scorers", "dice", "bad"):  # which others may have too
        sys.modules.pop(name, None)


@dataclass
class Done:
    """How a command that was run in this process ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def score(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*arguments: str) -> Done:
        stderr.cache_clear()  # which writes to the stream that there was
        code = 0
        try:
            app(["score", "played.jsonl", *arguments], standalone_mode=False)
        except CommandError as error:
            print_error(error)
            code = error.exit_code
        finally:
            said = capsys.readouterr()
            stderr.cache_clear()
        return Done(code, said.out, " ".join(said.err.split()))

    return run


def rewards(here: Path, name: str = "played.scored.jsonl") -> list[float | None]:
    return [one.reward for one in read_rollouts(here / name)]


@pytest.mark.slow
def test_a_function_of_a_module_in_this_directory(here: Path) -> None:
    done = run_openenv("score", "played.jsonl", "--with", "scorers:length", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    assert rewards(here) == [2.0, 7.0, 1.0]
    assert json.loads(done.stdout) == {
        "output": "played.scored.jsonl",
        "rollouts": 3,
        "resumed": 0,
        "scored": 3,
        "changed": 3,
        "mean": pytest.approx(10 / 3),
        "mean_before": 0.0,
        "unscored": {},
        "without_token_rewards": {},
    }
    assert "mean reward 3.333, before 0; 3 changed" in done.stderr
    (first, *_) = read_rollouts(here / "played.scored.jsonl")
    extra: Any = first
    assert extra.scored_by == "scorers:length" and extra.scored_before[0]["reward"] == 0.0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("scorers.py:length", [2.0, 7.0, 1.0]),
        ("scorers:Loud", [1.0, 2.0, 1.0]),
        ("scorers:loud", [1.0, 2.0, 1.0]),
        ("scorers:Judge", [5.0, 5.0, 5.0]),
    ],
)
def test_files_rubrics_and_classes(
    name: str, expected: list[float], here: Path, score: Any
) -> None:
    done = score("--with", name, "--output", "out/scored.jsonl")
    assert done.returncode == 0, done.stderr
    assert rewards(here, "out/scored.jsonl") == expected
    assert done.stdout == ""


def test_what_cannot_be_scored_is_counted_and_fails_unless_allowed(here: Path, score: Any) -> None:
    done = score("--with", "scorers:picky")
    assert done.returncode == 1
    assert "not scored: 1 times: it has two steps" in done.stderr
    assert "1 of 3 could not be scored" in done.stderr and "--allow-unscored" in done.stderr
    assert rewards(here) == [1.0, None, 1.0]
    assert score("--with", "scorers:picky", "--force", "--allow-unscored").returncode == 0


@pytest.mark.slow
def test_errors_of_a_scorer_are_shown_and_not_each_time(here: Path) -> None:
    with RolloutWriter(here / "many.jsonl", RolloutHeader(environment="e", policy="p")) as writer:
        for number in range(20):
            writer.write(rollout(number, "a"))
    done = run_openenv("score", "many.jsonl", "--with", "scorers:broken", cwd=here)
    assert done.returncode == 1
    assert "AttributeError: there is no field 'bord'" in done.stderr
    assert done.stderr.count("Traceback") == 3
    assert "further errors" in done.stderr


def test_tasks_and_models_are_named(here: Path, score: Any) -> None:
    tasks = [{"id": f"t/{n:02}", "criteria": {"answer": "a"}} for n in (1, 2, 3)]
    (here / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    done = score("--with", "scorers:right", "--tasks", "tasks.jsonl")
    assert done.returncode == 0, done.stderr
    assert rewards(here) == [0.0, 0.0, 1.0]
    done = score("--with", "scorers:typed", "--action", "scorers:Say", "--force")
    assert rewards(here) == [1.0, 1.0, 1.0], done.stderr


@pytest.mark.parametrize(
    ("credit", "tokens", "shares", "of_tokens"),
    [
        ("terminal", "last", [0.0, 7.0], [[0.0, 0.0], [0.0, 7.0]]),
        ("uniform", "spread", [3.5, 3.5], [[1.75, 1.75], [1.75, 1.75]]),
        ("discounted:0.5", "scorers:halves", [3.5, 7.0], [[1.75, 1.75], [3.5, 3.5]]),
    ],
)
def test_credit_is_named(
    credit: str,
    tokens: str,
    shares: list[float],
    of_tokens: list[list[float]],
    here: Path,
    score: Any,
) -> None:
    named = ("--credit", credit, "--token-credit", tokens)
    done = score("--with", "scorers:length", *named)
    assert done.returncode == 0, done.stderr
    _, second, _ = read_rollouts(here / "played.scored.jsonl")
    assert (second.step_rewards, second.token_rewards) == (shares, of_tokens)


def test_a_program_and_an_address(here: Path, score: Any) -> None:
    program = here / "grade.py"
    program.write_text(
        "import json, sys\n"
        "steps = json.load(sys.stdin)['trajectory']['steps']\n"
        "print(json.dumps({'reward': len(steps)}))\n"
    )
    done = score("--with", f"command:{sys.executable} grade.py")
    assert done.returncode == 0, done.stderr
    assert rewards(here) == [1.0, 2.0, 1.0]
    with serving(scoring_app(lambda trajectory: float(len(trajectory) * 10))) as url:
        done = score("--with", url, "--force", "--cache", "kept")
    assert rewards(here) == [10.0, 20.0, 10.0]
    again = score("--with", url, "--force", "--cache", "kept")  # nobody is there any more
    assert again.returncode == 0 and rewards(here) == [10.0, 20.0, 10.0]
    gone = score("--with", url, "--force", "--retries", "0")
    assert gone.returncode == 1 and "does not answer" in gone.stderr


@pytest.mark.slow
def test_a_recording_is_scored(here: Path) -> None:
    with DiceEnv.local(create_app(Dice, record=here / "records")).sync() as env:
        env.reset(seed=1)
        env.step(Roll(sides=4, what="stop"))
    (here / "dice.py").write_text("def sides(t): return float(t[0][0].sides)\n")
    (file,) = (here / "records").glob("*/*.jsonl")
    done = run_openenv(
        "score", str(file), "--with", "dice:sides", "--output", "scored.jsonl", cwd=here
    )
    assert done.returncode == 0, done.stderr
    assert rewards(here, "scored.jsonl") == [4.0]


# ------------------------------------------------------------------ misuse


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--with", "scorers:lenght"], "did you mean 'length'"),
        (["--with", "nowhere:f"], "no module 'nowhere'"),
        (["--with", "nowhere.py:f"], "no file nowhere.py"),
        (["--with", "length"], "expected module:function"),
        (["--with", "scorers:nothing"], "expected a function or a rubric"),
        (["--with", "command:./nowhere"], "no executable program './nowhere'"),
        (["--with", "http://"], "address"),
        (["--with", "reasoning_gym:leg_counting"], "pip install"),
        (["--with", "scorers:length", "--credit", "unifrom"], "did you mean 'uniform'"),
        (["--with", "scorers:length", "--token-credit", "lst"], "no credit assignment to tokens"),
        (["--with", "scorers:length", "--action", "scorers:length"], "expected a model"),
        (["--with", "scorers:length", "--output", "played.jsonl", "--force"], "another file"),
        (["--with", "scorers:length", "--resume", "--force"], "exclude"),
        (["--with", "scorers:length", "--tasks", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--with", "scorers:length", "--split", "test"], "requires tasks"),
        (["--with", "scorers:length", "--output", "x.parquet"], "write a .jsonl"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_misuse_exits_2_and_says_what_was_expected(
    arguments: list[str], said: str, here: Path, score: Any
) -> None:
    done = score(*arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not (here / "played.scored.jsonl").exists()
    assert rewards(here, "played.jsonl") == [0.0, 0.0, 0.0]


def test_an_output_that_is_there_is_not_overwritten(here: Path, score: Any) -> None:
    assert score("--with", "scorers:length").returncode == 0
    before = (here / "played.scored.jsonl").read_bytes()
    done = score("--with", "scorers:Judge")
    assert done.returncode == 2
    assert "--resume" in done.stderr and "--force" in done.stderr
    other = score("--with", "scorers:Judge", "--resume")
    assert other.returncode == 2 and "scored" in other.stderr
    assert (here / "played.scored.jsonl").read_bytes() == before


@pytest.mark.parametrize("content", [None, "hello\n", '{"format": "openenv-rollouts"}\n{}\n'])
def test_a_file_that_is_missing_damaged_or_none_exits_2(
    content: str | None, here: Path, score: Any
) -> None:
    if content is None:
        (here / "played.jsonl").unlink()
    else:
        (here / "played.jsonl").write_text(content)
    done = score("--with", "scorers:length")
    assert done.returncode == 2 and "played.jsonl" in done.stderr


def test_a_module_that_raises_is_shown(here: Path, score: Any) -> None:
    (here / "bad.py").write_text("1 / 0\n")
    done = score("--with", "bad:f")
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stderr and "bad.py" in done.stderr


# ------------------------------------------------------------------ killed, and gone on with


@pytest.mark.slow
def test_after_a_kill_exactly_what_is_missing_is_scored(here: Path) -> None:
    with RolloutWriter(here / "long.jsonl", RolloutHeader(environment="e", policy="p")) as writer:
        for number in range(40):
            writer.write(rollout(number, "a"))
    (here / "slow").touch()
    command = [*COMMAND, "score", "long.jsonl", "--with", "scorers:logged", "--concurrency", "2"]
    output, calls = here / "long.scored.jsonl", here / "calls"
    with PythonProcess(
        command, cwd=here, env=environ(), stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            wait_until(lambda: output.exists() and output.read_bytes().count(b"\n") > 20, 60)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    before = [one.id for one in read_rollouts(output)]
    assert before == [f"t/{number:02}#0" for number in range(20)]
    (here / "slow").unlink()
    calls.unlink()
    with output.open("ab") as file:
        file.write(b'{"id": "t/20#0", "rew')  # as far as the disk had it
    done = run_python(
        [*command, "--resume", "--json"], cwd=here, env=environ(), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert sorted(calls.read_text().split()) == [f"t/{number}#0" for number in range(20, 40)]
    assert [one.id for one in read_rollouts(output)] == [f"t/{n:02}#0" for n in range(40)]
    summary = json.loads(done.stdout)
    assert (summary["rollouts"], summary["resumed"], summary["mean"]) == (40, 20, 1.0)


@pytest.mark.slow
def test_ctrl_c_ends_it_and_says_how_to_go_on(here: Path) -> None:
    (here / "slow").touch()
    with RolloutWriter(here / "long.jsonl", RolloutHeader(environment="e", policy="p")) as writer:
        writer.write(rollout(1, "a"))
        writer.write(rollout(30, "a"))
    command = [*COMMAND, "score", "long.jsonl", "--with", "scorers:logged"]
    with PythonProcess(
        command, cwd=here, env=environ(), stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: (here / "calls").exists() and "t/30" in (here / "calls").read_text(), 60)
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--resume" in words
