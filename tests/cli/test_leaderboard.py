"""`openenv leaderboard`: environments are validated each for itself, and ranked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_openenv
from support.processes import is_alive
from support.validated import replace, write_package
from support.waiting import wait_until

from openenv.validation import leaderboard
from openenv.validation.leaderboard import (
    Leaderboard,
    LeaderboardEntry,
    LeaderboardSettings,
    expand_targets,
    rank_environments,
)
from openenv.validation.targets import PackageNotFound, find_package, list_packages
from openenv.validation.types import Level, Severity

STATIC = LeaderboardSettings(Level.STATIC, skip_build=True, provider="process")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three packages: a good one, one with a fault, and one that is two things at once."""
    folder = tmp_path / "envs"
    write_package(folder, "good_env")
    replace(write_package(folder, "late_env"), "openenv.yaml", "timeout_s: 60", "timeout_s: 7200")
    (write_package(folder, "odd_env") / "task.toml").touch()
    (folder / "notes").mkdir()
    return folder


def test_packages_of_a_folder_are_found(folder: Path) -> None:
    assert [path.name for path in list_packages(folder)] == ["good_env", "late_env", "odd_env"]
    assert expand_targets([str(folder), str(folder / "good_env")]) == [
        str(path) for path in list_packages(folder)
    ]
    assert expand_targets(["http://127.0.0.1:1"]) == ["http://127.0.0.1:1"]


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageNotFound):
        expand_targets([str(tmp_path)])
    with pytest.raises(PackageNotFound, match="did you mean"):
        (tmp_path / "chess_env").mkdir()
        find_package(str(tmp_path / "ches_env"))
    with pytest.raises(PackageNotFound, match="is a file"):
        (tmp_path / "file").touch()
        find_package(str(tmp_path / "file"))


@pytest.mark.extended("starts validations; other tests show the table")
@pytest.mark.slow
def test_one_that_fails_stops_no_other_and_comes_last(folder: Path, tmp_path: Path) -> None:
    board = rank_environments(expand_targets([str(folder)]), tmp_path / "out", STATIC)
    assert [Path(one.target).name for one in board.entries] == ["good_env", "late_env", "odd_env"]
    good, late, odd = board.entries
    assert good.total is not None and late.total is not None and good.total > late.total
    assert (good.verdict, late.verdict, odd.verdict) == ("warn", "fail", "error")
    assert late.why.startswith("static.timeout_ceiling") and "ambiguous" in odd.why


@pytest.mark.extended("starts validations; other tests show the table")
@pytest.mark.slow("validates environments")
def test_what_has_not_changed_is_not_done_again(folder: Path, tmp_path: Path) -> None:
    targets, out = expand_targets([str(folder)])[:2], tmp_path / "out"
    first = rank_environments(targets, out, STATIC)
    again = LeaderboardSettings(Level.STATIC, skip_build=True, provider="process", resume=True)
    second = rank_environments(targets, out, again)
    assert [one.is_resumed for one in second.entries] == [True, True]
    assert [one.total for one in second.entries] == [one.total for one in first.entries]
    (Path(targets[0]) / "README.md").write_text("# Another\n")
    third = rank_environments(targets, out, again)
    assert {one.target: one.is_resumed for one in third.entries} == {
        targets[0]: False,
        targets[1]: True,
    }
    assert not any(one.is_resumed for one in rank_environments(targets[:1], out, STATIC).entries)
    other = LeaderboardSettings(
        Level.STATIC, "v2", skip_build=True, provider="process", resume=True
    )
    assert not any(one.is_resumed for one in rank_environments(targets[:1], out, other).entries)


@pytest.mark.extended("starts validations; other tests show the table")
@pytest.mark.slow
def test_a_report_that_was_cut_off_is_done_again(folder: Path, tmp_path: Path) -> None:
    targets, out = expand_targets([str(folder / "good_env")]), tmp_path / "out"
    rank_environments(targets, out, STATIC)
    (report,) = (file for file in (out / "reports").glob("*.json") if "made-of" not in file.name)
    report.write_text(report.read_text()[:100])
    again = LeaderboardSettings(Level.STATIC, skip_build=True, provider="process", resume=True)
    (entry,) = rank_environments(targets, out, again).entries
    assert not entry.is_resumed and entry.verdict == "warn"


