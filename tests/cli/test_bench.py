"""`openenv bench`: figures of a real server, what limits them, and the plan of a training run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_openenv
from support.servers import serving

from openenv import Action, Environment, Observation, State, create_app
from openenv.cli._bench import (
    BenchReport,
    Measurement,
    TrainingShape,
    estimate,
    find_limit,
)

pytestmark = pytest.mark.slow("starts servers, and measures them")

SOURCE = """
import time

from openenv import Action, Environment, Observation, State, Refused


class Say(Action):
    text: str


class Heard(Observation):
    text: str = ""


class Quick(Environment[Say, Heard, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.now = State()

    def reset(self) -> Heard:
        self.now = State()
        return Heard()

    def step(self, action: Say) -> Heard:
        self.now.step_count += 1
        return Heard(text=action.text, reward=1.0, done=self.now.step_count == 20)

    @property
    def state(self) -> State:
        return self.now


class Alone(Quick):
    SUPPORTS_CONCURRENT_SESSIONS = False


class Sleepy(Quick):
    def step(self, action: Say) -> Heard:
        time.sleep(0.05)
        return super().step(action)


class OneStep(Quick):
    def step(self, action: Say) -> Heard:
        return Heard(done=True)


class Flaky(Quick):
    def step(self, action: Say) -> Heard:
        if self.now.step_count == 9:
            raise ValueError("now and then")
        return super().step(action)


class Stuck(Quick):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Stuck.made += 1
        self.number = Stuck.made

    def step(self, action: Say) -> Heard:
        if self.number == 7 and self.now.step_count == 5:
            time.sleep(60)
        return super().step(action)


class Over(Quick):
    def reset(self) -> Heard:
        return Heard(done=True)


class Picky(Quick):
    def step(self, action: Say) -> Heard:
        raise Refused("only poems are accepted")
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "benched.py").write_text(SOURCE)
    return tmp_path


def benched(here: Path, *arguments: str) -> Any:
    done = run_openenv("bench", *arguments, "--seconds", "0.3", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_workload_has_its_figures(here: Path) -> None:
    told = benched(here, "benched:Quick", "--sessions", "1,8", "--simulate", "--rollouts", "40")
    rows = {(row["client"], row["sessions"]): row for row in told["measurements"]}
    assert list(rows) == [("EnvClient", 1), ("EnvClient", 8), ("VectorEnv", 8), ("cold", 8)]
    for row in rows.values():
        assert row["steps"] > 0
        assert row["steps_per_s"] == pytest.approx(row["steps"] / row["seconds"])
        assert 0 < row["p50_s"] <= row["p99_s"]
        assert row["client_cpu_s"] > 0
        assert row["environment_s"] > 0
        assert row["server_cpu_s"] is not None and row["limit"] and row["advice"]
    cold = rows["cold", 8]
    assert (cold["steps"], cold["episodes"]) == (80, 8)
    assert told["slots"] == 40, "the server is planned for the rollouts"
    assert told["base_bytes"] > 2**20 and told["session_bytes"] is not None
    assert told["estimate"]["servers"] == 1


def test_people_read_a_table_and_what_limits_it(here: Path) -> None:
    done = run_openenv("bench", "benched:Quick", "--sessions=4", "--seconds=0.3", cwd=here)
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split()[:4] == ["played", "by", "sessions", "steps/s"]
    assert [row.split()[0] for row in rows] == ["EnvClient", "VectorEnv", "cold"]
    assert "the fastest is limited by" in done.stderr
    assert "4 sessions opened at once" in done.stderr


def test_an_environment_that_waits_is_told_from_one_that_computes(here: Path) -> None:
    told = benched(here, "benched:Sleepy", "--sessions", "4")
    warm = [row for row in told["measurements"] if row["client"] != "cold"]
    assert {row["limit"] for row in warm} == {"waiting"}
    assert told["step_s"] == pytest.approx(0.05, abs=0.02)


def test_a_server_for_fewer_sessions_is_measured_with_those_and_says_so(here: Path) -> None:
    told = benched(here, "benched:Alone", "--sessions", "1,64")
    assert {row["sessions"] for row in told["measurements"]} == {1}
    assert any("holds 1 session at once" in note for note in told["notes"])
    told = benched(here, "benched:Alone", "--sessions", "1", "--simulate", "--rollouts", "12")
    assert (told["estimate"]["servers"], told["estimate"]["because"]) == (12, "sessions")


def test_automatic_resets_are_no_steps(here: Path) -> None:
    told = benched(here, "benched:OneStep", "--sessions", "8")
    (row,) = [row for row in told["measurements"] if row["client"] == "VectorEnv"]
    assert abs(row["steps"] - row["episodes"]) <= 8, "each step ends an episode"


def test_an_environment_that_fails_now_and_then_is_measured_and_it_is_noted(here: Path) -> None:
    told = benched(here, "benched:Flaky", "--sessions", "2")
    assert told["measurements"][0]["steps"] > 0
    failed = [note for note in told["notes"] if "failed, the last: Server error: Value" in note]
    assert len(failed) == 2, "of the warm episodes, and of the cold ones"


def test_a_session_that_hangs_does_not_take_the_figures_of_the_others(here: Path) -> None:
    began = time.monotonic()
    # The first four are weighed, and the next four play.
    told = benched(here, "benched:Stuck", "--sessions", "4", "--simulate", "--rollouts", "16")
    assert [row["client"] for row in told["measurements"]] == ["EnvClient", "VectorEnv", "cold"]
    assert time.monotonic() - began < 50, "the hanging step takes 60 s"


def test_an_environment_without_steps_is_told(here: Path) -> None:
    done = run_openenv("bench", "benched:Over", "--sessions=2", "--seconds=0.3", cwd=here)
    assert done.returncode == 1
    assert "2 sessions: every episode was over at its reset" in done.stderr


def test_actions_that_are_all_refused_are_told(here: Path) -> None:
    done = run_openenv("bench", "benched:Picky", "--sessions=1", cwd=here)
    assert done.returncode == 1
    assert "refused 1,000 actions in a row" in done.stderr
    assert "only poems are accepted" in done.stderr and "--policy" in done.stderr


@pytest.mark.parametrize("sessions", ["", "0", "1,x", "-3"])
def test_numbers_of_sessions_are_checked(here: Path, sessions: str) -> None:
    done = run_openenv("bench", "benched:Quick", f"--sessions={sessions}", cwd=here)
    assert done.returncode == 2
    assert "is not a list of numbers" in done.stderr


class Say(Action):
    text: str


class Heard(Observation):
    text: str = ""


class Quick(Environment[Say, Heard, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self) -> Heard:  # type: ignore[override]  # it takes no seed
        return Heard()

    def step(self, action: Say) -> Heard:  # type: ignore[override]
        return Heard(text=action.text, done=True)

    @property
    def state(self) -> State:
        return State()


def test_a_server_that_runs_is_measured_as_it_is(here: Path) -> None:
    with serving(create_app(Quick)) as url:
        told = benched(here, url, "--sessions", "2")
    assert [row["client"] for row in told["measurements"]] == ["EnvClient", "VectorEnv"]
    assert told["base_bytes"] is None
    assert any("was running already" in note for note in told["notes"])


def test_a_server_that_is_not_there_is_told(here: Path) -> None:
    done = run_openenv("bench", "http://127.0.0.1:9", "--sessions=1", cwd=here)
    assert done.returncode == 1
    assert "127.0.0.1:9" in done.stderr and "Traceback" not in done.stderr


def of(client: str = "EnvClient", sessions: int = 64, **figures: Any) -> Measurement:
    usual = {
        "steps": 10_000,
        "episodes": 10,
        "refused": 0,
        "seconds": 1.0,
        "p50_s": 0.001,
        "p99_s": 0.002,
        "client_cpu_s": 0.1,
        "server_cpu_s": 0.1,
        "environment_s": 0.1,
        "reset_s": 0.004,
    }
    return Measurement(client, sessions, **{**usual, **figures})


@pytest.mark.parametrize(
    ("found", "step_s", "part"),
    [
        (of(server_cpu_s=0.95), 10e-6, "server"),
        (of(server_cpu_s=0.95), 80e-6, "environment"),
        (of(client_cpu_s=0.95), 10e-6, "client"),
        (of(client_cpu_s=0.9, server_cpu_s=0.95), 10e-6, "server"),
        (of(steps=640), 0.09, "waiting"),
        (of(client_cpu_s=0.45, server_cpu_s=0.45), 10e-6, "turns"),
        (of(sessions=1, steps=1000), 10e-6, "round trips"),
        (of(server_cpu_s=None, environment_s=None), None, "round trips"),
    ],
)
def test_the_part_that_limits_is_named(found: Measurement, step_s: float | None, part: str) -> None:
    assert find_limit(found, step_s).part == part


def test_other_programs_are_named_if_nothing_else_is_busy() -> None:
    assert find_limit(of(), None, is_loaded=True).part == "other programs"
    assert find_limit(of(server_cpu_s=0.95), None, is_loaded=True).part == "server"


def test_a_client_that_is_busy_is_advised_by_what_it_is() -> None:
    assert "VectorEnv" in find_limit(of(client_cpu_s=0.95), None).advice
    assert "send and recv" in find_limit(of("VectorEnv", client_cpu_s=0.95), None).advice


def test_servers_are_planned_by_sessions_or_by_steps() -> None:
    report = BenchReport("toy", [of(sessions=1, steps=1000), of()], 64, 2.0**26, 2.0**14)
    by_sessions = estimate(report, TrainingShape(rollouts=640, turns=10, reply_s=2.0))
    assert (by_sessions.servers, by_sessions.because) == (10, "sessions")
    assert by_sessions.steps_per_s == pytest.approx(640 * 10 / (0.004 + 10 * 2.001))
    assert by_sessions.memory_bytes == 10 * 2**26 + 640 * 2**14
    assert by_sessions.share == pytest.approx((0.004 + 0.01) / (0.004 + 20.01))
    # 640 rollouts that reply at once take 457,143 steps/s; a server is planned with 7,000.
    by_steps = estimate(report, TrainingShape(rollouts=640, turns=10, reply_s=0.0))
    assert (by_steps.servers, by_steps.because) == (66, "steps")
    report.slots = report.session_bytes = None
    assert estimate(report, TrainingShape(10, 10, 60.0)).servers == 1
    assert estimate(report, TrainingShape(10, 10, 60.0)).memory_bytes is None
