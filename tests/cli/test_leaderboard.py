"""`openenv leaderboard`: environments are validated each for itself, and ranked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_openenv
from support.validated import replace, write_package

from openenv.validation.leaderboard import Entry, Leaderboard, Settings, rank, targets_of
from openenv.validation.targets import NoPackage, find_package, packages_in
from openenv.validation.types import Level

STATIC = Settings(Level.STATIC, skip_build=True, provider="process")


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
    assert [path.name for path in packages_in(folder)] == ["good_env", "late_env", "odd_env"]
    assert targets_of([str(folder), str(folder / "good_env")]) == [
        str(path) for path in packages_in(folder)
    ]
    assert targets_of(["http://127.0.0.1:1"]) == ["http://127.0.0.1:1"]


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoPackage):
        targets_of([str(tmp_path)])
    with pytest.raises(NoPackage, match="did you mean"):
        (tmp_path / "chess_env").mkdir()
        find_package(str(tmp_path / "ches_env"))
    with pytest.raises(NoPackage, match="is a file"):
        (tmp_path / "file").touch()
        find_package(str(tmp_path / "file"))


@pytest.mark.slow
def test_one_that_fails_stops_no_other_and_comes_last(folder: Path, tmp_path: Path) -> None:
    board = rank(targets_of([str(folder)]), tmp_path / "out", STATIC)
    assert [Path(one.target).name for one in board.entries] == ["good_env", "late_env", "odd_env"]
    good, late, odd = board.entries
    assert good.total is not None and late.total is not None and good.total > late.total
    assert (good.verdict, late.verdict, odd.verdict) == ("warn", "fail", "error")
    assert late.why.startswith("static.timeout_ceiling") and "ambiguous" in odd.why


@pytest.mark.slow
def test_what_has_not_changed_is_not_done_again(folder: Path, tmp_path: Path) -> None:
    targets, out = targets_of([str(folder)])[:2], tmp_path / "out"
    first = rank(targets, out, STATIC)
    again = Settings(Level.STATIC, skip_build=True, provider="process", resume=True)
    second = rank(targets, out, again)
    assert [one.is_resumed for one in second.entries] == [True, True]
    assert [one.total for one in second.entries] == [one.total for one in first.entries]
    (Path(targets[0]) / "README.md").write_text("# Another\n")
    third = rank(targets, out, again)
    assert {one.target: one.is_resumed for one in third.entries} == {
        targets[0]: False,
        targets[1]: True,
    }
    assert not any(one.is_resumed for one in rank(targets[:1], out, STATIC).entries)
    other = Settings(Level.STATIC, "v2", skip_build=True, provider="process", resume=True)
    assert not any(one.is_resumed for one in rank(targets[:1], out, other).entries)


@pytest.mark.slow
def test_a_report_that_was_cut_off_is_done_again(folder: Path, tmp_path: Path) -> None:
    targets, out = targets_of([str(folder / "good_env")]), tmp_path / "out"
    rank(targets, out, STATIC)
    (report,) = (file for file in (out / "reports").glob("*.json") if "made-of" not in file.name)
    report.write_text(report.read_text()[:100])
    again = Settings(Level.STATIC, skip_build=True, provider="process", resume=True)
    (entry,) = rank(targets, out, again).entries
    assert not entry.is_resumed and entry.verdict == "warn"


def test_one_that_takes_too_long_is_ended(folder: Path, tmp_path: Path) -> None:
    quick = Settings(Level.STATIC, skip_build=True, provider="process", timeout_s=0.05)
    (entry,) = rank(targets_of([str(folder / "good_env")]), tmp_path / "out", quick).entries
    assert entry.total is None and "0.05 s" in entry.why


def test_tables_escape_what_environments_say() -> None:
    entry = Entry("t", "a_env", None, "error", why="<script> | pipe")
    board = Leaderboard((entry,), STATIC)
    assert "\\| pipe" in board.markdown()
    assert "<script>" not in board.html() and "&lt;script&gt;" in board.html()


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
    (entry,) = rank(["http://127.0.0.1:1"], tmp_path, STATIC).entries
    assert (entry.total, entry.verdict) == (0.0, "fail")


@pytest.mark.slow
def test_an_interrupted_ranking_ends_what_runs_and_can_be_resumed(
    folder: Path, tmp_path: Path
) -> None:
    class Interrupted(Exception):
        """Stands for Ctrl-C."""

    def stop(entry: Entry, done: int, total: int) -> None:
        raise Interrupted

    targets, out = targets_of([str(folder)])[:2], tmp_path / "out"
    with pytest.raises(Interrupted):
        rank(targets, out, STATIC, stop)
    assert not (out / "leaderboard.json").exists()
    again = Settings(Level.STATIC, skip_build=True, provider="process", resume=True)
    assert sorted(one.is_resumed for one in rank(targets, out, again).entries) == [False, True]