def test_one_that_takes_too_long_is_ended(folder: Path, tmp_path: Path) -> None:
    quick = LeaderboardSettings(Level.STATIC, skip_build=True, provider="process", timeout_s=0.001)
    (entry,) = rank_environments(
        expand_targets([str(folder / "good_env")]), tmp_path / "out", quick
    ).entries
    assert entry.total is None and "0.001 s" in entry.why


def test_tables_escape_what_environments_say() -> None:
    entry = LeaderboardEntry("t", "a_env", None, "error", why="<script> | pipe")
    board = Leaderboard((entry,), STATIC)
    assert "\\| pipe" in board.markdown()
    assert "<script>" not in board.html() and "&lt;script&gt;" in board.html()


@pytest.mark.extended("starts validations; other tests show the table")
@pytest.mark.slow
def test_the_command_ranks_and_writes_tables(folder: Path, tmp_path: Path) -> None:
    arguments = ("envs", "--level", "static", "--skip-build", "--output", "board", "--json")
    done = run_openenv("leaderboard", *arguments, cwd=tmp_path)
    assert done.returncode == 1, done.stderr  # one of them could not be validated
    data: Any = json.loads(done.stdout)
    assert [one["rank"] for one in data["entries"]] == [1, 2, 3]
    assert data == json.loads((tmp_path / "board" / "leaderboard.json").read_text())
    files = {file.name for file in (tmp_path / "board").iterdir() if file.is_file()}
    assert files == {"leaderboard.json", "leaderboard.md", "leaderboard.html"}


def test_a_server_is_ranked_by_its_routes(tmp_path: Path) -> None:
    (entry,) = rank_environments(["http://127.0.0.1:1"], tmp_path, STATIC).entries
    assert (entry.total, entry.verdict) == (0.0, "fail")


@pytest.mark.extended("starts validations; other tests show the table")
@pytest.mark.slow
def test_an_interrupted_ranking_ends_what_runs_and_can_be_resumed(
    folder: Path, tmp_path: Path
) -> None:
    class Interrupted(Exception):
        """Stands for Ctrl-C."""

    def stop(entry: LeaderboardEntry, done: int, total: int) -> None:
        raise Interrupted

    targets, out = expand_targets([str(folder)])[:2], tmp_path / "out"
    with pytest.raises(Interrupted):
        rank_environments(targets, out, STATIC, stop)
    assert not (out / "leaderboard.json").exists()
    again = LeaderboardSettings(Level.STATIC, skip_build=True, provider="process", resume=True)
    assert sorted(one.is_resumed for one in rank_environments(targets, out, again).entries) == [
        False,
        True,
    ]


# ------------------------------------------------------------------ validations that go wrong

HANGS = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""
LEADERBOARD = """
import pathlib, sys
from openenv.validation import leaderboard
code, pid_file, target, out = sys.argv[1:]
leaderboard._command = lambda *_: [sys.executable, "-c", code, pid_file]
settings = leaderboard.LeaderboardSettings(leaderboard.Level.STATIC)
leaderboard.rank_environments([target], pathlib.Path(out), settings)
"""


def ranked_by(
    program: str | list[str], monkeypatch: pytest.MonkeyPatch, folder: Path, **how: Any
) -> LeaderboardEntry:
    """What is said of a package whose validation is a program of ours."""
    command = [sys.executable, "-c", program] if isinstance(program, str) else program
    monkeypatch.setattr(leaderboard, "_command", lambda *_: command)
    settings = LeaderboardSettings(Level.STATIC, **how)
    (entry,) = rank_environments([str(folder / "good_env")], folder / "out", settings).entries
    assert (entry.total, entry.verdict) == (None, "error")
    return entry


