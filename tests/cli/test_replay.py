"""`openenv replay`: a recording is played again, and the first difference is found."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.commands import run_openenv
from support.dice import (
    Camera,
    CameraEnv,
    Dice,
    DiceEnv,
    DriftingDice,
    Pixels,
    Roll,
    Rolled,
    StoredDice,
)
from support.servers import serving

from openenv import EnvClient, StepTimeout, create_app
from openenv.errors import RecordingError
from openenv.rollouts.replays import replay
from openenv.rollouts.replays.differences import MISSING, first_difference
from openenv.rollouts.replays.replaying import UntrustedTarget
from openenv.server.loading import TargetError

HANDS = 4


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "records"


def the_file(directory: Path) -> Path:
    (file,) = directory.glob("*/*.jsonl")
    return file


def recorded(directory: Path, cls: Any, client: Any = DiceEnv, **options: Any) -> Path:
    """Record two episodes, and an error in the second."""
    with client.local(create_app(cls, record=directory, **options)).sync() as env:
        play(env)
    return the_file(directory)


def play(env: Any) -> None:
    for seed in (1, 2):
        env.reset(seed=seed)
        for _ in range(3):
            env.step(Roll())
    with pytest.raises(RuntimeError):
        env.step({"what": "raise", "sides": "none"})


def changed(file: Path, line: int, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a recording with another line of this number, from 1."""
    lines = file.read_text().splitlines()
    event = json.loads(lines[line - 1])
    change(event)
    lines[line - 1] = json.dumps(event)
    copy = file.with_name("changed.jsonl")
    copy.write_text("\n".join(lines) + "\n")
    return copy


# ------------------------------------------------------------------ from a program


def test_a_recording_comes_to_the_same(directory: Path) -> None:
    report = replay(recorded(directory, Dice))
    assert report.is_same and report.is_other_schema is False
    assert (report.episodes, report.events, report.skipped, report.unseeded) == (2, 9, 0, 0)


