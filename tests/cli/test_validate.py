"""`openenv validate`: what it prints and writes, and how it ends."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from support.commands import run_openenv
from support.dice import Dice
from support.servers import serving
from support.validated import replace, write_package

from openenv import create_app
from openenv.cli.__main__ import main
from openenv.validation.report import read_report

STATIC = ("--level", "static", "--skip-build")


class Ended(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Validated = Callable[..., Ended]


@pytest.fixture
def validated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Validated:
    """`openenv validate`, in this process."""

    def run(*arguments: str, cwd: Path) -> Ended:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["openenv", "validate", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return Ended(int(caught.value.code or 0), *capsys.readouterr())

    return run


def test_it_prints_what_people_read_and_exits_0_where_something_was_skipped(
    validated: Validated, tmp_path: Path
) -> None:
    write_package(tmp_path)
    done = validated("lamp_env", *STATIC, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "Verdict: WARN" in lines
    assert any(line.startswith("PASS  static.manifest") for line in lines)
    assert any(line.startswith("SKIP  static.repr") and "static.sbom" in line for line in lines)
    assert lines.count("--skip-build: its image was not built") == 1  # for all that it holds of
    after = " ".join(lines[lines.index("Verdict: WARN") + 1 :])
    assert after.startswith("it warns because ") and "could not be made" in after
    assert "static.reproducible_build" in after and "static.manifest" not in after


@pytest.mark.slow
def test_json_is_all_there_is_on_stdout(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    done = run_openenv("validate", *STATIC, "--json", cwd=package)
    report = json.loads(done.stdout)
    assert set(report) == {
        "report_schema_version",
        "target",
        "source_digest",
        "signature",
        "manifest",
        "policy_version",
        "lane",
        "levels_run",
        "results",
        "verdict",
    }
    assert (report["report_schema_version"], report["policy_version"]) == ("1", "v1")
    assert (report["verdict"], report["target"]) == ("warn", ".")


def test_a_failed_check_exits_1_and_says_what_to_write(
    validated: Validated, tmp_path: Path
) -> None:
    package = write_package(tmp_path)
    replace(package, "openenv.yaml", "timeout_s: 60", "timeout_s: 7200")
    done = validated("lamp_env", *STATIC, cwd=tmp_path)
    assert done.returncode == 1
    assert "hint: write validation.resources.episode_timeout_s: 3600, or less" in done.stdout
    assert "Verdict: FAIL" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nothing_here",), 2),
        (("empty",), 2),
        (("lamp_env", "--level", "deep"), 3),
        (("lamp_env", *STATIC, "--policy", "v9"), 3),
        (("lamp_env", "--level", "runtime", "--policy", "v1"), 3),
        (("lamp_env", "--url", "http://127.0.0.1:1"), 1),
        (("--local", "--url", "http://127.0.0.1:1"), 1),
        (("--local", "http://127.0.0.1:1"), 1),
        (("--url", "localhost:8000"), 1),
        (("lamp_env", *STATIC, "--report", "pdf"), 2),
        (("lamp_env", "--no-such-option"), 2),
    ],
)
def test_how_it_ends(
    arguments: tuple[str, ...], code: int, validated: Validated, tmp_path: Path
) -> None:
    write_package(tmp_path)
    (tmp_path / "empty").mkdir()
    done = validated(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stdout == "" and done.stderr != ""


def test_two_forms_in_one_directory_exit_2(validated: Validated, tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "task.toml").touch()
    done = validated(".", *STATIC, cwd=package)
    assert done.returncode == 2 and "ambiguous" in done.stderr


def test_it_writes_a_report_pages_and_a_badge(validated: Validated, tmp_path: Path) -> None:
    write_package(tmp_path)
    done = validated(
        "lamp_env",
        *STATIC,
        *("--output", "out/report.json", "--report", "html,md", "--badge", "out/badge.svg"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    assert {file.name for file in out.iterdir()} == {
        "report.json",
        "report.html",
        "report.md",
        "badge.svg",
    }
    assert read_report(out / "report.json").verdict.value == "warn"
    ElementTree.parse(out / "badge.svg")


def test_a_policy_of_ones_own_is_taken(validated: Validated, tmp_path: Path) -> None:
    from openenv.validation import load_policy

    write_package(tmp_path)
    (tmp_path / "lamp_env" / "data.zip").write_bytes(b"PK\x03\x04")
    strict = load_policy("v1").model_dump_json().replace('"warn"', '"fail"')
    (tmp_path / "strict.json").write_text(strict)
    assert validated("lamp_env", *STATIC, cwd=tmp_path).returncode == 0
    done = validated("lamp_env", *STATIC, "--policy", "strict.json", cwd=tmp_path)
    assert done.returncode == 1


def test_the_name_of_an_installed_environment_will_do(validated: Validated, tmp_path: Path) -> None:
    done = validated("echo_env", *STATIC, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["manifest"]["name"] == "echo_env"


def test_what_openenv_init_writes_has_nothing_to_mend(
    validated: Validated, my_game_env: Path
) -> None:
    done = validated(str(my_game_env), *STATIC, "--json", cwd=my_game_env.parent)
    failed = [one for one in json.loads(done.stdout)["results"] if one["status"] == "fail"]
    # The lock that is missing is written by `uv lock`, or by the first build.
    assert [one["check_id"] for one in failed] in ([], ["static.dependency_pinning"])


# ------------------------------------------------------------------ servers


def test_a_server_is_looked_at(validated: Validated, tmp_path: Path) -> None:
    with serving(create_app(Dice)) as url:
        done = validated(url, "--json", "--output", "server.json", cwd=tmp_path)
        shown = validated("--url", url, cwd=tmp_path)
    assert (done.returncode, shown.returncode) == (0, 0), done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] and report == json.loads((tmp_path / "server.json").read_text())
    assert "PASS  health_endpoint" in shown.stdout


def test_a_server_that_does_not_answer_exits_1(validated: Validated, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        done = validated(url, "--json", cwd=tmp_path)
        shown = validated(url, cwd=tmp_path)
    assert (done.returncode, shown.returncode) == (1, 1)
    error, hint = shown.stderr.splitlines()
    assert "refused" in error and "openenv serve" in hint and shown.stdout == ""
    assert json.loads(done.stdout)["summary"]["passed_count"] == 0