def test_how_a_validation_crashed_is_said(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    killed = "import os, signal; print('last', file=sys.stderr); os.kill(os.getpid(), 9)"
    entry = ranked_by(f"import sys; {killed}", monkeypatch, folder)
    assert entry.why == "it was ended by signal 9 (Killed): last"


@pytest.mark.extended("waits until the time of a validation is over")
@pytest.mark.slow
def test_what_a_validation_that_hangs_said_last_is_told(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Asked to end, it does: its own last words are there, and no secret of them."""
    monkeypatch.setenv("SOME_API_KEY", "sesame-opens-it")
    script = "trap 'echo put away sesame-opens-it >&2; exit 1' INT; sleep 600 & wait"
    why = ranked_by(["sh", "-c", script], monkeypatch, folder, timeout_s=1.0).why
    assert why == "it took longer than 1 s: put away ***"


def test_what_a_validation_leaves_behind_is_ended(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """It holds the way that words come by, too: nobody waits for it."""
    pid_file = folder / "pid"
    code = f"""
import pathlib, subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path({str(pid_file)!r}).write_text(str(left.pid))
sys.exit("broken")
"""
    assert ranked_by(code, monkeypatch, folder, timeout_s=60).why == "broken"
    wait_until(lambda: not is_alive(int(pid_file.read_text())))


def test_of_what_a_validation_writes_the_end_is_kept(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    code = "import sys; sys.exit('x' * 5_000_000 + '\\nthe end')"
    why = ranked_by(code, monkeypatch, folder).why
    assert why.endswith("the end") and len(why) <= leaderboard.LAST_BYTES


@pytest.mark.slow
def test_where_the_leaderboard_is_killed_its_validations_end(folder: Path, tmp_path: Path) -> None:
    """Else they would go on, and write over the reports of those that are begun anew."""
    pid_file = tmp_path / "pid"
    arguments = [HANGS, str(pid_file), str(folder / "good_env"), str(tmp_path / "out")]
    running = subprocess.Popen([sys.executable, "-c", LEADERBOARD, *arguments])
    try:
        wait_until(lambda: pid_file.exists() and pid_file.read_text())
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    pid = int(pid_file.read_text())
    try:
        wait_until(lambda: not is_alive(pid))
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


# ------------------------------------------------------------------ what a report stands for


def test_packages_of_the_same_name_have_reports_of_their_own(tmp_path: Path) -> None:
    names = {leaderboard._slug(str(tmp_path / place / "envs" / "a_env")) for place in "ab"}
    assert len(names) == 2


def test_what_validate_is_told_is_handed_on_and_part_of_what_a_report_stands_for(
    folder: Path,
) -> None:
    target, report = str(folder / "good_env"), folder / "report.json"
    told = LeaderboardSettings(Level.STATIC, base="b:1", network="none", ca_file=Path("ca.pem"))
    command = " ".join(leaderboard._command(target, report, told))
    assert "--base b:1 --network none --ca-file ca.pem" in command
    plain = LeaderboardSettings(Level.STATIC)
    made = [leaderboard._cache_key(target, how, how.severity) for how in (told, plain)]
    assert made[0] != made[1]


@pytest.mark.extended("starts validations; other tests show the table")
@pytest.mark.slow
def test_a_policy_of_ones_own_ranks_too(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    policy = STATIC.severity.model_copy(update={"policy_version": "own"})
    own.write_text(policy.model_dump_json())
    how = LeaderboardSettings(
        Level.STATIC, str(own), skip_build=True, provider="process", resume=True
    )
    targets = [str(folder / "good_env")]
    board = rank_environments(targets, tmp_path / "out", how)
    assert (board.entries[0].verdict, board.as_data()["policy_version"]) == ("warn", "own")
    assert rank_environments(targets, tmp_path / "out", how).entries[0].is_resumed
    entries = [
        *policy.entries[1:],
        policy.entries[0].model_copy(update={"severity": Severity.ADVISORY}),
    ]
    own.write_text(policy.model_copy(update={"entries": entries}).model_dump_json())
    assert not rank_environments(targets, tmp_path / "out", how).entries[0].is_resumed