@pytest.mark.parametrize("protocol", ["0", "1"])
def test_a_server_is_played_against(
    directory: Path,
    serve: Callable[[Any], str],
    protocol: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = recorded(directory, Camera, CameraEnv)
    monkeypatch.setenv("OPENENV_PROTOCOL", protocol)
    url = serve(create_app(Camera))
    report = replay(file, url=url)
    assert report.is_same and report.events == 9


def test_a_recording_of_workers_is_like_any_other(directory: Path) -> None:
    with serving(create_app(Dice, record=directory, workers=1)) as url, DiceEnv(url) as env:
        play(env)
    assert replay(the_file(directory), Dice).is_same


def test_another_environment_goes_another_way(directory: Path) -> None:
    report = replay(recorded(directory, Dice), DriftingDice)
    assert report.divergence is not None
    assert (report.divergence.episode, report.divergence.step) == (1, 2)
    assert report.divergence.path == "$.observation.number"


@pytest.mark.parametrize(
    ("line", "change", "where"),
    [
        (3, lambda event: event["observation"].update(number=-1), (1, 1, "$.observation.number")),
        (4, lambda event: event.update(reward=7.5), (1, 2, "$.reward")),
        (6, lambda event: event.update(terminated=True), (2, 0, "$.terminated")),
        (7, lambda event: event["observation"].pop("extra"), (2, 1, "$.observation.extra")),
        (10, lambda event: event["error"].update(code="OTHER"), (2, 4, "$.error")),
        (10, lambda event: event.update(error=None), (2, 4, "$.error")),
        (9, lambda event: event.update(error={"type": "E", "code": "X", "message": ""}),
         (2, 3, "$.error")),
    ],
)  # fmt: skip
def test_the_first_difference_is_found(
    directory: Path,
    line: int,
    change: Callable[[dict[str, Any]], None],
    where: tuple[int, int, str],
) -> None:
    found = replay(changed(recorded(directory, Dice), line, change)).divergence
    assert found is not None
    assert (found.episode, found.step, found.path) == where


@pytest.mark.parametrize(
    ("line", "name", "value"), [(2, "metadata", {"x": 1}), (3, "info", {"x": 1}), (3, "seconds", 9)]
)
def test_annotations_may_differ(directory: Path, line: int, name: str, value: Any) -> None:
    file = changed(recorded(directory, Dice), line, lambda event: event.update({name: value}))
    assert replay(file).is_same


def test_numbers_may_be_a_little_apart(directory: Path) -> None:
    def nudge(event: dict[str, Any]) -> None:
        event["reward"] += 1e-9

    file = changed(recorded(directory, Dice), 4, nudge)
    assert replay(file).divergence is not None
    assert replay(file, tolerance=1e-6).is_same


def test_an_array_is_told_apart_by_its_elements(directory: Path) -> None:
    file = recorded(directory, Camera, CameraEnv)
    other: dict[str, Any] = {}
    changed(file, 3, other.update)
    found = replay(
        changed(
            file, 2, lambda event: event["observation"].update(depth=other["observation"]["depth"])
        )
    ).divergence
    assert found is not None and found.path == "$.observation.depth[0]"


class Blinking(Camera):
    """Some of what it sees is not there."""

    shift: ClassVar[float] = 0.0

    def _seen(self) -> Pixels:
        seen = super()._seen()
        seen.depth = np.array([np.nan, 1 + self.shift])
        return seen


@pytest.mark.parametrize("protocol", ["0", "1"])
def test_what_is_no_number_stays_none(
    directory: Path,
    serve: Callable[[Any], str],
    protocol: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with CameraEnv.local(create_app(Blinking, record=directory)) as env:
        env.reset(seed=1)
    monkeypatch.setenv("OPENENV_PROTOCOL", protocol)
    url = serve(create_app(Blinking))
    assert replay(the_file(directory), url=url).is_same
    monkeypatch.setattr(Blinking, "shift", 1e-3)
    assert replay(the_file(directory), url=url, tolerance=0.1).is_same
    found = replay(the_file(directory), url=url).divergence
    assert found is not None
    assert (found.path, found.expected, found.got) == ("$.observation.depth[1]", 1.0, 1.001)


@pytest.mark.parametrize(
    "value",
    [
        {"dtype": "no such", "shape": [1], "data": "AA=="},
        {"dtype": "<f8", "shape": [2], "data": "AA=="},
        {"dtype": "|u1", "shape": "wide", "data": "AA=="},
        {"dtype": "|u1", "shape": [1], "data": 3},
    ],
)
def test_what_only_looks_like_an_array_is_an_object(value: dict[str, Any]) -> None:
    found = first_difference(value, {**value, "data": "BB=="})
    assert found == ("$.data", value["data"], "BB==")
    assert first_difference(value, [0]) == ("$", value, [0])


def test_one_episode_can_be_played_alone(directory: Path) -> None:
    file = changed(recorded(directory, Dice), 3, lambda event: event.update(reward=7.5))
    assert replay(file, episode=2).is_same
    assert replay(file, episode=1).divergence is not None
    with pytest.raises(RecordingError, match="no episode 3"):
        replay(file, episode=3)


def test_what_is_not_whole_is_skipped(directory: Path) -> None:
    file = recorded(directory, Dice)
    lines = file.read_text().splitlines()
    gap = json.dumps({"event": "gap", "lost": 2, "time": 0.0})
    file.write_text("\n".join([lines[0], *lines[2:7], gap, *lines[8:]]) + "\n")
    report = replay(file)
    assert report.is_same
    # Without its reset, the first; cut at the gap, the second; what came after that.
    assert (report.episodes, report.skipped, report.events) == (1, 3, 2)


def test_an_episode_that_cannot_be_played_and_has_a_gap_is_skipped_once(directory: Path) -> None:
    file = changed(recorded(directory, Dice), 4, lambda event: event.update(unrecorded="too large"))
    lines = file.read_text().splitlines()
    gap = json.dumps({"event": "gap", "lost": 1, "time": 0.0})
    file.write_text("\n".join([*lines[:4], gap]) + "\n")
    report = replay(file)
    assert (report.episodes, report.skipped, report.divergence) == (1, 1, None)


class Waiting(Dice):
    """Its steps take as long as they are told."""

    seconds: ClassVar[float] = 0.0

    async def step_async(  # type: ignore[override]
        self, action: Roll, timeout_s: float | None = None
    ) -> Rolled:
        await asyncio.sleep(self.seconds if action.what == "wait" else 0)
        return self.step(action)


@pytest.mark.parametrize("then", [0.0, 9.0])
@pytest.mark.parametrize("now", [0.0, 9.0])
def test_a_step_whose_time_is_over_says_nothing(
    directory: Path, now: float, then: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Waiting, "seconds", then)
    with DiceEnv.local(create_app(Waiting, record=directory)) as env:
        env.reset(seed=1)
        with pytest.raises(StepTimeout) if then else contextlib.nullcontext():
            env.step(Roll(what="wait"), timeout_s=0.2)
        env.reset(seed=2)
        env.step(Roll())
    monkeypatch.setattr(Waiting, "seconds", now)
    report = replay(the_file(directory), Waiting)
    assert report.is_same and report.episodes == 2
    assert report.skipped == bool(now or then)


class Forgetful(StoredDice):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.now.total = 0


def test_the_state_after_a_restore_is_compared(directory: Path) -> None:
    with DiceEnv.local(create_app(StoredDice, record=directory)) as env:
        env.reset(seed=1)
        env.step(Roll(sides=1000))
        stored: Any = env.snapshot()
        env.restore(stored)
    assert replay(the_file(directory)).is_same
    found = replay(the_file(directory), Forgetful).divergence
    assert found is not None and (found.path, found.got) == ("$.state.total", 0)


def test_the_environment_has_to_be_known(directory: Path) -> None:
    class Local(Dice):
        pass

    file = recorded(directory, Local)
    with pytest.raises(TargetError, match="does not say which environment"):
        replay(file)
    assert replay(file, Local).is_same
    with pytest.raises(ValueError, match="one of"):
        replay(file, Local, url="http://localhost:1")
    with pytest.raises(ValueError, match="tolerance"):
        replay(file, Local, tolerance=-1.0)


def test_a_replay_is_not_recorded(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = recorded(directory, Dice)
    monkeypatch.setenv("OPENENV_RECORD", str(directory))
    assert replay(file).is_same
    assert the_file(directory) == file


@pytest.mark.parametrize(
    ("expected", "got", "path"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "$.a[1].b"),
        ([1, 2], [1, 2, 3], "$[2]"),
        ([1, 2], [1], "$[1]"),
        ({"a b": 1}, {}, "$['a b']"),
        ({}, {"x": None}, "$.x"),
        (1, True, "$"),
        (1, "1", "$"),
        (None, 0, "$"),
        ("a", "b", "$"),
    ],
)
def test_a_difference_has_a_path(expected: Any, got: Any, path: str) -> None:
    found = first_difference(expected, got)
    assert found is not None and found.path == path
    assert first_difference(expected, expected) is None


def test_what_is_missing_is_said_to_be() -> None:
    assert first_difference({"x": 1}, {}) == ("$.x", 1, MISSING)
    assert first_difference(1, 1.0) is None
    assert first_difference(10**400, 1, 0.5) == ("$", 10**400, 1)


# ------------------------------------------------------------------ from the command line


@pytest.fixture
def blackjack(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some hands of blackjack, recorded."""
    from openspiel_env import OpenSpielAction, OpenSpielEnv
    from openspiel_env.server.openspiel_environment import OpenSpielEnvironment

    monkeypatch.setenv("OPENSPIEL_GAME", "blackjack")
    app = create_app(OpenSpielEnvironment, record=directory)
    env: EnvClient[Any, Any, Any]
    with OpenSpielEnv.local(app) as env:
        for seed in range(HANDS):
            result = env.reset(seed=seed)
            while not result.done:
                legal = result.observation.legal_actions
                result = env.step(OpenSpielAction(action_id=legal[seed % len(legal)]))
    return the_file(directory)


@pytest.mark.slow
def test_hands_of_blackjack_are_the_same(blackjack: Path, tmp_path: Path) -> None:
    done = run_openenv("replay", str(blackjack), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["same"], answer["episodes"], answer["divergence"]) == (True, HANDS, None)
    assert f"the same: episodes: {HANDS}" in done.stderr
    elsewhere = run_openenv("replay", str(blackjack), "--target", "openspiel_env", cwd=tmp_path)
    assert (elsewhere.returncode, elsewhere.stdout) == (0, "")


@pytest.mark.slow
def test_a_card_that_was_swapped_is_found(blackjack: Path, tmp_path: Path) -> None:
    def swap(event: dict[str, Any]) -> None:
        event["observation"]["info_state"][7] = 0.5

    last = len(blackjack.read_text().splitlines()) - 1
    done = run_openenv("replay", str(changed(blackjack, last, swap)), "--json", cwd=tmp_path)
    assert done.returncode == 1
    found = json.loads(done.stdout)["divergence"]
    assert (found["episode"], found["path"]) == (HANDS, "$.observation.info_state[7]")
    assert found["expected"] == 0.5 and found["got"] in (0.0, 1.0)
    assert "$.observation.info_state[7] was 0.5 and is" in done.stderr
    assert "hint:" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.jsonl"], "No such file"),
        (["other.txt"], "no recording"),
        (["FILE", "--target", "no_such_env"], "--target TARGET"),
        (["FILE", "--target", "a", "--url", "b"], "exclude each other"),
        (["FILE", "--url", "http://127.0.0.1:1"], "openenv serve"),
        (["FILE", "--target", "broken.py"], "ZeroDivisionError"),
        (["FILE", "--tolerance", "-1"], "tolerance"),
    ],
)
def test_misuse_is_told_from_a_difference(
    directory: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    file = recorded(directory, Dice)
    (tmp_path / "other.txt").write_text("hello\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    done = run_openenv(
        "replay", *(str(file) if a == "FILE" else a for a in arguments), cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.slow
def test_serving_says_what_excludes_what(tmp_path: Path) -> None:
    for arguments in (["--record", "x", "--reload"], ["--record-on-request"]):
        done = run_openenv("serve", "echo_env", *arguments, cwd=tmp_path)
        assert done.returncode == 2 and "hint:" in done.stderr


@pytest.mark.slow
def test_serving_needs_a_directory_that_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    for place in ("file", "file/below", "/proc/none"):
        done = run_openenv("serve", "echo_env", "--port", "0", "--record", place, cwd=tmp_path)
        assert done.returncode == 2
        assert f"nothing can be recorded in {place}" in done.stderr and "hint:" in done.stderr


# ------------------------------------------------------------------ what a recording may name


@pytest.mark.parametrize(
    "target",
    [
        "python:os:system?command=touch%20{mark}",
        "python:subprocess:Popen?args=[%22touch%22,%22{mark}%22]",
        "hostile:app",
        "hostile.py:app",
        "hostile",
        "gymnasium:hostile:Env-v0",
        "echo_env.server.app:os.system",
        "os:system",
    ],
)
def test_a_recording_runs_no_code_that_nobody_agreed_to(
    directory: Path, tmp_path: Path, target: str
) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "hostile.py").write_text(f"open({str(mark)!r}, 'w').close()\napp = None\n")
    lines = recorded(directory, Dice).read_text().splitlines()
    header = {**json.loads(lines[0]), "target": target.format(mark=mark)}
    file = tmp_path / "hostile.jsonl"
    file.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    done = run_openenv("replay", str(file), cwd=tmp_path)
    assert done.returncode == 2 and "is no environment that is installed here" in done.stderr
    assert "--trust" in done.stderr and not mark.exists()
    with pytest.raises(UntrustedTarget):
        replay(file)


def test_what_was_agreed_to_is_an_environment_all_the_same(directory: Path, tmp_path: Path) -> None:
    lines = recorded(directory, Dice).read_text().splitlines()
    for target in (f"python:os:system?command=touch%20{tmp_path}/mark", "os:system"):
        header = {**json.loads(lines[0]), "target": target}
        file = tmp_path / "hostile.jsonl"
        file.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
        with pytest.raises(TargetError, match="is no"):
            replay(file, trust_recorded=True)
    assert not (tmp_path / "mark").exists()
